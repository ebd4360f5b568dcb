"""The regression tables: scores of a split, resuming, tables and claims."""

import dataclasses
import json
import math
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from experiments import datasets, uci
from experiments._cells import Cell
from experiments._harness import Work, read_rows
from experiments.published import HORSESHOE, VMG, Number
from experiments.settings import arguments
from farrier import HorseshoeRegressor, TrainingWarning
from farrier.presets import PLAIN

RESULTS = Path(__file__).parents[2] / "results"


def made_rows(name="yacht", model="horseshoe", rmses=(1.5, 1.7), density=-2.3):
    return [
        {
            "set": name,
            "model": model,
            "split": split,
            "rmse": rmse,
            "rmse_of_draws": rmse + 0.1,
            "log_density": density + 0.01 * split,
            "nodes_on": 10,
            "width": 50,
            "seconds": 3.0,
            "epochs": 6000,
        }
        for split, rmse in enumerate(rmses)
    ]


def all_as_printed(model="horseshoe", worse=()):
    """Two splits of each set, with small errors and the printed means."""
    rows = []
    for name in datasets.UCI:
        score = uci.PRINTED[model][name]
        rmse = 2 * score.rmse.mean + 1 if name in worse else score.rmse.mean
        density = score.log_density.mean
        off = 1 if model == "vmg" else -1  # so that two models differ by no constant
        of_set = made_rows(name, model, (0.999 * rmse, 1.001 * rmse), density)
        for row, sign in zip(of_set, (-1, 1), strict=True):
            row["log_density"] = density + 0.001 * sign * off
        rows += of_set
    return rows


def test_parts_and_files(tmp_path):
    names = list(uci.parts(uci.FULL, tmp_path))
    assert names[:2] == ["boston/horseshoe", "boston/vmg"]
    assert len(names) == 20
    files = uci.data_files(uci.FULL)
    assert "uci/naval-propulsion-plant/data.txt" in files
    assert "year/YearPredictionMSD.txt" in files


Y = np.linspace(0, 10, 300)


@pytest.mark.parametrize("model", ["horseshoe", "vmg"])
@pytest.mark.parametrize(
    ("name", "width"), [("yacht", 50), ("protein", 100), ("year", 100)]
)
def test_units_are_those_of_the_paper(model, name, width):
    given = uci.settings(uci.FULL, name, model, Y)
    assert given["hidden_layer_sizes"] == (width,)
    assert uci.settings(uci.SMOKE, name, model, Y)["max_iter"] == 2


def test_noise_priors_are_those_of_the_two_papers():
    paper = uci.settings(uci.FULL, "yacht", "horseshoe", Y)
    assert (paper["likelihood"].shape, paper["likelihood"].rate) == (6, 6)
    vmg = uci.settings(uci.FULL, "yacht", "vmg", Y)
    assert vmg["likelihood"].rate == pytest.approx(6 / Y.var(), rel=0.1)


def test_passes_of_a_large_table_are_bounded():
    assert uci.settings(uci.FULL, "yacht", "vmg", Y)["max_iter"] == 2_000
    large = np.tile(Y, 100)
    passes = uci.settings(uci.FULL, "protein", "vmg", large)["max_iter"]
    assert passes * len(large) / 32 == pytest.approx(20_000, rel=0.05)


def test_sets_of_many_rows_are_trained_as_long_as_digits():
    for name, epochs in (("yacht", "auto"), ("protein", 500), ("kin8nm", 500)):
        assert uci.settings(uci.FULL, name, "horseshoe", Y)["max_iter"] == epochs
        told = uci.settings_of(uci.FULL, f"{name}/horseshoe")
        assert told.get("epochs", "auto") == epochs


def test_a_part_is_kept_when_other_sets_are_added():
    less = dataclasses.replace(uci.FULL, sets=("yacht",), models=("vmg",))
    assert uci.settings_of(less, "yacht/vmg") == uci.settings_of(uci.FULL, "yacht/vmg")
    other = dataclasses.replace(uci.FULL, draws=7)
    assert uci.settings_of(other, "yacht/vmg") != uci.settings_of(uci.FULL, "yacht/vmg")


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(size=(80, 2))
    y = 100 + 20 * X[:, 0] + np.random.default_rng(1).normal(size=80)
    settings = {"max_iter": 400, "random_state": 0, "kl_annealing": 0.0}
    model = HorseshoeRegressor((6,), **arguments(PLAIN, settings))
    with pytest.warns(TrainingWarning, match="not converged"):
        return model.fit(X, y), X, y


