"""How a network copes with far too many units: y = x^3 + N(0, 9), 20 points.

Gaussian and horseshoe priors at several widths, under two protocols. "paper": 1000
iterations, Gamma(6, 6) on the noise's precision, the ELBO as objective from the first
step. "converged": the estimator's defaults, KL annealing and a weak prior on the noise,
trained until the ELBO has nothing left to gain.

Under the paper's own protocol the difference between the priors does not show: neither
network predicts worse when it is wide. It shows under the other protocol, and there it
is one of optimisation. KL annealing leads the horseshoe network to a good fit, where it
stays; but the ELBO of a constant prediction is higher than that of the good fit, which
is thus a local optimum ([which fits the ELBO prefers](../selection/table.md)).

The committed rows of "paper" were made with auxiliary variables for the half-Cauchy
distributions, set to their optimum after each step, at the commits in the manifest.
farrier now has the collapsed form, in which the auxiliary variables are always at their
optimum: by design it has the same gradients.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeRegressor, presets
from farrier.datasets import cubic
from farrier.demo import cubic_figure

from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from ._models import fit_each
from .plots import COLOURS, LABELS, Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about half an hour on 2 cores"
SHOWN = 3  # widths of which bands are drawn: the largest
GRID = np.linspace(-5, 5, 101)
BAND, DATA = ("x", "mean", "std"), ("data_x", "data_y")
NOISE_VARIANCE = 9.0
TARGET_VARIANCE = 4**6 / 7 + NOISE_VARIANCE  # of y, x uniform on [-4, 4]
SMALL_LOSS = 0.1  # nats a point: a drop of less than this is none
TITLES = {
    "paper": "As in the paper: {} iterations, Gamma(6, 6)",
    "converged": "To convergence: KL annealing, weak noise prior",
}

PLAN = ("widths", "priors", "protocols")  # which parts there are


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    data_seeds
        One data set, and one fit to it, for each.
    test_seed
        Added to the data seed: the test points of that data set.
    iterations
        Of the protocol "paper", each on all rows.
    most_iterations
        Of the protocol "converged"; "auto" is the estimator's budget.
    """

    widths: tuple[int, ...]
    data_seeds: tuple[int, ...]
    iterations: int
    most_iterations: int | str
    test_seed: int = 1_000
    test_points: int = 200
    priors: tuple[str, ...] = ("gaussian", "horseshoe")
    protocols: tuple[str, ...] = ("converged", "paper")


FULL = Config(
    widths=(10, 50, 100, 1_000),  # the paper's three, and one that is not too wide
    data_seeds=tuple(range(20)),
    iterations=1_000,
    most_iterations="auto",
)
SMOKE = Config(
    widths=(4,),
    data_seeds=(0, 1),
    iterations=20,
    most_iterations=20,
    test_points=20,
    priors=("horseshoe",),
    protocols=("paper",),
)


def data_files(config: Config) -> tuple[str, ...]:
    """None: the data are generated."""
    del config
    return ()


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One part for each protocol, prior and width."""
    del data
    return {
        f"{protocol}/{prior}/{width}": partial(fits, config, protocol, prior, width)
        for protocol in config.protocols
        for prior in config.priors
        for width in config.widths
    }


def settings(config: Config, protocol: str, prior: str) -> dict[str, Any]:
    """What a protocol asks of the estimator."""
    preset, iterations = {
        "paper": (presets.paper(), config.iterations),
        "converged": (presets.PLAIN, config.most_iterations),
    }[protocol]
    return arguments(preset, {"prior": prior, "max_iter": iterations})


def fits(
    config: Config, protocol: str, prior: str, width: int, work: Work
) -> list[Row]:
    """A fit to each data set, all at once; the first one's bands are kept."""
    chosen: dict[str, Any] = settings(config, protocol, prior) | {
        "hidden_layer_sizes": (width,)
    }
    tables = [cubic(seed=seed) for seed in config.data_seeds]
    models = [HorseshoeRegressor(random_state=s, **chosen) for s in config.data_seeds]
    fit_each(models, tables, work)
    about = {"protocol": protocol, "prior": prior, "width": width}
    found = [
        about | {"seed": seed} | measured(model, config, seed)
        for model, seed in zip(models, config.data_seeds, strict=True)
    ]
    x, y = tables[0]
    return [found[0] | {"data_x": x[:, 0], "data_y": y}] + [
        {name: value for name, value in row.items() if name not in BAND}
        for row in found[1:]
    ]


