"""Digits: test error of four models, and which units the horseshoe turns off.

Pixels over 126, two hidden layers of equal width, learning rate 0.005, batches of 512,
the exact bound from the first step: the paper's settings. The paper trains 500 epochs
(`FULL`); `SHORT` trains fewer, and every table states how many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax.random as jr
import numpy as np

from farrier import HorseshoeClassifier

from . import datasets
from ._harness import Claim, Row, Work, markdown, settings_without, verdict, where
from ._models import (
    MODELS,
    NORM_ON,
    classified,
    classifier,
    draw_density,
    draw_norms,
    network_of,
    nodes,
    quantile,
    smallest_units,
    sparsity_claim,
    written,
)
from .plots import Figure, legend_below, new_figure

FILES = tuple(
    f"mnist/{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
NEARLY = 0.01  # of the error rate: no more than this is a small loss
NOTES = """\
Error: share of the test digits that the mean of the predictive probabilities gets
wrong, ± one standard error of a share of so many digits. Log density: mean log
probability of the true digit, in nats. Nodes on: units that tell the next layer
anything. One seed each. VMG has its authors' 50 pairs of pseudo-data and averaging, and
the batches and learning rate of the others; its objective is no lower bound on the
evidence (docs/math.md, section 9), and stands beside the others' bounds for the record.
The paper's own error rates are not shown: we could not get them with certainty.
"""
HOURS = "more than a day on 2 cores; with --short about an hour"
SIDE = 28  # pixels
SHOWN = 10  # filters of each kind
LEVELS = 127  # grey levels of a filter, on either side of 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    runs
        Width of both hidden layers, epochs, models.
    rows, test_rows
        Rows that are used, from the first.
    """

    runs: tuple[tuple[int, int, tuple[str, ...]], ...]
    rows: int = 60_000
    test_rows: int = 10_000
    learning_rate: float = 0.005
    batch_size: int = 512
    draws: int = 100
    seed: int = 0


