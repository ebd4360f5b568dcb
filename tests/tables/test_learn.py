"""Columns learned piece by piece are those that all rows at once give."""

import itertools

import numpy as np
import pandas as pd
import pytest

from farrier.tables import Columns, TableError, describe, find_task
from farrier.tables.learn import learn

ROWS = 600


def mixed(rows=ROWS):
    """A table with every kind of column, in which early rows tell little of later."""
    rng = np.random.default_rng(0)
    number = np.arange(rows)
    day = pd.Timestamp("2024-02-01") + pd.to_timedelta(number, unit="D")
    colour = np.where(number < 200, "red", rng.choice(["blue", " green", "red"], rows))
    return pd.DataFrame(
        {
            "size": rng.normal(1e6, 3, rows),
            "count": rng.integers(0, 9, rows),
            "colour": pd.Series(colour, dtype=object).where(number % 7 > 0, None),
            "ready": np.where(number < 150, "yes", np.where(number % 3, "No", "Yes")),
            "flag": pd.array(number % 4 == 0, dtype="boolean"),
            "day": pd.Series(day).where(number != 400, pd.NaT),
            "written": [f"{d:%Y-%m-%d}" for d in day],
            "text": [str(v) for v in rng.normal(size=rows).round(2) + 0.0],
            "code": np.where(number < 300, "12", "x"),  # numbers at first
            "gaps": pd.Series(rng.normal(size=rows)).where(number % 5 > 0, np.nan),
            "same": 3.0,
            "y": rng.normal(size=rows),
        }
    )


def pieces(frame, cuts=(1, 100, 130, 400)):
    ends = [0, *cuts, len(frame)]
    return [frame[a:b] for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize("cuts", [(), (1, 100, 130, 400)])
def test_columns_are_those_of_all_rows_at_once(cuts):
    frame = mixed()
    found = learn(pieces(frame, cuts), "y", missing="impute")
    assert found.columns == Columns.learn(frame, "y", missing="impute")
    kinds = [column.kind for column in found.columns.columns]
    assert kinds == [
        *("number", "number", "category", "boolean", "boolean", "date", "date"),
        *("number", "category", "number", "number"),
    ]
    assert found.why.split("has")[0] == find_task(frame["y"])[1].split("has")[0]
    assert found.described == describe(found.columns, frame)


def test_moments_are_those_of_the_features():
    """Of all features, missing values filled in: (D1)."""
    frame = mixed()
    found = learn(pieces(frame), "y", missing="impute")
    features = found.columns.features(frame)
    np.testing.assert_allclose(found.x.mean, features.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.x.sd, features.std(axis=0), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.x.low, features.min(axis=0))
    np.testing.assert_array_equal(found.x.high, features.max(axis=0))
    assert found.y is not None
    assert found.y.mean[0] == pytest.approx(frame["y"].mean())
    assert len(found.sample) == ROWS


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["a", " b"], {"a": 300, "b": 300}),
        ([True, False], {"True": 300, "False": 300}),
        ([1, 2], {1: 300, 2: 300}),
        (["1", "2.0"], {1: 300, 2: 300}),
    ],
)
def test_labels_are_counted(values, labels):
    frame = mixed().assign(y=pd.Series(values * (ROWS // 2)))
    found = learn(pieces(frame), "y", missing="impute")
    expected = Columns.learn(frame, "y", missing="impute")
    assert found.columns == expected
    assert found.labels == labels
    assert set(expected.targets(frame).tolist()) == set(labels)


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({"y": None}, "no values at all"),
        ({"y": lambda f: f["y"].where(f.index != 450, np.nan)}, "no value in row 451"),
        ({"y": lambda f: f["day"].ffill()}, "holds dates"),
        ({"y": lambda f: f["text"] + "t"}, "labels"),
        ({"size": lambda f: f["size"].where(f.index != 450, np.inf)}, "in row 451"),
        ({"name": lambda f: f["size"].map(str) + "t"}, "--drop name"),
        ({"none": None}, "'none' has no values at all"),
    ],
)
def test_a_table_that_cannot_be_learned_is_refused(change, needed):
    frame = mixed().assign(**change)
    with pytest.raises(TableError, match=needed):
        learn(pieces(frame), "y", missing="impute")


def test_missing_values_are_named_with_their_first_rows():
    with pytest.raises(TableError, match=r"'colour' \(86, row 1\), 'day' \(1, row 401"):
        learn(pieces(mixed()), "y")
    with pytest.raises(TableError, match="has no column 'z'"):
        learn(pieces(mixed()), "z")
