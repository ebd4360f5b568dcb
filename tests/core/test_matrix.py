"""The matrix normal with pseudo-data: conditioning, moments, draws, divergences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import integrate, stats

from farrier.core.forms import kl_to_scaled_normal
from farrier.core.matrix import (
    DROPOUT,
    JITTER,
    LEAST_NOISE,
    MatrixWeights,
    inverse,
    solve,
)
from farrier.core.weights import Fold

D_IN, NODES, PAIRS, DRAWS = 4, 3, 2, 10_000
X = np.array([[0.5, -1.0, 2.0, 0.3], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 0.0, -2.0]])


def random_weights(*, key, pairs=PAIRS, noise=0.0):
    """All parameters away from where they start, the pseudo-data off the locations."""
    keys = jr.split(key, 6)
    return MatrixWeights(
        jr.normal(keys[0], (NODES, D_IN + 1)),
        0.3 * jr.normal(keys[1], (D_IN + 1,)),
        0.3 * jr.normal(keys[2], (NODES,)),
        jr.normal(keys[3], (pairs, D_IN + 1)),
        jr.normal(keys[4], (NODES, pairs)),
        jr.normal(keys[5], (2,)),
        noise,
    )


@eqx.filter_jit
def sample(weights, inputs, nodes, keys):
    return jax.vmap(lambda key: weights.sample(inputs, nodes, key=key))(keys)


def draw_all(weights, *, key):
    """Many draws of the weights into each node, bias last, as a NumPy array."""
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    kernel, bias = sample(weights, *numbers, jr.split(key, DRAWS))
    return np.concatenate([kernel, bias[..., None]], 2)


def dense(weights):
    """Mean and covariance of vec(W), conditioned by the textbook formula."""
    row, column = np.exp(2 * weights.log_row), np.exp(2 * weights.log_column)
    pseudo = np.asarray(weights.pseudo_inputs)
    error = JITTER * np.diag((pseudo * row) @ pseudo.T)
    mean = np.ravel(weights.loc)
    covariance = np.kron(np.diag(column), np.diag(row))
    observed = np.kron(np.eye(NODES), pseudo)
    noise = np.kron(np.diag(column), np.diag(error))
    gain = covariance @ observed.T
    gain = gain @ np.linalg.inv(observed @ covariance @ observed.T + noise)
    mean = mean + gain @ (np.ravel(weights.pseudo_outputs) - observed @ mean)
    return mean, covariance - gain @ observed @ covariance


def assert_mean(values, expected):
    error = np.abs(values.mean(0) - np.asarray(expected))
    assert (error < 5 * values.std(0) / np.sqrt(len(values))).all()


def with_ones(x):
    return np.concatenate([x, np.ones((len(x), 1))], 1)


def test_moments_and_expected_weights_agree_with_dense_conditioning(getkey):
    """The joint normal of all weights, conditioned by NumPy (V2)."""
    weights = random_weights(key=getkey())
    mean, covariance = dense(weights)
    mean = mean.reshape(NODES, -1)
    np.testing.assert_allclose(weights.expected(), mean[:, :-1], rtol=1e-9)
    norms = np.linalg.norm(mean, axis=1)
    np.testing.assert_allclose(weights.expected_norms(), norms, rtol=1e-9)
    u_mean, u_variance = weights.moments(jnp.asarray(X.T), key=getkey())
    x = with_ones(X)
    np.testing.assert_allclose(u_mean, mean @ x.T, rtol=1e-9)
    blocks = covariance.reshape(NODES, D_IN + 1, NODES, D_IN + 1)
    expected = np.einsum("ri,kikj,rj->kr", x, blocks, x)
    np.testing.assert_allclose(u_variance, expected, rtol=1e-8)


def test_draws_have_the_conditional_law(getkey):
    """Mean and all covariances of the weights (V2)."""
    weights = random_weights(key=getkey())
    mean, covariance = dense(weights)
    w = draw_all(weights, key=getkey()).reshape(DRAWS, -1)
    assert_mean(w, mean)
    apart = w - mean
    assert_mean(apart[:, :, None] * apart[:, None], covariance)
    z = apart / np.sqrt(np.diag(covariance))
    assert all(stats.kstest(column, "norm").pvalue > 1e-6 for column in z.T)


def test_moments_agree_with_draws_where_pseudo_data_are_noisy(getkey):
    """By the laws of total mean and variance over their noise (V2), (V3)."""
    weights = random_weights(key=getkey(), noise=0.4)
    moments = eqx.filter_jit(
        jax.vmap(lambda key: weights.moments(jnp.asarray(X.T), key=key))
    )
    means, variances = (np.asarray(m) for m in moments(jr.split(getkey(), DRAWS)))
    u = np.einsum("dki,ri->dkr", draw_all(weights, key=getkey()), with_ones(X))
    for power in (1, 2):
        mixture = means if power == 1 else means**2 + variances
        difference = mixture.mean(0) - (u**power).mean(0)
        error = np.sqrt((mixture.var(0) + (u**power).var(0)) / DRAWS)
        assert (np.abs(difference) < 5 * error).all()


def test_noise_of_pseudo_data_is_relative_and_drawn_for_both(getkey):
    """x_p (1 + s z): its spread is s |x_p|, for the outputs alike (V3)."""
    weights = random_weights(key=getkey(), noise=0.4)
    differ = jnp.array([-1.0, 1.0])  # the noise of one is about 2.7 x that of the other
    weights = eqx.tree_at(lambda w: w.raw_noise, weights, differ)
    numbers = jnp.arange(D_IN), jnp.arange(NODES)

    @jax.jit
    @jax.vmap
    def drawn(key):
        pairs, _ = weights._drawn_pairs(*numbers, key=key)
        return pairs.inputs, pairs.outputs

    at_rest = weights.pseudo_inputs, weights.pseudo_outputs
    drawn_pairs = drawn(jr.split(getkey(), DRAWS))
    for values, of, s in zip(drawn_pairs, at_rest, weights.noise, strict=True):
        z = np.asarray(values / of[None] - 1).reshape(DRAWS, -1) / float(s)
        assert all(stats.kstest(column, "norm").pvalue > 1e-6 for column in z.T)
        assert np.abs(np.corrcoef(z.T) - np.eye(z.shape[1])).max() < 0.06
    assert (weights.noise > 0.4 * LEAST_NOISE).all()
    assert (weights.noise < 0.4).all()


def test_entropy_and_squared_norm_are_those_of_scipys_matrix_normal(getkey):
    """Before conditioning (V1)."""
    weights = random_weights(key=getkey())
    row, column = (
        np.exp(2 * np.asarray(v)) for v in (weights.log_row, weights.log_column)
    )
    law = stats.matrix_normal(
        mean=np.asarray(weights.loc), rowcov=np.diag(column), colcov=np.diag(row)
    )
    np.testing.assert_allclose(weights.entropy().sum(), law.entropy(), rtol=1e-12)
    by_hand = stats.norm(scale=np.sqrt(np.outer(column, row))).entropy().sum(1)
    np.testing.assert_allclose(weights.entropy(), by_hand, rtol=1e-12)
    draws = law.rvs(DRAWS, random_state=0)
    assert_mean((draws**2).sum(2), weights.squared_norm())


def test_kl_is_that_of_the_matrix_normal(getkey):
    """To N(0, s^2 I): the trace formula of matrix normals, and draws (V4), (M7)."""
    weights, s = random_weights(key=getkey()), 0.7
    kl = kl_to_scaled_normal(weights, jnp.full(1, s**-2), jnp.log(jnp.full(1, s)))
    row, column = (
        np.exp(2 * np.asarray(v)) for v in (weights.log_row, weights.log_column)
    )
    loc, n = np.asarray(weights.loc), NODES * (D_IN + 1)
    logs = (D_IN + 1) * np.log(column).sum() + NODES * np.log(row).sum()
    expected = column.sum() * row.sum() / s**2 + (loc**2).sum() / s**2 - n
    expected = 0.5 * (expected + 2 * n * np.log(s) - logs)
    np.testing.assert_allclose(kl, expected, rtol=1e-12)
    law = stats.matrix_normal(mean=loc, rowcov=np.diag(column), colcov=np.diag(row))
    draws = law.rvs(DRAWS, random_state=1)
    prior = stats.norm.logpdf(draws, scale=s).sum((1, 2))
    assert_mean(law.logpdf(draws) - prior, kl)


def test_what_conditioning_adds_to_the_divergence(getkey):
    """The divergence of the conditional law, less the one in the bound (V5)."""
    weights, s = random_weights(key=getkey()), 0.7
    kl = kl_to_scaled_normal(weights, jnp.full(1, s**-2), jnp.log(jnp.full(1, s)))
    mean, covariance = dense(weights)
    n = len(mean)
    conditional = (np.trace(covariance) + mean @ mean) / s**2 - n + 2 * n * np.log(s)
    conditional = 0.5 * (conditional - np.linalg.slogdet(covariance)[1])
    row, column = (
        np.exp(2 * np.asarray(v)) for v in (weights.log_row, weights.log_column)
    )
    pseudo = np.asarray(weights.pseudo_inputs)
    gram = (pseudo * row) @ pseudo.T
    error = np.diag(JITTER * np.diag(gram))
    lost = np.trace(np.linalg.solve(gram + error, (pseudo * row**2) @ pseudo.T))
    squares = mean @ mean - np.sum(np.asarray(weights.loc) ** 2) - column.sum() * lost
    logs = np.linalg.slogdet(gram + error)[1] - np.linalg.slogdet(error)[1]
    excess = 0.5 * squares / s**2 + 0.5 * NODES * logs
    np.testing.assert_allclose(conditional - kl, excess, rtol=1e-6)
    assert 0 < logs <= PAIRS * np.log1p(1 / JITTER)


def test_without_pseudo_data_it_is_the_matrix_normal(getkey):
    """Moments by the plain formula: c_k^2 (r^2) . [x, 1]^2 (V1)."""
    weights = random_weights(key=getkey(), pairs=0)
    row, column = (
        np.exp(2 * np.asarray(v)) for v in (weights.log_row, weights.log_column)
    )
    mean, variance = weights.moments(jnp.asarray(X.T), key=getkey())
    x = with_ones(X)
    np.testing.assert_allclose(mean, weights.loc @ x.T, rtol=1e-12)
    np.testing.assert_allclose(variance, np.outer(column, x**2 @ row), rtol=1e-12)
    np.testing.assert_allclose(weights.expected(), weights.loc[:, :-1], rtol=1e-12)
    assert_mean(draw_all(weights, key=getkey()), weights.loc)
    np.testing.assert_array_equal(weights.extra_kl(), 0)


def test_pseudo_data_are_interpolated_and_certain(getkey):
    """At a pseudo-input the output is its pseudo-output, up to the error (V2)."""
    weights = random_weights(key=getkey())
    pseudo = np.asarray(weights.pseudo_inputs)
    mean = weights.expected() @ pseudo[:, :-1].T
    bias = dense(weights)[0].reshape(NODES, -1)[:, -1:]
    mean = mean + bias * pseudo[:, -1]
    np.testing.assert_allclose(mean, weights.pseudo_outputs, atol=1e-2)
    scaled = eqx.tree_at(
        lambda w: (w.pseudo_inputs, w.pseudo_outputs),
        weights,
        replace_fn=lambda v: 1e-3 * v,
    )
    np.testing.assert_allclose(scaled.expected(), weights.expected(), rtol=1e-9)


@pytest.mark.parametrize("noise", [0.01, 0.07, 0.4])
def test_noise_costs_its_divergence_from_a_log_uniform_law(getkey, noise):
    """By quadrature of E ln|1 + s z|, up to the polynomial's own error (V3)."""
    weights = random_weights(key=getkey(), noise=noise)

    def exact(s):
        density = lambda z: stats.norm.pdf(z) * np.log(np.abs(1 + s * z))
        pole = [-1 / s] if s > 0.1 else None
        mean, _ = integrate.quad(density, -9, 9, points=pole, limit=400)
        return -np.log(s) + mean

    numbers = weights.pseudo_inputs.size, weights.pseudo_outputs.size
    expected = sum(
        n * (exact(float(s)) - exact(noise))
        for n, s in zip(numbers, weights.noise, strict=True)
    )
    np.testing.assert_allclose(weights.extra_kl(), expected, atol=0.05 * sum(numbers))
    by_hand = 0.0
    for n, s in zip(numbers, np.asarray(weights.noise), strict=True):
        each = [np.log(v) + np.polyval([*DROPOUT[::-1], 0], v**2) for v in (noise, s)]
        by_hand += n * (each[0] - each[1])
    np.testing.assert_allclose(weights.extra_kl(), by_hand, rtol=1e-9)
    assert weights.extra_kl() > 0


