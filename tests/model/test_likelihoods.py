"""Likelihoods: expected log densities, the noise prior, the best q(gamma)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from farrier.core.families import Conditional, Gamma
from farrier.model.likelihoods import (
    Categorical,
    CategoricalLikelihood,
    GaussianLikelihood,
    GaussianNoise,
    HeteroscedasticLikelihood,
    HeteroscedasticNoise,
)

SHAPES, RATES = np.array([3.5, 8.0]), np.array([2.0, 20.0])  # q(gamma), two targets
PRIOR_SHAPE, PRIOR_RATE = 6.0, 5.0


def gaussian(shapes=SHAPES, rates=RATES):
    q = Gamma(jnp.asarray(shapes), jnp.log(jnp.asarray(rates)))
    return GaussianLikelihood(q, PRIOR_SHAPE, PRIOR_RATE)


def outputs(rows, targets, *, key):
    """Some law of the network's outputs, and some targets."""
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    shape = (targets, rows)
    loc, noise, y = (jnp.asarray(generator.standard_normal(shape)) for _ in range(3))
    spread, factor = (jnp.asarray(generator.uniform(0.1, 2.0, shape)) for _ in range(2))
    return Conditional(factor, loc, spread, noise), y.T


def quadrature(integrand, *laws):
    """Expectation of a function of one variable under each of several laws, summed."""
    return sum(
        integrate.quad(lambda x, law=law: law.pdf(x) * integrand(law, x), 0, np.inf)[0]
        for law in laws
    )


def test_noise_kl_is_that_of_a_gamma():
    """Gamma against Gamma for each target; inverse-gamma terms give others (F7)."""
    laws = [stats.gamma(a, scale=1 / b) for a, b in zip(SHAPES, RATES, strict=True)]
    prior = stats.gamma(PRIOR_SHAPE, scale=1 / PRIOR_RATE)
    log_ratio = lambda q, x: q.logpdf(x) - prior.logpdf(x)
    kl = gaussian().kl()["noise/gamma"]
    np.testing.assert_allclose(kl, quadrature(log_ratio, *laws), rtol=1e-7)
    # Public code takes the prior, or the entropy, of an inverse gamma instead.
    inverse_prior = stats.invgamma(PRIOR_SHAPE, scale=PRIOR_RATE)
    cross = lambda q, x: -prior.logpdf(x)
    inverse_entropies = sum(
        stats.invgamma(a, scale=b).entropy() for a, b in zip(SHAPES, RATES, strict=True)
    )
    variants = [
        quadrature(lambda q, x: q.logpdf(x) - inverse_prior.logpdf(x), *laws),
        quadrature(cross, *laws) - inverse_entropies,
    ]
    assert min(abs(float(kl) - np.array(variants))) > 0.5


def test_noise_kl_is_zero_at_the_prior():
    """(F7), where q(gamma) is the prior of every target."""
    likelihood = gaussian(np.full(3, PRIOR_SHAPE), np.full(3, PRIOR_RATE))
    np.testing.assert_allclose(likelihood.kl()["noise/gamma"], 0, atol=1e-12)
    assert set(likelihood.kl()) == set(likelihood.kl_names())
    assert CategoricalLikelihood(3).kl() == dict.fromkeys(
        CategoricalLikelihood.kl_names()
    )


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


def test_gaussian_expected_log_density_of_what_is_known_is_the_density(getkey):
    """No variance in f, gamma all but known: the normal density itself (L1), (L3)."""
    f, y = outputs(4, 2, key=getkey())
    f = eqx.tree_at(lambda f: f.spread, f, jnp.zeros((2, 4)))
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


