"""Mean-field weights: moments, draws, folding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats

from farrier.core.families import Normal
from farrier.core.weights import Fold, MeanFieldWeights

D_IN, NODES, DRAWS = 3, 4, 40_000


def random_normal(shape, *, key):
    key_loc, key_scale = jr.split(key)
    scale = jr.uniform(key_scale, shape, minval=0.3, maxval=1.5)
    return Normal(jr.normal(key_loc, shape), jnp.log(scale))


def random_weights(*, key):
    key_kernel, key_bias = jr.split(key)
    kernel = random_normal((NODES, D_IN), key=key_kernel)
    return MeanFieldWeights(kernel, random_normal((NODES,), key=key_bias))


@eqx.filter_jit
def sample(weights, inputs, nodes, keys):
    return jax.vmap(lambda key: weights.sample(inputs, nodes, key=key))(keys)


def draw_all(weights, *, key):
    """Many draws of kernel and bias, as NumPy arrays."""
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    return [np.asarray(w) for w in sample(weights, *numbers, jr.split(key, DRAWS))]


def assert_mean(values, expected):
    error = np.abs(values.mean(0) - np.asarray(expected))
    assert (error < 5 * values.std(0) / np.sqrt(len(values))).all()


def test_squared_norm_and_entropy_agree_with_draws_and_scipy(getkey):
    """Of all weights into a node, its bias included (F1), (F2)."""
    weights = random_weights(key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    assert_mean((kernel**2).sum(2) + bias**2, weights.squared_norm())
    entropy = lambda q: stats.norm(scale=np.asarray(q.scale)).entropy()
    expected = entropy(weights.kernel).sum(1) + entropy(weights.bias)
    np.testing.assert_allclose(weights.entropy(), expected, rtol=1e-12)


def test_moments_of_the_pre_activations_agree_with_draws(getkey):
    """Mean and variance of w_k . [x, 1], bias included (M6, unit scale)."""
    weights = random_weights(key=getkey())
    x = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]])
    mean, variance = weights.moments(jnp.asarray(x.T), key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    u = np.einsum("ri,dki->drk", x, kernel) + bias[:, None]
    assert_mean(u, mean.T)
    assert_mean((u - np.asarray(mean.T)) ** 2, variance.T)


def test_draws_have_the_law_of_each_weight_and_go_by_the_numbers(getkey):
    """Standardised draws are normal; a part keeps the draw of the whole (R1)."""
    weights = random_weights(key=getkey())
    draws = draw_all(weights, key=getkey())
    for q, w in zip((weights.kernel, weights.bias), draws, strict=True):
        z = (w - np.asarray(q.loc)) / np.asarray(q.scale)
        assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    inputs, nodes = jnp.array([2, 0]), jnp.array([1, 3])
    part = jax.tree.map(lambda leaf: leaf[nodes], weights)
    columns = lambda q: jax.tree.map(lambda leaf: leaf[:, inputs], q)
    part = eqx.tree_at(lambda w: w.kernel, part, replace_fn=columns)
    key = jr.split(getkey(), 1)
    kernel, bias = sample(weights, jnp.arange(D_IN), jnp.arange(NODES), key)
    kernel_part, bias_part = sample(part, inputs, nodes, key)
    expected = kernel[:, nodes][:, :, inputs]
    np.testing.assert_allclose(kernel_part, expected, rtol=1e-12)
    np.testing.assert_allclose(bias_part, bias[:, nodes], rtol=1e-12)


def test_created_weights_have_the_spread_and_the_sd_asked_for(getkey):
    """Locations N(0, start_sd^2), one sd for all, bias counted in the fan-in."""
    weights = MeanFieldWeights.create(50, 200, sd=0.02, start_sd=0.3, key=getkey())
    assert (weights.fan_in, weights.nodes) == (51, 200)
    for q in (weights.kernel, weights.bias):
        assert stats.kstest(np.ravel(q.loc), stats.norm(0, 0.3).cdf).pvalue > 1e-6
        np.testing.assert_allclose(q.scale, np.full(q.loc.shape, 0.02), rtol=1e-12)


def random_fold(*, key):
    """Two of the three inputs are removed: one random, one constant."""
    keys = jr.split(key, 3)
    gone = jnp.array([True, False, True])
    slopes = jnp.zeros((D_IN, D_IN)).at[1].set(jr.normal(keys[0], (D_IN,)))
    at_gone = lambda v: jnp.where(gone, v, 0)
    return Fold(
        gone,
        at_gone(jr.normal(keys[1], (D_IN,))),
        slopes.at[1, 1].set(0),
        at_gone(jr.normal(keys[2], (D_IN,))),
        jnp.array([0.7, 0.0, 0.0]),
    )


def folded_by_hand(weights, fold):
    """(C1) with one loop over the nodes and the inputs, in NumPy."""
    loc, sd = np.array(weights.kernel.loc), np.array(weights.kernel.scale)
    bias, bias_variance = np.array(weights.bias.loc), np.array(weights.bias.scale) ** 2
    new_loc, variance = loc.copy(), sd**2
    for j in range(NODES):
        for k in np.flatnonzero(fold.gone):
            bias[j] += float(fold.constant[k]) * loc[j, k]
            square = float(fold.variance[k]) + float(fold.mean[k]) ** 2  # E[a_k^2]
            bias_variance[j] += square * sd[j, k] ** 2
            bias_variance[j] += float(fold.variance[k]) * loc[j, k] ** 2
            for i in np.flatnonzero(~np.asarray(fold.gone)):
                new_loc[j, i] += float(fold.slopes[i, k]) * loc[j, k]
            new_loc[j, k] = variance[j, k] = 0
    return new_loc, variance, bias, bias_variance


def test_folded_weights_agree_with_numpy(getkey):
    """Locations and variances, of the kernel and of the bias (C1)."""
    weights, fold = random_weights(key=getkey()), random_fold(key=getkey())
    assert weights.can_fold
    folded = weights.folded(fold)
    loc, variance, bias, bias_variance = folded_by_hand(weights, fold)
    np.testing.assert_allclose(folded.kernel.loc, loc, rtol=1e-12)
    np.testing.assert_allclose(folded.kernel.scale**2, variance, rtol=1e-12)
    np.testing.assert_allclose(folded.bias.loc, bias, rtol=1e-12)
    np.testing.assert_allclose(folded.bias.scale**2, bias_variance, rtol=1e-12)


def test_folded_weights_have_the_moments_of_the_inputs_they_replace(getkey):
    """Over draws of weights and of a removed input a = c + d a_1 + noise (C1).

    The mean of the pre-activation is that of the whole layer for each value of the
    input that stays: with a constant that forgets the slopes it would not be.
    """
    weights = random_weights(key=getkey())
    generator = np.random.default_rng(0)
    kernel, bias = draw_all(weights, key=getkey())
    stays = 0.3
    constant, slope, sd = 0.8, -1.5, 0.6
    removed = constant + slope * stays + sd * generator.normal(size=DRAWS)
    u = kernel[:, :, 1] * stays + kernel[:, :, 0] * removed[:, None] + bias
    gone = jnp.array([True, False, False])
    at_gone = lambda v: jnp.zeros(D_IN).at[0].set(v)
    slopes = jnp.zeros((D_IN, D_IN)).at[1, 0].set(slope)
    mean = constant + slope * stays
    fold = Fold(gone, at_gone(constant), slopes, at_gone(mean), at_gone(sd**2))
    x = jnp.array([[9.0], [stays], [0.0]])  # the removed input has no weight
    f_mean, f_variance = weights.folded(fold).moments(x, key=getkey())
    assert_mean(u, f_mean[:, 0])
    assert_mean((u - np.asarray(f_mean)[:, 0]) ** 2, f_variance[:, 0])


def test_a_fold_of_nothing_changes_nothing(getkey):
    """(C1) with no input to remove."""
    weights, none = random_weights(key=getkey()), jnp.zeros(D_IN)
    fold = Fold(none > 0, none, jnp.zeros((D_IN, D_IN)), none, none)
    for new, old in zip(
        jax.tree.leaves(weights.folded(fold)), jax.tree.leaves(weights), strict=True
    ):
        np.testing.assert_allclose(new, old, rtol=1e-12)


def test_a_part_of_the_weights_is_that_of_both_axes(getkey):
    """By masks; also of NumPy arrays, which stay NumPy arrays."""
    weights = random_weights(key=getkey())
    nodes, inputs = np.array([1, 0, 1, 1], bool), np.array([0, 1, 1], bool)
    host = jax.tree.map(np.asarray, weights)
    for each in (weights, host):
        part = each.take(nodes=nodes, inputs=inputs)
        assert (part.nodes, part.fan_in) == (3, 3)
        for q, whole in ((part.kernel, host.kernel), (part.bias, host.bias)):
            for field in ("loc", "log_scale"):
                expected = getattr(whole, field)[nodes]
                expected = expected[:, inputs] if expected.ndim > 1 else expected
                np.testing.assert_array_equal(getattr(q, field), expected)
                assert type(getattr(q, field)) is type(getattr(each.bias, field))
    assert eqx.tree_equal(weights.take(), weights)
    assert weights.take(inputs=inputs).nodes == NODES