FULL = Config(runs=tuple((width, 500, tuple(MODELS)) for width in (400, 800, 1200)))
SHORT = Config(
    runs=(
        (400, 100, tuple(MODELS)),
        (1200, 60, ("horseshoe", "gaussian")),
        (800, 60, ("horseshoe",)),
    )
)
SMOKE = Config(
    runs=((8, 2, ("horseshoe", "scale-mixture")),),
    rows=256,
    test_rows=64,
    batch_size=128,
    draws=8,
)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One part for each fit: `400-400/horseshoe`."""
    return {
        f"{width}-{width}/{name}": partial(fit, config, data, name, width, epochs)
        for width, epochs, names in config.runs
        for name in names
    }


def settings_of(config: Config, part: str) -> dict:
    """Those of one fit: other fits may change without it."""
    epochs = {f"{width}-{width}": count for width, count, _ in config.runs}
    widths, name = part.split("/")
    own = settings_without(config, "runs")
    return own | {"epochs": epochs[widths], "model": written(MODELS[name].settings)}


def data_files(config: Config) -> tuple[str, ...]:
    """The four files of MNIST."""
    del config
    return FILES


def fit(
    config: Config, data: Path, name: str, width: int, epochs: int, work: Work
) -> list[Row]:
    """Train one model, and read off all that the figures and tables need."""
    X, y = datasets.mnist(data)
    model = classifier(
        name,
        width,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        max_iter=epochs,
        standardise=False,
        n_draws=config.draws,
        random_state=config.seed,
    )
    work.note(f"{epochs} epochs of {len(X[: config.rows])} digits")
    checkpoint = work.folder / "fit.safetensors"
    told = lambda share, history: work.report(share, f"{epochs} epochs")
    rows = slice(config.rows)
    model.fit(X[rows], y[rows], checkpoint=checkpoint, callback=told)
    del X, y
    work.note("test digits, nodes, weights")
    X_test, y_test = datasets.mnist(data, "t10k")
    row: Row = {
        "model": name,
        "width": width,
        "epochs": epochs,
        "seconds": model.history_.seconds,
        "bound_per_row": float(model.history_.elbo[-1]) / config.rows,
        "test_rows": config.test_rows,
        **classified(model, X_test[: config.test_rows], y_test[: config.test_rows]),
        **nodes(model),
        "smallest": smallest_units(model, key=jr.key(config.seed)),
        "filters": filters(model),
    }
    return [row]


def filters(model: HorseshoeClassifier) -> dict[str, list[Row]]:
    """E[w] into first-layer units, the largest and the smallest by norm.

    `pixels` are whole numbers from -127 to 127 in units of `unit`, row by row.
    """
    weights = np.asarray(network_of(model).layers[0].expected_weights(), float)
    norms = model.weight_norms_[0]
    order = np.argsort(norms)

    def picture(index: int) -> Row:
        unit = max(float(np.abs(weights[index]).max()) / LEVELS, 1e-30)
        pixels = np.rint(weights[index] / unit).astype(int).tolist()
        return {"norm": float(norms[index]), "unit": unit, "pixels": pixels}

    chosen = {"largest": order[::-1][:SHOWN], "smallest": order[:SHOWN]}
    return {kind: [picture(int(i)) for i in units] for kind, units in chosen.items()}


# -- figures -----------------------------------------------------------------------


def render(rows: list[Row]) -> dict[str, Figure]:
    """Sorted norms, densities of the smallest units, filters."""
    if not rows:
        return {}
    narrow = min(row["width"] for row in rows)
    at_narrow = [row for row in rows if row["width"] == narrow]
    figures = {"norms": norms_figure(at_narrow), "filters": filters_figure(at_narrow)}
    if ours := horseshoes(rows):
        figures["smallest"] = smallest_figure(ours)
    pair = [row for row in at_narrow if row["model"] in ("horseshoe", "scale-mixture")]
    if pair:
        figures["five"] = five_figure(pair)
    return figures


def horseshoes(rows: list[Row]) -> list[Row]:
    """Rows of the horseshoe, the narrowest network first."""
    return sorted(where(rows, model="horseshoe"), key=lambda row: row["width"])


def title(row: Row) -> str:
    """`400-400, 100 epochs`."""
    return f"{row['width']}-{row['width']}, {row['epochs']} epochs"


def norms_figure(rows: list[Row]) -> Figure:
    """Norms of the expected weights into each unit, one panel a layer."""
    figure, axes = new_figure(1, 2, height=3.6)
    for layer, ax in enumerate(axes[0]):
        for row in rows:
            draw_norms(ax, row["model"], row["norms"][layer])
        ax.set_title(f"layer {layer + 1} of {title(rows[0])}", fontsize=10)
        ax.set_xlabel("unit, largest first")
        ax.set_ylabel("norm of E[weights into unit]")
    legend_below(figure, axes[0, 1])
    return figure


def smallest_figure(rows: list[Row]) -> Figure:
    """Density of the weights into the smallest-norm unit, for each width."""
    figure, axes = new_figure(1, 2, height=3.6)
    for layer, ax in enumerate(axes[0]):
        for shade, row in zip((0.35, 0.65, 1.0), rows, strict=False):
            style = {"color": MODELS["horseshoe"].colour, "alpha": shade, "lw": 1.8}
            density = row["smallest"][layer][0]["density"]
            draw_density(ax, density, label=title(row), **style)
        ax.set_title(f"HS-BNN, layer {layer + 1}: unit of smallest norm", fontsize=10)
    legend_below(figure, axes[0, 1])
    return figure


def five_figure(rows: list[Row]) -> Figure:
    """Density of the weights into the five smallest units, horseshoe beside mixture."""
    figure, axes = new_figure(1, 2, height=3.6)
    for layer, ax in enumerate(axes[0]):
        for row in rows:
            model = MODELS[row["model"]]
            for number, unit in enumerate(row["smallest"][layer]):
                label = model.label if number == 0 else None
                draw_density(
                    ax, unit["density"], color=model.colour, lw=1.2, label=label
                )
        heading = f"layer {layer + 1} of {title(rows[0])}: five smallest units"
        ax.set_title(heading, fontsize=10)
    legend_below(figure, axes[0, 1])
    return figure


def filters_figure(rows: list[Row]) -> Figure:
    """First-layer filters: ten largest and ten smallest of each model."""
    figure, axes = new_figure(2 * len(rows), SHOWN, height=2.1 * len(rows) + 0.4)
    for ax in axes.flat:
        ax.set_axis_off()
    for number, row in enumerate(rows):
        sizes = [np.abs(p["pixels"]) * p["unit"] for p in row["filters"]["largest"]]
        limit = np.quantile(sizes, 0.995)  # one large weight must not hide the others
        for line, kind in enumerate(("largest", "smallest")):
            for column, picture in enumerate(row["filters"][kind]):
                ax = axes[2 * number + line, column]
                image = np.reshape(picture["pixels"], (SIDE, SIDE)) * picture["unit"]
                ax.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit)
                ax.set_title(f"{picture['norm']:.2g}", fontsize=7, pad=2)
            label = f"{MODELS[row['model']].label}\n{kind}"
            axes[2 * number + line, 0].text(
                -0.15,
                0.5,
                label,
                transform=axes[2 * number + line, 0].transAxes,
                ha="right",
                va="center",
                fontsize=8,
            )
    heading = (
        f"E[weights] into first-layer units of {title(rows[0])}; above each, its norm"
    )
    figure.suptitle(heading, fontsize=10)
    return figure


# -- tables ------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """Test error of each model, and what it kept."""
    columns = ["model", "widths", "epochs", "test error, %"]
    columns += ["log density", "nodes on"]
    columns += [f"norms over {NORM_ON:.0%} of the largest", "bound a row", "minutes"]
    lines = []
    for row in rows:
        error = 100 * row["error"]
        lines.append(
            [
                MODELS[row["model"]].label,
                f"{row['width']}-{row['width']}",
                row["epochs"],
                f"{error:.2f} ± {100 * standard_error(row):.2f}",
                f"{row['log_density']:.4f}",
                " - ".join(map(str, row["nodes_on"])),
                " - ".join(map(str, row["norms_on"])),
                f"{row['bound_per_row']:.3f}",
                f"{row['seconds'] / 60:.0f}",
            ]
        )
    return markdown(columns, lines) + "\n" + NOTES


def standard_error(row: Row) -> float:
    """Of the error rate, as a share of independent test rows."""
    return float(np.sqrt(row["error"] * (1 - row["error"]) / row["test_rows"]))


# -- claims ------------------------------------------------------------------------


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of MNIST."""
    by_width: dict[int, dict[str, Row]] = {}
    if not rows:
        return []
    for row in rows:
        by_width.setdefault(row["width"], {})[row["model"]] = row
    found = []
    for width, models in sorted(by_width.items()):
        if "horseshoe" in models and len(models) > 1:
            others = {name: row for name, row in models.items() if name != "horseshoe"}
            found.append(error_claim(width, models["horseshoe"], others))
            found.append(sparsity_claim(models["horseshoe"], others))
    narrow = by_width[min(by_width)]
    if {"horseshoe", "scale-mixture"} <= narrow.keys():
        found.append(spike_claim(narrow["horseshoe"], narrow["scale-mixture"]))
    by_epochs: dict[int, list[Row]] = {}
    for row in horseshoes(rows):
        by_epochs.setdefault(row["epochs"], []).append(row)
    if by_epochs:  # only what was trained for as long can be compared
        alike = max(by_epochs.values(), key=len)
        found += [width_claim(alike)] if len(alike) > 1 else []
    return found


