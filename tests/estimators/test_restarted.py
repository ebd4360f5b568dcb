"""Ensembles of several fits: every other feature of an estimator works on them."""

from dataclasses import replace

import numpy as np
import pytest
from networks import stacked
from scipy import stats

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
from farrier.fitted import Sample
from farrier.infer.ensemble import FitSummary, draw_groups
from farrier.infer.intervals import depths
from farrier.infer.sample.settings import Sampling
from farrier.model.posterior import SampledPosterior
from farrier.presets import PLAIN
from farrier.train.history import Status

TRAINING = Training(max_iter=300, early_stopping=False, kl_annealing=0.6)
SHORT = replace(TRAINING, max_iter=100)
SETTINGS = {"training": TRAINING, "n_draws": 30, "random_state": 0}
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
    assert isinstance(model.model_.posterior, SampledPosterior)
    assert model.model_.posterior.draws == 30
    elbos = [restart.elbo for restart in model.restarts_]
    assert len(set(elbos)) == 3
    assert elbos == sorted(elbos, reverse=True)
    assert model.history_.elbo[-1] == elbos[0]
    assert [restart.weight for restart in model.restarts_] == pytest.approx([1 / 3] * 3)
    assert told == sorted(told)
    assert told[-1] == 1


def test_fits_are_mixed_where_no_chain_has_a_draw(fitted, monkeypatch):
    monkeypatch.setattr("farrier.fit.refine", lambda *a, **k: None)
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
    np.testing.assert_array_equal(draw_groups(3, 30), np.repeat([0, 1, 2], 10))
    np.testing.assert_array_equal(draw_groups(3, 6), [0, 0, 1, 1, 2, 2])
    np.testing.assert_array_equal(draw_groups(1, 30), np.zeros(30))
    model = fitted[0].model_
    as_one = replace(model, fits=())
    counts = {"chains": 1, "draws": 1, "divergences": 0, "gradients": 1}
    numbers = {"r_hat": 1.0, "effective_draws": 1.0, "acceptance": 1.0, "seconds": 0.0}
    as_chains = replace(model, sampling=Sampling(**counts, **numbers))
    np.testing.assert_array_equal(as_one.depths, as_chains.depths)
    assert (as_one.depths != model.depths).any()


def constant_draws(model, loc, noise, y, draws, fits, sampling):
    """The fitted model with draws that each predict one normal for all rows."""
    posterior = stacked(
        [np.zeros((len(loc), 2, 1)), np.zeros((len(loc), 1, 1))],
        [np.zeros((len(loc), 1)), loc[:, None]],
        model.likelihood,
        noise=noise[:, None],
    )
    rows = Sample(np.zeros((len(y), 2)), y[:, None], np.ones(len(y)))
    more = {"draws": draws, "sample": rows, "fits": fits, "sampling": sampling}
    return replace(model, posterior=posterior, network=None, **more)


@pytest.mark.parametrize("sampled", [False, True])
def test_rows_are_left_out_of_fits_of_different_noise(fitted, sampled):
    """(P3), by loops: weights within each fit, but over all chains of one posterior.

    Rows far from a quiet fit would have its draws outweighed by those of a noisy one.
    """
    random, y = np.random.default_rng(0), np.linspace(-1.5, 1.5, 12)
    loc = np.append(random.normal(0, 0.1, 8), random.normal(0.5, 0.1, 9))
    noise = np.repeat([0.4, 1.0], [8, 9])
    fits = tuple(FitSummary(elbo, 0.5, (1,)) for elbo in (-1.0, -2.0))
    counts = {"chains": 2, "draws": 1, "divergences": 0, "gradients": 1}
    numbers = {"r_hat": 1.0, "effective_draws": 1.0, "acceptance": 1.0, "seconds": 0.0}
    sampling = Sampling(**counts, **numbers) if sampled else None
    kept = np.array([0, 1, 3, 5, 6, 8, 10, 11, 13, 15])  # 10 of 17, evenly spaced
    groups = [kept] if sampled else [kept[:5], kept[5:]]
    position = np.zeros(len(y))
    for row, value in enumerate(y):
        for group in groups:
            normals = stats.norm(loc[group], noise[group])
            share = 1 / normals.pdf(value)
            share = np.minimum(share / share.sum(), len(group) ** -0.5)
            position[row] += share @ normals.cdf(value) / share.sum() / len(groups)
    of = lambda *how: constant_draws(fitted[0].model_, loc, noise, y, 10, *how)
    model = of(fits, sampling)
    expected = depths(position[:, None], np.ones(len(y)))
    np.testing.assert_allclose(model.depths, expected, rtol=1e-9)
    other = of(fits if sampled else (), None)
    assert np.abs(other.depths - expected).max() > 0.01


def test_files_compaction_and_export(fitted, tmp_path):
    model, _ = fitted
    small = model.compact()
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    assert read.restarts_ == model.restarts_
    np.testing.assert_array_equal(read.compact().predict(X), small.predict(X))
    predictor = export.to_numpy(model)
    np.testing.assert_allclose(predictor.predict(X), small.predict(X), atol=1e-5)
    summary = model.summary()
    assert summary["restarts"].startswith("3 fits of ELBO ")
    assert summary["restarts"].count("weight 0.33") == 3


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
    def some(jobs, after_chunk):
        for number, run in train_many(jobs[:2], after_chunk):
            yield number, run
        run = jobs[2].run
        run.history.status = Status.INTERRUPTED
        yield 2, run

    train_many = fit.train_many
    monkeypatch.setattr(fit, "train_many", some)
    with (
        pytest.warns(TrainingWarning, match="Training was interrupted"),
        pytest.warns(TrainingWarning, match="combines 2 of 3 fits.*interrupted"),
    ):
        model = regressor().fit(X, Y)
    assert len(model.restarts_) == 2
    assert model.history_.status is Status.INTERRUPTED


def test_chains_begin_at_different_fits(monkeypatch):
    monkeypatch.setattr("farrier.estimators.warnings.MAX_R_HAT", np.inf)
    method = Nuts(candidates=5, chains=4, warm_up=150, draws=25, kept=20, depth=3)
    model = regressor(refine=method, training=SHORT).fit(X, Y)
    assert [restart.weight for restart in model.restarts_] == [0.5, 0.25, 0.25]
    assert model.sampling_.chains == 4
    assert model.model_.posterior.draws == 20
    assert all(len(restart.widths) == 1 for restart in model.restarts_)


def test_nodes_of_fits_are_scored_only_where_chains_choose_among_them(monkeypatch):
    monkeypatch.setattr("farrier.estimators.warnings.MAX_R_HAT", np.inf)
    scored = []
    find_nodes = fit.find_nodes
    watch = lambda *args: scored.append(1) or find_nodes(*args)
    monkeypatch.setattr(fit, "find_nodes", watch)
    method = Mclmc(candidates=8, chains=4, warm_up=150, draws=25, kept=20, steps=2)
    model = regressor(refine=method, training=SHORT).fit(X, Y)
    assert not scored
    assert [restart.widths for restart in model.restarts_] == [()] * 3
    assert "(weight 0.50)" in str(model.summary())


@pytest.mark.slow
def test_fits_of_classes_are_combined():
    labels = np.where(X[:, 0] > 0, "right", "left")
    model = HorseshoeClassifier((6,), n_restarts=2, **SETTINGS).fit(X, labels)
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
    with pytest.raises(ValueError, match="or combines several fits"):
        one.fit(X, Y)