def test_gradients_agree_with_finite_differences(getkey):
    """Of moments and of a draw, through the Cholesky factor (V2)."""
    weights = random_weights(key=getkey(), noise=0.1)
    key, key_signs = getkey(), getkey()
    params, fixed = eqx.partition(weights, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)

    @jax.jit
    def value(flat):
        w = eqx.combine(unravel(flat), fixed)
        mean, variance = w.moments(jnp.asarray(X.T), key=key)
        kernel, bias = w.sample(jnp.arange(D_IN), jnp.arange(NODES), key=key)
        total = jnp.sin(mean).sum() + jnp.log(variance).sum() + jnp.sin(kernel).sum()
        return total + (bias**2).sum() + w.extra_kl() + w.entropy().sum()

    direction = jr.normal(key_signs, flat.shape)
    step = 1e-6
    both = [value(flat + sign * step * direction) for sign in (1, -1)]
    slope = (both[0] - both[1]) / (2 * step)
    np.testing.assert_allclose(
        jax.jit(jax.grad(value))(flat) @ direction, slope, rtol=1e-6
    )


def test_reordering_nodes_reorders_everything(getkey):
    """Draws go by the nodes' numbers; pairs are common to all nodes (V2)."""
    weights = random_weights(key=getkey(), noise=0.1)
    order = jnp.array([2, 0, 1])
    where = lambda w: (w.loc, w.log_column, w.pseudo_outputs)
    moved = eqx.tree_at(where, weights, replace_fn=lambda leaf: leaf[order])
    key = jr.split(getkey(), 1)
    for all_of, some in zip(
        sample(weights, jnp.arange(D_IN), jnp.arange(NODES), key),
        sample(moved, jnp.arange(D_IN), order, key),
        strict=True,
    ):
        np.testing.assert_allclose(some, all_of[:, order], rtol=1e-9)
    for name in ("expected", "expected_norms", "squared_norm", "entropy"):
        values = getattr(weights, name)()
        np.testing.assert_allclose(getattr(moved, name)(), values[order], rtol=1e-9)
    np.testing.assert_allclose(moved.extra_kl(), weights.extra_kl(), rtol=1e-12)


