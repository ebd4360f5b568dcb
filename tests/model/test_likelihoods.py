"""Likelihoods: expected log densities, noise, predictive distributions."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import generator_of
from scipy import integrate, optimize, special, stats

from farrier.core.families import Conditional, Gamma
from farrier.model.likelihoods import (
    Categorical,
    CategoricalLikelihood,
    GaussianLikelihood,
    GaussianNoise,
    HeteroscedasticLikelihood,
    HeteroscedasticNoise,
    OutputDraws,
)

SHAPES, RATES = np.array([3.5, 8.0]), np.array([2.0, 20.0])  # q(gamma), two targets
PRIOR_SHAPE, PRIOR_RATE = 6.0, 5.0


def gaussian(shapes=SHAPES, rates=RATES):
    q = Gamma(jnp.asarray(shapes), jnp.log(jnp.asarray(rates)))
    return GaussianLikelihood(q, PRIOR_SHAPE, PRIOR_RATE)


def outputs(rows, targets, *, key):
    """A distribution of the network's outputs, and targets."""
    generator = generator_of(key)
    shape = (targets, rows)
    loc, noise, y = (jnp.asarray(generator.standard_normal(shape)) for _ in range(3))
    variance, factor = (
        jnp.asarray(generator.uniform(0.1, 2.0, shape)) for _ in range(2)
    )
    return Conditional(factor, loc, variance, noise), y.T


def quadrature(integrand, *distributions):
    """Expectation of a function of one variable, summed over distributions."""
    return sum(
        integrate.quad(lambda x, q=q: q.pdf(x) * integrand(q, x), 0, np.inf)[0]
        for q in distributions
    )


def test_noise_kl_is_that_of_a_gamma():
    """Gamma against Gamma for each target; inverse-gamma terms give others (F7)."""
    pairs = [*zip(SHAPES, RATES, strict=True)]
    distributions = [stats.gamma(a, scale=1 / b) for a, b in pairs]
    prior = stats.gamma(PRIOR_SHAPE, scale=1 / PRIOR_RATE)
    log_ratio = lambda q, x: q.logpdf(x) - prior.logpdf(x)
    kl = gaussian().kl()["noise/gamma"]
    np.testing.assert_allclose(kl, quadrature(log_ratio, *distributions), rtol=1e-7)
    # Public code takes the prior, or the entropy, of an inverse gamma instead.
    inverse_prior = stats.invgamma(PRIOR_SHAPE, scale=PRIOR_RATE)
    cross = lambda q, x: -prior.logpdf(x)
    inverse_entropies = sum(stats.invgamma(a, scale=b).entropy() for a, b in pairs)
    variants = [
        quadrature(lambda q, x: q.logpdf(x) - inverse_prior.logpdf(x), *distributions),
        quadrature(cross, *distributions) - inverse_entropies,
    ]
    assert min(abs(float(kl) - np.array(variants))) > 0.5


def test_noise_kl_is_zero_at_the_prior():
    """(F7), where q(gamma) is the prior of every target."""
    likelihood = gaussian(np.full(3, PRIOR_SHAPE), np.full(3, PRIOR_RATE))
    np.testing.assert_allclose(likelihood.kl()["noise/gamma"], 0, atol=1e-12)
    assert set(likelihood.kl()) == {"noise/gamma"}
    assert CategoricalLikelihood(3).kl() == {}


def test_gaussian_expected_log_density_agrees_with_draws(getkey):
    """Of f and of gamma, in the density of (L1); its closed form is (L3)."""
    draws = 100_000
    f, y = outputs(3, 2, key=getkey())
    closed = gaussian().expected_log_density(y, f)
    z = np.asarray(jr.normal(getkey(), (draws, 3, 2)))
    uniform = np.asarray(jr.uniform(getkey(), (draws, 1, 2)))
    gamma = stats.gamma(SHAPES, scale=1 / RATES).ppf(uniform)
    drawn_f = np.asarray(f.mean.T) + np.sqrt(np.asarray(f.variance.T)) * z
    values = stats.norm.logpdf(np.asarray(y), drawn_f, gamma**-0.5).sum(2)
    standard_error = values.std(0) / np.sqrt(draws)
    assert (abs(values.mean(0) - np.asarray(closed)) < 5 * standard_error).all()


