"""The columns of a whole table: its features and its target."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from ..jsonable import from_json, to_json
from .columns import (
    ERROR,
    IMPUTE,
    Column,
    Series,
    as_numbers,
    as_strings,
    first_row,
    refuse,
)
from .files import Frame, TableError, imported

Task: TypeAlias = Literal["regression", "classification"]
REGRESSION: Literal["regression"] = "regression"
CLASSIFICATION: Literal["classification"] = "classification"
TASKS: tuple[Task, Task] = (REGRESSION, CLASSIFICATION)
MOST_CLASSES = 1_000


@dataclass(frozen=True)
class Columns:
    """The columns of a table: how inputs are encoded, and which column is the target.

    Parameters
    ----------
    columns : tuple of Column
        The input columns, in the order of their features.
    target : str or None
        Name of the column to predict, or None for a table without one.
    task : {"regression", "classification"}, default="regression"
        What is predicted.
    labels : {"text", "number"}, default="text"
        Type of the labels of a classification: "number" for whole numbers.

    Attributes
    ----------
    feature_names : list of str
        One name for each feature.
    """

    columns: tuple[Column, ...]
    target: str | None
    task: Task = REGRESSION
    labels: Literal["text", "number"] = "text"

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"Columns need different names, got {names!r:.100}.")

    @property
    def feature_names(self) -> list[str]:
        """One name for each feature."""
        return [name for column in self.columns for name in column.feature_names]

    def features(self, frame: Frame) -> np.ndarray:
        """Encode the input columns of a table.

        Parameters
        ----------
        frame : pandas or polars data frame
            A table with these columns, in any order. Other columns are ignored.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            The features.
        """
        frame = as_frame(frame)
        self.check(frame)
        return np.concatenate(
            [c.features(frame[c.name]) for c in self.columns], axis=1, dtype=np.float64
        )

    def check(self, frame: Frame) -> None:
        """Raise a TableError if the table lacks an input column."""
        absent = [c.name for c in self.columns if c.name not in frame.columns]
        if absent:
            raise TableError(_absent(absent, frame))

    def extra(self, frame: Frame) -> list[str]:
        """Names of the columns of a table that are neither inputs nor the target."""
        known = {column.name for column in self.columns} | {self.target}
        return [str(name) for name in frame.columns if name not in known]

    def targets(self, frame: Frame) -> np.ndarray:
        """Read the target column of a table.

        Parameters
        ----------
        frame : pandas or polars data frame
            A table with the target column.

        Returns
        -------
        ndarray of shape (n_rows,)
            Numbers for a regression, labels for a classification.
        """
        if self.target is None:
            raise TableError("The model does not know which column its target is.")
        values = column_of(as_frame(frame), self.target)
        missing = values.isna().to_numpy(bool)
        if missing.any():
            raise missing_targets(
                self.target, first_row(values, missing), int(missing.sum())
            )
        if self.task == REGRESSION:
            return as_numbers(values)
        if self.labels == "text":
            return as_strings(values).to_numpy(str)
        numbers = as_numbers(values)
        refuse(values, numbers != np.floor(numbers), "where a whole number is needed")
        return numbers.astype(np.int64)

    def to_json(self) -> dict[str, Any]:
        """JSON values for the header of a file."""
        return to_json(self)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Undo `to_json`; a ValueError names the field that is wrong."""
        return from_json(cls, value)


def as_frame(table: Any) -> Frame:
    """A pandas data frame, also from a polars one, with strings as column names."""
    pandas, _ = imported()
    if not isinstance(table, pandas.DataFrame) and hasattr(table, "to_pandas"):
        table = table.to_pandas()
    if not isinstance(table, pandas.DataFrame):
        raise TableError(
            "A table must be a pandas or polars data frame, got "
            f"{type(table).__name__}."
        )
    names = [str(name) for name in table.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise TableError(f"The table has more than one column {twice!r}.")
    return table if names == [*table.columns] else table.set_axis(names, axis=1)


def column_of(frame: Frame, name: str) -> Series:
    """One column; a TableError if the table does not have it."""
    if name not in frame.columns:
        raise TableError(_absent([name], frame))
    return frame[name]


def _absent(names: list[str], frame: Frame) -> str:
    known = ", ".join(repr(str(name)) for name in frame.columns[:20])
    dots = ", ..." if len(frame.columns) > 20 else ""
    hint = ""
    if any(_is_number(str(name)) for name in frame.columns):
        hint = " Does the first line of the file hold the names of the columns?"
    return (
        f"The table has no column {', '.join(map(repr, names))}. It has "
        f"{known}{dots}.{hint}"
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- checks ------------------------------------------------------------------------


def missing_targets(name: str, row: str, count: int) -> TableError:
    """The error about a target that is missing in some rows."""
    return TableError(
        f"The target {name!r} has no value in {row} and {count} rows in all: leave "
        "those rows out."
    )


def check_targets(name: str, task: str, labels: Sequence[Any], rows: int) -> None:
    """Refuse too few rows, and labels from which nothing can be learned."""
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
            "too few rows to learn each label."
        )


def check_missing(missing: str) -> None:
    """Refuse an unknown treatment of missing values."""
    if missing not in (ERROR, IMPUTE):
        raise TableError(f"`missing` must be {ERROR!r} or {IMPUTE!r}, got {missing!r}.")


def checked_task(task: str) -> Task:
    """The task; a TableError if it is unknown."""
    for known in TASKS:
        if task == known:
            return known
    raise TableError(f"`task` must be one of {[*TASKS]}, got {task!r}.")
