"""Sources of rows that need not fit into memory; `fit` takes one instead of arrays.

Every source knows its number of rows and reads any range of them, in the units of the
user. One pass over all rows computes what a fit has to know of them: `statistics`.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..tables.columns import ERROR
from ..tables.files import Frame, TableError, imported
from ..tables.learn import ColumnSummary, Learned, learn
from ..tables.table import Columns, column_of
from ..units import row_hashes
from .parquet import LARGE, Parquet
from .source import CHECK_ROWS, Raw, RowSource, Statistics
from .spool import Spool

PIECE = 2**14  # rows of an array that are read together
PIECE_VALUES = 2**24  # largest number of inputs in a piece of a row group

# -- arrays ------------------------------------------------------------------------


class ArrayRows(RowSource):
    """Rows of arrays, which may be memory-mapped (`np.memmap`); nothing is copied.

    Parameters
    ----------
    X : array of shape (n_rows, n_columns)
        Inputs.
    y : array of shape (n_rows,) or (n_rows, n_targets), optional
        Targets.
    sample_weight : array of shape (n_rows,), optional
        Weight of each row: the number of equal rows that it stands for.
    """

    def __init__(self, X: Any, y: Any = None, sample_weight: Any = None) -> None:
        self.x = X if isinstance(X, np.ndarray) else np.asarray(X)
        self.y = y if y is None or isinstance(y, np.ndarray) else np.asarray(y)
        self.weight = None if sample_weight is None else np.asarray(sample_weight)
        if self.x.ndim != 2 or self.x.dtype.kind not in "biuf":
            raise ValueError(
                "X must be rows x columns of numbers, got shape "
                f"{self.x.shape} of {self.x.dtype}."
            )
        for name, values in (("y", self.y), ("sample_weight", self.weight)):
            if values is not None and len(values) != len(self.x):
                raise ValueError(
                    f"X has {len(self.x)} rows and `{name}` has {len(values)}."
                )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.x)

    @property
    def pieces(self) -> Sequence[int]:
        """Pieces of equal size."""
        return range(0, self.rows, PIECE)

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        part = slice(first, last)
        y = None if self.y is None else np.asarray(self.y[part])
        ones = np.ones(last - first)
        weight = ones if self.weight is None else self.weight[part].astype(float)
        return np.asarray(self.x[part]), y, weight

    def mark(self) -> str:
        """A hash of shape, type, and a thousand rows from the whole array."""
        few = np.linspace(0, self.rows - 1, min(self.rows, 1_000)).astype(int)
        digest = hashlib.sha256(f"{self.x.shape} {self.x.dtype}".encode())
        for values in (self.x, self.y, self.weight):
            if values is not None:
                digest.update(repr(values[few].tolist()).encode())
        return digest.hexdigest()


# -- rows in other units -----------------------------------------------------------


@dataclass(frozen=True)
class ConvertedRows(RowSource):
    """The rows of another source after a conversion, in the precision of JAX.

    Parameters
    ----------
    source
        Rows in the units of the user.
    convert
        Inputs, targets and weights in the units of the network, from those in the units
        of the user.
    """

    source: RowSource
    convert: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.source.rows

    @property
    def pieces(self) -> Sequence[int]:
        """The pieces of the source."""
        return self.source.pieces

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        x, y, weight = self.convert(*self.source.read(first, last))
        dtype = np.dtype(jnp.result_type(float))
        y = y.astype(dtype if y.dtype.kind == "f" else np.int32)
        return x.astype(dtype), y, weight.astype(dtype)

    def mark(self) -> str:
        """The mark of the source."""
        return self.source.mark()

    def where(self, row: int) -> str:
        """The position of a row in the source."""
        return self.source.where(row)


# -- batches -----------------------------------------------------------------------


class BatchRows(RowSource):
    """Rows of an iterable of batches, `(X, y)` or `(X, y, weight)`.

    The first pass of a fit iterates once over the batches, so a generator is enough,
    and writes the rows to a temporary folder. All later passes read from there. The
    folder is deleted together with this object.

    Parameters
    ----------
    batches : iterable of tuple of array
        The batches.
    folder : str or Path, optional
        Where the temporary folder is created; by default in the temporary folder of the
        system (`TMPDIR`).
    """

    def __init__(self, batches: Iterable[Any], folder: str | Path | None = None):
        self._batches = batches
        self._folder = folder

    @cached_property
    def _spool(self) -> Spool:
        return Spool.written(self._batches, self._folder, PIECE)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._spool.rows

    @property
    def pieces(self) -> Sequence[int]:
        """Pieces of equal size."""
        return range(0, self.rows, PIECE)

    def statistics(self) -> Statistics:
        """Statistics of all rows, computed while the rows are written."""
        return self._spool.statistics

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        return self._spool.read(first, last)

    def mark(self) -> str:
        """A hash of all rows."""
        return self._spool.digest


# -- tables in Parquet files -------------------------------------------------------


@dataclass(frozen=True)
class Lottery:
    """A random share of the rows; or, if not `drawn`, all other rows."""

    share: float
    seed: int
    drawn: bool = True

    def keeps(self, rows: np.ndarray) -> np.ndarray:
        """Which of these row numbers belong to the share."""
        return (row_hashes(rows, self.seed) < self.share) == self.drawn


class ParquetRows(RowSource):
    """A table in a Parquet file, or in all Parquet files of a folder.

    Columns become inputs as on the command line: numbers, booleans, categories, dates.

    Parameters
    ----------
    path : str or Path
        The file or the folder.
    target : str, optional
        The column to predict.
    columns : Columns, optional
        The `columns` of the table that a model was fitted to, to read this table in the
        same way. By default they are learned from this table.
    missing : {"error", "impute"}, default="error"
        "error" refuses missing values. "impute" fills them in, and adds an input that
        marks them.
    task : {"regression", "classification"}, optional
        By default chosen from the target.
    drop : sequence of str, default=()
        Columns to leave out.
    lottery : Lottery, optional
        The rows that are used; by default all.
    """

    def __init__(
        self,
        path: str | Path,
        target: str | None = None,
        *,
        columns: Columns | None = None,
        missing: str = ERROR,
        task: str | None = None,
        drop: Sequence[str] = (),
        lottery: Lottery | None = None,
    ) -> None:
        self.table = Parquet(path, drop)
        self.target = target
        self._dropped = drop
        self.lottery = lottery
        self._settings = {"missing": missing, "task": task}
        if columns is not None:
            self.columns = columns
        if not self.table.rows:
            raise TableError(f"{str(path)!r} has no rows, only names of columns.")
        if target is not None:
            column_of(self.table.frame(0, 1), target)

    @cached_property
    def learned(self) -> Learned:
        """What one pass over the rows has learned of the columns."""
        if self.target is None:
            raise TableError("Name the column to predict: `target`.")
        others = ColumnSummary(self.target)

        def frames() -> Iterator[Frame]:
            for first, last in self._cuts(len(self.table.names)):
                frame = self.table.frame(first, last)
                kept = self._keeps(first, last)
                others.add(frame[self.target][~kept])
                yield frame[kept]

        found = learn(frames(), self.target, where=self.table.where, **self._settings)
        self._check_others(others, found)
        return found

    def _check_others(self, others: ColumnSummary, found: Learned) -> None:
        """Refuse a selection that holds out all rows of a label."""
        number = found.columns.labels == "number"
        known = found.labels
        new = [
            v for v in others.values or () if (float(v) if number else v) not in known
        ]
        if known and new:
            raise TableError(
                f"All rows with the label {new[0]!r} of {self.target!r} are held out: "
                "take another seed, or leave those rows out."
            )

    @cached_property
    def columns(self) -> Columns:
        """How columns of the table become inputs."""
        return self.learned.columns

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return self.columns.feature_names

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._ends[-1]

    @property
    def pieces(self) -> Sequence[int]:
        """Row groups, or parts of large ones."""
        return [0, *self._ends[:-1]]

    @cached_property
    def _ends(self) -> list[int]:
        """The row after the last one of each piece, counting the rows that are used."""
        counts = [int(self._keeps(*cut).sum()) for cut in self._input_cuts]
        return np.cumsum(counts).tolist()

    @cached_property
    def _input_cuts(self) -> list[tuple[int, int]]:
        return self._cuts(len(self.names))

    def _cuts(self, values: int) -> list[tuple[int, int]]:
        """Ranges of rows of the table that are read together."""
        most = max(1, PIECE_VALUES // values)
        return [
            (first, min(first + most, group.last))
            for group in self.table.groups
            for first in range(group.first, group.last, most)
        ]

    def _kept(self, first: int, last: int) -> Frame:
        """The rows of the table that are used."""
        return self.table.frame(first, last)[self._keeps(first, last)]

    def _keeps(self, first: int, last: int) -> np.ndarray:
        """Which rows of the table are used."""
        rows = np.arange(first, last)
        if self.lottery is None:
            return np.ones(len(rows), bool)
        return self.lottery.keeps(rows)

    def others(self) -> "ParquetRows":
        """The rows that are not used, read in the same way."""
        assert self.lottery is not None
        lottery = replace(self.lottery, drawn=not self.lottery.drawn)
        return ParquetRows(
            self.table.path,
            self.target,
            columns=self.columns,
            drop=self._dropped,
            lottery=lottery,
        )

    def frame(self, first: int, last: int) -> Frame:
        """The rows as in the table, indexed by their numbers there."""
        if self.lottery is None:
            return self.table.frame(first, last)
        parts = []
        begins = [0, *self._ends[:-1]]
        for cut, begin, end in zip(self._input_cuts, begins, self._ends, strict=True):
            low, high = max(begin, first) - begin, min(end, last) - begin
            if low < high:
                parts.append(self._kept(*cut).iloc[low:high])
        return imported()[0].concat(parts)

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`, as inputs."""
        if first == last:
            x, y, weight = self._first
            return x[:0], None if y is None else y[:0], weight[:0]
        frame = self.frame(first, last)
        try:
            x = self.columns.features(frame)
            y = self.columns.targets(frame) if self.target is not None else None
        except TableError as error:
            where = self.table.where(int(frame.index[0]))
            raise TableError(f"From {where} on: {error}") from error
        return x, y, np.ones(last - first)

    @cached_property
    def _first(self) -> Raw:
        return self.read(0, 1)

    def statistics(self) -> Statistics:
        """Statistics of all rows, from the pass in which the columns are learned."""
        if "learned" not in vars(self) and "columns" in vars(self):
            return super().statistics()
        found = self.learned
        every = -(-len(found.sample) // CHECK_ROWS)
        rows = found.sample[::every]
        sample = found.columns.features(rows), found.columns.targets(rows)
        return Statistics(found.x, found.y, found.labels, sample)

    def mark(self) -> str:
        """The footers of the files, the columns and the selection of rows."""
        return f"{self.table.mark()} {self.columns.to_json()} {self.lottery}"


def as_source(X: Any, y: Any, sample_weight: Any) -> RowSource | None:
    """The source in `X`, or a large memory-mapped array as a source, or None."""
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise ValueError(
                f"{type(X).__name__} includes the targets and weights of its rows: "
                "give neither `y` nor `sample_weight`."
            )
        return X
    if isinstance(X, np.memmap) and 8 * X.size > LARGE:
        return ArrayRows(X, y, sample_weight)
    return None
