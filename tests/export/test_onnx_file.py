"""onnxruntime gives farrier's numbers."""

import json
from typing import Any

import numpy as np
import onnxruntime
import pytest

from farrier import HorseshoeRegressor
from farrier.export import to_numpy, to_onnx
from farrier.export.portable import Predictor

CLOSE = 1e-4


def run(model, inputs) -> tuple[dict[str, Any], Any]:
    """Outputs by name, and the session."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True)), session


def test_regression_has_farriers_numbers(regressor, rows, tmp_path):
    """In units of the predictive standard deviation (P1)."""
    model = to_onnx(regressor, tmp_path / "small.onnx", quantiles=(0.05, 0.5, 0.95))
    assert (tmp_path / "small.onnx").read_bytes() == model.SerializeToString()
    found, session = run(model, {"X": rows})
    mean, std = regressor.predict(rows, return_std=True)
    low, high = regressor.predict_interval(rows, level=0.9)
    expected = {"mean": mean, "std": std}
    for name, values in expected.items():
        assert np.abs((found[name] - values) / std).max() < CLOSE
    ends = found["quantiles"][:, [0, 2]] - np.column_stack([low, high])
    assert np.abs(ends / std[:, None]).max() < CLOSE
    assert found["quantiles"].shape == (len(rows), 3)
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["quantiles"]) == [0.05, 0.5, 0.95]
    assert "nodes kept" in about["compaction"]


@pytest.mark.parametrize("draws", [None, 5])
def test_numpy_and_onnx_agree(regressor, classifier, rows, draws, tmp_path):
    """(P1): two implementations of the same computation."""
    for model in (regressor, classifier):
        to_numpy(model, tmp_path / "small.npz", draws=draws)
        predictor = Predictor.load(tmp_path / "small.npz")
        found, _ = run(to_onnx(model, draws=draws), {"X": rows})
        if model is classifier:
            p = predictor.predict_proba(rows)
            np.testing.assert_allclose(found["probabilities"], p, atol=1e-6)
            np.testing.assert_array_equal(found["label"], predictor.predict(rows))
            continue
        mean, std = predictor.predict(rows, return_std=True)
        low, high = predictor.predict_interval(rows)
        for value, expected in (
            (found["mean"], mean),
            (found["std"], std),
            (found["quantiles"][:, 0], low),
            (found["quantiles"][:, 1], high),
        ):
            assert np.abs((value - expected) / std).max() < CLOSE


def test_numpy_and_onnx_agree_on_heteroscedastic_noise(noisy, rows, tmp_path):
    """Two targets, each with a noise that depends on the row (L4)."""
    to_numpy(noisy, tmp_path / "small.npz")
    predictor = Predictor.load(tmp_path / "small.npz")
    found, _ = run(to_onnx(noisy), {"X": rows})
    mean, std = predictor.predict(rows, return_std=True)
    assert np.abs((found["mean"] - mean) / std).max() < CLOSE
    np.testing.assert_allclose(found["std"], std, rtol=CLOSE)
    assert (std.max(0) > 1.2 * std.min(0)).all()
    low, high = predictor.predict_interval(rows, 0.9)
    ends = found["quantiles"] - np.stack([low, high], axis=-1)
    assert np.abs(ends / std[..., None]).max() < CLOSE


@pytest.mark.parametrize("name", ["sampled", "with_columns"])
def test_draws_of_chains_and_column_scales_have_farriers_numbers(name, rows, request):
    """(P1), for a posterior of stored draws and for one with column scales (I2)."""
    model = request.getfixturevalue(name)
    mean, std = model.predict(rows, return_std=True)
    low, high = model.predict_interval(rows, level=0.9)
    found, _ = run(to_onnx(model), {"X": rows})
    ends = found["quantiles"] - np.column_stack([low, high])
    plain_mean, plain_std = to_numpy(model).predict(rows, return_std=True)
    for difference in (
        found["mean"] - mean,
        found["std"] - std,
        *ends.T,
        plain_mean - mean,
        plain_std - std,
    ):
        assert np.abs(difference / std).max() < CLOSE
    assert std.max() > 0


def test_chains_of_a_classifier_have_farriers_numbers(sampled_classifier, rows):
    p = sampled_classifier.predict_proba(rows)
    found, _ = run(to_onnx(sampled_classifier), {"X": rows})
    np.testing.assert_allclose(found["probabilities"], p, atol=CLOSE)
    np.testing.assert_array_equal(found["label"], sampled_classifier.predict(rows))
    assert p.min() < 0.3 < 0.7 < p.max()


def test_a_model_is_compacted_when_it_is_exported(whole, rows):
    """The exported network is that of `compact`, whether or not it was called."""
    compacted = whole.compact()
    exported, small = to_numpy(whole), to_numpy(compacted)
    (keep,) = compacted.compaction_.keep
    assert exported.arrays["hidden.0.bias"].shape[1] == keep.sum()
    assert exported.arrays.keys() == small.arrays.keys()
    for name, values in exported.arrays.items():
        np.testing.assert_array_equal(values, small.arrays[name])
    std = whole.predict(rows, return_std=True)[1]
    error = (exported.predict(rows) - whole.predict(rows)) / std
    assert np.sqrt(np.mean(error**2)) < 0.01


def test_a_matrix_posterior_is_refused_before_anything_is_computed(matrix):
    for convert in (to_onnx, to_numpy):
        with pytest.raises(ValueError, match="exported, and this one has 'matrix'"):
            convert(matrix)
    assert not matrix.model_.is_computed("compaction")


def test_numpy_has_farriers_numbers(regressor, noisy, classifier, rows):
    for model in (regressor, noisy):
        mean, std = model.predict(rows, return_std=True)
        found = to_numpy(model).predict(rows, return_std=True)
        np.testing.assert_allclose((found[0] - mean) / std, 0, atol=1e-5)
        np.testing.assert_allclose(found[1], std, rtol=1e-5)
    mean, std = regressor.predict(rows, return_std=True)
    for end, expected in zip(
        to_numpy(regressor).predict_interval(rows, 0.8),
        regressor.predict_interval(rows, 0.8),
        strict=True,
    ):
        np.testing.assert_allclose((end - expected) / std, 0, atol=1e-5)
    p = to_numpy(classifier).predict_proba(rows)
    np.testing.assert_allclose(p, classifier.predict_proba(rows), atol=1e-5)


def test_classification_has_farriers_numbers(classifier, rows):
    found, _ = run(to_onnx(classifier), {"X": rows})
    p = classifier.predict_proba(rows)
    np.testing.assert_allclose(found["probabilities"], p, atol=CLOSE)
    np.testing.assert_array_equal(found["label"], classifier.predict(rows))


def test_one_row_and_fewer_draws(regressor, rows):
    few = to_onnx(regressor, draws=4)
    assert len(few.SerializeToString()) < len(to_onnx(regressor).SerializeToString())
    whole, _ = run(few, {"X": rows})
    one, _ = run(few, {"X": rows[:1]})
    # The network computes in single precision, in units of about one deviation.
    assert np.abs((one["mean"] - whole["mean"][:1]) / whole["std"][:1]).max() < 1e-6


def test_bad_requests_are_refused(regressor):
    with pytest.raises(ValueError, match=r"between 0 and 1, got \(0\.5, 1\)"):
        to_onnx(regressor, quantiles=(0.5, 1))
    for convert in (to_onnx, to_numpy):
        with pytest.raises(ValueError, match="`draws` must be at least 2, got 1"):
            convert(regressor, draws=1)
    with pytest.raises(TypeError, match="got list"):
        to_onnx([])
    with pytest.raises(ValueError, match="not fitted"):
        to_onnx(HorseshoeRegressor())
