"""Rows as the network sees them: merged, weighted, standardised."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
CONSTANT = 1e-12  # of the mean: an sd that is less is rounding


@dataclass(frozen=True)
class Standardiser:
    """Columns with their weighted mean taken off, in units of their weighted sd.

    A column that is constant, up to rounding, becomes 0. Its scale is its own size, or
    1 where that is less.
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def create(cls, values: np.ndarray, weight: np.ndarray) -> Self:
        """From rows and their weights."""
        share = weight / weight.sum()
        mean = share @ values
        # By the largest deviation first: squares of huge values would overflow.
        deviation = values - mean
        largest = np.abs(deviation).max(axis=0)
        unit = np.where(largest > 0, largest, 1)
        scale = unit * np.sqrt(share @ (deviation / unit) ** 2)
        constant = scale <= CONSTANT * np.abs(mean)
        # The mean of equal values is theirs only up to rounding: 16384 off for 1e20.
        mean = np.where((values == values[0]).all(axis=0), values[0], mean)
        return cls(mean, np.where(constant, np.maximum(1, np.abs(mean)), scale))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values in standard units."""
        return (values - self.mean) / self.scale

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Values in their own units."""
        return values * self.scale + self.mean


def as_it_is(columns: int) -> Standardiser:
    """What leaves so many columns as they are."""
    return Standardiser(np.zeros(columns), np.ones(columns))


@dataclass(frozen=True)
class Moments:
    """Weight, ends, means and standard deviations of columns, of some of the rows.

    The mean is kept as what it is over the least value: in that, no digits are lost to
    the size of the values.
    """

    weight: float
    low: np.ndarray
    high: np.ndarray
    offset: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """From rows, and how many each stands for; all 0 where none has a weight."""
        weight = np.ones(len(values)) if weight is None else weight
        used = weight > 0
        if not used.all():
            values, weight = values[used], weight[used]
        if not len(values):
            return cls.constant(np.zeros(values.shape[1]), 0.0)
        columns = np.ascontiguousarray(values.T, np.float64)
        low, high = columns.min(axis=1), columns.max(axis=1)
        total = float(weight.sum())
        unit = np.where(high > low, high - low, 1)
        # In units of the range: squares of huge values would overflow.
        shifted = (columns - low[:, None]) / unit[:, None]
        mean = (shifted * (weight / total)).sum(axis=1)
        square = ((shifted - mean[:, None]) ** 2 * (weight / total)).sum(axis=1)
        return cls(total, low, high, unit * mean, unit * np.sqrt(square))

    @classmethod
    def constant(cls, values: np.ndarray, weight: float) -> Self:
        """Of equal rows."""
        zero = np.zeros(len(values))
        return cls(weight, values, values, zero, zero)

    @classmethod
    def of_shares(cls, shares: np.ndarray, weight: float) -> Self:
        """Of columns that are 1 in these shares of the rows, else 0."""
        low, high = (shares >= 1).astype(float), (shares > 0).astype(float)
        return cls(weight, low, high, shares - low, np.sqrt(shares * (1 - shares)))

    @classmethod
    def beside(cls, parts: "list[Moments]") -> Self:
        """Of the columns of all parts, which have the same rows."""
        names = ("low", "high", "offset", "sd")
        columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in names}
        return cls(parts[0].weight, **columns)

    @property
    def mean(self) -> np.ndarray:
        """Weighted means."""
        return self.low + self.offset

    def joined(self, other: Self) -> Self:
        """Of the rows of both (D1)."""
        if not (self.weight and other.weight):
            return self if self.weight else other
        weight = self.weight + other.weight
        a, b = self.weight / weight, other.weight / weight
        gap = (other.low - self.low) + (other.offset - self.offset)
        low = np.minimum(self.low, other.low)
        within = np.hypot(math.sqrt(a) * self.sd, math.sqrt(b) * other.sd)
        return type(self)(
            weight,
            low,
            np.maximum(self.high, other.high),
            (self.low - low) + self.offset + b * gap,
            np.hypot(within, math.sqrt(a * b) * gap),
        )

    def standardiser(self) -> Standardiser:
        """What brings the columns to mean 0 and standard deviation 1."""
        mean = self.mean
        constant = self.sd <= CONSTANT * np.abs(mean)
        scale = np.where(constant, np.maximum(1, np.abs(mean)), self.sd)
        return Standardiser(mean, scale)


def merge_rows(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct rows, in an order by their contents alone, with their weights added up.

    Rows of weight 0 go. A data set then gives the same fit in any order, and a weight
    of 2 the same as a row that is there twice.
    """
    used = weight > 0
    x, y, weight = x[used], y[used], weight[used]
    code = _row_codes(np.column_stack([x, y]))
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    same = (x == x[first][group]).all() and (y == y[first][group]).all()
    if not same:  # two rows share a code by chance: leave all as they are
        return x, y, weight
    return x[first], y[first], np.bincount(group, weight)


def _row_codes(table: np.ndarray) -> np.ndarray:
    """One 64-bit number for each row; equal rows get equal numbers."""
    code = np.zeros(len(table), np.uint64)
    for column in np.ascontiguousarray(table.T, np.float64):
        mixed = (code ^ (column + 0.0).view(np.uint64)) * GOLDEN
        code = mixed ^ (mixed >> np.uint64(29))
    return code


# -- rows that come piece by piece -------------------------------------------------


def lots(rows: np.ndarray, seed: int) -> np.ndarray:
    """A number from 0 to 1 for each row number, the same whatever the other rows."""
    mixed = rows.astype(np.uint64) * GOLDEN
    with np.errstate(over="ignore"):
        mixed += np.uint64(seed % 2**32) << np.uint64(32)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))) * 2.0**-64


class Sample:
    """At most `size` of rows that come piece by piece, each as likely as another."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed
        self._limit = 1.0
        self._kept: list[tuple[np.ndarray, Any]] = []  # lots, and the rows of them

    def add(self, numbers: np.ndarray, rows: Any) -> None:
        """One more piece: an array or a frame, and the numbers of its rows."""
        self._keep(lots(numbers, self.seed), rows)
        if sum(len(lot) for lot, _ in self._kept) > 2 * self.size:
            self._cut()

    @property
    def parts(self) -> list[Any]:
        """What is kept, in the order in which it came."""
        self._cut()
        return [rows for _, rows in self._kept]

    def _keep(self, lot: np.ndarray, rows: Any) -> None:
        chosen = lot <= self._limit
        if chosen.any():
            self._kept.append((lot[chosen], rows[chosen]))

    def _cut(self) -> None:
        every = np.concatenate([lot for lot, _ in self._kept])
        if len(every) > self.size:
            self._limit = float(np.partition(every, self.size - 1)[self.size - 1])
            before, self._kept = self._kept, []
            for lot, rows in before:
                self._keep(lot, rows)