@pytest.mark.parametrize(("d_in", "pairs"), [(6, 50), (200, 5)])
def test_float32_agrees_with_float64(getkey, d_in, pairs):
    """Also with more pairs than weights, as in a first layer of few inputs (V2)."""
    sizes = {"sd": 0.01, "start_sd": 1.0, "pairs": pairs, "key": getkey()}
    weights = MatrixWeights.create(d_in, 20, **sizes)
    x, key = jr.normal(getkey(), (d_in, 30)), getkey()
    numbers = jnp.arange(d_in), jnp.arange(20)
    single = lambda tree: jax.tree.map(
        lambda v: v.astype(jnp.float32) if eqx.is_inexact_array(v) else v, tree
    )

    def total(weights, x):
        mean, variance = weights.moments(x, key=key)
        return (mean**2).sum() + jnp.sqrt(variance).sum(), (mean, variance)

    @eqx.filter_jit
    def everything(weights, x):
        slope, moments = eqx.filter_grad(total, has_aux=True)(weights, x)
        return slope, *moments, weights.sample(*numbers, key=key)[0]

    slope, mean, variance, kernel = everything(weights, x)
    with jax.enable_x64(new_val=False):
        small, x32 = single(weights), x.astype(jnp.float32)
        slope32, mean32, variance32, kernel32 = everything(small, x32)
    close = lambda a, b, share: np.testing.assert_allclose(
        a, b, atol=share * np.abs(b).max()
    )
    close(mean32, mean, 1e-3)
    close(variance32, variance, 1e-2)
    close(kernel32, kernel, 1e-3)
    assert (np.asarray(variance32) > 0).all()
    for ours, right in zip(
        jax.tree.leaves(slope32), jax.tree.leaves(slope), strict=True
    ):
        close(ours, right, 0.05)


