"""A table learned piece by piece: what `Columns.learn` finds, from one pass over rows.

Kinds, levels, missing values and moments are those of all rows. What takes the place of
a missing value is the median of a sample; of a category, the most frequent of all.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..units import Moments, Sample
from .columns import BOOLEANS, ERROR, KINDS, Column, Series, checked_levels, kind_of
from .files import Frame, TableError, imported
from .table import (
    MOST_CLASSES,
    REGRESSION,
    Columns,
    check_missing,
    check_targets,
    checked_task,
    column_of,
    task_of,
)

SAMPLE = 2**16  # rows
TEXTS = "texts"  # a category, or a boolean: which is known at the end


@dataclass(frozen=True)
class Learned:
    """What one pass over the rows of a table has found.

    Parameters
    ----------
    why
        Why the task is what it is, in a sentence.
    x, y
        Of the features and of the target; the latter None where it holds labels.
    labels
        How many rows have each label; none in a regression.
    sample
        Some of the rows.
    described
        As `describe` does.
    """

    columns: Columns
    why: str
    x: Moments
    y: Moments | None
    labels: dict[Any, float]
    sample: Frame
    described: list[dict[str, Any]]


class Seen:
    """What the pieces of one column have shown so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows = 0
        self.missing = 0
        self.first_missing = -1  # its row
        self.kind: str | None = None
        self.is_bool = False  # by its type
        self.whole = True  # numbers without fractions
        self.moments: Moments | None = None  # of numbers and dates
        # How often each value came; None when they are more than any use could be.
        self.values: Counter | None = Counter()

    @property
    def known(self) -> int:
        """Rows that have a value."""
        return self.rows - self.missing

    def add(self, values: Series) -> None:
        """One more piece."""
        missing = values.isna().to_numpy(bool)
        if missing.any() and not self.missing:
            self.first_missing = int(values.index[missing.argmax()])
        self.rows += len(values)
        self.missing += int(missing.sum())
        known = values[~missing]
        if len(known):
            self._look(known)
            self._count(known)

    def _look(self, known: Series) -> None:
        """The kind, as far as it can be told, and the moments of numbers and dates."""
        if self.kind == TEXTS:
            return
        kind = kind_of(known)
        self.is_bool = imported()[0].api.types.is_bool_dtype(known.dtype)
        kind = kind if kind in ("number", "date") else TEXTS
        self.kind = kind if self.kind in (None, kind) else TEXTS
        if self.kind == TEXTS:
            self.moments = None
            return
        none = np.zeros(len(known), bool)
        parts = KINDS[kind].encode(Column(self.name, kind), known, none)
        found = np.column_stack([*parts])
        if kind == "number":
            large = np.abs(found) >= 2**53
            self.whole &= bool((found == np.floor(found)).all() and not large.any())
        new = Moments.of(found)
        self.moments = new if self.moments is None else self.moments.joined(new)

    def _count(self, known: Series) -> None:
        """How often each value comes: numbers as such, all others as text."""
        if self.values is None:
            return
        pandas, _ = imported()
        number, found = pandas.factorize(known)
        numeric = pandas.api.types.is_numeric_dtype(known.dtype)
        if numeric and not self.is_bool:
            names = np.asarray(found, float).tolist()
        else:
            names = [str(value).strip() for value in found]
        for name, count in zip(names, np.bincount(number).tolist(), strict=True):
            self.values[name] += count
        if len(self.values) > MOST_CLASSES:
            self.values = None

    # -- what it comes to ----------------------------------------------------------

    def found_kind(self) -> str:
        """The kind, from all rows."""
        if self.kind != TEXTS:
            return str(self.kind)
        folded = {value.casefold() for value in self.values or ()}
        return "boolean" if self.is_bool or folded in BOOLEANS else "category"

    @property
    def distinct(self) -> int:
        """Different values, as far as they were counted."""
        if self.values is None:
            return MOST_CLASSES + 1
        if self.kind == "number":
            return len({float(value) for value in self.values})
        return len(self.values)

    def column(self, sample: Series, *, missing: str) -> Column:
        """The kind, levels and fill that suit the column."""
        if not self.known:
            raise TableError(
                f"Column {self.name!r} has no values at all: leave it out with "
                f"`--drop {self.name}`."
            )
        kind = self.found_kind()
        column = Column(self.name, kind, self._levels(kind))
        if missing == ERROR:
            return column
        return dataclasses.replace(
            column, fill=self._fill(column, sample.dropna()), indicator=self.missing > 0
        )

    def _levels(self, kind: str) -> tuple[str, ...]:
        if self.kind != TEXTS:
            return ()
        if self.values is None:
            raise TableError(
                f"Column {self.name!r} has more than {MOST_CLASSES} different texts: "
                f"leave it out with `--drop {self.name}`."
            )
        if kind == "category":
            return checked_levels(self.name, [*self.values], self.known)
        pandas, _ = imported()
        return KINDS[kind].levels(pandas.Series([*self.values]))

    def _fill(self, column: Column, known: Series) -> float | str:
        if self.kind == TEXTS:
            return max(self._level_counts(column), key=lambda pair: pair[1])[0]
        if not len(known):
            assert self.moments is not None
            return float(self.moments.mean[0])
        return KINDS[column.kind].typical(column, known)

    def _level_counts(self, column: Column) -> list[tuple[str, int]]:
        """How often each level came; the case of letters is none in a boolean."""
        assert self.values is not None
        if column.kind == "category":
            return [*self.values.items()]
        counts = Counter()
        for value, count in self.values.items():
            counts[value.casefold()] += count
        return [(level, counts[level.casefold()]) for level in column.levels]

    def features(self, column: Column) -> Moments:
        """Moments of the features that the column becomes, over all rows."""
        known = self.moments
        if known is None:
            counts = dict(self._level_counts(column))
            levels = column.levels[1:] if column.kind == "boolean" else column.levels
            shares = np.array([counts[level] for level in levels]) / self.known
            known = Moments.of_shares(shares, float(self.known))
        if not self.missing:
            return known
        pandas, _ = imported()
        empty = pandas.Series([None], name=self.name, dtype=object)
        parts = KINDS[column.kind].encode(column, empty, np.ones(1, bool))
        filled = np.concatenate([*parts]).astype(float)
        whole = known.joined(Moments.constant(filled, float(self.missing)))
        told = Moments.of_shares(np.array([self.missing / self.rows]), float(self.rows))
        return Moments.beside([whole, told])

    def described(self, column: Column, sample: Series) -> dict[str, Any]:
        """Name, kind, and how many values are missing and different."""
        distinct = self.distinct if self.values is not None else sample.nunique()
        counts = {"missing": self.missing, "distinct": int(distinct)}
        return {"name": self.name, "kind": column.kind} | counts