def measured(model: HorseshoeRegressor, config: Config, seed: int) -> Row:
    """What one fit is worth on fresh points, and its band over the range."""
    x, y = cubic(config.test_points, seed=config.test_seed + seed)
    mean, std = model.predict(np.append(x[:, 0], GRID)[:, None], return_std=True)
    error = np.asarray(mean)[: len(y)] - y
    return {
        "log_likelihood": model.log_density(x, y).mean(),
        "rmse": np.sqrt(np.mean(error**2)),
        "nodes_on": model.widths_[0],
        "iterations": model.n_iter_,
        "x": GRID,
        "mean": mean[len(y) :],
        "std": std[len(y) :],
    }


def render(rows: list[Row]) -> dict[str, Figure]:
    """Bands for each protocol, and the log-likelihood against the width."""
    protocols = list(dict.fromkeys(row["protocol"] for row in rows))
    widths = sorted({row["width"] for row in rows})[-SHOWN:]
    figures = {}
    for protocol in protocols:
        panels = [
            row | {name: np.array(row[name]) for name in (*BAND, *DATA)}
            for row in where(rows, protocol=protocol)
            if "mean" in row and row["width"] in widths
        ]
        if panels:
            figure = cubic_figure(panels)
            figure.suptitle(title(protocol, panels), fontsize=11)
            figures[f"bands_{protocol}"] = figure
    return figures | {"log_likelihood": likelihood_figure(rows, protocols)}


def title(protocol: str, rows: list[Row]) -> str:
    """What a protocol is, in a line."""
    most = max(row["iterations"] for row in rows)
    return TITLES[protocol].format(most)


def normal_density(model_variance: float) -> float:
    """Expected log density of a normal with the variance of what it predicts."""
    return -0.5 * math.log(2 * math.pi * math.e * model_variance)


def likelihood_figure(rows: list[Row], protocols: list[str]) -> Figure:
    """Test log-likelihood against width, a line for each prior."""
    figure, axes = new_figure(1, len(protocols), height=3.4)
    widths = sorted({row["width"] for row in rows})
    for column, protocol in enumerate(protocols):
        ax, here = axes[0, column], where(rows, protocol=protocol)
        for shift, prior in enumerate(dict.fromkeys(row["prior"] for row in here)):
            of_prior = where(here, prior=prior)
            points = [
                (width, *mean_and_error(r["log_likelihood"] for r in at))
                for width in widths
                if (at := where(of_prior, width=width))
            ]
            x, y, error = np.array(points).T
            ax.errorbar(
                x * 1.04**shift,  # so that bars do not hide each other
                y,
                np.nan_to_num(error),
                color=COLOURS[prior],
                label=LABELS[prior],
                marker="o",
                ms=5,
                capsize=3,
            )
        for variance, name, style in (
            (NOISE_VARIANCE, "truth known", "--"),
            (TARGET_VARIANCE, "constant prediction", ":"),
        ):
            ax.axhline(normal_density(variance), color="k", ls=style, lw=1, label=name)
        ax.set_xscale("log")
        ax.set_xticks(widths, [str(width) for width in widths])
        ax.minorticks_off()
        ax.set_xlabel("units in the hidden layer")
        ax.set_title(title(protocol, here), fontsize=10)
        ax.sharey(axes[0, 0])
    axes[0, 0].set_ylabel("test log-likelihood (nats a point)")
    legend_below(figure, axes[0, 0])
    return figure


