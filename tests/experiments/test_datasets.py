"""The generated data of the paper, and readers of public files."""

import gzip
import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from scipy import stats

from experiments import datasets
from experiments.datasets import (
    covtype,
    mixed,
    mnist,
    natops6,
    pmlb,
    pmlb_names,
    pmlb_regression,
    pmlb_regression_names,
    uci,
    year,
)
from farrier.datasets import cubic, two_two_one


@pytest.mark.parametrize("make", [cubic, two_two_one])
def test_a_seed_gives_its_rows(make):
    first, again, other = make(50, seed=0), make(50, seed=0), make(50, seed=1)
    for column, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(column, same)
        assert (column != different).any()


@pytest.mark.parametrize(("make", "rows"), [(cubic, 20), (two_two_one, 1000)])
def test_rows_of_the_paper(make, rows):
    X, y = make(seed=0)
    assert len(X) == len(y) == rows


def test_cubic_is_a_cubic_with_noise_of_sd_3():
    X, y = cubic(5_000, seed=0)
    assert X.shape == (5_000, 1)
    assert stats.kstest(X[:, 0], stats.uniform(-4, 8).cdf).pvalue > 0.001
    assert stats.kstest(y - X[:, 0] ** 3, stats.norm(0, 3).cdf).pvalue > 0.001


def test_two_two_one_has_the_odds_of_its_network():
    X, y = two_two_one(20_000, seed=0)
    assert X.shape == (20_000, 2)
    assert set(y) == {0, 1}
    left, right = np.maximum(X[:, 0] + X[:, 1], 0), np.maximum(X[:, 0] - X[:, 1], 0)
    p = 1 / (1 + np.exp(-10 * (left - right)))
    for low, high in ((0, 0.1), (0.1, 0.4), (0.4, 0.6), (0.6, 0.9), (0.9, 1)):
        inside = (p >= low) & (p <= high)
        standard_error = np.sqrt((p * (1 - p))[inside].sum()) / inside.sum()
        assert abs(y[inside].mean() - p[inside].mean()) < 5 * standard_error


def test_two_two_one_is_a_toss_up_on_a_quarter_of_its_rows():
    # Where both nodes are off nothing can be known: no model has an accuracy there.
    X, y = two_two_one(20_000, seed=1)
    both_off = (X[:, 0] + X[:, 1] <= 0) & (X[:, 0] - X[:, 1] <= 0)
    assert abs(both_off.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(X))
    assert abs(y[both_off].mean() - 0.5) < 5 * np.sqrt(0.25 / both_off.sum())


def test_mnist_is_read_from_its_own_format(tmp_path):
    (tmp_path / "mnist").mkdir()
    pixels = np.arange(2 * 784) % 256
    images = bytes(16) + pixels.astype(np.uint8).tobytes()
    for name, content in (
        ("t10k-images-idx3-ubyte.gz", images),
        ("t10k-labels-idx1-ubyte.gz", bytes(8) + bytes([7, 3])),
    ):
        (tmp_path / "mnist" / name).write_bytes(gzip.compress(content))
    x, y = mnist(tmp_path, "t10k")
    np.testing.assert_allclose(x, pixels.reshape(2, 784) / 126, rtol=1e-6)
    assert y.tolist() == [7, 3]


def test_mnist_has_its_rows(shared_data):
    x, y = mnist(shared_data, "t10k")
    assert x.shape == (10_000, 784)
    assert np.bincount(y).tolist()[:3] == [980, 1135, 1032]


def test_covtype_is_read_from_its_table(tmp_path):
    (tmp_path / "covtype").mkdir()
    lines = ["a,b,class", "1,2.5,7", "3,-4,1"]
    path = tmp_path / "covtype" / "covtype.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    x, y = covtype(tmp_path)
    assert x.tolist() == [[1, 2.5], [3, -4]]
    assert y.tolist() == [7, 1]


def write_pmlb(folder, part, name, lines):
    place = folder / part
    place.mkdir(exist_ok=True)
    text = "\n".join("\t".join(map(str, line)) for line in lines)
    (place / f"{name}.tsv.gz").write_bytes(gzip.compress(text.encode()))


def test_mixed_tables_are_encoded_and_their_target_is_not_an_input(tmp_path):
    """Strings become indicators, and a missing number its median and a mark."""
    (tmp_path / "mixed").mkdir()
    lines = ["rownames,card,reports,share,expenditure,owner", "1,yes,1,0.5,70,no"]
    lines += ["2,no,3,0,0,rent", "3,yes,NA,0.2,50,yes", "4,no,5,0,0,no"]
    (tmp_path / "mixed" / "CreditCard.csv").write_text("\n".join(lines))
    X, y = mixed("CreditCard", tmp_path)
    assert y.tolist() == ["yes", "no", "yes", "no"]
    columns = {tuple(column) for column in X.T}
    assert (1, 3, 3, 5) in columns
    assert (0, 0, 1, 0) in columns
    unused = {(1, 2, 3, 4), (0.5, 0, 0.2, 0), (70, 0, 50, 0)}
    assert not (unused | {(1, 0, 1, 0), (0, 1, 0, 1)}) & columns


