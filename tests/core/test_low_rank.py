"""Normals whose variances have a low rank, beside free ones of the same variances."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farrier.core.families import LowRankNormal, Normal
from farrier.core.posteriors import LowRank
from farrier.core.weights import Fold, MeanFieldWeights

D_IN, NODES, DRAWS = 3, 4, 40_000


def random_low_rank(rank, *, key):
    keys = jr.split(key, 3)
    log_rows = 0.5 * jr.normal(keys[1], (NODES, rank))
    log_columns = 0.5 * jr.normal(keys[2], (rank, D_IN))
    return LowRankNormal(jr.normal(keys[0], (NODES, D_IN)), log_rows, log_columns)


def variances_by_hand(q):
    """(K1) entry by entry, in NumPy."""
    rows, columns = np.exp(2 * np.asarray(q.log_rows)), np.exp(2 * q.log_columns)
    entry = lambda k, i: sum(rows[k, r] * columns[r, i] for r in range(len(columns)))
    return np.array([[entry(k, i) for i in range(D_IN)] for k in range(NODES)])


def pair(rank, *, key):
    """Low-rank weights, and weights with a free variance each, of the same law."""
    key_kernel, key_bias = jr.split(key)
    low = random_low_rank(rank, key=key_kernel)
    free = Normal(low.loc, jnp.asarray(0.5 * np.log(variances_by_hand(low))))
    bias = Normal(jr.normal(key_bias, (NODES,)), jnp.linspace(-1.0, 0.5, NODES))
    return MeanFieldWeights(low, bias), MeanFieldWeights(free, bias)


each_rank = pytest.mark.parametrize("rank", [1, 2])


@each_rank
def test_all_that_the_elbo_reads_is_that_of_free_variances(getkey, rank):
    """Moments (M6), squared norms (F2), entropies (F1) of the same law (K1), (K2)."""
    low, free = pair(rank, key=getkey())
    x = jr.normal(getkey(), (D_IN, 5))
    for ours, theirs in zip(
        low.moments(x, key=getkey()), free.moments(x, key=getkey()), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(low.entropy(), free.entropy(), rtol=1e-12)
    np.testing.assert_allclose(low.squared_norm(), free.squared_norm(), rtol=1e-12)
    np.testing.assert_allclose(low.kernel.scale, free.kernel.scale, rtol=1e-12)
    np.testing.assert_allclose(low.kernel.variance, free.kernel.variance, rtol=1e-12)


@each_rank
def test_moments_agree_with_draws_and_entropy_with_scipy(getkey, rank):
    """The second oracle: draws of the weights, and SciPy's entropies (K1), (K2)."""
    low, _ = pair(rank, key=getkey())
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    sample = eqx.filter_jit(jax.vmap(lambda key: low.sample(*numbers, key=key)))
    kernel, bias = (np.asarray(v) for v in sample(jr.split(getkey(), DRAWS)))
    x = np.array([0.5, -1.0, 2.0])
    u = kernel @ x + bias
    mean, variance = low.moments(jnp.asarray(x[:, None]), key=getkey())
    tolerance = 5 / np.sqrt(DRAWS)
    sd = np.sqrt(np.asarray(variance[:, 0]))
    assert (np.abs(u.mean(0) - mean[:, 0]) < tolerance * sd).all()
    # The variance of a squared standard normal is 2.
    square = (u - np.asarray(mean[:, 0])) ** 2 / sd**2
    assert (np.abs(square.mean(0) - 1) < tolerance * np.sqrt(2)).all()
    sds = np.sqrt(variances_by_hand(low.kernel))
    expected = stats.norm(scale=sds).entropy().sum(1)
    expected += stats.norm(scale=np.asarray(low.bias.scale)).entropy()
    np.testing.assert_allclose(low.entropy(), expected, rtol=1e-12)


@each_rank
def test_folding_and_parts_are_those_of_free_variances(getkey, rank):
    """Removed inputs become certain zeros, and their variance goes to the bias (C1)."""
    low, free = pair(rank, key=getkey())
    gone = np.array([True, False, True])
    at_gone = lambda v: jnp.where(gone, v, 0)
    slopes = jnp.zeros((D_IN, D_IN)).at[1].set(at_gone(jnp.array([0.3, 0.0, -2.0])))
    fold = Fold(
        jnp.asarray(gone),
        at_gone(jnp.array([1.0, 0.0, -0.4])),
        slopes,
        at_gone(jnp.array([0.8, 0.0, 0.1])),
        at_gone(jnp.array([0.7, 0.0, 0.2])),
    )
    nodes = np.array([True, False, True, True])
    for weights in (low, free):
        assert weights.can_fold
    ours, theirs = (w.folded(fold) for w in (low, free))
    for small, other in (
        (ours, theirs),
        (ours.take(nodes=nodes, inputs=~gone), theirs.take(nodes=nodes, inputs=~gone)),
    ):
        for got, expected in ((small.kernel, other.kernel), (small.bias, other.bias)):
            np.testing.assert_allclose(got.loc, expected.loc, rtol=1e-12)
            np.testing.assert_allclose(got.scale, expected.scale, rtol=1e-12)
    assert small.entropy().shape == (3,)
    assert np.isfinite(small.entropy()).all()


def test_a_tree_without_arrays_has_parts_too(getkey):
    """The state of an optimiser has None where there is no array."""
    low, _ = pair(1, key=getkey())
    empty = jax.tree.map(lambda _: None, low)
    small = empty.take(nodes=np.array([True, False, True, True]), inputs=None)
    assert jax.tree.leaves(small) == []


def test_fixed_nodes_have_no_gradient_and_shared_columns_have_one(getkey):
    low, _ = pair(1, key=getkey())
    fixed = jnp.array([True, False, False, True])
    total = lambda w: (
        w.with_fixed_nodes(fixed).entropy().sum()
        + w.with_fixed_nodes(fixed).squared_norm().sum()
    )
    gradient = jax.grad(total)(low)
    for values in (gradient.kernel.loc, gradient.kernel.log_rows, gradient.bias.loc):
        moves = np.abs(np.asarray(values)).reshape(NODES, -1).max(1) > 0
        np.testing.assert_array_equal(moves, ~np.asarray(fixed))
    assert (np.asarray(gradient.kernel.log_columns) != 0).all()


@each_rank
def test_created_weights_have_the_spread_and_the_sd_asked_for(getkey, rank):
    """All factors differ at the start where there are several, else they stay equal."""
    weights = LowRank(rank=rank).weights(200, 50, sd=0.02, start_sd=0.3, key=getkey())
    assert (weights.fan_in, weights.nodes) == (201, 50)
    kernel = weights.kernel
    assert stats.kstest(np.ravel(kernel.loc), stats.norm(0, 0.3).cdf).pvalue > 1e-6
    np.testing.assert_allclose(kernel.scale, 0.02, rtol=1e-12 if rank == 1 else 0.4)
    rows = np.asarray(kernel.log_columns)
    assert len(np.unique(rows, axis=0)) == rank
    # One number for each weight, and one for each node and input.
    assert sum(v.size for v in jax.tree.leaves(kernel)) == 200 * 50 + rank * (200 + 50)


def test_a_rank_under_one_is_refused():
    with pytest.raises(ValueError, match="`rank` must be at least 1, got 0"):
        LowRank(rank=0)
