"""Parametrisations: KL terms, multipliers, the prior of what MCMC samples."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from test_weights import D_IN, DRAWS, NODES, assert_mean, draw_all, random_weights

from farrier.core.families import LogNormal, Normal
from farrier.core.forms import (
    Centred,
    Mixed,
    NonCentred,
    Regularised,
    kl_to_scaled_normal,
)
from farrier.core.scales import HalfCauchy, Scale
from farrier.core.weights import MeanFieldWeights


def random_scales(*, key):
    """Node scales and a layer scale, away from where they start."""
    key_tau, key_upsilon = jr.split(key)
    tau = Scale.create(HalfCauchy(1.0), (NODES,), start=0.8, sd=0.3)
    upsilon = Scale.create(HalfCauchy(1.0), (), start=1.7, sd=0.2)
    where = lambda scale: scale.q.loc
    return [
        eqx.tree_at(where, tau, 0.5 * jr.normal(key_tau, (NODES,))),
        eqx.tree_at(where, upsilon, 0.5 * jr.normal(key_upsilon)),
    ]


def log_densities(weights, kernel, bias):
    """ln q(w) of each draw, by scipy.stats."""
    total = 0.0
    for q, w in [(weights.kernel, kernel), (weights.bias, bias)]:
        each = stats.norm(np.asarray(q.loc), np.asarray(q.scale)).logpdf(w)
        total = total + each.reshape(len(w), -1).sum(1)
    return total


def prior_log_densities(kernel, bias, sd):
    """ln N(w; 0, sd^2) of each draw, by scipy.stats; one `sd` for each node."""
    kernel_part = stats.norm.logpdf(kernel, scale=sd[..., None]).sum((1, 2))
    return kernel_part + stats.norm.logpdf(bias, scale=sd).sum(1)


def normal_kl(q, sd):
    """KL(N(loc, scale^2) || N(0, sd^2)), the textbook formula."""
    loc, scale = np.asarray(q.loc), np.asarray(q.scale)
    return np.log(sd / scale) + (scale**2 + loc**2) / (2 * sd**2) - 0.5


def mixture_density(w, share, wide, narrow):
    parts = stats.norm.pdf(w, scale=wide), stats.norm.pdf(w, scale=narrow)
    return share * parts[0] + (1 - share) * parts[1]


def made_scale(loc, sd):
    q = LogNormal(jnp.asarray(loc), jnp.log(jnp.full_like(jnp.asarray(loc), sd)))
    return Scale(q, HalfCauchy(1.0))


SLAB = Regularised(2.0)


FORMS = [NonCentred(), Centred(), Regularised(0.8), Mixed(0.3, 1.2, 0.05)]


each_form = pytest.mark.parametrize("form", FORMS, ids=lambda f: type(f).__name__)


def test_non_centred_kl_is_that_of_standard_normals(getkey):
    """Entry by entry, and from draws; the scales do not enter (M7)."""
    weights = random_weights(key=getkey())
    kl = NonCentred().weight_kl(weights, random_scales(key=getkey()), key=getkey())
    by_hand = normal_kl(weights.kernel, 1.0).sum() + normal_kl(weights.bias, 1.0).sum()
    np.testing.assert_allclose(kl, by_hand, rtol=1e-12)
    kernel, bias = draw_all(weights, key=getkey())
    prior = prior_log_densities(kernel, bias, np.ones(NODES))
    assert_mean(log_densities(weights, kernel, bias) - prior, kl)


def test_centred_kl_agrees_with_quadrature_over_the_scales(getkey):
    """Textbook KL for each scale, averaged by Gauss-Hermite over q(ln s) (M7)."""
    weights, scales = random_weights(key=getkey()), random_scales(key=getkey())
    tau, upsilon = (scale.q for scale in scales)
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    masses = masses / masses.sum()
    expected = 0.0
    for z_tau, mass_tau in zip(nodes, masses, strict=True):
        for z_upsilon, mass_upsilon in zip(nodes, masses, strict=True):
            log_sd = tau.loc + tau.scale * z_tau
            log_sd = log_sd + upsilon.loc + upsilon.scale * z_upsilon
            sd = np.exp(np.asarray(log_sd))
            kl = normal_kl(weights.kernel, sd[:, None]).sum()
            kl += normal_kl(weights.bias, sd).sum()
            expected += mass_tau * mass_upsilon * kl
    actual = Centred().weight_kl(weights, scales, key=getkey())
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_centred_kl_agrees_with_draws(getkey):
    """Of the weights and of the scales, with densities of scipy.stats (M7)."""
    weights, scales = random_weights(key=getkey()), random_scales(key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    log_sd = np.zeros((DRAWS, NODES))
    for scale in scales:
        noise = jr.normal(getkey(), (DRAWS, *scale.q.loc.shape))
        log_s = np.asarray(scale.q.loc) + np.asarray(scale.q.scale) * np.asarray(noise)
        log_sd += log_s.reshape(DRAWS, -1)
    prior = prior_log_densities(kernel, bias, np.exp(log_sd))
    values = log_densities(weights, kernel, bias) - prior
    assert_mean(values, Centred().weight_kl(weights, scales, key=getkey()))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 2**31 - 1), st.floats(-5, 5), st.floats(0, 3))
def test_kl_is_never_negative_for_a_possible_scale(seed, loc, spread):
    """E[1/s^2] >= exp(-2 E[ln s]) for any law of s; then (M7) is never negative."""
    weights = random_weights(key=jr.key(seed))
    inverse_variance = jnp.array([np.exp(-2 * loc + 2 * spread**2)])
    assert kl_to_scaled_normal(weights, inverse_variance, jnp.array([loc])) >= 0


@pytest.mark.parametrize("sd", [0.1, 1.0, 7.0])
def test_kl_is_zero_where_q_equals_the_prior(sd):
    """N(0, sd^2) against a scale known to be sd (M7)."""
    q = lambda *shape: Normal(jnp.zeros(shape), jnp.log(jnp.full(shape, sd)))
    weights = MeanFieldWeights(q(NODES, D_IN), q(NODES))
    kl = kl_to_scaled_normal(weights, jnp.array([sd**-2]), jnp.log(jnp.array([sd])))
    np.testing.assert_allclose(kl, 0, atol=1e-12)


def test_what_multiplies_a_draw():
    """The scale where the posterior stands on beta, 1 where it stands on w (M1)."""
    log_scale = jnp.log(jnp.array([[0.5, 2.0]]))
    np.testing.assert_allclose(NonCentred().multiplier(log_scale), [[0.5, 2.0]])
    np.testing.assert_array_equal(Centred().multiplier(log_scale), [[1.0, 1.0]])


def test_mixture_density_agrees_with_scipy_and_integrates_to_one():
    """A wide and a narrow normal (M10)."""
    prior = Mixed(0.3, 1.2, 0.05)
    w = np.linspace(-4, 4, 41)
    expected = np.log(mixture_density(w, 0.3, 1.2, 0.05))
    np.testing.assert_allclose(prior.log_density(jnp.asarray(w)), expected, rtol=1e-9)
    mass, _ = integrate.quad(
        lambda v: np.exp(float(prior.log_density(jnp.asarray(v)))), -9, 9, points=[0]
    )
    np.testing.assert_allclose(mass, 1, rtol=1e-6)


def test_mixture_kl_has_the_mean_that_quadrature_gives(getkey):
    """The draws of -H - ln p(w) are unbiased (M10)."""
    weights, prior = random_weights(key=getkey()), Mixed(0.3, 1.2, 0.05)

    def kl_of(loc, sd):
        q = stats.norm(loc, sd)
        return integrate.quad(
            lambda w: (
                q.pdf(w) * (q.logpdf(w) - np.log(mixture_density(w, 0.3, 1.2, 0.05)))
            ),
            loc - 12 * sd,
            loc + 12 * sd,
            points=[0, loc],
            limit=400,
        )[0]

    expected = sum(
        kl_of(loc, sd)
        for part in (weights.kernel, weights.bias)
        for loc, sd in zip(np.ravel(part.loc), np.ravel(part.scale), strict=True)
    )
    keys = jr.split(getkey(), DRAWS)
    draws = jax.jit(jax.vmap(lambda key: prior.weight_kl(weights, (), key=key)))(keys)
    assert_mean(np.asarray(draws), expected)


def test_mixture_of_two_equal_normals_is_one_normal(getkey):
    """Then the mean of the draws is the closed form (M7), (M10)."""
    weights = random_weights(key=getkey())
    keys = jr.split(getkey(), DRAWS)
    mixed = Mixed(0.5, 1.0, 1.0)
    draws = jax.jit(jax.vmap(lambda key: mixed.weight_kl(weights, (), key=key)))(keys)
    assert_mean(np.asarray(draws), NonCentred().weight_kl(weights, (), key=getkey()))


def test_a_slab_limits_large_scales_and_leaves_small_ones():
    """1 / s~^2 = 1 / s^2 + 1 / c^2 (G3), without overflow."""
    s = np.array([1e-6, 0.5, 3.0, 1e30])
    found = Regularised(2.0).multiplier(jnp.log(s))
    np.testing.assert_allclose(1 / found**2, 1 / s**2 + 1 / 4, rtol=1e-10)


@pytest.mark.parametrize("power", [1, 2])
def test_moments_of_regularised_scales(power):
    """(G4) against draws, against quadrature, and against (M3) for a far slab."""
    scales = [made_scale([0.5, -1.0], 0.6), made_scale(0.2, 0.3)]
    found = Regularised(1.5).moment(scales, 2, power)
    loc, sd = np.array([0.7, -0.8]), np.hypot(0.6, 0.3)
    s = np.exp(loc + sd * np.random.default_rng(0).normal(size=(DRAWS, 2)))
    draws = (s * 1.5 / np.sqrt(1.5**2 + s**2)) ** power
    error = draws.std(0) / np.sqrt(DRAWS)
    assert (abs(draws.mean(0) - found) < 5 * error).all()

    def integrand(z, middle):
        s = np.exp(middle + sd * z)
        return stats.norm.pdf(z) * (1 / s**2 + 1 / 1.5**2) ** (-power / 2)

    exact = [integrate.quad(integrand, -12, 12, args=(m,))[0] for m in loc]
    np.testing.assert_allclose(found, exact, rtol=1e-7)
    far = Regularised(1e6).moment(scales, 2, power)
    np.testing.assert_allclose(far, NonCentred().moment(scales, 2, power), rtol=1e-6)


def test_regularised_weights_pay_what_non_centred_ones_pay(getkey):
    """The slab is a function of the scales: the divergence is that of beta (M7)."""
    weights, key = random_weights(key=getkey()), getkey()
    kls = [form.weight_kl(weights, (), key=key) for form in (NonCentred(), SLAB)]
    assert kls[0] == kls[1]


@each_form
def test_what_mcmc_samples_gives_the_weights_of_the_draw_of_q(getkey, form):
    """beta in all forms with a scale, w under the mixture (M1), (G3), (M10), (H1)."""
    log_scale = jr.normal(getkey(), (NODES,))
    kernel, bias = jr.normal(getkey(), (NODES, D_IN)), jr.normal(getkey(), (NODES,))
    factor = form.sampling_multiplier(log_scale)
    s = np.exp(log_scale)
    expected = {
        "Regularised": s * 0.8 / np.hypot(s, 0.8),
        "Mixed": np.ones(NODES),
    }.get(type(form).__name__, s)
    np.testing.assert_allclose(factor, expected, rtol=1e-12)
    beta, beta_bias = form.standardised(kernel, bias, factor)
    by_q = form.multiplier(log_scale)
    np.testing.assert_allclose(
        factor[:, None] * beta, by_q[:, None] * kernel, rtol=1e-12
    )
    np.testing.assert_allclose(factor * beta_bias, by_q * bias, rtol=1e-12)


@each_form
def test_log_prior_of_what_mcmc_samples(getkey, form):
    """N(0, 1) for beta, the mixture for w, by scipy.stats (M1), (M10)."""
    kernel, bias = jr.normal(getkey(), (NODES, D_IN)), jr.normal(getkey(), (NODES,))
    w = np.append(np.ravel(kernel), bias)
    density = stats.norm.pdf(w)
    if isinstance(form, Mixed):
        density = mixture_density(w, 0.3, 1.2, 0.05)
    expected = np.log(density).sum()
    np.testing.assert_allclose(form.log_prior(kernel, bias), expected, rtol=1e-9)