def test_mixed_tables_have_their_rows(shared_data):
    X, y = mixed("credit_data", shared_data)
    assert len(X) == 4454
    assert np.isfinite(X).all()
    assert np.unique(y, return_counts=True)[1].tolist() == [1254, 3200]


def test_pmlb_tables_are_read_by_the_name_of_their_target(tmp_path):
    lines = [("a", "target", "b"), (1, 2, 0.5), (3, 0, -1)]
    write_pmlb(tmp_path, "pmlb", "second", lines)
    write_pmlb(tmp_path, "pmlb", "first", lines)
    lines = [("a", "b", "target"), (1, 2, 0.5), (3, 0, -1)]
    write_pmlb(tmp_path, "pmlb_regression", "third", lines)
    assert pmlb_names(tmp_path) == ("first", "second")
    assert pmlb_regression_names(tmp_path) == ("third",)
    X, label = pmlb("second", tmp_path)
    assert X.tolist() == [[1, 0.5], [3, -1]]
    assert label.tolist() == [2, 0]
    assert label.dtype == np.int64
    X, y = pmlb_regression("third", tmp_path)
    assert X.tolist() == [[1, 2], [3, 0]]
    assert y.tolist() == [0.5, -1]


@pytest.mark.parametrize("names", [pmlb_names, pmlb_regression_names])
def test_missing_pmlb_tables_are_reported(names, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"pmlb\w* is not there. PMLB tables"):
        names(tmp_path)


# Rows, columns and classes as PROVENANCE.md of the data folder has them.
@pytest.mark.parametrize(
    ("name", "rows", "columns", "classes"),
    [("car", 1728, 6, 4), ("australian", 690, 14, 2), ("led24", 3200, 24, 10)],
)
def test_pmlb_sets_have_their_rows_and_classes(
    shared_data, name, rows, columns, classes
):
    assert name in pmlb_names(shared_data)
    X, label = pmlb(name, shared_data)
    assert X.shape == (rows, columns)
    assert len(np.unique(label)) == classes


def test_pmlb_regression_sets_have_their_rows(shared_data):
    names = pmlb_regression_names(shared_data)
    assert names == tuple(sorted(names))
    X, y = pmlb_regression("560_bodyfat", shared_data)
    assert X.shape == (252, 14)
    assert len(np.unique(y)) == 176


# -- UCI ---------------------------------------------------------------------------


def write_uci(folder, name="protein", rows=6):
    """A small table in the layout of the standard splits."""
    place = folder / "uci" / datasets.UCI[name]
    place.mkdir(parents=True)
    table = np.arange(rows * 4.0).reshape(rows, 4)
    np.savetxt(place / "data.txt", table)
    (place / "index_features.txt").write_text("0\n2\n")
    (place / "index_target.txt").write_text("3\n")
    splits = datasets.UCI_SPLITS[name]
    (place / "n_splits.txt").write_text(f"{splits}\n")
    for i in range(splits):
        (place / f"index_train_{i}.txt").write_text("0\n3\n1\n")
        (place / f"index_test_{i}.txt").write_text(f"{2 + i % 2}\n")
    return table


def test_uci_takes_columns_and_splits_from_the_index_files(tmp_path):
    table = write_uci(tmp_path)
    X, y, splits = uci("protein", tmp_path)
    np.testing.assert_array_equal(X, table[:, [0, 2]])
    np.testing.assert_array_equal(y, table[:, 3])
    assert len(splits) == 5
    assert [part.tolist() for part in splits[1]] == [[0, 3, 1], [3]]


def test_an_unknown_set_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"one of \['boston', .*got 'bosten'"):
        uci("bosten", tmp_path)


# As PROVENANCE.md of the data folder has them.
SHAPES = {
    "boston": (506, 13, 20, 51),
    "naval": (11934, 16, 20, 1193),
    "yacht": (308, 6, 20, 31),
}


@pytest.mark.parametrize("name", SHAPES)
def test_uci_sets_have_their_rows_and_splits(shared_data, name):
    X, y, splits = uci(name, shared_data)
    rows, columns, count, tested = SHAPES[name]
    assert X.shape == (rows, columns)
    assert y.shape == (rows,)
    assert len(splits) == count
    for train, test in splits:
        assert len(test) == tested
        assert sorted([*train, *test]) == [*range(rows)]


