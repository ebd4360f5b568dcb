"""Which inputs matter (I1), against networks whose answer is known."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from networks import generator_of, known_network, random_draws

from farrier.infer.relevance import MAX_PAIRS, MIN_DRAWS, input_shares
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.likelihoods.categorical import GUMBEL_VARIANCE
from farrier.model.posterior import VariationalPosterior

DRAWS = 40


def posterior_of(kernels, biases, likelihood, *, key):
    """Draws of a network that all have these weights."""
    network = known_network(kernels, biases, likelihood, key=key)
    return VariationalPosterior.create(network, DRAWS, key=key)


def linear(slopes, likelihood, *, key):
    """f(x) = slopes . x, by one pair of relu nodes for each input."""
    d = len(slopes)
    return posterior_of(
        [np.hstack([np.eye(d), -np.eye(d)]), np.vstack([slopes, -slopes])],
        [np.zeros(2 * d), np.zeros(slopes.shape[1])],
        likelihood,
        key=key,
    )


def rows(count, columns, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, columns))
    return (x - x.mean(0)) / x.std(0)


def test_of_a_linear_network_is_the_variance_of_its_terms(getkey):
    """Total effects of a sum (I1): slope^2 / (sum of slope^2 + noise)."""
    slopes = np.array([[2.0], [1.0], [0.0]])
    likelihood = GaussianNoise().build(1, rows=500.0)  # E[gamma] = 1: noise 1
    x = rows(500, 3)
    posterior = linear(slopes, likelihood, key=getkey())
    shares = input_shares(posterior, x, [[0], [1], [2], [0, 1]], key=getkey())
    total = (x @ slopes).var() + 1
    expected = np.array([4, 1, 0, (x @ slopes).var()]) / total
    # Each draw shuffles anew; the mean of a square over n rows has a relative error of
    # about sqrt(2 / n), and their mean over the draws one of sqrt(2 / (n draws)).
    error = shares.std(0) / math.sqrt(DRAWS) + 1e-12
    np.testing.assert_array_less(abs(shares.mean(0) - expected), 5 * error + 0.005)
    assert shares[:, 2].max() == 0


def test_counts_interactions(getkey):
    """f = |x_1 + x_2|: shuffling both is less than the sum of shuffling each (I1)."""
    kernel = np.array([[1.0, -1.0], [1.0, -1.0]])
    likelihood = GaussianNoise().build(1, rows=500.0)
    posterior = posterior_of(
        [kernel, np.ones((2, 1))],
        [np.zeros(2), np.zeros(1)],
        likelihood,
        key=getkey(),
    )
    x = rows(500, 2)
    groups = [[0], [1], [0, 1]]
    one, two, both = input_shares(posterior, x, groups, key=getkey()).mean(0)
    f = np.abs(x.sum(1))
    assert both == pytest.approx(f.var() / (f.var() + 1), rel=0.03)
    assert one + two > 1.1 * both

    def by_hand(column):
        generator = np.random.default_rng(1)
        moved = []
        for _ in range(200):
            new = x.copy()
            new[:, column] = generator.permutation(x[:, column])
            moved.append(0.5 * np.mean((np.abs(new.sum(1)) - f) ** 2))
        return np.mean(moved) / (f.var() + 1)

    assert one == pytest.approx(by_hand(0), rel=0.05)
    assert two == pytest.approx(by_hand(1), rel=0.05)


def test_a_softmax_ignores_what_all_classes_share(getkey):
    """Column 0 moves all logits equally, column 1 their difference (I1)."""
    slopes = np.array([[3.0, 3.0], [1.0, -1.0]])
    likelihood = Categorical().build(2, rows=500.0)
    posterior = linear(slopes, likelihood, key=getkey())
    shares = input_shares(posterior, rows(500, 2), [[0], [1]], key=getkey())
    assert shares[:, 0].max() < 1e-20
    assert shares[:, 1].mean() == pytest.approx(2 / (2 + GUMBEL_VARIANCE), rel=0.02)


def test_an_input_that_acts_on_the_noise_alone_counts(getkey):
    """f = x_1, g = x_2: the larger of the shares of means and of noise (I1), (L4)."""
    slopes = np.array([[1.0, 0.0], [0.0, 1.0]])
    likelihood = HeteroscedasticNoise().build(1, rows=500.0)
    x = rows(500, 2)
    posterior = linear(slopes, likelihood, key=getkey())
    shares = input_shares(posterior, x, [[0], [1]], key=getkey())
    noise = np.exp(-x[:, 1]).mean()
    expected = [1 / (1 + noise), 1 / (1 + 2)]
    np.testing.assert_allclose(shares.mean(0), expected, rtol=0.03)


def test_shares_of_posterior_samples_agree_with_loops(getkey):
    """One draw at a time; rows that are all different, so that none keeps its own."""
    posterior, x = random_draws((3, 4, 2), draws=200, key=getkey()), rows(40, 3)
    shares = input_shares(posterior, x, [[0], [1, 2]], key=getkey())
    f = np.asarray(posterior.drawn_outputs(jnp.asarray(x)))
    noise = (np.asarray(posterior.noise) ** 2).mean(0)
    total = f.var(1).sum(1) + noise.sum()
    generator, expected = generator_of(getkey()), []
    for _ in range(20):
        order = generator.permutation(40)
        order[np.argsort(order)] = np.roll(order, 1)  # never the identity in a row
        moved = x.copy()
        moved[:, 0] = x[np.roll(order, 1), 0]
        other = np.asarray(posterior.drawn_outputs(jnp.asarray(moved)))
        expected.append(0.5 * ((other - f) ** 2).mean(1).sum(1) / total)
    error = np.std(shares[:, 0] - np.mean(expected, 0)) / np.sqrt(len(shares))
    gap = (shares[:, 0] - np.mean(expected, 0)).mean()
    assert abs(gap) < 5 * error + 0.02 * shares[:, 0].mean()
    assert shares.shape == (200, 2)


def test_a_group_of_all_inputs_of_two_rows_is_swapped(getkey):
    """With two rows, a shuffle in which none keeps its position is a swap (I1)."""
    posterior, x = random_draws((3, 4, 1), key=getkey()), rows(2, 3)
    shares = input_shares(posterior, x, [[0, 1, 2]], key=getkey())[:, 0]
    f = np.asarray(posterior.drawn_outputs(jnp.asarray(x)))[..., 0]
    noise = (np.asarray(posterior.noise) ** 2).mean()
    gap = f[:, 0] - f[:, 1]
    np.testing.assert_allclose(shares, 0.5 * gap**2 / (f.var(1) + noise), rtol=1e-9)


def test_shuffles_differ_between_the_draws(getkey):
    """The same weights in all draws, but not the same shares (I1)."""
    slopes = np.array([[2.0], [1.0]])
    likelihood = GaussianNoise().build(1, rows=30.0)
    posterior = linear(slopes, likelihood, key=getkey())
    shares = input_shares(posterior, rows(30, 2), [[0]], key=getkey())[:, 0]
    assert len(np.unique(shares.round(9))) > 30


def test_very_many_groups_use_fewer_draws(getkey):
    posterior = random_draws((2, 2, 1), draws=2 * MIN_DRAWS, key=getkey())
    groups = [[number % 2] for number in range(MAX_PAIRS // 50)]
    shares = input_shares(posterior, rows(2, 2), groups, key=getkey())
    assert shares.shape == (50, len(groups))
