"""Digits, pixels and nodes made few: the ranking, the rule, table, claim, figure."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import pruned
from experiments._harness import Work, read_rows
from farrier import TrainingWarning


def made_row(kind, error=0.016, kept=(300, 110, 50), **more):
    row = {"kind": kind, "built": [784, 300, 100], "epochs": 100, "error": error}
    row |= {"kept": [*kept], "test_rows": 10_000, "seconds": 100.0}
    return row | {"log_density": -0.05} | more


def compacted_row(**more):
    ranking = np.random.default_rng(0).permutation(784).tolist()
    about = {"on": [60, 110, 50], "ranking": ranking, "error_before": 0.018}
    return made_row(pruned.COMPACTED, 0.018, (650, 110, 50)) | about | more


def work_in(folder, rows=()):
    return Work(folder, lambda share, text: None, rows)


def test_pixels_are_ranked_then_chosen_then_tested(tmp_path):
    names = list(pruned.parts(pruned.FULL, tmp_path))
    assert names[0] == "ranked/weight 1"
    tried = [f"choose/weight 1/{pixels}" for pixels in (100, 200, 300, 400)]
    assert names[1:-2] == tried
    assert names[-2:] == ["compacted/weight 1", "final/weight 1"]


def test_only_the_last_part_depends_on_all_numbers_of_pixels():
    fewer = replace(pruned.FULL, pixels=(100,))
    kinds = {"ranked/x": True, "compacted/x": True}
    kinds |= {"choose/x/100": True, "final/x": False}
    for part, is_same in kinds.items():
        pair = [pruned.settings_of(c, part) for c in (pruned.FULL, fewer)]
        assert (pair[0] == pair[1]) is is_same
    marks = [
        pruned.settings_of(pruned.FULL, part) for part in ("compacted/x", "final/x")
    ]
    assert "again" not in marks[0]
    assert "Matrix(pairs=50" in marks[1]["again"]["posterior"]


def test_the_rule_takes_the_fewest_pixels_that_are_as_good():
    """One standard error of 1.60 % of 10,000 digits is 0.125 %."""
    errors = {100: 0.0240, 200: 0.0173, 300: 0.0160, 400: 0.0165}
    rows = [made_row(pruned.CHOOSE, e, (k, 110, 50)) for k, e in errors.items()]
    assert pruned.chosen(rows)["kept"][0] == 300
    rows[1]["error"] = 0.0172
    assert pruned.chosen(rows)["kept"][0] == 200


def test_digits_that_judge_the_pixels_are_not_in_what_ranks_them(tmp_path, monkeypatch):
    """Ranking, widths and fits that are judged have seen the first digits alone."""
    asked, seen = [], []
    sizes = {"train": 60_000, "t10k": 10_000}

    def mnist(folder, part="train"):
        asked.append(part)
        numbers = np.arange(sizes[part])  # stand for the pictures, in their order
        return numbers[:, None], numbers

    def small_network(config, kind, train, tested, work):
        seen.append((kind, train, tested))

    def fit_again(config, pixels, ranking, train, tested, work):
        seen.append((ranking, train, tested))
        return {}

    monkeypatch.setattr(pruned.datasets, "mnist", mnist)
    monkeypatch.setattr(pruned, "small_network", small_network)
    monkeypatch.setattr(pruned, "fit_again", fit_again)
    pruned.ranked(pruned.FULL, tmp_path, work_in(tmp_path))
    pruned.judge(pruned.FULL, tmp_path, 100, work_in(tmp_path))
    assert asked == ["train"] * 2
    for ranking, (X, y), (X_held, y_held) in seen:
        assert ranking == pruned.RANKED
        assert (*X[:, 0],) == (*y,) == (*range(50_000),)
        assert (*X_held[:, 0],) == (*y_held,) == (*range(50_000, 60_000),)
    seen.clear()
    judged = [made_row(pruned.CHOOSE, kept=(k, 8, 4)) for k in pruned.FULL.pixels]
    pruned.compacted(pruned.FULL, tmp_path, work_in(tmp_path))
    pruned.final(pruned.FULL, tmp_path, work_in(tmp_path, judged))
    assert asked[2:] == ["train", "t10k"] * 2
    for ranking, (X, _), (X_test, _) in seen:
        assert ranking == pruned.COMPACTED
        assert (len(X), len(X_test)) == (60_000, 10_000)


def test_nothing_is_tested_before_all_are_judged(tmp_path):
    judged = [compacted_row(), made_row(pruned.CHOOSE, kept=(50, 8, 4))]
    with pytest.raises(FileNotFoundError, match=r"first; \[100\] are not"):
        pruned.final(pruned.SMOKE, tmp_path, work_in(tmp_path, judged))
    with pytest.raises(FileNotFoundError, match="ranked by the part 'compacted'"):
        pruned.fit_again(pruned.SMOKE, 50, pruned.COMPACTED, (), (), work_in(tmp_path))


def test_a_network_sees_its_best_pixels_alone(tmp_path):
    """Of pixels that were not ranked among the best, no value can change anything."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 784)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    first = compacted_row(kept=[650, 3, 2])
    other = X.copy()
    other[:, first["ranking"][5:]] = 7.0
    work = work_in(tmp_path, [first])
    with pytest.warns(TrainingWarning):
        rows = [
            pruned.fit_again(
                pruned.SMOKE, 5, pruned.COMPACTED, (seen, y), (seen, y), work
            )
            for seen in (X, other)
        ]
    assert rows[0]["kept"] == [5, 3, 2]
    assert rows[0]["log_density"] == rows[1]["log_density"]


