"""HorseshoeRegressor as users call it."""

import copy
import pickle
from dataclasses import replace
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from farrier import (
    Gaussian,
    GaussianNoise,
    HeteroscedasticNoise,
    Horseshoe,
    HorseshoeRegressor,
    Nuts,
    Training,
    TrainingWarning,
    export,
    fit_many,
    load,
)
from farrier.presets import PLAIN

# Nearly all nodes of networks as small as these are active, of which fits warn.
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
TRAINING = Training(learning_rate=0.03, max_iter=400, kl_annealing=0.6)
SMALL = PLAIN | {
    "hidden_layer_sizes": (8,),
    "training": TRAINING,
    "n_draws": 48,
    "random_state": 0,
}
NAMES = ["height", "width"]


def regressor(training=None, **settings):
    """A small regressor; `training` has the fields of `Training` that differ."""
    settings = {"training": replace(TRAINING, **training or {})} | settings
    return HorseshoeRegressor(**SMALL | settings)


def table(rows=60, seed=0):
    """y = |x_1| + x_2 / 2 + noise of sd 0.1."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (rows, 2))
    return X, np.abs(X[:, 0]) + X[:, 1] / 2 + 0.1 * random.normal(size=rows)


def two_targets(rows=60, seed=0):
    """The same, in millimetres beside something in millions."""
    X, y = table(rows, seed)
    noise = np.random.default_rng(seed + 1).normal(size=rows)
    return X, np.column_stack([1e-3 * y, 1e6 * (X[:, 1] + 0.1 * noise)])


@pytest.fixture(scope="module")
def fitted():
    return HorseshoeRegressor(**SMALL).fit(*table())


@pytest.fixture(scope="module")
def wide():
    """A network with far more nodes than it needs, trained until most are off."""
    wide = regressor({"max_iter": 3_000}, hidden_layer_sizes=(30,))
    return wide.fit(*table(300))


@pytest.fixture(scope="module")
def fitted_two():
    return HorseshoeRegressor(**SMALL).fit(*two_targets())


# -- with scikit-learn's tools ---------------------------------------------------------


def test_pipeline():
    model = make_pipeline(StandardScaler(), HorseshoeRegressor(**SMALL)).fit(*table())
    assert model.score(*table(seed=1)) > 0.85


def test_cross_validation():
    scores = cross_val_score(HorseshoeRegressor(**SMALL), *table(), cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 0.7


def test_grid_search_over_widths_and_priors():
    grid = [{"hidden_layer_sizes": [(1,)]}, {"prior": [Horseshoe(node_scale=0.5)]}]
    search = GridSearchCV(HorseshoeRegressor(**SMALL), grid, cv=3, refit=False)
    search.fit(*table())
    assert search.best_params_ == {"prior": Horseshoe(node_scale=0.5)}
    one_node, eight = search.cv_results_["mean_test_score"]
    assert one_node < 0.6 < 0.8 < eight


@pytest.mark.slow
def test_grid_search_in_two_processes(monkeypatch):
    model = HorseshoeRegressor(**SMALL | {"prior": Horseshoe()})
    grid = {"training__kl_weight": [1.0, 30.0]}
    alone = GridSearchCV(model, grid, cv=3).fit(*table())
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    try:
        with joblib.parallel_config("loky"):
            both = GridSearchCV(model, grid, cv=3, n_jobs=2).fit(*table())
    finally:
        get_reusable_executor().shutdown(wait=True)
    scores, expected = (s.cv_results_["mean_test_score"] for s in (both, alone))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    assert both.best_params_ == alone.best_params_ == {"training__kl_weight": 1.0}
    np.testing.assert_array_equal(both.predict(table()[0]), alone.predict(table()[0]))


def test_clone_is_not_fitted_and_has_the_same_settings(fitted):
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert vars(fresh).keys() == fitted.get_params(deep=False).keys()


def test_settings_go_round():
    settings = {
        "hidden_layer_sizes": [5, 4],
        "activation": "tanh",
        "prior": Gaussian(scale=2.0),
        "posterior": "mean-field",
        "likelihood": GaussianNoise(shape=6.0, rate=6.0),
        "training": Training(kl_weight=0.5, batch_size=7, early_stopping=False),
        "n_restarts": 2,
        "refine": Nuts(chains=3),
        "standardise": False,
        "n_draws": 11,
        "warm_start": True,
        "random_state": 3,
        "verbose": 1,
    }
    model = HorseshoeRegressor(**settings)
    assert model.get_params(deep=False) == settings
    again = HorseshoeRegressor().set_params(**settings)
    assert again.get_params(deep=False) == settings
    deep = {f"training__{n}": v for n, v in vars(settings["training"]).items()}
    assert model.get_params() == settings | deep


def test_a_field_of_the_training_is_set_on_one_estimator_alone():
    """The default, None, stands for `Training()`; objects stay as they are."""
    model, other = HorseshoeRegressor(), HorseshoeRegressor()
    given = {"training__learning_rate": 0.5, "training__max_iter": 3, "n_draws": 9}
    assert model.set_params(**given) is model
    assert model.training == Training(learning_rate=0.5, max_iter=3)
    assert model.n_draws == 9
    assert other.training is HorseshoeRegressor().training is None
    twin = HorseshoeRegressor(**SMALL | {"training": None}).fit(*table())
    same = HorseshoeRegressor(**SMALL | {"training": Training()}).fit(*table())
    np.testing.assert_array_equal(twin.history_.elbo, same.history_.elbo)
    copied = clone(model).set_params(training__tol=0.5)
    assert copied.training == Training(learning_rate=0.5, max_iter=3, tol=0.5)
    assert model.training.tol == Training().tol
    model.set_params(training=Training(tol=0.1), training__max_iter=4)
    assert model.training == Training(tol=0.1, max_iter=4)


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"no parameter 'rate'; it has \['max_iter'"):
        HorseshoeRegressor().set_params(training__rate=0.5)


def test_repr_shows_what_is_not_the_default():
    model = HorseshoeRegressor((20,), prior=Horseshoe(layer_scale=0.1))
    shown = " ".join(repr(model).split())
    assert shown.startswith("HorseshoeRegressor(hidden_layer_sizes=(20,), prior=Horse")
    assert "layer_scale=0.1" in shown
    assert "activation" not in shown


# -- frames ----------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_column_names(fitted, frame):
    X, y = table()
    data = frame(dict(zip(NAMES, X.T, strict=True)))
    model = HorseshoeRegressor(**SMALL).fit(data, y)
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict(data), fitted.predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(data[NAMES[::-1]])


def test_a_pipeline_hands_frames_on():
    X, y = table()
    model = make_pipeline(StandardScaler(), HorseshoeRegressor(**SMALL))
    model.set_output(transform="pandas").fit(pd.DataFrame(X, columns=NAMES), y)
    assert model[-1].feature_names_in_.tolist() == NAMES
    assert model.score(pd.DataFrame(X, columns=NAMES), y) > 0.85


# -- weights ---------------------------------------------------------------------------


def test_a_weight_of_2_is_a_row_that_is_there_twice():
    X, y = table()
    weight = np.ones(len(X))
    weight[:20] = 2
    weighted = HorseshoeRegressor(**SMALL).fit(X, y, sample_weight=weight)
    repeated = HorseshoeRegressor(**SMALL).fit(
        np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
    )
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_a_weight_of_0_is_a_row_that_is_not_there(fitted):
    X, y = table()
    more_X, more_y = np.concatenate([X, X + 5]), np.concatenate([y, y - 5])
    weight = np.repeat([1.0, 0.0], len(X))
    model = HorseshoeRegressor(**SMALL).fit(more_X, more_y, weight)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


def test_the_order_of_the_rows_does_not_matter(fitted):
    X, y = table()
    model = HorseshoeRegressor(**SMALL).fit(X[::-1], y[::-1])
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


# -- going on --------------------------------------------------------------------------


def test_partial_fit_learns_batch_by_batch():
    X, y = table(180)
    model = HorseshoeRegressor(**SMALL)
    early = np.inf
    for step in range(600):
        batch = slice(60 * (step % 3), 60 * (step % 3) + 60)
        model.partial_fit(X[batch], y[batch], n_rows=180)
        if step == 2:
            early = model.score(*table(seed=1))
    assert model.score(*table(seed=1)) > max(0.8, early)
    assert model.model_.likelihood.gamma.shape.tolist() == [1 + 180 / 2]
    assert len(model.history_.step) == 600


def test_without_n_rows_every_row_counts_as_a_new_one():
    X, y = table()
    model = HorseshoeRegressor(**SMALL)
    for _ in range(3):
        model.partial_fit(X, y)
    assert model.model_.likelihood.gamma.shape.tolist() == [1 + 180 / 2]


def test_partial_fit_goes_on_from_a_fit():
    X, y = table()
    model = HorseshoeRegressor(**SMALL).fit(X, y)
    before, elbo = model.predict(X), model.history_.elbo[-1]
    model.set_params(training__learning_rate=0.001)
    model.partial_fit(X, y, n_rows=len(X))
    assert model.model_.likelihood.gamma.shape.tolist() == [1 + len(X) / 2]
    assert 0 < np.abs(model.predict(X) - before).max() < 0.1 * y.std()
    assert model.history_.elbo[0] > elbo - 0.5 * len(X)


def test_fit_forgets_what_partial_fit_learned():
    X, y = table()
    model = HorseshoeRegressor(**SMALL).partial_fit(X + 9, 5 - y)
    fresh = HorseshoeRegressor(**SMALL)
    for going_on in ("fit", "partial_fit"):
        for each in (model, fresh):
            getattr(each, going_on)(X, y)
        np.testing.assert_array_equal(model.predict(X), fresh.predict(X))


def test_warm_start_goes_on_from_the_last_fit():
    X, y = table()
    model = regressor(warm_start=True).fit(X, y)
    first = model.history_.elbo
    again = model.fit(X, y).history_.elbo
    assert again.min() > first[-40:].mean() - 0.1 * (first[-1] - first[0])
    assert again[-40:].mean() > first[-40:].mean()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"hidden_layer_sizes": (9,)}, r"widths \(8,\).* widths \(9,\)"),
        ({"prior": "gaussian"}, "change of widths, activation, prior"),
        ({"activation": "tanh"}, "change of widths, activation, prior"),
    ],
)
def test_warm_start_needs_the_same_network(fitted, change, match):
    model = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True, **change)
    with pytest.raises(ValueError, match=match):
        model.fit(*table())


def test_warm_start_needs_the_same_columns(fitted):
    model = pickle.loads(pickle.dumps(fitted)).set_params(warm_start=True)
    with pytest.raises(ValueError, match=r"X has 1 features, but .* expecting 2"):
        model.fit(table()[0][:, :1], table()[1])
    with pytest.raises(
        ValueError, match="has 2 targets, as columns; the fit before had 1"
    ):
        model.fit(*two_targets())


# -- intervals -------------------------------------------------------------------------


def heavy_tailed(rows=400, seed=0):
    """A curve with errors of a t law: a normal noise has to be wide for its tails."""
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, size=(rows, 1))
    return X, np.sin(2 * X[:, 0]) + 0.1 * random.standard_t(2, rows)


@pytest.fixture(scope="module")
def heavy():
    return HorseshoeRegressor(**SMALL).fit(*heavy_tailed())


def test_intervals_hold_where_those_of_the_posterior_are_too_wide(heavy):
    """(P4), on new rows: within five standard errors of fit and of new rows."""
    X, y = heavy_tailed(5_000, seed=1)

    def coverage(**how):
        low, high = heavy.predict_interval(X, level=0.9, **how)
        return np.mean((low <= y) & (y <= high))

    error = np.sqrt(0.9 * 0.1 * (1 / 400 + 1 / 5_000))
    assert abs(coverage() - 0.9) < 5 * error
    assert coverage(method="posterior") > coverage() + error
    place = heavy.pit(X, y)
    assert abs(np.mean(np.abs(2 * place - 1) <= 0.9) - coverage()) < 1e-3
    plain = np.abs(2 * heavy.pit(X, y, method="posterior") - 1)
    assert np.mean(plain <= 0.9) == pytest.approx(coverage(method="posterior"))


def test_intervals_are_kept_with_the_model(heavy, tmp_path):
    X, _ = heavy_tailed(20, seed=2)
    expected = heavy.predict_interval(X, level=0.8)
    heavy.save(tmp_path / "model.safetensors")
    for model in (
        load(tmp_path / "model.safetensors"),
        pickle.loads(pickle.dumps(heavy)),
    ):
        np.testing.assert_array_equal(model.predict_interval(X, level=0.8), expected)
    depths = [m.model_.depths for m in (heavy, heavy.compact())]
    np.testing.assert_array_equal(*depths)


def test_intervals_of_another_method_are_refused(heavy):
    said = r"`method` must be one of \('calibrated', 'posterior'\), got 'exact'"
    pit = lambda X, method: heavy.pit(X, X[:, 0], method)
    for call in (heavy.predict_interval, pit):
        with pytest.raises(ValueError, match=said):
            call(heavy_tailed(5)[0], method="exact")


# -- several targets -------------------------------------------------------------------


def test_several_targets_in_units_far_apart(fitted_two):
    X, y = two_targets(500, seed=3)
    mean, std = fitted_two.predict(X, return_std=True)
    low, high = fitted_two.predict_interval(X, level=0.5, method="posterior")
    draws = fitted_two.sample_y(X, n_samples=48)
    assert mean.shape == std.shape == low.shape == high.shape == y.shape
    assert draws.shape == (*y.shape, 48)
    assert ((y - mean).var(0) < 0.2 * y.var(0)).all()
    # The draws are of the same law: their moments, and how many lie in the interval.
    error = (draws.mean(2) - mean) / std
    assert np.abs(error.mean(0)).max() < 0.1
    np.testing.assert_allclose((draws.std(2) / std).mean(0), 1, atol=0.1)
    inside = (low[:, :, None] < draws) & (draws < high[:, :, None])
    np.testing.assert_allclose(inside.mean((0, 2)), 0.5, atol=0.05)


def test_the_density_of_several_targets_is_joint(fitted_two):
    X, _ = two_targets()
    mean, std = fitted_two.predict(X[:1], return_std=True)
    ends = mean + 9 * std * np.array([[-1], [1]])
    first, second = (np.linspace(low, high, 61) for low, high in ends.T)
    grid = np.stack(np.meshgrid(first, second), -1).reshape(-1, 2)
    density = np.exp(fitted_two.log_density(np.repeat(X[:1], len(grid), 0), grid))
    cell = (first[1] - first[0]) * (second[1] - second[0])
    np.testing.assert_allclose(density.sum() * cell, 1, rtol=1e-3)


def test_one_column_stays_a_column(fitted):
    X, y = table()
    model = HorseshoeRegressor(**SMALL).fit(X, y[:, None])
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X)[:, None])
    with pytest.raises(
        ValueError, match="`y` has 2 targets, as columns; the fit before had 1"
    ):
        model.log_density(*two_targets())


# -- predictive distributions ----------------------------------------------------------


def test_intervals_cover_as_often_as_they_say(wide):
    X, y = table(500, seed=1)
    low, high = wide.predict_interval(X, level=0.9)
    assert 0.84 < ((low < y) & (y < high)).mean() < 0.96
    mean, std = wide.predict(X, return_std=True)
    np.testing.assert_allclose(high - low, 2 * 1.645 * std, rtol=0.05)
    assert (low < mean).all()
    assert (mean < high).all()


def test_the_two_parts_of_the_variance_add_up(fitted):
    X, _ = table()
    _, std = fitted.predict(X, return_std=True)
    noise, weights = fitted.predict_variance(X)
    np.testing.assert_allclose(noise + weights, std**2, rtol=1e-12)
    assert (weights > 0).all()
    far_noise, far_weights = fitted.predict_variance(10 * X)
    np.testing.assert_array_equal(far_noise, noise)
    assert far_weights.mean() > 10 * weights.mean()


def test_the_density_is_one_of_y_in_its_own_units():
    X, y = table()
    models = [HorseshoeRegressor(**SMALL).fit(X, c * y) for c in (1, 1000)]
    one, thousand = (
        m.log_density(X, c * y) for m, c in zip(models, (1, 1000), strict=True)
    )
    assert abs((thousand - one).mean() + np.log(1000)) < 0.1
    mean, std = models[1].predict(X[:1], return_std=True)
    values = np.linspace(mean[0] - 9 * std[0], mean[0] + 9 * std[0], 60)
    density = np.exp(models[1].log_density(np.repeat(X[:1], 60, 0), values))
    np.testing.assert_allclose(np.trapezoid(density, values), 1, rtol=1e-4)


def test_a_single_row_has_a_density(fitted):
    X, y = table()
    all_rows = fitted.log_density(X, y)
    np.testing.assert_allclose(fitted.log_density(X[:1], y[:1]), all_rows[:1])


def test_draws_follow_their_seed(fitted):
    X, _ = table()
    draws = fitted.sample_y(X, 5, random_state=1)
    assert draws.shape == (len(X), 5)
    np.testing.assert_array_equal(draws, fitted.sample_y(X, 5, random_state=1))
    assert (draws != fitted.sample_y(X, 5, random_state=2)).all()


# -- seeds, pickles, files -------------------------------------------------------------


def test_same_seed_same_bits_with_and_without_progress(fitted, capsys):
    X, y = table()
    assert capsys.readouterr().err == ""
    shown = HorseshoeRegressor(**SMALL, verbose=1).fit(X, y)
    assert "400/400" in capsys.readouterr().err
    np.testing.assert_array_equal(shown.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(shown.history_.elbo, fitted.history_.elbo)


def test_another_seed_is_another_fit(fitted):
    X, y = table()
    other = HorseshoeRegressor(**SMALL | {"random_state": 1}).fit(X, y)
    assert (other.predict(X) != fitted.predict(X)).all()


class WithoutJax(pickle.Unpickler):
    """Reads pickles in which nothing of JAX is named."""

    def find_class(self, module, name):
        assert module.split(".")[0] not in ("jax", "jaxlib"), f"{module}.{name}"
        return super().find_class(module, name)


def test_pickles_hold_numpy_arrays(fitted, tmp_path):
    X, y = table()
    partly = HorseshoeRegressor(**SMALL).partial_fit(X, y)
    for model in (fitted, fitted.compact(), partly):
        again = WithoutJax(BytesIO(pickle.dumps(model))).load()
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    joblib.dump(fitted, tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(
        again.compact().predict(X), fitted.compact().predict(X)
    )


def test_a_pickle_goes_on_learning():
    X, y = table()
    model = HorseshoeRegressor(**SMALL).partial_fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.partial_fit(X, y).predict(X), model.partial_fit(X, y).predict(X)
    )


def test_a_file_brings_the_model_back(fitted, tmp_path):
    X, y = table()
    fitted.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.log_density(X, y), fitted.log_density(X, y))
    assert again.get_params() == fitted.get_params()
    assert again.partial_fit(X, y).n_rows_ == 2 * len(X)


# -- training and its record -----------------------------------------------------------


def test_training_stops_by_itself_or_at_its_budget(fitted):
    X, y = table()
    stopped = regressor({"tol": 10.0}).fit(X, y)
    assert stopped.history_.status == "converged"
    assert stopped.n_iter_ < 400
    whole = regressor({"tol": 10.0, "early_stopping": False}).fit(X, y)
    assert whole.history_.status == "budget"
    assert whole.n_iter_ == whole.history_.step[-1] == 400


def test_epochs_are_counted_not_steps():
    model = regressor({"batch_size": 20, "max_iter": 10}).fit(*table())
    assert model.n_iter_ == 10
    assert model.history_.step[-1] == 30


def test_the_history_has_every_term_of_the_elbo():
    model = regressor({"max_iter": 100}, hidden_layer_sizes=(6, 4))
    history = model.fit(*table()).history_
    parts = ["beta", "tau", "upsilon"]
    hidden = {f"layer_{layer}/{part}" for layer in (1, 2) for part in parts}
    assert history.kl.keys() == hidden | {"output/beta", "output/kappa", "noise/gamma"}
    assert all((value > 0).all() for value in history.kl.values())
    total = history.log_likelihood - sum(history.kl.values())
    np.testing.assert_allclose(history.elbo, total)
    assert history.log_likelihood[-1] > history.log_likelihood[0]


# -- nodes -----------------------------------------------------------------------------


def test_nodes_of_a_wide_network(wide):
    (on,) = wide.widths_
    assert 1 < on < 20
    assert (wide.node_scores_[0] > 0.01).sum() == on
    assert (wide.node_probabilities_[0] > 0.5).sum() == on
    assert wide.weight_norms_[0].shape == (30,)
    ((low, high),) = wide.width_interval(level=0.9)
    assert low <= wide.node_probabilities_[0].sum() <= high
    ((wider_low, wider_high),) = wide.width_interval(level=0.99)
    assert wider_low <= low <= high <= wider_high


def test_a_compact_estimator_predicts_the_same(wide):
    small = wide.compact()
    assert small.model_.posterior.widths[0] < 30
    assert small.model_.posterior.widths == (int(small.compaction_.keep[0].sum()),)
    assert small.widths_ == wide.widths_
    assert small.compaction_.moved <= 0.01
    assert wide.model_.posterior.widths == (30,)
    X, y = table(500, seed=1)
    mean, std = wide.predict(X, return_std=True)
    new_mean, new_std = small.predict(X, return_std=True)
    assert np.sqrt((((new_mean - mean) / std) ** 2).mean()) < 0.02
    np.testing.assert_allclose(new_std, std, rtol=0.1)
    change = small.log_density(X, y).mean() - wide.log_density(X, y).mean()
    assert abs(change) < 0.02


@pytest.mark.filterwarnings("default::farrier.TrainingWarning")
def test_a_network_that_is_too_narrow_says_so():
    model = HorseshoeRegressor(**SMALL | {"hidden_layer_sizes": (2,)})
    with pytest.warns(
        TrainingWarning, match="2 of 2 nodes of hidden layer 1 are active"
    ):
        model.fit(*table())
    assert model.widths_ == (2,)


@pytest.mark.filterwarnings("default::farrier.TrainingWarning")
def test_a_network_that_learned_nothing_says_so():
    X, _ = table()
    y = np.random.default_rng(1).normal(size=len(X))
    model = regressor({"learning_rate": 0.1})
    with pytest.warns(
        TrainingWarning, match="All 8 nodes of hidden layer 1 are inactive"
    ):
        model.fit(X, y)
    assert model.widths_ == (0,)
    assert model.predict(X).std() < 0.02 * y.std()


def test_a_callback_is_told_how_far_the_fit_is():
    """Between chunks; what it raises ends the fit and leaves the estimator unfitted."""
    X, y = table()
    told = []
    model = regressor({"early_stopping": False})
    model.fit(X, y, callback=lambda share, history: told.append((share, history)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    np.testing.assert_array_equal(told[-1][1].elbo, model.history_.elbo)

    def stop(share, history):
        raise InterruptedError(f"at {share}")

    other = HorseshoeRegressor(**SMALL)
    with pytest.raises(InterruptedError, match="at 0"):
        other.fit(X, y, callback=stop)
    assert not hasattr(other, "model_")


# -- noise that depends on the row -----------------------------------------------------


def unequal(rows=400, seed=0):
    """Rows, y = 5 + 2 |x_2| + noise, and the sd of that noise: 0.6 exp(1.2 x_1)."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (rows, 2))
    sd = 0.6 * np.exp(1.2 * X[:, 0])
    return X, 5 + 2 * np.abs(X[:, 1]) + sd * random.normal(size=rows), sd


