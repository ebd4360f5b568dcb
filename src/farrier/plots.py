"""Figures."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {
    "horseshoe": "#1f6f8b",
    "gaussian": "#c05a2e",
    "centred-horseshoe": "#8e6bb0",
    "half-cauchy": "#5b8c3a",
    "exponential": "#b8860b",
}
LABELS = {
    "horseshoe": "Horseshoe",
    "gaussian": "Gaussian",
    "centred-horseshoe": "Centred horseshoe",
    "half-cauchy": "Half-Cauchy, nodes only",
    "exponential": "Exponential",
}


def new_figure(rows: int, columns: int, *, height: float) -> tuple[Figure, np.ndarray]:
    """A figure of equal panels, 9 inches wide."""
    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def legend_below(figure: Figure, ax: Axes) -> None:
    """The legend of one panel, for all of them, under the figure.

    It has up to four columns, as many as there is room for.
    """
    handles, labels = ax.get_legend_handles_labels()
    for ncols in (4, 3, 2, 1):
        place = {"loc": "outside lower center", "ncols": ncols, "fontsize": 8}
        legend = figure.legend(handles, labels, **place)
        if ncols == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def band(
    ax: Axes,
    x: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    *,
    colour: str,
) -> None:
    """Predictive mean and a band of three standard deviations."""
    ax.plot(x, mean, color=colour, lw=1.8, label="mean")
    ax.fill_between(
        x, mean - 3 * std, mean + 3 * std, color=colour, alpha=0.2, lw=0, label="± 3 sd"
    )


def cubic_figure(panels: list[dict]) -> Figure:
    """Bands of the fits to the cubic: one row for each prior, one column a width.

    Each panel has `prior`, `width`, `nodes_on`, `x`, `mean`, `std`, `data_x`, `data_y`.
    """
    priors = list(dict.fromkeys(p["prior"] for p in panels))
    widths = list(dict.fromkeys(p["width"] for p in panels))
    figure, axes = new_figure(len(priors), len(widths), height=5.2)
    for panel in panels:
        row, column = priors.index(panel["prior"]), widths.index(panel["width"])
        ax = axes[row, column]
        colour = COLOURS[panel["prior"]]
        band(ax, panel["x"], panel["mean"], panel["std"], colour=colour)
        ax.plot(panel["x"], panel["x"] ** 3, "k--", lw=1, label="truth: x³")
        ax.plot(panel["data_x"], panel["data_y"], "k.", ms=5, label="data")
        ax.set_ylim(-110, 110)
        ax.set_title(
            f"{LABELS[panel['prior']]}, {panel['width']} units, {panel['nodes_on']} on",
            fontsize=10,
        )
        if row == len(priors) - 1:
            ax.set_xlabel("x")
        if column == 0:
            ax.set_ylabel("y")
        ax.label_outer()
    for ax in axes[:, -1]:
        if ax.has_data():
            ax.legend(fontsize=7, loc="lower right", framealpha=0.9)
    return figure


def structure_figure(panels: list[dict]) -> Figure:
    """Nodes of the fits to the 2-2-1 labels, largest first.

    Each panel has `prior`, `width`, `norms` (of the expected weights into each node)
    and `scores` (share in what the node feeds).
    """
    widths = list(dict.fromkeys(p["width"] for p in panels))
    figure, axes = new_figure(2, len(widths), height=5.2)
    for panel in panels:
        column = widths.index(panel["width"])
        for row, values in enumerate((panel["norms"], panel["scores"])):
            ax = axes[row, column]
            ordered = np.sort(values)[::-1]
            ax.plot(
                np.arange(1, len(ordered) + 1),
                np.maximum(ordered, 1e-5),
                marker="o",
                ms=3.5,
                lw=1,
                color=COLOURS[panel["prior"]],
                label=LABELS[panel["prior"]],
            )
            ax.set_yscale("log")
    for column, width in enumerate(widths):
        axes[0, column].set_title(f"{width} units", fontsize=10)
        axes[0, column].set_ylabel("norm of E[weights into node]")
        axes[1, column].axhline(0.01, color="k", ls=":", lw=1, label="on above 0.01")
        axes[1, column].set_ylabel("share in the output")
        axes[1, column].set_xlabel("node, largest first")
        for row in range(2):
            axes[row, column].legend(fontsize=8, loc="upper right")
    return figure
