"""The tables of the page, against counting."""

import numpy as np
import pandas as pd
import pytest

from farrier.views.report.content import (
    Case,
    Classification,
    Input,
    data_table,
    number,
    value,
)


def case_of_classes(y, classes):
    model = type("Model", (), {"classes_": np.asarray(classes)})()
    return Case(model, None, np.asarray(y), [], "y", {}, "classification")


def test_confusion_counts():
    codes, best = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    found = Classification(np.eye(2)[best], codes, np.zeros(5))
    table = found.confusion(case_of_classes(["a", "a", "b", "b", "b"], ["a", "b"]))
    assert table.head[1:] == ["a", "b"]
    assert table.rows == [["a", "1", "1"], ["b", "1", "2"]]
    assert table.marks[1] == pytest.approx([0, 1 / 3, 2 / 3])


def test_many_classes_are_cut_to_the_most_frequent():
    codes = np.repeat(np.arange(20), np.arange(1, 21))
    found = Classification(np.eye(20)[codes], codes, np.zeros(len(codes)))
    table = found.confusion(case_of_classes(codes, np.arange(20)))
    assert table.head[1:] == [str(label) for label in range(8, 20)]


def test_coverage_of_sets_of_classes():
    """Sets of the most probable classes that together reach the level."""
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    found = Classification(p, np.array([1, 0]), np.zeros(2))
    table = found.coverage(case_of_classes([1, 0], [0, 1, 2]))
    # 50 %: {0} and {2}; 80 %: {0, 1} and {2, 1}; 90 %: all and {2, 1}; 95 %: all.
    assert [row[1] for row in table.rows] == ["0.0 %", "50.0 %", "50.0 %", "100.0 %"]
    assert [row[2] for row in table.rows] == ["1.00", "2.00", "2.50", "3.00"]


def test_columns_are_described():
    columns = [
        Input("age", "number", np.array([1.0, 3.0, np.nan, 2.0]), [0]),
        Input("job", "category", np.array(["x", "x", "y", None], object), [1, 2]),
        Input("day", "date", pd.to_datetime(["2020-01-02", None]).to_numpy(object), []),
    ]
    y = np.array([1.0, 2.0])
    rows = data_table(Case(None, None, y, columns, "pay", {}, "regression")).rows
    assert rows[0] == ["age", "number", "1", "3", "1 … 2 … 3"]
    assert rows[1] == ["job", "category", "1", "2", "x 67 %, y 33 %"]
    assert rows[2][2:4] == ["1", "1"]
    assert rows[3][0] == "pay (target)"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (0.0, "0"),
        (0.123456, "0.1235"),
        (1234.5, "1234"),
        (123456.7, "123,457"),
        (1e9, "1e+09"),
        (1e-7, "1e-07"),
    ],
)
def test_numbers_as_text(entry, text):
    assert number(entry) == text


def test_missing_values_are_named():
    assert value(None) == value(float("nan")) == value(pd.NaT) == value(pd.NA)
    assert value("x") == "x"
    assert value(7) == "7"
