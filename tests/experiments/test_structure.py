"""The 2-2-1 labels: weights as the network has them, verdicts, figures."""

import numpy as np
import pytest

from experiments import structure
from farrier import HorseshoeClassifier, Training, datasets

WEIGHTS_ON = {"gaussian": 0.9, "centred-horseshoe": 0.2, "horseshoe": 0.0}


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    found = []
    for prior, share in WEIGHTS_ON.items():
        for width in (15, 100):
            for seed in range(3):
                row = {
                    "prior": prior,
                    "width": width,
                    "seed": seed,
                    "nodes_on": 2,
                    "weights_on": 2 + int(share * (width - 2)) + seed % 2,
                    "error_rate": 0.1,
                    "log_likelihood": -0.2,
                    "norms": np.sort(random.uniform(size=width))[::-1].tolist(),
                }
                if seed == 0:
                    shown = min(width, structure.SHOWN)
                    row["weights"] = random.normal(size=(shown, 3)).tolist()
                found.append(row)
    return found


@pytest.mark.parametrize("prior", ["horseshoe", "centred-horseshoe"])
def test_expected_weights_have_the_norms_that_the_estimator_tells(prior):
    x, y = datasets.two_two_one(40, seed=0)
    model = HorseshoeClassifier((6,), prior=prior, training=Training(max_iter=10))
    weights = structure.expected_weights(model.fit(x, y))
    assert weights.shape == (6, 3)
    norms = np.linalg.norm(weights, axis=1)
    np.testing.assert_allclose(norms, np.sort(model.weight_norms_[0])[::-1], rtol=1e-6)


def test_verdicts_follow_the_rows(rows):
    claims = structure.claims(rows)
    assert [claim.verdict for claim in claims] == ["holds"] * 3
    assert "two nodes on in 100% of 6 runs" in claims[0].evidence
    for row in rows:
        row["nodes_on"] += row["seed"] == 0
        row["weights_on"] = 2
    verdicts = [claim.verdict for claim in structure.claims(rows)]
    assert verdicts == ["holds partly", "does not hold", "does not hold"]


def test_half_of_the_parts_give_no_verdict(rows):
    some = [row for row in rows if row["prior"] != "gaussian"]
    assert {c.verdict for c in structure.claims(some)} == {"waits for results"}
    assert len(structure.render(some)) == 2


def test_the_table_has_both_measures(rows):
    text = structure.table(rows)
    assert "| horseshoe | 100 | 2 | figure only | 2.0 (2 to 2) | 2.3 (2 to 3) |" in text
    assert "10.0 ± 0.0" in text


def test_the_figures_show_every_prior_and_say_what_they_leave_out(rows):
    figures = structure.render(rows)
    titles = [axes.get_title() for axes in figures["weights"].axes]
    assert len(titles) == 6
    assert "Gaussian, 15 units" in titles
    assert "Horseshoe, 100 units, the 15 largest" in titles
    measures = [axes.get_title() for axes in figures["nodes"].axes]
    assert measures == list(structure.MEASURES.values())
