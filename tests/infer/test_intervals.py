"""Levels of intervals from rows that are left out."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from farrier.infer.intervals import (
    DEEPEST,
    LEVELS,
    are_depths,
    depths,
    held,
    place_held,
)
from farrier.infer.predict import Mixture


def test_left_out_agrees_with_the_law_without_the_row(getkey):
    """(P3), (W4) of a normal mean with a normal prior, whose posteriors are known."""
    y, prior, draws = np.array([0.3, -1.2, 2.5, 0.1, 0.4]), 4.0, 200_000
    precision = 1 / prior + len(y)
    mu = y.sum() / precision + jr.normal(getkey(), (draws,)) / np.sqrt(precision)
    some = jnp.asarray(y)[:, None]

    def values(mu):
        loc = jnp.tile(mu[:, None, None], (1, len(y), 1))
        own, noise = jnp.zeros_like(loc), jnp.ones((len(mu), 1, 1))
        mix, one = Mixture(loc, own, noise), jnp.zeros(len(mu), int)
        place = np.asarray(mix.left_out_cdf(some, one))[:, 0]
        density, mean = mix.left_out(some)
        return np.array([place, density, mean[:, 0]])

    found = values(mu)
    parts = np.array([values(part) for part in jnp.split(mu, 20)])
    without = precision - 1
    law = stats.norm((y.sum() - y) / without, np.sqrt(1 + 1 / without))
    expected = np.array([law.cdf(y), law.logpdf(y), law.mean()])
    standard_error = parts.std(0, ddof=1) / np.sqrt(20)
    assert (np.abs(found - expected) < 5 * standard_error).all()
    whole = stats.norm(y.sum() / precision, np.sqrt(1 + 1 / precision))
    plain = np.array([whole.cdf(y), whole.logpdf(y), np.full(len(y), whole.mean())])
    assert (np.abs(plain - expected) > 5 * standard_error).any(1).all()


@pytest.mark.parametrize(
    "fit", [[0] * 9, [0, 0, 0, 0, 1, 1, 1, 1, 1], [2, 0] * 4 + [2]]
)
def test_left_out_agrees_with_loops(getkey, fit):
    """(P3) with two targets, which leave together, and truncated weights."""
    loc = jr.normal(getkey(), (9, 4, 2))
    own, noise = jnp.full(loc.shape, 0.01), jnp.full((9, 1, 2), 0.05)
    y = jr.normal(getkey(), (4, 2))
    found = Mixture(loc, own, noise).left_out_cdf(y, jnp.asarray(fit))
    sd, truncated = np.sqrt(0.01 + 0.05**2), 0
    for row in range(4):
        expected = np.zeros(2)
        for number in {*fit}:
            of_fit = np.flatnonzero(np.asarray(fit) == number)
            law = stats.norm(np.asarray(loc)[of_fit, row], sd)
            log_r = -law.logpdf(np.asarray(y)[row]).sum(1)
            share = np.exp(log_r - log_r.max())
            share, most = share / share.sum(), len(of_fit) ** -0.5
            truncated += (share > most).sum()
            share = np.minimum(share, most)
            place = share @ law.cdf(np.asarray(y)[row]) / share.sum()
            expected += len(of_fit) / 9 * place
        np.testing.assert_allclose(found[row], expected, rtol=1e-10)
    assert truncated


def test_left_out_scores_agree_with_loops(getkey):
    """(W4) with two targets, which leave together, and truncated weights."""
    loc, y = jr.normal(getkey(), (9, 4, 2)), jr.normal(getkey(), (4, 2))
    own, noise = jnp.full(loc.shape, 0.1), jnp.full((9, 1, 2), 0.3)
    found, mean = Mixture(loc, own, noise).left_out(y)
    law = stats.norm(np.asarray(loc), np.sqrt(0.1 + 0.3**2))
    density, truncated = law.logpdf(np.asarray(y)).sum(2), 0
    for row in range(4):
        share = 1 / np.exp(density[:, row])
        share = share / share.sum()
        truncated += (share > 1 / 3).sum()
        share = np.minimum(share, 1 / 3)
        expected = logsumexp(density[:, row], b=share / share.sum())
        np.testing.assert_allclose(found[row], expected, rtol=1e-10)
        expected = share @ np.asarray(loc)[:, row] / share.sum()
        np.testing.assert_allclose(mean[row], expected, rtol=1e-10)
    assert truncated


def test_fits_leave_a_row_out_each_by_itself(getkey):
    """(P3) of a mixture (W1) is the mean of the places in each fit."""
    loc, y = jr.normal(getkey(), (12, 6, 1)), jr.normal(getkey(), (6, 1))
    of = lambda part: Mixture(part, jnp.zeros_like(part), jnp.ones((len(part), 1, 1)))
    both = of(loc).left_out_cdf(y, jnp.repeat(jnp.arange(2), jnp.array([4, 8])))
    each = [
        of(part).left_out_cdf(y, jnp.zeros(len(part), int))
        for part in (loc[:4], loc[4:])
    ]
    np.testing.assert_allclose(both, each[0] / 3 + 2 * each[1] / 3, rtol=1e-10)
    whole = of(loc).left_out_cdf(y, jnp.zeros(12, int))
    assert np.abs(whole - both).max() > 1e-3


def test_draws_that_agree_leave_nothing_out():
    """By hand: with equal weights (P3) is (P2)."""
    mix = Mixture(jnp.zeros((5, 3, 1)), jnp.zeros((5, 3, 1)), jnp.ones((5, 1, 1)))
    y = jnp.array([[-1.0], [0.0], [2.0]])
    found = mix.left_out_cdf(y, jnp.array([0, 0, 1, 1, 1]))
    np.testing.assert_allclose(found, mix.cdf(y), rtol=1e-12)


def test_depths_are_quantiles():
    """(P4): those at (n + 1) / n, which NumPy calls Weibull's."""
    place = np.random.default_rng(0).uniform(size=(199, 1))
    found = depths(place, np.ones(199))
    expected = np.quantile(np.abs(2 * place - 1), LEVELS[1:-1], method="weibull")
    np.testing.assert_allclose(found[1:-1], expected, rtol=1e-12)
    assert are_depths(found)


