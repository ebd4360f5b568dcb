"""Digits, error against nodes: which rows are seen, the rule, table, claims."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets, frontier
from experiments._harness import Work, read_rows
from experiments.settings import arguments
from farrier import Gaussian, Matrix, Training, TrainingWarning


def made_row(name="0.1", error=0.016, kept=(100, 95), kind=frontier.CHOOSE, **more):
    released = frontier.is_released(name)
    schedule = frontier.RELEASED if released else frontier.CONSTANT
    recipe = "HorseshoeClassifier((400, 400), kl_weight=KlRelease(peak=0.3))"
    if not released:
        recipe = frontier.typed((400, 400), frontier.given(frontier.FULL, name))
    row = {"kind": kind, "candidate": name, "schedule": schedule, "recipe": recipe}
    row |= {"epochs": 100, "fits": 1, "width": 400, "log_density": -0.06}
    row |= {"error": error, "error_before": error}
    row |= {"kept": [*kept], "on": [*kept], "test_rows": 10_000, "rows": 50_000}
    return row | {"bound": -1e4, "seconds": 200.0, "part": f"{kind}/{name}"} | more


def made_rows():
    return [
        made_row("1", 0.026, (50, 40)),
        made_row("0.5 to 0.05", 0.013, (200, 250)),
        made_row("0.1", 0.016, (100, 95)),
        made_row("0.3 to 0.03", 0.0145, (90, 80)),
    ]


def work_in(folder, rows=()):
    return Work(folder, lambda share, text: None, rows)


def test_candidates_are_judged_before_the_first_are_tested(tmp_path):
    two = replace(frontier.FULL, finals=2)
    names = list(frontier.parts(two, tmp_path))
    assert names[0] == "choose/1"
    assert names[-2:] == ["tested/1", "tested/2"]
    assert len(names) == len(frontier.CANDIDATES) + 2 <= 10


def test_what_is_tested_depends_on_all_candidates():
    small = frontier.SMOKE
    assert "0.1" in frontier.settings_of(small, "choose/0.1")["weight"]
    final = frontier.settings_of(small, "tested/1")
    assert final["weights"] == ["0.1", "1.0"]
    assert final["most_nodes"] == frontier.GOAL_NODES


def test_the_rule_takes_few_nodes_first_and_then_the_least_error():
    names = [row["candidate"] for row in frontier.ranked(made_rows())]
    assert names == ["0.3 to 0.03", "0.1", "1", "0.5 to 0.05"]


def test_nothing_is_tested_before_all_are_judged(tmp_path):
    judged = [made_row("0.1")]
    with pytest.raises(FileNotFoundError, match=r"first; 1 is not"):
        frontier.test(frontier.SMOKE, tmp_path, 1, work_in(tmp_path, judged))


def test_digits_set_apart_are_training_digits_that_no_fit_has_seen(
    shared_data, tmp_path, monkeypatch
):
    asked, seen = [], []
    read = datasets.mnist

    def mnist(folder, part="train"):
        asked.append(part)
        return read(folder, part)

    def both_fits(config, name, train, judge, work):
        seen.extend([train[0], judge[0]])
        return []

    monkeypatch.setattr(frontier.datasets, "mnist", mnist)
    monkeypatch.setattr(frontier, "both_fits", both_fits)
    frontier.judge(frontier.FULL, shared_data, "0.1", work_in(tmp_path))
    assert asked == ["train"]
    digits, _ = read(shared_data)
    np.testing.assert_array_equal(seen[0], digits[:50_000])
    np.testing.assert_array_equal(seen[1], digits[50_000:])


def test_the_fit_that_has_the_place_is_tested_first(shared_data, tmp_path, monkeypatch):
    judged = [made_row("0.1", 0.016), made_row("1", 0.017)]
    judged += [made_row("1", 0.015, schedule=frontier.SECOND)]

    def both_fits(config, name, train, judge, work):
        assert name == "1"
        return [{"schedule": s} for s in (frontier.CONSTANT, frontier.SECOND)]

    monkeypatch.setattr(frontier, "both_fits", both_fits)
    work = work_in(tmp_path, judged)
    found = frontier.test(frontier.SMOKE, shared_data, 1, work)
    assert [row["schedule"] for row in found] == [frontier.SECOND, frontier.CONSTANT]
    assert all(row["place"] == 1 and row["rows"] == 320 for row in found)


def small_digits():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 5)).astype(np.float32)
    return X, (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Rows of both fits to a small table, and the folder with their checkpoints."""
    folder, table = tmp_path_factory.mktemp("frontier"), small_digits()
    shares = []
    work = Work(folder, lambda share, text: shares.append(share))
    with pytest.warns(TrainingWarning):
        rows = frontier.both_fits(frontier.SMOKE, "0.1", table, table, work)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    return rows, folder


def read_recipe(text):
    """The text of a row, read as Python: one estimator for each fit."""
    names = {"HorseshoeClassifier": frontier.HorseshoeClassifier}
    names |= {"Gaussian": Gaussian, "Matrix": Matrix, "Training": Training}
    return [eval(call, names) for call in text.split("`, then `")]


