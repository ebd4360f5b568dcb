"""Rows that need not fit into memory: sources, and fits and predictions from them."""

import errno
import gc
import time
from pathlib import Path

import jax.random as jr
import numpy as np
import pandas as pd
import pytest

from farrier import (
    ArrayRows,
    BatchRows,
    HorseshoeClassifier,
    HorseshoeRegressor,
    ParquetRows,
    Training,
)
from farrier.scale import parquet as parquet_files
from farrier.scale import rows as sources
from farrier.scale.rows import ConvertedRows, Lottery
from farrier.scale.stream import Stream
from farrier.tables import TableError, read_table

ROWS, PIECE = 3_000, 256


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(sources, "PIECE", PIECE)


def table(rows=ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 1e3, 5]
    return x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=rows)


def memmap(folder, x, y):
    for name, values in (("x", x), ("y", y)):
        np.save(folder / f"{name}.npy", values)
    return ArrayRows(*(np.load(folder / f"{n}.npy", mmap_mode="r") for n in "xy"))


def parquet(folder, x, y, files=2):
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    folder = folder / "big"
    folder.mkdir()
    cut = PIECE * (len(frame) // files // PIECE)
    for number in range(files):
        last = None if number == files - 1 else (number + 1) * cut
        part = frame[number * cut : last]
        part.to_parquet(folder / f"{number}.parquet", row_group_size=PIECE, index=False)
    return ParquetRows(folder, "y")


def batches(folder, x, y):
    return BatchRows((x[i : i + 100], y[i : i + 100]) for i in range(0, len(x), 100))


SOURCES = {"memmap": memmap, "parquet": parquet, "batches": batches}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_gives_its_rows(kind, tmp_path):
    x, y = table()
    source = SOURCES[kind](tmp_path, x, y)
    assert source.rows == ROWS
    for first, last in ((0, 1), (5, 5), (250, 1700), (ROWS - 3, ROWS)):
        found = source.read(first, last)
        np.testing.assert_array_equal(found[0], x[first:last])
        np.testing.assert_array_equal(found[1], y[first:last])
        np.testing.assert_array_equal(found[2], np.ones(last - first))
    again = np.concatenate([np.asarray(part) for part in source.inputs()])
    np.testing.assert_array_equal(again, x)


def quick(model=HorseshoeRegressor, **settings):
    training = Training(batch_size=128, max_iter=2, early_stopping=False)
    return model((4,), training=training, random_state=0, **settings)


@pytest.fixture(scope="module")
def from_arrays():
    """A fit from arrays in memory, streamed."""
    before, sources.PIECE = sources.PIECE, PIECE
    yield quick().fit(ArrayRows(*table()))
    sources.PIECE = before


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
@pytest.mark.parametrize("kind", SOURCES)
def test_all_sources_train_the_same(kind, tmp_path, from_arrays):
    x, y = table()
    source = SOURCES[kind](tmp_path, x, y)
    model = quick().fit(source)
    np.testing.assert_array_equal(model.history_.elbo, from_arrays.history_.elbo)
    streamed, expected = model.predict(source), from_arrays.predict(x)
    np.testing.assert_allclose(streamed, expected, rtol=1e-12)
    assert model.widths_ == from_arrays.widths_


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_rows_are_those_of_an_array_source(from_arrays):
    """And the units those of all rows at once."""
    x, y = table()
    units = from_arrays.model_.units
    assert units.x.mean == pytest.approx(x.mean(axis=0), rel=1e-12)
    assert units.x.scale == pytest.approx(x.std(axis=0), rel=1e-12)
    assert units.y.mean == pytest.approx(y.mean(), rel=1e-12)
    assert units.y.scale == pytest.approx(y.std(), rel=1e-12)
    standard = ArrayRows(units.x(x), units.y(y[:, None])[:, 0])
    again = quick(standardise=False).fit(standard)
    np.testing.assert_allclose(
        again.history_.elbo, from_arrays.history_.elbo, rtol=1e-9
    )


def test_converted_rows_are_those_of_their_source(tmp_path):
    """In the precision of JAX, wherever a batch takes them from."""
    x, y = table()
    source = parquet(tmp_path, x, y)
    double = ConvertedRows(source, lambda x, y, weight: (2 * x, y + 1, 3 * weight))
    assert (double.rows, double.pieces) == (source.rows, source.pieces)
    assert (double.mark(), double.where(300)) == (source.mark(), source.where(300))
    whole = Stream(ArrayRows(2 * x, y + 1), batch_size=128, key=jr.key(0))
    streamed = Stream(double, batch_size=128, key=jr.key(0))
    triple = whole.batch(7)[2] * 3
    for ours, theirs in zip(
        streamed.batch(7), (*whole.batch(7)[:2], triple), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
@pytest.mark.parametrize("kind", ["parquet", "batches"])
def test_a_fit_goes_on_in_the_middle_of_a_pass(kind, tmp_path, from_arrays):
    """To the same bits; also from batches that come only once."""
    x, y = table()
    checkpoint = tmp_path / "run.safetensors"

    def stop(share, history):
        if share > 0.3:
            raise InterruptedError

    source = SOURCES[kind](tmp_path, x, y)
    with pytest.raises(InterruptedError):
        quick().fit(source, checkpoint=checkpoint, callback=stop)
    if kind == "batches":
        source = batches(tmp_path, x, y)
    model = quick().fit(source, checkpoint=checkpoint)
    np.testing.assert_array_equal(model.history_.elbo, from_arrays.history_.elbo)
    other = ArrayRows(x, y + 1)
    with pytest.raises(ValueError, match="belongs to other rows"):
        quick().fit(other, checkpoint=checkpoint)


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_labels_and_weights(tmp_path):
    """Text labels from batches; a class weight is a weight of its rows."""
    x, y = table(1_000)
    labels = np.where(y > 0.4, "high", "low")
    weight = np.where(y > 0.4, 2.0, 1.0)
    cut = [slice(i, i + 90) for i in range(0, 1_000, 90)]
    weighted = BatchRows([(x[c], labels[c], weight[c]) for c in cut], tmp_path)
    model = quick(HorseshoeClassifier).fit(weighted)
    assert model.classes_.tolist() == ["high", "low"]
    assert model.n_rows_ == weight.sum()
    p = model.predict_proba(weighted)
    np.testing.assert_allclose(p, model.predict_proba(x), rtol=1e-12)
    by_class = quick(HorseshoeClassifier, class_weight={"high": 2}, standardise=False)
    by_row = quick(HorseshoeClassifier, standardise=False)
    ours = by_class.fit(ArrayRows(x, labels)).history_.elbo
    theirs = by_row.fit(ArrayRows(x, labels, weight)).history_.elbo
    np.testing.assert_array_equal(ours, theirs)
    del weighted, model
    until = time.monotonic() + 30
    while [*tmp_path.iterdir()] and time.monotonic() < until:
        gc.collect()  # the thread that reads ahead ends soon
        time.sleep(0.05)
    assert not [*tmp_path.iterdir()]


def test_large_arrays_on_a_disk_stay_there(tmp_path, monkeypatch):
    source = memmap(tmp_path, *table(50))
    assert sources.as_source(source.x, source.y, None) is None
    monkeypatch.setattr(sources, "LARGE", 8 * 3 * 49)
    assert isinstance(sources.as_source(source.x, source.y, None), ArrayRows)
    assert sources.as_source(np.array(source.x), source.y, None) is None


# --- faults -----------------------------------------------------------------------


def test_a_value_in_the_middle_of_a_stream_is_named(tmp_path):
    x, y = table()
    x[1_700, 1] = np.inf
    with pytest.raises(ValueError, match="holds inf in column 1 of row 1701"):
        ArrayRows(x, y).statistics()
    with pytest.raises(ValueError, match="column 1 of row 1701 of all batches"):
        batches(tmp_path, x, y).statistics()
    with pytest.raises(TableError, match=r"'b' holds 'inf' in row 1701"):
        parquet(tmp_path, x, y).statistics()
    x[1_700, 1] = np.nan
    place = r"'b' \(1, row 1701 \(row 421 of '1.parquet'\)\)"
    (tmp_path / "gaps").mkdir()
    with pytest.raises(TableError, match=place):
        parquet(tmp_path / "gaps", x, y).statistics()


def test_a_damaged_row_group_is_named(tmp_path):
    source = parquet(tmp_path, *table())
    path = source.table.files[1]
    where = source.table._metadata[path].row_group(2).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    content[where : where + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(TableError, match=r"1.parquet.* row group 2 of it cannot be"):
        ParquetRows(path.parent, "y").statistics()
    with pytest.raises(TableError, match=r"1.parquet.* row group 2 of it cannot be"):
        read_table(path.parent)


def test_folders_that_are_wrong_are_refused(tmp_path):
    with pytest.raises(TableError, match="has no files that end in"):
        ParquetRows(tmp_path, "y")
    with pytest.raises(TableError, match="is not there"):
        ParquetRows(tmp_path / "absent", "y")
    source = parquet(tmp_path, *table())
    folder = source.table.path
    with pytest.raises(TableError, match="has no column 'z'"):
        ParquetRows(folder, "z")
    pd.DataFrame({"a": [1], "b": [2.0], "y": [1.0]}).to_parquet(folder / "2.parquet")
    with pytest.raises(TableError, match=r"'a' is int64 in '2.parquet' and double in"):
        ParquetRows(folder, "y")
    (folder / "2.parquet").write_bytes(b"text")
    with pytest.raises(TableError, match=r"2.parquet' is not a whole Parquet file"):
        ParquetRows(folder, "y")


def test_batches_that_are_wrong_are_refused(tmp_path):
    x, y = table(50)
    for bad, needed in (
        ([x], r"Batch 0 must be \(X, y\)"),
        ([(x, y), (x[:, :2], y)], "batch 1 has float64 x 2"),
        ([(x, y[:3])], "one target for each row"),
        ([], "no rows"),
        ([(x, y, -y)], "must not be negative"),
    ):
        with pytest.raises(ValueError, match=needed):
            BatchRows(bad, tmp_path).statistics()
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    def full(self, *_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match=r"is full after 0 rows\. Give `BatchRows`"):
        BatchRows([table(50)], tmp_path).statistics()


def test_what_a_stream_cannot_do_is_refused(tmp_path):
    source = ArrayRows(*table(50))
    with pytest.raises(ValueError, match="give neither `y` nor `sample_weight`"):
        quick().fit(source, table(50)[1])
    for setting in ({"refine": "nuts"}, {"n_restarts": 2}):
        with pytest.raises(ValueError, match="need all rows in memory and one device"):
            quick(**setting).fit(source)
    with pytest.raises(OSError, match="could not be written"):
        quick().fit(source, checkpoint=tmp_path / "absent" / "run.safetensors")
    with pytest.raises(ValueError, match="one target of at most a thousand labels"):
        quick(HorseshoeClassifier).fit(ArrayRows(*table(2_000)))


def test_parts_of_a_large_row_group_are_read_alone(tmp_path, monkeypatch):
    x, y = table()
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    frame.to_parquet(tmp_path / "one.parquet", index=False)
    monkeypatch.setattr(sources, "PIECE_VALUES", 3 * 500)
    monkeypatch.setattr(parquet_files, "BATCH", 64)
    source = ParquetRows(tmp_path / "one.parquet", "y")
    assert source.pieces == [0, 500, 1_000, 1_500, 2_000, 2_500]
    np.testing.assert_array_equal(source.read(700, 1_130)[0], x[700:1_130])


@pytest.mark.parametrize("drawn", [True, False])
def test_a_lottery_parts_the_rows(tmp_path, drawn):
    x, y = table()
    parquet(tmp_path, x, y)
    source = ParquetRows(tmp_path / "big", "y", lottery=Lottery(0.2, 7, drawn=drawn))
    others = source.others()
    assert source.rows + others.rows == ROWS
    assert 0.16 < (source if drawn else others).rows / ROWS < 0.24
    found = [np.asarray(part.read(0, part.rows)[1]) for part in (source, others)]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(y))
    assert found[0] is not None
    np.testing.assert_array_equal(source.read(100, 320)[1], found[0][100:320])
