"""Predictions of any number of rows, samples of targets, and their units."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import generator_of, random_draws, tiny_network

from farrier import HorseshoeRegressor, Training, TrainingWarning
from farrier.infer import predict
from farrier.infer.predict import sample_targets, summarise
from farrier.model.distributions import ClassProbabilities, NormalMixture
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.posterior import DRAWS_AT_ONCE, VariationalPosterior

D_IN, TARGETS = 3, 2
ROWS, DRAWS = 4, 4_000


def posterior_of(likelihood=None, *, draws=DRAWS, key):
    """Draws of a tanh network whose posterior is wide enough to see."""
    likelihood = likelihood or GaussianNoise(shape=1.0).build(TARGETS, rows=10.0)
    key_network, key_draws = jr.split(key)
    network = tiny_network(D_IN, (4,), likelihood, key=key_network)
    return VariationalPosterior.create(network, draws, key=key_draws)


# --- chunks -----------------------------------------------------------------------


def everything(mix, y, level):
    """Several summaries in one program."""
    return mix.mean(), mix.sd.mean(0), mix.log_density(y), mix.quantile(level)


@pytest.mark.parametrize("noise", [GaussianNoise(), HeteroscedasticNoise()])
def test_predictions_do_not_depend_on_chunks_order_or_other_rows(
    getkey, monkeypatch, noise
):
    """Each row has its own prediction, whatever is predicted with it (P1)."""
    posterior = posterior_of(
        noise.build(TARGETS, rows=10.0), draws=DRAWS_AT_ONCE, key=getkey()
    )
    x, y = generator_of(getkey()).standard_normal((2, 70, D_IN))
    y = y[:, :TARGETS]

    def predicted(chosen):
        args = (jnp.asarray(0.05),)
        return summarise(everything, posterior, x[chosen], y[chosen], args=args)

    whole = predicted(np.arange(70))
    monkeypatch.setattr(predict, "CHUNK_VALUES", 1)
    monkeypatch.setattr(predict, "MIN_CHUNK", 16)
    order = generator_of(getkey()).permutation(70)
    for chosen in (np.arange(70), order, order[:33], order[:1]):
        for ours, theirs in zip(predicted(chosen), whole, strict=True):
            np.testing.assert_allclose(ours, theirs[chosen], rtol=1e-9, atol=1e-12)


def test_probabilities_in_chunks_are_those_of_all_rows_at_once(getkey, monkeypatch):
    """(P1), (L2)."""
    likelihood = Categorical().build(3, rows=10.0)
    posterior = posterior_of(likelihood, draws=40, key=getkey())
    x = generator_of(getkey()).standard_normal((40, D_IN))
    monkeypatch.setattr(predict, "CHUNK_VALUES", 1)
    monkeypatch.setattr(predict, "MIN_CHUNK", 16)
    p = summarise(ClassProbabilities.mean, posterior, x)
    whole = posterior.predictive(jnp.asarray(x)).mean()
    np.testing.assert_allclose(p, whole, rtol=1e-9)


@pytest.mark.parametrize("rows", [1, 16, 1_000, 5_000])
def test_chunks_are_bounded_and_hold_each_row_once(getkey, monkeypatch, rows):
    """However many rows there are; the widest layer counts."""
    posterior, sizes = random_draws((D_IN, 4, TARGETS), key=getkey()), []

    def compiled(function, posterior, rows, args):
        sizes.append(len(rows[0]))
        return rows[0][:, 0]

    monkeypatch.setattr(predict, "_compiled", compiled)
    monkeypatch.setattr(predict, "CHUNK_VALUES", 300 * DRAWS_AT_ONCE * 4)
    monkeypatch.setattr(predict, "MIN_CHUNK", 16)
    x = np.repeat(np.arange(rows, dtype=float)[:, None], D_IN, axis=1)
    result = summarise(NormalMixture.mean, posterior, x)
    np.testing.assert_array_equal(result, np.arange(rows))
    assert len(set(sizes)) == 1
    assert max(sizes) <= 256 < 300
    assert max(sizes) <= max(16, 2 * rows)


# --- samples of targets -----------------------------------------------------------


@pytest.mark.parametrize("noise", [GaussianNoise, HeteroscedasticNoise])
def test_sampled_targets_have_the_predictive_moments(getkey, noise):
    """Mean, and variance of noise and weights together (P1)."""
    likelihood = noise(shape=1.0).build(TARGETS, rows=10.0)
    posterior = posterior_of(likelihood, key=getkey())
    x = np.asarray(jr.normal(getkey(), (ROWS, D_IN)))
    y = sample_targets(posterior, x, DRAWS, key=getkey())
    mix = posterior.predictive(jnp.asarray(x))
    mean, variance = mix.mean(), mix.noise_variance() + mix.model_variance()
    # Both sides are drawn, with about the same standard deviation.
    error = np.sqrt(2 * y.var(2) / DRAWS)
    assert (np.abs(y.mean(2) - mean) < 5 * error).all()
    square = (y - y.mean(2, keepdims=True)) ** 2
    error = np.sqrt(2 * square.var(2) / DRAWS)
    assert (np.abs(square.mean(2) - variance) < 5 * error).all()


def test_a_sample_is_a_function_with_new_noise_for_each_row(getkey):
    """Equal rows have covariance Var[f], and independent noise (P1)."""
    posterior = posterior_of(key=getkey())
    x = np.asarray(jr.normal(getkey(), (2, D_IN)))
    x = np.concatenate([x, x])
    y = sample_targets(posterior, x, DRAWS, key=getkey())
    assert y.shape == (ROWS, TARGETS, DRAWS)
    mix = posterior.predictive(jnp.asarray(x[:2]))
    centred = y - y.mean(2, keepdims=True)
    product = centred[:2] * centred[2:]
    error = product.std(2) / np.sqrt(DRAWS)
    model = np.asarray(mix.model_variance())
    # Both sides are drawn.
    assert (np.abs(product.mean(2) - model) < 5 * np.sqrt(2) * error).all()
    gap = y[:2] - y[2:]  # of the noise alone
    square = gap**2 / 2
    error = square.std(2) / np.sqrt(DRAWS)
    noise = np.asarray(mix.noise_variance())
    assert (np.abs(square.mean(2) - noise) < 5 * np.sqrt(2) * error).all()


def test_samples_of_targets_do_not_depend_on_the_chunks(getkey, monkeypatch):
    """Noise belongs to the number of the row (R1)."""
    posterior, key = posterior_of(draws=5, key=getkey()), getkey()
    x = generator_of(getkey()).standard_normal((40, D_IN))
    whole = sample_targets(posterior, x, 5, key=key)
    monkeypatch.setattr(predict, "CHUNK_VALUES", 1)
    monkeypatch.setattr(predict, "MIN_CHUNK", 16)
    parts = sample_targets(posterior, x, 5, key=key)
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)
    assert np.abs(sample_targets(posterior, x, 5, key=getkey()) - whole).min() > 0


def test_targets_are_sampled_around_posterior_samples_too(getkey):
    """As many as are asked for, each around one draw's outputs (P1)."""
    posterior = random_draws((D_IN, 4, TARGETS), draws=8, key=getkey())
    x = np.asarray(jr.normal(getkey(), (300, D_IN)))
    y = sample_targets(posterior, x, 4, key=getkey())
    f = np.asarray(posterior.drawn_outputs(jnp.asarray(x)))[::2]
    noise_sd = np.asarray(posterior.noise)[::2]
    z = (np.moveaxis(y, 2, 0) - f) / noise_sd[:, None]
    assert (np.abs(z.mean(1)) < 5 / np.sqrt(300)).all()
    assert (np.abs(z.var(1) - 1) < 5 * np.sqrt(2 / 300)).all()


