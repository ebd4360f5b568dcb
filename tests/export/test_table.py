"""A model of a table takes the raw columns, in ONNX and by NumPy."""

from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from farrier.export import to_numpy, to_onnx
from farrier.export.graph import DOUBLE, Graph
from farrier.export.portable import features
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
    found = table_features(graph, columns.to_json())
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
    raw = {name: frame[name].to_numpy() for name in frame.columns}
    np.testing.assert_allclose(features(columns.to_json(), raw), expected, atol=1e-9)
    texts = {name: [*values.astype(str)] for name, values in raw.items()}
    gone = {name: frame[name].isna() for name in raw}
    for nothing in (None, "", pd.NA):
        some = {
            name: [nothing if g else v for v, g in zip(values, gone[name], strict=True)]
            for name, values in texts.items()
        }
        found = features(columns.to_json(), some)
        np.testing.assert_allclose(found, expected, atol=1e-6)


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
    raw = to_numpy(table_model).predict(frame)
    np.testing.assert_allclose(raw, table_model.predict(frame), rtol=1e-5)


def test_what_a_graph_cannot_refuse_becomes_nan(table_model, frame):
    """An unknown category is zeros; a boolean that is neither of its texts is not."""
    values = {name: value[:3].copy() for name, value in inputs(frame).items()}
    values["wood"][:] = ["fir", "elm", "elm"]
    values["old"][:] = ["no", "perhaps", "YES"]
    session = onnxruntime.InferenceSession(to_onnx(table_model).SerializeToString())
    mean = session.run(["mean"], values)[0]
    assert np.isnan(mean).tolist() == [False, True, False]


def test_a_table_that_does_not_fit_is_refused(table_model, frame):
    columns = table_model.columns.to_json()
    raw = {name: frame[name].to_numpy()[:2] for name in frame.columns}
    with pytest.raises(ValueError, match="no column 'wood'"):
        features(columns, {k: v for k, v in raw.items() if k != "wood"})
    with pytest.raises(ValueError, match="'size' holds what is no number"):
        features(columns, raw | {"size": ["big", "small"]})
    with pytest.raises(ValueError, match=r"'old'.*'perhaps' where 'no' or 'yes'"):
        features(columns, raw | {"old": ["no", "perhaps"]})
    with pytest.raises(ValueError, match="the same number of rows"):
        features(columns, raw | {"size": [1.0]})
