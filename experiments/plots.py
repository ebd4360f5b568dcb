"""What the figures of all experiments share."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farrier import demo
from farrier.demo import new_figure

__all__ = ["COLOURS", "LABELS", "Axes", "Figure", "legend_below", "new_figure"]

COLOURS = demo.COLOURS | {
    "centred-horseshoe": "#8e6bb0",
    "half-cauchy": "#5b8c3a",
    "exponential": "#b8860b",
}
LABELS = demo.LABELS | {
    "centred-horseshoe": "Centred horseshoe",
    "half-cauchy": "Half-Cauchy, nodes only",
    "exponential": "Exponential",
}


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