def test_gaussian_expected_log_density_agrees_with_quadrature():
    """One row, one target: Gauss-Hermite over f inside a quadrature over gamma (L3)."""
    mean, variance, y = 0.3, 0.7, -1.1
    nodes, masses = np.polynomial.hermite_e.hermegauss(20)
    drawn_f, masses = mean + np.sqrt(variance) * nodes, masses / masses.sum()
    at = lambda _, gamma: masses @ stats.norm.logpdf(y, drawn_f, gamma**-0.5)
    expected = quadrature(at, stats.gamma(3.5, scale=1 / 2.0))
    f = Conditional(*(jnp.array([[value]]) for value in (1.0, mean, variance, 0.0)))
    likelihood = gaussian(np.array([3.5]), np.array([2.0]))
    actual = likelihood.expected_log_density(jnp.array([[y]]), f)
    np.testing.assert_allclose(actual, [expected], rtol=1e-7)


def test_gaussian_expected_log_density_of_known_outputs_is_the_density(getkey):
    """No variance in f, gamma nearly known: the normal density itself (L1), (L3)."""
    f, y = outputs(4, 2, key=getkey())
    f = dataclasses.replace(f, base_variance=jnp.zeros((2, 4)))
    sd = np.array([0.5, 2.0])
    likelihood = gaussian(np.full(2, 1e9), 1e9 * sd**2)
    expected = stats.norm.logpdf(np.asarray(y), np.asarray(f.mean.T), sd).sum(1)
    actual = likelihood.expected_log_density(y, f)
    np.testing.assert_allclose(actual, expected, rtol=1e-7)


def heteroscedastic(shapes=SHAPES, rates=RATES):
    q = Gamma(jnp.asarray(shapes), jnp.log(jnp.asarray(rates)))
    return HeteroscedasticLikelihood(q, PRIOR_SHAPE, PRIOR_RATE)


def test_heteroscedastic_log_density_agrees_with_draws(getkey):
    """Of f, of g and of gamma, in the density of (L4); its closed form is (L5)."""
    draws = 100_000
    f, y = outputs(3, 4, key=getkey())
    y = y[:, :2]
    closed = heteroscedastic().expected_log_density(y, f)
    z = np.asarray(jr.normal(getkey(), (draws, 3, 4)))
    uniform = np.asarray(jr.uniform(getkey(), (draws, 1, 2)))
    gamma = stats.gamma(SHAPES, scale=1 / RATES).ppf(uniform)
    drawn = np.asarray(f.mean.T) + np.sqrt(np.asarray(f.variance.T)) * z
    sd = (gamma * np.exp(drawn[..., 2:])) ** -0.5
    values = stats.norm.logpdf(np.asarray(y), drawn[..., :2], sd).sum(2)
    standard_error = values.std(0) / np.sqrt(draws)
    assert (abs(values.mean(0) - np.asarray(closed)) < 5 * standard_error).all()


def test_heteroscedastic_log_density_agrees_with_quadrature():
    """Gauss-Hermite over f and g inside a quadrature over gamma (L5)."""
    mean, variance, y = np.array([0.3, -0.8]), np.array([0.7, 0.4]), -1.1
    nodes, masses = np.polynomial.hermite_e.hermegauss(30)
    masses = masses / masses.sum()
    drawn_f, drawn_g = (
        m + np.sqrt(v) * nodes for m, v in zip(mean, variance, strict=True)
    )

    def at(_, gamma):
        sd = (gamma * np.exp(drawn_g)) ** -0.5
        return masses @ stats.norm.logpdf(y, drawn_f[:, None], sd[None]) @ masses

    expected = quadrature(at, stats.gamma(3.5, scale=1 / 2.0))
    parts = (np.ones(2), mean, variance, np.zeros(2))
    f = Conditional(*(jnp.asarray(part)[:, None] for part in parts))
    likelihood = heteroscedastic(np.array([3.5]), np.array([2.0]))
    actual = likelihood.expected_log_density(jnp.array([[y]]), f)
    np.testing.assert_allclose(actual, [expected], rtol=1e-7)


