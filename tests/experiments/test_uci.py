"""The regression tables: scores of a split, resuming, tables and claims."""

import dataclasses
import json

import jax.random as jr
import numpy as np
import pytest

from experiments import datasets, uci
from experiments._harness import Work
from experiments.published import HORSESHOE, VMG
from experiments.settings import arguments
from farrier import HorseshoeRegressor, TrainingWarning
from farrier.presets import PLAIN


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
    printed = uci.PRINTED[model]
    rows = []
    for name in datasets.UCI:
        score = printed[name]
        rmse = 2 * score.rmse + 1 if name in worse else score.rmse
        rmses = (0.999 * rmse, 1.001 * rmse)
        rows += made_rows(name, model, rmses, score.log_likelihood)
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
    row = uci.scores(model, X, y, uci.FULL)
    assert row["rmse"] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    assert row["rmse_of_draws"] > row["rmse"]
    assert row["log_density"] == pytest.approx(model.log_density(X, y).mean())
    assert (row["nodes_on"], row["width"]) == (model.widths_[0], 6)


def test_finished_splits_are_not_run_again(tmp_path, monkeypatch):
    X, y = np.zeros((4, 2)), np.arange(4.0)
    splits = [(np.array([i]), np.array([3])) for i in range(3)]
    monkeypatch.setattr(uci.datasets, "uci", lambda name, data: (X, y, splits))
    monkeypatch.setattr(
        uci, "scores", lambda model, X, y, c: {"rmse": model.random_state}
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


@pytest.mark.parametrize(
    ("values", "better", "expected"),
    [
        ((1.0, 2.0), -1, "yes"),
        ((1.58, 1.58), -1, "yes"),
        ((1.584, 1.584), -1, "yes"),
        ((1.6, 1.6), -1, "no"),
        ((1.5, 1.5), -1, "better"),
        ((1.6, 1.6), 1, "better"),
        ((1.5, 1.5), 1, "no"),
    ],
)
def test_reached_allows_two_spreads_and_the_rounding(values, better, expected):
    summary = uci.Summary(np.array(values), 1.58, better)
    assert summary.reached(summary.sd) == expected


def test_a_summary_is_that_of_the_splits():
    summary = uci.Summary(np.array([1.0, 2.0, 4.0, 5.0]), 2.5, -1)
    assert summary.mean == 3
    assert summary.sd == pytest.approx(np.sqrt(10 / 3))
    assert summary.se == pytest.approx(summary.sd / 2)
    assert summary.difference == pytest.approx(0.5)
    assert np.isnan(uci.Summary(np.array([1.0]), 1.0, -1).sd)


def test_the_table_has_published_ours_and_difference():
    rows = made_rows() + made_rows("boston", "vmg", (2.6, 2.8), -2.4)
    text = uci.table(rows)
    assert "| yacht | 1.58 | 1.6 ± 0.14 | 0.1 | +0.02 | yes | 1.7 | -2.33 |" in text
    assert "| boston | 2.72 (original 2.70) | 2.7 ± 0.14 |" in text


def test_claims_hold_when_all_is_as_printed():
    rows = all_as_printed() + all_as_printed("vmg")
    verdicts = [claim.verdict for claim in uci.claims(rows)]
    assert verdicts[:3] == ["holds", "holds", "holds"]
    # The printed RMSEs of HS-BNN are above those of VMG on five sets.
    above = [n for n in datasets.UCI if HORSESHOE[n].rmse > VMG[n].rmse]
    assert len(above) == 5
    assert verdicts[3] == "does not hold"


def test_claims_name_the_sets_that_fail():
    claim = uci.claims(all_as_printed(worse=("energy",)))[0]
    assert claim.verdict == "holds partly"
    assert "8 of 9; not on energy 4.98 (printed 1.99)" in claim.evidence


def test_claims_wait_for_sets_that_are_to_come():
    claims = uci.claims(made_rows())
    assert {claim.verdict for claim in claims} == {"waits for results"}
    assert "To come: boston, concrete" in claims[0].evidence


def test_the_figure_has_a_line_for_each_set():
    figure = uci.render(all_as_printed() + all_as_printed("vmg"))["uci"]
    left, right = figure.axes
    assert [t.get_text() for t in left.get_yticklabels()] == [*datasets.UCI]
    assert left.texts[0].get_text().strip() == "printed as 0.00"  # naval
    assert "nats" in right.get_xlabel()
