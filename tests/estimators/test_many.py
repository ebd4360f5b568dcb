"""fit_many: each estimator ends as its own fit would."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from farrier import HorseshoeClassifier, HorseshoeRegressor, Training, fit_many

pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (4,),
    "training": Training(max_iter=60),
    "n_draws": 8,
    "random_state": 0,
}
SPLITS = [np.arange(0, 40), np.arange(20, 60), np.arange(10, 50)]


def table(rows=60):
    X = np.random.default_rng(0).standard_normal((rows, 2))
    return X, X[:, 0] - np.abs(X[:, 1])


def test_fits_to_splits_are_those_of_separate_fits():
    X, y = table()
    ended = []
    models = fit_many(
        HorseshoeRegressor(**SMALL),
        X,
        y,
        rows=SPLITS,
        after_fit=lambda index, model: ended.append((index, model)),
    )
    assert sorted(index for index, _ in ended) == [0, 1, 2]
    assert all(model is models[index] for index, model in ended)
    for model, rows in zip(models, SPLITS, strict=True):
        own = HorseshoeRegressor(**SMALL).fit(X[rows], y[rows])
        np.testing.assert_allclose(model.predict(X), own.predict(X), rtol=1e-6)
        assert model.n_iter_ == own.n_iter_
        np.testing.assert_allclose(model.history_.elbo, own.history_.elbo, rtol=1e-7)


def test_settings_may_differ_and_frames_keep_their_names(capsys):
    X, y = table()
    frame = pd.DataFrame(X, columns=["length", "depth"])
    weight = np.linspace(1, 2, len(X))
    grid = [
        HorseshoeRegressor(**SMALL).set_params(training__learning_rate=rate)
        for rate in (0.01, 0.05)
    ]
    models = fit_many(grid, frame, pd.Series(y), weight, rows=SPLITS[:2], verbose=1)
    assert models == grid
    assert "2 fits 120/120 2 ended" in capsys.readouterr().err
    for model, rows in zip(models, SPLITS, strict=False):
        assert model.feature_names_in_.tolist() == ["length", "depth"]
        own = clone(model).fit(frame.iloc[rows], y[rows], weight[rows])
        np.testing.assert_allclose(model.predict(frame), own.predict(frame), rtol=1e-6)


def test_classifiers_and_one_model_on_all_rows():
    X, y = table()
    labels = np.where(y > 0, "up", "down")
    (model,) = fit_many(HorseshoeClassifier(**SMALL), X, labels)
    own = HorseshoeClassifier(**SMALL).fit(X, labels)
    np.testing.assert_array_equal(model.predict_proba(X), own.predict_proba(X))


def test_wrong_models_and_rows_are_told():
    X, y = table()
    model = HorseshoeRegressor(**SMALL)
    with pytest.raises(ValueError, match="one object twice"):
        fit_many([model, model], X, y)
    with pytest.raises(TypeError, match="number 1 is a str"):
        fit_many([model, "model"], X, y)
    with pytest.raises(ValueError, match="one entry for each of the 1 models, got 3"):
        fit_many([model], X, y, rows=SPLITS)
    wrong = HorseshoeRegressor(**SMALL | {"n_draws": 1})
    with pytest.raises(ValueError, match="`n_draws` must be") as caught:
        fit_many([model, wrong], X, y)
    assert caught.value.__notes__ == ["This is about model 1 of `fit_many`."]
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert vars(model) == vars(HorseshoeRegressor(**SMALL))


def test_what_was_fitted_before_a_failure_stays():
    X, y = table()
    models = [
        HorseshoeRegressor(**SMALL | {"hidden_layer_sizes": (n,)}) for n in (3, 4)
    ]
    fitted = []

    def full_disk(index, model):
        fitted.append(model)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fit_many(models, X, y, after_fit=full_disk)
    (done,) = fitted
    (other,) = [model for model in models if model is not done]
    assert np.isfinite(done.predict(X)).all()
    with pytest.raises(NotFittedError):
        other.predict(X)