@pytest.fixture(scope="module")
def unequal_fit():
    X, y, _ = unequal()
    # In 400 steps it is nearly found: whether nearly enough, a processor decides.
    return regressor({"max_iter": 2_000}, likelihood="heteroscedastic").fit(X, y)


def test_the_noise_of_each_row_is_found(unequal_fit):
    """And intervals hold where it is small and where it is large; else they do not."""
    X, y, sd = unequal(2_000, seed=1)
    plain = HorseshoeRegressor(**SMALL).fit(*unequal()[:2])
    quiet = sd < np.median(sd)

    def coverage(model):
        low, high = model.predict_interval(X, 0.9)
        inside = (low < y) & (y < high)
        return np.array([inside[quiet].mean(), inside[~quiet].mean()])

    noise, _ = unequal_fit.predict_variance(X)
    # 400 rows and 3 numbers that say what the noise is: an error of about
    # sqrt(3 / 800) = 0.06 in its logarithm.
    assert np.sqrt(np.mean(np.log(np.sqrt(noise) / sd) ** 2)) < 0.15
    assert (abs(coverage(unequal_fit) - 0.9) < 0.05).all()
    assert coverage(plain)[0] > 0.95
    assert coverage(plain)[1] < 0.85
    gain = unequal_fit.log_density(X, y) - plain.log_density(X, y)
    assert gain.mean() > 0.2


