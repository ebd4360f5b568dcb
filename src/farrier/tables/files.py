"""Read tables from CSV and Parquet files, and write predictions, in chunks of rows.

A table is a pandas data frame whose row labels count on from chunk to chunk. Numbers
in a CSV file stay strings here: the kind of a column is learned from all of its rows
or already known, and never guessed from a chunk.
"""

import csv
import gzip
import io
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from ..atomic import replacing

# A pandas data frame. pandas is an extra: it is imported where a table is read.
Frame: TypeAlias = Any

CHUNK = 8_192
BLOCK = 2**22  # bytes of a CSV file that are parsed at once; no row may be longer
MISSING = "? NA N/A n/a <NA> #N/A #NA NaN nan -NaN -nan NULL null None".split()
DELIMITERS = (",", ";", "\t")
PARQUET = b"PAR1"
GZIP = b"\x1f\x8b"


class TableError(ValueError):
    """A table cannot be used; the message is one line."""


def read_table(path: str | Path) -> Frame:
    """Read the table in a CSV (plain or gzipped) or Parquet file, or in a folder."""
    pandas, _ = imported()
    frame = pandas.concat(read_chunks(path))
    if frame.empty:
        raise TableError(f"{str(path)!r} has no rows, only names of columns.")
    return frame


def read_chunks(path: str | Path, rows: int = CHUNK) -> Iterator[Frame]:
    """Read a table in chunks of `rows` rows; the last chunk may be shorter.

    There is at least one chunk. A folder gives the rows of all its Parquet files, in
    the order of their names.
    """
    _, arrow = imported()
    path = Path(path)
    start = 0
    try:
        for table in _cut(_tables(path), rows):
            frame = frame_of(table, start)
            start += len(frame)
            yield frame
    except arrow.ArrowException as error:
        raise TableError(f"{str(path)!r} cannot be read: {_line(error)}") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TableError(f"{str(path)!r} is a damaged gzip file: {error}.") from error


def frame_of(table: Any, first: int) -> Frame:
    """An Arrow table as a data frame whose row labels count on from `first`."""
    pandas, arrow = imported()
    frame = table.to_pandas(types_mapper={arrow.bool_(): pandas.BooleanDtype()}.get)
    frame.index = pandas.RangeIndex(first, first + len(frame))
    return frame


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before hours of work are spent on it."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(b"\0" * 2**16)
    except OSError as error:
        raise OSError(
            error.errno, f"{str(path)!r} could not be written: {error.strerror}."
        ) from error


@contextmanager
def writing(path: str | Path) -> Iterator[Any]:
    """A function that appends data frames to a new CSV or Parquet file.

    The file gets its name only when it is complete.
    """
    path = Path(path)
    if path.suffix not in WRITERS:
        raise TableError(
            f"The name of the output must end in {' or '.join(WRITERS)}, got "
            f"{str(path)!r}."
        )
    with replacing(path) as file, WRITERS[path.suffix](file) as add:
        yield add


@contextmanager
def _writing_csv(file: BinaryIO) -> Iterator[Any]:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    yield lambda frame: frame.to_csv(text, header=text.tell() == 0, index=False)
    text.detach()  # writes the rest, and leaves the file open


@contextmanager
def _writing_parquet(file: BinaryIO) -> Iterator[Any]:
    _, arrow = imported()
    from pyarrow import parquet

    writers = []

    def add(frame: Frame) -> None:
        table = arrow.Table.from_pandas(frame, preserve_index=False)
        if not writers:
            writers.append(parquet.ParquetWriter(file, table.schema))
        writers[0].write_table(table)

    try:
        yield add
    finally:
        for writer in writers:
            writer.close()


WRITERS = {".csv": _writing_csv, ".parquet": _writing_parquet}


def imported() -> tuple[Any, Any]:
    """The packages pandas and pyarrow, imported when first needed."""
    try:
        import pandas
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "Tables in files need pandas and pyarrow: pip install 'farrier[data]'."
        ) from error
    return pandas, pyarrow


# -- reading -----------------------------------------------------------------------