# --- in the units of the target ---------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """A regressor of two targets in different units, after few epochs."""
    generator = np.random.default_rng(0)
    X = generator.normal(50, 7, (30, D_IN))
    y = generator.normal(0, 1, (30, TARGETS)) * [100.0, 0.01] + [3.0, -5.0]
    model = HorseshoeRegressor(
        (4,),
        "tanh",
        likelihood="gaussian",
        n_draws=400,
        random_state=0,
        training=Training(max_iter=3),
    )
    with pytest.warns(TrainingWarning):
        model.fit(X, y)
    return model, X[:6], y[:6]


def test_summaries_agree_with_one_another_in_the_units_of_the_target(model):
    """Parts of the variance, draws, interval and density (P1)."""
    model, X, _ = model
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_array_equal(model.predict(X), mean)
    noise, weights = model.predict_variance(X)
    np.testing.assert_allclose(noise + weights, sd**2, rtol=1e-9)
    np.testing.assert_allclose(noise, np.tile(noise[0], (6, 1)), rtol=1e-12)
    assert (weights > 0).all()
    # E[1/gamma] = rate / (shape - 1) of the target's variance, in its own units.
    gamma = model.model_.likelihood.gamma
    per_variance = np.exp(gamma.log_rate) / (np.asarray(gamma.fixed_shape) - 1)
    scale = model.model_.units.y.scale
    np.testing.assert_allclose(noise[0], per_variance * scale**2, rtol=0.01)
    draws = model.sample_y(X, n_samples=4_000, random_state=1)
    error = sd * np.sqrt(1 / 4_000 + 1 / 400)
    assert (np.abs(draws.mean(2) - mean) < 5 * error).all()
    assert (np.abs(draws.std(2) / sd - 1) < 5 * np.sqrt(0.5 / 4_000 + 0.5 / 400)).all()
    low, high = model.predict_interval(X, level=0.8, method="posterior")
    inside = (low[..., None] < draws) & (draws < high[..., None])
    assert (np.abs(inside.mean(2) - 0.8) < 5 * np.sqrt(0.16 / 4_000) + 0.02).all()


def test_log_density_is_in_the_units_of_the_target(model):
    """It integrates to 1 over both targets, in their own units (P1)."""
    model, X, _ = model
    mean, sd = (part[0] for part in model.predict(X, return_std=True))
    z = np.linspace(-7, 7, 41)
    first, second = np.meshgrid(z, z)
    targets = mean + sd * np.column_stack([first.ravel(), second.ravel()])
    density = np.exp(model.log_density(np.repeat(X[:1], 41**2, 0), targets))
    total = density.sum() * np.prod(sd) * (z[1] - z[0]) ** 2
    np.testing.assert_allclose(total, 1, rtol=1e-4)
