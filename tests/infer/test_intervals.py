"""Calibrated levels of intervals, from the leave-one-out positions of the rows."""

import numpy as np
import pytest
from scipy import stats

from farrier.infer.intervals import (
    LEVELS,
    MAX_DEPTH,
    are_depths,
    calibrated,
    depth_at,
    depths,
)


def test_depths_are_quantiles():
    """(P4): those at (n + 1) / n, which NumPy calls Weibull's."""
    position = np.random.default_rng(0).uniform(size=(199, 1))
    ours = depths(position, np.ones(199))
    expected = np.quantile(np.abs(2 * position - 1), LEVELS[1:-1], method="weibull")
    np.testing.assert_allclose(ours[1:-1], expected, rtol=1e-12)
    assert are_depths(ours)


def test_calibrated_rows_leave_levels_as_they_are():
    """By hand: (P4) of evenly spaced positions is the identity."""
    even = 0.5 + 0.5 * np.arange(1, 10) / 10
    np.testing.assert_allclose(depths(even[:, None], np.ones(9)), LEVELS, atol=1e-12)


def test_targets_of_a_row_come_together():
    """By hand (P4): of 4 rows with 2 targets, the k-th of 8 ends at level k / 10."""
    position = np.random.default_rng(4).uniform(size=(4, 2))
    ours = depths(position, np.ones(4))
    expected = np.sort(np.abs(2 * position - 1), axis=None)
    np.testing.assert_allclose(ours[10:90:10], expected, rtol=1e-9)


def test_an_interval_covers_the_targets_of_one_more_row():
    """(P4) by simulation: three targets that are nearly equal, so that 9 rows are few.

    At least the level on average, and at most one row in ten more.
    """
    random, rows, sets = np.random.default_rng(5), 9, 4_000
    position = random.uniform(0.1, 0.9, size=(sets, rows + 1, 1))
    position = position + 1e-3 * random.normal(size=(sets, rows + 1, 3))
    covered = [
        np.abs(2 * each[-1] - 1) <= depth_at(0.75, depths(each[:-1], np.ones(rows)))
        for each in position
    ]
    share = np.mean(covered, axis=1)
    error = share.std() / np.sqrt(sets)
    assert 0.75 - 5 * error < share.mean() < 0.75 + 1 / (rows + 1) + 5 * error


def test_weights_count_rows():
    """Weights that sum to 1 are one row: under a level of 1/2 for all of them (P4)."""
    position = np.random.default_rng(6).uniform(0.3, 0.7, size=(50, 1))
    ours = depths(position, np.full(50, 1 / 50))
    largest = np.abs(2 * position - 1).max()
    assert depth_at(0.5, ours) == pytest.approx(largest)
    # By hand: half the way from (1/2, largest) to (1, 1) there is level 3/4.
    assert depth_at(0.75, ours) == pytest.approx((1 + largest) / 2)


def test_rows_that_round_to_the_end_leave_finite_intervals():
    position = np.append(np.linspace(0.1, 0.9, 8), [1.0, 1 + 3e-7, -2e-7])[:, None]
    ours = depths(position, np.ones(11))
    assert are_depths(ours)
    assert ours[-2] == pytest.approx(MAX_DEPTH, abs=1e-6)
    assert np.isfinite(stats.norm.ppf(np.float32(0.5 - ours[:-1] / 2))).all()


def test_a_row_of_weight_two_is_there_twice():
    position = np.random.default_rng(1).uniform(size=(49, 1))
    weight = np.where(np.arange(49) < 48, 2, 3)  # 99 in all: each ends at a level
    twice = depths(np.repeat(position, weight, axis=0), np.ones(99))
    once = depths(position, weight.astype(float))
    ends = np.cumsum(weight[np.argsort(np.abs(2 * position[:, 0] - 1))])
    np.testing.assert_allclose(once[ends], twice[ends], rtol=1e-9)


def test_a_target_lies_in_the_interval_of_its_position():
    """(P2) and (P4): |2 u - 1| <= level where the interval covers the target."""
    random = np.random.default_rng(3)
    depth = depths(random.beta(5, 5, size=(80, 1)), np.ones(80))
    position = random.uniform(size=500)
    corrected = calibrated(position, depth)
    for level in (0.5, 0.8, 0.9):
        inside = np.abs(2 * position - 1) <= depth_at(level, depth)
        ours = np.abs(2 * corrected - 1) <= level + 1e-12
        np.testing.assert_array_equal(ours, inside)
    np.testing.assert_allclose(calibrated(position, LEVELS), position, atol=1e-12)
    assert (np.sign(corrected - 0.5) == np.sign(position - 0.5)).all()


@pytest.mark.parametrize(
    "values", [LEVELS[:-1], LEVELS[::-1], LEVELS * 0.9, np.zeros((101, 1)), 2 * LEVELS]
)
def test_other_arrays_are_no_depths(values):
    assert not are_depths(values)
    assert are_depths(LEVELS)
