"""Which inputs matter (I1), against networks whose answer is known."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from farrier.core.priors import Horseshoe
from farrier.infer.relevance import _shuffles, input_shares
from farrier.model.likelihoods import (
    GUMBEL_VARIANCE,
    Categorical,
    GaussianNoise,
    HeteroscedasticNoise,
)
from farrier.model.network import Network

DRAWS = 40


def sure(law, loc):
    """The same law, all but certain of `loc`."""
    return type(law)(jnp.asarray(loc, float), jnp.full(np.shape(loc), -50.0))


def certain(kernels, biases, likelihood, *, key):
    """A network whose every draw has these weights."""
    widths = tuple(len(bias) for bias in biases[:-1])
    network = Network.create(len(kernels[0]), widths, likelihood, Horseshoe(), key=key)
    layers = []
    for layer, kernel, bias in zip(
        (*network.layers, network.output), kernels, biases, strict=True
    ):
        scales = {
            name: dataclasses.replace(
                scale, q=sure(scale.q, np.zeros(scale.q.loc.shape))
            )
            for name, scale in layer.scales.items()
        }
        weights = dataclasses.replace(
            layer.weights,
            kernel=sure(layer.weights.kernel, np.transpose(kernel)),
            bias=sure(layer.weights.bias, bias),
        )
        layers.append(dataclasses.replace(layer, weights=weights, scales=scales))
    return dataclasses.replace(network, layers=tuple(layers[:-1]), output=layers[-1])


def linear(slopes, likelihood, *, key):
    """f(x) = slopes . x, by one pair of relu nodes for each input."""
    d = len(slopes)
    return certain(
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
    network = linear(slopes, likelihood, key=getkey())
    shares = input_shares(network, x, [[0], [1], [2], [0, 1]], DRAWS, key=getkey())
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
    network = certain(
        [kernel, np.ones((2, 1))],
        [np.zeros(2), np.zeros(1)],
        likelihood,
        key=getkey(),
    )
    x = rows(500, 2)
    one, two, both = input_shares(
        network, x, [[0], [1], [0, 1]], DRAWS, key=getkey()
    ).mean(0)
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


def test_a_softmax_does_not_see_what_all_classes_share(getkey):
    """Column 0 moves all logits alike, column 1 their difference (I1)."""
    slopes = np.array([[3.0, 3.0], [1.0, -1.0]])
    likelihood = Categorical().build(2, rows=500.0)
    network = linear(slopes, likelihood, key=getkey())
    shares = input_shares(network, rows(500, 2), [[0], [1]], DRAWS, key=getkey())
    assert shares[:, 0].max() < 1e-20
    assert shares[:, 1].mean() == pytest.approx(2 / (2 + GUMBEL_VARIANCE), rel=0.02)


def test_an_input_that_acts_on_the_noise_alone_counts(getkey):
    """f = x_1, g = x_2: the larger of the shares of means and of noise (I1), (L4)."""
    slopes = np.array([[1.0, 0.0], [0.0, 1.0]])
    likelihood = HeteroscedasticNoise().build(1, rows=500.0)
    x = rows(500, 2)
    network = linear(slopes, likelihood, key=getkey())
    shares = input_shares(network, x, [[0], [1]], DRAWS, key=getkey())
    noise = np.exp(-x[:, 1]).mean()
    expected = [1 / (1 + noise), 1 / (1 + 2)]
    np.testing.assert_allclose(shares.mean(0), expected, rtol=0.03)


def test_no_row_keeps_its_place(getkey):
    orders = _shuffles(7, 30, key=getkey())
    assert (np.sort(orders, axis=1) == np.arange(7)).all()
    assert (orders != np.arange(7)).all()
    assert len(np.unique(orders, axis=0)) > 20
