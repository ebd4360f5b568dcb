"""Gestures: the splits, and what tables and claims make of the rows."""

import numpy as np
import pytest

from experiments import datasets, gestures


def made_rows(name="horseshoe", errors=(0.02, 0.03), honest=0.1, on=(40, 30)):
    about = {"model": name, "width": 400, "epochs": 500, "seconds": 60.0}
    about |= {"test_rows": 600, "log_density": -0.1, "nodes_on": [50, 40]}
    about["norms_on"] = [*on]
    rows = [about | {"split": f"random {i}", "error": e} for i, e in enumerate(errors)]
    norms = [np.geomspace(1, 1e-3, 400).tolist()] * 2
    return [*rows, about | {"split": "by subject", "error": honest, "norms": norms}]


def test_splits_are_those_that_are_stated():
    subject = np.repeat(np.arange(20), 10)
    found = gestures.splits(gestures.FULL, subject)
    assert [*found] == [*(f"random {i}" for i in range(5)), "by subject"]
    for name, test in found.items():
        assert test.mean() == 0.25
        people = set(subject[test]) & set(subject[~test])
        assert bool(people) == (name != "by subject")
    assert (found["random 0"] != found["random 1"]).any()
    again = gestures.splits(gestures.FULL, subject)
    assert all((again[name] == found[name]).all() for name in found)


def test_the_split_by_subject_is_that_of_the_data(shared_data):
    _, _, subject = datasets.natops6(shared_data)
    test = gestures.splits(gestures.FULL, subject)["by subject"]
    assert ((~test).sum(), test.sum()) == (1665, 598)


def test_a_part_for_each_width_and_model(tmp_path):
    names = list(gestures.parts(gestures.FULL, tmp_path))
    assert names == [f"400-400/{m}" for m in gestures.FULL.models]


def test_the_table_has_both_kinds_of_split():
    text = gestures.table(made_rows())
    row = "| HS-BNN | 400-400 | 500 | 2.50 ± 0.71 | 10.00 ± 1.22 |"
    assert row in text
    assert "50 - 40" in text
    assert "40 - 30" in text


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ((0.02, 0.03), "holds"),
        ((0.026, 0.037), "holds partly"),
        ((0.12, 0.13), "does not hold"),
    ],
)
def test_the_verdict_goes_split_by_split(errors, expected):
    rows = (
        made_rows(errors=errors) + made_rows("vmg") + made_rows("gaussian", (0.5, 0.6))
    )
    claim, _ = gestures.claims(rows)
    assert claim.verdict == expected
    assert "VMG 2.50%" in claim.evidence


def test_sparsity_is_that_of_the_split_by_subject():
    rows = made_rows() + made_rows("gaussian", on=(400, 400))
    _, claim = gestures.claims(rows)
    assert claim.verdict == "holds"
    assert gestures.claims(made_rows()) == []


def test_the_figure_shows_each_layer():
    figure = gestures.render(made_rows() + made_rows("vmg"))["norms"]
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [f"layer {i} of 400-400, 500 epochs" for i in (1, 2)]
    _, labels = figure.axes[1].get_legend_handles_labels()
    assert labels == ["HS-BNN", "VMG"]
