"""Columns learned piece by piece are those that all rows at once give."""

import itertools

import numpy as np
import pandas as pd
import pytest

from farrier.tables import TableError, find_task, learn

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
def test_kinds_levels_and_fills_are_those_of_all_rows(cuts):
    """Against counting by pandas."""
    frame = mixed()
    learned = learn(pieces(frame, cuts), "y", missing="impute")
    columns = {column.name: column for column in learned.columns.columns}
    assert [column.kind for column in columns.values()] == [
        *("number", "number", "category", "boolean", "boolean", "date", "date"),
        *("number", "category", "number", "number"),
    ]
    levels = {name: column.levels for name, column in columns.items() if column.levels}
    assert levels == {
        "colour": ("blue", "green", "red"),
        "ready": ("No", "yes"),
        "flag": ("False", "True"),
        "code": ("12", "x"),
    }
    fills = {name: column.fill for name, column in columns.items()}
    for name in ("size", "count", "gaps", "same"):
        assert fills[name] == frame[name].median()
    assert fills["text"] == frame["text"].astype(float).median()
    middle = frame["day"].median() - pd.Timestamp(0)
    assert fills["day"] == pytest.approx(middle / pd.Timedelta(days=1), rel=1e-12)
    for name in ("colour", "code"):
        assert fills[name] == frame[name].str.strip().value_counts().index[0]
    assert (fills["ready"], fills["flag"]) == ("No", "False")  # the first is a tie
    gaps = [name for name, column in columns.items() if column.indicator]
    assert gaps == ["colour", "day", "gaps"]
    assert learned.columns.target == "y"
    assert learned.why == find_task(frame["y"])[1] == "'y' has 600 different numbers."
    for row, column in zip(learned.described, columns.values(), strict=True):
        values = frame[column.name]
        counts = {"missing": values.isna().sum(), "distinct": values.nunique()}
        assert row == {"name": column.name, "kind": column.kind} | counts


def test_pieces_give_the_columns_of_one_frame():
    frame = mixed()
    whole = learn([frame], "y", missing="impute", sample_rows=None)
    assert learn(pieces(frame), "y", missing="impute").columns == whole.columns
    pd.testing.assert_frame_equal(whole.sample, frame)


def test_the_median_is_that_of_the_sample():
    """Of a sample of 100 rows, chosen by their numbers; of all rows by default."""
    frame = mixed()
    few = learn(pieces(frame), "y", missing="impute", sample_rows=100)
    assert len(few.sample) == 100
    column = {column.name: column for column in few.columns.columns}["size"]
    assert column.fill == few.sample["size"].median() != frame["size"].median()


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
    ("values", "labels", "kind"),
    [
        (["a", " b"], {"a": 300, "b": 300}, "text"),
        ([True, False], {"True": 300, "False": 300}, "text"),
        ([1, 2], {1: 300, 2: 300}, "number"),
        (["1", "2.0"], {1: 300, 2: 300}, "number"),
        ([0.5, 1.5], {"0.5": 300, "1.5": 300}, "text"),
        ([np.float32(0.1), np.float32(2)], None, "text"),
    ],
)
def test_labels_are_counted(values, labels, kind):
    frame = mixed().assign(y=pd.Series(np.resize(pd.Series(values).to_numpy(), ROWS)))
    learned = learn(pieces(frame), "y", missing="impute")
    assert (learned.columns.task, learned.columns.labels) == ("classification", kind)
    targets = learned.columns.targets(frame).tolist()
    assert learned.labels == {v: targets.count(v) for v in targets}
    assert labels in (None, learned.labels)
    assert learned.y is None


def test_a_boolean_target_of_a_regression_counts_as_0_and_1():
    frame = mixed().assign(y=np.arange(ROWS) % 3 == 0)
    learned = learn(pieces(frame), "y", missing="impute", task="regression")
    assert learned.y is not None
    y = learned.columns.targets(frame)
    assert learned.y.mean[0] == pytest.approx(y.mean())
    assert learned.y.sd[0] == pytest.approx(y.std())


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({"y": None}, "no values at all"),
        ({"y": lambda f: f["y"].where(f.index != 450, np.nan)}, "no value in row 451"),
        ({"y": lambda f: f["day"].ffill()}, "holds dates"),
        ({"y": lambda f: f["text"] + "t"}, "different labels in 600 rows"),
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
