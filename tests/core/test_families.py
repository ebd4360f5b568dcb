"""Variational factors: every closed form against draws, quadrature and scipy.stats."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from auxiliary_scales import InverseGamma, squared
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from farrier.core.families import Conditional, Gamma, LogNormal, Normal

DRAWS = 40_000


def normal(loc, scale, family=Normal):
    return family(jnp.array(loc), jnp.log(jnp.array(scale)))


def log_normal(loc, scale):
    return normal(loc, scale, family=LogNormal)


def gamma(shape, rate):
    return Gamma(jnp.array(shape), jnp.log(jnp.array(rate)))


def inverse_gamma(shape, rate):
    return InverseGamma(jnp.array(shape), jnp.array(rate))


# The same law by scipy.stats, and the parameters it is tried with.
SCIPY = {
    normal: stats.norm,
    log_normal: lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)),
    gamma: lambda shape, rate: stats.gamma(shape, scale=1 / rate),
    inverse_gamma: lambda shape, rate: stats.invgamma(shape, scale=rate),
}
PARAMETERS = {
    normal: [(-0.7, 0.4), (2.0, 3.0)],
    log_normal: [(0.3, 0.4), (-2.0, 0.7)],
    gamma: [(3.5, 2.0), (0.8, 0.1)],
    inverse_gamma: [(3.5, 2.0), (1.0, 0.3)],
}
LAWS = [
    pytest.param(family, parameters, id=f"{family.__name__}{parameters}")
    for family in PARAMETERS
    for parameters in PARAMETERS[family]
]


def minus_log_density(law, x):
    return -law.logpdf(x)


def log_ratio(law, x):
    return law.logpdf(x) - stats.gamma(6.0, scale=1 / 5.0).logpdf(x)


def expected_log_density(q):
    rate = jnp.array(1.7)
    return q.expected_log_density(0.5, rate, jnp.log(rate))


# Label, family, closed form, and what the closed form is the expectation of.
FORMS = [
    ("F1", normal, lambda q: q.entropy(), minus_log_density),
    ("F2", normal, lambda q: q.second_moment(), lambda _, x: x**2),
    ("M3", log_normal, lambda q: q.moment(-2.0), lambda _, x: x**-2),
    ("M3", log_normal, lambda q: q.moment(0.5), lambda _, x: x**0.5),
    ("M3", log_normal, lambda q: q.moment(1.0), lambda _, x: x),
    ("F3", log_normal, lambda q: q.entropy(), minus_log_density),
    ("F4", gamma, lambda q: q.mean(), lambda _, x: x),
    ("F5", gamma, lambda q: q.expected_log(), lambda _, x: np.log(x)),
    ("F6", gamma, lambda q: q.entropy(), minus_log_density),
    ("F7", gamma, lambda q: q.kl_to(6.0, 5.0), log_ratio),
    ("F8", inverse_gamma, lambda q: q.mean_inverse(), lambda _, x: 1 / x),
    ("F9", inverse_gamma, lambda q: q.expected_log(), lambda _, x: np.log(x)),
    ("F10", inverse_gamma, lambda q: q.entropy(), minus_log_density),
    (
        "F11",
        inverse_gamma,
        expected_log_density,
        lambda _, x: stats.invgamma(0.5, scale=1.7).logpdf(x),
    ),
]
CASES = [
    pytest.param(family, parameters, form, integrand, id=f"{label}-{parameters}")
    for label, family, form, integrand in FORMS
    for parameters in PARAMETERS[family]
]


def many(q, *, key):
    """Independent draws of the factor."""
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (DRAWS,)), q)
    if isinstance(q, Normal):
        draws = copies.at(jr.normal(key, (DRAWS,)))
    elif isinstance(q, LogNormal):
        draws = jnp.exp(q.log_at(jr.normal(key, (1, DRAWS))))[0]
    else:
        draws = copies.sample(key=key)
    return np.asarray(draws)


def expectation(integrand, law):
    """By quadrature over x = +-exp(t), so that no singularity stands at 0."""

    def over_log(t, sign):
        x = sign * np.exp(t)
        weight = law.pdf(x) * np.exp(t)
        return weight * integrand(law, x) if weight > 0 else 0.0

    return sum(
        integrate.quad(over_log, *part, args=(sign,), limit=200)[0]
        for sign in (-1, 1)
        for part in ((-60, -5), (-5, 0), (0, 5), (5, 60))
    )


@pytest.mark.parametrize(("family", "parameters", "form", "integrand"), CASES)
def test_closed_form_agrees_with_draws(getkey, family, parameters, form, integrand):
    """(M3), (F1), (F2), (F3), (F4), (F5), (F6), (F7), (F8), (F9), (F10), (F11)."""
    q, law = family(*parameters), SCIPY[family](*parameters)
    values = integrand(law, many(q, key=getkey()))
    standard_error = values.std() / np.sqrt(DRAWS)
    assert abs(values.mean() - form(q)) < 5 * standard_error


@pytest.mark.parametrize(("family", "parameters", "form", "integrand"), CASES)
def test_closed_form_agrees_with_quadrature(family, parameters, form, integrand):
    """(M3), (F1), (F2), (F3), (F4), (F5), (F6), (F7), (F8), (F9), (F10), (F11)."""
    q, law = family(*parameters), SCIPY[family](*parameters)
    np.testing.assert_allclose(form(q), expectation(integrand, law), rtol=1e-7)


@pytest.mark.parametrize(("family", "parameters"), LAWS)
def test_draws_and_entropy_are_those_of_scipy(getkey, family, parameters):
    """(F1), (F3), (F6), (F10); the draws pass a Kolmogorov-Smirnov test."""
    q, law = family(*parameters), SCIPY[family](*parameters)
    np.testing.assert_allclose(q.entropy(), law.entropy(), rtol=1e-9)
    assert stats.kstest(many(q, key=getkey()), law.cdf).pvalue > 1e-6


def test_moment_special_cases_by_hand():
    """E[s^0] = 1, and the second moment over the squared mean is exp(scale^2) (M3)."""
    q = log_normal(0.3, 0.4)
    np.testing.assert_allclose(q.moment(0.0), 1.0)
    np.testing.assert_allclose(q.moment(2.0) / q.moment(1.0) ** 2, np.exp(0.4**2))


def test_square_of_a_log_normal_is_the_law_of_its_square():
    """Moments of s^2 (M3) and its entropy H[s] + E ln |ds^2 / ds| (F3)."""
    q = log_normal(-0.4, 0.7)
    np.testing.assert_allclose(squared(q).moment(-1.5), q.moment(-3.0), rtol=1e-12)
    oracle = stats.lognorm(1.4, scale=np.exp(-0.8))
    np.testing.assert_allclose(squared(q).entropy(), oracle.entropy(), rtol=1e-12)


def test_log_normal_at_given_noise_has_a_column_for_each_row_of_the_table():
    """ln s = loc + scale z, node by node (M3)."""
    q = LogNormal(jnp.array([0.5, -1.0]), jnp.log(jnp.array([0.1, 2.0])))
    noise = jnp.array([[0.0, -2.0, 1.0], [1.0, 0.0, 1.0]])
    expected = [[0.5, 0.3, 0.6], [1.0, -1.0, 1.0]]
    np.testing.assert_allclose(q.log_at(noise), expected, rtol=1e-12)


def test_inverse_gamma_expected_log_density_with_a_random_rate(getkey):
    """Only E[rate] and E[ln rate] enter when the rate is random too (F11)."""
    q = inverse_gamma(3.5, 2.0)
    rate = stats.gamma(4.0, scale=0.5)
    x = many(q, key=getkey())
    rates = rate.ppf(np.asarray(jr.uniform(getkey(), (DRAWS,))))
    values = stats.invgamma(1.5, scale=rates).logpdf(x)
    log_rate = special.digamma(4.0) + np.log(0.5)
    closed = q.expected_log_density(1.5, jnp.array(rate.mean()), jnp.array(log_rate))
    assert abs(values.mean() - closed) < 5 * values.std() / np.sqrt(DRAWS)


def test_inverse_gamma_is_the_law_of_the_inverse_of_a_gamma():
    """(F8), (F9), (F10) from (F4), (F5), (F6): H[1 / x] = H[x] - 2 E ln x."""
    x, inverse = gamma(3.5, 2.0), inverse_gamma(3.5, 2.0)
    np.testing.assert_allclose(inverse.mean_inverse(), x.mean(), rtol=1e-12)
    np.testing.assert_allclose(inverse.expected_log(), -x.expected_log(), rtol=1e-12)
    entropy = x.entropy() - 2 * x.expected_log()
    np.testing.assert_allclose(inverse.entropy(), entropy, rtol=1e-12)


positive = st.floats(0.01, 100.0)


@settings(deadline=None, derandomize=True)
@given(positive, positive, positive, positive)
def test_gamma_kl_is_never_negative_and_zero_at_the_prior(a, b, prior_a, prior_b):
    """A property of (F7), up to rounding of its largest term."""
    rounding = 1e-11 * (1 + prior_a + prior_b * a / b)
    assert gamma(a, b).kl_to(prior_a, prior_b) >= -rounding
    assert abs(gamma(a, b).kl_to(a, b)) < 1e-11 * (1 + a)


def test_no_gradient_flows_through_the_shape_of_a_gamma():
    """The shape is known beforehand (M8); d KL / d ln rate = a0 - b0 a / b (F7)."""
    grads = eqx.filter_grad(lambda q: q.kl_to(6.0, 5.0))(gamma(3.5, 2.0))
    assert grads.fixed_shape == 0
    np.testing.assert_allclose(grads.log_rate, 6.0 - 5.0 * 3.5 / 2.0, rtol=1e-12)


def test_conditional_draw_is_its_mean_plus_its_sd_times_the_noise():
    """By hand; the variance is a variance (M6)."""
    parts = ([[2.0, 1.0]], [[1.0, -2.0]], [[4.0, 9.0]], [[0.5, -1.0]])
    f = Conditional(*(jnp.array(part) for part in parts))
    np.testing.assert_array_equal(f.mean, [[2.0, -2.0]])
    np.testing.assert_array_equal(f.variance, [[16.0, 9.0]])
    np.testing.assert_array_equal(f.draw(), [[4.0, -5.0]])


def test_expectation_by_quadrature():
    """(G1) against the closed moment (M3), and exactly for a polynomial of ln s."""
    q = LogNormal(jnp.array([0.3, -2.0]), jnp.log(jnp.array([0.8, 0.1])))
    np.testing.assert_allclose(q.expected(jnp.exp), q.moment(1), rtol=1e-10)
    cube = lambda log_s: log_s**3
    exact = q.loc**3 + 3 * q.loc * q.scale**2
    np.testing.assert_allclose(q.expected(cube), exact, rtol=1e-12)
