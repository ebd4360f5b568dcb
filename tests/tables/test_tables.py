"""Tables: files, columns and features, and all ways in which a table is wrong."""

import gzip
import json
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from farrier.tables import (
    Column,
    Columns,
    TableError,
    TableWarning,
    find_task,
    learn,
    read_chunks,
    read_table,
    writing,
)

CSV = """size, colour ,day,ready,price
1.5, blue,2024-02-29,yes,3
2,?,2023-12-31 18:00,no,4.25
-3e2,red, 2024-01-01,Yes,5
"""


@pytest.fixture
def csv(tmp_path):
    """A function that writes a table and returns where."""

    def write(content, name="table.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def frame_of(**columns):
    return pd.DataFrame(columns)


# --- files ------------------------------------------------------------------------


def test_a_table_is_read_without_spaces_and_with_its_gaps(csv):
    for frame in (
        read_table(csv(CSV)),
        read_table(csv(gzip.compress(CSV.encode()), "table.csv.gz")),
        read_table(csv("\ufeff" + CSV)),
        read_table(csv("\n\n" + CSV.replace("\n", "\r\n"))),
        read_table(csv(CSV.replace(",", ";"))),
        read_table(csv(CSV.replace(",", "\t"))),
    ):
        assert [*frame.columns] == ["size", "colour", "day", "ready", "price"]
        assert frame["size"].tolist() == ["1.5", "2", "-3e2"]
        assert frame["colour"].isna().tolist() == [False, True, False]
        assert frame["day"][2] == "2024-01-01"


def test_quotes_hold_separators_and_lines(csv):
    frame = read_table(csv('a,b\n"x, ""y""\nz",1\n5" pipe,2\n'))
    assert frame["a"].tolist() == ['x, "y"\nz', '5" pipe']


@pytest.mark.parametrize("missing", ["", "?", "NA", "NaN", "null", "None", " ? "])
def test_marks_of_missing_values_are_known(csv, missing):
    frame = read_table(csv(f"a,b\n{missing},1\nx,2\n"))
    assert frame["a"].isna().tolist() == [True, False]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("rows", [1, 3, 7, 10, 11])
def test_chunks_are_the_table(tmp_path, ending, rows):
    """All of it, in order, with rows counted on; one chunk even if there are none."""
    path = tmp_path / f"table.{ending}"
    frame = frame_of(a=np.arange(10.0), b=[*"abcdefghij"])
    with writing(path) as add:
        add(frame[:6])
        add(frame[6:])
    chunks = [*read_chunks(path, rows)]
    assert [len(chunk) for chunk in chunks[:-1]] == [rows] * (len(chunks) - 1)
    assert pd.concat(chunks).index.tolist() == [*range(10)]
    assert pd.concat(chunks)["b"].tolist() == frame["b"].tolist()
    assert read_table(path)["a"].astype(float).tolist() == frame["a"].tolist()
    with writing(path) as add:
        add(frame[:0])
    (empty,) = read_chunks(path)
    assert [*empty.columns] == ["a", "b"]
    assert not len(empty)


def test_a_file_that_fails_halfway_leaves_what_was_there(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")

    def fail():
        with writing(path) as add:
            add(frame_of(a=[1]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_text() == "old"
    with pytest.raises(TableError, match=r"must end in \.csv or \.parquet, got .*x'"):
        writing(tmp_path / "out.xlsx").__enter__()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b\n", "has no rows"),
        (b"a,b\n1,2\n3\n", "line 3 has 1 values, but there are 2 columns"),
        (b"a,b\n1,2\n3,4,5\n", "line 3 has 3 values"),
        (b"a,b,a\n1,2,3\n", "more than one column 'a'"),
        (b"a,,c\n1,2,3\n", "column 2 has no name"),
        (b"a,b\n1,2\n3,\xe9\n", "line 3 is not UTF-8"),
        (b"\xe9,b\n1,2\n", "line 1 is not UTF-8"),
        (b"\x7fELF\x00\x01\x02", "holds no text"),
        (b'a,b\n1,"2\n3,4\n', "line 3 cannot be read"),
        (b'a,"b\n1,2\n', "the names in line 1 cannot be read"),
        (b"PAR1 and more", "is not a whole Parquet file"),
        (gzip.compress(CSV.encode(), mtime=0)[:40], "is a damaged gzip file"),
    ],
)
def test_a_file_that_is_wrong_is_told_in_one_line(csv, content, reason):
    path = csv(content)
    with pytest.raises(TableError, match=reason) as caught:
        read_table(path)
    assert repr(str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_told(tmp_path):
    with pytest.raises(TableError, match=r"has no files that end in \.parquet"):
        read_table(tmp_path)
    with pytest.raises(TableError, match="is not there"):
        read_table(tmp_path / "absent.csv")


def test_parquet_files_that_are_wrong_are_told(tmp_path):
    path = tmp_path / "table.parquet"
    parquet.write_table(pa.table({"a": [[1], [2]]}), path)
    with pytest.raises(TableError, match="column 'a' holds values of type list"):
        read_table(path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"a,b\n1,2\n", whole[:4] + whole[8:]):
        path.write_bytes(content)
        with pytest.raises(TableError, match=r"table\.parquet"):
            read_table(path)


# --- columns ----------------------------------------------------------------------


def test_each_kind_becomes_its_features(csv):
    """By hand: the first row of the table above, and the gap in the second."""
    frame = read_table(csv(CSV))
    columns = learn([frame], "price", missing="impute").columns
    kinds = [column.kind for column in columns.columns]
    assert kinds == ["number", "category", "date", "boolean"]
    days = (date(2024, 2, 29) - date(1970, 1, 1)).days
    year, week = 2 * np.pi * 60 / 365.25, 2 * np.pi * 3 / 7  # a Thursday
    circles = [np.sin(year), np.cos(year), np.sin(week), np.cos(week)]
    X = columns.features(frame)
    np.testing.assert_allclose(X[0], [1.5, 1, 0, 0, days, *circles, 1])
    np.testing.assert_allclose(X[1, :4], [2, 1, 0, 1])  # blue for red, and missing
    assert X[1, 4] % 1 == 0.75
    assert X[2, -1] == 1  # Yes is yes
    assert columns.feature_names == [
        *("size", "colour=blue", "colour=red", "colour missing"),
        *("day days", "day sin year", "day cos year", "day sin week", "day cos week"),
        "ready=yes",
    ]
    assert columns.targets(frame).tolist() == [3, 4.25, 5]


def test_files_of_both_kinds_and_frames_give_the_same_features(csv, tmp_path):
    frame = frame_of(
        number=[1, 2, 3, 4],
        decimal=[Decimal(v) for v in ("1.25", "2", "3", "-4")],
        flag=[True, False, True, True],
        day=pd.to_datetime(["2024-01-01", "2024-05-06", "1969-01-01", "2024-12-31"]),
        text=["a", "b", "a", "c"],
        y=[0.5, 1.5, 2.5, 3.5],
    )
    frame["day2"] = frame["day"].dt.date
    frame["text2"] = frame["text"].astype("category")
    frame["y"] = frame.pop("y")
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    tables = [
        frame,
        read_table(tmp_path / "t.csv"),
        read_table(tmp_path / "t.parquet"),
        pl.from_pandas(frame.astype({"decimal": float, "day2": str})),
    ]
    learned = [learn([table], "y").columns for table in tables]
    assert all(columns == learned[0] for columns in learned)
    X = learned[0].features(frame)
    for table in tables:
        np.testing.assert_array_equal(learned[0].features(table), X)
    assert X.shape == (4, 2 + 1 + 5 + 3 + 5 + 3)


@given(st.dates(date(1900, 1, 1), date(2100, 1, 1)))
def test_a_date_is_its_calendar(day):
    column = Column("day", "date")
    values = pd.Series([day.isoformat()], name="day")
    found = column.features(values)[0]
    year = 2 * np.pi * day.timetuple().tm_yday / 365.25
    week = 2 * np.pi * day.weekday() / 7
    assert date(1970, 1, 1) + timedelta(days=found[0]) == day
    expected = [np.sin(year), np.cos(year), np.sin(week), np.cos(week)]
    np.testing.assert_allclose(found[1:], expected, atol=1e-12)


def test_columns_may_stand_in_any_order_and_others_beside_them():
    frame = frame_of(a=[1.0, 2, 3], b=["u", "v", "u"], y=[1.5, 2.5, 4.5])
    columns = learn([frame], "y").columns
    other = frame[["b", "a"]].assign(more=0)
    np.testing.assert_array_equal(columns.features(other), columns.features(frame))
    assert columns.extra(other) == ["more"]
    with pytest.raises(TableError, match=r"has no column 'a', 'b'\. It has 'y'"):
        columns.features(frame[["y"]])


def test_a_level_that_is_new_is_zeros_and_told():
    columns = learn([frame_of(a=[*"uvuv"], y=[1.5, 2, 3, 4])], "y").columns
    with pytest.warns(TableWarning, match="'a' holds .* not in the training rows .'w'"):
        found = columns.features(frame_of(a=["w", "v"]))
    assert found.tolist() == [[0, 0], [0, 1]]


def test_missing_values_are_all_named_at_once_or_filled_in():
    frame = frame_of(a=[1, None, 3], b=["u", None, None], c=[1, 2, 3], y=[1.5, 2, 3])
    needed = r"'a' \(1, row 2\), 'b' \(2, row 2\), of 3 .*impute"
    with pytest.raises(TableError, match=needed):
        learn([frame], "y")
    columns = learn([frame], "y", missing="impute").columns
    expected = [[1, 0, 1, 0, 1], [2, 1, 1, 1, 2], [3, 0, 1, 1, 3]]
    assert columns.features(frame).tolist() == expected
    gap = frame_of(a=[1], b=["u"], c=[None])  # the median, where none told before
    assert columns.features(gap).tolist() == [[1, 0, 1, 0, 2]]
    plain = learn([frame.dropna(axis=1)], "y").columns
    with pytest.raises(TableError, match="'c' has no value in row 1 and 1 rows in all"):
        plain.features(gap)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["1", "x", "3"], "'a' holds 'x' in row 2, which is not a number"),
        (["1", "2", "inf"], "'a' holds 'inf' in row 3, where a finite number"),
        (["1", "2", "1e999"], "'a' holds '1e999' in row 3, where a finite number"),
    ],
)
def test_what_is_no_number_is_told_with_its_row(values, reason):
    columns = learn([frame_of(a=[1.0, 2, 3], y=[1.5, 2, 3])], "y").columns
    with pytest.raises(TableError, match=reason):
        columns.features(frame_of(a=values))


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (Column("a", "date"), "2023-02-30", "holds '2023-02-30' in row 1, which is no"),
        (Column("a", "date"), "1 May", "holds '1 May' in row 1, where a date such as"),
        (Column("a", "boolean", ("no", "yes")), "maybe", "where 'no' or 'yes' is"),
    ],
)
def test_what_is_no_date_or_boolean_is_told(column, value, reason):
    with pytest.raises(TableError, match=reason):
        column.features(pd.Series([value], name="a"))


