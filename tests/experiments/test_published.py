"""The published numbers: copied right, and complete."""

import pytest

from experiments.published import HORSESHOE, VMG, VMG_ORIGINAL

# Negative log-likelihoods as google/edward2 quotes them, baselines/uci/README.md:
# boston, concrete, energy, kin8nm, naval, power, protein, wine, yacht.
QUOTED = {
    "HS-BNN": (2.54, 3.09, 2.66, -1.12, -5.52, 2.81, 2.89, 0.95, 2.33),
    "VMG": (2.46, 3.01, 1.06, -1.10, -2.46, 2.82, 2.84, 0.95, 1.30),
}


@pytest.mark.parametrize(
    ("name", "column"), [("HS-BNN", HORSESHOE), ("VMG", VMG | VMG_ORIGINAL)]
)
def test_log_likelihoods_are_those_that_others_quote(name, column):
    ours = {key: -score.log_likelihood for key, score in column.items()}
    assert ours.pop("year") > 3.5
    assert tuple(ours.values()) == QUOTED[name]


def test_both_columns_have_the_same_sets_and_sources():
    assert list(HORSESHOE) == list(VMG)
    assert VMG_ORIGINAL.keys() < VMG.keys()
    for column in (HORSESHOE, VMG, VMG_ORIGINAL):
        assert all("arXiv" in score.source for score in column.values())
        assert all(score.rmse >= 0 for score in column.values())
