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
from scipy import stats

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
SIGNIFICANT = 0.05  # "significantly" of the paper: a p-value under this
DECADES = np.linspace(-8, 2, 81)  # edges of the histogram of log10 |w|
NODES_ON = f"""\
Nodes on: `widths_`, farrier's measure (S1 in docs/math.md), by which the verdicts go: a
node is on if it moves something in the next layer by over 1 % of its standard deviation
in posterior draws. Beside it stand the norms that the paper's figures show: nodes whose
expected weights have a norm over {NORM_ON:.0%} of the largest. The two differ where the
weights into a node have expectations near 0 and are still uncertain: such a node has a
small norm, yet the next layer receives its noise, so that it is on. They also differ
where a node with large weights is not used by the next layer: it is off.
"""


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


# -- claims on classifiers ----------------------------------------------------------


def standard_error(row: Row) -> float:
    """Of the error rate, as a share of independent test rows."""
    return float(np.sqrt(row["error"] * (1 - row["error"]) / row["test_rows"]))


@dataclass(frozen=True)
class Gap:
    """Error rate of one model less that of another.

    `se` is one standard error; `p` is that of "no difference", two-sided.
    """

    mean: float
    se: float
    p: float

    @property
    def significantly_better(self) -> bool:
        """Fewer errors, with p < 0.05."""
        return self.mean < 0 and self.p < SIGNIFICANT

    @property
    def comparable(self) -> bool:
        """Within two standard errors, either way."""
        return abs(self.mean) <= 2 * self.se

    @property
    def worse(self) -> bool:
        """More errors, by over two standard errors."""
        return self.mean > 2 * self.se

    def __str__(self) -> str:
        return (
            f"{100 * self.mean:+.2f} points, SE {100 * self.se:.2f}, p = {self.p:.2g}"
        )


def unpaired(ours: Row, other: Row) -> Gap:
    """Of two shares of test rows, as if the test rows were not the same.

    Rows hold error rates and not which test rows are wrong. Models that are wrong on
    the same test rows have a smaller standard error than this.
    """
    mean = ours["error"] - other["error"]
    se = float(np.hypot(standard_error(ours), standard_error(other)))
    return Gap(mean, se, p_value(mean, se, np.inf))


def paired(ours: list[Row], others: list[Row]) -> Gap:
    """Of the means over the same splits, by the differences split by split."""
    gaps = np.array(
        [a["error"] - b["error"] for a, b in zip(ours, others, strict=True)]
    )
    mean, n = float(gaps.mean()), len(gaps)
    if n < 2:
        return Gap(mean, float("nan"), float("nan"))
    se = float(gaps.std(ddof=1) / np.sqrt(n))
    return Gap(mean, se, p_value(mean, se, n - 1))


def p_value(mean: float, se: float, freedom: float) -> float:
    """That a mean differs from 0 by so much, two-sided, by Student's t."""
    if se == 0:
        return float(mean == 0)
    return float(2 * stats.t.sf(abs(mean) / se, freedom))


def nodes_text(row: Row) -> str:
    """Nodes on of each layer, and in brackets the norms that are over the limit."""
    on, norms = (" - ".join(map(str, row[key])) for key in ("nodes_on", "norms_on"))
    return f"{on} ({norms})"


def turned_off_claim(quote: str, rows: list[Row]) -> Claim:
    """Holds when under half of the nodes are on in each layer of each network.

    Partly in some layer. The rows are those of the horseshoe.
    """
    few = [on < row["width"] / 2 for row in rows for on in row["nodes_on"]]
    told = [f"{nodes_text(row)} of {row['width']} - {row['width']}" for row in rows]
    return Claim(
        quote,
        f"Nodes on by `widths_` (norms over {NORM_ON:.0%} of the largest): "
        f"{', '.join(told)}.",
        verdict(holds=all(few), partly=any(few)),
    )