# --- targets ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "task", "why", "labels"),
    [
        (["a", "b", "c"] * 3, "classification", "3 labels that are strings", "text"),
        (["yes", "no"] * 3, "classification", "two labels", "text"),
        ([True, False] * 3, "classification", "two labels", "text"),
        ([0, 1] * 3, "classification", "two different values", "number"),
        ([0.5, 1.5] * 3, "classification", "two different values", "text"),
        ([1, 2, 3] * 3, "classification", "3 different values, all whole", "number"),
        ([1, 2, 3, 4], "regression", "4 different numbers", "text"),
        ([1, 2, 2.5] * 3, "regression", "3 different numbers", "text"),
        ([*range(11)] * 3, "regression", "11 different numbers", "text"),
    ],
)
def test_the_task_is_found_and_explained(values, task, why, labels):
    frame = frame_of(a=np.arange(len(values)), y=values)
    found, reason = find_task(frame["y"])
    assert (found, why in reason) == (task, True)
    columns = learn([frame], "y").columns
    assert (columns.task, columns.labels) == (task, labels)
    texts = frame.astype({"y": str})
    assert find_task(texts["y"])[0] == task
    found = columns.targets(texts)
    assert found.tolist() == columns.targets(frame).tolist()
    assert found.dtype.kind == {"regression": "f", "number": "i"}.get(
        task, {"number": "i", "text": "U"}[labels]
    )


