"""Rows that need not fit into memory: what `fit` takes in the place of arrays.

Every source says how many rows it has and reads any range of them, in the units of the
user. What a fit needs to know of all rows is found in one pass: `statistics`.
"""

import abc
import errno
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from ..tables.columns import ERROR
from ..tables.files import Frame, TableError, imported
from ..tables.learn import ColumnSummary, Learned, learn
from ..tables.table import MOST_CLASSES, Columns, column_of
from ..units import Moments, Sample, lots
from .parquet import LARGE, Parquet

PIECE = 2**14  # rows of an array that are read together
PIECE_VALUES = 2**24  # most inputs in a piece of a row group
CHECK_ROWS = 10_000  # rows kept for node scores and for the self-check of compaction

# Inputs, targets (None where there are none) and weights, in the user's units.
Raw: TypeAlias = tuple[np.ndarray, np.ndarray | None, np.ndarray]


@dataclass(frozen=True)
class Statistics:
    """What a fit needs to know of all rows.

    Parameters
    ----------
    x, y
        Moments of inputs and targets; the latter None where targets are not numbers.
    labels
        Weight of each different target; none where they are more than a thousand.
    sample
        Inputs and targets of some rows.
    """

    x: Moments
    y: Moments | None
    labels: dict[Any, float]
    sample: tuple[np.ndarray, np.ndarray]