def test_draws_have_the_noise_of_their_row(unequal_fit):
    """Moments over draws of the targets, beside those of the mixture (P1), (L4)."""
    X = np.array([[-0.9, 0.2], [0.9, 0.2]])
    draws = unequal_fit.sample_y(X, n_samples=4_000)
    mean, sd = unequal_fit.predict(X, return_std=True)
    assert (abs(draws.mean(1) - mean) < 5 * sd / np.sqrt(4_000) + 0.05 * sd).all()
    np.testing.assert_allclose(draws.std(1), sd, rtol=0.1)
    assert sd[1] > 4 * sd[0]


def test_a_noise_by_the_row_is_compacted_and_kept_in_files(unequal_fit, tmp_path):
    X, y, _ = unequal()
    small = unequal_fit.compact()
    before, after = (np.sqrt(m.predict_variance(X)[0]) for m in (unequal_fit, small))
    sd = unequal_fit.predict(X, return_std=True)[1]
    assert np.sqrt(np.mean(((after - before) / sd) ** 2)) < 0.011
    for model in (unequal_fit, small):
        model.save(tmp_path / "model.safetensors")
        again = load(tmp_path / "model.safetensors")
        np.testing.assert_array_equal(again.log_density(X, y), model.log_density(X, y))
        assert again.likelihood == "heteroscedastic"
    assert "output/kappa" in unequal_fit.history_.terms
    assert unequal_fit.summary()["task"] == "regression"
    assert "depends on the inputs" in unequal_fit.summary()["noise sd"]


