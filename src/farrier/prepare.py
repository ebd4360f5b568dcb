"""Rows as the network sees them: merged, weighted, standardised."""

from dataclasses import dataclass
from typing import Self

import numpy as np


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
        constant = scale <= 1e-12 * np.abs(mean)
        # The mean of equal values is theirs only up to rounding: 16384 off for 1e20.
        mean = np.where((values == values[0]).all(axis=0), values[0], mean)
        return cls(mean, np.where(constant, np.maximum(1, np.abs(mean)), scale))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Values in standard units."""
        return (values - self.mean) / self.scale

    def undo(self, values: np.ndarray) -> np.ndarray:
        """Values in their own units."""
        return values * self.scale + self.mean


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
        mixed = (code ^ (column + 0.0).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        code = mixed ^ (mixed >> np.uint64(29))
    return code
