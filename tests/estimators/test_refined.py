"""Estimators with MCMC refinement: every other feature works on the draws."""

import copy
import math
from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    Mclmc,
    Nuts,
    Training,
    TrainingWarning,
    export,
    fit,
    fit_many,
    load,
)
from farrier.estimators.draws import posterior_draws
from farrier.model.posterior import SampledPosterior, VariationalPosterior
from farrier.presets import PLAIN
from farrier.train.history import Status

METHOD = Nuts(candidates=5, chains=2, warm_up=150, draws=100, kept=40, depth=5)
TRAINING = Training(max_iter=300, early_stopping=False, kl_annealing=0.6)
SETTINGS = {"training": TRAINING, "n_draws": 20, "random_state": 0}
X = np.random.default_rng(0).normal(size=(60, 2))
Y = 3 + 2 * np.abs(X[:, 0]) + 0.05 * np.random.default_rng(1).normal(size=60)


def regressor(**more):
    chosen = PLAIN | SETTINGS | more
    return HorseshoeRegressor((8,), refine=METHOD, **chosen)


def quietly_fitted(model, *rows, **more):
    """Short chains may or may not have mixed: that is not what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("farrier.estimators.warnings.MAX_R_HAT", math.inf)
        return model.fit(*rows, **more)


@pytest.fixture(scope="module")
def fitted():
    return quietly_fitted(regressor(), X, Y)


@pytest.fixture(scope="module")
def classes():
    labels = np.where(X[:, 0] > 0, "right", "left")
    model = HorseshoeClassifier((6,), refine=METHOD, **SETTINGS)
    return quietly_fitted(model, X, labels), labels


def test_draws_predict_as_well_as_the_fit_that_they_came_from(fitted):
    posterior, network = fitted.model_.posterior, fitted.model_.variational()
    assert isinstance(posterior, SampledPosterior)
    assert posterior.draws == 40
    before = copy.copy(fitted)
    variational = VariationalPosterior.create(network, 20, key=jr.key(0))
    before.model_ = replace(fitted.model_, posterior=variational)
    densities = [model.log_density(X, Y).mean() for model in (fitted, before)]
    assert densities[0] > densities[1] - 0.3
    low, high = fitted.predict_interval(X, level=0.9)
    assert 0.8 < np.mean((low <= Y) & (Y <= high)) <= 1
    noise, weights = fitted.predict_variance(X)
    assert (noise > 0).all()
    assert (weights > 0).all()


def test_equal_seeds_give_equal_bits(fitted):
    again = quietly_fitted(regressor(), X, Y)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_save_and_load_give_equal_bits(fitted, classes, tmp_path):
    for model, name in ((fitted, "predict"), (classes[0], "predict_proba")):
        other = model.compact()
        model.save(tmp_path / "model.safetensors")
        read = load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(getattr(read, name)(X), getattr(model, name)(X))
        assert read.sampling_ == model.sampling_
        assert read.refine == METHOD
        small = read.compact()
        np.testing.assert_array_equal(getattr(small, name)(X), getattr(other, name)(X))
        small.save(tmp_path / "small.safetensors")
        again = load(tmp_path / "small.safetensors")
        np.testing.assert_array_equal(getattr(again, name)(X), getattr(small, name)(X))


def test_classes_are_told_apart(classes):
    model, labels = classes
    assert (model.predict(X) == labels).mean() > 0.95
    assert model.model_.posterior.noise.shape == (40, 0)


def test_compaction_states_what_it_cost(fitted):
    small = fitted.compact()
    assert small.model_.posterior.widths[0] <= fitted.model_.posterior.widths[0]
    moves = (small.predict(X) - fitted.predict(X)) / fitted.predict(X, return_std=True)[
        1
    ]
    assert np.sqrt(np.mean(moves**2)) <= 0.0101


def test_export_predicts_the_same(fitted, classes):
    small = fitted.compact()
    predictor = export.to_numpy(fitted)
    np.testing.assert_allclose(predictor.predict(X), small.predict(X), atol=1e-5)
    labels = export.to_numpy(classes[0])
    expected = classes[0].compact().predict_proba(X)
    np.testing.assert_allclose(labels.predict_proba(X), expected, atol=1e-5)


def test_summary_speaks_of_the_sampling(fitted):
    summary = fitted.summary()
    assert summary["sampling"].startswith("2 chains of 100 draws, R-hat ")
    low, high = np.quantile(np.asarray(fitted.model_.predictor.noise), [0.05, 0.95])
    scale = float(fitted.model_.units.y.scale[0])
    assert f"{low * scale:.4g} to {high * scale:.4g}" in summary["noise sd"]


def test_scales_and_noise_of_the_draws_are_those_that_were_sampled(fitted):
    found = posterior_draws(replace(fitted.model_, draws=40))
    posterior = fitted.model_.posterior
    expected = np.asarray(posterior.scales["layer_1"]["tau"])[None]
    np.testing.assert_array_equal(found["layer_1_tau"], expected)
    noise_sd = fitted.model_.units.y.scale * np.asarray(posterior.noise)[None]
    np.testing.assert_allclose(found["noise_sd"], noise_sd)


def test_inputs_that_matter(fitted):
    assert fitted.feature_scores_[0] > 10 * fitted.feature_scores_[1]


def test_training_goes_on_from_the_variational_posterior(fitted, tmp_path):
    going_on = copy.deepcopy(fitted).set_params(warm_start=True, refine=None)
    steps = going_on.n_iter_
    going_on.partial_fit(X, Y)
    assert not isinstance(going_on.model_.posterior, SampledPosterior)
    assert not hasattr(going_on, "sampling_")
    assert going_on.n_iter_ <= steps
    fitted.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match="holds posterior samples and not the variational posterior"
    ):
        read.partial_fit(X, Y)


def test_progress_goes_from_nothing_to_all(tmp_path):
    told = []
    model = regressor(training=replace(TRAINING, max_iter=100))
    quietly_fitted(model, X, Y, callback=lambda share, history: told.append(share))
    assert told == sorted(told)
    assert told[0] < 0.1
    assert told[-1] == 1


def test_many_fits_are_refined_each(fitted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("farrier.estimators.warnings.MAX_R_HAT", math.inf)
        (model,) = fit_many([regressor()], X, Y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


def test_chains_that_disagree_are_warned_of(monkeypatch):
    monkeypatch.setattr("farrier.estimators.warnings.MAX_R_HAT", 0.0)
    with pytest.warns(
        TrainingWarning, match=r"R-hat of the predictions is .*Nuts\(draws="
    ):
        regressor().fit(X, Y)


def test_chains_of_the_other_method_predict_as_well(fitted, monkeypatch, tmp_path):
    method = Mclmc(candidates=5, chains=2, warm_up=150, draws=100, kept=40, steps=20)
    model = regressor().set_params(refine=method)
    monkeypatch.setattr("farrier.estimators.warnings.MAX_R_HAT", 0.0)
    with pytest.warns(TrainingWarning, match=r"R-hat .*`refine=Mclmc\(draws=\.\.\.\)`"):
        model.fit(X, Y)
    assert model.sampling_.gradients == 2 * 250 * 2 * 20
    densities = [each.log_density(X, Y).mean() for each in (model, fitted)]
    assert densities[0] > densities[1] - 0.3
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.refine == method
    np.testing.assert_array_equal(read.predict(X), model.predict(X))


def test_interrupted_before_the_first_draw(monkeypatch):
    monkeypatch.setattr("farrier.fit.refine", lambda *a, **k: None)
    with pytest.warns(TrainingWarning, match="after 0 draws .* the variational one"):
        model = regressor().fit(X, Y)
    assert model.history_.status is Status.INTERRUPTED
    assert not isinstance(model.model_.posterior, SampledPosterior)


def test_interrupted_between_draws(monkeypatch):
    """The chains end after 50 of their 100 draws, which make the model."""
    refine = fit.refine

    def shorter(fits, data, method, after_chunk, *, key):
        method = replace(method, draws=50)
        return refine(fits, data, method, after_chunk, key=key)

    monkeypatch.setattr(fit, "refine", shorter)
    with pytest.warns(TrainingWarning, match="after 50 draws .* is made of those"):
        model = regressor().fit(X, Y)
    assert model.history_.status is Status.INTERRUPTED
    assert model.sampling_.draws == 50
    assert isinstance(model.model_.posterior, SampledPosterior)
    assert np.corrcoef(model.predict(X), Y)[0, 1] > 0.8


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match=r"`refine` must be one of .*got 'hmc'"):
        HorseshoeRegressor(refine="hmc").fit(X, Y)
