"""`farrier inspect`: what a model file contains."""

from typing import Any

from ._shared import Json, ModelFile, scores_line, show

SCORES = 10  # of each layer, in the text


def inspect(model: ModelFile, as_json: Json = False) -> None:
    """Show what a model is: task, columns, nodes, ELBO, settings, version."""
    from .. import persist
    from ..estimators.files import load
    from ..tables.model import parts_of
    from ..views.describe import describe_estimator

    header, _ = persist.read(model, "model")
    loaded: Any = load(model)
    estimator, columns = parts_of(loaded)
    names = () if columns is None else columns.feature_names
    description = describe_estimator(estimator, names)
    values = {
        "model": str(model),
        "format": header["format"],
        "version": header["version"],
        **description.to_json(),
    }
    if columns is not None:
        values |= {
            "target": columns.target,
            "about": loaded.about,
            "columns": columns.to_json()["columns"],
        }
    summary = description.summary()
    title = f"{model}: {summary.title}, written by farrier {header['version']}"
    settings = ", ".join(f"{n}={v!r}" for n, v in description.settings.items())
    lines = [title, *_table_lines(values), *summary.rows, *_more_lines(values)]
    show(values, [*lines, f"Settings: {settings}"], as_json=as_json)


def _table_lines(values: dict[str, Any]) -> list[str]:
    """The target and the columns of the table that the model was fitted to."""
    if "columns" not in values:
        return []
    columns = [f"  {_column_line(column)}" for column in values["columns"]]
    return [f"Target: {values['target']!r}", "Columns:", *columns]


def _more_lines(values: dict[str, Any]) -> list[str]:
    """Node scores, and the scores of held-out rows."""
    lines = []
    for number, scores in enumerate(values["node_scores"], start=1):
        shown = " ".join(f"{score:.3f}" for score in scores[:SCORES])
        lines.append(f"Largest node scores of hidden layer {number}: {shown}")
    if "holdout" in values.get("about", {}):
        lines.append(f"Held out: {scores_line(values['about']['holdout'])}")
    return lines


def _column_line(column: dict[str, Any]) -> str:
    text = f"{column['name']}: {column['kind']}"
    if column["levels"]:
        text += f" of {len(column['levels'])} levels"
    return text + ", may be missing" * (column["fill"] is not None)
