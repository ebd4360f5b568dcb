"""The rows of an experiment and their file, `rows.json`."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]

DIGITS = 4  # significant digits of the numbers in rows.json
# Marks of rows whose settings had another spelling, and what they are now.
RENAMED = Path(__file__).with_name("renamed_settings.json")


def read_rows(path: Path) -> list[Row]:
    """The rows of a rows.json, each with the name and the warnings of its part."""
    return rows_of(json.loads(path.read_text(encoding="utf-8"))["parts"])


def rows_of(parts: dict[str, Row]) -> list[Row]:
    """The rows of some parts, each with the name and the warnings of its part."""
    return [
        {"part": name, "warnings": made["warnings"], **row}
        for name, made in parts.items()
        for row in made["rows"]
    ]


def stored_parts(path: Path) -> dict[str, Row]:
    """All parts of a rows.json, with the marks that their settings have now."""
    if not path.is_file():
        return {}
    renamed = json.loads(RENAMED.read_text(encoding="utf-8"))
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    return {
        name: made | {"settings": renamed.get(made["settings"], made["settings"])}
        for name, made in parts.items()
    }


def stored_kind(path: Path) -> str | None:
    """The kind of settings of a rows.json; None where there is no file."""
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8"))["kind"]


def rows_text(kind: str, parts: dict[str, Row]) -> str:
    """JSON with one row a line."""
    blocks = []
    for name, made in parts.items():
        about = {key: value for key, value in made.items() if key != "rows"}
        rows = ",\n".join(json.dumps(row) for row in made["rows"])
        head = f'{json.dumps(name)}: {json.dumps(about)[:-1]}, "rows": ['
        blocks.append(f"{head}\n{rows}\n]}}")
    inner = ",\n".join(blocks)
    return f'{{"kind": {json.dumps(kind)}, "parts": {{\n{inner}\n}}}}\n'


def plain(value: Any) -> Any:
    """The value as JSON can hold it: lists, four digits; None where not finite."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if value is None or isinstance(value, str):
        return value
    raise TypeError(
        "A row must hold numbers, texts, lists and dictionaries; this is a "
        f"{type(value).__name__}: {value!r}. Convert it in the part that returns it."
    )


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: a file is old or new, never half."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