def _tables(path: Path) -> Iterator[Any]:
    """The Arrow tables of a file, one after the other, with plain types only."""
    if path.is_dir():
        return _folder_tables(path)
    if not path.is_file():
        raise TableError(f"{str(path)!r} is not there.")
    with path.open("rb") as file:
        first = file.read(4)
    if not first:
        raise TableError(f"{str(path)!r} is empty.")
    if first == PARQUET or path.suffix == ".parquet":
        return _parquet_tables(path, open_parquet(path))
    return _csv_tables(path, is_gzip=first.startswith(GZIP))


def _folder_tables(folder: Path) -> Iterator[Any]:
    files = parquet_files(folder)
    first = open_parquet(files[0]).schema_arrow
    for path in files:
        file = open_parquet(path)
        check_same_columns(path, file.schema_arrow, files[0], first)
        for table in _parquet_tables(path, file):
            yield table.select(first.names)


def parquet_files(path: str | Path) -> list[Path]:
    """The Parquet files of a folder, sorted by name; or the file itself."""
    path = Path(path)
    if not path.exists():
        raise TableError(f"{str(path)!r} is not there.")
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.parquet"))
    if not files:
        raise TableError(f"The folder {str(path)!r} has no files that end in .parquet.")
    return files


def open_parquet(path: Path, metadata: Any = None) -> Any:
    """Open a Parquet file and check names and types, unless it has `metadata`."""
    _, arrow = imported()
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, metadata=metadata)
    except (arrow.ArrowException, OSError) as error:
        raise TableError(
            f"{str(path)!r} is not a whole Parquet file: {_line(error)}"
        ) from error
    if metadata is not None:
        return file
    schema, types = file.schema_arrow, arrow.types
    _check_names(path, schema.names)
    for name, kind in zip(schema.names, schema.types, strict=True):
        if types.is_nested(kind) or types.is_binary(kind):
            raise TableError(
                f"{str(path)!r}: column {name!r} holds values of type {kind}; "
                "numbers, strings, booleans and dates can be used."
            )
    return file


def check_same_columns(path: Path, schema: Any, first: Path, expected: Any) -> None:
    """Refuse a file whose columns differ from those of the first file."""
    there, needed = (
        dict(zip(s.names, map(str, s.types), strict=True)) for s in (schema, expected)
    )
    for name in [*needed, *there]:
        ours, theirs = there.get(name, "not there"), needed.get(name, "not there")
        if ours != theirs:
            raise TableError(
                f"The files of a folder must have the same columns, but {name!r} is "
                f"{ours} in {path.name!r} and {theirs} in {first.name!r}."
            )


@contextmanager
def reading_group(path: Path, number: int) -> Iterator[None]:
    """A block in which errors name the row group that is read."""
    _, arrow = imported()
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise TableError(
            f"{str(path)!r} is not a whole Parquet file: row group {number} of it "
            f"cannot be read: {_line(error)}"
        ) from error


def _parquet_tables(path: Path, file: Any) -> Iterator[Any]:
    _, arrow = imported()
    yield file.schema_arrow.empty_table()
    for number in range(file.num_row_groups):
        with reading_group(path, number):
            for batch in file.iter_batches(row_groups=[number]):
                yield arrow.Table.from_batches([batch])


def _csv_tables(path: Path, *, is_gzip: bool) -> Iterator[Any]:
    _, arrow = imported()
    from pyarrow import csv as arrow_csv

    compute: Any = import_module(
        "pyarrow.compute"
    )  # its functions are made at run time

    names, delimiter, lines = _header(path, is_gzip=is_gzip)
    text = arrow.string()
    yield arrow.table([arrow.array([], text) for _ in names], names)
    stream = arrow.CompressedInputStream if is_gzip else lambda file, _: file
    try:
        with path.open("rb") as file:
            reader = arrow_csv.open_csv(
                stream(file, "gzip"),
                arrow_csv.ReadOptions(
                    use_threads=False,
                    block_size=BLOCK,
                    skip_rows=lines,
                    column_names=names,
                ),
                arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, text), check_utf8=True
                ),
            )
            missing = arrow.array(["", *MISSING])
            for batch in reader:
                trimmed = [compute.utf8_trim_whitespace(c) for c in batch.columns]
                known = [
                    compute.if_else(
                        compute.is_in(c, missing), arrow.scalar(None, text), c
                    )
                    for c in trimmed
                ]
                yield arrow.table(known, names)
            _check_quotes(path, delimiter, len(names), is_gzip=is_gzip)
    except (arrow.ArrowException, OSError) as error:
        if "Empty CSV file" in str(error):
            return
        where = _first_bad_row(path, delimiter, len(names), is_gzip=is_gzip)
        raise TableError(f"{str(path)!r}: {where or _line(error)}") from error