def test_single_draws_are_functions_in_the_units_of_the_target(fitted):
    model, X, _ = fitted
    drawn = uci.single_draws(model, X, 400, key=jr.key(0))
    assert drawn.shape == (80, 400)
    # Their mean is the predictive mean, up to the error of the draws of both.
    error = np.sqrt(drawn.var(1) * (1 / 400 + 1 / model.n_draws))
    assert (np.abs(drawn.mean(1) - model.predict(X)) < 5 * error).all()
    # They carry no noise: neighbours on a line lie on a smooth curve.
    line = np.column_stack([np.linspace(1, 1.001, 3), np.zeros(3)])
    curve = uci.single_draws(model, line, 50, key=jr.key(0))
    assert np.abs(np.diff(curve, axis=0)).max() < 0.2


def test_a_single_draw_errs_more_than_the_mean(fitted):
    model, X, y = fitted
    row = uci.scores(model, X, y, np.arange(80) < 20, uci.FULL)
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    assert row["rmse_of_draws"] > row["rmse"]
    assert row["log_density"] == pytest.approx(model.log_density(X, y).mean())
    assert (row["nodes_on"], row["width"]) == (model.widths_[0], 6)
    new = slice(20, None)
    expected = np.sqrt(np.mean((model.predict(X[new]) - y[new]) ** 2))
    assert row["copies"] == 0.25
    assert row["rmse_new"] == pytest.approx(expected)
    density = model.log_density(X[new], y[new]).mean()
    assert row["log_density_new"] == pytest.approx(density)


def test_finished_splits_are_not_run_again(tmp_path, monkeypatch):
    X, y = np.zeros((4, 2)), np.arange(4.0)
    splits = [(np.array([i]), np.array([3])) for i in range(3)]
    monkeypatch.setattr(uci.datasets, "uci", lambda name, data: (X, y, splits))
    monkeypatch.setattr(
        uci, "scores", lambda model, *arguments: {"rmse": model.random_state}
    )
    fits = []

    def fit_some(models, X, y, rows, after_fit):
        for index, model in enumerate(models):
            fits.append((model.random_state, rows[index].tolist()))
            after_fit(index, model)
            if len(fits) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(uci, "fit_many", fit_some)
    work = Work(tmp_path, lambda share, text: None)
    with pytest.raises(KeyboardInterrupt):
        uci.fit(uci.FULL, tmp_path, "yacht", "horseshoe", work)
    rows = uci.fit(uci.FULL, tmp_path, "yacht", "horseshoe", work)
    assert fits == [(0, [0]), (1, [1]), (2, [2])]
    assert [row["rmse"] for row in rows] == [0, 1, 2]
    assert [row["split"] for row in rows] == [0, 1, 2]
    assert json.loads((tmp_path / "2.json").read_text())["set"] == "yacht"
    assert rows[0]["distinct_targets"] == 4


def test_a_copy_equals_a_training_row_in_all_columns_and_the_target():
    X = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [0.0, 3.0], [-0.0, 3.0], [1, 3]])
    y = np.array([5.0, 5.0, 6.0, 7.0, 7.0, 5.0])
    train, test = np.array([0, 3]), np.array([1, 2, 4, 5])
    assert uci.copied(X, y, train, test).tolist() == [True, False, True, False]
    every = np.arange(6)
    assert uci.copied(X, y, every, every).all()
    assert not uci.copied(X, y, every[:0], every).any()


def test_copies_agree_with_comparing_all_pairs(getkey):
    values = np.asarray(jr.randint(getkey(), (90, 3), 0, 4), float)
    X, y = values[:, :2], values[:, 2]
    train, test = np.arange(60), np.arange(60, 90)
    pairs = (values[test][:, None] == values[train]).all(-1).any(1)
    assert 0 < pairs.sum() < 30
    np.testing.assert_array_equal(uci.copied(X, y, train, test), pairs)


