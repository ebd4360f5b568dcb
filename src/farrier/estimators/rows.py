"""The rows of a fit, checked, and in the units of the network."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import jax.random as jr
import numpy as np

from ..fit import FitRows, Recipe
from ..fitted import Sample, Units, key_for
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import ArrayRows, RowSource, Statistics
from ..scale.stream import LANES, Stream
from ..train.data import Data
from ..units import Standardiser, identity_units, merge_rows

Learned = dict[str, Any]  # attributes of the estimator, set after the fit


@dataclass(frozen=True)
class CheckedRows:
    """Rows that were checked, and what the estimator learned from them.

    Parameters
    ----------
    x, y, weight
        Inputs, targets (2-dimensional, or class numbers) and weights of the rows.
    learned
        Attributes of the estimator, such as `n_features_in_`, to be set after the fit.
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    learned: Learned

    def merged(self) -> Self:
        """Equal rows as one, with the sum of their weights."""
        x, y, weight = merge_rows(self.x, self.y, self.weight)
        return replace(self, x=x, y=y, weight=weight)

    @property
    def marks(self) -> tuple[np.ndarray | bytes, ...]:
        """What identifies the rows."""
        return self.x, self.y, self.weight

    def units_by(self, learn: "Callable[[CheckedRows], Units]") -> Units:
        """The units that are learned from these rows."""
        return learn(self)

    def in_units(self, units: Units) -> Self:
        """The rows in the units of the network."""
        y = self.y if units.y is None else units.y(self.y)
        return replace(self, x=units.x(self.x), y=y)

    def fit_rows(
        self, recipe: Recipe, seed: int, placement: AbstractPlacement
    ) -> FitRows:
        """The rows on one device, or cut over all devices of a placement."""
        x, y, weight = self.x, self.y, self.weight
        size = recipe.training.resolved_batch_size(len(x))
        sample = Sample.of(x, y, weight)
        if placement == ONE_DEVICE:
            data = Data.create(x, y, weight, batch_size=size)
            return FitRows(data, sample, weight.sum())
        even = -(-size // LANES) * LANES
        source = ArrayRows(x, y, weight)
        return FitRows(_stream(source, even, seed, placement), sample, weight.sum())


@dataclass(frozen=True)
class CheckedSource:
    """A source of rows that was read once, and what the estimator learned from it.

    Parameters
    ----------
    rows
        The source, in the units of the network.
    sample
        Some of the rows, in the units of the network.
    mark
        What identifies the rows.
    """

    rows: RowSource
    sample: tuple[np.ndarray, np.ndarray, np.ndarray]
    units: Units
    total: float
    learned: Learned
    mark: str

    @property
    def marks(self) -> tuple[np.ndarray | bytes, ...]:
        """What identifies the rows."""
        return (self.mark.encode(),)

    def units_by(self, learn: Callable[[CheckedRows], Units]) -> Units:
        """The units that were learned in the pass over the rows."""
        del learn
        return self.units

    def in_units(self, units: Units) -> Self:
        """The same rows: they are read in their units."""
        del units
        return self

    def fit_rows(
        self, recipe: Recipe, seed: int, placement: AbstractPlacement
    ) -> FitRows:
        """The rows as a stream."""
        size = recipe.training.resolved_batch_size(self.rows.rows)
        stream = _stream(self.rows, size, seed, placement)
        return FitRows(stream, Sample.of(*self.sample), self.total, stream.batches)


def _stream(
    source: RowSource, batch_size: int, seed: int, placement: AbstractPlacement
) -> Stream:
    key = jr.fold_in(key_for(seed, "train"), 2**32 - 1)
    return Stream(source, batch_size=batch_size, key=key, placement=placement)


def input_units(
    x: np.ndarray, weight: np.ndarray, *, standardise: bool
) -> Standardiser:
    """Units of the inputs of rows in memory."""
    return Standardiser.create(x, weight) if standardise else identity_units(x.shape[1])


def source_units(statistics: Statistics, *, standardise: bool) -> Standardiser:
    """Units of the inputs of a source."""
    of_x = statistics.x
    return of_x.standardiser() if standardise else identity_units(len(of_x.sd))


def source_names(source: RowSource, d_in: int, expected: int | None) -> Learned:
    """What is learned about the inputs of a source.

    Parameters
    ----------
    expected
        Number of columns of the fit that training goes on from.
    """
    if expected is not None and d_in != expected:
        raise ValueError(f"X has {d_in} columns; the fit before had {expected}.")
    learned: Learned = {"n_features_in_": d_in}
    if source.names is not None:
        learned["feature_names_in_"] = np.asarray(source.names, object)
    return learned
