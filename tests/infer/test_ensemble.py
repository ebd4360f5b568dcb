"""Mixtures of several fits: weights, draws, dead nodes."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import optimize
from scipy.special import logsumexp

from farrier import Restarts
from farrier.core.priors import Horseshoe
from farrier.infer.compact import find_nodes
from farrier.infer.ensemble import (
    best_shares,
    drawn,
    equal_weights,
    mixed,
    stacked_kinds,
    stacked_weights,
    stacking,
)
from farrier.infer.predict import log_densities, mixture
from farrier.infer.sample.chains import allotted, by_chains
from farrier.model.drawn import DrawnNetwork
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.network import Network
from farrier.train.data import Data

X = jr.normal(jr.key(0), (30, 2))


def network(seed, width=5, likelihood=None):
    likelihood = likelihood or GaussianNoise().build(1, rows=30.0)
    made = Network.create(2, (width,), likelihood, Horseshoe(), key=jr.key(seed))
    return made, find_nodes(made, X, 20, key=jr.key(1))


def test_stacking_agrees_with_a_general_optimiser():
    random = np.random.default_rng(0)
    density, weight = random.normal(size=(3, 40)), random.uniform(0.5, 2, 40)

    def loss(w):
        return -weight @ logsumexp(density, axis=0, b=w[:, None])

    sums = {"type": "eq", "fun": lambda w: w.sum() - 1}
    found = optimize.minimize(
        loss, np.full(3, 1 / 3), bounds=[(1e-12, 1)] * 3, constraints=sums, tol=1e-12
    )
    w = stacking(density, weight)  # (W2)
    np.testing.assert_allclose(w, found.x, atol=1e-4)
    assert loss(w) <= found.fun + 1e-6


def test_stacking_where_each_row_has_one_fit_counts_the_rows():
    density = np.where(np.eye(2)[:, [0, 0, 0, 1]], 0.0, -1e3)
    np.testing.assert_allclose(stacking(density, np.ones(4)), [0.75, 0.25])
    weight = np.array([1.0, 1.0, 1.0, 3.0])
    np.testing.assert_allclose(stacking(density, weight), [0.5, 0.5])


def test_a_fit_that_is_worse_in_every_row_gets_no_weight():
    density = np.stack([np.zeros(10), np.full(10, -0.5)])
    np.testing.assert_allclose(stacking(density, np.ones(10)), [1, 0], atol=1e-12)


def test_draws_are_shared_out_by_weight():
    assert allotted(np.full(3, 1 / 3), 100) == [33, 34, 33]
    assert allotted(np.array([0.0, 0.999, 0.001]), 20) == [0, 20, 0]


def test_density_of_a_mixture_is_the_mixture_of_densities():
    """(W1), with the very draws of each fit."""
    fits = [network(seed) for seed in (0, 1)]
    weights = np.array([0.25, 0.75])
    both = mixed(fits, weights, X, 40, key=jr.key(3))
    y = jnp.abs(X[:, :1])

    def density(draws):
        arrays = (both.kernels, both.biases, both.scales, both.noise_sd)
        cut = jax.tree.map(lambda v: v[draws], arrays)
        part = DrawnNetwork(*cut, both.likelihood, both.activation)
        return log_densities(part, X, y, part.noise_sd, key=jr.key(0))

    parts = [density(slice(0, 10)), density(slice(10, 40))]
    expected = logsumexp(np.stack(parts), axis=0, b=weights[:, None])
    found = log_densities(both, X, y, both.noise_sd, key=jr.key(0))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_draws_have_the_moments_of_the_posterior(getkey):
    """Draws for a mixture against draws of the network itself (M1)."""
    fit, _ = network(0)
    some = drawn(fit, 4_000, key=getkey())
    own = jr.split(getkey(), 4_000)
    kernels = jax.vmap(lambda key: fit.sample(key=key).kernels[0])(own)
    error = np.sqrt(2 * kernels.var(0) / 4_000)
    assert (abs(some.kernels[0].mean(0) - kernels.mean(0)) < 5 * error).all()
    ratio = some.kernels[0].std(0) / kernels.std(0)
    np.testing.assert_allclose(ratio, 1, atol=0.25)
    assert some.scales["layer_1_tau"].shape == (4_000, 5)


def test_fits_of_different_widths_share_one_array():
    fits = [network(0, width=3), network(1, width=6)]
    both = mixed(fits, np.array([0.5, 0.5]), X, 20, key=jr.key(3))
    widest = both.widths[0]
    assert 3 < widest <= 6
    assert both.scales["layer_1_tau"].shape == (20, widest)
    assert not both.kernels[0][:10, :, 3:].any()  # dead nodes of the narrow one
    assert not both.kernels[1][:10, 3:].any()
    assert both.kernels[1][10:].any(axis=(0, 2)).all()


def test_nodes_are_sorted_by_their_scores():
    fit = network(0)
    both = mixed([fit], np.ones(1), X, 20, key=jr.key(3))
    nodes = find_nodes(both, X, 20, key=jr.key(1))
    order = np.argsort(-fit[1].scores[0], kind="stable")[: both.widths[0]]
    spread = np.abs(np.asarray(fit[0].layers[0].weights.kernel.loc)[order]).sum(1)
    found = np.abs(np.asarray(both.kernels[0]).mean(0)).sum(0)
    assert np.corrcoef(spread, found)[0, 1] > 0.9
    assert len(nodes.scores[0]) == both.widths[0]


def test_stacked_weights_prefer_the_fit_that_explains_the_rows():
    good, bad = (network(seed)[0] for seed in (0, 1))
    y = np.asarray(good.sample(key=jr.key(9))(X))
    data = Data.create(np.asarray(X), y, batch_size=32)
    weights = stacked_weights([good, bad], data, 50, key=jr.key(2))
    assert weights[0] > 0.8
    np.testing.assert_allclose(
        equal_weights([good, bad], data, 50, key=jr.key(2)), [0.5, 0.5]
    )


def test_noise_models_of_chains_are_weighed_by_rows_that_are_left_out():
    """Draws whose noise is that of the rows have all that is not by chains (W4, W5)."""
    of = lambda sd: drawn_with_noise(GaussianNoise().build(1, rows=30.0), sd)
    parts, chains = [of(0.1), of(1.0)], np.array([3, 1])
    f = np.asarray(parts[0].sample(key=jnp.asarray(0))(X))
    y = f + 0.1 * np.random.default_rng(0).normal(size=f.shape)
    data = Data.create(np.asarray(X), y, batch_size=32)
    key = jr.key(4)
    shares = by_chains(parts, chains, data, key=key)
    np.testing.assert_array_equal(shares, [0.75, 0.25])
    found = stacked_kinds(parts, chains, data, key=key)
    assert 0.85 < found[0] <= 0.875 + 1e-9  # half of 0.75, and nearly all of half
    assert stacked_kinds(parts[:1], chains[:1], data, key=key) == [1]


def test_best_shares_agree_with_a_grid():
    """(W5) of two kinds, one with better densities, one with better means."""
    random = np.random.default_rng(1)
    y = random.normal(size=(50, 2))
    mean = y + random.normal(size=(2, 50, 2)) * np.array([0.3, 0.6])[:, None, None]
    density = random.normal([[-2.0], [-1.0]], 0.5, (2, 50))
    weight = random.uniform(0.5, 2, 50)

    def score(w):
        share = weight / weight.sum()
        both = np.log((1 - w) * np.exp(density[0]) + w * np.exp(density[1]))
        square = share @ (y - (1 - w) * mean[0] - w * mean[1]) ** 2
        return share @ both - np.log(np.sqrt(square)).sum()

    grid = np.linspace(0, 1, 10_001)
    expected = grid[np.argmax([score(w) for w in grid])]
    assert 0.1 < expected < 0.9
    found = best_shares(density, mean, y, weight)
    np.testing.assert_allclose(found, [1 - expected, expected], atol=2e-3)


def test_best_shares_of_what_is_alike_but_for_one_score():
    """(W5): equal means leave (W2); equal densities leave least squares."""
    random = np.random.default_rng(2)
    y, weight = random.normal(size=(40, 1)), random.uniform(0.5, 2, 40)
    density = random.normal(size=(3, 40))
    same = np.repeat(random.normal(size=(1, 40, 1)), 3, axis=0)
    found = best_shares(density, same, y, weight)
    np.testing.assert_allclose(found, stacking(density, weight), atol=2e-3)
    mean = y + random.normal(size=(2, 40, 1)) * np.array([0.5, 0.7])[:, None, None]
    gap, error = (mean[1] - mean[0])[:, 0], (y - mean[0])[:, 0]
    slope = (weight * gap) @ error / ((weight * gap) @ gap)
    found = best_shares(np.repeat(density[:1], 2, axis=0), mean, y, weight)
    np.testing.assert_allclose(found, [1 - slope, slope], atol=2e-3)


def drawn_with_noise(likelihood, sd):
    """Draws of one network, all with the same noise."""
    one = drawn(network(0, likelihood=likelihood)[0], 1, key=jr.key(3))
    many = jax.tree.map(lambda v: jnp.repeat(v, 20, axis=0), one.kernels)
    biases = jax.tree.map(lambda v: jnp.repeat(v, 20, axis=0), one.biases)
    noise_sd = jnp.full((20, 1), sd)
    return DrawnNetwork(many, biases, {}, noise_sd, likelihood, one.activation)


def test_some_draws_are_spread_evenly():
    many = drawn(network(0)[0], 9, key=jr.key(3))
    some = many.some(3)
    np.testing.assert_array_equal(some.noise_sd, many.noise_sd[np.array([0, 4, 8])])
    for few, all_of_them in zip(some.kernels, many.kernels, strict=True):
        np.testing.assert_array_equal(few, all_of_them[np.array([0, 4, 8])])


def test_classes_have_no_noise():
    fits = [network(s, likelihood=Categorical().build(3, rows=30.0)) for s in (0, 1)]
    both = mixed(fits, np.array([0.5, 0.5]), X, 10, key=jr.key(3))
    assert both.noise_sd.shape == (10, 0)
    assert both.kernels[1].shape[2] == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 0}, "`count` must be a whole number from 1, got 0"),
        ({"weights": "best"}, r"`weights` must be one of \['equal', 'stacked'\]"),
    ],
)
def test_settings_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        Restarts(**given)


def test_equal_noise_is_noise_by_the_row_with_nothing_in_its_output():
    """(W3): lifted draws have the densities that they had before."""
    targets, rows = 2, 30.0
    likelihood = GaussianNoise().build(targets, rows=rows)
    by_row = HeteroscedasticNoise().build(targets, rows=rows)
    some = drawn(network(0, likelihood=likelihood)[0], 20, key=jr.key(1))
    lifted = some.under(by_row)
    y = jnp.abs(X)
    for draws in (some, lifted):
        assert draws.noise_sd.shape == (20, targets)
    before, after = (
        log_densities(draws, X, y, draws.noise_sd, key=jr.key(0))
        for draws in (some, lifted)
    )
    np.testing.assert_allclose(after, before, rtol=1e-12)
    form = DrawnNetwork.like(network(0, likelihood=by_row)[0], 20)
    assert jax.tree.map(jnp.shape, lifted) == jax.tree.map(jnp.shape, form)
    kappa = np.asarray(lifted.scales["output_kappa"])
    np.testing.assert_array_equal(kappa[:, :targets], kappa[:, :1].repeat(2, 1))
    assert not kappa[:, targets:].any()


@pytest.mark.parametrize("first", [0, 1])
def test_fits_with_different_noise_are_one_posterior(first):
    """Its noise depends on the row in the draws of one fit alone (W1), (W3)."""
    noises = [GaussianNoise(), HeteroscedasticNoise()]
    fits = [
        network(seed, likelihood=noises[(first + seed) % 2].build(1, rows=30.0))
        for seed in (0, 1)
    ]
    both = mixed(fits, np.array([0.5, 0.5]), X, 20, key=jr.key(3))
    mix = mixture(both, X, both.noise_sd, key=jr.key(0))
    spread = np.ptp(np.asarray(mix.noise_sd)[..., 0], axis=1)
    halves = [slice(0, 10), slice(10, 20)]
    assert not spread[halves[first]].any()
    assert (spread[halves[1 - first]] > 0).all()
