"""`python -m experiments`: its arguments, what it lists, and its error messages."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from experiments import _harness, _results
from experiments._names import NAMES, hours
from experiments.command import app

ROOT = Path(__file__).parents[2]


@pytest.fixture
def asked(monkeypatch):
    """What the command requests from the harness, which does nothing."""
    found = []

    def reproduce_into(results, name, kind, data, report, *, only, stale):
        found.append((str(results), name, kind, *only, *["stale"] * stale))
        report(100, "done")
        return f"table of {name}"

    monkeypatch.setattr(_results, "reproduce_into", reproduce_into)
    return found


def reproduce(*arguments):
    return CliRunner().invoke(app, [*arguments])


def test_reproduce_runs_one_or_all_at_the_settings_asked_for(asked):
    result = reproduce("cubic")
    assert result.exit_code == 0, result.output
    assert "table of cubic" in result.output
    reproduce("mnist", "--short")
    reproduce("all", "--smoke")
    reproduce("uci", "-o", "elsewhere", "--smoke", "--only", "yacht")
    reproduce("choose", "--stale")
    assert asked == [
        ("results", "cubic", "full"),
        ("results", "mnist", "short"),
        *(("results-smoke", name, "smoke") for name in NAMES),
        ("elsewhere", "uci", "smoke", "yacht"),
        ("results", "choose", "full", "stale"),
    ]


def test_rendering_and_the_status_run_nothing(asked, monkeypatch, tmp_path):
    told = []

    def render_into(results, names):
        told.append((results, [*names]))
        return names

    monkeypatch.setattr(_results, "render_into", render_into)
    monkeypatch.setattr(_results, "status", lambda results: f"status of {results}")
    assert reproduce("cubic", "--render").output == "Written: results/cubic\n"
    reproduce("all", "--render", "-o", str(tmp_path))
    assert told == [(Path("results"), ["cubic"]), (tmp_path, [*NAMES])]
    assert reproduce("status").output == "status of results\n"
    assert not asked


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
        (("all", "--only", "yacht"), "needs the name of one experiment"),
        (("cubic", "-o", str(file)), "a folder is needed"),
        (("cubic", "--render", "--stale"), "--render runs no part"),
        (("cubic", "--render", "-o", str(tmp_path)), "no rows of cubic"),
    ):
        result = reproduce(*arguments)
        assert result.exit_code == 2
        (line,) = result.output.splitlines()
        assert line.startswith("Error: ")
        assert reason in line
    assert not asked


def test_reproduce_tells_that_it_can_go_on(monkeypatch, tmp_path):
    def stopped(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(_results, "reproduce_into", stopped)
    result = reproduce("cubic", "-o", str(tmp_path))
    assert result.exit_code == 130
    assert "resumes from here" in result.output


def test_reproduce_keeps_results_of_full_settings(monkeypatch, tmp_path):
    def refused(*arguments, **settings):
        raise _harness.Refused("Give another folder.")

    monkeypatch.setattr(_results, "reproduce_into", refused)
    result = reproduce("cubic", "--smoke", "-o", str(tmp_path))
    assert result.exit_code == 2
    (line,) = result.output.splitlines()[-1:]
    assert line.startswith("Error: ")
    assert "Give another folder" in line


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError("data.txt is not there."), 2),
        (ValueError("The files are not\nthe expected ones."), 2),
        (ImportError("Install pooch."), 2),
        (KeyError("name"), 1),
    ],
)
def test_an_error_is_one_line(monkeypatch, tmp_path, error, code):
    def fails(*arguments, **settings):
        raise error

    monkeypatch.setattr(_results, "reproduce_into", fails)
    result = reproduce("cubic", "-o", str(tmp_path))
    assert result.exit_code == code
    lines = [line for line in result.output.splitlines() if "Error: " in line]
    assert len(lines) == 1
    assert " ".join(str(error).split()) in lines[0]


def test_without_a_name_the_error_says_where_to_find_help():
    result = reproduce()
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith("Error: Missing argument 'name'")
    assert "--help`" in line


def test_the_module_runs_as_a_program():
    command = [sys.executable, "-m", "experiments", "cubics"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert "no experiment 'cubics'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout
