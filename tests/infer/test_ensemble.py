"""Ensembles of several fits: their draws, shares and widths."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import random_draws, tiny_network
from scipy.special import logsumexp

from farrier.core.priors import Horseshoe
from farrier.infer.ensemble import draw_groups, ensemble, equal_counts, sampled
from farrier.infer.nodes import find_nodes
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.network import Network
from farrier.model.posterior import VariationalPosterior

X = jr.normal(jr.key(0), (30, 2))
predict = eqx.filter_jit(lambda posterior, x: posterior.predictive(x))


def fit(seed, width=5, likelihood=None):
    """A network before training, and its node scores."""
    likelihood = likelihood or GaussianNoise().build(1, rows=30.0)
    network = Network.create(2, (width,), likelihood, Horseshoe(), key=jr.key(seed))
    posterior = VariationalPosterior.create(network, 20, key=jr.key(1))
    return network, find_nodes(posterior, X)


@pytest.mark.parametrize(
    ("parts", "draws", "counts"),
    [(3, 100, [33, 34, 33]), (4, 200, [50] * 4), (3, 2, [1, 0, 1]), (1, 7, [7])],
)
def test_draws_are_divided_equally(parts, draws, counts):
    """As equal as whole numbers can be (W1)."""
    assert equal_counts(parts, draws) == counts
    expected = [number for number, count in enumerate(counts) for _ in range(count)]
    assert draw_groups(parts, draws).tolist() == expected


@pytest.mark.parametrize("noise", [GaussianNoise(), HeteroscedasticNoise()])
def test_density_of_an_ensemble_is_the_mean_of_the_densities_of_its_fits(noise):
    """(W1), with the very draws of each fit."""
    fits = [fit(seed, likelihood=noise.build(1, rows=30.0)) for seed in (0, 1)]
    both, y = ensemble(fits, X, 40, key=jr.key(3)), jnp.abs(X[:, :1])
    halves = [both.take_draws(range(20)), both.take_draws(range(20, 40))]
    parts = [predict(half, X).log_density(y) for half in halves]
    expected = logsumexp(np.stack(parts), axis=0) - np.log(2)
    ours = predict(both, X).log_density(y)
    np.testing.assert_allclose(ours, expected, rtol=1e-10)
    assert np.abs(parts[0] - parts[1]).max() > 0.01


def test_each_fit_has_draws_of_its_own_posterior():
    """Their mean is that of the whole network, up to Monte Carlo error (W1), (C1)."""
    fits, draws = [fit(seed) for seed in (0, 1)], 2_000
    both = ensemble(fits, X, draws, key=jr.key(3))
    f = np.asarray(both.drawn_outputs(X))[..., 0].reshape(2, draws // 2, -1)
    for (network, _), ours in zip(fits, f, strict=True):
        alone = VariationalPosterior.create(network, draws // 2, key=jr.key(7))
        theirs = np.asarray(alone.drawn_outputs(X))[..., 0]
        error = np.sqrt((ours.var(0) + theirs.var(0)) / (draws // 2))
        assert (np.abs(ours.mean(0) - theirs.mean(0)) < 5 * error + 0.01).all()
    assert np.abs(f[0].mean(0) - f[1].mean(0)).max() > 0.1


def test_equal_keys_give_equal_draws_and_fits_have_different_ones():
    """Two copies of one fit are not the same draws twice."""
    one = fit(0)
    both = ensemble([one, one], X, 20, key=jr.key(3))
    again = ensemble([one, one], X, 20, key=jr.key(3))
    np.testing.assert_array_equal(both.kernels[0], again.kernels[0])
    halves = np.asarray(both.kernels[0]).reshape(2, 10, -1)
    assert np.abs(halves[0] - halves[1]).min() > 0


def test_draws_have_the_moments_of_the_posterior(getkey):
    """Draws for an ensemble against draws of the network itself (M1)."""
    network = tiny_network(2, (5,), GaussianNoise().build(1, rows=30.0), key=getkey())
    draws = 4_000
    ours = sampled(network, draws, key=getkey())
    posterior = VariationalPosterior.create(network, draws, key=getkey())
    one = eqx.filter_jit(
        lambda p: p.map(lambda n: (p.sample(n).kernels, p.sample(n).biases))
    )
    kernels, biases = one(posterior)
    for mine, theirs in zip(
        (*ours.kernels, *ours.biases), (*kernels, *biases), strict=True
    ):
        error = np.sqrt((mine.var(0) + theirs.var(0)) / draws)
        assert (np.abs(mine.mean(0) - theirs.mean(0)) < 5 * error).all()
        squares = [(v - v.mean(0)[None]) ** 2 for v in (mine, theirs)]
        error = np.sqrt((squares[0].var(0) + squares[1].var(0)) / draws)
        assert (np.abs(squares[0].mean(0) - squares[1].mean(0)) < 5 * error).all()
    assert ours.scales["layer_1"]["tau"].shape == (draws, 5)
    # Each draw's scales are those of its weights: a larger scale, larger weights.
    tau = np.log(np.asarray(ours.scales["layer_1"]["tau"]))
    size = np.log(np.abs(np.asarray(ours.biases[0])))
    assert np.corrcoef(tau[:, 0], size[:, 0])[0, 1] > 0.05


def test_fits_of_different_widths_share_one_array():
    fits = [fit(0, width=3), fit(1, width=6)]
    both = ensemble(fits, X, 20, key=jr.key(3))
    widest = both.widths[0]
    assert 3 < widest <= 6
    assert both.scales["layer_1"]["tau"].shape == (20, widest)
    assert not both.kernels[0][:10, :, 3:].any()  # padding of the narrow one
    assert not both.kernels[1][:10, 3:].any()
    assert both.kernels[1][10:].any(axis=(0, 2)).all()


def test_nodes_are_sorted_by_their_scores():
    """Best first, in each fit (S1)."""
    fits = [fit(0), fit(1)]
    both = ensemble(fits, X, 40, key=jr.key(3))
    for number, (network, nodes) in enumerate(fits):
        half = both.take_draws(range(20 * number, 20 * number + 20))
        order = np.argsort(-nodes.scores[0], kind="stable")[: both.widths[0]]
        expected = np.asarray(network.expected_kernel())[:, order]
        ours = np.asarray(half.kernels[0]).mean(0)
        assert np.corrcoef(expected.ravel(), ours.ravel())[0, 1] > 0.9
        scores = find_nodes(half, X).scores[0]
        assert (np.diff(scores) < 0.3 * scores[:-1]).all()
        assert not (np.diff(order) == 1).all()


def test_more_fits_than_draws_leave_fits_out():
    """No fit has a negative number of draws, and none is padded with copies."""
    fits = [fit(seed) for seed in (0, 1, 2)]
    assert ensemble(fits, X, 2, key=jr.key(3)).draws == 2


def test_classes_have_no_noise():
    likelihood = Categorical().build(3, rows=30.0)
    fits = [fit(seed, likelihood=likelihood) for seed in (0, 1)]
    both = ensemble(fits, X, 10, key=jr.key(3))
    assert both.noise.shape == (10, 0)
    assert both.kernels[1].shape[2] == 3
    p = predict(both, X).mean()
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-9)


def test_draws_of_an_ensemble_are_thinned_evenly(getkey):
    """Of both halves alike (W1)."""
    many = random_draws((2, 5, 1), draws=10, key=getkey())
    few = many.resampled(4, key=getkey())
    numbers = np.array([0, 2, 5, 7])
    np.testing.assert_array_equal(few.noise, np.asarray(many.noise)[numbers])
    assert (draw_groups(2, 10)[numbers] == draw_groups(2, 4)).all()
