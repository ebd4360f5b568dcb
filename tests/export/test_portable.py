"""Predictions by NumPy alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

from farrier.export import portable
from farrier.export.portable import Predictor, normal_cdf

RULE = """
import sys
import portable
for name in ("jax", "sklearn", "scipy", "farrier", "pandas"):
    assert name not in sys.modules, name
print(portable.Predictor.__name__)
"""


def test_the_file_alone_needs_numpy_alone():
    folder = str(Path(portable.__file__).parent)
    command = [sys.executable, "-I", "-c", f"import sys\nsys.path.append({folder!r})"]
    command[-1] += RULE
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "Predictor", run.stderr


def test_normal_cdf_agrees_with_scipy():
    z = np.linspace(-9.5, 9.5, 100_001)
    np.testing.assert_allclose(normal_cdf(z), stats.norm.cdf(z), atol=1e-12)
    tail = normal_cdf(np.array([-7.0]))
    assert tail == pytest.approx(stats.norm.cdf(-7.0), rel=1e-3)


@pytest.mark.parametrize("level", [0.03, 0.5, 0.9])
def test_the_quantile_of_a_mixture_agrees_with_a_root_by_scipy(level):
    """(P1), of three normals; and of a single one, in closed form."""
    loc, sd = np.array([-1.0, 0.5, 4.0]), np.array([0.3, 1.0, 2.0])
    cdf = lambda v: stats.norm.cdf(v, loc, sd).mean() - level
    expected = optimize.brentq(cdf, -20, 20, xtol=1e-12)
    found = portable._quantile(loc[:, None, None], sd[:, None, None] ** 2, level)
    assert found[0, 0] == pytest.approx(expected, abs=1e-7)
    one = portable._quantile(np.full((1, 1, 1), 2.0), np.full((1, 1, 1), 9.0), level)
    assert one[0, 0] == pytest.approx(stats.norm.ppf(level, 2, 3), abs=1e-7)


def tiny(**header):
    """A network of one node: y = max(2 x + 1, 0), with noise of variance 0.25."""
    arrays = {
        "hidden.0.kernel": np.full((2, 1, 1), 2.0),
        "hidden.0.bias": np.ones((2, 1)),
        "output.kernel": np.ones((2, 1, 1)),
        "output.bias": np.zeros((2, 1)),
        "output.kernel_variance": np.zeros((2, 1, 1)),
        "output.bias_variance": np.full((2, 1), 0.25),
        "x.mean": np.zeros(1),
        "x.scale": np.ones(1),
        "y.mean": np.array([10.0]),
        "y.scale": np.array([100.0]),
    }
    plain = {
        "version": "0",
        "task": "regression",
        "activation": "relu",
        "layers": 1,
        "features": None,
        "targets": None,
    }
    return Predictor(plain | header, arrays)


def test_a_network_done_by_hand(tmp_path, monkeypatch):
    tiny().save(tmp_path / "tiny.npz")
    model = Predictor.load(tmp_path / "tiny.npz")
    X = np.array([[-3.0], [0.0], [1.0]])
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, [10, 110, 310])
    np.testing.assert_allclose(std, 50)
    low, high = model.predict_interval(X, level=0.9)
    np.testing.assert_allclose(high - mean, 50 * stats.norm.ppf(0.95), rtol=1e-9)
    np.testing.assert_allclose(mean - low, 50 * stats.norm.ppf(0.95), rtol=1e-9)
    monkeypatch.setattr(portable, "CHUNK_VALUES", 2)  # one row at a time
    np.testing.assert_array_equal(model.predict(X), mean)


def test_what_cannot_be_predicted_is_said():
    model = tiny()
    with pytest.raises(ValueError, match=r"1 features, got an array of shape \(3,\)"):
        model.predict([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="NaN"):
        model.predict([[np.nan]])
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5"):
        model.predict_interval([[1.0]], level=1.5)
    with pytest.raises(AttributeError, match="this is a model for regression"):
        model.predict_proba([[1.0]])


def test_columns_are_found_by_their_names():
    model = tiny(features=["size"])
    X = {"other": [9.0, 9.0], "size": [0.0, 1.0]}
    np.testing.assert_allclose(model.predict(X), [110, 310])
    np.testing.assert_allclose(model.predict(pd.DataFrame(X)), [110, 310])
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [110, 310])
    with pytest.raises(ValueError, match=r"no column 'size'\. It needs 'size'"):
        model.predict({"other": [1.0]})


def test_damaged_and_foreign_files_are_refused(tmp_path):
    tiny().save(tmp_path / "tiny.npz")
    whole = (tmp_path / "tiny.npz").read_bytes()
    for name, content in {
        "cut": whole[:200],
        "text": b"no archive",
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="damaged or is not"):
            Predictor.load(tmp_path / name)
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="damaged or is not"):
        Predictor.load(tmp_path / "other.npz")
    tiny(format=99).save(tmp_path / "later.npz")
    with pytest.raises(ValueError, match="has format 99, and this file reads format 1"):
        Predictor.load(tmp_path / "later.npz")
    assert [p.name for p in tmp_path.glob("*.npz.*")] == []
