"""Digits: test error of four models, and which units the horseshoe turns off.

Pixels over 126, two hidden layers of equal width, learning rate 0.005, batches of 512,
the ELBO as objective from the first step: the paper's settings, except that our
learning rate falls to 0 on a cosine. The paper trains 500 epochs (`FULL`); `SHORT`
trains fewer, and every table states how many.
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
    NODES_ON,
    NORM_ON,
    SIGNIFICANT,
    Gap,
    classified,
    classifier,
    draw_density,
    draw_norms,
    network_of,
    nodes,
    nodes_text,
    p_value,
    quantile,
    smallest_units,
    standard_error,
    turned_off_claim,
    unpaired,
    written,
)
from .plots import Figure, legend_below, new_figure

FILES = tuple(
    f"mnist/{part}-{kind}-ubyte.gz"
    for part in ("train", "t10k")
    for kind in ("images-idx3", "labels-idx1")
)
PAPER_WIDTHS = (400, 800, 1200)
BLACK = 0.01  # of the largest weight into another model's filter: no more is black
NOTES = (
    """\
Error: share of the test digits that the mean of the predictive probabilities gets
wrong, ± one standard error of a share of so many digits. Log density: mean log
probability of the true digit, in nats. One seed each, so that the standard errors leave
out how seeds differ. VMG has its authors' 50 pairs of pseudo-data and averaging, and
the batches and learning rate of the others; its objective is no lower bound on the
evidence (docs/math.md, section 9), and stands beside the others' ELBOs for the record.
The paper shows its error rates in a figure and prints no numbers.

"""
    + NODES_ON
)
HOURS = "more than a day on 2 cores; with --short about an hour"
SIDE = 28  # pixels
SHOWN = 10  # filters of each kind
PIXEL_SCALE = 126  # `datasets.mnist` divides grey levels by this
LEVELS = 127  # grey levels of a filter, on either side of 0
# The mean picture of each digit over the 60,000 training rows, one row a digit: made by
# `mean_digits`, with which a test makes it again.
MEAN_DIGITS = Path(__file__).with_name("mean_digits.npy")


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


def mean_digits(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The mean of the pictures of each digit, in whole grey levels."""
    means = [X[y == digit].mean(0) * PIXEL_SCALE for digit in range(10)]
    return np.rint(means).astype(np.uint8)


def digit_shares(pictures: list[Row]) -> np.ndarray:
    """Share of each filter that is a superposition of the ten mean digits.

    The squared length of its projection on their span, over its own squared length.
    """
    weights = np.array([picture["pixels"] for picture in pictures], float)
    basis, _ = np.linalg.qr(np.load(MEAN_DIGITS).astype(float).T)
    return ((weights @ basis) ** 2).sum(1) / (weights**2).sum(1)


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
    columns += ["log density", "nodes on (`widths_`)"]
    columns += [f"norms over {NORM_ON:.0%} of the largest", "ELBO a row", "minutes"]
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


