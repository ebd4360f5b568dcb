"""Half-Cauchy scales: the identity, the two forms of the bound, the fixed point."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from auxiliary_scales import (
    AuxiliaryHalfCauchy,
    InverseGamma,
    half_cauchy_sample,
    optimal_rate,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from farrier.core.families import LogNormal
from farrier.core.scales import (
    ExactHalfCauchy,
    HalfCauchy,
    Scale,
    expected_softplus,
)

DRAWS = 40_000
# loc and scale of q(ln tau), and b: about the prior, far below it, far above it, wide.
CASES = [(0.2, 0.4, 1.0), (-3.0, 0.6, 1.0), (2.0, 0.5, 0.5), (0.5, 1.5, 5.0)]
every_case = pytest.mark.parametrize(("loc", "scale", "b"), CASES)


def log_normal(loc, scale):
    return LogNormal(jnp.array(loc), jnp.log(jnp.array(scale)))


def best_rate(loc, scale, b):
    """E[1 / tau^2] + 1 / b^2, with the moment of the normal by hand."""
    return np.exp(-2 * loc + 2 * scale**2) + 1 / b**2


def auxiliary(loc, scale, b, *, factor=1.0):
    """The form with q(lam) = IG(1, d), d off its optimum by `factor`."""
    return AuxiliaryHalfCauchy(b, jnp.array(factor * best_rate(loc, scale, b)))


def log_joint_ratio(tau_sq, lam, *, loc, scale, b, rate):
    """ln q(tau^2) q(lam) / p(tau^2 | lam) p(lam), with densities of scipy.stats."""
    q_tau_sq = stats.lognorm(2 * scale, scale=np.exp(2 * loc))
    q = q_tau_sq.logpdf(tau_sq) + stats.invgamma(1, scale=rate).logpdf(lam)
    p_tau_sq = stats.invgamma(0.5, scale=1 / lam).logpdf(tau_sq)
    return q - p_tau_sq - stats.invgamma(0.5, scale=b**-2).logpdf(lam)


def joint_kl_by_quadrature(loc, scale, b, rate):
    """E ln q / p over the plane of z = (ln tau - loc) / scale and t = ln(lam / d).

    The trapezoidal rule is exact to rounding for such smooth integrands.
    """
    z, t = np.linspace(-9, 9, 181)[:, None], np.linspace(-5, 40, 901)[None]
    tau_sq, lam = np.exp(2 * (loc + scale * z)), rate * np.exp(t)
    density = stats.norm.pdf(z) * np.exp(-np.exp(-t) - t)  # of z and of t
    ratio = log_joint_ratio(tau_sq, lam, loc=loc, scale=scale, b=b, rate=rate)
    cell = (z[1, 0] - z[0, 0]) * (t[0, 1] - t[0, 0])
    return (density * ratio).sum() * cell


def exact_kl_by_quadrature(loc, scale, b):
    """KL(q(tau) || C+(0, b)), without any auxiliary variable."""
    q, p = stats.lognorm(scale, scale=np.exp(loc)), stats.halfcauchy(scale=b)

    def integrand(z):
        tau = np.exp(loc + scale * z)
        return stats.norm.pdf(z) * (q.logpdf(tau) - p.logpdf(tau))

    return integrate.quad(integrand, -12, 12, epsabs=1e-12)[0]


@pytest.mark.parametrize("b", [0.1, 1.0, 5.0])
def test_half_cauchy_identity_needs_the_square(getkey, b):
    """The root of the inverse-gamma draw is half-Cauchy; the draw is not (M2)."""
    half = jnp.full(DRAWS, 0.5)
    lam = InverseGamma(half, jnp.full(DRAWS, b**-2)).sample(key=getkey())
    tau_sq = np.asarray(InverseGamma(half, 1 / lam).sample(key=getkey()))
    half_cauchy = stats.halfcauchy(scale=b)
    assert stats.kstest(np.sqrt(tau_sq), half_cauchy.cdf).pvalue > 1e-6
    assert stats.kstest(tau_sq, half_cauchy.cdf).pvalue < 1e-12


@pytest.mark.parametrize("b", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.95])
def test_half_cauchy_density_by_quadrature_over_lam(b, quantile):
    """p(tau) = 2 tau int p(tau^2 | lam) p(lam) dlam (M2)."""
    half_cauchy = stats.halfcauchy(scale=b)
    tau = half_cauchy.ppf(quantile)

    def over_log_lam(t):
        lam = np.exp(t)
        prior = stats.invgamma.pdf(lam, 0.5, scale=b**-2)
        return lam * prior * 2 * tau * stats.invgamma.pdf(tau**2, 0.5, scale=1 / lam)

    density = integrate.quad(over_log_lam, -40, 40, limit=200)[0]
    np.testing.assert_allclose(density, half_cauchy.pdf(tau), rtol=1e-7)


def test_half_cauchy_sample_has_the_median_b(getkey):
    """Half the draws of C+(0, b) are below b (M2)."""
    draws = np.asarray(half_cauchy_sample(3.0, (DRAWS,), key=getkey()))
    assert abs((draws < 3.0).mean() - 0.5) < 5 * 0.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("b", [0.1, 1.0, 5.0])
def test_prior_draws_of_tau_are_half_cauchy(getkey, b):
    """A Kolmogorov-Smirnov test; the logarithm of the scale is no such scale (M2)."""
    tau = np.asarray(half_cauchy_sample(b, (DRAWS,), key=getkey()))
    half_cauchy = stats.halfcauchy(scale=b)
    assert stats.kstest(tau, half_cauchy.cdf).pvalue > 1e-6
    # A public code multiplies the weights by ln tau.
    assert stats.kstest(np.log(tau), half_cauchy.cdf).pvalue < 1e-12
    assert stats.kstest(np.abs(np.log(tau)), half_cauchy.cdf).pvalue < 1e-12


@every_case
def test_collapsed_kl_agrees_with_quadrature_of_the_joint(loc, scale, b):
    """With q(lam) at its optimum, all digamma terms gone (M5)."""
    expected = joint_kl_by_quadrature(loc, scale, b, best_rate(loc, scale, b))
    actual = HalfCauchy(b).kl(log_normal(loc, scale))
    np.testing.assert_allclose(actual, expected, rtol=1e-7)


@every_case
@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_explicit_kl_agrees_with_quadrature_of_the_joint(loc, scale, b, factor):
    """For any rate of q(lam), the best one or not (M9)."""
    prior = auxiliary(loc, scale, b, factor=factor)
    expected = joint_kl_by_quadrature(loc, scale, b, float(prior.rate))
    np.testing.assert_allclose(prior.kl(log_normal(loc, scale)), expected, rtol=1e-7)


@every_case
def test_both_forms_agree_with_draws_of_the_joint(getkey, loc, scale, b):
    """tau from its q, lam from IG(1, d), densities of scipy.stats (M5), (M9)."""
    q, rate = log_normal(loc, scale), best_rate(loc, scale, b)
    lam = InverseGamma(jnp.ones(DRAWS), jnp.full(DRAWS, rate)).sample(key=getkey())
    tau = jnp.exp(q.log_at(jr.normal(getkey(), (1, DRAWS))))[0]
    tau_sq, lam = np.asarray(tau) ** 2, np.asarray(lam)
    values = log_joint_ratio(tau_sq, lam, loc=loc, scale=scale, b=b, rate=rate)
    standard_error = values.std() / np.sqrt(DRAWS)
    assert abs(values.mean() - HalfCauchy(b).kl(q)) < 5 * standard_error
    assert abs(values.mean() - auxiliary(loc, scale, b).kl(q)) < 5 * standard_error


@every_case
def test_collapsed_kl_exceeds_the_exact_one_by_the_slack_of_jensen(loc, scale, b):
    """ln E[1/tau^2 + 1/b^2] - E ln(1/tau^2 + 1/b^2) is all that is lost (M5)."""
    exact = exact_kl_by_quadrature(loc, scale, b)

    def expected_log(z):
        tau = np.exp(loc + scale * z)
        return stats.norm.pdf(z) * np.log(tau**-2 + b**-2)

    expected_log = integrate.quad(expected_log, -12, 12, epsabs=1e-12)[0]
    slack = np.log(best_rate(loc, scale, b)) - expected_log
    kl = HalfCauchy(b).kl(log_normal(loc, scale))
    assert kl >= exact >= 0
    np.testing.assert_allclose(kl - exact, slack, rtol=1e-7, atol=1e-10)


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.floats(-300, 300), st.floats(1e-4, 8), st.floats(1e-3, 1e3))
def test_kl_is_never_negative(loc, scale, b):
    """Nor is it below the exact divergence, hence never below 0 (M5)."""
    kl = HalfCauchy(b).kl(log_normal(loc, scale))
    assert kl >= max(exact_kl_by_quadrature(loc, scale, b), 0) - 1e-9


def test_kl_where_the_moment_overflows():
    """E[1/tau^2] = exp(1002) is no float; its logarithm is all that is needed (M5)."""
    kl = HalfCauchy(2.0).kl(log_normal(-500.0, 1.0))
    by_hand = np.log(2 * np.pi) + 1002 - 500 - 0.5 * np.log(8 * np.pi * np.e)
    np.testing.assert_allclose(kl, by_hand, rtol=1e-12)


@every_case
def test_best_rate_is_the_fixed_point(loc, scale, b):
    """`updated` moves any rate to d = E[1/tau^2] + 1/b^2, and stays there (M4)."""
    q = log_normal(loc, scale)
    expected = best_rate(loc, scale, b)
    np.testing.assert_allclose(optimal_rate(q, b), expected, rtol=1e-12)
    moved = auxiliary(loc, scale, b, factor=7.0).updated(q)
    np.testing.assert_allclose(moved.rate, expected, rtol=1e-12)
    assert moved.updated(q).rate == moved.rate


@every_case
def test_bound_is_highest_and_collapsed_at_the_best_rate(loc, scale, b):
    """At the rate of (M4), (M9) is (M5); on either side of it the bound is lower."""
    q = log_normal(loc, scale)
    kl_at = lambda factor: float(auxiliary(loc, scale, b, factor=factor).kl(q))
    collapsed = HalfCauchy(b).kl(q)
    np.testing.assert_allclose(kl_at(1.0), collapsed, rtol=1e-12)
    for step in (1e-3, 0.1, 0.9):
        assert min(kl_at(1 - step), kl_at(1 + step)) > collapsed
    # Stationary: to second order in the step, the loss is step^2 / 2.
    np.testing.assert_allclose(kl_at(1 + 1e-3) - collapsed, 0.5e-6, rtol=1e-2)


@every_case
def test_both_forms_have_the_same_gradient(loc, scale, b):
    """(M5) against (M9) with its rate held at the optimum, and finite differences."""
    q = log_normal(loc, scale)
    collapsed = jax.grad(lambda q: HalfCauchy(b).kl(q))(q)
    held = jax.grad(lambda q: auxiliary(loc, scale, b).kl(q))(q)
    through_update = jax.grad(lambda q: auxiliary(loc, scale, b).updated(q).kl(q))(q)
    step = 1e-5
    for field in ("loc", "log_scale"):
        where = lambda tree, field=field: getattr(tree, field)
        kl_at = lambda shift, where=where: HalfCauchy(b).kl(
            eqx.tree_at(where, q, where(q) + shift)
        )
        difference = (kl_at(step) - kl_at(-step)) / (2 * step)
        np.testing.assert_allclose(where(collapsed), difference, rtol=1e-6)
        np.testing.assert_allclose(where(held), where(collapsed), rtol=1e-9)
        np.testing.assert_allclose(where(through_update), where(held), rtol=1e-12)


def test_no_gradient_flows_through_the_rate():
    """It moves by `updated` alone (M4), (M9)."""
    prior = auxiliary(0.2, 0.4, 1.0, factor=2.0)
    grads = eqx.filter_grad(lambda prior: prior.kl(log_normal(0.2, 0.4)))(prior)
    assert grads.rate == 0


@pytest.mark.parametrize("shape", [(), (3,)])
def test_scale_starts_where_asked_and_sums_over_its_nodes(shape):
    """Median `start`, sd of the logarithm `sd`, one KL for each entry (M5)."""
    scale = Scale.create(HalfCauchy(2.0), shape, start=0.5, sd=0.2)
    np.testing.assert_allclose(scale.q.loc, np.full(shape, np.log(0.5)), rtol=1e-12)
    np.testing.assert_allclose(scale.q.scale, np.full(shape, 0.2), rtol=1e-12)
    assert scale.is_shared == (shape == ())
    rate = best_rate(np.log(0.5), 0.2, 2.0)
    one = joint_kl_by_quadrature(np.log(0.5), 0.2, 2.0, rate)
    np.testing.assert_allclose(scale.kl(), np.prod(shape) * one, rtol=1e-7)


def test_an_updated_scale_has_a_lower_kl():
    """The move of the auxiliary variable is never downhill for the bound (M4)."""
    q = Scale.create(HalfCauchy(1.0), (3,)).q
    q = eqx.tree_at(lambda q: q.loc, q, jnp.array([-2.0, 0.0, 2.0]))
    prior = AuxiliaryHalfCauchy(1.0, jnp.ones(3))
    assert prior.updated(q).kl(q).sum() < prior.kl(q).sum()
    collapsed = HalfCauchy(1.0).kl(q)
    np.testing.assert_allclose(prior.updated(q).kl(q), collapsed, rtol=1e-12)


def test_a_part_of_a_scale_keeps_the_entries_of_its_nodes():
    """An entry for each node is taken by a mask; a shared one stays, in NumPy too."""
    mask = np.array([True, False, True])
    scale = Scale.create(HalfCauchy(1.0), (3,))
    scale = eqx.tree_at(lambda s: s.q.loc, scale, jnp.arange(3.0))
    host = jax.tree.map(lambda v: np.asarray(v) if eqx.is_array(v) else v, scale)
    for each in (scale, host):
        part = each.take(mask)
        np.testing.assert_array_equal(part.q.loc, [0.0, 2.0])
        assert part.q.log_scale.shape == (2,)
        assert type(part.q.loc) is type(part.q.log_scale) is type(each.q.loc)
    shared = Scale.create(HalfCauchy(1.0), ())
    assert shared.take(mask) is shared


def test_fixed_entries_of_a_scale_have_no_gradient():
    """The others have theirs, and values stay the same (M5)."""
    scale = Scale.create(HalfCauchy(1.0), (3,))
    fixed = jnp.array([False, True, False])
    kl, plain = (
        eqx.filter_value_and_grad(f)(scale)
        for f in (lambda s: s.with_fixed(fixed).kl(), lambda s: s.kl())
    )
    assert kl[0] == plain[0]
    for field in ("loc", "log_scale"):
        found, expected = getattr(kl[1].q, field), getattr(plain[1].q, field)
        np.testing.assert_array_equal(found, np.where(fixed, 0, expected))
        assert (expected != 0).all()
    shared = Scale.create(HalfCauchy(1.0), ())
    assert shared.with_fixed(fixed) is shared


@pytest.mark.parametrize(
    ("prior", "law"),
    [
        (HalfCauchy(0.5), stats.halfcauchy(scale=0.5)),
        (ExactHalfCauchy(5.0), stats.halfcauchy(scale=5.0)),
    ],
    ids=["collapsed", "exact"],
)
def test_density_of_the_logarithm_of_a_scale(prior, law):
    """(M12): scipy's density of s times s; and it has mass 1."""
    log_s = jnp.linspace(-8, 6, 40)
    expected = law.logpdf(np.exp(log_s)) + log_s
    np.testing.assert_allclose(prior.log_density(log_s), expected, rtol=1e-9)
    density = lambda v: float(jnp.exp(prior.log_density(jnp.asarray(v))))
    mass, _ = integrate.quad(density, -40, 40, limit=200, points=[0.0])
    assert mass == pytest.approx(1, abs=1e-6)


