"""How settings are chosen: tables, splits, the rule, and what is made of the rows."""

import dataclasses

import numpy as np
import pytest

from experiments import _choosing, _scores, choose, choose_classes, datasets
from experiments._choosing import Config, Group, split_rows
from experiments._harness import Work, mark_of
from farrier import Training, presets
from farrier.estimators.base import planned

TABLES = tuple("abcdefgh")
GROUPS = {
    "one": Group(
        tables=TABLES,
        candidates={name: lambda rows: {} for name in ("default", "new", "simple")},
        shipped="default",
        advantages={"simple": "fewer settings"},
    )
}
STUDY = dataclasses.replace(choose.STUDY, groups=GROUPS)
WOBBLE = np.array([1, -1, 1, -1, 1, -1, 1, -1])  # mean 0, standard deviation 1.07


def made_rows(candidate, densities=0.0, crps=0.5, seconds=1.0, group="one"):
    """Two splits of each table, whose mean is the given density."""
    rows = []
    for name, density in zip(TABLES, np.broadcast_to(densities, 8), strict=True):
        row = {"group": group, "table": name, "candidate": candidate, "crps": crps}
        row |= {"rmse": 0.5, "coverage": 0.9, "seconds": seconds, "columns": 3}
        row |= {"train": 70, "held": 30, "copies": 0}
        for split, shift in enumerate((0.25, -0.25)):
            rows.append(row | {"split": split, "log_density": density + shift})
    return rows


def default_and(*others):
    return [*made_rows("default"), *(row for rows in others for row in rows)]


# -- the rule --------------------------------------------------------------------------


def test_a_gain_is_the_clipped_mean_of_paired_differences():
    densities = np.array([5.0, 0.2, 0.2, -0.1, -7.0, 0.0, 0.004, 0.2])
    rows = default_and(made_rows("new", densities, crps=0.4, seconds=3.0))
    gain = STUDY.gains(rows, "one")["new"]
    clipped = np.array([1.0, 0.2, 0.2, -0.1, -1.0, 0.0, 0.004, 0.2])
    assert gain.mean == pytest.approx(clipped.sum() / 8)
    by_hand = np.sqrt(((clipped - clipped.mean()) ** 2).sum() / 7 / 8)
    assert gain.error == pytest.approx(2 * by_hand)
    assert gain.counts == (4, 2, 2)
    assert gain.differences["e"] == pytest.approx(-7.0)
    assert (gain.second, gain.seconds) == pytest.approx((0.1, 3.0))


@pytest.mark.parametrize(("shift", "chosen"), [(0.2, "new"), (0.1, "default")])
def test_a_gain_of_two_standard_errors_replaces_the_default(shift, chosen):
    """The standard error is 0.2 / sqrt(7) = 0.0756, so the limit is 0.151."""
    rows = default_and(made_rows("new", shift + 0.2 * WOBBLE))
    assert STUDY.chosen(rows, "one") == chosen


def test_the_highest_of_several_gains_wins():
    rows = default_and(made_rows("simple", 0.1), made_rows("new", 0.2))
    assert STUDY.chosen(rows, "one") == "new"
    assert STUDY.chosen(default_and(made_rows("new", 0.1)), "one") == "new"


@pytest.mark.parametrize(("gap", "chosen"), [(0.07, "simple"), (0.08, "new")])
def test_the_fastest_wins_within_one_standard_error_of_the_highest(gap, chosen):
    """The standard error of the difference is 0.2 / sqrt(7) = 0.0756."""
    other = made_rows("simple", 0.5 - gap + 0.2 * WOBBLE, seconds=0.5)
    rows = default_and(made_rows("new", 0.5), other)
    assert STUDY.chosen(rows, "one") == chosen
    slow = default_and(made_rows("new", 0.5, seconds=0.4), other)
    assert STUDY.chosen(slow, "one") == "new"


