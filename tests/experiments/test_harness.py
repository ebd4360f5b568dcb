"""Parts are run once, what is written is whole, and every experiment has its shape."""

import dataclasses
import json
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from experiments import _harness as harness
from experiments import _marks as marks
from experiments import _provenance, _results, _rows
from experiments._harness import Cell, Claim, Refused, plain, read_rows
from experiments._names import NAMES, hours
from experiments.plots import Figure
from experiments.settings import arguments
from farrier import HorseshoeRegressor, TrainingWarning
from farrier.train import data as training_data


@dataclass(frozen=True, kw_only=True)
class Config:
    parts: tuple[str, ...] = ("one", "two/b")
    data_seeds: tuple[int, ...] = (3,)
    steps: int = 5


FULL, SMOKE = Config(), Config(steps=1)


def no_report(percent: int, text: str) -> None:
    assert 0 <= percent <= 100
    assert text


@pytest.fixture
def experiment(monkeypatch):
    """An experiment whose parts note that they ran; `actions` may do more."""
    fake = ModuleType("fake", "What it shows.")
    fake.FULL, fake.SMOKE, fake.ran, fake.actions = FULL, SMOKE, [], {}
    fake.code = "first"

    def run(name, work):
        fake.ran.append(name)
        fake.actions.get(name, lambda work: None)(work)
        work.done(1, 2)
        return [{"name": name, "value": np.float32(1 / 3), "list": np.arange(2)}]

    fake.parts = lambda config, data: {
        name: (lambda work, name=name: run(name, work)) for name in config.parts
    }
    fake.data_files = lambda config: ("numbers.txt", "absent.txt")
    fake.render = lambda rows: {"values": Figure(figsize=(1, 1))}
    fake.table = lambda rows: f"{len(rows)} rows"
    fake.claims = lambda rows: [Claim("It works", f"{len(rows)} rows", "holds")]
    for name in ("cubic", "uci"):
        monkeypatch.setitem(sys.modules, f"experiments.{name}", fake)
    for module in (harness, marks):
        monkeypatch.setattr(module, "code_of", lambda name, config: fake.code)
    return fake


def reproduce(folder, config=FULL, data=Path("nowhere"), report=no_report, **other):
    return harness.reproduce("cubic", folder, config, data, report, **other)


def test_finished_parts_are_not_run_again(experiment, tmp_path):
    reproduce(tmp_path)
    assert experiment.ran == ["one", "two/b"]
    before = (tmp_path / "rows.json").read_text()
    (tmp_path / "values.png").unlink()
    reproduce(tmp_path)
    assert experiment.ran == ["one", "two/b"]
    assert (tmp_path / "rows.json").read_text() == before
    assert (tmp_path / "values.png").read_bytes().startswith(b"\x89PNG")
    reproduce(tmp_path, dataclasses.replace(FULL, parts=("one", "three")))
    assert experiment.ran == ["one", "two/b", "one", "three"]


def test_a_part_may_depend_on_some_of_the_settings(experiment, tmp_path):
    experiment.settings_of = lambda config, part: {"steps": config.steps}
    reproduce(tmp_path)
    reproduce(tmp_path, dataclasses.replace(FULL, parts=("one", "three")))
    assert experiment.ran == ["one", "two/b", "three"]
    assert [row["part"] for row in read_rows(tmp_path / "rows.json")] == [
        "one",
        "three",
    ]


def test_a_part_that_is_no_longer_offered_keeps_its_rows(experiment, tmp_path):
    experiment.settings_of = lambda config, part: {"steps": config.steps}
    reproduce(tmp_path)
    before = json.loads((tmp_path / "rows.json").read_text())["parts"]
    experiment.FULL = dataclasses.replace(FULL, parts=("three", "one"))
    text = reproduce(tmp_path, experiment.FULL)
    after = json.loads((tmp_path / "rows.json").read_text())["parts"]
    assert [*after] == ["three", "one", "two/b"]
    assert after["two/b"] == before["two/b"]
    assert "3 rows" in text
    assert re.search(r"No longer offered.*: two/b\.", text)
    assert experiment.ran == ["one", "two/b", "three"]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["parts"].keys() == after.keys()