def error_claim(width: int, ours: Row, others: dict[str, Row]) -> Claim:
    """Holds within two standard errors of the best of the others, partly within 1 %."""
    best = min(others.values(), key=lambda row: row["error"])
    excess = ours["error"] - best["error"]
    noise = 2 * float(np.hypot(standard_error(ours), standard_error(best)))
    errors = [f"{MODELS[r['model']].label} {r['error']:.2%}" for r in others.values()]
    return Claim(
        f"Turning units off costs no accuracy ({width}-{width}).",
        f"Test error: HS-BNN {ours['error']:.2%}, {', '.join(errors)} "
        f"({ours['epochs']} epochs).",
        verdict(holds=excess <= noise, partly=excess <= NEARLY),
    )


def spike_claim(ours: Row, mixture: Row) -> Claim:
    """Holds when half, and nine tenths, of their weights are under a smaller size.

    Each of all five units, in each layer; partly when one of the two is so.
    """
    smaller, told = [], []
    for level, name in ((0.5, "half"), (0.9, "nine tenths")):
        sizes = [
            np.array(
                [
                    [quantile(u["density"], level) for u in layer]
                    for layer in r["smallest"]
                ]
            )
            for r in (ours, mixture)
        ]
        smaller.append(bool((sizes[0].max(1) < sizes[1].min(1)).all()))
        of_ours, of_mixture = (np.median(size) for size in sizes)
        told.append(f"{name} under {of_ours:.2g} (HS-BNN), {of_mixture:.2g} (SM-BNN)")
    return Claim(
        "The five smallest units of each layer are nearer to 0 under the horseshoe "
        "than under the scale mixture.",
        f"Sizes of their weights: {'; '.join(told)}.",
        verdict(holds=all(smaller), partly=any(smaller)),
    )


def width_claim(horseshoes: list[Row]) -> Claim:
    """Holds when the smallest unit is nearer to 0 with each width, in each layer."""
    sizes = np.array(
        [[layer[0]["median"] for layer in row["smallest"]] for row in horseshoes]
    )
    falls = (np.diff(sizes, axis=0) < 0).all(0)
    epochs = horseshoes[0]["epochs"]
    told = [
        f"{row['width']}: {size[0]:.2g} and {size[1]:.2g}"
        for row, size in zip(horseshoes, sizes, strict=True)
    ]
    return Claim(
        "The wider the network, the nearer to 0 the weights into its smallest unit.",
        f"Median size of those weights in the two layers, after {epochs} epochs, "
        f"{'; '.join(told)}.",
        verdict(holds=bool(falls.all()), partly=bool(falls.any())),
    )
