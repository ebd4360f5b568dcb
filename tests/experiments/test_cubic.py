"""The cubic: its two protocols, its verdicts, its figures."""

import dataclasses
from pathlib import Path

import pytest

from experiments import cubic
from experiments.settings import flat
from farrier import GaussianNoise, datasets, presets

LIKELIHOODS = {  # protocol, prior: at 10 units and at 1000
    ("converged", "gaussian"): (-3.2, -4.6),
    ("converged", "horseshoe"): (-3.3, -3.35),
    ("paper", "gaussian"): (-3.2, -3.1),
    ("paper", "horseshoe"): (-3.2, -3.6),
}


@pytest.fixture
def rows():
    band = {name: [0.0, 1.0] for name in (*cubic.BAND, *cubic.DATA)}
    return [
        {
            "protocol": protocol,
            "prior": prior,
            "width": width,
            "seed": seed,
            "log_likelihood": level + 0.02 * (-1) ** seed * level,
            "rmse": 5.0,
            "nodes_on": 3 + seed,
            "iterations": 1_000,
        }
        | (band if seed == 0 else {})
        for (protocol, prior), levels in LIKELIHOODS.items()
        for width, level in zip((10, 1_000), levels, strict=True)
        for seed in range(4)
    ]


def test_verdicts_follow_the_rows(rows):
    verdicts = [claim.verdict for claim in cubic.claims(rows)]
    assert verdicts[:3] == ["holds"] * 3
    assert verdicts[3:] == ["does not hold"] * 3
    assert '"HS-BNN [...] is more robust' in cubic.claims(rows)[1].text
    evidence = cubic.claims(rows)[0].evidence
    assert evidence.startswith("+1.40 ± 0.03")
    assert "from 10 to 1000 units" in evidence


def test_a_difference_too_small_to_matter_is_none(rows):
    """0.05 nats, the same in each data set: over two standard errors, and nothing."""
    for row in rows:
        row["log_likelihood"] = -4.0 - 0.05 * (
            row["width"] == 1_000 and row["prior"] == "gaussian"
        )
    verdicts = [claim.verdict for claim in cubic.claims(rows)]
    assert verdicts == ["does not hold", "holds partly", "holds"] * 2
    assert "+0.05 ± 0.00" in cubic.claims(rows)[1].evidence


def test_half_of_the_parts_give_no_verdict(rows):
    some = [row for row in rows if row["prior"] == "horseshoe"]
    assert {c.verdict for c in cubic.claims(some)} == {"waits for results"}
    assert "bands_paper" in cubic.render(some)


def test_a_difference_is_taken_within_a_data_set(rows):
    for row in rows:
        row["log_likelihood"] += 10 * row["seed"]  # some data sets are harder
    difference, error = cubic.paired(
        [row for row in rows if row["protocol"] == "converged"],
        {"prior": "horseshoe", "width": 1_000},
        {"prior": "gaussian", "width": 1_000},
    )
    assert difference == pytest.approx(1.25, abs=0.05)
    assert error < 0.1


def test_the_table_has_means_and_ranges(rows):
    text = cubic.table(rows)
    assert "| converged | gaussian | 1000 | figure only | -4.60 ± 0.11" in text
    assert "| 4.5 (3 to 6) | 4 |" in text


def test_the_figures_have_a_panel_for_each_prior_and_width(rows):
    figures = cubic.render(rows)
    assert set(figures) == {"bands_converged", "bands_paper", "log_likelihood"}
    titles = [axes.get_title() for axes in figures["bands_paper"].axes]
    assert titles[0] == "Gaussian, 10 nodes, 3 active"
    assert len(titles) == 4
    left, right = figures["log_likelihood"].axes
    assert "Gamma(6, 6)" in right.get_title()
    assert left.get_ylim() == right.get_ylim()


def test_reference_lines_are_those_of_the_data():
    x, y = datasets.cubic(200_000, seed=0)
    assert y.var() == pytest.approx(cubic.TARGET_VARIANCE, rel=0.02)
    noise = (y - x[:, 0] ** 3).var()
    assert noise == pytest.approx(cubic.NOISE_VARIANCE, rel=0.02)
    assert cubic.normal_density(1.0) == pytest.approx(-1.4189, abs=1e-4)


def test_the_papers_protocol_is_the_papers_preset():
    found = flat(cubic.settings(cubic.FULL, "paper", "gaussian"))
    assert found["prior"] == "gaussian"
    assert found["likelihood"] == GaussianNoise(shape=6.0, rate=6.0)
    assert found["max_iter"] == 1_000
    paper = flat(presets.paper())
    assert {**found, "prior": None} == {**paper, "prior": None} | {"max_iter": 1_000}


def test_full_settings_are_those_of_the_paper_and_more():
    assert {50, 100, 1_000} <= set(cubic.FULL.widths)
    assert len(cubic.FULL.data_seeds) >= 20
    assert len(cubic.parts(cubic.FULL, Path("nowhere"))) == 2 * 2 * len(
        cubic.FULL.widths
    )
    assert dataclasses.asdict(cubic.FULL)["iterations"] == 1_000