# A posterior of ln s as wide as it gets, on both sides of the prior.
WIDE = [(-9.0, 4.0, 1.0), (1.0, 10.0, 0.01), (30.0, 20.0, 5.0)]


@pytest.mark.parametrize(("loc", "scale", "b"), CASES + WIDE)
def test_exact_kl_is_the_divergence_itself(loc, scale, b):
    """(G2) against an adaptive quadrature of the log densities, however wide q is."""
    log_p = lambda v: np.log(2 / (np.pi * b)) - np.logaddexp(0, 2 * (v - np.log(b)))

    def integrand(z):
        log_s = loc + scale * z
        log_q = stats.norm.logpdf(z) - np.log(scale) - log_s
        return stats.norm.pdf(z) * (log_q - log_p(log_s))

    kink = (np.log(b) - loc) / scale
    expected, _ = integrate.quad(
        integrand, -12, 12, epsabs=1e-12, limit=400, points=[kink]
    )
    found = ExactHalfCauchy(b).kl(log_normal(loc, scale))
    np.testing.assert_allclose(found, expected, atol=2e-8)
    with jax.enable_x64(new_val=False):
        q32 = LogNormal(jnp.float32(loc), jnp.float32(np.log(scale)))
        np.testing.assert_allclose(ExactHalfCauchy(b).kl(q32), found, rtol=2e-6)