@pytest.mark.parametrize("name", datasets.UCI)
def test_pins_are_those_of_the_files(shared_data, name):
    assert datasets.contents_of(name, shared_data) == datasets.UCI_SHA256[name]


# -- year, gestures ----------------------------------------------------------------


def test_year_is_read_from_its_published_layout(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "YEAR_TRAIN", 2)
    (tmp_path / "year").mkdir()
    lines = [",".join(map(str, [1990 + i, *range(90)])) for i in range(3)]
    (tmp_path / "year" / "YearPredictionMSD.txt").write_text("\n".join(lines))
    X, y, [(train, test)] = year(tmp_path)
    assert X.shape == (3, 90)
    assert X[1].tolist() == [*range(90)]
    assert y.tolist() == [1990, 1991, 1992]
    assert (train.tolist(), test.tolist()) == ([0, 1], [2])


def test_a_missing_year_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"put its text file under .* year/"):
        year(tmp_path)


def test_gestures_are_sampled_evenly_in_time(tmp_path):
    (tmp_path / "natops6").mkdir()
    length = np.array([29, 15, 20], np.int16)
    time = np.concatenate([np.arange(n) for n in length])
    np.savez(
        tmp_path / "natops6" / "natops6.npz",
        frames=(time[:, None] + np.arange(20) / 100).astype(np.float32),
        length=length,
        label=np.array([4, 5, 0], np.uint8),
        subject=np.array([7, 8, 9], np.uint8),
        duplicate_of=np.array([-1, -1, 1], np.int16),
    )
    X, label, subject = natops6(tmp_path)
    assert X.shape == (2, 300)  # the copy is left out
    assert label.tolist() == [4, 5]
    assert subject.tolist() == [7, 8]
    frames = X.reshape(2, 15, 20)
    np.testing.assert_array_equal(frames[0, :, 0], np.arange(0, 29, 2))
    np.testing.assert_array_equal(frames[1, :, 0], np.arange(15))
    np.testing.assert_allclose(frames[:, 3, 7] - frames[:, 3, 0], 0.07, rtol=1e-4)


def test_gestures_have_their_rows(shared_data):
    X, label, subject = natops6(shared_data)
    assert X.shape == (2263, 300)
    assert np.bincount(label).tolist() == [380, 378, 380, 380, 366, 379]
    assert len(set(subject)) == 19


# -- where the files are -----------------------------------------------------------


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A source of data on this machine, and an empty cache; nothing leaves it."""
    write_uci(tmp_path / "made")
    folder = tmp_path / "served" / datasets.UCI["protein"] / "data"
    shutil.copytree(tmp_path / "made" / "uci" / datasets.UCI["protein"], folder)
    contents = datasets.contents_of("protein", tmp_path / "made")
    monkeypatch.setitem(datasets.UCI_SHA256, "protein", contents)
    monkeypatch.delenv("FARRIER_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda project: tmp_path / "cache" / project)

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(self.path)

    asked = []
    handler = partial(Quiet, directory=tmp_path / "served")
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    source = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(datasets, "UCI_SOURCE", source)
    yield folder, asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_set_is_downloaded_once(served, tmp_path):
    _, asked = served
    files = datasets.uci_files("protein")
    folder = datasets.provide(files)
    assert folder == tmp_path / "cache" / "farrier"
    X, _, splits = uci("protein", folder)
    assert X.shape == (6, 2)
    assert len(splits) == 5
    assert len(asked) == len(files)
    assert datasets.provide(files) == folder
    assert len(asked) == len(files)
    assert [entry.name for entry in folder.iterdir()] == ["uci"]


def test_a_wrong_download_is_refused_and_removed(served, tmp_path):
    folder, _ = served
    (folder / "data.txt").write_text("1 2 3 4\n")
    with pytest.raises(ValueError, match=r"'protein' .* sha256 is .* it should be"):
        datasets.provide(datasets.uci_files("protein"))
    assert not [*(tmp_path / "cache").rglob("*.txt")]


def test_farrier_data_comes_first(served, tmp_path, monkeypatch):
    _, asked = served
    monkeypatch.setenv("FARRIER_DATA", str(tmp_path / "made"))
    assert datasets.provide(datasets.uci_files("protein")) == tmp_path / "made"
    assert not asked


def test_what_has_no_source_is_left_to_the_reader(served):
    _, asked = served
    folder = datasets.provide(["year/YearPredictionMSD.txt"])
    assert not asked
    with pytest.raises(FileNotFoundError, match="YearPredictionMSD"):
        year(folder)


def test_without_pooch_the_extra_is_named(monkeypatch):
    monkeypatch.delenv("FARRIER_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"farrier\[data\].*FARRIER_DATA"):
        datasets.provide(datasets.uci_files("protein"))
