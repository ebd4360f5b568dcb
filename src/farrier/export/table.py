"""What is done to a raw table, as a graph: one input for each column.

Numbers are double, dates days since 1970-01-01 in double, categories and booleans text.
A missing value is NaN, or the empty text. Where it may not be missing, and where a
boolean is neither of its two texts, what comes out is NaN: a graph raises no errors.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .graph import DOUBLE, FLOAT, ML, STRING, Graph

_UNIX_EPOCH_WEEKDAY = 3.0  # 1970-01-01 was a Thursday; Monday is 0
MISSING, UNKNOWN = -2, -1  # codes of texts that are no level


def table_features(graph: Graph, columns: dict[str, Any]) -> str:
    """Inputs for all columns, and rows x features made of them."""
    parts = []
    for column in columns["columns"]:
        text = column["kind"] in ("category", "boolean")
        values = graph.input(column["name"], STRING if text else DOUBLE, "rows")
        parts += _KINDS[column["kind"]](graph, column, values)
    return graph.add("Concat", *parts, axis=1)


def _column(graph: Graph, values: str) -> str:
    return graph.add("Unsqueeze", values, graph.axes(1))


def _double(graph: Graph, value: float) -> str:
    return graph.constant(value, np.float64)


def _numbers(graph: Graph, column: dict[str, Any], values: str) -> list[str]:
    found, missing = _filled(graph, column, values)
    return [found, *_indicator(graph, column, missing)]


def _filled(graph: Graph, column: dict[str, Any], values: str) -> tuple[str, str]:
    """Values with the missing ones replaced, and which they were."""
    values = _column(graph, values)
    missing = graph.add("IsNaN", values)
    if column["fill"] is None:
        return values, missing
    return graph.add("Where", missing, _double(graph, column["fill"]), values), missing


def _indicator(graph: Graph, column: dict[str, Any], missing: str) -> list[str]:
    return [graph.cast(missing, DOUBLE)] if column["indicator"] else []


def _dates(graph: Graph, column: dict[str, Any], values: str) -> list[str]:
    days, missing = _filled(graph, column, values)
    whole = graph.add("Floor", days)
    of_year = _day_of_year(graph, whole)
    weekday = graph.add("Add", whole, _double(graph, _UNIX_EPOCH_WEEKDAY))
    weeks = graph.add("Floor", graph.add("Div", weekday, _double(graph, 7)))
    weekday = graph.add("Sub", weekday, graph.add("Mul", weeks, _double(graph, 7)))
    parts = [days]
    for value, circle in ((of_year, 365.25), (weekday, 7)):
        angle = graph.add("Mul", value, _double(graph, 2 * math.pi / circle))
        angle = graph.cast(angle, FLOAT)
        parts += [graph.cast(graph.add(op, angle), DOUBLE) for op in ("Sin", "Cos")]
    return [*parts, *_indicator(graph, column, missing)]


def _day_of_year(graph: Graph, day: str) -> str:
    """1 for the first of January, of whole days since 1970-01-01.

    The year is guessed by its mean length and moved by one where the guess is not
    between its own first day and that of the year after it.
    """

    def combine(op: str, a: str, b: float) -> str:
        return graph.add(op, a, _double(graph, b))

    def leaps(year: str, first: int, every: int) -> str:
        return graph.add("Floor", combine("Div", combine("Sub", year, first), every))

    def start(year: str) -> str:
        first = combine("Mul", combine("Sub", year, 1970), 365)
        first = graph.add("Add", first, leaps(year, 1969, 4))
        first = graph.add("Sub", first, leaps(year, 1901, 100))
        return graph.add("Add", first, leaps(year, 1601, 400))

    year = graph.add("Floor", combine("Div", day, 365.2425))
    year = combine("Add", year, 1970)
    early = graph.add("Less", day, start(year))
    year = graph.add("Sub", year, graph.cast(early, DOUBLE))
    late = graph.add("GreaterOrEqual", day, start(combine("Add", year, 1)))
    year = graph.add("Add", year, graph.cast(late, DOUBLE))
    return combine("Add", graph.add("Sub", day, start(year)), 1)


def _codes(
    graph: Graph, column: dict[str, Any], values: str, codes: dict[str, int]
) -> tuple[str, str]:
    """A number for each text, the missing one filled in; and which were missing."""
    codes = {"": MISSING} | codes
    code = graph.add(
        "LabelEncoder",
        values,
        domain=ML,
        keys_strings=[*codes],
        values_int64s=[*codes.values()],
        default_int64=UNKNOWN,
    )
    code = _column(graph, code)
    missing = graph.add("Equal", code, graph.constant(MISSING, np.int64))
    if column["fill"] is None:
        return code, missing
    fill = graph.constant(codes[column["fill"]], np.int64)
    return graph.add("Where", missing, fill, code), missing


def _spoilt(graph: Graph, code: str, worst: int, found: str) -> str:
    """NaN where a code is `worst` or less, and `found` elsewhere."""
    bad = graph.add("LessOrEqual", code, graph.constant(worst, np.int64))
    return graph.add("Where", bad, _double(graph, math.nan), found)


def _levels(graph: Graph, column: dict[str, Any], values: str) -> list[str]:
    numbers = {level: number for number, level in enumerate(column["levels"])}
    code, missing = _codes(graph, column, values, numbers)
    each = graph.constant(np.arange(len(numbers))[None], np.int64)
    found = graph.cast(graph.add("Equal", code, each), DOUBLE)
    found = _spoilt(graph, code, MISSING, found)
    return [found, *_indicator(graph, column, missing)]


def _booleans(graph: Graph, column: dict[str, Any], values: str) -> list[str]:
    numbers = {}
    for number, level in enumerate(column["levels"]):
        for text in (level, level.lower(), level.upper(), level.capitalize()):
            numbers[text] = number
    code, missing = _codes(graph, column, values, numbers)
    found = _spoilt(graph, code, UNKNOWN, graph.cast(code, DOUBLE))
    return [found, *_indicator(graph, column, missing)]


_KINDS: dict[str, Callable[[Graph, dict[str, Any], str], list[str]]] = {
    "number": _numbers,
    "boolean": _booleans,
    "category": _levels,
    "date": _dates,
}
