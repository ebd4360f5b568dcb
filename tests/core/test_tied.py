"""Weights that move with the scale of their node: draws, divergence, moments."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from farrier.core.node import PACE, NodeWeights
from farrier.core.posteriors import Factorised, Node, Tied
from farrier.core.priors import Horseshoe, RegularisedHorseshoe
from farrier.core.tied import TiedWeights, tilt
from farrier.core.weights import FactorisedWeights, Fold, NonCentred, Regularised
from farrier.model.layers import Layer
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network

D_IN, NODES, DRAWS = 3, 2, 20_000
FAN_IN = D_IN + 1
X = np.array([[0.5, -1.0, 2.0], [3.0, 1.0, -2.0]])
GIVEN = pytest.mark.parametrize("given", ["factorised", "node"])
PRIORS = pytest.mark.parametrize(
    "prior", [Horseshoe(), RegularisedHorseshoe(slab_scale=1.0)], ids=["plain", "slab"]
)


def random_layer(prior, given, *, key):
    """A layer whose weights and scales are away from where they start."""
    layer = Layer.create(D_IN, NODES, prior, Tied(given=given), key=key)
    arrays, static = eqx.partition(layer, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(arrays)
    keys = jr.split(jr.fold_in(key, 1), len(leaves))
    moved = [
        0.5 * jr.normal(k, v.shape) - (1.0 if v.ndim < 2 else 0.0)
        for k, v in zip(keys, leaves, strict=True)
    ]
    layer = eqx.combine(jax.tree.unflatten(tree, moved), static)
    if given == "node":  # its triangle has the pace in it
        where = lambda found: found.weights.free.lower
        layer = eqx.tree_at(where, layer, where(layer) / PACE)
    where = lambda found: found.weights.pull
    return eqx.tree_at(where, layer, where(layer) / PACE)


@eqx.filter_jit
def drawn(layer, keys):
    return jax.vmap(lambda key: layer.sample(key=key))(keys)


def draw_all(layer, *, key):
    """Many draws of the weights, scales multiplied in: draws x nodes x fan_in."""
    kernel, bias = drawn(layer, jr.split(key, DRAWS))
    return np.concatenate([np.asarray(kernel).transpose(0, 2, 1), bias[..., None]], 2)


def assert_mean(values, expected):
    error = np.abs(values.mean(0) - np.asarray(expected))
    assert (error < 5 * values.std(0) / np.sqrt(len(values))).all()


def pull_of(layer):
    """c_k."""
    return PACE * np.asarray(layer.weights.pull)


@GIVEN
def test_draws_of_outputs_are_those_of_drawing_all_weights(getkey, given):
    """First two moments, and their products with the scale (J1), (M6)."""
    layer = random_layer(Horseshoe(), given, key=getkey())
    w = draw_all(layer, key=getkey())
    x = np.concatenate([X, np.ones((len(X), 1))], 1)
    by_weights = np.einsum("dki,ri->dkr", w, x)
    for row in range(len(X)):
        many = jnp.tile(jnp.asarray(X[row])[:, None], (1, DRAWS))
        f = layer.conditional(many, jnp.arange(DRAWS), key=getkey())
        u = np.asarray(f.draw()).T
        both = np.stack([u, by_weights[:, :, row]])
        for power in (1, 2):
            means = (both**power).mean(1)
            error = np.sqrt((both**power).var(1).sum(0) / DRAWS)
            assert (np.abs(means[0] - means[1]) < 5 * error).all()


@GIVEN
def test_divergence_is_that_of_the_joint_law(getkey, given):
    """KL of (z, beta) from N(0, I), as two multivariate normals (J2), and by draws."""
    layer = random_layer(Horseshoe(), given, key=getkey())
    law, c = layer.weights.free.law(), pull_of(layer)
    total = 0.0
    for node in range(NODES):
        root = np.asarray(law.root)[node]
        sigma = np.diag(np.asarray(law.own)[node]) + root @ root.T
        joint = np.eye(FAN_IN + 1)
        joint[0, 1:] = joint[1:, 0] = c[node]
        joint[1:, 1:] = sigma + np.outer(c[node], c[node])
        mean = np.append(0.0, np.asarray(law.loc)[node])
        quadratic = np.trace(joint) + mean @ mean - FAN_IN - 1
        total += 0.5 * (quadratic - np.linalg.slogdet(joint)[1])
    kl = NonCentred().weight_kl(layer.weights, layer.scales.values(), key=getkey())
    np.testing.assert_allclose(kl, total, rtol=1e-10)

    @jax.jit
    @jax.vmap
    def log_ratio(key):
        key_z, key_w = jr.split(key)
        weights = layer.weights
        still = weights.sample(layer.inputs, layer.nodes, key=key_w)
        kernel, bias = weights.moved(*still, jr.normal(key_z, (NODES,)))
        prior = jax.scipy.stats.norm.logpdf
        log_p = prior(kernel).sum() + prior(bias).sum()
        return weights.log_density(*still) - log_p

    assert_mean(np.asarray(log_ratio(jr.split(getkey(), DRAWS))), kl)


def test_divergence_is_zero_at_the_prior(getkey):
    """And positive where weights move with the scale (J2)."""
    free = FactorisedWeights.create(D_IN, NODES, sd=1.0, spread=0.0, key=getkey())
    weights = TiedWeights.create(free)
    kl = lambda w: float(NonCentred().weight_kl(w, (), key=getkey()))
    np.testing.assert_allclose(kl(weights), 0, atol=1e-12)
    pulled = eqx.tree_at(lambda w: w.pull, weights, weights.pull + 0.01)
    expected = 0.5 * (0.01 * PACE) ** 2 * NODES * FAN_IN
    np.testing.assert_allclose(kl(pulled), expected, rtol=1e-10)


@PRIORS
@GIVEN
def test_expected_weights_agree_with_draws(getkey, prior, given):
    """E[w] and its norm, scales multiplied in (J3)."""
    layer = random_layer(prior, given, key=getkey())
    w = draw_all(layer, key=getkey())
    assert_mean(w[:, :, :-1], layer.expected_weights())
    whole = np.asarray(layer.expected_weights())
    tilted = tilt(layer.parametrisation, layer.scales.values(), layer.scales["tau"])
    loc = np.asarray(layer.weights.free.law().loc)
    bias = (
        np.asarray(layer.scale_moment(1))
        * (loc + pull_of(layer) * tilted[:, None])[:, -1]
    )
    assert_mean(w[:, :, -1], bias)
    norms = np.sqrt((whole**2).sum(1) + bias**2)
    np.testing.assert_allclose(layer.expected_norms(), norms, rtol=1e-10)


def test_tilt_has_a_closed_form_without_a_slab(getkey):
    """By Stein's identity E[s z] = sd(ln tau) E[s]; a slab that is far is none (J3)."""
    layer = random_layer(Horseshoe(), "factorised", key=getkey())
    scales, own = layer.scales.values(), layer.scales["tau"]
    np.testing.assert_allclose(tilt(NonCentred(), scales, own), own.q.scale, rtol=1e-8)
    far = tilt(Regularised(1e6), scales, own)
    np.testing.assert_allclose(far, own.q.scale, rtol=1e-6)
    assert (tilt(Regularised(0.1), scales, own) < own.q.scale).all()


