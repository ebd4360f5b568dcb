"""The command line and the demonstration, with settings small enough for a test."""

import json
import re
from functools import partial

import pytest
from typer.testing import CliRunner

import farrier
from benchmarks import bench
from experiments import _harness
from experiments._names import NAMES, hours
from farrier import demo
from farrier.cli.app import app


@pytest.fixture
def small_demo(monkeypatch):
    monkeypatch.setattr(demo, "PRIORS", ("horseshoe",))
    monkeypatch.setattr(demo, "CUBIC_WIDTHS", (5,))
    monkeypatch.setattr(demo, "STRUCTURE_WIDTHS", (5,))
    monkeypatch.setattr(demo, "FITS", 2)
    for name in ("HorseshoeRegressor", "HorseshoeClassifier"):
        short = partial(getattr(demo, name), max_iter=40, n_draws=8)
        monkeypatch.setattr(demo, name, short)


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"farrier {farrier.__version__}\n"


def test_help_names_the_commands():
    output = CliRunner().invoke(app, ["--help"]).output
    assert {"demo", "bench", "reproduce"} <= set(re.findall(r"\w+", output))


@pytest.mark.slow
def test_demo_writes_figures_rows_and_a_table(small_demo, tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [(r["data"], r["prior"], r["width"]) for r in rows] == [
        ("cubic", "horseshoe", 5),
        ("2-2-1", "horseshoe", 5),
    ]
    for row in rows:
        assert 0 <= row["nodes_on"] <= 5
        assert f"{row['log_density']:.2f}" in result.output
    for name in ("cubic.png", "structure.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["versions"]["farrier"] == farrier.__version__


def test_demo_refuses_a_file_as_its_folder(tmp_path):
    file = tmp_path / "taken"
    file.write_text("")
    result = CliRunner().invoke(app, ["demo", "-o", str(file)])
    assert result.exit_code == 2
    assert "a folder is needed" in result.output


def test_bench_prints_and_writes_the_same_figures(monkeypatch, tmp_path):
    parts = {"part": lambda: {"ratio": 2.5}, "other": lambda: {"ratio": 7.0}}
    monkeypatch.setattr(bench, "parts", lambda data: parts)
    for name, value in (("part", "2.5"), ("oth", "7")):
        result = CliRunner().invoke(app, ["bench", "-o", str(tmp_path), "--only", name])
        assert result.exit_code == 0, result.output
        assert value in result.output
    figures = json.loads((tmp_path / "bench.json").read_text())["figures"]
    assert {name: part["ratio"] for name, part in figures.items()} == {
        "part": 2.5,
        "other": 7.0,
    }
    assert figures["part"]["machine"]["versions"]["farrier"] == farrier.__version__
    page = (tmp_path / "bench.md").read_text()
    assert "| part | ratio | 2.5 |  |\n| other | ratio | 7 |  |" in page


def test_bench_tells_of_unknown_parts_and_of_data_that_is_not_there(
    monkeypatch, tmp_path
):
    result = CliRunner().invoke(app, ["bench", "-o", str(tmp_path), "--only", "x y z"])
    assert result.exit_code == 2
    assert "memory" in result.output
    monkeypatch.setattr(
        bench, "parts", lambda data: {"memory": None, "part": lambda: {"ratio": 2.5}}
    )
    arguments = ["bench", "-o", str(tmp_path), "--data", str(tmp_path / "none")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "Without 'memory'" in result.output


@pytest.fixture
def asked(monkeypatch):
    """What `farrier reproduce` asks the harness for, which does nothing."""
    found = []

    def reproduce_into(results, name, kind, data, report, *, only):
        found.append((str(results), name, kind, *only))
        report(100, "done")
        return f"table of {name}"

    monkeypatch.setattr(_harness, "reproduce_into", reproduce_into)
    return found


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments])


def test_reproduce_runs_one_or_all_at_the_settings_asked_for(asked):
    result = reproduce("cubic")
    assert result.exit_code == 0, result.output
    assert "table of cubic" in result.output
    reproduce("mnist", "--short")
    reproduce("all", "--smoke")
    reproduce("uci", "-o", "elsewhere", "--smoke", "--only", "yacht")
    assert asked == [
        ("results", "cubic", "full"),
        ("results", "mnist", "short"),
        *(("results-smoke", name, "smoke") for name in NAMES),
        ("elsewhere", "uci", "smoke", "yacht"),
    ]


def test_reproduce_says_how_long_it_takes_and_what_there_is():
    text = " ".join(reproduce("--help").output.split())
    for name, hour in hours().items():
        assert f"{name}: {hour}" in text
    lines = reproduce("list").output.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(NAMES)


def test_reproduce_refuses_what_makes_no_sense(asked, tmp_path):
    file = tmp_path / "taken"
    file.write_text("")
    for arguments, reason in (
        (("cubics",), "no experiment 'cubics'"),
        (("cubic", "--smoke", "--short"), "not both"),
        (("all", "--only", "yacht"), "goes with one experiment"),
        (("cubic", "-o", str(file)), "a folder is needed"),
    ):
        result = reproduce(*arguments)
        assert result.exit_code == 2
        assert reason in " ".join(result.output.replace("│", " ").split())
    assert not asked


def test_reproduce_tells_that_it_can_go_on(monkeypatch, tmp_path):
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(_harness, "reproduce_into", stopped)
    result = reproduce("cubic", "-o", str(tmp_path))
    assert result.exit_code == 130
    assert "goes on from here" in result.output


def test_reproduce_keeps_results_of_full_settings(monkeypatch, tmp_path):
    def refused(*arguments, **settings):
        raise _harness.Refused("Give another folder.")

    monkeypatch.setattr(_harness, "reproduce_into", refused)
    result = reproduce("cubic", "--smoke", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "Give another folder" in result.output
