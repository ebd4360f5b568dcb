"""The ablation: which runs there are, and what their rows say."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from experiments import ablation
from experiments._harness import where
from farrier import GaussianNoise

LARGEST = {"horseshoe": 8.0, "exponential": 3.0, "half-cauchy": 8.1, "gaussian": 7.0}
UNITS_ON = {"horseshoe": 2, "exponential": 4, "half-cauchy": 9, "gaussian": 20}


@pytest.fixture
def rows():
    found = []
    for seed in range(4):
        for prior, largest in LARGEST.items():
            found.append(
                {
                    "set": "labels",
                    "prior": prior,
                    "seed": seed,
                    "nodes_on": 2,
                    "weights_on": UNITS_ON[prior] + seed % 2 * (prior == "gaussian"),
                    "error_rate": 0.1,
                    "norms": [largest + 0.1 * seed, 1.0, 1e-6],
                }
            )
            found.append(on_set("yacht", seed, -1.0, prior=prior))
        found.append(on_set("yacht", seed, -2.4, noise="Gamma(6, 6)"))
        found.append(on_set("energy", seed, -0.7))
        found.append(on_set("energy", seed, -1.7, draws="batch"))
    return found


def on_set(name, seed, density, **other):
    noise = 0.01 * (-1) ** seed * density
    return (
        {"set": name, "seed": seed, "log_likelihood": density + noise}
        | {"rmse": -density, "nodes_on": 9}
        | ablation.DEFAULT
        | other
    )


def test_verdicts_follow_the_rows(rows):
    for row in where(rows, set="labels"):
        row["nodes_on"] = UNITS_ON[row["prior"]]
    for row in where(rows, set="yacht", prior="exponential"):
        row["log_likelihood"] -= 0.1
        row["rmse"] += 0.1
    claims = ablation.claims(rows)
    assert [claim.verdict for claim in claims] == ["holds"] * 7
    assert "39% ± 1%" in claims[0].evidence
    assert "log-likelihood -0.10 ± 0.00, RMSE +0.10 ± 0.00" in claims[1].evidence
    assert "+7.0 ± 0.0 nodes on" in claims[2].evidence
    assert claims[5].evidence.startswith("yacht: log-likelihood -1.40 ± ")
    assert claims[6].evidence.startswith("energy: log-likelihood -1.00 ± ")
    for row in where(rows, set="yacht"):
        row["log_likelihood"] -= 5 * (row["prior"] == "horseshoe")
        row["rmse"] += 5 * (row["prior"] == "horseshoe")
    for row in where(rows, set="labels"):
        row["norms"][0], row["nodes_on"] = 8.0, 2
    verdicts = [claim.verdict for claim in ablation.claims(rows)]
    assert verdicts == ["does not hold"] * 5 + ["holds"] * 2


def test_nodes_on_and_not_norms_decide_on_sparsity(rows):
    """The fixture has two nodes on everywhere, and more norms over 5 per cent."""
    claims = ablation.claims(rows)
    assert [claim.verdict for claim in claims[2:4]] == ["does not hold"] * 2
    assert "weights over 5 % of the largest: +7.0 ± 0.0" in claims[2].evidence
    for row in where(rows, set="labels", prior="exponential"):
        row["nodes_on"] = 5
    assert ablation.claims(rows)[3].verdict == "holds partly"


def test_rows_of_other_choices_are_not_taken_for_the_default(rows):
    for row in where(rows, draws="batch"):
        row["set"] = "yacht"  # where the other priors and the other noise are
    draws = ablation.claims(rows)[6]
    assert draws.evidence.startswith("yacht: log-likelihood -0.70 ± ")


def test_half_of_the_parts_give_no_verdict(rows):
    some = where(rows, prior="exponential")
    assert {c.verdict for c in ablation.claims(some)} == {"waits for results"}
    assert "nan" not in ablation.table(some)
    assert ablation.render(where(rows, set="yacht")) == {}


def test_the_table_compares_with_the_horseshoe(rows):
    text = ablation.table(rows)
    assert "| exponential | 2.0 (2 to 2) | 4.0 (4 to 4) | 3.15 ± 0.13 | 39%" in text
    assert "| yacht | horseshoe | Gamma(6, 6) | row | 2.400" in text


def test_the_figure_has_a_line_for_each_prior(rows):
    left, right = ablation.render(rows)["norms"].axes
    assert len(left.get_lines()) == 4
    assert np.asarray(right.get_lines()[0].get_ydata())[0] == 1
    assert np.asarray(left.get_lines()[0].get_ydata())[-1] == ablation.FLOOR


def test_each_choice_is_compared_with_all_else_equal():
    parts = ablation.parts(ablation.FULL, Path("nowhere"))
    assert len(parts) == 4 + 4 + 1 + 2
    on_sets = [part for name, part in parts.items() if "labels" not in name]
    abouts = [part.args[2] for part in on_sets if isinstance(part, partial)]
    changed = [
        [key for key in ablation.DEFAULT if about[key] != ablation.DEFAULT[key]]
        for about in abouts
    ]
    assert sorted(changed) == [[], [], ["draws"], ["noise"]] + 3 * [["prior"]]
    weak = ablation.NOISES["weak"]
    assert weak == GaussianNoise() != ablation.NOISES["Gamma(6, 6)"]
