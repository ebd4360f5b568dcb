"""The 2-2-1 labels: weights as the network has them, verdicts, figures."""

import numpy as np
import pytest
from scipy import stats

from experiments import structure
from experiments._harness import where
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


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
@pytest.mark.parametrize("prior", ["horseshoe", "centred-horseshoe"])
def test_expected_weights_have_the_norms_that_the_estimator_tells(prior):
    x, y = datasets.two_two_one(40, seed=0)
    short = Training(max_iter=10)
    model = HorseshoeClassifier((6,), prior=prior, training=short, random_state=0)
    weights = structure.expected_weights(model.fit(x, y))
    assert weights.shape == (6, 3)
    norms = np.linalg.norm(weights, axis=1)
    np.testing.assert_allclose(norms, np.sort(model.weight_norms_[0])[::-1], rtol=1e-6)


def test_verdicts_follow_the_rows(rows):
    for row in rows:
        row["error_rate"] = structure.least_error() + 0.005
    verdicts = [claim.verdict for claim in structure.claims(rows)]
    # The Gaussian network has large weights into nodes that are off.
    assert verdicts == [
        "holds",
        "does not hold",
        "holds",
        "does not hold",
        "holds partly",
    ]
    for row in rows:
        if row["prior"] == "gaussian":
            row["nodes_on"] = row["width"] if row["width"] == 15 else 2
            row["error_rate"] += 0.1
        elif row["prior"] == "centred-horseshoe" and row["width"] == 100:
            row["nodes_on"] = 7 + row["seed"] % 2
    verdicts = [claim.verdict for claim in structure.claims(rows)]
    assert verdicts == ["holds partly"] * 2 + ["holds"] + ["holds partly"] * 2
    for row in rows:
        if row["prior"] != "horseshoe":
            row["nodes_on"] = 12 * row["width"] // 15 + row["seed"] % 2
    verdicts = [claim.verdict for claim in structure.claims(rows)]
    assert verdicts == [
        "holds partly",
        "holds",
        "holds partly",
        "holds",
        "holds",
    ]


def test_forms_are_compared_in_pairs(rows):
    for row in where(rows, prior="centred-horseshoe", width=100):
        row["nodes_on"] = (3, 4, 4)[row["seed"]]
    for row in where(rows, prior="horseshoe", width=100):
        row["nodes_on"] = (2, 2, 1)[row["seed"]]
    claim = structure.claims(rows)[4]
    expected = stats.ttest_rel([1, 2, 2], [0, 0, 1])  # how many are missed
    assert f"p = {expected.pvalue:.2g} (paired" in claim.evidence
    assert "two nodes on in 5 of 6 runs" in claim.evidence


def test_the_least_error_is_that_of_the_rule_that_knows_the_odds():
    x, y = datasets.two_two_one(400_000, seed=0)
    best = np.maximum(x.sum(1), 0) > np.maximum(x[:, 0] - x[:, 1], 0)
    rate = np.mean(best != y)
    error = 5 * np.sqrt(rate * (1 - rate) / len(y))
    assert abs(structure.least_error() - rate) < error
    # By hand: an eighth of the square is 0 for each of u = +-(x_1 - x_2), ... so that
    # half of the labels of a quarter of it are wrong whatever is said.
    assert structure.least_error() > 1 / 8


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