@pytest.mark.parametrize(("loc", "scale", "b"), CASES + WIDE)
def test_exact_kl_agrees_with_draws(loc, scale, b):
    """(G2) against the mean of ln q / p over draws of q."""
    q, p = stats.lognorm(scale, scale=np.exp(loc)), stats.halfcauchy(scale=b)
    s = q.rvs(DRAWS, random_state=np.random.default_rng(0))
    ratio = q.logpdf(s) - p.logpdf(s)
    error = ratio.std() / np.sqrt(DRAWS)
    found = ExactHalfCauchy(b).kl(log_normal(loc, scale))
    assert abs(ratio.mean() - found) < 5 * error


@settings(deadline=None, max_examples=50)
@given(st.floats(-300, 300), st.floats(1e-3, 20), st.floats(1e-3, 1e3))
def test_exact_kl_is_between_zero_and_the_collapsed_one(loc, scale, b):
    """The Jensen gap of (M5) is what (G2) saves."""
    q = log_normal(loc, scale)
    exact, collapsed = ExactHalfCauchy(b).kl(q), HalfCauchy(b).kl(q)
    assert -1e-7 < exact <= collapsed + 1e-7


def test_what_an_unused_scale_costs_by_the_exact_form():
    """0.021 nats at loc = ln b and scale 1.461, as docs/math.md says of (G2)."""
    prior = ExactHalfCauchy(2.0)
    assert float(prior.kl(log_normal(np.log(2.0), 1.461))) == pytest.approx(
        0.021, abs=5e-4
    )