def test_noise_without_g_is_homoscedastic(getkey):
    """(L5) is (L3), (L4) is (L1), and (H3) is (H2)."""
    f, y = outputs(4, 2, key=getkey())
    none = lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf)])
    both = jax.tree.map(none, f)
    one, other = gaussian(), heteroscedastic()
    np.testing.assert_allclose(
        other.expected_log_density(y, both), one.expected_log_density(y, f), rtol=1e-12
    )
    weight = jnp.asarray([1.0, 2.0, 0.0, 1.0])
    drawn, noise = f.draw().T, jnp.asarray([[0.5, 3.0], [0.7, 1.0]])
    pair = jnp.concatenate([drawn, jnp.zeros_like(drawn)], 1)
    np.testing.assert_allclose(
        other.log_marginal(y, pair, weight),
        one.log_marginal(y, drawn, weight),
        rtol=1e-12,
    )
    twice = lambda values: OutputDraws(*(jnp.stack([values, values]) for _ in range(3)))
    mixtures = one.predictive(twice(drawn), noise), other.predictive(twice(pair), noise)
    densities = [mix.log_density(y) for mix in mixtures]
    np.testing.assert_allclose(*densities, rtol=1e-12)


def test_extreme_noise_outputs_stay_finite_and_keep_a_gradient():
    """exp(g) in (L5) is continued as a line of the same slope."""
    likelihood = heteroscedastic(np.array([3.5]), np.array([2.0]))

    def density(g):
        parts = [jnp.array([[1.0], [1.0]]), jnp.array([[0.0], [g]])]
        f = Conditional(*parts, jnp.zeros((2, 1)), jnp.zeros((2, 1)))
        return likelihood.expected_log_density(jnp.array([[1.0]]), f)[0]

    slopes = [float(jax.grad(density)(g)) for g in (9.999, 10.001, 1e6)]
    np.testing.assert_allclose(slopes, slopes[0], rtol=2e-3)
    assert slopes[0] < -1_000
    np.testing.assert_allclose(density(10.0001), density(9.9999), rtol=1e-3)
    far = likelihood.log_ratio(jnp.array([[0.0, 1e6], [0.0, -1e6]]))
    np.testing.assert_allclose(far, [[-5.0], [5.0]])


def test_residual_variance_is_the_inverse_information_of_one_target():
    """1 / variance of the score, for the mean and for g, by quadrature (S1)."""
    likelihood = heteroscedastic(np.array([4.0]), np.array([2.0]))
    g, noise = 0.7, 1 / 2.0
    target = stats.norm(0, np.sqrt(noise * np.exp(-g)))
    scores = [
        lambda y: y / target.var(),
        lambda y: 0.5 - 0.5 * y**2 / target.var(),  # d/dg ln N(y; 0, noise exp(-g))
    ]
    expected = [1 / target.expect(lambda y, s=s: s(y) ** 2) for s in scores]
    rows = jnp.tile(jnp.array([[0.0, g]]), (3, 1))
    variance = likelihood.residual_variance(likelihood.mean_noise(), rows)
    np.testing.assert_allclose(variance, expected, rtol=1e-6)


def test_best_noise_posterior_has_the_shape_known_beforehand(getkey):
    """The bound is highest at shape a + n / 2 and rate b + SSE / 2 (M8)."""
    rows = 12
    f, y = outputs(rows, 2, key=getkey())

    @jax.jit
    def negative_bound(raw):
        q = Gamma(jnp.exp(raw[:2]), raw[2:])
        likelihood = GaussianLikelihood(q, PRIOR_SHAPE, PRIOR_RATE)
        log_likelihood = likelihood.expected_log_density(y, f).sum()
        return likelihood.kl()["noise/gamma"] - log_likelihood

    start = np.log(np.concatenate([SHAPES, RATES]))
    options = {"xatol": 1e-8, "fatol": 1e-13, "maxiter": 4_000, "maxfev": 4_000}
    best = optimize.minimize(
        lambda raw: float(negative_bound(jnp.asarray(raw))),
        start,
        method="Nelder-Mead",
        options=options,
    )
    squared_errors = np.asarray(((y.T - f.mean) ** 2 + f.variance).sum(1))
    rates = PRIOR_RATE + squared_errors / 2
    shapes = np.full(2, PRIOR_SHAPE + rows / 2)
    np.testing.assert_allclose(np.exp(best.x), [*shapes, *rates], rtol=1e-4)