class RowSource(abc.ABC):
    """Rows that are read piece by piece."""

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """How many there are."""

    @property
    @abc.abstractmethod
    def pieces(self) -> Sequence[int]:
        """Numbers of the first rows of the pieces that are best read whole."""

    @property
    def names(self) -> list[str] | None:
        """Names of the inputs, where they have some."""
        return None

    @abc.abstractmethod
    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`. Safe to be called by many threads."""

    @abc.abstractmethod
    def mark(self) -> str:
        """A text that other rows would not have, found without reading all of them."""

    def where(self, row: int) -> str:
        """A row in words."""
        return f"row {row + 1}"

    def statistics(self) -> Statistics:
        """What a fit needs to know, from one pass over all rows."""
        return gathered(self.parts(), self.where)

    def parts(self) -> Iterator[tuple[int, Raw]]:
        """All pieces in order, each with the number of its first row."""
        for first, last in ranges(self.pieces, self.rows):
            yield first, self.read(first, last)

    def inputs(self) -> Iterator[Any]:
        """Inputs of all pieces in order; as frames, where they have names."""
        for _, (x, _, _) in self.parts():
            if self.names is not None:
                x = imported()[0].DataFrame(x, columns=self.names)
            yield x


def ranges(firsts: Sequence[int], rows: int) -> Iterator[tuple[int, int]]:
    """First rows of pieces, and those after their last."""
    return zip(firsts, [*firsts[1:], rows], strict=True)


def gathered(
    parts: Iterable[tuple[int, Raw]], where: Callable[[int], str]
) -> Statistics:
    """Statistics of pieces that come one after the other, all values checked."""
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
    """Refuse NaN and infinities, and say where the first one is."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *column = np.argwhere(~np.isfinite(values))[0].tolist()
        place = f"column {column[0]} of {where(first + row)}"
        raise ValueError(
            f"{what} holds {values[row, *column]} in "
            f"{place if column else where(first + row)}, where a finite number is "
            "needed."
        )


def _counted(
    labels: dict[Any, float] | None, y: np.ndarray, weight: np.ndarray
) -> dict[Any, float] | None:
    """Weights of the different targets; None where they are too many, or several."""
    if labels is None or y.ndim > 1:
        return None
    found, number = np.unique(y, return_inverse=True)
    if len(found) > MOST_CLASSES:
        return None
    for label, total in zip(found.tolist(), np.bincount(number, weight), strict=True):
        labels[label] = labels.get(label, 0.0) + float(total)
    return labels if len(labels) <= MOST_CLASSES else None


# -- arrays ------------------------------------------------------------------------


class ArrayRows(RowSource):
    """Rows of arrays that may be mapped from a disk (`np.memmap`); nothing is copied.

    Parameters
    ----------
    sample_weight
        How many rows each row stands for.
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
        """How many there are."""
        return len(self.x)

    @property
    def pieces(self) -> Sequence[int]:
        """Equal ones."""
        return range(0, self.rows, PIECE)

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        part = slice(first, last)
        y = None if self.y is None else np.asarray(self.y[part])
        ones = np.ones(last - first)
        weight = ones if self.weight is None else self.weight[part].astype(float)
        return np.asarray(self.x[part]), y, weight

    def mark(self) -> str:
        """Shape, type, and a few rows from all over."""
        few = np.linspace(0, self.rows - 1, min(self.rows, 1_000)).astype(int)
        digest = hashlib.sha256(f"{self.x.shape} {self.x.dtype}".encode())
        for values in (self.x, self.y, self.weight):
            if values is not None:
                digest.update(repr(values[few].tolist()).encode())
        return digest.hexdigest()


# -- batches -----------------------------------------------------------------------


class BatchRows(RowSource):
    """Rows that some iterable hands over: batches `(X, y)` or `(X, y, weight)`.

    The iterable is gone through once, in the first pass of a fit, and its rows are
    written to a temporary folder, from which all later passes read; a generator will
    do. The folder is deleted with this object.

    Parameters
    ----------
    folder
        Where the temporary folder is made; by default where the system has its own
        (`TMPDIR`).
    """

    def __init__(self, batches: Iterable[Any], folder: str | Path | None = None):
        self._batches = batches
        self._folder = folder

    @cached_property
    def _spool(self) -> "Spool":
        return Spool.written(self._batches, self._folder)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._spool.rows

    @property
    def pieces(self) -> Sequence[int]:
        """Equal ones."""
        return range(0, self.rows, PIECE)

    def statistics(self) -> Statistics:
        """Found while the rows are written, or from what was."""
        return self._spool.statistics

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        return self._spool.read(first, last)

    def mark(self) -> str:
        """All that was written."""
        return self._spool.digest


@dataclass(frozen=True)
class Spool:
    """Rows in three files of a temporary folder."""

    folder: Path  # deleted when this object goes
    rows: int
    forms: dict[str, tuple[np.dtype, tuple[int, ...]]]  # type, and shape of one row
    labels: np.ndarray | None  # of targets that are no numbers
    statistics: Statistics
    digest: str

    @classmethod
    def written(cls, batches: Iterable[Any], place: str | Path | None) -> Self:
        """All rows of the batches, and their statistics."""
        folder = Path(tempfile.mkdtemp(prefix="farrier-", dir=place))
        digest, labels, forms, rows = hashlib.sha256(), {}, {}, 0

        def parts() -> Iterator[tuple[int, Raw]]:
            nonlocal rows
            for x, y, weight in _cut(_checked(batches)):
                coded = y
                if y.dtype.kind not in "iuf":
                    for value in y.tolist():
                        labels.setdefault(value, len(labels))
                    coded = np.array([labels[value] for value in y.tolist()])
                for name, values in (("x", x), ("y", coded), ("weight", weight)):
                    form = forms.setdefault(name, (values.dtype, values.shape[1:]))
                    data = np.ascontiguousarray(values, form[0]).tobytes()
                    digest.update(data)
                    _append(folder / name, data, rows)
                yield rows, (x, y, weight)
                rows += len(x)

        try:
            found = gathered(parts(), lambda row: f"row {row + 1} of all batches")
        except BaseException:
            shutil.rmtree(folder)
            raise
        names = np.array([*labels]) if labels else None
        spool = cls(folder, rows, forms, names, found, digest.hexdigest())
        weakref.finalize(spool, shutil.rmtree, folder, ignore_errors=True)
        return spool

    def read(self, first: int, last: int) -> Raw:
        """The rows from `first` to before `last`."""
        x, y, weight = (self._values(name, first, last) for name in self.forms)
        return x, y if self.labels is None else self.labels[y], weight

    def _values(self, name: str, first: int, last: int) -> np.ndarray:
        dtype, shape = self.forms[name]
        row = int(np.prod(shape, dtype=int))
        values = np.fromfile(
            self.folder / name,
            dtype,
            count=(last - first) * row,
            offset=first * row * dtype.itemsize,
        )
        return values.reshape(last - first, *shape)


def _append(path: Path, data: bytes, rows: int) -> None:
    try:
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            errno.ENOSPC,
            f"The disk of {str(path.parent)!r} is full after {rows} rows. Give "
            "`BatchRows` a `folder` with more room.",
        ) from error


def _checked(batches: Iterable[Any]) -> Iterator[tuple[np.ndarray, ...]]:
    """Batches as arrays: floats of one type, targets of 64 bits or labels, weights."""
    forms = None
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise ValueError(
                f"Batch {number} must be (X, y) or (X, y, weight), got a "
                f"{type(batch).__name__}."
            )
        x, y = np.asarray(batch[0]), np.asarray(batch[1])
        weight = np.asarray(batch[2], float) if len(batch) == 3 else np.ones(len(y))
        if x.ndim != 2 or x.dtype.kind not in "biuf" or len(y) != len(x):
            raise ValueError(
                f"Batch {number} must have rows x columns of numbers and one target "
                f"for each row, got shapes {x.shape} of {x.dtype} and {y.shape}."
            )
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
        wide = {"i": np.int64, "u": np.int64, "f": np.float64}
        y = y.astype(wide.get(y.dtype.kind, y.dtype))
        form = x.dtype, x.shape[1:], "label" if y.dtype.kind in "OSUb" else y.dtype.kind
        forms = forms or form
        if form != forms:
            raise ValueError(
                f"All batches must have the same columns and types, but batch {number} "
                f"has {form[0]} x {form[1][0]} with targets {form[2]!r}, and the first "
                f"has {forms[0]} x {forms[1][0]} with {forms[2]!r}."
            )
        yield x, y, weight


def _cut(batches: Iterable[tuple[np.ndarray, ...]]) -> Iterator[tuple]:
    """The same rows in pieces of equal size."""
    waiting: list[tuple[np.ndarray, ...]] = []
    for batch in batches:
        waiting.append(batch)
        while sum(len(part[0]) for part in waiting) >= PIECE:
            joined = [np.concatenate(values) for values in zip(*waiting, strict=True)]
            yield tuple(values[:PIECE] for values in joined)
            waiting = [tuple(values[PIECE:] for values in joined)]
    if waiting and sum(len(part[0]) for part in waiting):
        yield tuple(np.concatenate(values) for values in zip(*waiting, strict=True))


# -- tables in Parquet files -------------------------------------------------------


@dataclass(frozen=True)
class Lottery:
    """A share of the rows, chosen by lot; or all others."""

    share: float
    seed: int
    drawn: bool = True

    def keeps(self, rows: np.ndarray) -> np.ndarray:
        """Which of these row numbers are in it."""
        return (lots(rows, self.seed) < self.share) == self.drawn


class ParquetRows(RowSource):
    """A table in a Parquet file, or in all Parquet files of a folder.

    Columns become inputs as on the command line: numbers, booleans, categories, dates.

    Parameters
    ----------
    target
        The column to predict.
    columns
        The `columns` of another table, by which this one is read; by default they are
        learned from it.
    missing
        "error": missing values are refused. "impute": they are filled in, and one more
        input tells where.
    task
        "regression" or "classification"; by default found from the target.
    drop
        Columns to leave out.
    lottery
        Which of the rows are used; by default all.
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
        """What one pass over the rows says of the columns."""
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
        """Refuse a lottery that leaves a label without any row to learn it from."""
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
        """How the table becomes inputs."""
        return self.learned.columns

    @property
    def names(self) -> list[str]:
        """Names of the inputs."""
        return self.columns.feature_names

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._ends[-1]

    @property
    def pieces(self) -> Sequence[int]:
        """Row groups; parts of them, where they are large."""
        return [0, *self._ends[:-1]]

    @cached_property
    def _ends(self) -> list[int]:
        """Numbers after the last row of each piece, among the rows that are used."""
        counts = [int(self._keeps(*cut).sum()) for cut in self._own_cuts]
        return np.cumsum(counts).tolist()

    @cached_property
    def _own_cuts(self) -> list[tuple[int, int]]:
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
        """Rows of the table, those that are used."""
        return self.table.frame(first, last)[self._keeps(first, last)]

    def _keeps(self, first: int, last: int) -> np.ndarray:
        """Which rows of the table are used."""
        rows = np.arange(first, last)
        if self.lottery is None:
            return np.ones(len(rows), bool)
        return self.lottery.keeps(rows)

    def others(self) -> "ParquetRows":
        """The rows that the lottery leaves out, read in the same way."""
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
        """The rows as they stand in the table, under their numbers there."""
        if self.lottery is None:
            return self.table.frame(first, last)
        parts = []
        begins = [0, *self._ends[:-1]]
        for cut, begin, end in zip(self._own_cuts, begins, self._ends, strict=True):
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
            place = self.table.where(int(frame.index[0]))
            raise TableError(f"From {place} on: {error}") from error
        return x, y, np.ones(last - first)

    @cached_property
    def _first(self) -> Raw:
        return self.read(0, 1)

    def statistics(self) -> Statistics:
        """From the pass in which the columns are learned."""
        if "learned" not in vars(self) and "columns" in vars(self):
            return super().statistics()
        found = self.learned
        every = -(-len(found.sample) // CHECK_ROWS)
        rows = found.sample[::every]
        sample = found.columns.features(rows), found.columns.targets(rows)
        return Statistics(found.x, found.y, found.labels, sample)

    def mark(self) -> str:
        """Footers of the files, and how they are read."""
        return f"{self.table.mark()} {self.columns.to_json()} {self.lottery}"


def as_source(X: Any, y: Any, sample_weight: Any) -> RowSource | None:
    """Rows that are not to be taken into memory, or None: arrays as they are."""
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise ValueError(
                f"{type(X).__name__} has the targets and weights of its rows in it: "
                "give neither `y` nor `sample_weight`."
            )
        return X
    if isinstance(X, np.memmap) and 8 * X.size > LARGE:
        return ArrayRows(X, y, sample_weight)
    return None
