"""A whole table: its columns, its target, and the task that this asks for."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from .columns import (
    ERROR,
    IMPUTE,
    Column,
    Series,
    checked_fields,
    column_from_json,
    kind_of,
    numbers,
    refuse,
    row_of,
    texts,
)
from .files import Frame, TableError, imported

REGRESSION, CLASSIFICATION = "regression", "classification"
TASKS = (REGRESSION, CLASSIFICATION)
FEW_CLASSES = 10  # so many whole numbers, or fewer, are labels
MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Columns:
    """How a table becomes features, and what its target is.

    Parameters
    ----------
    target
        Name of the column that is predicted; None: the table has none.
    task
        "regression" or "classification".
    labels
        Of a classification, "number" where labels are whole numbers, else "text".
    """

    columns: tuple[Column, ...]
    target: str | None
    task: str = REGRESSION
    labels: str = "text"

    @classmethod
    def learn(
        cls, frame: Frame, target: str, *, missing: str = ERROR, task: str | None = None
    ) -> Self:
        """What a table of training data asks for.

        Parameters
        ----------
        missing
            "error": missing values are refused, all columns that have some named at
            once. "impute": they are filled in, and a feature tells of them.
        task
            By default the one that `find_task` finds.
        """
        check_missing(missing)
        frame = as_frame(frame)
        y = column_of(frame, target)
        task, _ = find_task(y) if task is None else (checked_task(task), "")
        inputs = [name for name in frame.columns if name != target]
        if not inputs:
            raise TableError(
                f"The table has no column besides the target {target!r}: there is "
                "nothing to predict it from."
            )
        if missing == ERROR:
            _refuse_missing(frame[inputs])
        columns = tuple(Column.learn(frame[n], missing=missing) for n in inputs)
        number = task == CLASSIFICATION and _whole(y)
        found = cls(columns, target, task, "number" if number else "text")
        y = found.targets(frame)
        check_targets(target, task, np.unique(y).tolist(), len(y))
        return found

    @property
    def feature_names(self) -> list[str]:
        """One name for each feature."""
        return [name for column in self.columns for name in column.feature_names]

    def features(self, frame: Frame) -> np.ndarray:
        """Rows x features, from a table with these columns in any order, and others."""
        frame = as_frame(frame)
        self.check(frame)
        return np.concatenate(
            [c.features(frame[c.name]) for c in self.columns], axis=1, dtype=np.float64
        )

    def check(self, frame: Frame) -> None:
        """Refuse a table that lacks a column."""
        absent = [c.name for c in self.columns if c.name not in frame.columns]
        if absent:
            raise TableError(_absent(absent, frame))

    def extra(self, frame: Frame) -> list[str]:
        """Columns of a table that are neither inputs nor the target."""
        known = {column.name for column in self.columns} | {self.target}
        return [str(name) for name in frame.columns if name not in known]

    def targets(self, frame: Frame) -> np.ndarray:
        """The target column: numbers, or labels."""
        if self.target is None:
            raise TableError("The model does not know which column its target is.")
        values = column_of(as_frame(frame), self.target)
        missing = values.isna().to_numpy(bool)
        if missing.any():
            raise TableError(
                f"The target {self.target!r} has no value in {row_of(values, missing)} "
                f"and {missing.sum()} rows in all: leave those rows out."
            )
        if self.task == REGRESSION:
            return numbers(values)
        if self.labels == "text":
            return texts(values).to_numpy(str)
        found = numbers(values)
        refuse(values, found != np.floor(found), "where a whole number is needed")
        return found.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the header of a file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """What `to_json` gave; a ValueError if it is anything else."""
        fields = checked_fields(cls, found, _IS_RIGHT)
        columns = tuple(column_from_json(c) for c in fields.pop("columns"))
        if not columns or len({c.name for c in columns}) < len(columns):
            raise ValueError("The columns of the table are none, or not all different.")
        if fields["task"] not in TASKS or fields["labels"] not in ("text", "number"):
            raise ValueError(f"The task of the table is broken: {fields!r:.100}.")
        return cls(columns, **fields)


def find_task(y: Series) -> tuple[str, str]:
    """The task that a target column asks for, and why, in a sentence."""
    name, known = str(y.name), y.dropna()
    if not len(known):
        raise TableError(f"The target {name!r} has no values at all.")
    kind, distinct = kind_of(known), known.nunique()
    if kind == "number":
        distinct = len(np.unique(numbers(known)))
    return task_of(name, kind, distinct, len(known), whole=_whole(known))


def task_of(
    name: str, kind: str, distinct: int, rows: int, *, whole: bool
) -> tuple[str, str]:
    """The task, and why, from what a target holds."""
    if kind == "date":
        raise TableError(f"The target {name!r} holds dates; numbers or labels can be.")
    if kind == "boolean":
        return CLASSIFICATION, f"{name!r} holds two labels."
    if kind == "category":
        return CLASSIFICATION, f"{name!r} holds {distinct} labels that are texts."
    if distinct == 2:
        return CLASSIFICATION, f"{name!r} has two different values."
    if distinct <= FEW_CLASSES and 2 * distinct <= rows and whole:
        return (
            CLASSIFICATION,
            f"{name!r} has {distinct} different values, all whole numbers.",
        )
    return REGRESSION, f"{name!r} has {distinct} different numbers."


def describe(columns: Columns, frame: Frame) -> list[dict[str, Any]]:
    """For each column: name, kind, and how many values are missing and different."""
    found = []
    for column in columns.columns:
        values = frame[column.name]
        counts = {"missing": int(values.isna().sum()), "distinct": values.nunique()}
        found.append({"name": column.name, "kind": column.kind} | counts)
    return found


def as_frame(table: Any) -> Frame:
    """A pandas frame, also of a polars one, with texts as names."""
    pandas, _ = imported()
    if not isinstance(table, pandas.DataFrame) and hasattr(table, "to_pandas"):
        table = table.to_pandas()
    if not isinstance(table, pandas.DataFrame):
        raise TableError(
            f"A table must be a pandas or polars frame, got {type(table).__name__}."
        )
    names = [str(name) for name in table.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"The table has more than one column {twice!r}.")
    return table if names == [*table.columns] else table.set_axis(names, axis=1)


def column_of(frame: Frame, name: str) -> Series:
    """One column, which must be there."""
    if name not in frame.columns:
        raise TableError(_absent([name], frame))
    return frame[name]


def _absent(names: list[str], frame: Frame) -> str:
    there = ", ".join(repr(str(name)) for name in frame.columns[:20])
    dots = ", ..." if len(frame.columns) > 20 else ""
    hint = ""
    if any(_is_number(str(name)) for name in frame.columns):
        hint = " Does the first line of the file hold the names of the columns?"
    return (
        f"The table has no column {', '.join(map(repr, names))}. It has "
        f"{there}{dots}.{hint}"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(values: Series) -> bool:
    known = values.dropna()
    if kind_of(known) != "number":
        return False
    found = numbers(known)
    return bool((found == np.floor(found)).all() and (np.abs(found) < 2**53).all())


def _refuse_missing(frame: Frame) -> None:
    counts = frame.isna().sum()
    some = [f"{name!r} ({n})" for name, n in counts.items() if 0 < n < len(frame)]
    if some:
        raise TableError(
            f"Values are missing in {', '.join(some)}, of {len(frame)} rows. Fill them "
            "in, leave the columns out with `--drop`, or have them filled in with "
            "`--missing impute`."
        )


def check_targets(name: str, task: str, labels: list, rows: int) -> None:
    """Refuse targets that there is nothing to learn from."""
    if rows < 2 and task == REGRESSION:
        raise TableError("The table has one row only; a fit needs at least two.")
    if task == REGRESSION:
        return
    if len(labels) < 2:
        raise TableError(
            f"The target {name!r} has the same label in all rows: {labels[0]!r}."
        )
    if len(labels) > MOST_CLASSES or len(labels) > max(2, rows / 2):
        raise TableError(
            f"The target {name!r} has {len(labels)} different labels in {rows} rows: "
            "there is too little to learn each from."
        )


def check_missing(missing: str) -> None:
    """Refuse what is no way to treat missing values."""
    if missing not in (ERROR, IMPUTE):
        raise TableError(f"`missing` must be {ERROR!r} or {IMPUTE!r}, got {missing!r}.")


def checked_task(task: str) -> str:
    """The task, if there is such a one."""
    if task not in TASKS:
        raise TableError(f"`task` must be one of {[*TASKS]}, got {task!r}.")
    return task


_IS_RIGHT: dict[str, Callable[[Any], bool]] = {
    "columns": lambda v: isinstance(v, list),
    "target": lambda v: v is None or isinstance(v, str),
    "task": lambda v: isinstance(v, str),
    "labels": lambda v: isinstance(v, str),
}