def test_gradient_of_the_noise_rate_is_zero_at_its_optimum(getkey):
    """With the shape that `build` gives, and no gradient for the shape itself (M8)."""
    rows, noise = 12, GaussianNoise(shape=2.0, rate=0.3)
    f, y = outputs(rows, 2, key=getkey())
    built = noise.build(2, rows=float(rows))
    np.testing.assert_allclose(built.gamma.shape, [8.0, 8.0])
    np.testing.assert_allclose(built.gamma.mean(), [1.0, 1.0])
    squared_errors = ((y.T - f.mean) ** 2 + f.variance).sum(1)
    best = eqx.tree_at(
        lambda tree: tree.gamma.log_rate, built, jnp.log(0.3 + squared_errors / 2)
    )

    def bound(likelihood):
        log_likelihood = likelihood.expected_log_density(y, f).sum()
        return log_likelihood - likelihood.kl()["noise/gamma"]

    grads = eqx.filter_grad(bound)(best).gamma
    np.testing.assert_allclose(grads.log_rate, 0, atol=1e-12)
    np.testing.assert_array_equal(grads.fixed_shape, 0)
    assert (eqx.filter_grad(bound)(built).gamma.log_rate != 0).all()


def test_sampled_noise_is_the_inverse_root_of_a_gamma(getkey):
    """A Kolmogorov-Smirnov test for each target, given the outputs (L1), (H2)."""
    given = Gamma(jnp.tile(SHAPES, (20_000, 1)), jnp.tile(np.log(RATES), (20_000, 1)))
    draws = np.asarray(gaussian().sample_noise(given, 20_000, generator_of(getkey())))
    for target in range(2):
        q = stats.gamma(SHAPES[target], scale=1 / RATES[target])
        assert stats.kstest(draws[:, target] ** -2, q.cdf).pvalue > 1e-6
    correlation = stats.spearmanr(draws[:, 0], draws[:, 1]).statistic
    assert abs(correlation) < 5 / np.sqrt(20_000)


def test_categorical_log_density_is_that_of_softmax(getkey):
    """At the drawn outputs, by scipy (L2)."""
    f, _ = outputs(50, 4, key=getkey())
    y = jr.randint(getkey(), (50,), 0, 4)
    drawn = np.asarray(f.mean) + np.sqrt(np.asarray(f.variance)) * np.asarray(f.noise)
    expected = special.log_softmax(drawn, axis=0)[np.asarray(y), np.arange(50)]
    actual = Categorical().build(4, rows=50.0).expected_log_density(y, f)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


@pytest.mark.parametrize("label", [0, 1])
def test_categorical_log_density_is_unbiased(getkey, label):
    """Two classes: E ln sigmoid of a normal, by quadrature (L2)."""
    rows, mean, variance = 100_000, np.array([0.3, -1.2]), np.array([0.5, 2.0])
    in_each_row = lambda v: jnp.broadcast_to(jnp.asarray(v)[:, None], (2, rows))
    noise = jr.normal(getkey(), (2, rows))
    f = Conditional(
        jnp.ones_like(noise), in_each_row(mean), in_each_row(variance), noise
    )
    likelihood = CategoricalLikelihood(2)
    values = np.asarray(likelihood.expected_log_density(jnp.full(rows, label), f))
    sign = 1 if label == 1 else -1
    margin = stats.norm(sign * (mean[1] - mean[0]), np.sqrt(variance.sum()))
    expected = margin.expect(special.log_expit)
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(rows)


def test_outputs_needed():
    """One for each target (L1), two (L4), one for each class (L2)."""
    assert GaussianNoise().build(3, rows=10.0).d_out == 3
    assert HeteroscedasticNoise().build(3, rows=10.0).d_out == 6
    assert Categorical().build(4, rows=10.0).d_out == 4


@pytest.mark.parametrize("name", ["shape", "rate"])
@pytest.mark.parametrize("bad", [0.0, -2.0, float("inf"), float("nan")])
def test_an_impossible_noise_prior_is_refused(name, bad):
    with pytest.raises(
        ValueError, match=f"`{name}` must be positive and finite, got {bad!r}"
    ):
        GaussianNoise(**{name: bad})


@pytest.mark.parametrize("noise", [GaussianNoise, HeteroscedasticNoise])
def test_noise_integrated_out_agrees_with_quadrature(noise, getkey):
    """Two fits to the same rows: their evidence ratio over gamma (H2), (H3)."""
    likelihood = noise(shape=2.0, rate=0.7).build(1, rows=5.0)
    generator = generator_of(getkey())
    y, weight = generator.standard_normal((5, 1)), np.array([1.0, 2.0, 1.0, 0.0, 3.0])
    fits = generator.standard_normal((2, 5, likelihood.d_out))

    def evidence(f):
        ratio = np.exp(-f[:, 1] / 2) if likelihood.d_out == 2 else 1.0

        def integrand(gamma):
            rows = stats.norm.logpdf(y[:, 0], f[:, 0], gamma**-0.5 * ratio)
            return stats.gamma.pdf(gamma, 2.0, scale=1 / 0.7) * np.exp(weight @ rows)

        return integrate.quad(integrand, 0, np.inf, epsabs=0)[0]

    arrays = jnp.asarray(y), jnp.asarray(weight)
    one, other = (
        likelihood.log_marginal(arrays[0], jnp.asarray(f), arrays[1]) for f in fits
    )
    expected = np.log(evidence(fits[0])) - np.log(evidence(fits[1]))
    assert float(one - other) == pytest.approx(expected, rel=1e-6)