def test_logistic_distribution_is_a_mixture_of_eight_normals():
    """At sd 0, (G5) is softplus within 8.2e-9, its slope the logistic within 2.2e-9."""
    line = jnp.linspace(-80, 80, 32_001)
    softplus = jax.value_and_grad(lambda z: expected_softplus(z, jnp.zeros(())))
    value, slope = jax.jit(jax.vmap(softplus))(line)
    assert 5e-9 < abs(value - np.logaddexp(0, line)).max() < 8.2e-9
    assert 1e-9 < abs(slope - special.expit(line)).max() < 2.2e-9


def softplus_by_quadrature(mean, sd):
    """E softplus(z) = E max(z, 0) + E ln(1 + exp(-|z|)), the second part by scipy."""
    part = mean * stats.norm.cdf(mean / sd) + sd * stats.norm.pdf(mean / sd)
    low, high = max(-40, mean - 12 * sd), min(40, mean + 12 * sd)
    if low >= high:
        return part
    rest = integrate.quad(
        lambda z: np.log1p(np.exp(-abs(z))) * stats.norm.pdf(z, mean, sd),
        *(low, high),
        points=[p for p in (0, mean) if low < p < high],
        epsabs=1e-13,
        limit=400,
    )
    return part + rest[0]


@pytest.mark.parametrize("sd", [1e-3, 0.1, 1.0, 4.0, 6.0, 20.0])
def test_expected_softplus_agrees_with_quadrature_and_draws(getkey, sd):
    """(G5); at sd 20 a Gauss-Hermite rule of 24 points is off by 0.12."""
    means = jnp.array([-60.0, -20.0, -3.0, -0.1, 0.0, 1.0, 8.0, 60.0])
    found = expected_softplus(means, jnp.full_like(means, sd))
    expected = [softplus_by_quadrature(float(mean), sd) for mean in means]
    np.testing.assert_allclose(found, expected, atol=8.3e-9)
    z = means[:, None] + sd * jr.normal(getkey(), (1, DRAWS))
    values = np.logaddexp(0, np.asarray(z))
    error = values.std(1) / np.sqrt(DRAWS)
    assert (abs(values.mean(1) - found) < 5 * error + 1e-8).all()


