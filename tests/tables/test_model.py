"""A model that takes tables: what it predicts, what it refuses, what it saves."""

import dataclasses
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from model_files import rows, table
from scipy import stats

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    TableModel,
    Training,
    TrainingWarning,
    load,
)
from farrier.tables import Column, Columns, TableError, learn

FILES = Path(__file__).parents[1] / "files"


@pytest.fixture(scope="module")
def model():
    """Regression on a column of each kind, some with missing values."""
    return load(FILES / "table.safetensors")


@pytest.fixture(scope="module")
def classes():
    """A classifier of three labels as a model of a table of three numbers."""
    columns = Columns(
        tuple(Column(name, "number") for name in "abc"), "y", "classification"
    )
    return TableModel(columns, load(FILES / "classifier.safetensors"))


@pytest.fixture
def compacted():
    """A regression on the same table, compacted after its fit."""
    frame = table()
    columns = learn([frame], "price", missing="impute").columns
    settings = {"training": Training(max_iter=30), "n_draws": 4, "random_state": 0}
    estimator = HorseshoeRegressor((6,), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        estimator.fit(columns.features(frame), columns.targets(frame))
    return TableModel(columns, estimator).compact()


def labelled(model):
    frame = pd.DataFrame(rows(), columns=[*"abc"])
    return frame.assign(y=np.resize(model.estimator.classes_, len(frame)))


def test_a_regression_predicts_from_the_raw_table(model):
    frame, X = table(), model.columns.features(table())
    mean, std = model.estimator.predict(X, return_std=True)
    low, high = model.estimator.predict_interval(X, 0.8)
    np.testing.assert_array_equal(model.predict(frame), mean)
    found = model.prediction(frame.drop(columns="price"), 0.8)
    assert [*found] == ["mean", "std", "low", "high"]
    for ours, theirs in zip(found.values(), (mean, std, low, high), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(model.predict_interval(frame, 0.8), (low, high))


def test_scores_of_a_regression_are_those_of_its_predictions(model):
    frame = table()
    y = frame["price"].astype(float).to_numpy()
    scores, error = model.scores(frame), model.predict(frame) - y
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)))
    assert scores["mae"] == pytest.approx(np.abs(error).mean())
    assert scores["log_density"] == pytest.approx(model.log_density(frame).mean())
    low, high = model.predict_interval(frame, 0.9)
    assert scores["coverage_90"] == np.mean((low <= y) & (y <= high))
    covered = [scores[f"coverage_{level}"] for level in (50, 80, 90, 95)]
    assert covered == sorted(covered)


def test_scores_of_a_classification_are_those_of_its_probabilities(classes):
    frame = labelled(classes)
    p = classes.predict_proba(frame)
    truth = np.eye(3)[np.searchsorted(classes.estimator.classes_, frame["y"])]
    scores = classes.scores(frame)
    assert scores["brier"] == pytest.approx(((p - truth) ** 2).sum(axis=1).mean())
    expected = stats.multinomial.logpmf(truth, 1, p).mean()
    assert scores["log_density"] == pytest.approx(expected)
    assert scores["error"] == np.mean(classes.predict(frame) != frame["y"])
    found = classes.prediction(frame)
    assert [*found] == ["label", "P(high)", "P(low)", "P(middle)"]
    np.testing.assert_array_equal(found["label"], classes.predict(frame))
    np.testing.assert_array_equal(found["P(low)"], p[:, 1])


def test_what_the_other_task_has_is_told(model, classes):
    with pytest.raises(TableError, match="predicts numbers; it has no classes"):
        model.predict_proba(table())
    with pytest.raises(TableError, match="predicts classes; it has no intervals"):
        classes.predict_interval(labelled(classes))


def test_labels_that_are_new_are_told(classes):
    frame = labelled(classes).replace({"y": {"low": "lower"}})
    for ask in (classes.scores, classes.log_density):
        with pytest.raises(TableError, match=r"not in the training rows: \['lower'\]"):
            ask(frame)


@pytest.mark.parametrize("which", ["model", "classes", "compacted"])
def test_a_model_comes_back_bit_identical(which, request, tmp_path):
    saved, path = request.getfixturevalue(which), tmp_path / "model.safetensors"
    frame = labelled(saved) if which == "classes" else table()
    saved.save(path)
    back = load(path)
    assert (back.columns, back.about) == (saved.columns, saved.about)
    assert back.estimator.widths_ == saved.estimator.widths_
    ours, theirs = back.prediction(frame), saved.prediction(frame)
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)
    assert [*tmp_path.iterdir()] == [path]


def test_an_estimator_of_named_columns_is_a_model_of_a_table(classes):
    estimator = load(FILES / "classifier.safetensors")
    with pytest.raises(TableError, match="fitted in Python to an array"):
        TableModel.around(estimator)
    estimator.feature_names_in_ = np.array([*"abc"], object)
    frame = labelled(classes)[["c", "a", "b"]]
    around = TableModel.around(estimator)
    X = frame[[*"abc"]]
    np.testing.assert_array_equal(around.predict_proba(frame), classes.predict_proba(X))
    with pytest.raises(TableError, match="does not know which column its target is"):
        around.scores(frame)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"task": "classification"}, "classification needs a HorseshoeClassifier, got"),
        ({"columns": (Column("a", "number"),)}, "has 1 features, .* fitted to 11"),
    ],
)
def test_a_table_that_does_not_fit_its_network_is_told(model, change, reason):
    columns = dataclasses.replace(model.columns, **change)
    header = json.loads(json.dumps({"columns": columns.to_json(), "about": {}}))
    with pytest.raises(ValueError, match=reason):
        TableModel.from_header(header, model.estimator)


def test_labels_of_another_kind_are_told(classes):
    assert isinstance(classes.estimator, HorseshoeClassifier)
    columns = dataclasses.replace(classes.columns, labels="number")
    header = json.loads(json.dumps({"columns": columns.to_json(), "about": {}}))
    with pytest.raises(ValueError, match="labels of the table are of type 'number'"):
        TableModel.from_header(header, classes.estimator)


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"rows": "many"}, "`about.rows` must be an integer, got 'many'"),
        ({"note": "x"}, "`about.note` is no field of TrainingTable"),
        ({"columns": [{"name": "a"}]}, r"`about.columns\[0\].kind` .* is missing"),
        ({"holdout": {"rmse": "low"}}, "`about.holdout.rmse` must be a number"),
        ("sense", "`about` must be an object"),
    ],
)
def test_what_a_file_says_about_the_training_table_is_checked(model, about, reason):
    header = {"columns": model.columns.to_json(), "about": about}
    with pytest.raises(ValueError, match=reason):
        TableModel.from_header(header, model.estimator)


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_an_estimator_of_several_targets_is_no_model_of_a_table():
    frame = pd.DataFrame(rows(), columns=[*"abc"])
    settings = {"training": Training(max_iter=1), "n_draws": 2, "random_state": 0}
    one = HorseshoeRegressor((2,), **settings).fit(frame, frame["a"])
    around = TableModel.around(one)
    assert around.task == "regression"
    np.testing.assert_array_equal(around.predict(frame), one.predict(frame))
    for columns in (["a"], ["a", "b"]):  # one column of a table is a table too
        several = HorseshoeRegressor((2,), **settings).fit(frame, frame[columns])
        with pytest.raises(TableError, match="a target with several columns"):
            TableModel.around(several)
