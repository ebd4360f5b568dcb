"""A model of a table takes the raw columns in ONNX, and numbers in NumPy."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from farrier.export import to_numpy, to_onnx
from farrier.export.graph import DOUBLE, Graph
from farrier.export.portable import Predictor
from farrier.export.predictor import _names_of_numbers
from farrier.export.table import table_features


def inputs(frame):
    """Raw columns as onnxruntime takes them."""
    text = {
        name: frame[name].astype(object).fillna("").to_numpy(object)
        for name in ("wood", "old")
    }
    day = (frame["seen"] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return text | {"size": frame["size"].to_numpy(float), "seen": day.to_numpy(float)}


def onnx_features(columns, values):
    graph = Graph()
    found = table_features(graph, columns)
    graph.output(found, "features", DOUBLE, "rows", "features")
    model = graph.model("features", "", {"version": "0"})
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, values)[0]


def test_features_are_those_of_the_table(table_model, frame):
    columns = table_model.columns
    expected = columns.features(frame)
    assert columns.columns[0].indicator
    np.testing.assert_allclose(
        onnx_features(columns, inputs(frame)), expected, atol=1e-6
    )


def test_every_day_of_the_calendar(table_model, frame):
    """Days of the year through leap years, centuries, and before 1970."""
    days = np.arange(-80_000, 90_000, 37, dtype=float)
    many = pd.DataFrame({"size": 1.0, "wood": "elm", "old": "no", "seen": days})
    many["seen"] = pd.Timestamp(0) + pd.to_timedelta(days, unit="D")
    expected = table_model.columns.features(many)
    found = onnx_features(table_model.columns, inputs(many))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    del frame


def test_predictions_are_those_of_the_model(table_model, frame):
    session = onnxruntime.InferenceSession(to_onnx(table_model).SerializeToString())
    found: Any = session.run(None, inputs(frame))
    mean, std, quantiles = found
    np.testing.assert_allclose(mean, table_model.predict(frame), rtol=1e-4)
    low, high = table_model.predict_interval(frame, 0.9)
    ends = quantiles - np.column_stack([low, high])
    assert np.abs(ends / std[:, None]).max() < 1e-4


def test_what_a_graph_cannot_refuse_becomes_nan(table_model, frame):
    """An unknown category is zeros; a boolean that is neither of its texts is not."""
    values = {name: value[:3].copy() for name, value in inputs(frame).items()}
    values["wood"][:] = ["fir", "elm", "elm"]
    values["old"][:] = ["no", "perhaps", "YES"]
    session = onnxruntime.InferenceSession(to_onnx(table_model).SerializeToString())
    mean = session.run(["mean"], values)[0]
    assert np.isnan(mean).tolist() == [False, True, False]


def test_a_numpy_file_takes_numbers_only(table_model, number_model, rows, tmp_path):
    with pytest.raises(ValueError, match=r"column 'size' has missing values.*to ONNX"):
        to_numpy(table_model)
    wood = replace(table_model.columns.columns[1], indicator=False)
    columns = replace(table_model.columns, columns=(wood,))
    with pytest.raises(ValueError, match=r"column 'wood' is a category.*to ONNX"):
        _names_of_numbers(columns)
    to_numpy(number_model, tmp_path / "small.npz")
    predictor = Predictor.load(tmp_path / "small.npz")
    assert predictor.header["features"] == [*"abc"]
    frame = pd.DataFrame(rows, columns=[*"abc"])[[*"cab"]]
    expected, std = number_model.estimator.predict(rows, return_std=True)
    for X in (frame, rows):
        error = (predictor.predict(X) - expected) / std
        np.testing.assert_allclose(error, 0, atol=1e-5)


def test_the_estimator_of_a_table_takes_its_features(table_model, frame):
    X = table_model.columns.features(frame)
    found = to_numpy(table_model.estimator).predict(X)
    np.testing.assert_allclose(found, table_model.predict(frame), rtol=1e-5)