@GIVEN
def test_law_is_that_of_draws_whatever_the_scale(getkey, given):
    """The shared noise is one more column (J1), (N1)."""
    layer = random_layer(Horseshoe(), given, key=getkey())
    weights = layer.weights

    @jax.jit
    @jax.vmap
    def beta(key):
        key_z, key_w = jr.split(key)
        still = weights.sample(layer.inputs, layer.nodes, key=key_w)
        kernel, bias = weights.moved(*still, jr.normal(key_z, (NODES,)))
        return jnp.concatenate([kernel, bias[:, None]], 1)

    law, found = weights.law(), np.asarray(beta(jr.split(getkey(), DRAWS)))
    assert_mean(found, law.loc)
    away = found - np.asarray(law.loc)
    covariance = np.einsum("kic,kjc->kij", law.root, law.root)
    covariance += np.asarray(law.own)[:, :, None] * np.eye(FAN_IN)
    assert_mean(np.einsum("dki,dkj->dkij", away, away), covariance)
    assert_mean((found**2).sum(2), weights.squared_norm())


@GIVEN
def test_a_constant_input_is_folded_exactly(getkey, given):
    """Mean, variance and what moves with the scale of w . [x, 1] stay (C1), (N5)."""
    weights = random_layer(Horseshoe(), given, key=getkey()).weights
    only, zero = jnp.array([False, True, False]), jnp.zeros(D_IN)
    mean = jnp.where(only, 1.7, 0.0)
    fold = Fold(only, mean, jnp.zeros((D_IN, D_IN)), mean, zero)
    folded = weights.with_law(weights.law().folded(fold))
    kept = np.array([True, False, True])
    small = folded.without_inputs(kept)
    x = jnp.asarray(np.where(np.arange(D_IN) == 1, 1.7, X).T)
    key = getkey()
    few = x[np.flatnonzero(kept)]
    for ours, theirs in zip(
        (*small.moments(few, key=key), small.rise(few)),
        (*weights.moments(x, key=key), weights.rise(x)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(folded.rise(x), weights.rise(x), rtol=1e-10)


@GIVEN
def test_a_fit_starts_where_weights_do_not_move(getkey, given):
    """The same bound as without the tie, and a gradient that moves them (J1)."""
    likelihood = GaussianNoise().build(1, rows=5.0)
    key_build, key, x = getkey(), getkey(), jr.normal(getkey(), (5, D_IN))
    rows = (x, jnp.ones((5, 1)), jnp.ones(5))
    args = (D_IN, (4,), likelihood, Horseshoe())
    plain = {"factorised": Factorised(), "node": Node()}[given]
    bound = eqx.filter_jit(lambda network: network.bound(*rows, key=key).total)
    networks = [
        Network.create(*args, form, key=key_build)
        for form in (plain, Tied(given=given))
    ]
    np.testing.assert_allclose(*map(bound, networks), rtol=1e-12)
    gradient = eqx.filter_grad(bound)(networks[1]).layers[0].weights.pull
    assert (jnp.abs(gradient) > 0).all()
    kind = NodeWeights if given == "node" else FactorisedWeights
    assert isinstance(networks[1].output.weights, kind)


def test_a_form_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"`given` must be one of .* got 'matrix'"):
        Tied(given="matrix")


@pytest.mark.parametrize("prior", [Horseshoe(), RegularisedHorseshoe()])
def test_priors_that_can_tie(prior):
    assert prior.can_tie
    assert not Horseshoe(parametrisation="centred").can_tie
