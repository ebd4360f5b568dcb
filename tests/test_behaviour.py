"""What the method promises, on the paper's own data, with the product's defaults.

These fits run in float32, as a user's do; only widths and seeds are given.
"""

from dataclasses import dataclass
from functools import cache

import jax
import numpy as np
import pytest

from farrier import HorseshoeClassifier, HorseshoeRegressor
from farrier.datasets import cubic, two_two_one

pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SEEDS = range(10)
FRESH = 1_000  # added to a seed for the test rows that go with it


@dataclass(frozen=True)
class Structure:
    """One fit to the 2-2-1 data."""

    on: int
    kept: int
    accuracy: float
    compact_accuracy: float
    compact_accuracy_gap: float  # where the labels are no toss-up


@cache
def structure(width: int, seed: int) -> Structure:
    with jax.enable_x64(False):
        model = HorseshoeClassifier((width,), random_state=seed)
        model.fit(*two_two_one(seed=seed))
        small = model.compact()
        X, y = two_two_one(seed=FRESH + seed)
        right, small_right = model.predict(X) == y, small.predict(X) == y
    known = X[:, 0] > -np.abs(X[:, 1])
    gap = (right.mean(where=known) - small_right.mean(where=known)).item()
    (on,), (kept,) = model.widths_, small.network_.widths
    return Structure(on, kept, right.mean().item(), small_right.mean().item(), gap)


@pytest.mark.parametrize("width", [15, 100])
def test_two_nodes_stay_on_for_labels_from_two_nodes(width):
    on = [structure(width, seed).on for seed in SEEDS]
    assert on.count(2) >= 9, on


@pytest.mark.parametrize("width", [15, 100])
def test_the_compacted_network_is_as_accurate(width):
    fits = [structure(width, seed) for seed in SEEDS]
    accuracy = np.mean([fit.accuracy for fit in fits])
    compact_accuracy = np.mean([fit.compact_accuracy for fit in fits])
    assert abs(compact_accuracy - accuracy) < 0.005
    # Single fits are compared where there is something to know: on the quarter of the
    # rows in which both nodes are off the label is a toss-up, the probability is 1/2,
    # and any change of it, however small, turns the accuracy there into another draw.
    gaps = [fit.compact_accuracy_gap for fit in fits]
    assert np.abs(gaps).max() < 0.005, gaps


@pytest.mark.parametrize("width", [15, 100])
def test_a_gaussian_prior_switches_no_weights_off(width):
    with jax.enable_x64(False):
        model = HorseshoeClassifier((width,), prior="gaussian", random_state=0)
        model.fit(*two_two_one(seed=0))
    (norms,) = model.weight_norms_
    assert norms.min() > 0.05 * norms.max()


@cache
def density(prior: str, width: int) -> float:
    """Mean test log density on the cubic over all seeds, in nats a point."""
    means = []
    for seed in SEEDS:
        with jax.enable_x64(False):
            model = HorseshoeRegressor((width,), prior=prior, random_state=seed)
            model.fit(*cubic(seed=seed))
            means.append(model.log_density(*cubic(200, seed=FRESH + seed)).mean())
    return float(np.mean(means))


def test_the_horseshoe_does_not_mind_its_width():
    densities = [density("horseshoe", width) for width in (50, 100, 1000)]
    assert min(densities) > -3.6, densities
    assert max(densities) - min(densities) < 0.3, densities


def test_the_gaussian_prior_underfits_where_the_horseshoe_does_not():
    horseshoe, gaussian = density("horseshoe", 100), density("gaussian", 100)
    assert gaussian < horseshoe - 0.8, (horseshoe, gaussian)