@pytest.mark.parametrize(
    ("name", "share", "targets"), [("wine", 0.266, 6), ("yacht", 0.0, 258)]
)
def test_copies_and_targets_of_the_standard_splits(shared_data, name, share, targets):
    X, y, splits = datasets.uci(name, shared_data)
    found = np.mean([uci.copied(X, y, *split).mean() for split in splits])
    assert found == pytest.approx(share, abs=0.0005)
    assert len(np.unique(y)) == targets


@pytest.mark.parametrize("is_copy", [[False] * 3, [True] * 3])
def test_scores_without_copies_need_some_of_both(is_copy):
    predicted, density, y = np.zeros(3), np.array([0.0, 1, 2]), np.array([1.0, 2, 2])
    row = uci.point_scores(predicted, density, y, np.array(is_copy))
    assert row["copies"] == is_copy[0]
    assert row["rmse_new"] is row["log_density_new"] is None
    assert (row["rmse"], row["log_density"]) == (math.sqrt(3), 1)


def test_the_page_has_scores_with_and_without_copies():
    rows = made_rows("wine", rmses=(0.5, 0.7), density=-0.9)
    page = uci.table(rows)
    assert "scores without them: not measured yet." in page
    assert uci.MARK not in page
    fields = {"distinct_targets": 6, "copies": 0.25}
    rows[0] |= fields | {"rmse_new": 0.8, "log_density_new": -1.5}
    rows[1] |= fields | {"copies": 0.0, "rmse_new": None, "log_density_new": None}
    page = uci.table(rows + made_rows("boston"))
    # The second split has no copies: all of its rows are without.
    assert "| wine | 12.5% | 0.600 ± 0.1 | 0.750 ± 0.05 | -0.895 ± 0.005† |" in page
    assert f"| {(-1.5 - 0.89) / 2:#.3g} ± 0.3" in page
    assert "† wine has 6 distinct targets." in page
    assert "not measured yet (boston)." in page


@pytest.mark.parametrize(
    ("values", "score", "expected"),
    [
        ((1.5, 1.7), "rmse", "level"),
        ((1.58, 1.58), "rmse", "level"),
        ((1.584, 1.584), "rmse", "level"),
        ((1.63, 1.63), "rmse", "level"),  # the printed error is 0.051
        ((1.64, 1.64), "rmse", "worse"),
        ((1.5, 1.5), "rmse", "better"),
        ((-2.34, -2.34), "log_density", "worse"),
        ((-2.32, -2.32), "log_density", "better"),
    ],
)
def test_a_cell_goes_by_both_standard_errors(values, score, expected):
    rows = [{"set": "yacht", score: value} for value in values]
    found = uci.cell(rows, score, "HS-BNN", HORSESHOE["yacht"])
    assert found.verdict == expected
    assert found.our_error == pytest.approx(stats.sem(values))
    assert found.name.startswith("yacht, ")


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (-2.30, "level"),  # better by 0.18, and 0.66 is printed
        (-2.66, "worse"),  # worse by 0.18: 0.66 is no excuse
        (-1.0, "better"),
    ],
)
def test_of_a_misprint_the_less_favourable_verdict_stands(ours, expected):
    printed = VMG["boston"].log_density
    assert printed.misprint
    found = uci.judged("boston", "log_density", (ours, 0.01), printed)
    assert found.verdict == expected
    right = Number(-2.48, 0.09, 0.09)
    assert uci.judged("boston", "log_density", (-2.3, 0.01), right).verdict == "better"


def test_counts_are_of_all_three_states_and_of_clear_ones():
    values = (1.0, 2.5, -1.5, -3.0, 0.5, 9.0)
    found = [
        Cell(f"s{v}, RMSE", v, 1.0, 0.0, math.nan, more_is_better=True) for v in values
    ]
    assert uci.counted(found) == (
        "Better in 2 of 6 cells, level in 2, worse in 2 "
        "(by over two standard errors, better in 2, worse in 1)"
    )
    assert uci.grouped(found, "worse") == "; worse: s-1.5 (RMSE), s-3.0 (RMSE)"
    assert uci.listed(found[:1], "worse") == ""
    assert uci.listed(found[2:3], "worse") == (
        "; worse: s-1.5 RMSE -1.50 ± 1 (printed 0.00)"
    )


