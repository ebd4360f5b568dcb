"""Whether the nodes that made the data are found again: labels of a 2-2-1 network.

1000 points on [-1, 1]^2, labelled by a network with two hidden nodes, are learned by
networks that are far too wide, under the Gaussian prior and under both forms of the
horseshoe. Our labels are drawn from probabilities, and on a quarter of the square both
labels are equally likely; those of the paper are "(nearly) linearly separable".

Nodes are counted in two ways. "on": their share in what they feed is over 1 per cent
(`widths_`); verdicts go by this one. "weights": the norm of the expected weights into
them is over 5 per cent of the largest norm, which is what the paper's figure shows. The
two differ for the Gaussian prior: nodes with large weights that the output does not use
are off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeClassifier
from farrier.core.weights import MeanFieldWeights
from farrier.datasets import two_two_one
from farrier.demo import weights_on

from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from ._models import SIGNIFICANT, classified, fit_each, network_of, p_value
from .plots import COLOURS, LABELS, Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about 5 minutes on 2 cores"
TRUE_NODES = 2
SMALL_EXCESS = 0.01  # of the error rate: this near to the least one is an easy fit
SHOWN = 15  # units of a wide network whose weights are drawn
MEASURES = {
    "nodes_on": "nodes on: share in the output over 1 %",
    "weights_on": "norm of E[w] over 5 % of the largest",
}

PLAN = ("widths", "priors")  # which parts there are


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    seeds
        One data set, and one fit to it, for each.
    test_seed
        Added to the seed: the test points of that data set.
    most_iterations
        Passes over the data; "auto" is the estimator's budget.
    """

    widths: tuple[int, ...]
    seeds: tuple[int, ...]
    points: int = 1_000
    most_iterations: int | str = "auto"
    test_seed: int = 1_000
    priors: tuple[str, ...] = ("gaussian", "centred-horseshoe", "horseshoe")


FULL = Config(widths=(15, 100), seeds=tuple(range(10)))
SMOKE = Config(
    widths=(5,),
    seeds=(0, 1),
    points=50,
    most_iterations=20,
    priors=("centred-horseshoe",),
)


