"""Figures of a fitted model: what is drawn, and where."""

import sys

import matplotlib as mpl
import numpy as np
import pytest

from farrier.views.displays import (
    BandDisplay,
    CalibrationDisplay,
    HistoryDisplay,
    NodesDisplay,
    coverage,
)

mpl.use("Agg")
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_nodes_are_sorted_and_counted():
    first, second = np.array([0.001, 0.5, 0.02]), np.array([0.3, 0.0])
    show = NodesDisplay([first, second]).plot()
    one, two, line = show.ax_.get_lines()
    assert one.get_ydata().tolist() == [0.5, 0.02, 0.001]
    assert two.get_ydata()[1] > 0  # a score of 0 has a place on a logarithmic axis
    assert line.get_ydata()[0] == 0.01
    assert labels(show.ax_) == [
        "layer 1: 2 of 3 active",
        "layer 2: 1 of 2 active",
        "active above 0.01",
    ]
    assert show.figure_ is show.ax_.figure


def test_history_shows_the_terms_that_are_asked_for():
    step = np.arange(100)
    elbo, kl = -1 - np.exp(-step / 2.0) * 1e4, 0.5 + 0.0 * step
    show = HistoryDisplay(step, elbo, {"layer_1/tau": kl})
    assert labels(show.plot().ax_) == ["ELBO"]
    ax = show.plot(terms=["layer_1/tau"]).ax_
    assert labels(ax) == ["ELBO", "layer_1/tau"]
    assert ax.get_ylim()[0] > -100  # the steep beginning does not flatten the rest
    with pytest.raises(ValueError, match=r"among \['layer_1/tau'\], got 'nothing'"):
        show.plot(terms=["nothing"])


def test_coverage_is_the_share_inside_the_central_interval():
    """Against counting (P2)."""
    pit = np.random.default_rng(0).beta(2, 3, 500)
    levels = np.array([0.0, 0.5, 0.8, 0.95, 1.0])
    low, high = 0.5 - levels / 2, 0.5 + levels / 2
    inside = (pit[:, None] >= low) & (pit[:, None] <= high)
    np.testing.assert_allclose(coverage(pit, levels), inside.mean(0))


def test_calibration_of_a_regression_has_two_panels():
    pit = np.random.default_rng(0).uniform(size=400)
    show = CalibrationDisplay.from_pit(pit)
    histogram, curve = show.ax_
    heights = [bar.get_height() for bar in histogram.patches if bar.get_width() < 0.5]
    assert np.mean(heights) == pytest.approx(1)  # a density
    observed = curve.get_lines()[1].get_ydata()
    assert abs(observed - np.linspace(0, 1, 101)).max() < 0.08
    figure, axes = plt.subplots(1, 2)
    assert CalibrationDisplay.from_pit(pit, ax=axes).figure_ is figure
    with pytest.raises(ValueError, match="has 2 panels, but `ax` has 1"):
        CalibrationDisplay.from_pit(pit, ax=axes[0])


@pytest.mark.parametrize("classes", [2, 3])
def test_reliability_of_true_probabilities(classes):
    """Labels drawn from the probabilities themselves lie on the diagonal."""
    generator = np.random.default_rng(classes)
    p = generator.dirichlet(np.ones(classes), 4_000)
    names = np.array(["a", "b", "c"][:classes])
    y = names[(p.cumsum(1) < generator.uniform(size=(len(p), 1))).sum(1)]
    show = CalibrationDisplay.from_probabilities(p, y, names)
    assert (abs(show.observed - show.predicted) < 5 * show.error).all()
    assert show.ax_.get_xlabel() == (
        "probability of b" if classes == 2 else "probability of the predicted class"
    )


def test_band_names_curves_only_where_there_are_several():
    grid = np.linspace(0, 1, 5)
    curve = (grid, [(grid - 1, grid + 1), (grid - 2, grid + 2)])
    one = BandDisplay(grid, {"y": curve}, (0.5, 0.9), "height", "y").plot()
    assert labels(one.ax_) == ["mean", "50 %", "90 %"]
    assert one.ax_.get_xlabel() == "height"
    two = BandDisplay(grid, {"a": curve, "b": curve}, (0.5, 0.9), "height", "p").plot()
    assert labels(two.ax_) == ["a: mean", "b: mean"]


def test_a_missing_matplotlib_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"farrier\[plot\]"):
        NodesDisplay([np.ones(3)]).plot()
