"""Units of the rows: means and standard deviations of columns, equal rows merged.

The network is trained on columns with mean 0 and standard deviation 1. Rows in memory
are standardised at once; rows that come piece by piece are summarised by the `Moments`
of each piece, which are combined exactly up to rounding (D1).
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
CONSTANT = 1e-12  # an sd below this share of the mean is rounding error


def mean_and_sd(
    values: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and standard deviation of each column.

    Deviations are divided by the largest one first: squares of huge values overflow.
    """
    share = weight / weight.sum()
    mean = share @ values
    deviation = values - mean
    largest = np.abs(deviation).max(axis=0)
    unit = np.where(largest > 0, largest, 1)
    return mean, unit * np.sqrt(share @ (deviation / unit) ** 2)


@dataclass(frozen=True)
class Standardiser:
    """Converts columns to weighted mean 0 and weighted standard deviation 1.

    A column that is constant, up to rounding, becomes 0. Its scale is its absolute
    value, but at least 1.
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def create(cls, values: np.ndarray, weight: np.ndarray) -> Self:
        """The standardiser of these rows and weights."""
        mean, sd = mean_and_sd(values, weight)
        constant = sd <= CONSTANT * np.abs(mean)
        # The mean of equal values differs from them by rounding: by 16384 for 1e20.
        mean = np.where((values == values[0]).all(axis=0), values[0], mean)
        return cls(mean, np.where(constant, np.maximum(1, np.abs(mean)), sd))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values in standard units."""
        return (values - self.mean) / self.scale

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Standardised values in their original units."""
        return values * self.scale + self.mean


def identity_units(columns: int) -> Standardiser:
    """The standardiser that leaves this many columns unchanged."""
    return Standardiser(np.zeros(columns), np.ones(columns))


@dataclass(frozen=True)
class Moments:
    """Total weight, range, mean and standard deviation of each column of some rows.

    The mean is stored as its `offset` from the smallest value `low`: the offset of
    large values that differ little has more correct digits than their mean.
    """

    weight: float
    low: np.ndarray
    high: np.ndarray
    offset: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray | None = None) -> Self:
        """The moments of rows and their weights; all 0 if no row has a weight.

        Each column is summarised by itself, so that its bits do not depend on the
        columns beside it.
        """
        weight = np.ones(len(values)) if weight is None else weight
        used = weight > 0
        if not used.all():
            values, weight = values[used], weight[used]
        if not len(values):
            return cls.constant(np.zeros(values.shape[1]), 0.0)
        columns = np.ascontiguousarray(values.T, np.float64)
        low, high = columns.min(axis=1), columns.max(axis=1)
        shifted = (columns - low[:, None])[:, :, None]
        pairs = [mean_and_sd(column, weight) for column in shifted]
        offset, sd = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return cls(float(weight.sum()), low, high, offset, sd)

    @classmethod
    def constant(cls, values: np.ndarray, weight: float) -> Self:
        """The moments of rows that are all equal to `values`."""
        zero = np.zeros(len(values))
        return cls(weight, values, values, zero, zero)

    @classmethod
    def of_shares(cls, shares: np.ndarray, weight: float) -> Self:
        """The moments of columns that are 1 in these shares of the rows, else 0."""
        low, high = (shares >= 1).astype(float), (shares > 0).astype(float)
        return cls(weight, low, high, shares - low, np.sqrt(shares * (1 - shares)))

    @classmethod
    def beside(cls, parts: "list[Moments]") -> Self:
        """The moments of the columns of all parts, which have the same rows."""
        names = ("low", "high", "offset", "sd")
        columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in names}
        return cls(parts[0].weight, **columns)

    @property
    def mean(self) -> np.ndarray:
        """Weighted means."""
        return self.low + self.offset

    def joined(self, other: Self) -> Self:
        """The moments of the rows of both (D1)."""
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
        """The standardiser of all these rows."""
        mean = self.mean
        constant = self.sd <= CONSTANT * np.abs(mean)
        scale = np.where(constant, np.maximum(1, np.abs(mean)), self.sd)
        return Standardiser(mean, scale)


def merge_rows(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct rows with summed weights, in an order that depends on values alone.

    Rows of weight 0 are removed. The order of the rows then does not change a fit, and
    a row of weight 2 has the same effect as two equal rows.
    """
    used = weight > 0
    x, y, weight = x[used], y[used], weight[used]
    code = _row_codes(np.column_stack([x, y]))
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    same = (x == x[first][group]).all() and (y == y[first][group]).all()
    if not same:  # different rows have the same code by chance: merge none
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


def row_hashes(rows: np.ndarray, seed: int) -> np.ndarray:
    """A pseudo-random number from 0 to 1 for each row number, independent of others.

    Rows with a hash below a share are a random sample of that share, in whatever
    pieces the rows come.
    """
    mixed = rows.astype(np.uint64) * GOLDEN
    with np.errstate(over="ignore"):
        mixed += np.uint64(seed % 2**32) << np.uint64(32)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))) * 2.0**-64


class Sample:
    """A uniform random sample of at most `size` of the rows that come piece by piece.

    It consists of the rows with the smallest hashes.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed
        self._limit = 1.0
        self._kept: list[tuple[np.ndarray, Any]] = []  # hashes and rows

    def add(self, numbers: np.ndarray, rows: Any) -> None:
        """Add a piece: an array or a data frame, and the numbers of its rows."""
        self._keep(row_hashes(numbers, self.seed), rows)
        if sum(len(hashes) for hashes, _ in self._kept) > 2 * self.size:
            self._cut()

    @property
    def parts(self) -> list[Any]:
        """The sampled rows of each piece, in the order of the pieces."""
        self._cut()
        return [rows for _, rows in self._kept]

    def _keep(self, hashes: np.ndarray, rows: Any) -> None:
        chosen = hashes <= self._limit
        if chosen.any():
            self._kept.append((hashes[chosen], rows[chosen]))

    def _cut(self) -> None:
        every = np.concatenate([hashes for hashes, _ in self._kept])
        if len(every) > self.size:
            self._limit = float(np.partition(every, self.size - 1)[self.size - 1])
            before, self._kept = self._kept, []
            for hashes, rows in before:
                self._keep(hashes, rows)