def test_no_table_decides_alone():
    """Unclipped, the mean of one table's 40 nats is 5; clipped, one standard error."""
    rows = default_and(made_rows("new", [40, 0, 0, 0, 0, 0, 0, 0]))
    gain = STUDY.gains(rows, "one")["new"]
    assert gain.mean == pytest.approx(gain.error / 2)
    assert STUDY.chosen(rows, "one") == "default"


def test_a_level_candidate_needs_an_advantage():
    wobble = 0.02 * WOBBLE
    level = lambda name, **more: default_and(made_rows(name, wobble, **more))
    assert STUDY.chosen(level("new"), "one") == "default"
    assert STUDY.chosen(level("new", seconds=0.81), "one") == "default"
    assert STUDY.chosen(level("new", seconds=0.79), "one") == "new"
    assert STUDY.chosen(level("simple", seconds=9.0), "one") == "simple"


def test_noise_does_not_count_as_level():
    """Two standard errors of 0.151: within them of 0, yet perhaps 0.15 nats worse."""
    rows = default_and(made_rows("simple", 0.2 * WOBBLE))
    assert STUDY.chosen(rows, "one") == "default"
    assert "| not decided |" in STUDY.table(rows)


def test_a_better_log_density_does_not_outweigh_a_worse_crps():
    """Spikes at repeated targets raise the one and not the other."""
    rows = default_and(made_rows("new", 0.5, crps=0.6))
    assert STUDY.chosen(rows, "one") == "default"
    assert "| worse in CRPS / SD |" in STUDY.table(rows)


def test_one_table_is_no_evidence():
    rows = [r for r in default_and(made_rows("new", 0.5)) if r["table"] == "a"]
    assert STUDY.chosen(rows, "one") == "default"
    assert "| too few tables |" in STUDY.table(rows)


def test_a_score_that_was_infinite_loses_the_whole_of_its_table():
    rows = default_and(made_rows("new", 0.1))
    for row in rows:
        if (row["candidate"], row["table"]) == ("new", "a"):
            row["log_density"] = None
    gain = STUDY.gains(rows, "one")["new"]
    assert gain.mean == pytest.approx((7 * 0.1 - 1) / 8)


# -- what is made of the rows ----------------------------------------------------------


def test_claims_wait_for_all_parts():
    rows = default_and(made_rows("new", 0.2))
    assert STUDY.claims(rows)[0].verdict == "waits for results"
    rows += made_rows("simple", -0.2)
    (claim,) = STUDY.claims(rows)
    assert claim.verdict == "does not hold"
    assert "new +0.200 ± 0.000" in claim.evidence
    assert claim.evidence.endswith("The rule chooses: new.")
    rows = default_and(made_rows("new", -0.2), made_rows("simple", -0.2))
    assert STUDY.claims(rows)[0].verdict == "holds"


def test_table_and_figure():
    rows = default_and(made_rows("new", 0.2, seconds=2.0))
    text = STUDY.table(rows)
    line = "| new | 8 | +0.2000 ± 0.0000 | +0.2000 | +0.2000 | 8 / 0 / 0 |"
    assert f"{line} +0.0000 ± 0.0000 | 2.00 | better |" in text
    assert "| c | 70 / 30 | 3 | 0 | new | +0.2000 | 0.2 | 0.5 | 0.5 | 0.9 | 2 |" in text
    assert "of the parts that have been run: **new**" in text
    assert "- 1030_ERA: three quarters of its rows are copies" in text
    figure = STUDY.render(rows)["one"]
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["mean ± 2 SE", *TABLES]
    (drawn,) = (bars for bars in ax.containers if bars.get_label() == "new")
    np.testing.assert_allclose(drawn.lines[0].get_xdata(), 0.2)
    assert STUDY.render(made_rows("default")) == {}


# -- tables and splits -----------------------------------------------------------------


