"""Parquet files that do not fit into memory, read one row group at a time."""

import bisect
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..tables.files import (
    PARQUET,
    Frame,
    check_same_columns,
    frame_of,
    imported,
    open_parquet,
    parquet_files,
    reading_group,
)
from ..units import Sample

BATCH = 2**16  # rows that are decoded at once if only a part of a row group is read
FOOTER = 8  # bytes at the end of a file: length of the metadata, and a fixed mark
LARGE = 2**30  # bytes of a table, as float64, above which it is read piece by piece


@dataclass(frozen=True)
class Group:
    """A row group: its file, its number there, and its rows among all rows."""

    path: Path
    number: int
    first: int
    last: int


def is_large(path: str | Path) -> bool:
    """Whether a table is a folder or a large file, to be read piece by piece."""
    path = Path(path)
    if path.is_dir():
        return True
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(len(PARQUET)) != PARQUET:
            return False
    metadata = open_parquet(path).metadata
    return 8 * metadata.num_rows * metadata.num_columns > LARGE


def sampled(path: str | Path, rows: int) -> Frame:
    """A uniform random sample of `rows` rows of a table; all rows if it has fewer."""
    table, sample = Parquet(path), Sample(rows)
    for group in table.groups:
        frame = table.frame(group.first, group.last)
        sample.add(frame.index.to_numpy(), frame)
    return imported()[0].concat(sample.parts)


class Parquet:
    """A Parquet file, or all files of a folder, as one table; safe for threads.

    Parameters
    ----------
    without
        Names of columns to leave out.
    """

    def __init__(self, path: str | Path, without: Sequence[str] = ()) -> None:
        self.path = Path(path)
        self.files = parquet_files(path)
        opened = [open_parquet(file) for file in self.files]
        schema = opened[0].schema_arrow
        for file, each in zip(self.files, opened, strict=True):
            check_same_columns(file, each.schema_arrow, self.files[0], schema)
        self.names = [name for name in schema.names if name not in without]
        pairs = zip(self.files, opened, strict=True)
        self._metadata = {path: file.metadata for path, file in pairs}
        self.groups = [*self._groups()]
        self.rows = self.groups[-1].last if self.groups else 0
        self._firsts = [group.first for group in self.groups]

    def _groups(self) -> Iterator[Group]:
        first = 0
        for path, metadata in self._metadata.items():
            for number in range(metadata.num_row_groups):
                rows = metadata.row_group(number).num_rows
                if rows:
                    yield Group(path, number, first, first + rows)
                    first += rows

    def frame(self, first: int, last: int) -> Frame:
        """The rows from `first` to before `last`, indexed by their numbers."""
        _, arrow = imported()
        begin = bisect.bisect_right(self._firsts, first) - 1
        end = max(begin + 1, bisect.bisect_left(self._firsts, last))
        parts = [
            self._part(group, max(first, group.first), min(last, group.last))
            for group in self.groups[begin:end]
        ]
        return frame_of(arrow.concat_tables(parts), first)

    def _part(self, group: Group, first: int, last: int) -> Any:
        """A range of rows of a group; all rows before them are decoded, too."""
        _, arrow = imported()
        first, last = first - group.first, last - group.first
        with reading_group(group.path, group.number):
            file = open_parquet(group.path, self._metadata[group.path])
            with file:
                if 2 * (last - first) >= group.last - group.first:
                    table = file.read_row_group(group.number, self.names)
                    return table.slice(first, last - first)
                seen, kept = 0, []
                for batch in file.iter_batches(BATCH, [group.number], self.names):
                    low, high = max(first - seen, 0), min(last - seen, len(batch))
                    if low < high:
                        kept.append(batch.slice(low, high - low))
                    seen += len(batch)
                    if seen >= last:
                        break
                return arrow.Table.from_batches(kept)

    def where(self, row: int) -> str:
        """The position of a row in table and file, both counted from 1."""
        group = self.groups[bisect.bisect_right(self._firsts, row) - 1]
        before = next(g.first for g in self.groups if g.path == group.path)
        return f"row {row + 1} (row {row - before + 1} of {group.path.name!r})"

    def mark(self) -> str:
        """A hash that identifies the table: names of columns and files, footers.

        A footer has the types of all columns, and the sizes, positions and ranges of
        the values of each row group.
        """
        digest = hashlib.sha256(repr(self.names).encode())
        for path in self.files:
            digest.update(path.name.encode())
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(size - FOOTER)
                ending = file.read(FOOTER)
                length = int.from_bytes(ending[: -len(PARQUET)], "little")
                file.seek(size - FOOTER - length)
                digest.update(file.read(length))
        return digest.hexdigest()