def test_rows_of_earlier_settings_stay_until_their_part_has_run_again(
    experiment, tmp_path
):
    reproduce(tmp_path)
    before = json.loads((tmp_path / "rows.json").read_text())["parts"]
    experiment.FULL = dataclasses.replace(FULL, steps=6)
    text = reproduce(tmp_path, experiment.FULL, only=["one"])
    after = json.loads((tmp_path / "rows.json").read_text())["parts"]
    assert after["one"]["settings"] != before["one"]["settings"]
    assert after["two/b"] == before["two/b"]
    assert re.search(r"earlier settings, to be replaced by the next run: two/b\.", text)
    assert "Still to be run" not in text
    text = reproduce(tmp_path, experiment.FULL)
    assert experiment.ran == ["one", "two/b", "one", "two/b"]
    assert "earlier settings" not in text


def test_rows_whose_settings_were_only_renamed_are_current(
    experiment, tmp_path, monkeypatch
):
    experiment.settings_of = lambda config, part: {"step_count": config.steps}
    reproduce(tmp_path)
    before = json.loads((tmp_path / "rows.json").read_text())["parts"]
    experiment.settings_of = lambda config, part: {"steps": config.steps}
    new = marks.mark_of(experiment, FULL, "one")
    table = tmp_path / "renamed.json"
    table.write_text(json.dumps({before["one"]["settings"]: new}))
    monkeypatch.setattr(_rows, "RENAMED", table)
    assert "earlier settings" not in reproduce(tmp_path)
    assert experiment.ran == ["one", "two/b"]
    after = json.loads((tmp_path / "rows.json").read_text())["parts"]
    assert after["one"] == before["one"] | {"settings": new}
    experiment.FULL = dataclasses.replace(FULL, steps=6)
    reproduce(tmp_path, experiment.FULL)
    assert experiment.ran == ["one", "two/b"] * 2


def test_renamed_settings_are_those_of_parts_that_are_offered():
    offered = set()
    for name in NAMES:
        experiment = harness.known(name)
        for kind in ("full", "short"):
            config = marks.settings_named(experiment, kind)
            if dataclasses.is_dataclass(config):
                parts = experiment.parts(config, Path("nowhere"))
                offered |= {marks.mark_of(experiment, config, part) for part in parts}
    renamed = json.loads(_rows.RENAMED.read_text(encoding="utf-8"))
    assert renamed
    assert {*renamed.values()} <= offered
    assert not renamed.keys() & offered


def test_rows_of_smaller_settings_are_set_aside(experiment, tmp_path):
    reproduce(tmp_path, SMOKE)
    before = (tmp_path / "rows.json").read_text()
    reproduce(tmp_path)
    assert (tmp_path / "rows-smoke.json").read_text() == before
    stored = json.loads((tmp_path / "rows.json").read_text())
    assert stored["kind"] == "full"
    assert [*stored["parts"]] == ["one", "two/b"]
    assert experiment.ran == ["one", "two/b"] * 2


def test_parts_can_be_chosen_and_the_others_stay(experiment, tmp_path):
    assert "Still to be run: one." in reproduce(tmp_path, only=["two"])
    assert experiment.ran == ["two/b"]
    assert "Still to be run" not in reproduce(tmp_path, only=["on"])
    assert experiment.ran == ["two/b", "one"]
    names = [row["name"] for row in read_rows(tmp_path / "rows.json")]
    assert names == ["one", "two/b"]
    with pytest.raises(
        Refused,
        match=r"No part contains \['x'\]. There are 2 parts, such as one, two/b",
    ):
        reproduce(tmp_path, only=["x"])


def test_parts_that_others_finish_meanwhile_are_kept(experiment, tmp_path):
    experiment.actions = {"one": lambda work: reproduce(tmp_path, only=["two"])}
    reproduce(tmp_path, only=["one"])
    assert experiment.ran == ["one", "two/b"]
    names = [row["name"] for row in read_rows(tmp_path / "rows.json")]
    assert names == ["one", "two/b"]


def test_a_stopped_run_goes_on_from_its_checkpoints(experiment, tmp_path):
    folders = []

    def stop(work):
        folders.append(work.folder)
        (work.folder / "fit").write_text("half")
        raise KeyboardInterrupt

    def go_on(work):
        assert work.folder == folders[0]
        assert (work.folder / "fit").read_text() == "half"

    experiment.actions = {"two/b": stop}
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path)
    assert [row["name"] for row in read_rows(tmp_path / "rows.json")] == ["one"]
    assert "1 rows" in (tmp_path / "table.md").read_text()
    experiment.actions = {"two/b": go_on}
    reproduce(tmp_path)
    assert experiment.ran == ["one", "two/b", "two/b"]
    assert len(read_rows(tmp_path / "rows.json")) == 2
    assert not (tmp_path / "unfinished").exists()
    assert not list(tmp_path.glob("*.part"))