def test_created_weights_have_the_spread_and_agree_with_their_pseudo_data(getkey):
    """Conditioning changes no expected weight before training (V2)."""
    sizes = {"sd": 0.02, "start_sd": 0.3, "key": getkey()}
    weights = MatrixWeights.create(50, 200, **sizes)
    assert (weights.fan_in, weights.nodes) == (51, 200)
    assert weights.pseudo_inputs.shape == (5, 51)
    assert stats.kstest(np.ravel(weights.loc), stats.norm(0, 0.3).cdf).pvalue > 1e-6
    np.testing.assert_allclose(weights.expected(), weights.loc[:, :-1], rtol=1e-9)
    sd = np.exp(weights.log_column)[:, None] * np.exp(weights.log_row)
    np.testing.assert_allclose(sd, np.full((200, 51), 0.02), rtol=1e-12)
    np.testing.assert_allclose(weights.noise, [0.07, 0.07], rtol=0.02)


@pytest.mark.parametrize("size", [0, 1, 5, 20])
def test_solve_agrees_with_numpy_and_its_gradient_with_differences(getkey, size):
    """Swept out, also for pairs that are nearly alike (V2)."""
    x = jr.normal(getkey(), (size, 30)) * jnp.linspace(0.01, 10, 30)[None]
    x = x.at[1:2].set(x[:1] * 1.01)
    gram, b = x @ x.T, jr.normal(getkey(), (size, 3))
    a = gram + 1e-4 * jnp.diag(jnp.diag(gram))
    found = lambda a, b: solve(a, inverse(a), b)
    np.testing.assert_allclose(inverse(a), np.linalg.inv(a), rtol=1e-8)
    np.testing.assert_allclose(found(a, b), np.linalg.solve(a, b), rtol=1e-8)
    several = jax.vmap(found)(jnp.stack([a, 2 * a]), jnp.stack([b, b]))
    np.testing.assert_allclose(several[1], np.linalg.solve(2 * a, b), rtol=1e-8)
    way = gram * jr.normal(getkey(), (size, size)), jr.normal(getkey(), (size, 3))
    value = lambda s: jnp.sin(found(a + s * way[0], b + s * way[1])).sum()
    slope = (value(1e-8) - value(-1e-8)) / 2e-8
    np.testing.assert_allclose(jax.grad(value)(0.0), slope, rtol=1e-4, atol=1e-9)