def test_calibrated_rows_leave_levels_as_they_are():
    """By hand: (P4) of places that are spread evenly is the identity."""
    even = 0.5 + 0.5 * np.arange(1, 10) / 10
    np.testing.assert_allclose(depths(even[:, None], np.ones(9)), LEVELS, atol=1e-12)
    both = np.column_stack([even, 1 - even])  # targets are counted together
    found = depths(both, np.ones(9))
    assert np.abs(found - LEVELS).max() < 0.1


def test_rows_that_round_to_the_end_leave_finite_intervals():
    place = np.append(np.linspace(0.1, 0.9, 8), [1.0, 1 + 3e-7, -2e-7])[:, None]
    found = depths(place, np.ones(11))
    assert are_depths(found)
    assert found[-2] == pytest.approx(DEEPEST, abs=1e-6)
    assert np.isfinite(stats.norm.ppf(np.float32(0.5 - found[:-1] / 2))).all()


def test_a_row_of_weight_two_is_there_twice():
    place = np.random.default_rng(1).uniform(size=(49, 1))
    weight = np.where(np.arange(49) < 48, 2, 3)  # 99 in all: each ends at a level
    twice = depths(np.repeat(place, weight, axis=0), np.ones(99))
    once = depths(place, weight.astype(float))
    ends = np.cumsum(weight[np.argsort(np.abs(2 * place[:, 0] - 1))])
    np.testing.assert_allclose(once[ends], twice[ends], rtol=1e-9)


def test_a_target_lies_in_the_interval_of_its_place():
    """(P2) and (P4): |2 u - 1| <= level exactly where the interval holds the target."""
    random = np.random.default_rng(3)
    depth = depths(random.beta(5, 5, size=(80, 1)), np.ones(80))
    place = random.uniform(size=500)
    mended = place_held(place, depth)
    for level in (0.5, 0.8, 0.9):
        inside = np.abs(2 * place - 1) <= held(level, depth)
        np.testing.assert_array_equal(np.abs(2 * mended - 1) <= level + 1e-12, inside)
    np.testing.assert_allclose(place_held(place, LEVELS), place, atol=1e-12)
    assert (np.sign(mended - 0.5) == np.sign(place - 0.5)).all()


@pytest.mark.parametrize(
    "found", [LEVELS[:-1], LEVELS[::-1], LEVELS * 0.9, np.zeros((101, 1)), 2 * LEVELS]
)
def test_other_arrays_are_no_depths(found):
    assert not are_depths(found)
    assert are_depths(LEVELS)