@pytest.mark.parametrize(
    ("frame", "settings", "reason"),
    [
        ({"y": [1, 2, 3]}, {}, "no column besides the target"),
        ({"a": [1, 2, 3]}, {}, "no column 'y'. It has 'a'"),
        ({"1.5": [1, 2, 3]}, {}, "first line of the file hold the names"),
        ({"a": [1, 2, 3], "y": [1, None, 3]}, {}, "'y' has no value in row 2 and 1"),
        ({"a": [1, 2, 3], "y": [None] * 3}, {}, "'y' has no values at all"),
        ({"a": [None] * 3, "y": [1.5, 2, 3]}, {}, "'a' has no values at all.*--drop a"),
        ({"a": [1, 2, np.inf], "y": [1.5, 2, 3]}, {}, "'a' holds 'inf' in row 3"),
        ({"a": [1, 2, 3], "y": ["u", "u", "u"]}, {}, "same label in all rows: 'u'"),
        ({"a": [*range(30)], "y": [*map(str, map(chr, range(65, 95)))]}, {}, "30 dif"),
        (
            {"a": [f"n{i}" for i in range(30)], "y": np.arange(30.0)},
            {},
            "30 different strings in 30 rows.*seem to identify the rows.*--drop a",
        ),
        (
            {"a": [f"n{i % 300}" for i in range(900)], "y": np.arange(900.0)},
            {},
            "300 different strings in 900 rows.*at most 200",
        ),
        ({"a": [1.0], "y": [1.5]}, {}, "one row only"),
        ({"a": [1, 2, 3], "y": [*"uvu"]}, {"task": "regression"}, "'u' in row 1"),
        ({"a": [1, 2, 3], "y": [1, 2, 3]}, {"task": "sorting"}, "got 'sorting'"),
        ({"a": [1, 2, 3], "y": [1, 2, 3]}, {"missing": "guess"}, "got 'guess'"),
        (
            {"a": [1, 2, 3], "y": ["2024-01-01"] * 3},
            {},
            "'y' holds dates; it must",
        ),
    ],
)
def test_a_table_that_cannot_be_learned_from_is_told(frame, settings, reason):
    with pytest.raises(TableError, match=reason):
        learn([pd.DataFrame(frame)], "y", **settings)


