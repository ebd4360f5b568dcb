"""Priors of the ablation: their KL terms, their scales, one draw for a batch."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from experiments.ablation_priors import (
    BatchScales,
    Exponential,
    NodeExponential,
    NodeHalfCauchy,
)
from farrier.core.families import LogNormal
from farrier.core.posteriors import MeanField
from farrier.core.priors import Gaussian, Horseshoe, Outputs
from farrier.core.scales import HalfCauchy
from farrier.model.layers import Layer

X = jnp.array([0.5, -1.0, 2.0])


@pytest.mark.parametrize(("loc", "scale"), [(-2.0, 0.3), (0.2, 0.7), (1.5, 0.1)])
def test_exponential_kl_agrees_with_quadrature(loc, scale):
    """Densities of scipy.stats (M11)."""
    q, p = stats.lognorm(scale, scale=np.exp(loc)), stats.expon(scale=1.7)
    integrand = lambda s: q.pdf(s) * (q.logpdf(s) - p.logpdf(s))
    ends = q.ppf([1e-14, 1 - 1e-14])
    expected, _ = integrate.quad(integrand, *ends, limit=400, points=[q.median()])
    posterior = LogNormal(jnp.array(loc), jnp.log(jnp.array(scale)))
    actual = Exponential(1.7).kl(posterior)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_exponential_kl_agrees_with_draws(getkey):
    """ln q - ln p at draws of q, densities of scipy.stats (M11)."""
    log_s = 0.3 + 0.5 * np.asarray(jr.normal(getkey(), (200_000,)))
    draws = np.exp(log_s)
    q, p = stats.lognorm(0.5, scale=np.exp(0.3)), stats.expon(scale=0.6)
    values = q.logpdf(draws) - p.logpdf(draws)
    posterior = LogNormal(jnp.array(0.3), jnp.log(jnp.array(0.5)))
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - Exponential(0.6).kl(posterior)) < 5 * error


def test_density_of_the_logarithm_of_an_exponential_scale():
    """(M11): scipy's density of s times s; and it has mass 1."""
    prior, law = Exponential(2.0), stats.expon(scale=2.0)
    log_s = jnp.linspace(-8, 4, 40)
    expected = law.logpdf(np.exp(log_s)) + log_s
    np.testing.assert_allclose(prior.log_density(log_s), expected, rtol=1e-9)
    density = lambda v: float(jnp.exp(prior.log_density(jnp.asarray(v))))
    mass, _ = integrate.quad(density, -40, 40, limit=200, points=[0.0])
    assert mass == pytest.approx(1, abs=1e-6)


def test_node_priors_have_a_scale_for_each_node_and_none_for_the_layer():
    """Half-Cauchy (M1) or exponential (M11), starting where asked."""
    priors = {
        NodeHalfCauchy(node_scale=2.0): HalfCauchy(2.0),
        NodeExponential(node_scale=0.5): Exponential(0.5),
    }
    for prior, expected in priors.items():
        (name, scale), *rest = prior.scales(3, start=0.4).items()
        assert (name, rest) == ("tau", [])
        assert scale.prior == expected
        np.testing.assert_allclose(np.exp(scale.q.loc), np.full(3, 0.4), rtol=1e-12)
        assert prior.output_prior() == Gaussian(scale=5.0)
        assert prior.separate_output_prior() == Outputs(scale=5.0)
        with pytest.raises(ValueError, match="`node_scale` must be positive"):
            type(prior)(node_scale=0.0)


def layer_of(prior):
    return Layer.create(3, 4, prior, MeanField(), key=jr.key(3))


def test_batch_scales_are_those_of_the_prior_inside(getkey):
    """The same q, KL terms and parametrisation; output layers too (M5)."""
    inside = Horseshoe(parametrisation="centred")
    prior = BatchScales(prior=inside)
    one, other = layer_of(prior), layer_of(inside)
    key = getkey()
    assert one.kl(key=key) == other.kl(key=key)
    assert one.parametrisation == other.parametrisation
    assert prior.output_prior() == BatchScales(prior=inside.output_prior())
    outputs = BatchScales(prior=inside.separate_output_prior())
    assert prior.separate_output_prior() == outputs


def test_one_draw_of_the_scales_for_a_batch_is_shared_by_its_rows(getkey):
    """The noise stays that of each row; otherwise the scales do too (M6)."""
    x = jnp.tile(X[:, None], (1, 5))
    for prior, distinct in ((BatchScales(prior=Horseshoe()), 1), (Horseshoe(), 5)):
        f = layer_of(prior).conditional(x, jnp.arange(5), key=getkey())
        factor = np.asarray(jnp.broadcast_to(f.factor, f.noise.shape))
        assert {len(np.unique(row)) for row in factor} == {distinct}
        assert len(np.unique(np.asarray(f.noise))) == f.noise.size


def test_scales_drawn_for_a_batch_have_the_same_distribution_in_each_row(getkey):
    """Of the second row of a batch, which uses the noise of the first (M6)."""
    x, means = jnp.tile(X[:, None], (1, 2)), []
    for prior in (BatchScales(prior=Horseshoe()), Horseshoe()):
        layer = layer_of(prior)
        one = lambda key, layer=layer: layer.conditional(x, jnp.arange(2), key=key)
        draws = jax.vmap(lambda key, one=one: one(key).draw()[:, 1])
        values = np.asarray(jax.jit(draws)(jr.split(getkey(), 40_000)))
        means.append((values.mean(0), values.std(0) / np.sqrt(40_000)))
    (batch, error), (row, other) = means
    assert (abs(batch - row) < 5 * np.hypot(error, other)).all()
