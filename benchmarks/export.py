"""How close exported networks are to farrier's predictions, and how large they are.

Concrete (one UCI split, default settings) and digits (scikit-learn's, one split). Run
from a checkout: python benchmarks/export.py --data ../shared/data. Distances of means,
standard deviations and interval ends are in predictive standard deviations.
"""

import argparse
import json
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from experiments import datasets
from farrier import HorseshoeClassifier, HorseshoeRegressor, TrainingWarning
from farrier.export import to_numpy, to_onnx

RESULT = Path(__file__).parent / "results" / "export.json"


def files(model, X: Any, folder: Path) -> tuple[dict, dict, Any]:
    """Sizes of both files, outputs of the ONNX file, and the NumPy predictor."""
    to_onnx(model, folder / "m.onnx")
    numpy_model = to_numpy(model, folder / "m.npz")
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    results = {
        "onnx_kB": round((folder / "m.onnx").stat().st_size / 1000),
        "npz_kB": round((folder / "m.npz").stat().st_size / 1000),
    }
    return (
        results,
        dict(zip(names, session.run(None, {"X": X}), strict=True)),
        numpy_model,
    )


def concrete(data: Path, folder: Path) -> dict:
    """A regression: the exported files against the compacted estimator."""
    X, y, splits = datasets.uci("concrete", data)
    train, test = splits[0]
    X_test, y_test = X[test], y[test]
    small = HorseshoeRegressor((50,), random_state=0).fit(X[train], y[train]).compact()
    mean, std = small.predict(X_test, return_std=True)
    ends = np.column_stack(small.predict_interval(X_test, 0.9))
    results: dict = {"compaction": str(small.compaction_), "rows": len(X_test)}
    results["rmse"] = float(np.sqrt(np.mean((mean - y_test) ** 2)))
    figures, out, predictor = files(small, X_test, folder)
    distances = {
        "mean": (out["mean"] - mean) / std,
        "std": (out["std"] - std) / std,
        "quantiles": (out["quantiles"] - ends) / std[:, None],
        "numpy_mean": (predictor.predict(X_test) - mean) / std,
    }
    for name, distance in distances.items():
        figures[f"{name}_largest"] = float(np.abs(distance).max())
        figures[f"{name}_rms"] = float(np.sqrt(np.mean(distance**2)))
    figures["rmse"] = float(np.sqrt(np.mean((out["mean"] - y_test) ** 2)))
    covered = (out["quantiles"][:, 0] < y_test) & (y_test < out["quantiles"][:, 1])
    figures["coverage_90"] = float(covered.mean())
    return results | {"draws": figures}


def digits(folder: Path) -> dict:
    """A classification of 8 x 8 pixels."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=0
    )
    model = HorseshoeClassifier((50,), random_state=0, max_iter=1_000)
    small = model.fit(X_train, y_train).compact()
    p = small.predict_proba(X_test)
    results: dict = {"compaction": str(small.compaction_), "rows": len(X_test)}
    results["error"] = float(np.mean(small.predict(X_test) != y_test))
    figures, out, predictor = files(small, X_test, folder)
    figures["probabilities_largest"] = float(np.abs(out["probabilities"] - p).max())
    numpy_p = np.abs(predictor.predict_proba(X_test) - p)
    figures["numpy_probabilities_largest"] = float(numpy_p.max())
    figures["error"] = float(np.mean(out["label"] != y_test))
    return results | {"draws": figures}


def page(results: dict) -> str:
    """The figures as two tables."""
    lines = [
        "| concrete | farrier | exported |",
        "| --- | ---: | ---: |",
        row("RMSE", "{:.3f}", results["concrete"], "rmse", farrier="rmse"),
        row("mean, largest distance", "{:.1g}", results["concrete"], "mean_largest"),
        row("mean, rms", "{:.1g}", results["concrete"], "mean_rms"),
        row("std, largest distance", "{:.1g}", results["concrete"], "std_largest"),
        row("quantiles, largest", "{:.1g}", results["concrete"], "quantiles_largest"),
        row("quantiles, rms", "{:.1g}", results["concrete"], "quantiles_rms"),
        row("ONNX file, kB", "{}", results["concrete"], "onnx_kB"),
        row("NumPy file, kB", "{}", results["concrete"], "npz_kB"),
        "",
        "| digits | farrier | exported |",
        "| --- | ---: | ---: |",
        row("error", "{:.1%}", results["digits"], "error", farrier="error"),
        row(
            "probabilities, largest distance",
            "{:.1g}",
            results["digits"],
            "probabilities_largest",
        ),
        row("ONNX file, kB", "{}", results["digits"], "onnx_kB"),
        row("NumPy file, kB", "{}", results["digits"], "npz_kB"),
    ]
    return "\n".join(lines) + "\n"


def row(text: str, form: str, part: dict, name: str, farrier: str | None = None) -> str:
    """One line of a table: farrier's figure, if there is one, and the files'."""
    cells = [form.format(part[farrier]) if farrier else ""]
    cells.append(form.format(part["draws"][name]))
    return f"| {text} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and write benchmarks/results/export.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    warnings.simplefilter("ignore", TrainingWarning)
    with tempfile.TemporaryDirectory() as folder:
        results = {
            "versions": {n: version(n) for n in ("farrier", "onnx", "onnxruntime")},
            "concrete": concrete(data, Path(folder)),
            "digits": digits(Path(folder)),
        }
    RESULT.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    RESULT.with_suffix(".md").write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