def all_rows(error=0.0151):
    judged = [made_row(pruned.CHOOSE, 0.0171, (k, 110, 50)) for k in (200, 300)]
    return [compacted_row(), *judged, made_row(pruned.FINAL, error)]


def test_the_table_has_what_is_left_beside_published_networks():
    text = pruned.table(all_rows())
    name = "| farrier, 784-300-100, 100 epochs, first run"
    assert f"{name} | 650-110-50 (60-110-50) | 1.80 ± 0.13 |" in text
    assert f"{name}, fitted again | 300-110-50 | 1.51 ± 0.12 |" in text
    assert "| 245-160-55 | 1.55 |" in text
    assert "| first run | 200-110-50 | 1.71 ± 0.13 |" in text
    assert "judged" not in pruned.table([compacted_row()])


def test_rows_name_their_kl_weight_where_it_was_constant():
    """Those of the first run have none: the weight fell during training."""
    rows = [compacted_row(), compacted_row(kl_weight=1.0)]
    first, second = pruned.beside(rows).splitlines()[2:4]
    assert first.startswith("| farrier, 784-300-100, 100 epochs, first run |")
    assert second.startswith("| farrier, 784-300-100, 100 epochs, KL weight 1 |")


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0.0160, "holds"), (0.0170, "holds partly"), (0.0180, "does not hold")],
)
def test_the_goal_is_an_error(error, expected):
    (claim,) = pruned.claims(all_rows(error))
    assert claim.verdict == expected
    assert claim.evidence.startswith(f"{error:.2%} (SE 0.1")
    assert claim.evidence.endswith("with 300-110-50.")
    assert pruned.claims([compacted_row()]) == []


def test_the_figure_shows_the_pixels_that_are_kept():
    rows = all_rows()
    errors, ax, bar = pruned.render(rows)["pixels"].axes
    _, labels = errors.get_legend_handles_labels()
    assert sorted(labels) == ["1.6 %", "test digits", "training digits set apart"]
    assert errors.get_ylabel()
    shown = np.ma.filled(ax.images[0].get_array(), np.nan).ravel()
    assert np.isfinite(shown).sum() == 300
    assert shown[rows[0]["ranking"][0]] == 1
    assert ax.get_xlabel()
    assert bar.get_ylabel()
    assert pruned.render([compacted_row()]) == {}


def test_the_readme_has_the_figures_of_the_last_run():
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    expected = pruned.beside(read_rows(root / "results/pruned/rows.json"))
    assert expected in readme, "put this into it:\n" + expected