def learn(
    frames: Iterable[Frame],
    target: str,
    *,
    missing: str = ERROR,
    task: str | None = None,
    where: Callable[[int], str] = lambda row: f"row {row + 1}",
) -> Learned:
    """What a table asks for whose rows come in pieces; see `Columns.learn`.

    Parameters
    ----------
    where
        A row in words, from its label.
    """
    check_missing(missing)
    seen: dict[str, Seen] = {}
    sample = Sample(SAMPLE)
    for frame in frames:
        column_of(frame, target)
        for name in frame.columns:
            seen.setdefault(name, Seen(name)).add(frame[name])
        sample.add(frame.index.to_numpy(), frame)
    if not seen:
        raise TableError("The table has no rows.")
    pandas, _ = imported()
    rows = pandas.concat(sample.parts)
    y = seen.pop(target)
    if not seen:
        raise TableError(
            f"The table has no column besides the target {target!r}: there is "
            "nothing to predict it from."
        )
    if missing == ERROR:
        _refuse_missing([*seen.values()], where)
    columns, why, labels = _target(y, task, where)
    inputs = [s.column(rows[s.name], missing=missing) for s in seen.values()]
    pairs = [*zip(seen.values(), inputs, strict=True)]
    return Learned(
        dataclasses.replace(columns, columns=tuple(inputs)),
        why,
        Moments.beside([s.features(column) for s, column in pairs]),
        y.moments if columns.task == REGRESSION else None,
        labels,
        rows,
        [s.described(column, rows[s.name]) for s, column in pairs],
    )


def _target(
    y: Seen, task: str | None, where: Callable[[int], str]
) -> tuple[Columns, str, dict[Any, float]]:
    """Columns without inputs, why the task is theirs, and how often each label came."""
    if not y.known:
        raise TableError(f"The target {y.name!r} has no values at all.")
    if y.missing:
        raise TableError(
            f"The target {y.name!r} has no value in {where(y.first_missing)} and "
            f"{y.missing} rows in all: leave those rows out."
        )
    kind = y.found_kind()
    found, why = task_of(y.name, kind, y.distinct, y.known, whole=y.whole)
    task = found if task is None else checked_task(task)
    if y.values is None and task == REGRESSION:
        why = f"{y.name!r} has more than {MOST_CLASSES} different numbers."
    if task == REGRESSION:
        if kind != "number":
            raise TableError(f"The target {y.name!r} of a regression holds no numbers.")
        return Columns((), y.name, task), why, {}
    if y.values is None or (kind == "number" and not y.whole):
        raise TableError(
            f"The labels of the target {y.name!r} must be at most {MOST_CLASSES} texts "
            "or whole numbers."
        )
    number = kind == "number"
    labels: dict[Any, float] = {}
    for value, count in y.values.items():
        label = int(float(value)) if number else value
        labels[label] = labels.get(label, 0.0) + count
    check_targets(y.name, task, sorted(labels), y.known)
    return Columns((), y.name, task, "number" if number else "text"), why, labels


def _refuse_missing(seen: list[Seen], where: Callable[[int], str]) -> None:
    some = [s for s in seen if 0 < s.missing < s.rows]
    if some:
        named = [f"{s.name!r} ({s.missing}, {where(s.first_missing)})" for s in some]
        raise TableError(
            f"Values are missing in {', '.join(named)}, of {some[0].rows} rows; how "
            "many and the first of them are named. Fill them in, leave the columns out "
            "with `--drop`, or have them filled in with `--missing impute`."
        )
