"""Learn the columns of a table in one pass over its rows.

The rows may come as one data frame or in pieces, and the result is the same. Kinds,
levels, missing values and moments are those of all rows. Missing numbers and dates are
filled with the median of a sample of the rows, missing categories and booleans with
the most frequent level.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..units import Moments, Sample
from .columns import (
    BOOLEANS,
    ERROR,
    Column,
    Kind,
    Series,
    as_numbers,
    as_strings,
    first_label,
    kind_of,
)
from .files import Frame, TableError, imported
from .table import (
    CLASSIFICATION,
    MOST_CLASSES,
    REGRESSION,
    Columns,
    Task,
    as_frame,
    check_missing,
    check_targets,
    checked_task,
    column_of,
    missing_targets,
)

SAMPLE = 2**16  # rows
MOST_LEVELS = 200  # of a category, each of which is one feature
IDENTIFIERS = 20  # a column of more strings than this may identify the rows
FEW_CLASSES = 10  # at most this many whole numbers are labels by default


@dataclass(frozen=True)
class Learned:
    """What one pass over the rows of a table has learned.

    Parameters
    ----------
    columns : Columns
        The columns and the task.
    why : str
        A sentence that explains the choice of the task.
    x : Moments
        Moments of the features.
    y : Moments or None
        Moments of the target of a regression.
    labels : dict
        Number of rows for each label; empty for a regression.
    sample : data frame
        A sample of the rows.
    described : list of dict
        Name, kind, and number of missing and of distinct values of each input column.
    """

    columns: Columns
    why: str
    x: Moments
    y: Moments | None
    labels: dict[Any, float]
    sample: Frame
    described: list[dict[str, Any]]


class ColumnSummary:
    """Summary of one column, updated piece by piece."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.missing = 0
        self.first_missing = -1  # row label
        self.is_bool = False  # by its data type
        self.whole = True  # numbers without fractions
        self.moments: Moments | None = None  # features of a number or a date
        # Number of rows by string; None once there are too many different strings.
        self.values: Counter[str] | None = Counter()
        self._kinds: set[Kind] = set()  # of the pieces

    @property
    def known(self) -> int:
        """Number of rows that have a value."""
        return self.rows - self.missing

    def add(self, values: Series) -> None:
        """Update the summary with one more piece."""
        missing = values.isna().to_numpy(bool)
        if missing.any() and not self.missing:
            self.first_missing = first_label(values, missing)
        self.rows += len(values)
        self.missing += int(missing.sum())
        known = values[~missing]
        if len(known):
            self._add_kind(known)
            self._add_counts(known)

    def _add_kind(self, known: Series) -> None:
        """Update the kind, and the moments while it is a number or a date."""
        if self._is_text:
            return
        kind = kind_of(known)
        self.is_bool = imported()[0].api.types.is_bool_dtype(known.dtype)
        self._kinds.add(kind)
        if self._is_text:
            self.moments = None
            return
        features = Column(self.name, kind).features(known)
        if kind == "number":
            large = np.abs(features) >= 2**53
            fractions = features != np.floor(features)
            self.whole &= not (large.any() or fractions.any())
        new = Moments.of(features)
        self.moments = new if self.moments is None else self.moments.joined(new)

    def _add_counts(self, known: Series) -> None:
        if self.values is None:
            return
        pandas, _ = imported()
        code, distinct = pandas.factorize(known)
        strings = as_strings(pandas.Series(distinct))
        for value, count in zip(strings, np.bincount(code).tolist(), strict=True):
            self.values[value] += count
        if len(self.values) > MOST_CLASSES:
            self.values = None

    # -- results -------------------------------------------------------------------

    @property
    def _is_text(self) -> bool:
        """Whether it is a category or a boolean: known only after the last piece."""
        return bool(self._kinds) and self._kinds not in ({"number"}, {"date"})

    @property
    def kind(self) -> Kind:
        """The kind, from all pieces."""
        if not self._is_text:
            (kind,) = self._kinds
            return kind
        folded = {value.casefold() for value in self.values or ()}
        return "boolean" if self.is_bool or folded in BOOLEANS else "category"

    @property
    def distinct(self) -> int:
        """Number of distinct values; MOST_CLASSES + 1 stands for any larger number."""
        if self.values is None:
            return MOST_CLASSES + 1
        if self.kind == "number":
            return len({float(value) for value in self.values})
        return len(self.values)

    def column(self, sample: Series, *, missing: str) -> Column:
        """The encoding of the column; `sample` gives the median."""
        if not self.known:
            raise TableError(
                f"Column {self.name!r} has no values at all: leave it out with "
                f"`--drop {self.name}`."
            )
        column = Column(self.name, self.kind, self._levels())
        if missing == ERROR:
            return column
        return replace(
            column,
            fill=self._fill(column, sample.dropna()),
            indicator=self.missing > 0,
        )

    def _levels(self) -> tuple[str, ...]:
        if self.kind == "category":
            return _checked_levels(self.name, self.values, self.known)
        if self.kind != "boolean":
            return ()
        values = [*self.values] if self.values is not None else []
        first = {value.casefold(): value for value in reversed(values)}
        if len(first) == 1:  # all rows have the same value
            return ("False", "True")
        return tuple(first[folded] for folded in sorted(first))

    def _fill(self, column: Column, known: Series) -> float | str:
        if self._is_text:
            assert self.values is not None
            if column.kind == "category":
                return self.values.most_common(1)[0][0]
            features, rows = self._distinct_features(column)
            return column.levels[int(rows @ features[:, 0] > 0.5 * self.known)]
        if len(known):
            return float(np.median(column.features(known)[:, 0]))
        assert self.moments is not None
        return float(self.moments.mean[0])

    def _distinct_features(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Features of all distinct values of a text, and their numbers of rows."""
        assert self.values is not None
        pandas, _ = imported()
        values, rows = [*self.values], [*self.values.values()]
        if column.indicator:
            values, rows = [*values, None], [*rows, self.missing]
        series = pandas.Series(values, name=self.name, dtype=object)
        return column.features(series), np.array(rows, float)

    def feature_moments(self, column: Column) -> Moments:
        """Moments of the features of the column, over all rows."""
        if self.moments is None:
            features, rows = self._distinct_features(column)
            return Moments.of_shares(rows @ features / rows.sum(), float(rows.sum()))
        if not column.indicator:
            return self.moments
        pandas, _ = imported()
        empty = pandas.Series([None], name=self.name, dtype=object)
        filled = Moments.constant(column.features(empty)[0], float(self.missing))
        indicator = Moments.constant(np.zeros(1), float(self.known))
        return Moments.beside([self.moments, indicator]).joined(filled)

    def description(self, sample: Series) -> dict[str, Any]:
        """Name, kind, and number of missing and of distinct values."""
        distinct = sample.nunique() if self.values is None else self.distinct
        counts = {"missing": self.missing, "distinct": int(distinct)}
        return {"name": self.name, "kind": self.kind} | counts


def _checked_levels(
    name: str, values: Counter[str] | None, rows: int
) -> tuple[str, ...]:
    """The sorted levels of a category; an error if there are too many."""
    count = MOST_CLASSES + 1 if values is None else len(values)
    identifiers = count > max(IDENTIFIERS, rows / 2)
    if not identifiers and count <= MOST_LEVELS:
        return tuple(sorted(values or ()))
    number = f"more than {MOST_CLASSES}" if values is None else str(count)
    example = f", such as {min(values)[:40]!r}" if values else ""
    hint = " They seem to identify the rows." if identifiers else ""
    raise TableError(
        f"Column {name!r} has {number} different strings in {rows} rows{example}; at "
        f"most {MOST_LEVELS} can become features.{hint} Leave it out with "
        f"`--drop {name}`."
    )


# -- a whole table -----------------------------------------------------------------


def learn(
    frames: Iterable[Frame],
    target: str,
    *,
    missing: str = ERROR,
    task: str | None = None,
    where: Callable[[int], str] = lambda row: f"row {row + 1}",
    sample_rows: int | None = SAMPLE,
) -> Learned:
    """Learn the columns of a table from its rows.

    Parameters
    ----------
    frames : iterable of data frames
        The rows, in one or more pieces.
    target : str
        Name of the column to predict.
    missing : {"error", "impute"}, default="error"
        "error": missing values are an error, which names all columns that have some.
        "impute": they are filled in, and one more feature for each such column marks
        them.
    task : {"regression", "classification"}, optional
        What is predicted. Default: chosen from the target; see `find_task`.
    where : callable, optional
        A row in words, from its label; for error messages.
    sample_rows : int or None, default=65536
        Number of rows in the sample. None: all rows.

    Returns
    -------
    Learned
        The columns, and what a fit has to know about all rows.
    """
    check_missing(missing)
    chosen = None if task is None else checked_task(task)
    summaries, rows = _summaries(frames, target, sample_rows)
    y = summaries.pop(target)
    inputs = [*summaries.values()]
    if missing == ERROR:
        _refuse_missing(inputs, where)
    suitable, why = _task_of(y)
    if y.missing:
        raise missing_targets(y.name, where(y.first_missing), y.missing)
    chosen = chosen or suitable
    number = chosen == CLASSIFICATION and y.kind == "number" and y.whole
    labels = _labels(y, as_number=number) if chosen == CLASSIFICATION else {}
    check_targets(y.name, chosen, sorted(labels), y.known)
    columns = [s.column(rows[s.name], missing=missing) for s in inputs]
    pairs = [*zip(inputs, columns, strict=True)]
    return Learned(
        Columns(tuple(columns), target, chosen, "number" if number else "text"),
        why,
        Moments.beside([summary.feature_moments(column) for summary, column in pairs]),
        _target_moments(y, rows[target]) if chosen == REGRESSION else None,
        labels,
        rows,
        [summary.description(rows[summary.name]) for summary in inputs],
    )


def find_task(y: Series) -> tuple[Task, str]:
    """The task that suits a target column, and a sentence that explains why.

    Strings, booleans, two different values, and up to ten whole numbers of which each
    is frequent enough, are labels of a classification. Other numbers are the targets of
    a regression.
    """
    summary = ColumnSummary(str(y.name))
    summary.add(y)
    return _task_of(summary)


def _summaries(
    frames: Iterable[Frame], target: str, sample_rows: int | None
) -> tuple[dict[str, ColumnSummary], Frame]:
    """A summary of each column, and a sample of the rows."""
    summaries: dict[str, ColumnSummary] = {}
    sample, every, first = Sample(sample_rows or 0), [], 0
    for frame in map(as_frame, frames):
        column_of(frame, target)
        for name in frame.columns:
            summaries.setdefault(name, ColumnSummary(name)).add(frame[name])
        if sample_rows is None:
            every.append(frame)
        else:
            sample.add(_row_numbers(frame, first), frame)
        first += len(frame)
    if not first:
        raise TableError("The table has no rows.")
    if [*summaries] == [target]:
        raise TableError(
            f"The table has no column besides the target {target!r}: there is nothing "
            "to predict it from."
        )
    parts = every if sample_rows is None else sample.parts
    return summaries, parts[0] if len(parts) == 1 else imported()[0].concat(parts)


def _row_numbers(frame: Frame, first: int) -> np.ndarray:
    """Row labels if they are integers, else positions from `first` on."""
    labels = frame.index.to_numpy()
    return labels if labels.dtype.kind in "iu" else np.arange(first, first + len(frame))


def _refuse_missing(
    summaries: Sequence[ColumnSummary], where: Callable[[int], str]
) -> None:
    gaps = [s for s in summaries if 0 < s.missing < s.rows]
    if gaps:
        named = [f"{s.name!r} ({s.missing}, {where(s.first_missing)})" for s in gaps]
        raise TableError(
            f"Values are missing in {', '.join(named)}, of {gaps[0].rows} rows; in "
            "parentheses their number and the first row. Fill them in, leave the "
            "columns out with `--drop`, or have them filled in with "
            "`--missing impute`."
        )


# -- the target --------------------------------------------------------------------


def _task_of(y: ColumnSummary) -> tuple[Task, str]:
    """The task that suits the summary of a target, and why."""
    name = y.name
    if not y.known:
        raise TableError(f"The target {name!r} has no values at all.")
    distinct = y.distinct
    number = str(distinct) if y.values is not None else f"more than {MOST_CLASSES}"
    if y.kind == "date":
        raise TableError(
            f"The target {name!r} holds dates; it must hold numbers or labels."
        )
    if y.kind == "boolean":
        return CLASSIFICATION, f"{name!r} holds two labels."
    if y.kind == "category":
        return CLASSIFICATION, f"{name!r} holds {number} labels that are strings."
    if distinct == 2:
        return CLASSIFICATION, f"{name!r} has two different values."
    if distinct <= FEW_CLASSES and 2 * distinct <= y.known and y.whole:
        return (
            CLASSIFICATION,
            f"{name!r} has {distinct} different values, all whole numbers.",
        )
    return REGRESSION, f"{name!r} has {number} different numbers."


def _labels(y: ColumnSummary, *, as_number: bool) -> dict[Any, float]:
    """Number of rows of each label, as `Columns.targets` reads it."""
    if y.values is None:
        raise TableError(
            f"The target {y.name!r} has more than {MOST_CLASSES} different labels in "
            f"{y.known} rows: too few rows to learn each label."
        )
    labels: dict[Any, float] = {}
    for value, count in y.values.items():
        label = int(float(value)) if as_number else value
        labels[label] = labels.get(label, 0.0) + count
    return labels


def _target_moments(y: ColumnSummary, sample: Series) -> Moments:
    """Moments of the target of a regression."""
    if y.moments is not None:
        return y.moments
    if y.is_bool:  # counts as 0 and 1
        return y.feature_moments(Column(y.name, "boolean", ("False", "True")))
    as_numbers(sample)  # raises an error that names the value
    raise TableError(f"The target {y.name!r} of a regression must hold numbers.")
