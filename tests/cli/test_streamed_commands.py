"""`farrier fit`, `predict`, `report` with a folder of Parquet files."""

import json

import numpy as np
import pandas as pd
import pytest
from test_commands import refused, run
from test_learn import mixed

from farrier import load
from farrier.cli import report as report_command
from farrier.scale.rows import Lottery
from farrier.tables import read_table
from farrier.views import report

QUICK = ("--hidden", "3", "--max-iter", "3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table with a column of each kind, in two files."""
    folder = tmp_path_factory.mktemp("data") / "big"
    folder.mkdir()
    frame = mixed(1_200).drop(columns=["written", "text"])
    frame["y"] += 2 * (frame["colour"] == "blue")
    for name, part in (("a", frame[:700]), ("b", frame[700:])):
        part.to_parquet(folder / f"{name}.parquet", row_group_size=256, index=False)
    return folder


@pytest.fixture(scope="module")
def fitted(folder):
    model = folder.parent / "model.safetensors"
    options = ("--target", "y", "--missing", "impute", "--holdout", "0.25")
    options += ("--drop", "same", *QUICK, "--json")
    found = run("fit", folder, *options, "-o", model)
    return json.loads(found.stdout), model


def test_fit_learns_from_a_folder(fitted, folder):
    found, _ = fitted
    assert (found["task"], found["target"]) == ("regression", "y")
    assert "more than 1000" not in found["why"]
    assert found["rows"] + found["holdout"]["rows"] == 1_200
    assert 240 < found["holdout"]["rows"] < 360
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds["colour"] == "category"
    assert kinds["ready"] == kinds["flag"] == "boolean"
    assert kinds["day"] == "date"
    assert "same" not in kinds
    assert sum(column["missing"] for column in found["columns"]) > 250
    assert not [p for p in folder.parent.iterdir() if "checkpoint" in p.name]


def test_scores_are_those_of_the_held_out_rows(fitted, folder):
    found, model = fitted
    test = Lottery(0.25, 0).keeps(np.arange(1_200))
    scores = load(model).scores(read_table(folder)[test])
    assert found["holdout"] == pytest.approx({"rows": int(test.sum())} | scores)


def test_predictions_are_those_of_the_table_in_memory(fitted, folder, tmp_path):
    _, model = fitted
    out = tmp_path / "out.parquet"
    run("predict", model, folder, "-o", out)
    expected = load(model).prediction(read_table(folder))
    found = pd.read_parquet(out)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6)


def test_a_report_is_about_a_sample(fitted, folder, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(report, "write_report", lambda *args: given.append(args))
    monkeypatch.setattr(report_command, "MAX_ROWS", 100)
    run("report", fitted[1], "--data", folder, "-o", tmp_path / "report.html")
    ((_, frame, _),) = given
    assert len(frame) == 100
    whole = read_table(folder)
    pd.testing.assert_frame_equal(frame, whole.loc[frame.index])


@pytest.mark.slow
def test_one_file_is_streamed_on_request(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    options = ("--target", "flag", "--missing", "impute", *QUICK, "--stream", "--json")
    found = json.loads(run("fit", folder / "a.parquet", *options, "-o", model).stdout)
    assert (found["task"], found["rows"]) == ("classification", 700)
    assert load(model).estimator.classes_.tolist() == ["False", "True"]


def test_what_cannot_be_fitted_is_refused_before_it_is_read(folder, tmp_path):
    fit = ("fit", folder, "--target", "y", "-o", tmp_path / "model.safetensors")
    assert "'colour' (172, row 1 (row 1 of 'a.parquet'))" in refused(*fit)
    line = refused(*fit, "--refine", "nuts")
    assert "--refine requires all rows in memory" in line
    line = refused(*fit, "--preset", "refined")
    assert "--preset refined requires all rows in memory" in line
    assert "no column 'z'" in refused(*fit[:3], "z", *fit[4:])
    assert "no column 'z'" in refused(*fit, "--drop", "z")
    assert "from 0 to less than 1" in refused(*fit, "--holdout", "1")
    assert "no folder" in refused(*fit[:-1], tmp_path / "absent" / "model")
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    csv = ("fit", tmp_path / "t.csv", "--target", "y", "-o", tmp_path / "m", "--stream")
    assert "is not a whole Parquet file" in refused(*csv)
