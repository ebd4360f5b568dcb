"""Whether the nodes that made the data are found again: labels of a 2-2-1 network.

1000 points on [-1, 1]^2, labelled by a network with two hidden nodes, are learned by
networks that are far too wide, under the Gaussian prior and under both forms of the
horseshoe. Nodes are counted in two ways. "on": their share in what they feed is over 1
per cent (`widths_`). "weights": the norm of the expected weights into them is over 5
per cent of the largest norm, which is what the paper looks at.
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
from ._models import classified, fit_each, network_of
from .plots import COLOURS, LABELS, Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about 5 minutes on 2 cores"
TRUE_NODES = 2
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
        "\nOn: nodes whose share in the output is over 1 %. Weights: nodes whose "
        "expected weights have a norm over 5 % of the largest, the paper's measure. ± "
        "two standard errors over data sets; log-likelihood in nats a point.\n"
    )


def claims(rows: list[Row]) -> list[Claim]:
    """Whether the two nodes are found, and by which form of the prior.

    1. holds: two nodes on in every run; partly: in more than half of the runs.
    2. holds: over half of the Gaussian network's units have weights over 5 % of the
       largest, on average, at every width; partly: it has more such units than the
       horseshoe at every width.
    3. holds: at the largest width the non-centred form has fewer such units than the
       centred one, by over two standard errors; partly: fewer.
    """
    ours, gaussian = where(rows, prior="horseshoe"), where(rows, prior="gaussian")
    centred = where(rows, prior="centred-horseshoe")
    widths = sorted({row["width"] for row in rows})
    texts = (
        "The horseshoe network finds the nodes that are needed, however wide it is",
        "The Gaussian network uses all the units that it has",
        "The non-centred form turns units off that the centred form leaves on",
    )
    if not (ours and gaussian and centred):
        waits = "not all priors are there yet"
        return [Claim(text, waits, "waits for results") for text in texts]
    right = float(np.mean([row["nodes_on"] == TRUE_NODES for row in ours]))

    def by_width(of: list[Row]) -> list[float]:
        return [
            float(np.mean([row["weights_on"] for row in where(of, width=width)]))
            for width in widths
        ]

    used, kept = by_width(gaussian), by_width(ours)
    half = all(count > width / 2 for count, width in zip(used, widths, strict=True))
    more = all(count > less for count, less in zip(used, kept, strict=True))
    wide = {"width": widths[-1]}
    left, left_error = mean_and_error(r["weights_on"] for r in where(centred, **wide))
    own, own_error = mean_and_error(r["weights_on"] for r in where(ours, **wide))
    shown = ", ".join(
        f"{count:.1f} of {width}" for count, width in zip(used, widths, strict=True)
    )
    error = float(np.hypot(left_error, own_error))
    return [
        Claim(
            texts[0],
            f"two nodes on in {right:.0%} of {len(ours)} runs",
            verdict(holds=right == 1, partly=right > 0.5),
        ),
        Claim(
            texts[1],
            f"units with weights over 5 % of the largest: {shown}",
            verdict(holds=half, partly=more),
        ),
        Claim(
            texts[2],
            f"units with weights over 5 % of the largest, at {widths[-1]} units: "
            f"{own:.1f} ± {own_error:.1f} against {left:.1f} ± {left_error:.1f}",
            verdict(holds=left - own > error, partly=left > own),
        ),
    ]