def data_files(config: Config) -> tuple[str, ...]:
    """None: the data are generated."""
    del config
    return ()


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One part for each prior and width."""
    del data
    return {
        f"{prior}/{width}": partial(fits, config, prior, width)
        for prior in config.priors
        for width in config.widths
    }


def fits(
    config: Config, name: str, width: int, work: Work, *, prior: Any = None
) -> list[Row]:
    """A fit to each data set, all at once; the first one's weights are kept.

    Parameters
    ----------
    prior
        An object for a prior whose name the estimators do not know.
    """
    tables = [two_two_one(config.points, seed=s) for s in config.seeds]
    chosen: dict[str, Any] = {
        "hidden_layer_sizes": (width,),
        "prior": name if prior is None else prior,
        "max_iter": config.most_iterations,
    }
    given = arguments(chosen)
    models = [HorseshoeClassifier(random_state=s, **given) for s in config.seeds]
    fit_each(models, tables, work)
    about = {"prior": name, "width": width}
    found = [
        about | {"seed": seed} | measured(model, config, seed)
        for model, seed in zip(models, config.seeds, strict=True)
    ]
    found[0]["weights"] = expected_weights(models[0])[:SHOWN]
    return found


def measured(model: HorseshoeClassifier, config: Config, seed: int) -> Row:
    """The nodes that one fit uses, and what it is worth on fresh points."""
    x, y = two_two_one(config.points, seed=config.test_seed + seed)
    scores = classified(model, x, y)
    return {
        "nodes_on": model.widths_[0],
        "weights_on": weights_on(model),
        "error_rate": scores["error"],
        "log_likelihood": scores["log_density"],
        "iterations": model.n_iter_,
        "norms": np.sort(model.weight_norms_[0])[::-1],
    }


def expected_weights(model: HorseshoeClassifier) -> np.ndarray:
    """E[w_k], bias last, one row for each unit; the largest norm first."""
    layer = network_of(model).layers[0]
    weights = layer.weights
    assert isinstance(weights, MeanFieldWeights)
    scales = layer.expected_norms() / weights.expected_norms()
    inputs, biases = np.asarray(layer.expected_weights()), scales * weights.bias.loc
    columns = np.column_stack([inputs, np.asarray(biases)])
    return columns[np.argsort(-np.linalg.norm(columns, axis=1))]


def render(rows: list[Row]) -> dict[str, Figure]:
    """Box plots of the weights, and the numbers of nodes."""
    return {"weights": weights_figure(rows), "nodes": nodes_figure(rows)}


def weights_figure(rows: list[Row]) -> Figure:
    """Expected weights into each unit: a row of panels for each prior."""
    priors = list(dict.fromkeys(row["prior"] for row in rows))
    widths = sorted({row["width"] for row in rows})
    figure, axes = new_figure(len(priors), len(widths), height=0.6 + 2 * len(priors))
    for panel in (row for row in rows if "weights" in row):
        i, j = priors.index(panel["prior"]), widths.index(panel["width"])
        ax, colour = axes[i, j], COLOURS[panel["prior"]]
        ax.boxplot(
            panel["weights"],
            whis=(0, 100),
            widths=0.6,
            patch_artist=True,
            boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.5},
            medianprops={"color": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
        )
        ax.axhline(0, color="k", lw=0.6)
        shown = len(panel["weights"])
        largest = f", the {shown} largest" if shown < panel["width"] else ""
        ax.set_title(
            f"{LABELS[panel['prior']]}, {panel['width']} units{largest}", fontsize=10
        )
        ax.tick_params(labelsize=8)
        if i == len(priors) - 1:
            ax.set_xlabel("unit, largest norm first")
        if j == 0:
            ax.set_ylabel("E[w] into the unit")
    return figure


def nodes_figure(rows: list[Row]) -> Figure:
    """Mean and range of the number of nodes, by both measures."""
    priors = list(dict.fromkeys(row["prior"] for row in rows))
    widths = sorted({row["width"] for row in rows})
    figure, axes = new_figure(1, len(MEASURES), height=3.2)
    for ax, (measure, name) in zip(axes[0], MEASURES.items(), strict=True):
        for number, prior in enumerate(priors):
            places, means, low, high = [], [], [], []
            for place, width in enumerate(widths):
                counts = [r[measure] for r in where(rows, prior=prior, width=width)]
                if counts:
                    places.append(place + 0.15 * (number - (len(priors) - 1) / 2))
                    means.append(np.mean(counts))
                    low.append(means[-1] - min(counts))
                    high.append(max(counts) - means[-1])
            ax.errorbar(
                places,
                means,
                [low, high],
                fmt="o",
                color=COLOURS[prior],
                label=LABELS[prior],
                capsize=4,
            )
        ax.axhline(TRUE_NODES, color="k", ls="--", lw=1, label="the truth: 2")
        ax.set_yscale("symlog", linthresh=1)
        ticks = [0, 1, 2, 5, 15, 50, 100]
        ax.set_yticks(ticks, [str(tick) for tick in ticks])
        ax.set_ylim(-0.3, 1.6 * max(widths))
        ax.set_xticks(range(len(widths)), [f"{width} units" for width in widths])
        ax.set_xlim(-0.5, len(widths) - 0.5)
        ax.set_title(name, fontsize=10)
        ax.minorticks_off()
    axes[0, 0].set_ylabel("nodes (mean and range over data sets)")
    legend_below(figure, axes[0, 0])
    return figure


def spread(values: list[float]) -> str:
    """Mean and range."""
    return f"{np.mean(values):.1f} ({min(values)} to {max(values)})"


def table(rows: list[Row]) -> str:
    """Ours; the paper shows this as a figure and prints no numbers."""
    lines = []
    for prior, width in dict.fromkeys((row["prior"], row["width"]) for row in rows):
        here = where(rows, prior=prior, width=width)
        error, error_2se = mean_and_error(100 * row["error_rate"] for row in here)
        density, density_2se = mean_and_error(row["log_likelihood"] for row in here)
        lines.append(
            [
                prior,
                width,
                TRUE_NODES,
                "figure only",
                spread([row["nodes_on"] for row in here]),
                spread([row["weights_on"] for row in here]),
                f"{error:.1f} ± {error_2se:.1f}",
                f"{density:.3f} ± {density_2se:.3f}",
                len(here),
            ]
        )
    columns = ["prior", "units", "true nodes", "published", "on (range)"]
    columns += ["weights (range)", "test error (%)", "log-likelihood", "data sets"]
    return markdown(columns, lines) + (
        "\nOn: nodes whose share in the output is over 1 %, by which the verdicts go. "
        "Weights: nodes whose expected weights have a norm over 5 % of the largest, as "
        "in the paper's figure. The least possible test error is "
        f"{100 * least_error():.1f} %. ± two standard errors over data sets; "
        "log-likelihood in nats a point.\n"
    )


def least_error(cells: int = 1_000) -> float:
    """Expected error rate of the rule that knows the odds of `two_two_one`.

    The mean of min(p, 1 - p) over the square, by the midpoints of cells^2 cells.
    """
    middles = (2 * np.arange(cells) + 1) / cells - 1
    x1, x2 = np.meshgrid(middles, middles)
    odds = 10 * (np.maximum(x1 + x2, 0) - np.maximum(x1 - x2, 0))
    return float(np.mean(1 / (1 + np.exp(np.abs(odds)))))


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of this problem, in its words; nodes on are `widths_`.

    1. holds: the mean test error of each model, at each width, is under one point over
       the least possible one; partly: of some.
    2. holds: over half of the Gaussian network's nodes are on, on average, at every
       width; partly: at some.
    3. holds: under half of the nodes are on in every run of both forms of the
       horseshoe; partly: in some runs.
    4. holds: the centred form misses the two nodes in over half of its runs at every
       width; partly: at one.
    5. holds: the non-centred form has two nodes on in every run, and misses fewer than
       the centred form with p < 0.05 at every width; partly: one of the two.
    """
    priors = ("gaussian", "centred-horseshoe", "horseshoe")
    by_prior = {prior: where(rows, prior=prior) for prior in priors}
    texts = (
        '2-2-1 labels: "all three models are able to easily fit the data and provide '
        'high predictive accuracy".',
        '2-2-1 labels: "the BNN with Gaussian priors does not exhibit sparsity".',
        '2-2-1 labels: "models employing the horseshoe prior are able to prune units '
        'away".',
        '2-2-1 labels: "the centered parameterization struggles to recover the true '
        'structure of the underlying network".',
        '2-2-1 labels: "The non-centered parameterization however does significantly '
        'better and prunes away all but two units".',
    )
    if not all(by_prior.values()):
        waits = "not all priors are there yet"
        return [Claim(text, waits, "waits for results") for text in texts]
    gaussian, centred, ours = by_prior.values()
    found = (
        _fits(by_prior),
        _stays_wide(gaussian),
        _prunes([*centred, *ours]),
        _struggles(centred),
        _finds_two(centred, ours),
    )
    return [Claim(text, *rest) for text, rest in zip(texts, found, strict=True)]