def _header(path: Path, *, is_gzip: bool) -> tuple[list[str], str, int]:
    """Column names, delimiter, and number of lines up to the first row."""
    with _opened(path, is_gzip=is_gzip) as file:
        try:
            start = file.read(BLOCK)
        except UnicodeDecodeError:
            where = _first_undecoded(path, is_gzip=is_gzip)
            raise TableError(f"{str(path)!r}: {where}") from None
    if "\0" in start:
        raise TableError(f"{str(path)!r} holds no text: give a CSV or Parquet file.")
    lines = re.split(r"\r\n|\n|\r", start)
    number = next((i for i, line in enumerate(lines) if line.strip()), None)
    if number is None:
        raise TableError(f"{str(path)!r} is empty.")
    delimiter = max(DELIMITERS, key=lines[number].count)
    try:
        (names,) = csv.reader([lines[number]], delimiter=delimiter, strict=True)
    except csv.Error as error:
        raise TableError(
            f"{str(path)!r}: the names in line {number + 1} cannot be read: {error}."
        ) from error
    names = [name.strip() for name in names]
    _check_names(path, names)
    return names, delimiter, number + 1


def _check_names(path: Path, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if "" in names:
        raise TableError(f"{str(path)!r}: column {names.index('') + 1} has no name.")
    if twice:
        raise TableError(f"{str(path)!r} has more than one column {twice[0]!r}.")
    if not names:
        raise TableError(f"{str(path)!r} has no columns.")


def _first_bad_row(
    path: Path, delimiter: str, columns: int, *, is_gzip: bool
) -> str | None:
    """The first invalid line of a CSV file in words, or None if all are valid."""
    if (where := _first_undecoded(path, is_gzip=is_gzip)) is not None:
        return where
    with _opened(path, is_gzip=is_gzip) as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if fields and len(fields) != columns:
                    return (
                        f"line {reader.line_num} has {len(fields)} values, but there "
                        f"are {columns} columns."
                    )
        except csv.Error as error:
            return f"line {reader.line_num} cannot be read: {error}."
    return None


def _check_quotes(path: Path, delimiter: str, columns: int, *, is_gzip: bool) -> None:
    """Refuse an unclosed quote, which turns all later lines into one value."""
    with (gzip.open if is_gzip else open)(path, "rb") as file:
        blocks = iter(lambda: file.read(BLOCK), b"")
        quotes = sum(block.count(b'"') for block in blocks)
    if quotes % 2:  # a value may also contain a single quote, which is valid
        where = _first_bad_row(path, delimiter, columns, is_gzip=is_gzip)
        if where is not None:
            raise TableError(f"{str(path)!r}: {where}")


def _first_undecoded(path: Path, *, is_gzip: bool) -> str | None:
    """The first line of a CSV file that is not UTF-8 in words, or None."""
    with (gzip.open if is_gzip else open)(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return (
                    f"line {number} is not UTF-8. Save the file as UTF-8, for example "
                    "with `iconv -f latin1 -t utf-8`."
                )
    return None


def _opened(path: Path, *, is_gzip: bool) -> Any:
    opener = gzip.open if is_gzip else open
    return opener(path, "rt", encoding="utf-8-sig", newline="")


def _cut(tables: Iterable[Any], rows: int) -> Iterator[Any]:
    """The same rows in chunks of equal size."""
    _, arrow = imported()
    rest = None
    for table in tables:
        rest = table if rest is None else arrow.concat_tables([rest, table])
        while len(rest) > rows:
            yield rest.slice(0, rows)
            rest = rest.slice(rows)
    yield rest


def _line(error: Exception) -> str:
    """The first line of a message, as a sentence."""
    return str(error).strip().split("\n")[0][:200].rstrip(".") + "."