def test_the_recipe_is_what_was_fitted(both):
    (first, second), _ = both
    (model,) = read_recipe(first["recipe"])
    assert model.hidden_layer_sizes == (8, 8)
    given = arguments(frontier.given(frontier.SMOKE, "0.1"))
    assert {name: model.get_params()[name] for name in given} == given
    before, again = read_recipe(second["recipe"])
    assert before.get_params() == model.get_params()
    assert again.hidden_layer_sizes == tuple(first["kept"]) == tuple(second["kept"])
    given = arguments(frontier.given_again(frontier.SMOKE))
    assert {name: again.get_params()[name] for name in given} == given
    assert again.posterior == Matrix(pairs=50, noise=0.05)
    assert (first["fits"], second["fits"]) == (1, again.n_restarts) == (1, 2)


def test_errors_are_those_of_the_compacted_network_and_of_one_of_its_widths(both):
    (first, second), folder = both
    X, y = small_digits()
    models = read_recipe(second["recipe"])
    with pytest.warns(TrainingWarning):
        models = [
            model.fit(X, y, checkpoint=folder / f"{title}.safetensors")
            for model, title in zip(models, ("widths", "again"), strict=True)
        ]
    small = models[0].compact()
    assert first["error"] == second["error_before"] == np.mean(small.predict(X) != y)
    assert (*first["kept"],) == small.model_.posterior.widths
    assert second["error"] == np.mean(models[1].predict(X) != y)
    assert (first["schedule"], second["schedule"]) == ("constant", "fitted again")


def test_wide_networks_are_not_fitted_again(tmp_path, monkeypatch):
    monkeypatch.setattr(frontier, "GOAL_NODES", 1)
    table = small_digits()
    with pytest.warns(TrainingWarning):
        rows = frontier.both_fits(
            frontier.SMOKE, "0.1", table, table, work_in(tmp_path)
        )
    assert [row["schedule"] for row in rows] == [frontier.CONSTANT]
    assert sum(rows[0]["kept"]) > 1


def test_the_table_has_the_tested_ones_first_and_the_recipe():
    rows = made_rows()
    rows += [made_row("0.3 to 0.03", 0.0139, (90, 80), frontier.FINAL, place=1)]
    text = frontier.table(rows)
    tested, judged = text.index("1.39 ± 0.12"), text.index("1.45 ± 0.12")
    assert tested < judged < text.index("2.60 ± 0.16")
    assert "| 170 of 800: 90 - 80 (90 - 80) |" in text
    assert "kl_weight=KlRelease(peak=0.3)" in text
    assert "Tested" not in frontier.table(made_rows())


@pytest.mark.parametrize(
    ("error", "kept", "expected"),
    [
        (0.0139, (90, 80), "holds"),
        (0.0145, (90, 80), "holds partly"),
        (0.0139, (190, 80), "holds partly"),
        (0.0145, (190, 80), "does not hold"),
    ],
)
def test_the_goal_is_both_figures(error, kept, expected):
    row = made_row("0.3 to 0.03", error, kept, frontier.FINAL)
    claim = frontier.goal_claim(row)
    assert claim.verdict == expected
    assert f"{error:.2%} (SE 0.12%) with {sum(kept)} of 800 nodes" in claim.evidence


def test_a_release_is_held_against_each_constant_weight():
    (claim,) = frontier.claims(made_rows())
    assert claim.verdict == "holds partly"
    constant, released = [made_row("0.1")], [made_row("0.3 to 0.03", 0.015, (90, 80))]
    assert frontier.release_claim(constant, released).verdict == "holds"
    assert frontier.release_claim(released, constant).verdict == "does not hold"
    assert frontier.claims(constant) == []


def test_a_second_fit_is_held_against_the_first():
    """1.60 % to 1.20 % has p = 0.016, 1.60 % to 1.50 % has p = 0.57."""
    again = lambda error: (
        made_row("0.1", error, schedule="fitted again") | {"error_before": 0.016}
    )
    assert frontier.again_claim([again(0.011), again(0.012)]).verdict == "holds"
    (claim,) = frontier.claims([again(0.012), again(0.015)])
    assert claim.verdict == "holds partly"
    assert "195 nodes 1.60% to 1.20% (-0.40 points, SE 0.17, p = " in claim.evidence
    assert frontier.again_claim([again(0.015)]).verdict == "does not hold"
    assert frontier.again_claim([again(0.021)]).verdict == "does not hold"


def test_the_figure_labels_each_point_with_its_weight():
    rows = made_rows()
    rows += [made_row("0.3 to 0.03", 0.0139, (90, 80), frontier.FINAL, place=1)]
    again = {"schedule": frontier.SECOND, "kind": frontier.FINAL}
    rows += [made_row("0.3 to 0.03", 0.0129, (90, 80)) | again]
    left, right = frontier.render(rows)["frontier"].axes
    labels = {text.get_text() for text in left.texts}
    assert labels == {row["candidate"] for row in made_rows()}
    assert [text.get_text() for text in right.texts] == ["0.3 to 0.03"]
    for ax in (left, right):
        assert ax.get_xlabel()
        assert ax.get_ylabel()


def test_the_readme_has_the_figures_of_the_last_run():
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    goal, *_ = frontier.claims(read_rows(root / "results/frontier/rows.json"))
    assert goal.evidence in readme, "put this into it:\n" + goal.evidence