def _widths(rows: list[Row]) -> list[int]:
    return sorted({row["width"] for row in rows})


def _fits(by_prior: dict[str, list[Row]]) -> tuple[str, str]:
    least, near, told = least_error(), [], []
    for prior, rows in by_prior.items():
        for width in _widths(rows):
            errors = (row["error_rate"] for row in where(rows, width=width))
            mean, error = mean_and_error(errors)
            near.append(mean - least < SMALL_EXCESS)
            excess = f"{100 * (mean - least):+.1f} ± {100 * error:.1f}"
            told.append(f"{prior}, {width} units: {excess}")
    text = f"test error over the least possible one, {100 * least:.1f} %, in points: "
    return text + "; ".join(told), verdict(holds=all(near), partly=any(near))


def _stays_wide(gaussian: list[Row]) -> tuple[str, str]:
    used, told = [], []
    for width in _widths(gaussian):
        here = where(gaussian, width=width)
        on, weights = (float(np.mean([row[key] for row in here])) for key in MEASURES)
        used.append(on > width / 2)
        told.append(f"{on:.1f} ({weights:.1f}) of {width}")
    text = "nodes on (weights over 5 % of the largest), mean: "
    return text + ", ".join(told), verdict(holds=all(used), partly=any(used))


def _prunes(rows: list[Row]) -> tuple[str, str]:
    few = [row["nodes_on"] < row["width"] / 2 for row in rows]
    text = f"under half of the nodes on in {sum(few)} of {len(few)} runs"
    return text, verdict(holds=all(few), partly=any(few))


def _missed(rows: list[Row]) -> list[int]:
    """How far each run is from the true number of nodes."""
    return [abs(row["nodes_on"] - TRUE_NODES) for row in rows]


def _struggles(centred: list[Row]) -> tuple[str, str]:
    most, told = [], []
    for width in _widths(centred):
        missed = _missed(where(centred, width=width))
        most.append(2 * np.count_nonzero(missed) > len(missed))
        found = len(missed) - np.count_nonzero(missed)
        told.append(f"{width} units: two nodes on in {found} of {len(missed)} runs")
    return "; ".join(told), verdict(holds=all(most), partly=any(most))


def _finds_two(centred: list[Row], ours: list[Row]) -> tuple[str, str]:
    exact = not any(_missed(ours))
    better, told = [], []
    for width in _widths(ours):
        pair = [
            {row["seed"]: row for row in where(rows, width=width)}
            for rows in (centred, ours)
        ]
        seeds = sorted(pair[0].keys() & pair[1])
        missed = [np.array(_missed([rows[s] for s in seeds])) for rows in pair]
        gaps = missed[0] - missed[1]
        mean, error = mean_and_error(gaps)
        p = p_value(mean, error / 2, len(gaps) - 1)
        better.append(mean > 0 and p < SIGNIFICANT)
        told.append(
            f"{width} units: {mean:.1f} fewer missed, SE {error / 2:.1f}, p = {p:.2g}"
        )
    right = len(ours) - int(np.count_nonzero(_missed(ours)))
    text = f"two nodes on in {right} of {len(ours)} runs; against the centred form, "
    text += f"{'; '.join(told)} (paired over data sets)"
    good = bool(better) and all(better)
    return text, verdict(holds=exact and good, partly=exact or good)
