"""What every source of rows has: pieces that are read, and statistics of all rows."""

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..tables.files import imported
from ..tables.table import MOST_CLASSES
from ..units import Moments, Sample

CHECK_ROWS = 10_000  # sampled rows, for node scores and the check of compaction

# Inputs, targets or None, and weights.
Raw: TypeAlias = tuple[np.ndarray, np.ndarray | None, np.ndarray]


@dataclass(frozen=True)
class Statistics:
    """Statistics of all rows that a fit needs.

    Parameters
    ----------
    x, y
        Moments of inputs and targets; `y` is None if the targets are not numbers.
    labels
        Total weight of each distinct target; empty if there are more than a thousand.
    sample
        Inputs and targets of a random sample of rows.
    """

    x: Moments
    y: Moments | None
    labels: dict[Any, float]
    sample: tuple[np.ndarray, np.ndarray]


class RowSource(abc.ABC):
    """Rows that are read piece by piece: of a file, of arrays, of batches."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @property
    @abc.abstractmethod
    def pieces(self) -> Sequence[int]:
        """Numbers of the first rows of the pieces that are read fastest as a whole."""

    @property
    def names(self) -> list[str] | None:
        """Names of the inputs, or None."""
        return None

    @abc.abstractmethod
    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`. Safe to be called by many threads."""

    @abc.abstractmethod
    def mark(self) -> str:
        """A string that identifies the rows, computed without reading all of them."""

    def where(self, row: int) -> str:
        """The position of a row, for error messages."""
        return f"row {row + 1}"

    def statistics(self) -> Statistics:
        """What a fit has to know of the rows, from one pass over all of them."""
        return gathered(self.parts(), self.where)

    def parts(self) -> Iterator[tuple[int, Raw]]:
        """All pieces in order, each with the number of its first row."""
        for first, last in ranges(self.pieces, self.rows):
            yield first, self.read(first, last)

    def inputs(self) -> Iterator[Any]:
        """Inputs of all pieces in order; data frames if the inputs have names."""
        for _, (x, _, _) in self.parts():
            if self.names is not None:
                x = imported()[0].DataFrame(x, columns=self.names)
            yield x


def ranges(firsts: Sequence[int], rows: int) -> Iterator[tuple[int, int]]:
    """The first row of each piece, and the row after its last one."""
    return zip(firsts, [*firsts[1:], rows], strict=True)


def gathered(
    parts: Iterable[tuple[int, Raw]], where: Callable[[int], str]
) -> Statistics:
    """Statistics of pieces that come one after the other; all values are checked."""
    x_moments = y_moments = None
    labels: dict[Any, float] | None = {}
    samples = Sample(CHECK_ROWS), Sample(CHECK_ROWS)
    for first, (x, y, weight) in parts:
        if y is None:
            raise ValueError("A fit needs targets, and these rows have none.")
        check_finite(x, "X", first, where)
        check_finite(weight, "`sample_weight`", first, where)
        if (weight < 0).any():
            row = where(first + int((weight < 0).argmax()))
            raise ValueError(f"`sample_weight` must not be negative, as in {row}.")
        new = Moments.of(x, weight)
        x_moments = new if x_moments is None else x_moments.joined(new)
        if y.dtype.kind in "iuf":
            check_finite(y, "y", first, where)
            new = Moments.of(y.reshape(len(y), -1), weight)
            y_moments = new if y_moments is None else y_moments.joined(new)
        labels = _counted(labels, y, weight)
        numbers = np.arange(first, first + len(x))
        for sample, values in zip(samples, (x, y), strict=True):
            sample.add(numbers, values)
    if x_moments is None:
        raise ValueError("There are no rows.")
    if not x_moments.weight:
        raise ValueError("`sample_weight` is zero for all rows: nothing can be fitted.")
    x, y = (np.concatenate(sample.parts) for sample in samples)
    return Statistics(x_moments, y_moments, labels or {}, (x, y))


def check_finite(
    values: np.ndarray, what: str, first: int, where: Callable[[int], str]
) -> None:
    """Refuse NaN and infinite values; the message names the first one."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *column = np.argwhere(~np.isfinite(values))[0].tolist()
        position = f"column {column[0]} of {where(first + row)}"
        raise ValueError(
            f"{what} holds {values[row, *column]} in "
            f"{position if column else where(first + row)}, where a finite number is "
            "needed."
        )


def _counted(
    labels: dict[Any, float] | None, y: np.ndarray, weight: np.ndarray
) -> dict[Any, float] | None:
    """Total weights of distinct labels; None if there are too many, or many targets."""
    if labels is None or y.ndim > 1:
        return None
    found, number = np.unique(y, return_inverse=True)
    if len(found) > MOST_CLASSES:
        return None
    for label, total in zip(found.tolist(), np.bincount(number, weight), strict=True):
        labels[label] = labels.get(label, 0.0) + float(total)
    return labels if len(labels) <= MOST_CLASSES else None
