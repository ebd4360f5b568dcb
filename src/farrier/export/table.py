"""The encoding of a raw table as an ONNX graph, with one input for each column.

Numbers are double, dates are days since 1970-01-01 in double, categories and booleans
are strings. A missing value is NaN or the empty string. A graph cannot raise errors: a
value that is missing where none was missing in training, and a boolean that is neither
of its two values, give NaN.
"""

import math
from collections.abc import Callable

import numpy as np

from ..tables.columns import EPOCH_WEEKDAY, Column
from ..tables.table import Columns
from .graph import DOUBLE, FLOAT, ML, STRING, Graph

MISSING, UNKNOWN = -2, -1  # codes of strings that are not levels


def table_features(graph: Graph, columns: Columns) -> str:
    """One input for each column, and the matrix rows x features computed from them."""
    parts = []
    for column in columns.columns:
        is_string = column.kind in ("category", "boolean")
        values = graph.input(column.name, STRING if is_string else DOUBLE, "rows")
        parts += _ENCODERS[column.kind](graph, column, values)
    return graph.add("Concat", *parts, axis=1)


def _as_column(graph: Graph, values: str) -> str:
    return graph.add("Unsqueeze", values, graph.axes(1))


def _double(graph: Graph, value: float | str) -> str:
    return graph.constant(value, np.float64)


def _number(graph: Graph, column: Column, values: str) -> list[str]:
    filled, missing = _filled(graph, column, values)
    return [filled, *_indicator(graph, column, missing)]


def _filled(graph: Graph, column: Column, values: str) -> tuple[str, str]:
    """Values with missing ones replaced, and a mask of those that were missing."""
    values = _as_column(graph, values)
    missing = graph.add("IsNaN", values)
    if column.fill is None:
        return values, missing
    return graph.add("Where", missing, _double(graph, column.fill), values), missing


def _indicator(graph: Graph, column: Column, missing: str) -> list[str]:
    return [graph.cast(missing, DOUBLE)] if column.indicator else []


def _date(graph: Graph, column: Column, values: str) -> list[str]:
    days, missing = _filled(graph, column, values)
    whole = graph.add("Floor", days)
    day_of_year = _day_of_year(graph, whole)
    weekday = graph.add("Add", whole, _double(graph, EPOCH_WEEKDAY))
    weeks = graph.add("Floor", graph.add("Div", weekday, _double(graph, 7)))
    weekday = graph.add("Sub", weekday, graph.add("Mul", weeks, _double(graph, 7)))
    parts = [days]
    for value, period in ((day_of_year, 365.25), (weekday, 7)):
        angle = graph.add("Mul", value, _double(graph, 2 * math.pi / period))
        angle = graph.cast(angle, FLOAT)
        parts += [graph.cast(graph.add(op, angle), DOUBLE) for op in ("Sin", "Cos")]
    return [*parts, *_indicator(graph, column, missing)]


def _day_of_year(graph: Graph, day: str) -> str:
    """Day of the year from whole days since 1970-01-01; 1 is the first of January.

    The year is estimated from its mean length, and corrected by one where the day is
    before the first day of that year or after its last.
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
    graph: Graph, column: Column, values: str, codes: dict[str, int]
) -> tuple[str, str]:
    """Integer codes of strings, missing ones filled in, and a mask of the missing."""
    codes = {"": MISSING} | codes
    code = graph.add(
        "LabelEncoder",
        values,
        domain=ML,
        keys_strings=[*codes],
        values_int64s=[*codes.values()],
        default_int64=UNKNOWN,
    )
    code = _as_column(graph, code)
    missing = graph.add("Equal", code, graph.constant(MISSING, np.int64))
    if column.fill is None:
        return code, missing
    fill = graph.constant(codes[str(column.fill)], np.int64)
    return graph.add("Where", missing, fill, code), missing


def _nan_up_to(graph: Graph, code: str, largest: int, features: str) -> str:
    """The features, with NaN where a code is `largest` or less."""
    invalid = graph.add("LessOrEqual", code, graph.constant(largest, np.int64))
    return graph.add("Where", invalid, _double(graph, math.nan), features)


def _category(graph: Graph, column: Column, values: str) -> list[str]:
    numbers = {level: number for number, level in enumerate(column.levels)}
    code, missing = _codes(graph, column, values, numbers)
    each = graph.constant(np.arange(len(numbers))[None], np.int64)
    one_hot = graph.cast(graph.add("Equal", code, each), DOUBLE)
    one_hot = _nan_up_to(graph, code, MISSING, one_hot)
    return [one_hot, *_indicator(graph, column, missing)]


def _boolean(graph: Graph, column: Column, values: str) -> list[str]:
    numbers = {}
    for number, level in enumerate(column.levels):
        for text in (level, level.lower(), level.upper(), level.capitalize()):
            numbers[text] = number
    code, missing = _codes(graph, column, values, numbers)
    feature = _nan_up_to(graph, code, UNKNOWN, graph.cast(code, DOUBLE))
    return [feature, *_indicator(graph, column, missing)]


_ENCODERS: dict[str, Callable[[Graph, Column, str], list[str]]] = {
    "number": _number,
    "boolean": _boolean,
    "category": _category,
    "date": _date,
}
