"""`python -m benchmarks`: what it prints and writes, and its error messages."""

import json

from typer.testing import CliRunner

import farrier
from benchmarks import bench
from benchmarks.command import app


def test_bench_prints_and_writes_the_same_figures(monkeypatch, tmp_path):
    parts = {"part": lambda: {"ratio": 2.5}, "other": lambda: {"ratio": 7.0}}
    monkeypatch.setattr(bench, "parts", lambda data: parts)
    for name, value in (("part", "2.5"), ("oth", "7")):
        result = CliRunner().invoke(app, ["-o", str(tmp_path), "--only", name])
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


def test_unknown_parts_and_missing_data_are_reported(monkeypatch, tmp_path):
    result = CliRunner().invoke(app, ["-o", str(tmp_path), "--only", "x y z"])
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    assert line.startswith("Error: ")
    assert "No part contains ['x y z']. The parts are " in line
    assert "'memory'" in line
    monkeypatch.setattr(
        bench, "parts", lambda data: {"memory": None, "part": lambda: {"ratio": 2.5}}
    )
    arguments = ["-o", str(tmp_path), "--data", str(tmp_path / "none")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "Skipped 'memory'" in result.output