def test_gradients_of_the_expected_softplus():
    """d / d mean = E sigmoid(z), d / d sd = sd E sigmoid'(z), by quadrature (G5)."""
    gradient = jax.jit(jax.grad(expected_softplus, (0, 1)))
    for mean, sd in [(0.0, 1.0), (-3.0, 0.1), (5.0, 8.0), (0.0, 1e-3)]:
        normal = stats.norm(mean, sd)
        over = lambda f, mean=mean, sd=sd, normal=normal: integrate.quad(
            lambda z: f(special.expit(z)) * normal.pdf(z),
            *(mean - 10 * sd, mean + 10 * sd),
            points=[mean],
            limit=400,
        )
        slopes = gradient(jnp.array(mean), jnp.array(sd))
        np.testing.assert_allclose(slopes[0], over(lambda p: p)[0], atol=1e-8)
        curve = sd * over(lambda p: p * (1 - p))[0]
        np.testing.assert_allclose(slopes[1], curve, atol=1e-8)


def test_expected_softplus_in_single_precision():
    """Values and gradients are finite and those of double precision (G5)."""
    grid = np.meshgrid(np.linspace(-60, 60, 241), np.geomspace(1e-3, 20, 31))
    mean, sd = (values.ravel() for values in grid)

    both = jax.jit(jax.vmap(jax.value_and_grad(expected_softplus, (0, 1))))
    double = both(jnp.asarray(mean), jnp.asarray(sd))
    with jax.enable_x64(new_val=False):
        single = both(jnp.float32(mean), jnp.float32(sd))
    for values, exact in zip(*map(jax.tree.leaves, (single, double)), strict=True):
        assert values.dtype == jnp.float32
        np.testing.assert_allclose(values, exact, rtol=1e-6, atol=1e-6)