def test_inputs_of_correlated_weights_cannot_be_folded(getkey):
    """The pairs relate all weights: the message names what to do instead (C1)."""
    weights = random_weights(key=getkey())
    assert not weights.can_fold
    none = jnp.zeros(D_IN)
    fold = Fold(none > 0, none, jnp.zeros((D_IN, D_IN)), none, none)
    with pytest.raises(
        ValueError, match='Keep all nodes, or fit with posterior="mean-'
    ):
        weights.folded(fold)


def test_a_part_of_the_weights_has_the_parameters_of_its_nodes_and_inputs(getkey):
    """Row variances and pseudo-inputs go with inputs, others with nodes (V1), (V2)."""
    weights = random_weights(key=getkey(), noise=0.1)
    nodes, inputs = np.array([1, 0, 1], bool), np.array([0, 1, 1, 0], bool)
    kept = [1, 2, D_IN]  # and the bias
    part = weights.take(nodes=nodes, inputs=inputs)
    np.testing.assert_array_equal(part.loc, np.asarray(weights.loc)[nodes][:, kept])
    np.testing.assert_array_equal(part.log_row, weights.log_row[np.array(kept)])
    np.testing.assert_array_equal(part.log_column, weights.log_column[nodes])
    np.testing.assert_array_equal(
        part.pseudo_inputs, np.asarray(weights.pseudo_inputs)[:, kept]
    )
    np.testing.assert_array_equal(part.pseudo_outputs, weights.pseudo_outputs[nodes])
    np.testing.assert_array_equal(part.raw_noise, weights.raw_noise)
    assert eqx.tree_equal(weights.take(), weights)


def test_draws_have_the_error_of_the_pairs(getkey):
    """Where pairs determine all weights, what is left random is their error (V2)."""
    weights = random_weights(key=getkey(), pairs=D_IN + 1)
    _, covariance = dense(weights)
    w = draw_all(weights, key=getkey()).reshape(DRAWS, -1)
    assert_mean(
        (w - w.mean(0)) ** 2 / np.diag(covariance), np.ones(covariance.shape[0])
    )
