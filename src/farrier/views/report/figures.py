"""Figures as SVG elements for the page, with its colours and its font."""

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from ..displays import (
    BLUE,
    GREEN,
    GREY,
    OCHRE,
    ORANGE,
    PURPLE,
    CalibrationDisplay,
    HistoryDisplay,
    NodesDisplay,
    pyplot,
)

INK, LINE = "#123450", "#123451"  # replaced by the page's colours of text and lines
VARIABLES = {
    INK: "var(--ink)",
    LINE: "var(--line)",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    PURPLE: "var(--purple)",
    GREEN: "var(--green)",
    OCHRE: "var(--ochre)",
    GREY: "var(--grey)",
}
STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may contain a dollar sign
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
WIDTH, HEIGHT = 4.4, 3.3  # inches
MOST_POINTS = 1_000
MOST_BARS = 20


def nodes(model: Any) -> list[str]:
    """Sorted node scores."""
    display = NodesDisplay(model.node_scores_)
    return svgs("nodes", lambda axes: display.plot(axes[0]))


def history(model: Any) -> list[str]:
    """The ELBO, the log likelihood and the sum of all KL terms."""
    past, rows = model.history_, model.n_rows_
    terms = {
        "log likelihood": past.log_likelihood / rows,
        "KL terms": sum(past.kl.values()) / rows,
    }
    display = HistoryDisplay(past.step, past.elbo / rows, terms)
    return svgs("history", lambda axes: display.plot(axes[0], terms=terms))


def calibration_of_pit(pit: np.ndarray) -> list[str]:
    """Histogram of probability integral transforms, and coverage of intervals."""
    draw = lambda axes: CalibrationDisplay.from_pit(pit, ax=axes)
    return svgs("calibration", draw, panels=2)


def calibration_of_classes(
    probability: np.ndarray, y: np.ndarray, classes: np.ndarray
) -> list[str]:
    """Observed frequency of a class against its probability."""
    show = CalibrationDisplay.from_probabilities
    draw = lambda axes: show(probability, y, classes, ax=axes[0])
    return svgs("calibration", draw)


def observed(mean: np.ndarray, y: np.ndarray, target: str) -> list[str]:
    """Observed against predicted values, and the line on which they are equal."""
    every = -(-len(y) // MOST_POINTS)
    ends = [min(mean.min(), y.min()), max(mean.max(), y.max())]

    def draw(axes: list[Any]) -> None:
        (ax,) = axes
        ax.plot(ends, ends, color=GREY, lw=1, ls="--", label="equal")
        style = {"color": BLUE, "ms": 3.2, "alpha": 0.6, "mew": 0}
        ax.plot(mean[::every], y[::every], "o", **style)
        ax.set_xlabel(f"predicted {shortened(target)}")
        ax.set_ylabel(f"observed {shortened(target)}")
        ax.legend(loc="upper left", fontsize="small")

    return svgs("observed", draw)


def inputs(names: list[str], shares: np.ndarray) -> list[str]:
    """Score of each input with its 90 % interval, largest on top."""
    low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=0)
    order = np.argsort(-middle, kind="stable")[:MOST_BARS][::-1]
    positions = np.arange(len(order))

    def draw(axes: list[Any]) -> None:
        (ax,) = axes
        ax.barh(positions, middle[order], color=BLUE, alpha=0.6, height=0.65)
        for row, index in enumerate(order):
            ax.plot([low[index], high[index]], [row, row], color=ORANGE, lw=1.6)
        ax.set_yticks(positions, [shortened(names[index]) for index in order])
        ax.set_ylim(-0.6, len(order) - 0.4)
        ax.set_xlim(0, None)
        ax.set_xlabel("share of the target's variance, with 90 % interval")

    return svgs("inputs", draw, height=0.9 + 0.24 * len(order))


def svgs(
    name: str,
    draw: Callable[[list[Any]], Any],
    *,
    panels: int = 1,
    height: float = HEIGHT,
) -> list[str]:
    """Draw into `panels` axes, and return each as one SVG element."""
    pyplot()  # raises an error that names the extra if matplotlib is missing
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {**STYLE, "svg.hashsalt": name}
    with rc_context(style):
        drawn = [
            Figure(figsize=(WIDTH, height), layout="constrained") for _ in range(panels)
        ]
        draw([figure.subplots() for figure in drawn])
        return [_svg(figure) for figure in drawn]


def _svg(figure: Any) -> str:
    """One SVG element without size, XML header, and ids that could occur twice."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata=NO_METADATA)
    text = file.getvalue()
    text = text[text.index("<svg") :]
    head, body = text.split(">", 1)
    head = re.sub(r' (?:width|height|version|xmlns:xlink)="[^"]*"', "", head)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = body.replace("xlink:href", "href")
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    return f"{head}>{body}"


def shortened(text: str, most: int = 24) -> str:
    """A text of at most `most` characters, which leaves room for the figure."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
