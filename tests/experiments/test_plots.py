"""Figures: a legend under one is no wider than it."""

import pytest

from experiments.plots import legend_below, new_figure


@pytest.mark.parametrize("length", [10, 28, 40, 60, 110])
def test_a_legend_fits_under_its_figure(length):
    figure, axes = new_figure(1, 1, height=4.0)
    for number in range(8):
        axes[0, 0].plot([0, 1], label=f"{number}" + "n" * (length - 1))
    legend_below(figure, axes[0, 0])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