def table(rows: list[Row]) -> str:
    """Ours; the paper shows this as a figure and prints no numbers."""
    lines = []
    groups = dict.fromkeys((r["protocol"], r["prior"], r["width"]) for r in rows)
    for protocol, prior, width in groups:
        here = where(rows, protocol=protocol, prior=prior, width=width)
        density, error = mean_and_error(row["log_likelihood"] for row in here)
        rmse, rmse_error = mean_and_error(row["rmse"] for row in here)
        nodes = [row["nodes_on"] for row in here]
        lines.append(
            [
                protocol,
                prior,
                width,
                "figure only",
                f"{density:.2f} ± {error:.2f}",
                f"{rmse:.2f} ± {rmse_error:.2f}",
                f"{np.mean(nodes):.1f} ({min(nodes)} to {max(nodes)})",
                len(here),
            ]
        )
    columns = ["protocol", "prior", "units", "published", "log-likelihood", "RMSE"]
    text = markdown([*columns, "nodes on (range)", "data sets"], lines)
    return text + (
        f"\n± two standard errors over data sets; nats a point on fresh test points. "
        f"A constant gives {normal_density(TARGET_VARIANCE):.2f}, the truth "
        f"{normal_density(NOISE_VARIANCE):.2f}.\n"
    )


def paired(rows: list[Row], one: Row, other: Row) -> tuple[float, float]:
    """Mean difference in log-likelihood over the data sets, and two standard errors."""
    first, second = (
        {row["seed"]: row["log_likelihood"] for row in where(rows, **wanted)}
        for wanted in (one, other)
    )
    return mean_and_error(first[seed] - second[seed] for seed in first.keys() & second)


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of the cubic, in its words, under each protocol.

    Differences are paired over data sets and count where they are over two standard
    errors.

    1. holds: the Gaussian network loses over 0.1 nats from the smallest width to the
       largest.
    2. holds: the horseshoe network loses less than 0.1 nats that way, and over 0.1 nats
       less than the Gaussian one; partly: one of the two.
    3. holds: at the largest width the horseshoe network is better.
    """
    found = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        here = where(rows, protocol=protocol)
        found += _claims_of(protocol, here)
    return found


def _claims_of(protocol: str, rows: list[Row]) -> list[Claim]:
    widths = sorted({row["width"] for row in rows})
    low, high = widths[0], widths[-1]
    complete = all(
        where(rows, prior=prior, width=width)
        for prior in ("gaussian", "horseshoe")
        for width in (low, high)
    )
    about = f"{title(protocol, rows)}: "
    texts = (
        f'{about}"The performance of the BNN with Gaussian priors quickly deteriorates '
        'with increasing capacity"',
        f'{about}"HS-BNN [...] is more robust to model misspecification showing only a '
        'marginal drop in predictive performance with increasing number of units"',
        f'{about}"our prior prevents the BNN from under-fitting even when the number '
        'of nodes required is grossly over-estimated"',
    )
    if not complete or low == high:
        waits = "not all widths and priors are there yet"
        return [Claim(text, waits, "waits for results") for text in texts]

    def lost(prior: str) -> dict[int, float]:
        """Nats a point, from the smallest to the largest width, by data set."""
        narrow, wide = (
            {r["seed"]: r["log_likelihood"] for r in where(rows, prior=prior, width=w)}
            for w in (low, high)
        )
        return {seed: narrow[seed] - wide[seed] for seed in narrow.keys() & wide}

    by_prior = {prior: lost(prior) for prior in ("gaussian", "horseshoe")}
    (theirs, theirs_error), (ours, ours_error) = (
        mean_and_error(losses.values()) for losses in by_prior.values()
    )
    more, more_error = mean_and_error(
        by_prior["gaussian"][seed] - loss
        for seed, loss in by_prior["horseshoe"].items()
        if seed in by_prior["gaussian"]
    )
    wide = {"width": high}
    gain, gain_error = paired(
        rows, wide | {"prior": "horseshoe"}, wide | {"prior": "gaussian"}
    )
    span = f"from {low} to {high} units"
    small, robust = ours < SMALL_LOSS, more > max(more_error, SMALL_LOSS)
    return [
        Claim(
            texts[0],
            f"{theirs:+.2f} ± {theirs_error:.2f} nats a point lost {span}",
            verdict(holds=theirs > max(theirs_error, SMALL_LOSS), partly=False),
        ),
        Claim(
            texts[1],
            f"{ours:+.2f} ± {ours_error:.2f} nats a point lost {span}, which is less "
            f"than the Gaussian network loses by {more:+.2f} ± {more_error:.2f}",
            verdict(holds=small and robust, partly=small or robust),
        ),
        Claim(
            texts[2],
            f"{gain:+.2f} ± {gain_error:.2f} nats a point over the Gaussian network at "
            f"{high} units",
            verdict(holds=gain > gain_error, partly=False),
        ),
    ]