def test_half_a_training_is_not_a_result(experiment, tmp_path, monkeypatch):
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(training_data, "run_chunk", stopped)
    x = np.linspace(-1, 1, 20)[:, None]
    model = HorseshoeRegressor((3,), **arguments({"max_iter": 5}))
    experiment.actions = {"one": lambda work: model.fit(x, x[:, 0])}
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path)
    assert experiment.ran == ["one"]
    assert not (tmp_path / "rows.json").exists()


def test_warnings_of_training_are_counted_and_others_pass(experiment, tmp_path):
    def warn(work):
        for _ in range(3):
            warnings.warn("too narrow", TrainingWarning, stacklevel=1)

    experiment.actions = {"one": warn}
    reproduce(tmp_path)
    first, second = read_rows(tmp_path / "rows.json")
    assert first["warnings"] == ["too narrow (3 times)"]
    assert second["warnings"] == []
    experiment.actions = {"one": lambda work: warnings.warn("other", stacklevel=1)}
    with pytest.raises(UserWarning, match="other"):
        reproduce(tmp_path, dataclasses.replace(FULL, steps=7))


def test_a_part_without_its_data_is_skipped_with_the_reason(experiment, tmp_path):
    data = tmp_path / "data"
    results = tmp_path / "results"

    def read(work):
        (data / "year.txt").read_text()

    experiment.actions = {"one": read}
    table = reproduce(results, data=data)
    assert re.search(r"- one: .*the data folder/year.txt", table)
    assert str(tmp_path) not in (results / "manifest.json").read_text()
    assert [row["name"] for row in read_rows(results / "rows.json")] == ["two/b"]
    data.mkdir()
    (data / "year.txt").write_text("2001")
    assert "Not run" not in reproduce(results, data=data)
    assert experiment.ran == ["one", "two/b", "one"]
    names = [row["name"] for row in read_rows(results / "rows.json")]
    assert names == ["one", "two/b"]


def test_the_manifest_says_what_the_rows_were_made_of(experiment, tmp_path):
    (tmp_path / "numbers.txt").write_text("abc")
    reproduce(tmp_path / "results", SMOKE, data=tmp_path)
    manifest = json.loads((tmp_path / "results" / "manifest.json").read_text())
    assert manifest["command"] == "python -m experiments cubic --smoke"
    assert manifest["settings"]["steps"] == 1
    assert manifest["seeds"] == {"data_seeds": [3]}
    # printf abc | sha256sum, coreutils 9.1
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert manifest["data_sha256"] == {"numbers.txt": digest, "absent.txt": None}
    parts = manifest["parts"]
    assert manifest["seconds"] == pytest.approx(
        sum(part["seconds"] for part in parts.values()), rel=1e-3
    )
    for part in parts.values():
        assert part["commit"] is None or re.fullmatch(r"[0-9a-f]{40}", part["commit"])
    assert {"farrier", "jax", "numpy"} <= manifest["versions"].keys()
    rows = json.loads((tmp_path / "results" / "rows.json").read_text())["parts"]
    for part in rows.values():
        assert part["code"] == "first"
        assert part["python"] == ".".join(map(str, sys.version_info[:3]))
        assert part["versions"]["numpy"] == np.__version__
    assert manifest["versions"]["numpy"] == [np.__version__]


def test_small_settings_do_not_replace_full_results(experiment, tmp_path):
    reproduce(tmp_path)
    with pytest.raises(Refused, match=r"results of the full settings.*Give another"):
        reproduce(tmp_path, SMOKE)
    assert len(read_rows(tmp_path / "rows.json")) == 2


