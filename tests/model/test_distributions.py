"""Predictive distributions against scipy.stats, root finders and loops."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import generator_of
from scipy import optimize, special, stats

from farrier.model.distributions import ClassProbabilities, NormalMixture

TARGETS = 2


def random_mixture(*, draws=5, rows=3, key):
    """Random components, a few of them far apart."""
    generator = generator_of(key)
    loc = generator.normal(scale=3, size=(draws, rows, TARGETS))
    weight_variance = generator.uniform(0.0, 0.5, (draws, rows, TARGETS))
    noise_sd = generator.uniform(0.1, 1.0, (draws, 1, TARGETS))
    return NormalMixture(*(jnp.asarray(v) for v in (loc, weight_variance, noise_sd)))


def components(mix):
    """Means and standard deviations of the components, by NumPy."""
    noise_sd, variance = np.asarray(mix.noise_sd), np.asarray(mix.weight_variance)
    return np.asarray(mix.loc), np.sqrt(variance + noise_sd**2)


# --- mixtures of normals ----------------------------------------------------------


def test_moments_are_those_of_the_mixture(getkey):
    """Mean and variance by integration of a density from scipy.stats (P1)."""
    mix = random_mixture(key=getkey())
    loc, sd = components(mix)
    y = np.linspace(-25, 25, 50_001)[:, None, None, None]
    density = stats.norm(loc, sd).pdf(y).mean(1)
    y = y[:, 0]
    mean = np.trapezoid(y * density, y, axis=0)
    variance = np.trapezoid((y - mean) ** 2 * density, y, axis=0)
    np.testing.assert_allclose(mix.mean(), mean, rtol=1e-9)
    noise, model = np.asarray(mix.noise_variance()), np.asarray(mix.model_variance())
    np.testing.assert_allclose(noise + model, variance, rtol=1e-9)
    by_target = np.mean(np.asarray(mix.noise_sd) ** 2, axis=0)
    np.testing.assert_allclose(noise, np.tile(by_target, (3, 1)), rtol=1e-12)
    assert model.min() > 0.1
    for ours, theirs in zip(mix.moments(), (mean, noise, model), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_log_density_is_that_of_all_targets_together(getkey):
    """ln mean_s N(y_1) N(y_2), as one two-dimensional normal for each draw (P1)."""
    mix = random_mixture(key=getkey())
    loc, sd = components(mix)
    y = generator_of(getkey()).normal(scale=3, size=(3, TARGETS))
    expected = [
        special.logsumexp(
            [
                stats.multivariate_normal(loc[s, row], np.diag(sd[s, row] ** 2)).logpdf(
                    y[row]
                )
                for s in range(5)
            ]
        )
        - np.log(5)
        for row in range(3)
    ]
    np.testing.assert_allclose(mix.log_density(jnp.asarray(y)), expected, rtol=1e-12)


def test_density_integrates_to_one(getkey):
    """Over one target, on a grid that a normal of sd 0.1 is smooth on (P1)."""
    one = random_mixture(rows=1, key=getkey())
    y = np.linspace(-25, 25, 5_001)
    rows = lambda leaf: jnp.tile(leaf[..., :1], (1, len(y), 1))
    mix = NormalMixture(rows(one.loc), rows(one.weight_variance), one.noise_sd[..., :1])
    density = np.exp(mix.log_density(jnp.asarray(y[:, None])))
    np.testing.assert_allclose(np.trapezoid(density, y), 1, rtol=1e-9)


@pytest.mark.parametrize("level", [1e-6, 0.05, 0.5, 0.975, 0.9999])
def test_a_quantile_has_its_level_of_probability_below_it(getkey, level):
    """By the distribution function of scipy.stats (P1)."""
    mix = random_mixture(key=getkey())
    loc, sd = components(mix)
    quantile = np.asarray(mix.quantile(jnp.asarray(level)))
    below = stats.norm(loc, sd).cdf(quantile).mean(0)
    np.testing.assert_allclose(below, level, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(1 - below, 1 - level, rtol=1e-6, atol=1e-12)
    both = mix.quantiles(jnp.asarray([level, 0.3]))
    np.testing.assert_allclose(both[..., 0], quantile, rtol=1e-12)


def test_quantiles_of_one_normal_are_known(getkey):
    """One draw: loc + sd z (P1)."""
    mix = random_mixture(draws=1, key=getkey())
    loc, sd = components(mix)
    for level in (0.001, 0.3, 0.9):
        expected = stats.norm(loc[0], sd[0]).ppf(level)
        np.testing.assert_allclose(
            mix.quantile(jnp.asarray(level)), expected, rtol=1e-9
        )


@pytest.mark.parametrize("gap", [1.0, 30.0, 1e4])
def test_quantiles_between_distant_components(gap):
    """Where the density is nearly 0, or jumps: against a root finder of scipy (P1)."""
    loc, sd = np.array([0.0, gap, 1.1 * gap]), np.array([1.0, 1e-3, 5.0])
    parts = jnp.asarray(loc[:, None, None]), jnp.asarray(sd[:, None, None] ** 2)
    mix = NormalMixture(*parts, jnp.zeros((3, 1, 1)))
    cdf = lambda t: stats.norm(loc, sd).cdf(t).mean()
    for level in (1e-5, 0.2, 1 / 3 - 1e-9, 0.4, 0.66, 0.99):
        root = optimize.brentq(
            lambda t, level=level: cdf(t) - level, -10 * gap - 10, 10 * gap + 50
        )
        quantile = float(mix.quantile(jnp.asarray(level))[0, 0])
        np.testing.assert_allclose(cdf(quantile), level, rtol=1e-9)
        if level != 1 / 3 - 1e-9:  # between the components many values have this level
            np.testing.assert_allclose(quantile, root, rtol=1e-8, atol=1e-9)


def test_the_density_of_a_target_is_the_slope_of_its_cdf(getkey):
    """By a difference quotient (P2)."""
    mix = random_mixture(draws=7, key=getkey())
    y, h = mix.mean() + 0.2, 1e-6
    slope = (mix.cdf(y + h) - mix.cdf(y - h)) / (2 * h)
    np.testing.assert_allclose(mix.density(y), slope, rtol=1e-7)


def test_cdf_is_the_mean_over_the_draws_and_the_inverse_of_the_quantile(getkey):
    """(P2), by scipy.stats."""
    mix = random_mixture(draws=7, key=getkey())
    loc, sd = components(mix)
    y = jnp.asarray(loc.mean(0) + 0.3)
    expected = stats.norm(loc, sd).cdf(np.asarray(y)).mean(0)
    np.testing.assert_allclose(mix.cdf(y), expected, rtol=1e-9)
    quantile = mix.quantile(jnp.asarray(0.8))
    np.testing.assert_allclose(mix.cdf(quantile), 0.8, rtol=1e-9)


def test_check_values_of_a_mixture(getkey):
    """Means and noise sds, the sd over all targets, and the log density (C1)."""
    mix, y = random_mixture(key=getkey()), jnp.zeros((3, TARGETS))
    loc, sd = components(mix)
    values, scale, log_density = mix.check_values(y)
    noise_sd = np.sqrt((np.asarray(mix.noise_sd) ** 2).mean((0, 1)))
    expected = np.hstack([loc.mean(0), np.tile(noise_sd, (3, 1))])
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    variance = (sd**2).mean(0) + loc.var(0)
    np.testing.assert_allclose(scale, np.sqrt(variance.sum(1)), rtol=1e-12)
    np.testing.assert_array_equal(log_density, mix.log_density(y))


# --- leave-one-out ----------------------------------------------------------------


def test_leave_one_out_agrees_with_the_posterior_without_the_row(getkey):
    """(P3) of a normal mean with a normal prior, whose posteriors are known."""
    y, prior, draws = np.array([0.3, -1.2, 2.5, 0.1, 0.4]), 4.0, 200_000
    precision = 1 / prior + len(y)
    mu = y.sum() / precision + jr.normal(getkey(), (draws,)) / np.sqrt(precision)

    def values(mu):
        loc = jnp.tile(mu[:, None, None], (1, len(y), 1))
        mix = NormalMixture(loc, jnp.zeros_like(loc), jnp.ones((len(mu), 1, 1)))
        one = jnp.zeros(len(mu), int)
        return np.asarray(mix.leave_one_out_cdf(jnp.asarray(y)[:, None], one))[:, 0]

    ours = values(mu)
    parts = np.array([values(part) for part in jnp.split(mu, 20)])
    without = precision - 1
    predictive = stats.norm((y.sum() - y) / without, np.sqrt(1 + 1 / without))
    standard_error = parts.std(0, ddof=1) / np.sqrt(20)
    assert (np.abs(ours - predictive.cdf(y)) < 5 * standard_error).all()
    whole = stats.norm(y.sum() / precision, np.sqrt(1 + 1 / precision))
    assert (np.abs(whole.cdf(y) - predictive.cdf(y)) > 5 * standard_error).any()


@pytest.mark.parametrize(
    "group", [[0] * 9, [0, 0, 0, 0, 1, 1, 1, 1, 1], [2, 0] * 4 + [2]]
)
def test_leave_one_out_agrees_with_loops(getkey, group):
    """(P3) with two targets, which are left out together, and truncated weights."""
    loc = jr.normal(getkey(), (9, 4, 2))
    variance, noise_sd = jnp.full(loc.shape, 0.01), jnp.full((9, 1, 2), 0.05)
    y = jr.normal(getkey(), (4, 2))
    mix = NormalMixture(loc, variance, noise_sd)
    ours = mix.leave_one_out_cdf(y, jnp.asarray(group))
    sd, truncated = np.sqrt(0.01 + 0.05**2), 0
    for row in range(4):
        expected = np.zeros(2)
        for number in {*group}:
            members = np.flatnonzero(np.asarray(group) == number)
            normals = stats.norm(np.asarray(loc)[members, row], sd)
            log_r = -normals.logpdf(np.asarray(y)[row]).sum(1)
            share = np.exp(log_r - log_r.max())
            share, most = share / share.sum(), len(members) ** -0.5
            truncated += (share > most).sum()
            share = np.minimum(share, most)
            position = share @ normals.cdf(np.asarray(y)[row]) / share.sum()
            expected += len(members) / 9 * position
        np.testing.assert_allclose(ours[row], expected, rtol=1e-10)
    assert truncated


def test_rows_are_left_out_of_each_group_by_itself(getkey):
    """(P3) of an ensemble (W1) is the mean of the values of its members."""
    loc, y = jr.normal(getkey(), (12, 6, 1)), jr.normal(getkey(), (6, 1))
    of = lambda part: NormalMixture(
        part, jnp.zeros_like(part), jnp.ones((len(part), 1, 1))
    )
    both = of(loc).leave_one_out_cdf(y, jnp.repeat(jnp.arange(2), jnp.array([4, 8])))
    each = [
        of(part).leave_one_out_cdf(y, jnp.zeros(len(part), int))
        for part in (loc[:4], loc[4:])
    ]
    np.testing.assert_allclose(both, each[0] / 3 + 2 * each[1] / 3, rtol=1e-10)
    whole = of(loc).leave_one_out_cdf(y, jnp.zeros(12, int))
    assert np.abs(whole - both).max() > 1e-3


def test_leaving_out_changes_nothing_where_all_draws_are_equal():
    """By hand: with equal weights (P3) is (P2)."""
    zeros = jnp.zeros((5, 3, 1))
    mix = NormalMixture(zeros, zeros, jnp.ones((5, 1, 1)))
    y = jnp.array([[-1.0], [0.0], [2.0]])
    ours = mix.leave_one_out_cdf(y, jnp.array([0, 0, 1, 1, 1]))
    np.testing.assert_allclose(ours, mix.cdf(y), rtol=1e-12)


# --- classes ----------------------------------------------------------------------


def test_class_probabilities_are_means_over_the_draws(getkey):
    """Their quantiles and draws are those of each class (P1)."""
    each = generator_of(getkey()).dirichlet(np.ones(3), size=(11, 4))
    distribution = ClassProbabilities(jnp.asarray(each))
    np.testing.assert_allclose(distribution.mean(), each.mean(0), rtol=1e-12)
    np.testing.assert_array_equal(distribution.draws()[2, 1], each[:, 2, 1])
    levels = np.array([0.1, 0.5])
    expected = np.moveaxis(np.quantile(each, levels, axis=0), 0, -1)
    quantiles = distribution.quantiles(jnp.asarray(levels))
    np.testing.assert_allclose(quantiles, expected, rtol=1e-12)


def test_log_probabilities_of_classes(getkey):
    """ln of the mean, finite where the mean is 0; and the scale of a move (C1)."""
    each = generator_of(getkey()).dirichlet(np.ones(3), size=(11, 4))
    each[:, 3] = [1, 0, 0]
    distribution, y = ClassProbabilities(jnp.asarray(each)), jnp.array([0, 2, 1, 1])
    p = each.mean(0)
    log_p = np.asarray(distribution.log_density(y))
    expected = np.log(p[np.arange(3), np.asarray(y)[:3]])
    np.testing.assert_allclose(log_p[:3], expected, rtol=1e-12)
    assert -1_000 < log_p[3] < -700
    values, sd, density = distribution.check_values(y)
    np.testing.assert_allclose(values, p, rtol=1e-12)
    np.testing.assert_allclose(sd[:3], np.sqrt((p * (1 - p)).sum(1))[:3], rtol=1e-12)
    assert sd[3] > 0
    np.testing.assert_array_equal(density, log_p)
