"""One normal for the weights into a node: moments, draws, densities, folding."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from farrier.core.node import PACE, LowRankWeights, NodeWeights
from farrier.core.posteriors import Factorised, Node
from farrier.core.priors import Horseshoe
from farrier.core.scales import HalfCauchy, Scale
from farrier.core.weights import (
    Centred,
    FactorisedWeights,
    Fold,
    NonCentred,
    kl_to_scaled_normal,
)
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network

D_IN, NODES, RANK, DRAWS = 3, 2, 2, 20_000
FAN_IN = D_IN + 1
X = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0], [3.0, 1.0, -2.0]])
FORMS = pytest.mark.parametrize("form", [NodeWeights, LowRankWeights])


def random_weights(form, *, key):
    """All parameters away from where they start; covariances as large as variances."""
    keys = jr.split(key, 3)
    columns = FAN_IN if form is NodeWeights else RANK
    return form(
        jr.normal(keys[0], (NODES, FAN_IN)),
        0.4 * jr.normal(keys[1], (NODES, FAN_IN)),
        0.5 / PACE * jr.normal(keys[2], (NODES, FAN_IN, columns)),
    )


def covariances(weights):
    """Sigma of each node, by NumPy."""
    sigma = np.exp(weights.log_scale)
    diagonal = [np.diag(row) for row in sigma]
    if isinstance(weights, NodeWeights):
        roots = [
            d + PACE * np.tril(u, -1)
            for d, u in zip(diagonal, np.asarray(weights.lower), strict=True)
        ]
        return np.array([root @ root.T for root in roots])
    factors = PACE * np.asarray(weights.factor)
    return np.array([d**2 + f @ f.T for d, f in zip(diagonal, factors, strict=True)])


def laws(weights):
    """The same of scipy.stats."""
    pairs = zip(np.asarray(weights.loc), covariances(weights), strict=True)
    return [stats.multivariate_normal(mean, cov) for mean, cov in pairs]


@eqx.filter_jit
def sample(weights, inputs, nodes, keys):
    return jax.vmap(lambda key: weights.sample(inputs, nodes, key=key))(keys)


def draw_all(weights, *, key):
    """Many draws of the weights into each node, bias last, as a NumPy array."""
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    kernel, bias = sample(weights, *numbers, jr.split(key, DRAWS))
    return np.concatenate([kernel, bias[..., None]], 2)


def assert_mean(values, expected):
    error = np.abs(values.mean(0) - np.asarray(expected))
    assert (error < 5 * values.std(0) / np.sqrt(len(values))).all()


def with_ones(x):
    return np.concatenate([x, np.ones((len(x), 1))], 1)


@FORMS
def test_moments_agree_with_drawing_all_weights_and_with_dense_algebra(getkey, form):
    """Mean and variance of w_k . [x, 1] (N1)."""
    weights = random_weights(form, key=getkey())
    mean, variance = weights.moments(jnp.asarray(X.T), key=getkey())
    x = with_ones(X)
    np.testing.assert_allclose(mean, weights.loc @ x.T, rtol=1e-12)
    expected = np.einsum("ri,kij,rj->kr", x, covariances(weights), x)
    np.testing.assert_allclose(variance, expected, rtol=1e-10)
    u = np.einsum("dki,ri->dkr", draw_all(weights, key=getkey()), x)
    assert_mean(u, mean)
    assert_mean((u - np.asarray(mean)) ** 2, variance)


@FORMS
def test_draws_have_the_covariances_of_their_node_and_no_others(getkey, form):
    """And standardised, each weight is normal (N1), (N2), (N3)."""
    weights = random_weights(form, key=getkey())
    expected = np.zeros((NODES, FAN_IN, NODES, FAN_IN))
    for node, covariance in enumerate(covariances(weights)):
        expected[node, :, node] = covariance
    away = draw_all(weights, key=getkey()) - np.asarray(weights.loc)
    products = np.einsum("dki,dlj->dkilj", away, away)
    assert_mean(products, expected)
    variance = np.einsum("kiki->ki", expected)
    z = (away / np.sqrt(variance)).reshape(DRAWS, -1)
    assert all(stats.kstest(column, "norm").pvalue > 1e-6 for column in z.T)


@FORMS
def test_entropy_and_density_agree_with_scipy(getkey, form):
    """For each node, and for all weights of the layer (N2), (N3), (N4)."""
    weights = random_weights(form, key=getkey())
    expected = [law.entropy() for law in laws(weights)]
    np.testing.assert_allclose(weights.entropy(), expected, rtol=1e-10)
    w = draw_all(weights, key=getkey())
    pairs = enumerate(laws(weights))
    by_scipy = sum(law.logpdf(w[:, node]) for node, law in pairs)
    density = jax.jit(jax.vmap(weights.log_density))
    ours = np.asarray(density(jnp.asarray(w[..., :-1]), jnp.asarray(w[..., -1])))
    np.testing.assert_allclose(ours, by_scipy, rtol=1e-9)
    assert_mean(-ours, weights.entropy().sum())


@FORMS
def test_norms_agree_with_draws_and_with_traces(getkey, form):
    """E|w_k|^2 and |E w_k|, bias included (N1)."""
    weights = random_weights(form, key=getkey())
    trace = np.trace(covariances(weights), axis1=1, axis2=2)
    norms = np.linalg.norm(weights.loc, axis=1)
    np.testing.assert_allclose(weights.squared_norm(), norms**2 + trace, rtol=1e-10)
    np.testing.assert_allclose(weights.expected_norms(), norms, rtol=1e-12)
    np.testing.assert_array_equal(weights.expected(), weights.loc[:, :-1])
    assert_mean((draw_all(weights, key=getkey()) ** 2).sum(2), weights.squared_norm())
    assert weights.own_kl() == 0


def textbook_kl(weights, variance):
    """KL(N(mu, Sigma) || N(0, variance I)), summed over the nodes."""
    total = 0.0
    for law in laws(weights):
        quadratic = (np.trace(law.cov) + law.mean @ law.mean) / variance
        log_ratio = FAN_IN * np.log(variance) - np.linalg.slogdet(law.cov)[1]
        total += 0.5 * (quadratic - FAN_IN + log_ratio)
    return total


@FORMS
def test_divergence_is_that_of_two_multivariate_normals(getkey, form):
    """In both parametrisations (M7), (N2), (N3)."""
    weights = random_weights(form, key=getkey())
    kl = NonCentred().weight_kl(weights, (), key=getkey())
    np.testing.assert_allclose(kl, textbook_kl(weights, 1.0), rtol=1e-10)
    known = Scale.create(HalfCauchy(1.0), (), start=0.7, spread=1e-9)
    kl = Centred().weight_kl(weights, [known], key=getkey())
    np.testing.assert_allclose(kl, textbook_kl(weights, 0.49), rtol=1e-9)
    standard = jax.tree.map(jnp.zeros_like, weights)  # N(0, I)
    zero = kl_to_scaled_normal(standard, jnp.ones(1), jnp.zeros(1))
    np.testing.assert_allclose(zero, 0, atol=1e-12)


@FORMS
def test_gradient_agrees_with_finite_differences(getkey, form):
    """Of entropy, norm, moments and a draw, in all parameters (N1), (N2), (N3)."""
    weights = random_weights(form, key=getkey())
    flat, unravel = ravel_pytree(weights)
    numbers, key = (jnp.arange(D_IN), jnp.arange(NODES)), getkey()

    @jax.jit
    def value(flat):
        weights = unravel(flat)
        mean, variance = weights.moments(jnp.asarray(X.T), key=key)
        kernel, bias = weights.sample(*numbers, key=key)
        parts = weights.entropy(), weights.squared_norm(), mean, jnp.sqrt(variance)
        return sum(part.sum() for part in parts) + (kernel**2).sum() + (bias**2).sum()

    step = 1e-6
    steps = step * jnp.eye(len(flat))
    numeric = [(value(flat + h) - value(flat - h)) / (2 * step) for h in steps]
    np.testing.assert_allclose(jax.grad(value)(flat), numeric, rtol=1e-5, atol=1e-6)


@eqx.filter_jit
def bound_and_draw(network, x, *, key):
    rows = (x, jnp.ones((len(x), 1)), jnp.ones(len(x)))
    return network.bound(*rows, key=key).total, network.sample(key=key)(x)


def test_a_fit_starts_where_that_of_independent_weights_starts(getkey):
    """The same bound and the same draws with the same key (N2)."""
    likelihood = GaussianNoise().build(1, rows=5.0)
    key_build, key, x = getkey(), getkey(), jr.normal(getkey(), (5, D_IN))
    args = (D_IN, (4,), likelihood, Horseshoe())
    found = [
        bound_and_draw(Network.create(*args, form, key=key_build), x, key=key)
        for form in (Factorised(), Node())
    ]
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_a_low_rank_starts_near_independent_weights(getkey):
    """Within a few parts in ten thousand (N3)."""
    sizes = {"sd": 0.1, "spread": 1.0, "key": getkey()}
    plain = FactorisedWeights.create(D_IN, NODES, **sizes)
    weights = LowRankWeights.create(D_IN, NODES, **sizes, rank=RANK)
    np.testing.assert_array_equal(weights.loc, plain.law().loc)
    np.testing.assert_allclose(weights.law().variance, plain.law().own, rtol=0.01)
    np.testing.assert_allclose(weights.entropy(), plain.entropy(), rtol=1e-3)


def test_low_rank_covariances_have_a_gradient_at_the_start(getkey):
    """With G = 0 they would have none (N3)."""
    sizes = {"sd": 0.01, "spread": 1.0, "rank": RANK}
    weights = LowRankWeights.create(D_IN, NODES, **sizes, key=getkey())
    total = lambda w: w.moments(jnp.asarray(X.T), key=jr.key(0))[1].sum()
    assert (jnp.abs(jax.grad(total)(weights).factor) > 0).all()


@FORMS
def test_nodes_keep_their_draws_when_others_leave(getkey, form):
    """Noise goes by the numbers of nodes and inputs (R1)."""
    weights, key = random_weights(form, key=getkey()), jr.split(getkey(), 1)
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    kernel, bias = sample(weights, *numbers, key)
    part = jax.tree.map(lambda leaf: leaf[1:], weights)
    kernel_part, bias_part = sample(part, numbers[0], numbers[1][1:], key)
    np.testing.assert_allclose(kernel_part, kernel[:, 1:], rtol=1e-12)
    np.testing.assert_allclose(bias_part, bias[:, 1:], rtol=1e-12)


def fold_of(*, mean=0.0, variance=0.0, slope=0.0):
    """Input 1 leaves, and is a constant plus a part of input 2."""
    only = jnp.array([False, True, False])
    slopes = jnp.zeros((D_IN, D_IN)).at[2, 1].set(slope)
    each = [jnp.where(only, value, 0.0) for value in (mean, mean, variance)]
    return Fold(only, each[0], slopes, each[1], each[2])


@FORMS
def test_a_constant_input_is_folded_exactly(getkey, form):
    """Mean A mu and covariance A Sigma A' of the weights that stay (N5)."""
    weights = random_weights(form, key=getkey())
    folded = weights.with_law(weights.law().folded(fold_of(mean=1.7)))
    x = np.where(np.arange(D_IN) == 1, 1.7, X)
    moments = weights.moments(jnp.asarray(x.T), key=getkey())
    for ours, theirs in zip(
        folded.moments(jnp.asarray(x.T), key=getkey()), moments, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
    a = np.eye(FAN_IN)[[0, 2, 3]]
    a[2, 1] = 1.7
    small = folded.without_inputs(np.array([True, False, True]))
    np.testing.assert_allclose(small.loc, weights.loc @ a.T, rtol=1e-10)
    expected = a @ covariances(weights) @ a.T
    np.testing.assert_allclose(covariances(small), expected, rtol=1e-9)
    key = jr.split(getkey(), 1)
    ours = sample(small, jnp.array([0, 2]), jnp.arange(NODES), key)
    whole = sample(folded, jnp.arange(D_IN), jnp.arange(NODES), key)
    np.testing.assert_allclose(ours[0], whole[0][:, :, [0, 2]], rtol=1e-10)
    np.testing.assert_allclose(ours[1], whole[1], rtol=1e-10)


@FORMS
def test_a_random_input_is_folded_by_its_moments(getkey, form):
    """By total variance over input 1, drawn apart from the rest (C1), (N5)."""
    weights, mean, sd = random_weights(form, key=getkey()), 0.8, 0.6
    law = weights.law().folded(fold_of(mean=mean, variance=sd**2))
    draws = np.random.default_rng(0).normal(mean, sd, DRAWS)
    x = np.tile(with_ones(X[:1]), (DRAWS, 1))
    x[:, 1] = draws
    w = draw_all(weights, key=getkey())
    u = np.einsum("dki,di->dk", w, x)
    kept = with_ones(X[:1])[0]
    u_mean = np.asarray(law.loc) @ kept
    variance = np.asarray(law.own) @ kept**2
    variance += (np.einsum("kic,i->kc", law.root, kept) ** 2).sum(1)
    assert_mean(u, u_mean)
    assert_mean((u - u_mean) ** 2, variance)


def test_without_covariances_folding_is_that_of_independent_weights(getkey):
    """Slopes and all: both forms end with the same moments (C1), (N5)."""
    sizes = {"sd": 0.4, "spread": 1.0, "key": getkey()}
    fold = fold_of(mean=0.8, variance=0.3, slope=0.5)
    found = []
    for form in (FactorisedWeights, NodeWeights):
        weights = form.create(D_IN, NODES, **sizes)
        folded = weights.with_law(weights.law().folded(fold))
        found.append(folded.moments(jnp.asarray(X.T), key=getkey()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