def test_what_is_no_table_is_told():
    with pytest.raises(TableError, match="pandas or polars data frame, got list"):
        learn([[[1, 2]]], "y")
    twice = pd.DataFrame([[1, 2, 3]], columns=["a", "a", "y"])
    with pytest.raises(TableError, match="more than one column 'a'"):
        learn([twice], "y")


# --- in the header of a file ------------------------------------------------------


def test_columns_come_back_from_json(csv):
    columns = learn([read_table(csv(CSV))], "price", missing="impute").columns
    assert Columns.from_json(json.loads(json.dumps(columns.to_json()))) == columns


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": "many"},
        {"task": "sorting"},
        {"target": 3},
        {"labels": "numbers"},
        {"more": 1},
        {"columns": [{"name": "a"}]},
    ],
)
def test_broken_columns_are_refused(change):
    whole = Columns((Column("a", "number"),), "y").to_json()
    with pytest.raises(ValueError, match=r"\w"):
        Columns.from_json(json.loads(json.dumps(whole | change)))
    for broken in (
        {"kind": "text"},
        {"levels": ["u"]},
        {"fill": "u"},
        {"fill": float("nan")},
        {"indicator": 1},
        {"kind": "boolean"},
        {"kind": "category", "levels": ["u", "u"]},
        {"kind": "category", "levels": ["u"], "fill": "v"},
    ):
        column = {"levels": []} | whole["columns"][0] | broken
        column["levels"] = [*column["levels"]]
        with pytest.raises(ValueError, match=r"\w"):
            Columns.from_json(whole | {"columns": [column]})
