"""Rows of batches that come only once, kept in a temporary folder."""

import errno
import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from .source import Raw, Statistics, gathered


@dataclass(frozen=True)
class Spool:
    """Rows in three files of a temporary folder."""

    folder: Path  # deleted together with this object
    rows: int
    forms: dict[str, tuple[np.dtype, tuple[int, ...]]]  # type, and shape of one row
    labels: np.ndarray | None  # distinct targets, if these are not numbers
    statistics: Statistics
    digest: str

    @classmethod
    def written(
        cls, batches: Iterable[Any], parent: str | Path | None, size: int
    ) -> Self:
        """Write all rows, `size` at a time, and compute their statistics."""
        folder = Path(tempfile.mkdtemp(prefix="farrier-", dir=parent))
        digest, labels, forms, rows = hashlib.sha256(), {}, {}, 0

        def parts() -> Iterator[tuple[int, Raw]]:
            nonlocal rows
            for x, y, weight in _cut(_checked(batches), size):
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
            statistics = gathered(parts(), lambda row: f"row {row + 1} of all batches")
        except BaseException:
            shutil.rmtree(folder)
            raise
        names = np.array([*labels]) if labels else None
        spool = cls(folder, rows, forms, names, statistics, digest.hexdigest())
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
    """Batches as arrays of one type each: inputs, targets or labels, weights."""
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


def _cut(batches: Iterable[tuple[np.ndarray, ...]], size: int) -> Iterator[tuple]:
    """The same rows in pieces of equal size."""
    waiting: list[tuple[np.ndarray, ...]] = []
    for batch in batches:
        waiting.append(batch)
        while sum(len(part[0]) for part in waiting) >= size:
            joined = [np.concatenate(values) for values in zip(*waiting, strict=True)]
            yield tuple(values[:size] for values in joined)
            waiting = [tuple(values[size:] for values in joined)]
    if waiting and sum(len(part[0]) for part in waiting):
        yield tuple(np.concatenate(values) for values in zip(*waiting, strict=True))