@pytest.mark.parametrize("split", range(2))
def test_copies_are_on_one_side_and_splits_are_disjoint(split):
    random = np.random.default_rng(3)
    X, y = random.integers(3, size=(400, 2)).astype(float), random.integers(3, size=400)
    copies, splits = split_rows(X, y, Config(train_rows=150))
    assert copies == 400 - len({(*x, t) for x, t in zip(X, y, strict=True)})
    train, held = splits[split]
    sides = [{(*X[i], y[i]) for i in side} for side in (train, held)]
    assert not sides[0] & sides[1]
    assert len(train) == 150
    largest = max(np.unique(np.column_stack([X, y]), axis=0, return_counts=True)[1])
    assert 120 - largest < len(held) <= 120


def test_splits_are_seeded_and_differ():
    X, y = np.arange(100.0)[:, None], np.arange(100.0)
    copies, splits = split_rows(X, y, Config())
    assert copies == 0
    for train, held in splits:
        assert len(held) == 30
        assert sorted([*train, *held]) == [*range(100)]
    assert set(splits[0][1]) != set(splits[1][1])
    again = split_rows(X, y, Config())[1]
    np.testing.assert_array_equal(splits[1][0], again[1][0])
    assert len(split_rows(X, y, Config(held_rows=7))[1][0][1]) == 7


def test_equal_inputs_with_other_targets_are_no_copies():
    X, y = np.zeros((20, 1)), np.arange(20.0)
    assert split_rows(X, y, Config())[0] == 0


def test_all_tables_are_used_or_left_out_with_a_reason(shared_data):
    used = {*choose.SMALL, *choose.LARGE}
    assert used.isdisjoint(choose.LEFT_OUT)
    assert used | choose.LEFT_OUT.keys() == {
        *datasets.pmlb_regression_names(shared_data)
    }
    used = {*choose_classes.PMLB}
    assert used.isdisjoint(choose_classes.LEFT_OUT)
    assert used | choose_classes.LEFT_OUT.keys() == {*datasets.pmlb_names(shared_data)}


def test_no_table_is_scored_elsewhere():
    names = {*choose.SMALL, *choose.LARGE, *choose_classes.PMLB, *datasets.MIXED}
    scored = {*datasets.UCI, *datasets.UCI.values(), "mnist", "covtype", "natops"}
    for name in names:
        words = name.lower().split("_")
        assert not {word for s in scored for word in s.split("-")[:1]} & {*words}, name


# -- the runs --------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [choose, choose_classes])
def test_what_a_candidate_is_belongs_to_the_mark_of_its_parts(experiment, tmp_path):
    parts = experiment.parts(experiment.FULL, tmp_path)
    marks = {part: mark_of(experiment, experiment.FULL, part) for part in parts}
    by_candidate = {}
    for part, mark in marks.items():
        group, _, candidate = part.split("/")
        by_candidate.setdefault((group, candidate), set()).add(mark)
    assert all(len(of) == 1 for of in by_candidate.values())
    assert len(set.union(*by_candidate.values())) == len(by_candidate)
    fewer = dataclasses.replace(experiment.FULL, train_rows=100)
    assert mark_of(experiment, fewer, next(iter(parts))) not in marks.values()


@pytest.mark.parametrize("rows", [100, 700, 1_000, 5_000])
def test_the_shipped_candidate_is_the_default_of_the_package(rows):
    products = {"variational": lambda rows: {}, "refined": presets.refined}
    x, y = np.arange(float(rows))[:, None], np.arange(rows) % 2
    for experiment in (choose, choose_classes):
        for name, group in experiment.STUDY.groups.items():
            if name == "refined" and rows >= presets.MANY_ROWS:
                continue  # the recipe for few rows
            study = experiment.STUDY
            assert group.advantages.keys() <= group.candidates.keys()
            shipped = study.estimator(random_state=0, **products[name](rows))
            model = study.model(Config(), name, group.shipped, rows, 0)
            recipes = [plan_of(each, x, y) for each in (model, shipped)]
            assert recipes[0] == recipes[1], name