def test_a_paired_cell_and_its_p_value_agree_with_scipy():
    ours = made_rows("yacht", "horseshoe", (1.5, 1.9, 1.4, 2.2))
    theirs = made_rows("yacht", "vmg", (1.4, 2.0, 1.1, 1.8, 7.0))
    found = uci.paired_cell("yacht, RMSE", "rmse", ours, theirs)
    a, b = [1.5, 1.9, 1.4, 2.2], [1.4, 2.0, 1.1, 1.8]  # the splits of both
    expected = stats.ttest_rel(a, b)
    assert found.ours / found.our_error == pytest.approx(expected.statistic)
    gaps = uci.differences(ours, theirs, "rmse")
    assert uci.p_value(gaps) == pytest.approx(expected.pvalue)
    assert found.verdict == "worse"
    assert uci.paired_cell("", "rmse", theirs, ours).verdict == "better"
    same = uci.paired_cell("", "rmse", ours, ours)
    assert (same.ours, same.verdict) == (0, "level")


def test_the_table_has_published_ours_and_difference():
    rows = made_rows() + made_rows("boston", "vmg", (2.6, 2.8), -2.4)
    text = uci.table(rows)
    start = "| yacht | 1.58 ± 0.051 | 1.60 ± 0.1 | +0.02 | level | 1.7 | -2.33 ± 0.0022"
    assert start in text
    assert "| boston | 2.72 ± 0.13 (original 2.70) | 2.70 ± 0.1 |" in text
    assert "| -2.48 ± 0.66? (original -2.46) |" in text


def test_cells_are_those_of_both_columns():
    found = uci.cells(all_as_printed() + all_as_printed("vmg"))
    assert len(found) == len({each.name for each in found}) == 36
    assert {each.verdict for each in found} == {"level"}
    assert found[0].name == "boston, RMSE, against the printed HS-BNN"


def test_claims_hold_when_all_is_as_printed():
    claims = uci.claims(all_as_printed() + all_as_printed("vmg"))
    verdicts = [claim.verdict for claim in claims]
    assert verdicts[:4] == ["holds"] * 4
    assert "level in 9, worse in 0" in claims[0].evidence
    # The printed numbers of HS-BNN are worse than those of VMG on five sets.
    above = [n for n in datasets.UCI if HORSESHOE[n].rmse.mean > VMG[n].rmse.mean]
    assert len(above) == 5
    # So are the densities, but that of protein by little: p = 0.06 over two splits.
    assert verdicts[4:] == ["does not hold", "holds partly", "holds"]
    assert "own numbers: better in 0 of 9 sets, level in 4, wor" in claims[4].evidence
    assert "By the paper's own numbers, better on kin8nm, naval" in claims[6].evidence


def test_claims_name_the_sets_that_fail():
    claim = uci.claims(all_as_printed(worse=("energy",)))[0]
    assert claim.verdict == "holds partly"
    assert "level in 8, worse in 1 " in claim.evidence
    assert "worse: energy RMSE 4.98 ± 0.005 (printed 1.99 ± 0.076)." in claim.evidence


def test_claims_wait_for_sets_that_are_to_come():
    claims = uci.claims(made_rows())
    assert {claim.verdict for claim in claims} == {"waits for results"}
    assert "To come: boston, concrete" in claims[0].evidence


def test_by_two_standard_errors_the_log_density_is_worse_on_four_sets():
    """The count of an independent reader of the committed rows."""
    rows = uci.of(read_rows(RESULTS / "uci/rows.json"), "horseshoe")
    found = {n: uci.cell(rows[n], "log_density", "", HORSESHOE[n]) for n in uci.NINE}
    scaled = {n: (c.ours - c.theirs) / c.error for n, c in found.items()}
    assert {n for n, z in scaled.items() if z < -2} == {
        "concrete",
        "kin8nm",
        "protein",
        "yacht",
    }
    assert scaled["kin8nm"] == pytest.approx(-4.9, abs=0.05)
    assert scaled["power"] == pytest.approx(-1.9, abs=0.05)


def test_the_figure_has_a_line_for_each_set():
    figure = uci.render(all_as_printed() + all_as_printed("vmg"))["uci"]
    left, right = figure.axes
    assert [t.get_text() for t in left.get_yticklabels()] == [*datasets.UCI]
    assert left.texts[0].get_text().strip() == "printed as 0.00"  # naval
    assert "nats" in right.get_xlabel()
