"""A scikit-learn pipeline converts in one call of skl2onnx."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")

import farrier.export.pipelines  # noqa: E402, F401


@pytest.fixture(scope="module")
def scaled(rows):
    """A scaler that leaves the units in which the models were fitted."""
    return StandardScaler(with_mean=False, with_std=False).fit(rows)


def test_a_regression_pipeline_converts(regressor, rows, scaled):
    pipeline = make_pipeline(scaled, regressor)
    options = {id(regressor): {"return_std": True}}
    model = skl2onnx.to_onnx(pipeline, rows[:1], options=options, target_opset=17)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found: Any = session.run(None, {"X": rows})
    expected, expected_std = pipeline.predict(rows, return_std=True)
    np.testing.assert_allclose((found[0][:, 0] - expected) / expected_std, 0, atol=1e-4)
    np.testing.assert_allclose(found[1][:, 0], expected_std, rtol=1e-4)


def test_a_classification_pipeline_converts(classifier, rows, scaled):
    pipeline = make_pipeline(scaled, classifier)
    options = {id(classifier): {"zipmap": False}}
    model = skl2onnx.to_onnx(pipeline, rows[:1], options=options)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    label, p = session.run(None, {"X": rows})
    np.testing.assert_allclose(p, pipeline.predict_proba(rows), atol=1e-4)
    np.testing.assert_array_equal(label, pipeline.predict(rows))
