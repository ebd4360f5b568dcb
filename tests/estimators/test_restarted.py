"""Estimators that mix several fits: every other feature works on the mixture."""

from copy import copy

import numpy as np
import pytest
from farrier.model.drawn import DrawnNetwork

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    Mclmc,
    Nuts,
    Restarts,
    TrainingWarning,
    export,
    fit_many,
    load,
)
from farrier.presets import PLAIN
from farrier.train.history import Status

SETTINGS = {"max_iter": 300, "n_draws": 30, "random_state": 0, "early_stopping": False}
X = np.random.default_rng(0).normal(size=(60, 2))
Y = 3 + 2 * np.abs(X[:, 0]) + 0.05 * np.random.default_rng(1).normal(size=60)


def regressor(**more):
    chosen = PLAIN | SETTINGS | {"n_restarts": 3} | more
    return HorseshoeRegressor((8,), **chosen)


@pytest.fixture(scope="module")
def fitted():
    told = []
    model = regressor().fit(X, Y, callback=lambda share, history: told.append(share))
    return model, told


def test_a_mixture_of_fits_is_the_posterior(fitted):
    model, told = fitted
    assert isinstance(model.network_, DrawnNetwork)
    assert model.network_.draws == 30
    bounds = [restart.bound for restart in model.restarts_]
    assert len(set(bounds)) == 3
    assert bounds == sorted(bounds, reverse=True)
    assert model.history_.bound[-1] == bounds[0]
    assert [restart.weight for restart in model.restarts_] == pytest.approx([1 / 3] * 3)
    assert told == sorted(told)
    assert told[-1] == 1


def test_fits_are_mixed_where_no_chain_has_a_draw(fitted, monkeypatch):
    monkeypatch.setattr("farrier.estimators.base.refine", lambda *a, **k: None)
    with pytest.warns(TrainingWarning, match="after 0 draws"):
        model = regressor(refine="nuts").fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), fitted[0].predict(X))
    assert model.restarts_ == fitted[0].restarts_


def test_many_fits_are_mixed_each_and_predict_as_well_as_one(fitted):
    model, _ = fitted
    again, one = fit_many([regressor(), regressor(n_restarts=1)], X, Y)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-6)
    assert not hasattr(one, "restarts_")
    assert model.log_density(X, Y).mean() > one.log_density(X, Y).mean() - 0.3
    low, high = model.predict_interval(X, level=0.9)
    assert 0.8 < np.mean((low <= Y) & (Y <= high)) <= 1


def test_intervals_leave_a_row_out_of_each_fit(fitted):
    """(P3): draws go by their fit, but those of chains, which sample one posterior."""
    model = copy(fitted[0])
    np.testing.assert_array_equal(model._fits_of_draws(), np.repeat([0, 1, 2], 10))
    model.n_draws = 6
    np.testing.assert_array_equal(model._fits_of_draws(), [0, 0, 1, 1, 2, 2])
    model.sampling_ = "as after chains"
    np.testing.assert_array_equal(model._fits_of_draws(), np.zeros(6))
    one = regressor(n_restarts=1, max_iter=1).fit(X, Y)
    np.testing.assert_array_equal(one._fits_of_draws(), np.zeros(30))


def test_files_compaction_and_export(fitted, tmp_path):
    model, _ = fitted
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    assert read.restarts_ == model.restarts_
    small = model.compact()
    predictor = export.to_numpy(model)
    np.testing.assert_allclose(predictor.predict(X), small.predict(X), atol=1e-5)
    summary = model.summary(X, Y)
    assert summary["restarts"].startswith("3 fits of bound ")
    assert summary["restarts"].count("weight 0.33") == 3
    assert "Pareto k" not in str(summary)


def test_a_checkpoint_for_each_fit_goes_on(fitted, tmp_path):
    model, _ = fitted
    path = tmp_path / "run.safetensors"

    def stop(share, history):
        if share > 0.4:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        regressor().fit(X, Y, checkpoint=path, callback=stop)
    assert path.exists()
    again = regressor().fit(X, Y, checkpoint=path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "run.safetensors",
        "run.safetensors.1",
        "run.safetensors.2",
    }
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-6)


def test_an_interrupted_fit_keeps_what_there_is(monkeypatch):
    from farrier.estimators import base

    def some(jobs, after_chunk):
        for number, run in train_many(jobs[:2], after_chunk):
            yield number, run
        run = jobs[2].run
        run.history.status = Status.INTERRUPTED
        yield 2, run

    train_many = base.train_many
    monkeypatch.setattr(base, "train_many", some)
    with pytest.warns(TrainingWarning, match="mixes 2 of 3 fits.*interrupted"):
        model = regressor().fit(X, Y)
    assert len(model.restarts_) == 2
    assert model.history_.status is Status.INTERRUPTED


