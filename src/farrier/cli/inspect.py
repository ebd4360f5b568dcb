"""`farrier inspect`: what a model file holds."""

from pathlib import Path
from typing import Any

from ._shared import Json, ModelFile, sampling_of, scores_line, show

SCORES = 10  # of each layer, in the text


def inspect(model: ModelFile, as_json: Json = False) -> None:
    """Say what a model is: task, columns, nodes, bound, settings, versions."""
    found = _found(model)
    show(found, _lines(found), as_json=as_json)


def _found(path: Path) -> dict[str, Any]:
    from .. import persist
    from ..estimators import TableModel, load
    from ..estimators.summary import inputs_line

    header, _ = persist.read(path, "model")
    model = load(path)
    estimator = model.estimator if isinstance(model, TableModel) else model
    history, rows = estimator.history_, float(estimator._rows_seen)
    last = {name: float(v[-1]) / rows for name, v in history.terms.items() if len(v)}
    found = {
        "model": str(path),
        "format": header["format"],
        "version": header["version"],
        "class": type(estimator).__name__,
        "rows": rows,
        "features": estimator.n_features_in_,
        "widths": estimator.widths_,
        "of": estimator._built_widths,
        "width_interval_90": estimator.width_interval(0.9),
        "compacted": hasattr(estimator, "compaction_"),
        "compaction": str(estimator._compacted()),
        "node_scores": [
            sorted(s.tolist(), reverse=True) for s in estimator.node_scores_
        ],
        "bound_per_row": float(history.bound[-1]) / rows if last else None,
        "terms_per_row": last,
        "status": str(history.status),
        "passes": estimator.n_iter_,
        "seconds": history.seconds,
        "sampling": sampling_of(estimator),
        "settings": estimator.get_params(),
    }
    if estimator.input_horseshoe:
        found |= {
            "features_on": estimator.features_on_,
            "feature_scores": estimator.feature_scores_,
            "inputs": inputs_line(estimator),
        }
    if not isinstance(model, TableModel):
        return found
    table = {"task": model.task, "target": model.columns.target, "about": model.about}
    return found | table | {"columns": model.columns.to_json()["columns"]}


def _lines(found: dict[str, Any]) -> list[str]:
    lines = [
        f"{found['model']}: {found['class']}, written by farrier {found['version']}"
    ]
    if "task" in found:
        lines.append(f"Task: {found['task']} of {found['target']!r}")
        lines += [f"  {_column_line(column)}" for column in found["columns"]]
    lines.append(f"Fitted to {found['rows']:.0f} rows of {found['features']} features")
    if "inputs" in found:
        lines.append(f"Inputs: {found['inputs']}")
    lines += _node_lines(found)
    if found["terms_per_row"]:
        bound, status = found["bound_per_row"], found["status"]
        lines.append(f"Bound: {bound:.4f} nats a row ({status})")
        lines += [f"  {name}: {v:.4f}" for name, v in found["terms_per_row"].items()]
    if found["sampling"]:
        lines.append(f"Sampled: {found['sampling']['text']}")
    if "holdout" in found.get("about", {}):
        lines.append(f"Held out: {scores_line(found['about']['holdout'])}")
    settings = ", ".join(f"{name}={v!r}" for name, v in found["settings"].items())
    return [*lines, f"Settings: {settings}"]


def _node_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    pairs = zip(found["widths"], found["of"], found["width_interval_90"], strict=True)
    for number, (on, of, (low, high)) in enumerate(pairs, start=1):
        scores = found["node_scores"][number - 1][:SCORES]
        lines += [
            f"Hidden layer {number}: {on} of {of} nodes on (90 %: {low} to {high})",
            f"  largest scores: {' '.join(f'{score:.3f}' for score in scores)}",
        ]
    word = "Compacted" if found["compacted"] else "If compacted"
    return [*lines, f"{word}: {found['compaction']}"]


def _column_line(column: dict[str, Any]) -> str:
    text = f"{column['name']}: {column['kind']}"
    if column["levels"]:
        text += f" of {len(column['levels'])} levels"
    return text + ", may be missing" * (column["fill"] is not None)