def test_parts_of_earlier_code_are_kept_and_shown_and_run_when_asked(
    experiment, tmp_path
):
    reproduce(tmp_path)
    before = (tmp_path / "rows.json").read_text()
    experiment.code = "second"
    text = reproduce(tmp_path)
    assert experiment.ran == ["one", "two/b"]
    assert (tmp_path / "rows.json").read_text() == before
    assert "2 parts were made by earlier code" in text
    assert "`python -m experiments cubic --stale`" in text
    assert re.search(r"- (commit \w{7}|unknown commit).*: one; two/b\n", text)
    text = reproduce(tmp_path, only=["two"], stale=True)
    assert experiment.ran == ["one", "two/b", "two/b"]
    assert "1 part was made by earlier code" in text
    assert re.search(r"- (commit \w{7}|unknown commit).*: one\n", text)
    assert "earlier code" not in reproduce(tmp_path, stale=True)
    assert experiment.ran == ["one", "two/b", "two/b", "one"]
    reproduce(tmp_path, stale=True)
    assert len(experiment.ran) == 4


def test_rows_from_before_codes_were_stored_are_stale(experiment, tmp_path):
    reproduce(tmp_path)
    path = tmp_path / "rows.json"
    stored = json.loads(path.read_text())
    for made in stored["parts"].values():
        for key in ("code", "versions", "python", "processor", "cores"):
            del made[key]
    path.write_text(json.dumps(stored))
    assert "2 parts were made by earlier code" in reproduce(tmp_path)
    assert "earlier code" not in reproduce(tmp_path, stale=True)
    assert experiment.ran == ["one", "two/b"] * 2


@pytest.mark.parametrize("reads", [True, False])
def test_what_is_made_of_stale_rows_is_stale(experiment, tmp_path, reads):
    experiment.settings_of = lambda config, part: {"steps": config.steps}
    reproduce(tmp_path, only=["one"])
    experiment.code = "second"
    seen = []
    if reads:
        experiment.actions = {"two/b": lambda work: seen.append([*work.rows])}
    text = reproduce(tmp_path)
    assert [len(rows) for rows in seen] == [1] * reads
    told = "2 parts were made" if reads else "1 part was made"
    assert f"{told} by earlier code" in text
    assert "earlier code" not in reproduce(tmp_path, stale=True)
    assert experiment.ran == ["one", "two/b", "one"] + ["two/b"] * reads


def test_checkpoints_of_earlier_code_are_not_used(experiment, tmp_path):
    folders = []

    def stop(work):
        folders.append(work.folder)
        raise KeyboardInterrupt

    experiment.actions = {"one": stop}
    for experiment.code in ("first", "second"):
        with pytest.raises(KeyboardInterrupt):
            reproduce(tmp_path)
    assert len({*folders}) == 2


def test_a_process_does_not_put_back_what_another_has_run_again(experiment, tmp_path):
    reproduce(tmp_path)
    experiment.code = "second"

    def meanwhile(work):
        experiment.actions = {}
        reproduce(tmp_path, only=["two"], stale=True)

    experiment.actions = {"one": meanwhile}
    assert "earlier code" not in reproduce(tmp_path, only=["one"], stale=True)
    assert experiment.ran == ["one", "two/b", "one", "two/b"]


def test_rendering_runs_nothing_and_writes_the_same(experiment, tmp_path):
    harness.reproduce("cubic", tmp_path / "cubic", FULL, Path(), no_report, only=["on"])
    experiment.code = "second"
    files = {p: p.read_bytes() for p in (tmp_path / "cubic").glob("*.json")}
    assert _results.render_into(tmp_path, ["cubic", "uci"]) == ["cubic"]
    assert experiment.ran == ["one"]
    assert {p: p.read_bytes() for p in (tmp_path / "cubic").glob("*.json")} == files
    text = (tmp_path / "cubic" / "table.md").read_text()
    assert "1 part was made by earlier code" in text
    assert "Still to be run: two/b." in text
    assert text == reproduce(tmp_path / "cubic", only=["on"])
    with pytest.raises(Refused, match="no rows of uci"):
        _results.render_into(tmp_path, ["uci"])


def test_the_status_counts_parts_and_seconds(experiment, tmp_path, monkeypatch):
    monkeypatch.setattr(_results, "NAMES", ("cubic", "uci"))
    for name, only in (("cubic", ["one"]), ("uci", [])):
        folder = tmp_path / name
        harness.reproduce(name, folder, FULL, Path(), no_report, only=only)
        text = (folder / "rows.json").read_text()
        (folder / "rows.json").write_text(
            re.sub('"seconds": [^,]*', '"seconds": 70', text)
        )
    read = lambda: [s.split() for s in _results.status(tmp_path).splitlines()[1:]]
    assert read() == [
        ["cubic", "1", "0", "1", "1", "0"],
        ["uci", "2", "0", "0", "0", "0"],
        ["all", "0"],
    ]
    experiment.code = "second"
    assert read() == [
        ["cubic", "0", "1", "1", "1", "70"],
        ["uci", "0", "2", "0", "0", "140"],
        ["all", "210"],
    ]
    experiment.FULL = dataclasses.replace(FULL, steps=6)
    assert read()[1] == ["uci", "0", "0", "2", "0", "140"]


