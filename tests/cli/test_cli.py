"""The command line and the demonstration, with settings small enough for a test."""

import json
import re

import pytest
from typer.testing import CliRunner

import farrier
from farrier import Training, demo
from farrier.cli.app import app


@pytest.fixture
def small_demo(monkeypatch):
    """Two fits of 40 epochs in place of the whole demonstration."""
    config = demo.Config(
        priors=("horseshoe",),
        cubic_widths=(5,),
        structure_widths=(5,),
        training=Training(max_iter=40),
        draws=8,
    )
    monkeypatch.setattr(demo, "FULL", config)
    return config


def test_version_is_that_of_the_package():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"farrier {farrier.__version__}\n"


def test_help_names_the_commands():
    output = CliRunner().invoke(app, ["--help"]).output
    words = set(re.findall(r"\w+", output))
    assert {"fit", "predict", "report", "export", "demo"} <= words
    assert not words & {"bench", "reproduce"}


@pytest.mark.slow
def test_demo_writes_figures_rows_and_a_table(small_demo, tmp_path):
    result = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert small_demo.fits == 2
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