def plan_of(model, x, y):
    """What a fit would do, with all that "auto" stands for."""
    plan = planned(model, x, y, None).plan
    (config,) = {job.config for job in plan.jobs}
    recipe = dataclasses.replace(plan.recipe, likelihood=len, training=Training())
    return config, recipe, model.likelihood


def test_a_part_scores_held_out_rows_alone(tmp_path, monkeypatch):
    """The fits get the training rows, the scores the held-out rows."""
    X, y = np.arange(60.0)[:, None], np.arange(60.0)
    monkeypatch.setattr(_choosing, "read_once", lambda read, name, data: (X, y))
    trained, scored = [], []

    def fit_to_parts(models, X, y, parts, work):
        trained.extend(parts)

    def scores(model, X, y):
        np.testing.assert_array_equal(X[:, 0], y)
        scored.append(y.astype(int))
        return {"log_density": float(model.random_state)}

    monkeypatch.setattr(_choosing, "fit_to_parts", fit_to_parts)
    study = dataclasses.replace(STUDY, scores=scores)
    work = Work(tmp_path, lambda share, text: None)
    rows = study.fit(Config(), tmp_path, "one", "a", "default", work)
    for train, held, row in zip(trained, scored, rows, strict=True):
        assert sorted([*train, *held]) == [*range(60)]
        assert (row["train"], row["held"], row["copies"]) == (42, 18, 0)
    assert [row["log_density"] for row in rows] == [0.0, 1.0]


def test_errors_are_in_units_of_the_targets(tmp_path):
    """A model that predicts the mean of its targets with their SD."""
    y = np.random.default_rng(0).normal(3.0, 5.0, size=4_000)

    class Constant:
        class model_:
            sampling = None

        def predict(self, X):
            return np.full(len(X), y.mean())

        def log_density(self, X, y):
            return np.full(len(y), -2.0)

        def sample_y(self, X, draws):
            return np.random.default_rng(1).normal(3.0, 5.0, size=(len(X), draws))

        def predict_interval(self, X, level, method):
            return np.full(len(X), -np.inf), np.full(len(X), 3.0)

    row = choose.scores(Constant(), y[:, None], y)
    assert row["rmse"] == pytest.approx(1.0)
    # Of a standard normal against its own: 1 / sqrt(pi).
    assert row["crps"] == pytest.approx(np.pi**-0.5, rel=0.03)
    assert row["coverage"] == pytest.approx(0.5, abs=0.04)
    assert row["log_density"] == -2.0


# -- scores of classes -----------------------------------------------------------------


def test_brier_and_calibration_by_hand():
    p = np.array([[0.8, 0.2], [0.8, 0.2], [0.4, 0.6], [1.0, 0.0]])
    codes = np.array([0, 1, 1, 0])
    by_hand = (2 * 0.04 + 2 * 0.64 + 2 * 0.16 + 0) / 4
    assert _scores.brier(p, codes) == pytest.approx(by_hand)
    # Bins at 0.8 (half is right), 0.6 (all is) and 1.0 (all is).
    gaps = (2 * abs(0.5 - 0.8) + abs(1 - 0.6) + 0) / 4
    assert _scores.calibration_error(p, codes) == pytest.approx(gaps)


def test_calibrated_probabilities_have_no_calibration_error():
    random = np.random.default_rng(0)
    p = random.dirichlet([1, 1, 1], size=200_000)
    codes = (random.random(len(p))[:, None] > p.cumsum(axis=1)).sum(axis=1)
    assert _scores.calibration_error(p, codes) < 0.01
    assert _scores.brier(p, codes) == pytest.approx(
        (1 - (p**2).sum(axis=1)).mean(), abs=0.005
    )
    assert _scores.calibration_error(p, (codes + 1) % 3) > 0.2