def test_commits_have_dates_and_those_that_are_gone_are_told(tmp_path):
    def git(*arguments):
        about = ("-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))
        command = ["git", *about, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True)

    git("init")
    git("commit", "--allow-empty", "-m", "one")
    commit = git("rev-parse", "HEAD").stdout.strip()
    day = git("show", "-s", "--format=%cs").stdout.strip()
    gone = "0123456" + "0" * 33
    text = _provenance.commit_text
    assert text(commit, tmp_path) == f"commit {commit[:7]}, {day}"
    assert text(gone, tmp_path) == "commit 0123456, the commit is not in the repository"
    assert text(None, tmp_path) == "unknown commit"
    shallow = tmp_path / "shallow"
    git("commit", "--allow-empty", "-m", "two")
    git("clone", "--depth", "1", f"file://{tmp_path}", str(shallow))
    nothing = tmp_path.parent / f"{tmp_path.name}-without-git"
    nothing.mkdir()
    for folder in (shallow, nothing):
        assert text(commit, folder) == f"commit {commit[:7]}"
        assert not _provenance.is_lost(gone, folder)


def test_the_table_tells_of_commits_that_are_gone(experiment, tmp_path, monkeypatch):
    reproduce(tmp_path)
    monkeypatch.setattr(harness, "is_lost", lambda commit: True)
    monkeypatch.setattr(harness, "commit_text", lambda commit: "commit that is gone")
    text = reproduce(tmp_path)
    assert "Made by the present code:\n\n- commit that is gone: one; two/b\n" in text
    experiment.code = "second"
    text = reproduce(tmp_path)
    assert "present code" not in text
    assert "`.\n\n- commit that is gone: one; two/b\n" in text


def test_progress_goes_from_nothing_to_all_and_never_back(experiment, tmp_path):
    told = []
    experiment.actions = {"one": lambda work: (work.done(1, 2), work.note("still"))}
    reproduce(tmp_path, report=lambda percent, text: told.append((percent, text)))
    assert told == [
        (0, "one"),
        (25, "one (1 of 2)"),
        (25, "one (still)"),
        (25, "one (1 of 2)"),
        (50, "two/b"),
        (75, "two/b (1 of 2)"),
        (100, "done"),
    ]


def test_a_counter_tells_of_each_fit(tmp_path):
    told = []
    work = harness.Work(tmp_path, lambda share, text: told.append((share, text)))
    after_fit = work.counter(4)
    for index in (2, 0):
        after_fit(index, None)
    assert told == [(0.25, "1 of 4"), (0.5, "2 of 4")]


def test_claims_take_the_place_of_older_ones(experiment, tmp_path):
    for name in ("cubic", "uci"):
        harness.reproduce(name, tmp_path / name, FULL, Path("nowhere"), no_report)
    _results.write_claims(tmp_path)
    page = tmp_path / "README.md"
    line = "| [cubic](cubic/table.md) | It works | 2 rows | holds |"
    assert page.read_text().count(line) == 1
    page.write_text(page.read_text().replace("# Results", "# Mine").replace("2", "9"))
    _results.write_claims(tmp_path)
    assert page.read_text().startswith("# Mine")
    assert page.read_text().count("2 rows | holds") == 2
    assert "9 rows" not in page.read_text()
    page.write_text("no place for claims")
    with pytest.raises(ValueError, match="must have a line"):
        _results.write_claims(tmp_path)


def test_counts_are_on_top(experiment, tmp_path):
    verdicts = ("holds", "holds", "holds partly", "waits for results")
    experiment.claims = lambda rows: [Claim("It works", "see", v) for v in verdicts]
    experiment.cells = lambda rows: [
        Cell("a, RMSE", 1.0, 0.25, 2.0, 0.5, more_is_better=False),
        Cell("b, RMSE", 2.0, 0.25, 2.0, 0.5, more_is_better=False),
        Cell("b, density", -2.5, np.nan, -1.25, np.nan, more_is_better=True),
    ]
    for name in ("cubic", "uci"):
        folder = tmp_path / name
        harness.reproduce(name, folder, FULL, Path(), no_report, only=["one"])
    _results.write_claims(tmp_path)
    text = (tmp_path / "README.md").read_text()
    claims = "- Claims: 4 hold, 2 hold partly, 0 do not hold, 2 wait for results.\n"
    cells = "- Our numbers beside published ones: 2 better, 2 level, 2 worse.\n"
    parts = (
        "- Parts of the results: 2 finished, 0 stale (made by earlier code), 2 waiting"
    )
    assert text.partition(f"{_results.BEGIN}\n")[2].startswith(claims + cells + parts)
    assert "- Without results: structure, " in text
    assert "| [cubic](cubic/table.md) | 1 | 1 | 1 |\n" in text
    row = "| [uci](uci/table.md) | b, density | -2.500 | -1.25 |\n"
    assert text.count(row) == 1
    assert "made by earlier code, commit" not in text
    experiment.code = "second"
    _results.write_claims(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "0 finished, 2 stale (made by earlier code), 2 waiting" in text
    assert re.search(r"- \[uci\].*: 1 of 1 parts made by earlier code, \w+", text)
    assert "| [uci](uci/table.md) (stale) | It works | see | holds |\n" in text
    experiment.FULL = dataclasses.replace(FULL, parts=("two/b",))
    _results.write_claims(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "0 stale (made by earlier code), 2 waiting; 2 no longer offered" in text
    assert "| [uci](uci/table.md) (waiting) | It works | see | holds |\n" in text


def test_a_worse_number_is_shown_with_its_errors(experiment, tmp_path):
    experiment.cells = lambda rows: [
        Cell("a, RMSE", 3.0, 0.25, 2.0, 0.5, more_is_better=False)
    ]
    harness.reproduce("cubic", tmp_path / "cubic", FULL, Path(), no_report)
    _results.write_claims(tmp_path)
    row = "| [cubic](cubic/table.md) | a, RMSE | 3.000 ± 0.250 | 2.00 ± 0.50 |\n"
    assert row in (tmp_path / "README.md").read_text()


def test_rows_are_plain_and_have_four_digits():
    row = {
        "a": np.float32(1 / 3),
        "b": [np.int64(123456), 123456.7],
        "c": (np.nan, np.inf, True, np.bool_(0), None, "text"),
        4: np.array([[1e-9 / 3]]),
    }
    assert plain(row) == {
        "a": 0.3333,
        "b": [123456, 123500.0],
        "c": [None, None, True, False, None, "text"],
        "4": [[3.333e-10]],
    }
    with pytest.raises(TypeError, match="this is a set"):
        plain({"a": {1}})


def test_mean_and_error_by_hand():
    assert harness.mean_and_error([1.0, 3.0]) == pytest.approx((2.0, 2.0))
    mean, error = harness.mean_and_error([4.0])
    assert mean == 4
    assert np.isnan(error)
    assert np.isnan(harness.mean_and_error([])).all()


def test_where_asks_for_all_values():
    rows = [{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1}]
    assert harness.where(rows, a=1, b=2) == rows[:1]
    assert harness.where(rows, a=1) == rows


def test_a_verdict_is_one_of_a_few():
    assert harness.verdict(holds=True, partly=True) == "holds"
    assert harness.verdict(holds=False, partly=True) == "holds partly"
    assert harness.verdict(holds=False, partly=False) == "does not hold"
    with pytest.raises(ValueError, match="got 'perhaps'"):
        Claim("text", "evidence", "perhaps")


def test_unknown_experiments_are_told_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no experiment 'cubics'.*cubic, structure"):
        harness.known("cubics")


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_has_its_shape(name):
    experiment = harness.known(name)
    assert hours()[name] == experiment.HOURS
    assert experiment.__doc__
    assert experiment.FULL != experiment.SMOKE
    for config in (experiment.FULL, experiment.SMOKE):
        assert dataclasses.is_dataclass(config)
        assert plain(dataclasses.asdict(config)) == json.loads(
            json.dumps(dataclasses.asdict(config))
        )
        parts = experiment.parts(config, Path("nowhere"))
        assert parts
        assert all(callable(part) for part in parts.values())
        assert isinstance(experiment.data_files(config), tuple)
