"""How far q is from the posterior (K1), (K2), (K3)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from farrier.core.posteriors import Factorised, Node, Tied
from farrier.core.priors import Horseshoe, NodeExponential, ScaleMixture
from farrier.core.scales import HalfCauchy
from farrier.infer.psis import generalised_pareto_shape, log_weights, pareto_k
from farrier.model.likelihoods import (
    Categorical,
    CategoricalLikelihood,
    GaussianNoise,
    HeteroscedasticNoise,
)
from farrier.model.network import Network

DRAWS = 2_000


def jensen_gap(q, prior):
    """What the auxiliary variables of a half-Cauchy cost, by quadrature (M5)."""
    if not isinstance(prior, HalfCauchy):
        return 0.0
    gap, low = 0.0, -2 * math.log(prior.b)
    for loc, sd in zip(np.ravel(q.loc), np.ravel(q.scale), strict=True):
        log_r = lambda z, m=loc, s=sd: np.logaddexp(-2 * (m + s * z), low)
        mean, _ = integrate.quad(lambda z, f=log_r: stats.norm.pdf(z) * f(z), -12, 12)
        gap += np.logaddexp(-2 * loc + 2 * sd**2, low) - mean
    return gap


@pytest.mark.parametrize(
    ("prior", "likelihood"),
    [
        (Horseshoe(), GaussianNoise(shape=2.0, rate=3.0).build(2, rows=50.0)),
        (Horseshoe(parametrisation="centred"), Categorical().build(3, rows=50.0)),
        (NodeExponential(), GaussianNoise().build(1, rows=50.0)),
        (Horseshoe(), HeteroscedasticNoise(rate=1.0).build(1, rows=50.0)),
    ],
    ids=["horseshoe", "centred", "exponential", "heteroscedastic"],
)
def test_mean_log_weight_is_the_bound(prior, likelihood, getkey):
    """E ln w = bound + Jensen gaps of the scales (K1), (B1), (M5), (L5)."""
    assert_mean_log_weight(prior, likelihood, Factorised(), getkey)


@pytest.mark.parametrize("posterior", [Node(rank=2), Tied()], ids=["node", "tied"])
def test_mean_log_weight_is_the_bound_of_correlated_weights(posterior, getkey):
    """With the density of a whole node's weights (K1), (N4), (J1), (J2)."""
    likelihood = GaussianNoise().build(1, rows=50.0)
    assert_mean_log_weight(NodeExponential(), likelihood, posterior, getkey)


def assert_mean_log_weight(prior, likelihood, posterior, getkey):
    network = Network.create(3, (4,), likelihood, prior, posterior, key=getkey())
    if isinstance(posterior, Tied):  # weights that do move
        pull = lambda net: net.layers[0].weights.pull
        network = eqx.tree_at(pull, network, 0.05 * jr.normal(getkey(), (4, 4)))
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(50, 3)), random.integers(1, 4, 50).astype(float)
    y = random.normal(size=(50, likelihood.targets))
    if isinstance(likelihood, CategoricalLikelihood):
        y = random.integers(0, likelihood.classes, 50)
    log_w = log_weights(network, x, y, weight, DRAWS, key=getkey())
    arrays = (jnp.asarray(x), jnp.asarray(y), jnp.asarray(weight))
    draw = eqx.filter_jit(lambda key: network.bound(*arrays, key=key).total)
    bounds = np.array([draw(key) for key in jr.split(getkey(), 400)])
    layers = network.named_layers().values()
    gap = sum(jensen_gap(s.q, s.prior) for v in layers for s in v.scales.values())
    error = math.hypot(log_w.std() / DRAWS**0.5, bounds.std() / len(bounds) ** 0.5)
    assert abs(log_w.mean() - bounds.mean() - gap) < 5 * error


def test_weights_are_one_where_q_is_the_posterior(getkey):
    """Without rows the posterior is the prior: two normals of nearly one width (K1)."""
    prior = ScaleMixture(wide=1.0, narrow=1 - 1e-9)
    likelihood = Categorical().build(2, rows=1.0)
    network = Network.create(2, (3,), likelihood, prior, key=getkey())
    zero = lambda leaf: jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else leaf
    network = jax.tree.map(zero, network)  # N(0, 1) for all weights
    nothing = np.zeros((5, 2)), np.zeros(5, int), np.zeros(5)
    log_w = log_weights(network, *nothing, 50, key=getkey())
    np.testing.assert_allclose(log_w, 0, atol=1e-6)


@pytest.mark.parametrize("k", [-0.3, 0.0, 0.5, 1.0, 3.0])
def test_shape_of_draws_with_a_known_shape(k):
    """Its standard error is about (1 + k) / sqrt(n) (K3); units do not matter."""
    x = np.sort(stats.genpareto(k).rvs(2_000, random_state=np.random.default_rng(7)))
    tolerance = 5 * max(1 + k, 0.5) / math.sqrt(len(x))
    assert generalised_pareto_shape(x) == pytest.approx(k, abs=tolerance)
    assert generalised_pareto_shape(1e-6 * x) == pytest.approx(
        generalised_pareto_shape(x), rel=1e-6
    )


@pytest.mark.parametrize("s", [0.5, 0.7, 0.9])
def test_a_normal_that_is_too_narrow(s):
    """k = 1 - s^2 for q = N(0, s^2) and p = N(0, 1) (K2)."""
    z = s * np.random.default_rng(3).standard_normal(100_000)
    log_w = stats.norm.logpdf(z) - stats.norm.logpdf(z, scale=s)
    assert pareto_k(log_w) == pytest.approx(1 - s**2, abs=0.15)
    assert pareto_k(log_w + 1e4) == pytest.approx(pareto_k(log_w))  # a common factor


def test_equal_weights_have_no_tail():
    assert pareto_k(np.zeros(100)) == -math.inf
    with pytest.raises(ValueError, match="20 draws have one of 4"):
        pareto_k(np.zeros(20))


def test_one_weight_that_has_it_all():
    log_w = np.append(np.random.default_rng(0).normal(size=999), 2_000.0)
    assert pareto_k(log_w) > 2