def test_precision_given_the_outputs_is_conjugate(getkey):
    """Gamma(a + n / 2, b + E / 2), by hand (H2)."""
    likelihood = GaussianNoise(shape=2.0, rate=0.7).build(2, rows=3.0)
    y = jnp.asarray([[1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    q = likelihood.noise_given(y, jnp.zeros((3, 2)), jnp.asarray([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(q.shape, 2 + 4 / 2)
    np.testing.assert_allclose(jnp.exp(q.log_rate), [0.7 + 9 / 2, 0.7 + 2 / 2])


def test_log_marginal_of_classes_is_the_weighted_log_probability(getkey):
    """(L2), by scipy."""
    f = jr.normal(getkey(), (4, 3))
    y, weight = jnp.asarray([0, 2, 1, 1]), jnp.asarray([1.0, 2.0, 0.0, 1.0])
    found = Categorical().build(3, rows=4.0).log_marginal(y, f, weight)
    log_p = special.log_softmax(np.asarray(f), axis=1)[np.arange(4), np.asarray(y)]
    assert float(found) == pytest.approx(np.asarray(weight) @ log_p)


# --- predictive distributions -----------------------------------------------------


def drawn_outputs(d_out, *, draws=6, rows=4, key):
    """Outputs of all draws, with the output layer's weights integrated or drawn."""
    generator = generator_of(key)
    loc, drawn = generator.standard_normal((2, draws, rows, d_out))
    variance = generator.uniform(0.1, 1.0, (draws, rows, d_out))
    return OutputDraws(*(jnp.asarray(v) for v in (loc, variance, drawn)))


@pytest.mark.parametrize("noise", [GaussianNoise(), HeteroscedasticNoise()])
def test_predictive_of_normal_noise_agrees_with_a_scipy_mixture(noise, getkey):
    """N(m_s, v_s + noise_s^2 exp(-g_s)), with g_s of drawn weights (P1), (L1), (L4)."""
    likelihood = noise.build(2, rows=30.0)
    outputs = drawn_outputs(likelihood.d_out, key=getkey())
    sd = generator_of(getkey()).uniform(0.3, 1.0, (6, 2))
    y = np.asarray(jr.normal(getkey(), (4, 2)))
    g = np.zeros((6, 4, 2))
    if likelihood.d_out == 4:
        g = np.asarray(outputs.drawn)[..., 2:]
    variance = np.asarray(outputs.variance)[..., :2] + sd[:, None] ** 2 * np.exp(-g)
    components = stats.norm(np.asarray(outputs.loc)[..., :2], np.sqrt(variance))
    mix = likelihood.predictive(outputs, jnp.asarray(sd))
    cdf = mix.cdf(jnp.asarray(y))
    np.testing.assert_allclose(cdf, components.cdf(y).mean(0), rtol=1e-9)
    joint = components.logpdf(y).sum(2)
    expected = special.logsumexp(joint, axis=0) - np.log(6)
    np.testing.assert_allclose(mix.log_density(jnp.asarray(y)), expected, rtol=1e-9)


def test_predictive_of_classes_is_the_softmax_of_drawn_outputs(getkey):
    """(P1), (L2), by scipy."""
    outputs = drawn_outputs(3, key=getkey())
    distribution = CategoricalLikelihood(3).predictive(outputs, jnp.zeros((6, 0)))
    p = special.softmax(np.asarray(outputs.drawn), axis=2)
    np.testing.assert_allclose(distribution.each, p, rtol=1e-9)


@pytest.mark.parametrize("noise", [GaussianNoise(), HeteroscedasticNoise()])
def test_sampled_targets_are_outputs_plus_normal_noise(noise, getkey):
    """Kolmogorov-Smirnov tests of the standardised residuals (L1), (L4)."""
    likelihood = noise.build(2, rows=30.0)
    f = jnp.tile(jr.normal(getkey(), (1, 5, likelihood.d_out)), (2_000, 1, 1))
    sd = jr.uniform(getkey(), (2_000, 2), minval=0.3)
    key = getkey()
    y = likelihood.sample_targets(f, sd, jnp.arange(5), key=key)
    g = f[..., 2:] if likelihood.d_out == 4 else jnp.zeros((1, 1, 2))
    z = np.asarray((y - f[..., :2]) / (sd[:, None] * jnp.exp(-g / 2)))
    for row in range(5):
        for target in range(2):
            assert stats.kstest(z[:, row, target], stats.norm.cdf).pvalue > 1e-6
    # Noise belongs to the number of a row.
    some = likelihood.sample_targets(f[:, 3:], sd, jnp.array([3, 4]), key=key)
    np.testing.assert_allclose(some, y[:, 3:], rtol=1e-12)


# --- what node scores need --------------------------------------------------------


def test_residual_variance_of_constant_noise_and_of_classes(getkey):
    """The noise; and the variance of centred Gumbel variables, by drawing (S1)."""
    likelihood, f = gaussian(), jnp.zeros((3, 2))
    noise = likelihood.mean_noise()
    np.testing.assert_allclose(noise, RATES / SHAPES)
    np.testing.assert_array_equal(likelihood.residual_variance(noise, f), noise)
    ours = CategoricalLikelihood(3).residual_variance(jnp.zeros(0), jnp.zeros((2, 3)))
    utilities = generator_of(getkey()).gumbel(size=(200_000, 3))
    drawn = (utilities - utilities.mean(1, keepdims=True)).var(0)
    np.testing.assert_allclose(ours, drawn, rtol=0.02)


def test_heteroscedastic_residual_variance_is_a_mean_over_the_rows(getkey):
    """Mean of exp(-g) over the rows, times the noise (S1)."""
    f = jr.normal(getkey(), (9, 4))
    likelihood = heteroscedastic()
    ours = likelihood.residual_variance(jnp.array([0.5, 2.0]), f)
    expected = [*(np.exp(-np.asarray(f)[:, 2:]).mean(0) * [0.5, 2.0]), 2, 2]
    np.testing.assert_allclose(ours, expected, rtol=1e-12)


def test_a_softmax_identifies_outputs_up_to_a_common_constant(getkey):
    """Probabilities of `identified` outputs are the same; a shift is removed (L2)."""
    f = jr.normal(getkey(), (4, 3))
    likelihood = CategoricalLikelihood(3)
    ours = likelihood.identified(f + 7.0)
    np.testing.assert_allclose(ours, likelihood.identified(f), rtol=1e-9)
    np.testing.assert_allclose(special.softmax(ours, 1), special.softmax(f, 1))
    np.testing.assert_allclose(ours.sum(1), 0, atol=1e-12)
    np.testing.assert_array_equal(gaussian().identified(f), f)


def test_only_the_second_half_of_heteroscedastic_outputs_is_noise():
    """(T6) keeps g, and no other output, at 0 at first."""
    assert heteroscedastic().noise_outputs.tolist() == [False, False, True, True]
    assert gaussian().noise_outputs.tolist() == [False, False]
    assert CategoricalLikelihood(3).noise_outputs.tolist() == [False] * 3


# --- training that goes on with other rows ----------------------------------------


@pytest.mark.parametrize("noise", [GaussianNoise, HeteroscedasticNoise])
def test_resumed_noise_keeps_the_mean_and_takes_the_new_number_of_rows(noise):
    """The shape of q(gamma) is counted by the rows of the new fit (M8)."""
    learned = noise(shape=2.0, rate=0.3).build(2, rows=10.0)
    learned = eqx.tree_at(
        lambda tree: tree.gamma.log_rate, learned, jnp.log(jnp.array([3.0, 40.0]))
    )
    fresh = noise(shape=3.0, rate=0.5).build(2, rows=101.0)
    resumed = learned.resumed(fresh)
    assert type(resumed) is type(learned)
    np.testing.assert_allclose(resumed.gamma.shape, 3.0 + 101 / 2)
    np.testing.assert_allclose(resumed.gamma.mean(), learned.gamma.mean(), rtol=1e-12)
    assert (resumed.prior_shape, resumed.prior_rate) == (3.0, 0.5)
    assert abs(np.asarray(resumed.gamma.mean()) - 1).min() > 0.5


def test_resumed_classes_are_as_they_were():
    likelihood = CategoricalLikelihood(3)
    assert likelihood.resumed(CategoricalLikelihood(3)) is likelihood
