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
from experiments._harness import where
from experiments.published import HORSESHOE, SPLITS, VMG_ORIGINAL
from farrier import Mclmc


def made_rows(name, rmse, density, coverage=0.9, **more):
    row = {"set": name, "rmse": rmse, "log_density": density, "crps": 0.5 * rmse}
    row |= {"coverage": coverage, "posterior_coverage": 0.95, "nodes_on": 9}
    row |= {"width": 50, "seconds": 3.0} | more
    return [row | {"split": split} for split in range(SPLITS[name])]


def all_ahead(**changes):
    rows = []
    for name in datasets.UCI:
        pairs = _recipes.printed(name).values()
        rmse = 0.9 * min(rmse for rmse, _ in pairs)
        density = 0.1 + max(density for _, density in pairs)
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
    assert _recipes.printed("protein")["VMG"] == (
        VMG_ORIGINAL["protein"].rmse,
        VMG_ORIGINAL["protein"].log_likelihood,
    )
    assert _recipes.printed("yacht")["HS-BNN"] == (
        HORSESHOE["yacht"].rmse,
        HORSESHOE["yacht"].log_likelihood,
    )


@pytest.mark.parametrize(
    ("name", "score", "ours", "theirs", "is_ahead"),
    [
        ("boston", "rmse", 2.699, 2.70, True),
        ("boston", "rmse", 2.70, 2.70, False),
        ("wine", "rmse", 0.6349, 0.63, True),
        ("wine", "rmse", 0.6351, 0.63, False),
        ("naval", "rmse", 0.0049, 0.00, True),
        ("wine", "log_density", -0.95, -0.95, False),
        ("wine", "log_density", -0.949, -0.95, True),
    ],
)
def test_ahead(name, score, ours, theirs, is_ahead):
    assert _recipes.ahead(name, score, ours, theirs) is is_ahead


def test_the_table_tells_whose_intervals_it_has():
    rows = all_ahead()
    assert "| 90.0% | 95.0% | 9.0 of 50 |" in _recipes.table(rows)
    del where(rows, set="wine")[0]["posterior_coverage"]  # a row of before
    lines = _recipes.table(rows).splitlines()
    (wine,) = [line for line in lines if line.startswith("| wine")]
    assert "| 90.0% (the posterior's) |  | 9.0 of 50 |" in wine
    assert "(the posterior's)" not in "".join(v for v in lines if v != wine)
    assert "90.0% (the posterior's)" in _recipes.beside({"default": rows})


def test_claims_hold_where_every_cell_is_ahead():
    claims = _recipes.claims(all_ahead())
    assert [claim.verdict for claim in claims] == ["holds"] * 3
    assert "18 of 18" in claims[0].evidence


def test_claims_name_what_is_behind_and_what_is_missing():
    rows = all_ahead(boston=made_rows("boston", 3.0, -2.0, coverage=0.7))
    ahead_of_hs, ahead_of_vmg, coverage = _recipes.claims(rows)
    assert ahead_of_hs.verdict == "holds"
    assert ahead_of_vmg.verdict == "holds partly"
    assert "behind in boston (rmse)" in ahead_of_vmg.evidence
    assert coverage.verdict == "holds partly"
    waiting = _recipes.claims(made_rows("yacht", 0.5, -0.5))[0]
    assert waiting.verdict == "waits for results"
    assert "Splits of boston, concrete, energy" in waiting.evidence
    waiting = _recipes.claims(all_ahead()[1:])[0]
    assert waiting.verdict == "waits for results"
    assert "18 of 18 cells. Splits of boston are to come." in waiting.evidence


def test_the_readme_says_where_splits_are_missing():
    whole, part = all_ahead(), all_ahead()[1:-20]
    text = _recipes.beside({"default": whole, "refined": part})
    (boston,) = (line for line in text.splitlines() if line.startswith("| boston"))
    assert "| 2.43 / -2.36 | 90.0% | 2.43 / -2.36 (19 of 20 splits) | 90.0% |" in boston
    assert "| not run yet |  |" in text


def test_table_has_both_published_columns():
    rows = made_rows("yacht", 0.5, -0.5, r_hat=1.2, effective_draws=30.0)
    rows += made_rows("naval", 0.0004, 6.0)
    lines = _recipes.table(rows).splitlines()
    (yacht,) = (line for line in lines if line.startswith("| yacht"))
    assert "| 1.58 | 0.70 |" in yacht
    assert "| both | both |" in yacht
    assert "| 1.20 | 30 | 3 |" in yacht
    assert set(_recipes.render(rows)) == {"recipe"}


def test_the_readme_has_the_figures_of_the_last_run():
    root = Path(__file__).parents[2]
    found = {}
    for recipe in ("default", "refined"):
        text = (root / f"results/uci-{recipe}/rows.json").read_text(encoding="utf-8")
        parts = json.loads(text)["parts"].values()
        found[recipe] = [row for part in parts for row in part["rows"]]
    expected = _recipes.beside(found)
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert expected in readme, "put this into it:\n" + expected