@pytest.mark.slow
def test_targets_with_weights_and_sampling_have_a_noise_by_the_row(tmp_path):
    """Several fits at once; a weight of 2 is a row that is there twice (H3)."""
    X, y, _ = unequal(100)
    y = np.column_stack([y, 1e3 * X[:, 1]])
    method = Nuts(candidates=3, chains=1, warm_up=150, draws=25, kept=20, depth=3)
    settings = {"hidden_layer_sizes": (4,), "refine": method}
    noise = HeteroscedasticNoise(shape=2.0)
    model = regressor({"max_iter": 100}, likelihood=noise, **settings)
    weight = np.where(np.arange(100) < 50, 2.0, 1.0)
    rows = np.repeat(np.arange(100), weight.astype(int))
    one = clone(model).set_params(refine=None).fit(X, y, weight)
    other = clone(model).set_params(refine=None).fit(X[rows], y[rows])
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    (refined,) = fit_many([model], X, y, weight)
    assert refined.model_.posterior.noise.shape == (20, 2)
    assert refined.model_.posterior.biases[-1].shape == (20, 4)
    noise, weights = refined.predict_variance(X)
    assert noise.shape == weights.shape == (100, 2)
    assert np.ptp(noise[:, 0]) > 0.1 * noise[:, 0].mean()
    refined.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.log_density(X, y), refined.log_density(X, y))
    found = export.to_numpy(refined).predict(X, return_std=True)
    expected = refined.compact().predict(X, return_std=True)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)


def test_another_noise_is_another_network(fitted):
    model = copy.copy(fitted).set_params(likelihood="heteroscedastic", warm_start=True)
    with pytest.raises(ValueError, match="prior or likelihood, or set `warm_start`"):
        model.fit(*table())


@pytest.mark.slow
def test_a_regularised_horseshoe_goes_round(tmp_path):
    """Fit and file (G4)."""
    prior = Horseshoe(slab=2.0, half_cauchy="exact")
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.abs(X[:, 0])
    training = Training(max_iter=300, early_stopping=False)
    model = HorseshoeRegressor((8,), prior=prior, training=training, random_state=0)
    model.set_params(n_draws=20).fit(X, y)
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9
    model.save(tmp_path / "model.safetensors")
    read = load(tmp_path / "model.safetensors")
    assert read.prior == prior
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