def test_chains_begin_at_different_fits(monkeypatch):
    monkeypatch.setattr("farrier.estimators.base.AGREE", np.inf)
    method = Nuts(candidates=5, chains=4, warm_up=150, draws=25, kept=20, depth=3)
    model = regressor(refine=method, max_iter=100).fit(X, Y)
    assert [restart.weight for restart in model.restarts_] == [0.5, 0.25, 0.25]
    assert model.sampling_.chains == 4
    assert model.network_.draws == 20
    assert all(len(restart.widths) == 1 for restart in model.restarts_)


def test_nodes_of_fits_are_scored_only_where_chains_choose_among_them(monkeypatch):
    from farrier.estimators import base

    monkeypatch.setattr(base, "AGREE", np.inf)
    scored = []
    find_nodes = base.find_nodes
    watch = lambda *args, **given: scored.append(1) or find_nodes(*args, **given)
    monkeypatch.setattr(base, "find_nodes", watch)
    method = Mclmc(candidates=8, chains=4, warm_up=150, draws=25, kept=20, steps=2)
    model = regressor(refine=method, max_iter=100).fit(X, Y)
    assert not scored
    assert [restart.widths for restart in model.restarts_] == [()] * 3
    told = str(model.summary())
    assert "(weight 0.50)" in told
    assert scored == [1]  # of the draws, when they are asked for


@pytest.mark.slow
def test_classes_are_mixed_with_stacked_weights():
    labels = np.where(X[:, 0] > 0, "right", "left")
    several = Restarts(count=2, weights="stacked")
    model = HorseshoeClassifier((6,), n_restarts=several, **SETTINGS).fit(X, labels)
    assert (model.predict(X) == labels).mean() > 0.95
    assert sum(restart.weight for restart in model.restarts_) == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_restarts": 0}, "`n_restarts` must be a whole number from 1, got 0"),
        ({"warm_start": True}, "`warm_start` goes on from one posterior.*asks for 3"),
    ],
)
def test_settings_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        regressor(**given).fit(X, Y)


def test_partial_fit_is_refused(fitted):
    with pytest.raises(ValueError, match="`partial_fit` goes on from one posterior"):
        regressor().partial_fit(X, Y)
    model = fitted[0]
    one = regressor(n_restarts=1, warm_start=True)
    one.__dict__ |= {k: v for k, v in vars(model).items() if k not in vars(one)}
    with pytest.raises(ValueError, match="or mixes several fits"):
        one.fit(X, Y)


BOTH = {"likelihood": ("gaussian", "heteroscedastic"), "n_restarts": 2}


def test_fits_take_noise_models_in_turn(tmp_path):
    """(W3): half of the draws have one noise for all rows."""
    model = regressor(**BOTH).fit(X, Y)
    g = np.asarray(model.network_.kernels[-1])[..., 1]
    assert sorted([g[:15].any(), g[15:].any()]) == [False, True]
    noise, _ = model.predict_variance(X)
    assert np.ptp(noise) > 0
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.log_density(X, Y), model.log_density(X, Y))
    assert read.likelihood == model.likelihood
    assert read.restarts_ == model.restarts_
    found = sorted(restart.likelihood for restart in read.restarts_)
    assert found == ["gaussian", "heteroscedastic"]
    assert "nodes on, heteroscedastic)" in model.summary()["restarts"]
    predictor = export.to_numpy(model)
    small = model.compact()
    found, expected = (m.predict(X, return_std=True) for m in (predictor, small))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_chains_have_the_noise_of_the_fit_that_they_begin_at(tmp_path, monkeypatch):
    monkeypatch.setattr("farrier.estimators.base.AGREE", np.inf)
    method = Nuts(candidates=5, chains=2, warm_up=150, draws=25, kept=20, depth=3)
    model = regressor(refine=method, max_iter=100, **BOTH).fit(X, Y)
    g = np.asarray(model.network_.kernels[-1])[..., 1]
    assert sorted([g[:10].any(), g[10:].any()]) == [False, True]
    assert model.sampling_.r_hat >= 1 / np.sqrt(2)
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.log_density(X, Y), model.log_density(X, Y))


def test_draws_of_a_lost_noise_model_still_make_a_file(tmp_path, monkeypatch):
    """Where the fit with noise by the row failed, the file has its output all the same.

    What a file holds is told by the settings alone.
    """
    from farrier.estimators import base

    def first(runs):
        return [r for r in runs if r.state.network.likelihood.d_out == 1]

    monkeypatch.setattr(base, "_best_first", first)
    with pytest.warns(TrainingWarning, match="mixes 1 of 2 fits"):
        model = regressor(**BOTH).fit(X, Y)
    assert not np.asarray(model.network_.kernels[-1])[..., 1].any()
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_restarts": 1}, "names 2 noise models.*`n_restarts` asks for 1.*2 fits"),
        ({"likelihood": ("gaussian", "laplace")}, r"`likelihood` must be .*'laplace'"),
        ({"likelihood": ()}, r"`likelihood` must be one of .*got \(\)"),
    ],
)
def test_noise_models_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        regressor(**BOTH | given).fit(X, Y)
