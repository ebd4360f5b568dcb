"""How near exported networks are to farrier's own predictions, and how large.

Concrete (one UCI split, default settings) and digits (scikit-learn's, one split). Run
from a checkout: python -m benchmarks.export --data ../shared/data. Distances of means,
standard deviations and interval ends are in predictive standard deviations. Figures of
the export of moments, which farrier no longer has, stay in the results.
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
from experiments.settings import arguments
from farrier import HorseshoeClassifier, HorseshoeRegressor, TrainingWarning
from farrier.export import to_numpy, to_onnx

RESULT = Path(__file__).parent / "results" / "export.json"
DRAWS = "draws"
REMOVED = "moments"  # an export that farrier no longer has


def files(model, X: Any, folder: Path) -> tuple[dict, dict, Any]:
    """Sizes of both files, outputs of ONNX, and the NumPy predictor."""
    to_onnx(model, folder / "m.onnx")
    numpy_model = to_numpy(model, folder / "m.npz")
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    names = [output.name for output in session.get_outputs()]
    found = {
        "onnx_kB": round((folder / "m.onnx").stat().st_size / 1000),
        "npz_kB": round((folder / "m.npz").stat().st_size / 1000),
    }
    return (
        found,
        dict(zip(names, session.run(None, {"X": X}), strict=True)),
        numpy_model,
    )


def concrete(data: Path, folder: Path) -> dict:
    """A regression: exported and compacted estimator, on the test rows."""
    X, y, splits = datasets.uci("concrete", data)
    train, test = splits[0]
    X_test, y_test = X[test], y[test]
    small = HorseshoeRegressor((50,), random_state=0).fit(X[train], y[train]).compact()
    mean, std = small.predict(X_test, return_std=True)
    ends = np.column_stack(small.predict_interval(X_test, 0.9))
    found: dict = {"compaction": str(small.compaction_), "rows": len(X_test)}
    found["rmse"] = float(np.sqrt(np.mean((mean - y_test) ** 2)))
    figures, out, plain = files(small, X_test, folder)
    away = {
        "mean": (out["mean"] - mean) / std,
        "std": (out["std"] - std) / std,
        "quantiles": (out["quantiles"] - ends) / std[:, None],
        "numpy_mean": (plain.predict(X_test) - mean) / std,
    }
    for what, distance in away.items():
        figures[f"{what}_largest"] = float(np.abs(distance).max())
        figures[f"{what}_rms"] = float(np.sqrt(np.mean(distance**2)))
    figures["rmse"] = float(np.sqrt(np.mean((out["mean"] - y_test) ** 2)))
    inside = (out["quantiles"][:, 0] < y_test) & (y_test < out["quantiles"][:, 1])
    figures["coverage_90"] = float(inside.mean())
    return found | {DRAWS: figures}


def digits(folder: Path) -> dict:
    """A classification of 8 x 8 pixels."""
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=0
    )
    model = HorseshoeClassifier((50,), random_state=0, **arguments({"max_iter": 1_000}))
    small = model.fit(X_train, y_train).compact()
    p = small.predict_proba(X_test)
    found: dict = {"compaction": str(small.compaction_), "rows": len(X_test)}
    found["error"] = float(np.mean(small.predict(X_test) != y_test))
    figures, out, plain = files(small, X_test, folder)
    figures["probabilities_largest"] = float(np.abs(out["probabilities"] - p).max())
    numpy_p = np.abs(plain.predict_proba(X_test) - p)
    figures["numpy_probabilities_largest"] = float(numpy_p.max())
    figures["error"] = float(np.mean(out["label"] != y_test))
    return found | {DRAWS: figures}


def page(found: dict) -> str:
    """The figures as two tables."""
    lines = [
        *heading("concrete", found),
        row("RMSE", "{:.3f}", found["concrete"], "rmse", own="rmse"),
        row("mean, largest distance", "{:.1g}", found["concrete"], "mean_largest"),
        row("mean, rms", "{:.1g}", found["concrete"], "mean_rms"),
        row("std, largest distance", "{:.1g}", found["concrete"], "std_largest"),
        row("quantiles, largest", "{:.1g}", found["concrete"], "quantiles_largest"),
        row("quantiles, rms", "{:.1g}", found["concrete"], "quantiles_rms"),
        row("ONNX file, kB", "{}", found["concrete"], "onnx_kB"),
        row("NumPy file, kB", "{}", found["concrete"], "npz_kB"),
        "",
        *heading("digits", found),
        row("error", "{:.1%}", found["digits"], "error", own="error"),
        row(
            "probabilities, largest distance",
            "{:.1g}",
            found["digits"],
            "probabilities_largest",
        ),
        row("ONNX file, kB", "{}", found["digits"], "onnx_kB"),
        row("NumPy file, kB", "{}", found["digits"], "npz_kB"),
    ]
    return "\n".join(lines) + "\n"


def methods(part: dict) -> list[str]:
    """The exports of which a part has figures."""
    return [method for method in (DRAWS, REMOVED) if method in part]


def heading(name: str, found: dict) -> list[str]:
    """The first two lines of a table."""
    columns = [name, "farrier", *methods(found[name])]
    return [f"| {' | '.join(columns)} |", "| --- |" + " ---: |" * (len(columns) - 1)]


def row(text: str, form: str, part: dict, name: str, own: str | None = None) -> str:
    """One line of a table: farrier's own figure, if there is one, and each method's."""
    cells = [form.format(part[own]) if own else ""]
    cells += [form.format(part[method][name]) for method in methods(part)]
    return f"| {text} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and write benchmarks/results/export.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    warnings.simplefilter("ignore", TrainingWarning)
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "versions": {n: version(n) for n in ("farrier", "onnx", "onnxruntime")},
            "concrete": concrete(data, Path(folder)),
            "digits": digits(Path(folder)),
        }
    before = json.loads(RESULT.read_text("utf-8")) if RESULT.is_file() else {}
    for name in ("concrete", "digits"):
        if REMOVED in before.get(name, {}):
            found[name][REMOVED] = before[name][REMOVED]
    RESULT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    RESULT.with_suffix(".md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