def test_where_g_is_zero_the_noise_is_that_of_all_rows(getkey):
    """(L5) is (L3), (L4) is (L1), and (H3) is (H2)."""
    f, y = outputs(4, 2, key=getkey())
    none = lambda leaf: jnp.concatenate([leaf, jnp.zeros_like(leaf)])
    both = jax.tree.map(none, f)
    one, other = gaussian(), heteroscedastic()
    np.testing.assert_allclose(
        other.expected_log_density(y, both), one.expected_log_density(y, f), rtol=1e-12
    )
    weight = jnp.asarray([1.0, 2.0, 0.0, 1.0])
    drawn, precision = f.draw().T, jnp.asarray([0.5, 3.0])
    pair = jnp.concatenate([drawn, jnp.zeros_like(drawn)], 1)
    for found, expected in (
        (other.log_marginal(y, pair, weight), one.log_marginal(y, drawn, weight)),
        (other.log_density(y, pair, precision), one.log_density(y, drawn, precision)),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_noise_that_runs_away_stays_finite_and_is_pulled_back():
    """exp(g) in (L5) goes on as a line, with the slope that it had."""
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


def test_noise_of_an_output_is_what_one_target_leaves_unknown():
    """1 / variance of the score, for the mean and for g, by quadrature (S1)."""
    likelihood = heteroscedastic(np.array([4.0]), np.array([2.0]))
    g, noise = 0.7, 1 / 2.0
    law = stats.norm(0, np.sqrt(noise * np.exp(-g)))
    scores = [
        lambda y: y / law.var(),
        lambda y: 0.5 - 0.5 * y**2 / law.var(),  # d/dg ln N(y; 0, noise exp(-g))
    ]
    expected = [1 / law.expect(lambda y, s=s: s(y) ** 2) for s in scores]
    rows = jnp.tile(jnp.array([[0.0, g]]), (3, 1))
    found = likelihood.output_noise(likelihood.noise_variance(), rows)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


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


def test_noise_sd_is_the_inverse_root_of_a_gamma(getkey):
    """A Kolmogorov-Smirnov test of each target (L1)."""
    likelihood = gaussian()
    sample = jax.vmap(lambda key: likelihood.sample_sd(key=key))
    draws = np.asarray(sample(jr.split(getkey(), 20_000)))
    for target in range(2):
        law = stats.gamma(SHAPES[target], scale=1 / RATES[target])
        assert stats.kstest(draws[:, target] ** -2, law.cdf).pvalue > 1e-6


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
def test_a_noise_prior_that_is_none_is_refused(name, bad):
    with pytest.raises(
        ValueError, match=f"`{name}` must be positive and finite, got {bad!r}"
    ):
        GaussianNoise(**{name: bad})


@pytest.mark.parametrize("noise", [GaussianNoise, HeteroscedasticNoise])
def test_noise_integrated_out_agrees_with_quadrature(noise, getkey):
    """Two fits to the same rows: their evidence ratio over gamma (H2), (H3)."""
    likelihood = noise(shape=2.0, rate=0.7).build(1, rows=5.0)
    generator = np.random.default_rng(np.asarray(jr.key_data(getkey())))
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


def test_precision_given_the_fit_is_the_conjugate_law(getkey):
    """Gamma(a + n / 2, b + E / 2), by hand (H2)."""
    likelihood = GaussianNoise(shape=2.0, rate=0.7).build(2, rows=3.0)
    y = jnp.asarray([[1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    law = likelihood.precision_given(y, jnp.zeros((3, 2)), jnp.asarray([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(law.shape, 2 + 4 / 2)
    np.testing.assert_allclose(jnp.exp(law.log_rate), [0.7 + 9 / 2, 0.7 + 2 / 2])


def test_log_marginal_of_classes_is_the_weighted_log_probability(getkey):
    """(L2), by scipy."""
    f = jr.normal(getkey(), (4, 3))
    y, weight = jnp.asarray([0, 2, 1, 1]), jnp.asarray([1.0, 2.0, 0.0, 1.0])
    found = Categorical().build(3, rows=4.0).log_marginal(y, f, weight)
    log_p = special.log_softmax(np.asarray(f), axis=1)[np.arange(4), np.asarray(y)]
    assert float(found) == pytest.approx(np.asarray(weight) @ log_p)
