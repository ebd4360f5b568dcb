"""Our own recipes: parts, scores, cells that are ahead, claims."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

from experiments import (
    _recipes,
    datasets,
    uci_default,
    uci_refined,
)
from experiments._harness import read_rows, where
from experiments._names import RECIPES
from experiments.published import HORSESHOE, SPLITS, VMG, VMG_ORIGINAL
from farrier import Mclmc

ROOT = Path(__file__).parents[2]


def made_rows(name, rmse, density, coverage=0.9, **more):
    row = {"set": name, "rmse": rmse, "log_density": density, "crps": 0.5 * rmse}
    row |= {"coverage": coverage, "posterior_coverage": 0.95, "nodes_on": 9}
    row |= {"width": 50, "seconds": 3.0} | more
    return [row | {"split": split} for split in range(SPLITS[name])]


def all_better(**changes):
    rows = []
    for name in datasets.UCI:
        columns = _recipes.printed(name).values()
        # naval is printed as 0.00, and no RMSE is better than that.
        rmse = 0.9 * min(column.rmse.mean for column in columns)
        density = 0.1 + max(column.log_density.mean for column in columns)
        rows += changes.get(name) or made_rows(name, rmse, density)
    return rows


def test_parts_are_a_few_splits_each(tmp_path):
    names = list(_recipes.parts(uci_refined.FULL, tmp_path))
    assert names[:4] == ["boston/0-4", "boston/5-9", "boston/10-14", "boston/15-19"]
    assert [name for name in names if "protein" in name] == ["protein/0-4"]
    assert [name for name in names if "year" in name] == ["year/0-0"]


def test_a_part_goes_by_its_recipe(tmp_path):
    marks = [
        _recipes.settings_of(config, "yacht/0-4")
        for config in (uci_default.FULL, uci_refined.FULL)
    ]
    assert marks[0] != marks[1]
    assert marks[1]["given"]["refine"].startswith("Mclmc(")
    large = _recipes.settings_of(uci_refined.FULL, "power/0-4")["given"]
    assert (large["refine"], large["n_restarts"]) == ("None", "3")


def test_a_part_goes_by_the_defaults_too():
    given = _recipes.settings_of(uci_default.FULL, "yacht/0-4")["given"]
    assert given["activation"] == "'gelu'"
    assert given["likelihood"] == "'heteroscedastic'"
    assert given["kl_annealing"] == "'auto'"


def test_recipe_of_small_and_large_tables():
    small = _recipes.estimator(uci_refined.FULL, "yacht", 277, 3)
    large = _recipes.estimator(uci_refined.FULL, "protein", 41_157, 0)
    assert (small.refine, large.refine) == (Mclmc(chains=8, draws=200), None)
    assert (small.n_restarts, large.n_restarts) == (8, 3)
    assert small.random_state == 3
    assert (small.hidden_layer_sizes, large.hidden_layer_sizes) == ((16, 16), (100,))
    assert _recipes.estimator(uci_default.FULL, "yacht", 277, 3).refine is None


def test_crps_of_draws_agrees_with_quadrature():
    law, y = stats.norm(0.3, 1.7), np.array([-0.8, 2.0])
    draws = law.rvs((2, 40_000), random_state=np.random.default_rng(0))

    def one(value):
        square = lambda z: (law.cdf(z) - (z >= value)) ** 2
        return integrate.quad(square, -30, 30, points=[value])[0]

    assert _recipes.crps(draws, y) == pytest.approx(np.mean([*map(one, y)]), rel=0.02)


def test_of_two_prints_of_vmg_the_better_one_stands():
    protein = _recipes.printed("protein")["VMG"]
    means = (protein.rmse.mean, protein.log_density.mean)
    assert means == VMG_ORIGINAL["protein"]
    assert protein.rmse.error == VMG["protein"].rmse.error
    for name in ("boston", "concrete"):
        assert _recipes.printed(name)["VMG"].log_density.misprint
    assert _recipes.printed("yacht") == {
        "HS-BNN": HORSESHOE["yacht"],
        "VMG": VMG["yacht"],
    }


@pytest.mark.parametrize(
    ("name", "rmse", "density", "verdicts"),
    [
        ("wine", 0.6349, -0.95, ["level", "level"]),  # printed 0.63
        ("wine", 0.6395, -0.93, ["worse", "better"]),  # the errors are 0.009 and 0.011
        ("naval", 0.0049, 5.4, ["level", "worse"]),
        ("kin8nm", 0.0697, 1.124, ["better", "level"]),  # not printed as 0.08
        ("power", 3.995, -2.79, ["better", "better"]),
        ("power", 3.9975, -2.805, ["level", "level"]),
    ],
)
def test_cells_against_the_horseshoe(name, rmse, density, verdicts):
    found = _recipes.cells(made_rows(name, rmse, density), ("HS-BNN",))
    assert [each.verdict for each in found] == verdicts
    assert found[0].name == f"{name}, RMSE, against HS-BNN"


def test_cells_are_of_both_columns_unless_one_is_named():
    rows = all_better()
    assert len(_recipes.cells(rows)) == 2 * len(_recipes.cells(rows, ("VMG",))) == 36
    assert uci_default.cells is uci_refined.cells is _recipes.cells


def test_the_table_tells_whose_intervals_it_has():
    rows = all_better()
    assert "| 90.0% | 95.0% | 9.0 of 50 |" in _recipes.scores_table(rows)
    del where(rows, set="wine")[0]["posterior_coverage"]  # a row of before
    lines = _recipes.scores_table(rows).splitlines()
    (wine,) = [line for line in lines if line.startswith("| wine")]
    assert "| 90.0% (the posterior's) |  | 9.0 of 50 |" in wine
    assert "(the posterior's)" not in "".join(v for v in lines if v != wine)
    assert "90.0% (the posterior's)" in _recipes.beside({"default": rows})


def test_claims_hold_partly_where_no_cell_is_worse():
    claims = _recipes.claims(all_better())
    assert [each.verdict for each in claims] == ["holds partly"] * 2 + ["holds"]
    assert "Better in 17 of 18 cells, level in 1, worse in 0" in claims[0].evidence
    level = "level: naval RMSE 0.00 ± 0 (printed 0.00 ± 0)."
    assert level in claims[0].evidence
    # VMG's misprinted errors make the densities of boston and concrete level.
    assert "Better in 15 of 18 cells, level in 3, worse in 0" in claims[1].evidence


def test_without_naval_all_cells_can_be_better():
    """Its RMSE is printed as 0.00: no number is better than that."""
    rows = [row for row in all_better() if row["set"] != "naval"]
    claim = _recipes.claims(rows)[0]
    assert "Better in 16 of 16 cells" in claim.evidence
    assert claim.verdict == "waits for results"


def test_claims_name_what_is_worse_and_what_is_missing():
    rows = all_better(boston=made_rows("boston", 3.0, -2.0, coverage=0.7))
    horseshoe, vmg, coverage = _recipes.claims(rows)
    assert horseshoe.verdict == "holds partly"
    assert vmg.verdict == "does not hold"
    assert "worse: boston RMSE 3.00 ± 0 (printed 2.70 ± 0.13)." in vmg.evidence
    assert coverage.verdict == "holds partly"
    waiting = _recipes.claims(made_rows("yacht", 0.5, -0.5))[0]
    assert waiting.verdict == "waits for results"
    assert "Splits of boston, concrete, energy" in waiting.evidence
    waiting = _recipes.claims(all_better()[1:])[0]
    assert waiting.verdict == "waits for results"
    assert waiting.evidence.endswith(" Splits of boston are to come.")


def test_a_discrete_target_is_marked_and_named_where_it_counts_as_better():
    few = {"distinct_targets": 6}
    rows = all_better(wine=made_rows("wine", 0.5, -0.5, **few))
    lines = _recipes.scores_table(rows).splitlines()
    (wine,) = (line for line in lines if line.startswith("| wine"))
    assert "| -0.500 ± 0† |" in wine
    assert "† wine has 6 distinct targets." in "".join(lines)
    text = "among the better, log density of a discrete target: wine."
    assert text in _recipes.claims(rows)[0].evidence
    assert text in _recipes.beside({"default": rows})
    rows = all_better(wine=made_rows("wine", 0.5, -0.95, **few))
    assert "discrete" not in _recipes.claims(rows)[0].evidence


def test_scores_without_copies_stand_under_the_table_and_in_the_readme():
    new = {"copies": 0.25, "rmse_new": 0.75, "log_density_new": -1.25}
    none = {"copies": 0.0, "rmse_new": None, "log_density_new": None}
    rows = made_rows("wine", 0.5, -0.5, **new) + made_rows("yacht", 0.5, -0.5, **none)
    line = "| 25.0% | 0.500 ± 0 | 0.750 ± 0 | -0.500 ± 0 | -1.25 ± 0 |"
    text = _recipes.scores_table(rows)
    assert f"| wine {line}" in text
    assert "| yacht | 0" not in text
    assert "not measured" not in text
    older = made_rows("wine", 0.5, -0.5)
    text = _recipes.beside({"default": rows, "refined": older})
    assert f"| wine (default) {line}" in text
    assert "not measured yet (wine (refined))." in text


def test_the_readme_says_where_splits_are_missing():
    whole, part = all_better(), all_better()[1:-20]
    text = _recipes.beside({"default": whole, "refined": part})
    (boston,) = (line for line in text.splitlines() if line.startswith("| boston"))
    means = "2.43 ± 0 / -2.36 ± 0"
    assert f"| {means} | 90.0% | {means} (19 of 20 splits) | 90.0% |" in boston
    assert "| not run yet |  |" in text


def test_table_has_both_published_columns():
    rows = made_rows("yacht", 0.5, -0.5, r_hat=1.2, effective_draws=30.0)
    rows += made_rows("naval", 0.0004, 6.0)
    lines = _recipes.scores_table(rows).splitlines()
    (yacht,) = (line for line in lines if line.startswith("| yacht"))
    assert "| 1.58 ± 0.051 | 0.70 ± 0.05 |" in yacht
    assert "| better, better | better, better |" in yacht
    assert "| 1.20 | 30 | 3 |" in yacht
    assert set(_recipes.render(rows)) == {"recipe"}


@pytest.mark.parametrize("recipe", ["default", "refined"])
def test_each_run_that_left_rows_is_listed_on_the_page(recipe):
    """Else: add the commit of the run to uci_runs.json, and what its settings were."""
    stored = json.loads((ROOT / f"results/uci-{recipe}/rows.json").read_text())
    made = {part["commit"][:7] for part in stored["parts"].values()}
    listed = json.loads(_recipes.RUNS.read_text())[recipe]
    assert made <= {run["commit"] for run in listed}
    page = {"default": uci_default, "refined": uci_refined}[recipe].table([])
    assert f"so far: {len(listed)}, " in page
    assert all(f"| {run['commit']} | {run['sets']} |" in page for run in listed)


def test_the_readme_has_the_figures_of_the_last_run():
    found = {r: read_rows(ROOT / f"results/uci-{r}/rows.json") for r in RECIPES}
    expected = _recipes.beside(found)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert expected in readme, "put this into it:\n" + expected


def test_changes_are_paired_by_split():
    before = made_rows("yacht", 0.5, -0.5)
    now = [row | {"rmse": row["rmse"] + 0.1, "nodes_on": 3} for row in before]
    (line,) = (
        line
        for line in _recipes.changes(before, now).splitlines()
        if line.startswith("| yacht")
    )
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1].startswith("+0.1 ±")
    assert cells[1].endswith(", worse")
    assert cells[2] == cells[3] == "+0 ± 0, level"
    assert cells[4].endswith(" to 3")


def test_the_page_has_the_changes_of_the_default():
    read = lambda recipe: read_rows(ROOT / f"results/uci-{recipe}/rows.json")
    expected = _recipes.changes(read("before"), read("default"))
    page = (ROOT / "docs/how-to/regression.md").read_text(encoding="utf-8")
    assert expected in page, "put this into it:\n" + expected
