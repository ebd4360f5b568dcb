"""The posterior predictive: its parts, its summaries, and that rows stand alone."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import optimize, special, stats

from farrier import HorseshoeRegressor, TrainingWarning
from farrier.core.priors import Horseshoe
from farrier.infer import predict
from farrier.infer.compact import Nodes
from farrier.infer.predict import (
    DRAWS_AT_ONCE,
    Mixture,
    by_chunks,
    mixture,
    noise_sds,
    outputs,
)
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.network import Network
from farrier.train.history import Status

D_IN, TARGETS = 3, 2
ROWS, DRAWS = 4, 4_000
SHAPE = 6.0  # of q(gamma): a few rows' worth, so that the noise is uncertain


# Compiled once for all tests.
drawn_mixture = eqx.filter_jit(mixture)
drawn_outputs = eqx.filter_jit(outputs)
drawn_targets = eqx.filter_jit(predict.sampled_targets)


def generator_of(key):
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def network_of(likelihood=None, *, key):
    """A tanh network whose posterior is wide enough to see."""
    likelihood = likelihood or GaussianNoise(shape=1.0).build(TARGETS, rows=10.0)
    network = Network.create(
        D_IN, (4,), likelihood, Horseshoe(), activation="tanh", key=key
    )
    where = lambda net: [
        q.log_scale
        for layer in (*net.layers, net.output)
        for q in (layer.weights.kernel, layer.weights.bias)
    ]
    wide = [jnp.full_like(raw, -1.0) for raw in where(network)]  # sd 0.31
    return eqx.tree_at(where, network, wide)


def mixture_by_hand(key, *, draws=5, rows=3):
    """Random parts, a few of them far apart."""
    generator = generator_of(key)
    loc = generator.normal(scale=3, size=(draws, rows, TARGETS))
    own_variance = generator.uniform(0.0, 0.5, (draws, rows, TARGETS))
    noise_sd = generator.uniform(0.1, 1.0, (draws, 1, TARGETS))
    return Mixture(jnp.asarray(loc), jnp.asarray(own_variance), jnp.asarray(noise_sd))


def parts_of(mix):
    """Means and standard deviations of the parts, worked out by hand."""
    noise_sd, variance = np.asarray(mix.noise_sd), np.asarray(mix.own_variance)
    return np.asarray(mix.loc), np.sqrt(variance + noise_sd**2)


# --- the mixture ------------------------------------------------------------------


def test_moments_are_those_of_the_mixture(getkey):
    """Mean and variance by integration of a density from scipy.stats (P1)."""
    mix = mixture_by_hand(getkey())
    loc, sd = parts_of(mix)
    y = np.linspace(-25, 25, 50_001)[:, None, None, None]
    density = stats.norm(loc, sd).pdf(y).mean(1)
    y = y[:, 0]
    mean = np.trapezoid(y * density, y, axis=0)
    variance = np.trapezoid((y - mean) ** 2 * density, y, axis=0)
    np.testing.assert_allclose(mix.mean(), mean, rtol=1e-9)
    noise, weights = (
        np.asarray(mix.noise_variance()),
        np.asarray(mix.weights_variance()),
    )
    np.testing.assert_allclose(noise + weights, variance, rtol=1e-9)
    by_target = np.mean(np.asarray(mix.noise_sd) ** 2, axis=0)
    np.testing.assert_allclose(noise, np.tile(by_target, (3, 1)), rtol=1e-12)
    assert weights.min() > 0.1


def test_log_density_is_that_of_all_targets_together(getkey):
    """ln mean_s N(y_1) N(y_2), as one two-dimensional normal for each draw (P1)."""
    mix = mixture_by_hand(getkey())
    loc, sd = parts_of(mix)
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
    one = mixture_by_hand(getkey(), rows=1)
    y = np.linspace(-25, 25, 5_001)
    rows = lambda leaf: jnp.tile(leaf[..., :1], (1, len(y), 1))
    mix = Mixture(rows(one.loc), rows(one.own_variance), one.noise_sd[..., :1])
    density = np.exp(mix.log_density(jnp.asarray(y[:, None])))
    np.testing.assert_allclose(np.trapezoid(density, y), 1, rtol=1e-9)


@pytest.mark.parametrize("level", [1e-6, 0.05, 0.5, 0.975, 0.9999])
def test_a_quantile_has_its_level_of_the_distribution_under_it(getkey, level):
    """By the distribution function of scipy.stats (P1)."""
    mix = mixture_by_hand(getkey())
    loc, sd = parts_of(mix)
    quantile = np.asarray(mix.quantile(jnp.asarray(level)))
    under = stats.norm(loc, sd).cdf(quantile).mean(0)
    np.testing.assert_allclose(under, level, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(1 - under, 1 - level, rtol=1e-6, atol=1e-12)


def test_quantiles_of_one_normal_are_known(getkey):
    """One draw: loc + sd z (P1)."""
    mix = mixture_by_hand(getkey(), draws=1)
    loc, sd = parts_of(mix)
    for level in (0.001, 0.3, 0.9):
        expected = stats.norm(loc[0], sd[0]).ppf(level)
        np.testing.assert_allclose(
            mix.quantile(jnp.asarray(level)), expected, rtol=1e-9
        )


@pytest.mark.parametrize("gap", [1.0, 30.0, 1e4])
def test_a_quantile_between_far_parts_is_found(gap):
    """Where the density is nearly 0, or jumps: against a root finder of scipy (P1)."""
    loc, sd = np.array([0.0, gap, 1.1 * gap]), np.array([1.0, 1e-3, 5.0])
    parts = jnp.asarray(loc[:, None, None]), jnp.asarray(sd[:, None, None] ** 2)
    mix = Mixture(*parts, jnp.zeros((3, 1, 1)))
    cdf = lambda t: stats.norm(loc, sd).cdf(t).mean()
    for level in (1e-5, 0.2, 1 / 3 - 1e-9, 0.4, 0.66, 0.99):
        root = optimize.brentq(
            lambda t, level=level: cdf(t) - level, -10 * gap - 10, 10 * gap + 50
        )
        found = float(mix.quantile(jnp.asarray(level))[0, 0])
        np.testing.assert_allclose(cdf(found), level, rtol=1e-9)
        if level != 1 / 3 - 1e-9:  # between the parts, many places have this level
            np.testing.assert_allclose(found, root, rtol=1e-8, atol=1e-9)


def test_the_density_of_a_target_is_the_slope_of_its_distribution(getkey):
    """By a difference quotient (P2)."""
    mix = mixture_by_hand(getkey(), draws=7)
    y, h = mix.mean() + 0.2, 1e-6
    slope = (mix.cdf(y + h) - mix.cdf(y - h)) / (2 * h)
    np.testing.assert_allclose(mix.density(y), slope, rtol=1e-7)


def test_place_of_a_target_in_its_law(getkey):
    """The mean of normal distribution functions, and the inverse of quantiles (P2)."""
    mix = mixture_by_hand(getkey(), draws=7)
    loc, sd = parts_of(mix)
    y = jnp.asarray(loc.mean(0) + 0.3)
    expected = stats.norm(loc, sd).cdf(np.asarray(y)).mean(0)
    np.testing.assert_allclose(mix.cdf(y), expected, rtol=1e-9)
    there = mix.quantile(jnp.asarray(0.8))
    np.testing.assert_allclose(mix.cdf(there), 0.8, rtol=1e-9)


# --- its draws --------------------------------------------------------------------


def test_noise_has_each_quantile_of_q_gamma_once(getkey):
    """In an order that differs from target to target (P1)."""
    network = network_of(key=getkey())
    gamma = network.likelihood.gamma
    noise_sd = np.asarray(noise_sds(network, 50, key=getkey()))
    law = stats.gamma(
        np.asarray(gamma.fixed_shape), scale=np.exp(-np.asarray(gamma.log_rate))
    )
    levels = (np.arange(50)[:, None] + 0.5) / 50
    np.testing.assert_allclose(
        np.sort(noise_sd, 0)[::-1], law.ppf(levels) ** -0.5, rtol=1e-9
    )
    ranks = noise_sd.argsort(0).argsort(0)
    assert (ranks[:, 0] != ranks[:, 1]).mean() > 0.5
    assert (np.diff(ranks, axis=0) != 1).mean() > 0.5


@pytest.mark.parametrize("draws", [50, 200])
def test_noise_variance_is_near_its_expectation(getkey, draws):
    """E[1/gamma] = rate / (shape - 1); plain draws are 7 % off at 50 (P1), (M8)."""
    network = network_of(key=getkey())
    gamma = network.likelihood.gamma
    shape, rate = np.asarray(gamma.fixed_shape), np.exp(np.asarray(gamma.log_rate))
    np.testing.assert_allclose(shape, SHAPE)
    mean = np.mean(np.asarray(noise_sds(network, draws, key=getkey())) ** 2, axis=0)
    np.testing.assert_allclose(mean, rate / (shape - 1), rtol=1 / draws)


def test_predictive_has_the_moments_of_whole_drawn_networks(getkey):
    """Output weights integrated against output weights drawn (P1), (M6)."""
    network, x = network_of(key=getkey()), jr.normal(getkey(), (ROWS, D_IN))
    mix = drawn_mixture(network, x, jnp.zeros((DRAWS, TARGETS)), key=getkey())
    f = np.asarray(drawn_outputs(network, x, DRAWS, key=getkey()))
    loc, own = np.asarray(mix.loc), np.asarray(mix.own_variance)
    error = np.sqrt((loc.var(0) + f.var(0)) / DRAWS)
    assert (np.abs(loc.mean(0) - f.mean(0)) < 5 * error).all()
    square, square_f = (loc - loc.mean(0)) ** 2 + own, (f - f.mean(0)) ** 2
    error = np.sqrt((square.var(0) + square_f.var(0)) / DRAWS)
    assert (np.abs(square.mean(0) - square_f.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(mix.weights_variance(), square.mean(0), rtol=1e-9)
    assert own.mean() > 0.1 * f.var(0).mean()


def test_probabilities_are_the_mean_softmax_of_drawn_networks(getkey, monkeypatch):
    """Not the softmax of the mean; and in chunks as in one piece (P1), (L2)."""
    network = network_of(Categorical().build(3, rows=10.0), key=getkey())
    x, key = generator_of(getkey()).standard_normal((40, D_IN)), getkey()
    monkeypatch.setattr(predict, "CHUNK_VALUES", 1)
    monkeypatch.setattr(predict, "LEAST_CHUNK", 16)
    p = by_chunks(predict.probabilities, network, (x,), 40, key=key)
    f = np.asarray(drawn_outputs(network, jnp.asarray(x), 40, key=key))
    np.testing.assert_allclose(p, special.softmax(f, axis=2).mean(0), rtol=1e-9)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert np.abs(p - special.softmax(f.mean(0), axis=1)).max() > 0.001


# --- rows stand alone -------------------------------------------------------------


def test_noise_by_the_row_is_that_of_drawn_weights(getkey):
    """Mean and spread of exp(-g) / gamma over draws of whole networks (P1), (L4)."""
    likelihood = HeteroscedasticNoise(shape=1.0).build(TARGETS, rows=10.0)
    network = network_of(likelihood, key=getkey())
    x = jnp.asarray(generator_of(getkey()).normal(size=(ROWS, D_IN)))
    mix = drawn_mixture(
        network, x, noise_sds(network, DRAWS, key=getkey()), key=getkey()
    )
    other = drawn_outputs(network, x, DRAWS, key=getkey())
    log_ratio = -np.asarray(other)[..., TARGETS:]
    gamma = np.asarray(noise_sds(network, DRAWS, key=getkey()))[:, None] ** -2
    pairs = [(2 * np.log(mix.noise_sd), log_ratio - np.log(gamma))]
    pairs.append((np.asarray(mix.loc), np.asarray(other)[..., :TARGETS]))
    for found, expected in pairs:
        error = np.hypot(found.std(0), expected.std(0)) / np.sqrt(DRAWS)
        assert (abs(found.mean(0) - expected.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(pairs[0][0].std(0), pairs[0][1].std(0), rtol=0.1)
    assert np.ptp(mix.noise_variance(), axis=0).min() > 0.05


def everything(network, x, y, rows, noise_sd, *, key):
    """All that is asked of a regression, in one program."""
    mix = mixture(network, x, noise_sd, key=key)
    drawn = predict.sampled_targets(network, x, rows, noise_sd, key=key)
    return (
        mix.mean(),
        mix.sd.mean(0),
        mix.log_density(y),
        mix.quantile(jnp.asarray(0.05)),
        drawn,
    )


def test_predictions_do_not_depend_on_chunks_order_or_other_rows(getkey, monkeypatch):
    """Each row has its own prediction, whatever is predicted with it (P1)."""
    network, generator = network_of(key=getkey()), generator_of(getkey())
    x = generator.standard_normal((70, D_IN))
    y = generator.standard_normal((70, TARGETS))
    noise_sd, key = noise_sds(network, DRAWS_AT_ONCE, key=getkey()), getkey()

    def predicted(chosen):
        rows = (x[chosen], y[chosen], chosen)
        return by_chunks(everything, network, rows, noise_sd, key=key)

    whole = predicted(np.arange(70))
    monkeypatch.setattr(predict, "CHUNK_VALUES", 1)
    monkeypatch.setattr(predict, "LEAST_CHUNK", 16)
    order = generator.permutation(70)
    for chosen in (np.arange(70), order, order[:33], order[:1]):
        for ours, theirs in zip(predicted(chosen), whole, strict=True):
            np.testing.assert_allclose(ours, theirs[chosen], rtol=1e-9, atol=1e-12)
    assert whole[-1].shape == (70, TARGETS, DRAWS_AT_ONCE)


@pytest.mark.parametrize("rows", [1, 16, 1_000, 5_000])
def test_chunks_are_bounded_and_hold_each_row_once(getkey, monkeypatch, rows):
    """However many rows there are; the widest layer counts."""
    network, sizes = network_of(key=getkey()), []

    def compiled(summary, network, x, *, key):
        sizes.append(len(x))
        return x[:, 0]

    monkeypatch.setattr(predict, "_compiled", compiled)
    monkeypatch.setattr(predict, "CHUNK_VALUES", 300 * DRAWS_AT_ONCE * 4)
    monkeypatch.setattr(predict, "LEAST_CHUNK", 16)
    x = np.repeat(np.arange(rows, dtype=float)[:, None], D_IN, axis=1)
    result = by_chunks(predict.probabilities, network, (x,), key=getkey())
    np.testing.assert_array_equal(result, np.arange(rows))
    assert len(set(sizes)) == 1
    assert max(sizes) <= 256 < 300
    assert max(sizes) <= max(16, 2 * rows)


# --- draws of targets -------------------------------------------------------------


def test_drawn_targets_have_the_predictive_moments(getkey):
    """Mean, and variance of noise and weights together (P1)."""
    network, x = network_of(key=getkey()), jr.normal(getkey(), (ROWS, D_IN))
    noise_sd = noise_sds(network, DRAWS, key=getkey())
    y = np.asarray(drawn_targets(network, x, jnp.arange(ROWS), noise_sd, key=getkey()))
    mix = drawn_mixture(network, x, noise_sd, key=getkey())
    mean, variance = mix.mean(), mix.noise_variance() + mix.weights_variance()
    # Both sides are drawn, with about the same spread.
    error = np.sqrt(2 * y.var(2) / DRAWS)
    assert (np.abs(y.mean(2) - mean) < 5 * error).all()
    square = (y - y.mean(2, keepdims=True)) ** 2
    error = np.sqrt(2 * square.var(2) / DRAWS)
    assert (np.abs(square.mean(2) - variance) < 5 * error).all()


def test_a_draw_is_a_whole_function_with_fresh_noise_for_each_row(getkey):
    """Equal rows agree without noise; with it their covariance is that of f (P1)."""
    network, x = network_of(key=getkey()), jr.normal(getkey(), (2, D_IN))
    x, rows = jnp.concatenate([x, x]), jnp.arange(ROWS)
    key = getkey()
    f = np.asarray(
        drawn_targets(network, x, rows, jnp.zeros((DRAWS, TARGETS)), key=key)
    )
    np.testing.assert_allclose(f[:2], f[2:], rtol=1e-12)
    assert np.abs(f[0] - f[1]).min() > 0
    y = np.asarray(drawn_targets(network, x, rows, jnp.ones((DRAWS, TARGETS)), key=key))
    noise = y - f
    assert np.abs(noise[:2] - noise[2:]).min() > 0
    centred = f - f.mean(2, keepdims=True)
    product = (y[:2] - y[:2].mean(2, keepdims=True)) * (
        y[2:] - y[2:].mean(2, keepdims=True)
    )
    error = product.std(2) / np.sqrt(DRAWS)
    assert (np.abs(product.mean(2) - (centred[:2] ** 2).mean(2)) < 5 * error).all()
    assert abs(noise.mean()) < 5 / np.sqrt(noise.size)
    assert abs(noise.var() - 1) < 5 * np.sqrt(2 / noise.size)


# --- in the units of the target ---------------------------------------------------


@pytest.fixture
def untrained(monkeypatch):
    """A regressor of two targets in units of their own, whose training does nothing."""

    def no_training(job, *args, **kwargs):
        run = job.run
        run.history.status = Status.BUDGET
        return run

    nodes = Nodes((np.zeros((2, 4)),))
    monkeypatch.setattr("farrier.estimators.base.train", no_training)
    monkeypatch.setattr("farrier.estimators.base.find_nodes", lambda *_, key: nodes)
    generator = np.random.default_rng(0)
    X = generator.normal(50, 7, (30, D_IN))
    y = generator.normal(0, 1, (30, TARGETS)) * [100.0, 0.01] + [3.0, -5.0]
    settings = {"likelihood": "gaussian", "n_draws": 400, "random_state": 0}
    model = HorseshoeRegressor((4,), "tanh", **settings)
    with pytest.warns(TrainingWarning, match="All 4 nodes"):
        model.fit(X, y)
    return model, X[:6], y[:6]


def test_summaries_agree_with_one_another_in_the_units_of_the_target(untrained):
    """Parts of the variance, draws, interval and density (P1)."""
    model, X, _ = untrained
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_array_equal(model.predict(X), mean)
    noise, weights = model.predict_variance(X)
    np.testing.assert_allclose(noise + weights, sd**2, rtol=1e-9)
    np.testing.assert_allclose(noise, np.tile(noise[0], (6, 1)), rtol=1e-12)
    assert (weights > 0).all()
    # E[1/gamma] = rate / (shape - 1) of the target's variance, in its own units.
    gamma = model.network_.likelihood.gamma
    per_variance = np.exp(gamma.log_rate) / (np.asarray(gamma.fixed_shape) - 1)
    scale = model._y_standard.scale
    np.testing.assert_allclose(noise[0], per_variance * scale**2, rtol=0.01)
    draws = model.sample_y(X, n_samples=4_000, random_state=1)
    error = sd * np.sqrt(1 / 4_000 + 1 / 400)
    assert (np.abs(draws.mean(2) - mean) < 5 * error).all()
    assert (np.abs(draws.std(2) / sd - 1) < 5 * np.sqrt(0.5 / 4_000 + 0.5 / 400)).all()
    low, high = model.predict_interval(X, level=0.8, method="posterior")
    inside = (low[..., None] < draws) & (draws < high[..., None])
    assert (np.abs(inside.mean(2) - 0.8) < 5 * np.sqrt(0.16 / 4_000) + 0.02).all()


def test_log_density_is_in_the_units_of_the_target(untrained):
    """It integrates to 1 over both targets, in their own units (P1)."""
    model, X, _ = untrained
    mean, sd = (part[0] for part in model.predict(X, return_std=True))
    z = np.linspace(-7, 7, 41)
    first, second = np.meshgrid(z, z)
    targets = mean + sd * np.column_stack([first.ravel(), second.ravel()])
    density = np.exp(model.log_density(np.repeat(X[:1], 41**2, 0), targets))
    total = density.sum() * np.prod(sd) * (z[1] - z[0]) ** 2
    np.testing.assert_allclose(total, 1, rtol=1e-4)