# -- claims ------------------------------------------------------------------------


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of MNIST, in its words, on the networks that have been run.

    Errors: (1) holds when p < 0.05 at each of the paper's three widths, (2) when the
    difference is within two standard errors at each, (3) when HS-BNN is worse by more
    than that at each. Partly: at some, or where some have not been run.
    """
    by_width: dict[int, dict[str, Row]] = {}
    for row in sorted(rows, key=lambda row: row["width"]):
        by_width.setdefault(row["width"], {})[row["model"]] = row
    ours = horseshoes(rows)
    if not ours or len(rows) == len(ours):
        return []
    relations: dict[str, tuple[str, Callable[[Gap], bool]]] = {
        "gaussian": ("significantly better than BNN", lambda g: g.significantly_better),
        "scale-mixture": ("comparable to SM-BNN", lambda g: g.comparable),
        "vmg": ("worse than VMG", lambda g: g.worse),
    }
    found = [
        error_claim(f'Digits: "{quote}".', name, is_so, by_width)
        for name, (quote, is_so) in relations.items()
    ]
    quote = "Digits: \"the model is able to effectively 'turn off' extra capacity\"."
    found.append(turned_off_claim(quote, ours))
    found.append(concentration_claim(by_width))
    narrow = by_width[min(by_width)]
    if {"horseshoe", "scale-mixture"} <= narrow.keys():
        pair = narrow["horseshoe"], narrow["scale-mixture"]
        found += [spike_claim(*pair), filters_claim(*pair), black_claim(*pair)]
    by_epochs: dict[int, list[Row]] = {}
    for row in ours:
        by_epochs.setdefault(row["epochs"], []).append(row)
    alike = max(by_epochs.values(), key=len)  # only these can be compared
    return found + ([width_claim(alike)] if len(alike) > 1 else [])


def error_claim(
    text: str,
    name: str,
    is_so: Callable[[Gap], bool],
    by_width: dict[int, dict[str, Row]],
) -> Claim:
    """A relation between the error of HS-BNN and that of another model."""
    told, good = [], []
    for width, models in by_width.items():
        if {"horseshoe", name} <= models.keys():
            ours, other = models["horseshoe"], models[name]
            gap = unpaired(ours, other)
            good.append(is_so(gap))
            told.append(
                f"{width}-{width}, {ours['epochs']} epochs: {ours['error']:.2%} "
                f"against {other['error']:.2%} ({gap})"
            )
    there = [
        w for w, models in by_width.items() if {"horseshoe", name} <= models.keys()
    ]
    missing = [f"{w}-{w}" for w in PAPER_WIDTHS if w not in there]
    told += [f"not run: {', '.join(missing)}"] if missing else []
    if not good:
        return Claim(text, "; ".join(told), "waits for results")
    decided = verdict(holds=all(good) and not missing, partly=any(good))
    return Claim(text, "; ".join(told), decided)


def concentration_claim(by_width: dict[int, dict[str, Row]]) -> Claim:
    """Holds when HS-BNN has the fewest nodes on in each layer, partly in some."""
    fewer, told = [], []
    for width, models in by_width.items():
        others = [models[k] for k in ("scale-mixture", "gaussian") if k in models]
        if "horseshoe" not in models or not others:
            continue
        own = models["horseshoe"]["nodes_on"]
        fewest = np.min([row["nodes_on"] for row in others], axis=0)
        fewer += [bool(a < b) for a, b in zip(own, fewest, strict=True)]
        shown = [
            f"{MODELS[row['model']].label} {nodes_text(row)}"
            for row in (models["horseshoe"], *others)
        ]
        told.append(f"{width}-{width}: {', '.join(shown)}")
    return Claim(
        'Digits: "the weight node vectors recovered by SM-BNN (and BNN) are less '
        'tightly concentrated at zero".',
        f"Nodes on by `widths_` (norms over {NORM_ON:.0%} of the largest): "
        f"{'; '.join(told)}.",
        verdict(holds=bool(fewer) and all(fewer), partly=any(fewer)),
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
        'Digits, the five units of smallest norm: "HS-BNN produces weights that are '
        'more tightly concentrated around zero".',
        f"Sizes of their weights in {ours['width']}-{ours['width']}, one fit each and "
        f"so no standard error: {'; '.join(told)}.",
        verdict(holds=all(smaller), partly=any(smaller)),
    )


def filters_claim(ours: Row, mixture: Row) -> Claim:
    """Holds when over half of HS-BNN's filters is a superposition of mean digits.

    And more than of SM-BNN's, with p < 0.05. Partly when one of the two is so.
    """
    shares = [digit_shares(row["filters"]["largest"]) for row in (ours, mixture)]
    means = [float(share.mean()) for share in shares]
    se = float(np.hypot(*(share.std(ddof=1) / len(share) ** 0.5 for share in shares)))
    p = p_value(means[0] - means[1], se, min(len(share) for share in shares) - 1)
    most, more = means[0] > 0.5, means[0] > means[1] and p < SIGNIFICANT
    return Claim(
        "Digits: \"HS-BNN's node sparsity encourages filters that correspond to digits "
        'or superpositions of digits".',
        f"Share of the {SHOWN} largest filters of {ours['width']}-{ours['width']} (sum "
        "of squared weights) in the span of the ten mean digits: HS-BNN "
        f"{means[0]:.0%}, SM-BNN {means[1]:.0%}, difference "
        f"{100 * (means[0] - means[1]):+.0f} points, SE {100 * se:.0f}, p = {p:.2g}.",
        verdict(holds=most and more, partly=most or more),
    )


def black_claim(ours: Row, mixture: Row) -> Claim:
    """Holds when the largest weight into all ten is under 1 % of that into SM-BNN's."""
    largest = [
        [p["unit"] * LEVELS for p in row["filters"]["smallest"]]
        for row in (ours, mixture)
    ]
    share = [max(largest[0]) / of_one for of_one in largest[1]]
    return Claim(
        'Digits, filters of the lowest norms: "HS-BNN filters are nearly all black '
        'when scaled with respect to the SM-BNN filters".',
        f"Largest expected weight into each of the {SHOWN} smallest filters: HS-BNN at "
        f"most {max(largest[0]):.2g}, SM-BNN at least {min(largest[1]):.2g}.",
        verdict(holds=max(share) < BLACK, partly=min(share) < BLACK),
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
        'Digits, the unit of smallest norm: "with increasing architecture size '
        '(modeling capacity) the density peaks more strongly at zero".',
        f"Median size of the weights into it in the two layers, after {epochs} epochs, "
        f"one fit each and so no standard error, {'; '.join(told)}.",
        verdict(holds=bool(falls.all()), partly=bool(falls.any())),
    )
