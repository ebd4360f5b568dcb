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


def claims_on(ours, gaussian=(0.02, 0.03), honest=0.1):
    rows = made_rows(errors=ours, honest=honest) + made_rows("gaussian", gaussian)
    return gestures.claims(rows + made_rows("vmg") + made_rows("scale-mixture"))


@pytest.mark.parametrize(
    ("errors", "honest", "expected"),
    [
        ((0.0101, 0.02), 0.05, "holds"),
        ((0.0101, 0.02), 0.09, "holds partly"),
        ((0.0201, 0.03), 0.05, "holds partly"),
        ((0.0, 0.03), 0.09, "does not hold"),
        ((0.0301, 0.04), 0.15, "does not hold"),
    ],
)
def test_better_is_significant_in_both_kinds_of_split(errors, honest, expected):
    claim = claims_on(errors, honest=honest)[0]
    assert claim.verdict == expected
    assert claim.text.endswith('"HS-BNN significantly outperforms BNN".')
    assert "by subject" in claim.evidence


@pytest.mark.parametrize(
    ("errors", "honest", "expected"),
    [
        ((0.025, 0.025), 0.1, "holds"),
        ((0.0301, 0.04), 0.1, "holds partly"),
        ((0.0101, 0.02), 0.05, "does not hold"),
        ((0.0301, 0.04), 0.15, "does not hold"),
    ],
)
def test_competitive_is_within_two_errors_either_way(errors, honest, expected):
    claim = claims_on(errors, honest=honest)[1]
    assert claim.verdict == expected
    assert "against VMG" in claim.evidence
    assert "against SM-BNN" in claim.evidence


def test_sparsity_goes_by_the_widths_of_the_split_by_subject():
    rows = made_rows() + made_rows("gaussian")
    assert gestures.claims(rows)[2].verdict == "holds"
    for row in rows:
        row["nodes_on"] = [400, 341]
    claim = gestures.claims(rows)[2]
    assert claim.verdict == "does not hold"
    assert "400 - 341 (40 - 30) of 400 - 400" in claim.evidence
    assert gestures.claims(rows)[1].verdict == "waits for results"
    assert gestures.claims(made_rows()) == []


def test_the_figure_shows_each_layer():
    figure = gestures.render(made_rows() + made_rows("vmg"))["norms"]
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == [f"layer {i} of 400-400, 500 epochs" for i in (1, 2)]
    _, labels = figure.axes[1].get_legend_handles_labels()
    assert labels == ["HS-BNN", "VMG"]
