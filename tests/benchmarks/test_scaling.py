"""Costs against rows, columns and width: the model, and what is made of it."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.scaling import BASE, Point


def rows_by(r, a, b, c):
    """All points with seconds by (Y1), written out once more."""
    found = []
    for point in scaling.points():
        n, d, w, batch = point.rows, point.columns, point.width, point.batch
        weights = d * w + w + w + 1  # kernel, biases, kernel, bias
        seconds = r + n / batch * (a + batch * (b + c * weights))
        found.append(asdict(point) | {"pass_s": seconds, "peak_GB": 1.0})
    return found


def test_the_cost_model_finds_the_costs_that_made_the_seconds():
    """(Y1), on passes that follow it."""
    costs = np.array([0.5, 2e-4, 3e-8, 4e-11])
    rows = rows_by(*costs)
    np.testing.assert_allclose(scaling.cost_model(rows), costs, rtol=1e-8)
    assert scaling.predicted(costs, rows[0]) == pytest.approx(rows[0]["pass_s"])


def test_passes_in_memory_have_no_say_in_the_model():
    rows = rows_by(0.5, 2e-4, 3e-8, 4e-11)
    slow = [r | {"pass_s": 9 * r["pass_s"]} if r["kind"] == "held" else r for r in rows]
    np.testing.assert_allclose(scaling.cost_model(slow), scaling.cost_model(rows))


def test_each_axis_starts_from_the_same_point_and_no_point_is_twice():
    found = scaling.points()
    assert len(set(found)) == len(found)
    for axis, values in scaling.AXES.items():
        assert {replace(BASE, **{axis: value}) for value in values} <= {*found}
    assert all(values[0] != values[-1] for values in scaling.AXES.values())


def test_the_page_says_what_the_model_does_of_a_large_table():
    rows = rows_by(0.0, 0.0, 3.6e-6, 0.0)  # an hour for 10^9 rows
    text = scaling.page(rows, scaling.cost_model(rows))
    assert "1,000,000,000 rows of 20 columns with 100 nodes: 1.0 hours" in text
    assert text.count("in memory") == len(scaling.HELD)
    figure = scaling.figure(rows, scaling.cost_model(rows))
    assert [ax.get_xlabel() for ax in figure.axes[4:]] == [*scaling.AXES]


def test_numbers_on_an_axis_are_short():
    assert [*map(scaling.short, (25, 2_048, 250_000, 4_000_000))] == [
        *("25", "2048", "250k", "4M")
    ]


@pytest.mark.slow
def test_a_pass_is_measured_from_the_disk_and_from_memory(monkeypatch, tmp_path):
    few = Point(rows=6_000, columns=3, width=2, batch=16)
    monkeypatch.setattr(scaling, "points", lambda: [few, replace(few, kind="held")])
    rows = scaling.run(tmp_path, lambda done, text: None)
    assert [row["kind"] for row in rows] == ["streamed", "held"]
    assert all(0 < row["pass_s"] < 60 and 0.1 < row["peak_GB"] < 5 for row in rows)
    assert json.loads((tmp_path / "scaling.json").read_text())["rows"] == rows
    assert (tmp_path / "scaling.png").stat().st_size > 10_000
