"""The four models that the paper compares, and what is read off each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from farrier import (
    Gaussian,
    HorseshoeClassifier,
    HorseshoeRegressor,
    Matrix,
    fit_many,
)
from farrier.model.network import Network

from ._harness import Claim, Row, Work, verdict
from .plots import Axes
from .settings import arguments

NORM_ON = 0.01  # expected weights are on when their norm is over this x the largest
SMALLEST = 5  # units of each layer whose weights are drawn
DRAWS = 100  # of their weights
DECADES = np.linspace(-8, 2, 81)  # edges of the histogram of log10 |w|


@dataclass(frozen=True, kw_only=True)
class Model:
    """One of the models: what it is called, how it is drawn, what it is made of."""

    label: str
    colour: str
    settings: dict[str, Any]


MODELS = {
    "horseshoe": Model(
        label="HS-BNN", colour="#1f6f8b", settings={"prior": "horseshoe"}
    ),
    "gaussian": Model(label="BNN", colour="#c05a2e", settings={"prior": "gaussian"}),
    "scale-mixture": Model(
        label="SM-BNN", colour="#6a9a3b", settings={"prior": "scale-mixture"}
    ),
    "vmg": Model(
        label="VMG",
        colour="#7d5ba6",
        # Its authors' settings for MNIST, but for batches of 100 rows at 0.001.
        settings={
            "prior": Gaussian(parametrisation="centred"),
            "posterior": Matrix(pairs=50, noise=0.01),
            "averaging": 0.999,
        },
    ),
}

# Digits, where the horseshoe has chosen widths and the network is fitted again: as VMG,
# but for smooth units and more noise of the pseudo-data, which were a little better on
# training digits set apart.
AGAIN: dict[str, Any] = MODELS["vmg"].settings | {
    "activation": "gelu",
    "posterior": Matrix(pairs=50, noise=0.05),
    "kl_annealing": 0.0,
}


@dataclass(frozen=True, kw_only=True)
class AbstractDigits:
    """Settings of experiments that fit to digits and judge on some set apart.

    Parameters
    ----------
    rows, held_out
        Training rows that are used, from the first, and how many of them at their end
        judge what there is to choose.
    test_rows
        Test rows that are used, from the first.
    """

    epochs: int = 100
    kl_annealing: float = 0.1
    learning_rate: float = 0.005
    batch_size: int = 512
    rows: int = 60_000
    held_out: int = 10_000
    test_rows: int = 10_000
    draws: int = 100
    seed: int = 0

    def shared(self) -> dict[str, Any]:
        """What all their fits are given."""
        return {
            "learning_rate": self.learning_rate,
            "batch_size": self.batch_size,
            "max_iter": self.epochs,
            "early_stopping": False,
            "standardise": False,
            "n_draws": self.draws,
            "random_state": self.seed,
        }


# Of `AbstractDigits`, to see that an experiment runs at all.
FEW_DIGITS: dict[str, Any] = {
    "epochs": 2,
    "rows": 320,
    "held_out": 64,
    "test_rows": 64,
    "batch_size": 128,
    "draws": 8,
}


def written(settings: dict[str, Any]) -> dict[str, str]:
    """Settings of an estimator as strings, for the mark of a part."""
    return {key: repr(value) for key, value in settings.items()}


def classifier(name: str, width: int, **settings: Any) -> HorseshoeClassifier:
    """Two hidden layers of equal width, trained as the paper does.

    The objective is the ELBO from the first step to the last. Settings of the model
    replace those that are given.
    """
    paper = {"kl_annealing": 0.0, "early_stopping": False}
    chosen = arguments(paper, settings, MODELS[name].settings)
    return HorseshoeClassifier((width, width), **chosen)


def network_of(model: HorseshoeClassifier | HorseshoeRegressor) -> Network:
    """The variational posterior of a model that is neither sampled nor an ensemble."""
    return model.model_.variational()


def classified(
    model: HorseshoeClassifier, X: np.ndarray, y: np.ndarray
) -> dict[str, float]:
    """Error rate of the mean probabilities, and mean log probability of the labels."""
    log_p = model.predict_log_proba(X)
    codes = np.searchsorted(model.classes_, y)
    return {
        "error": float(np.mean(log_p.argmax(1) != codes)),
        "log_density": float(log_p[np.arange(len(y)), codes].mean()),
    }


def fitted(
    widths: tuple[int, ...],
    settings: dict[str, Any],
    table: tuple[np.ndarray, np.ndarray],
    work: Work,
    title: str,
) -> HorseshoeClassifier:
    """One fit, that tells how far it is and can go on where it was stopped."""
    model = HorseshoeClassifier(widths, **arguments(settings))
    text = f"{title}, {settings['max_iter']} epochs"
    told = lambda share, history: work.report(share, text)
    file = work.folder / f"{title}.safetensors"
    return model.fit(*table, checkpoint=file, callback=told)


def fit_each(
    models: Sequence[HorseshoeClassifier | HorseshoeRegressor],
    tables: Sequence[tuple[np.ndarray, np.ndarray]],
    work: Work,
) -> None:
    """Fit each model to its own table, all of equal length, as one piece of work."""
    x, y = (np.concatenate(columns) for columns in zip(*tables, strict=True))
    rows = np.split(np.arange(len(x)), len(tables))
    fit_many(models, x, y, rows=rows, after_fit=work.counter(len(models)))


def fit_to_parts(
    models: Sequence[HorseshoeClassifier | HorseshoeRegressor],
    X: np.ndarray,
    y: np.ndarray,
    parts: Sequence[np.ndarray],
    work: Work,
) -> None:
    """Fit each to rows of its own: at once, or one by one where chains fill all cores.

    `parts` are the numbers of these rows.
    """
    if all(model.refine is None for model in models):
        fit_many(models, X, y, rows=parts, after_fit=work.counter(len(models)))
        return
    for done, (model, rows) in enumerate(zip(models, parts, strict=True)):
        work.done(done, len(models))
        model.fit(X[rows], y[rows])


def nodes(model: HorseshoeClassifier | HorseshoeRegressor) -> dict[str, list]:
    """Nodes counted both ways, and the norms of expected weights, largest first."""
    norms = [np.sort(layer)[::-1] for layer in model.weight_norms_]
    return {
        "nodes_on": [*model.widths_],
        "norms_on": [int((layer > NORM_ON * layer[0]).sum()) for layer in norms],
        "norms": [layer.tolist() for layer in norms],
    }


def smallest_units(
    model: HorseshoeClassifier | HorseshoeRegressor, *, key: PRNGKeyArray
) -> list[list[dict[str, Any]]]:
    """For each hidden layer, the weights into its units of smallest norm.

    `density` is that of log10 |w| between the edges `DECADES`, over posterior draws of
    all weights into the unit; `median` is the median of |w|.
    """
    units = [np.argsort(norms)[:SMALLEST] for norms in model.weight_norms_]
    network = network_of(model)
    drawn = _weights_into(network, [jnp.asarray(u) for u in units], key=key)
    return [
        [
            {"norm": float(norms[unit])} | _spread(np.abs(np.asarray(w, float)))
            for unit, w in zip(chosen, draws, strict=True)
        ]
        for norms, chosen, draws in zip(model.weight_norms_, units, drawn, strict=True)
    ]


@eqx.filter_jit
def _weights_into(
    network: Network, units: list[Int[Array, " _"]], *, key: PRNGKeyArray
) -> list[Float[Array, "_ draws _"]]:
    """Draws of the weights into some units of each hidden layer."""

    def one(key_draw: PRNGKeyArray) -> list[Float[Array, "_ _"]]:
        kernels = network.sample(key=key_draw).kernels
        return [kernels[layer][:, chosen] for layer, chosen in enumerate(units)]

    drawn = lax.map(one, jr.split(key, DRAWS))
    return [jnp.moveaxis(weights, 2, 0) for weights in drawn]


def _spread(size: np.ndarray) -> dict[str, Any]:
    logs = np.log10(np.clip(size, 10 ** DECADES[0], 10 ** DECADES[-1]))
    density, _ = np.histogram(logs, DECADES, density=True)
    return {"median": float(np.median(size)), "density": density.tolist()}


def quantile(density: list[float], level: float) -> float:
    """Size of weights under which a share `level` of them is, from their density."""
    mass = np.append(0.0, np.cumsum(density))
    return float(10 ** np.interp(level, mass / mass[-1], DECADES))


def draw_norms(ax: Axes, name: str, norms: list[float]) -> None:
    """Norms of the expected weights into the units of a layer, largest first."""
    model = MODELS[name]
    values = np.maximum(norms, 1e-6)
    number = np.arange(1, len(values) + 1)
    ax.plot(number, values, color=model.colour, lw=1.8, label=model.label)
    ax.set_yscale("log")


def draw_density(ax: Axes, density: list[float], **style: Any) -> None:
    """Density of the size of weights, on a logarithmic axis."""
    middles = 10 ** ((DECADES[1:] + DECADES[:-1]) / 2)
    ax.plot(middles, density, **style)
    ax.set_xscale("log")
    ax.set_xlabel("size of a weight |w|")
    ax.set_ylabel("posterior density of log10 |w|")


def sparsity_claim(ours: Row, others: dict[str, Row]) -> Claim:
    """Holds when the horseshoe keeps the fewest norms in each layer, partly in one.

    The rows have `model`, `width` and `norms_on`.
    """
    fewer = [
        own < min(row["norms_on"][layer] for row in others.values())
        for layer, own in enumerate(ours["norms_on"])
    ]
    kept = [
        f"{MODELS[row['model']].label} {' and '.join(map(str, row['norms_on']))}"
        for row in (ours, *others.values())
    ]
    widths = f"{ours['width']}-{ours['width']}"
    return Claim(
        f"The horseshoe turns units off, the other models do not ({widths}).",
        f"Units of each layer with a norm over {NORM_ON:.0%} of the largest: "
        f"{', '.join(kept)}.",
        verdict(holds=all(fewer), partly=any(fewer)),
    )
