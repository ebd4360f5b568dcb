"""`farrier fit`, `predict`, `inspect`, `compact`: from raw tables to predictions."""

import gzip
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import table as prices
from typer.testing import CliRunner

from farrier import HorseshoeRegressor, Nuts, TrainingWarning, console, load
from farrier.cli import _shared
from farrier.cli.app import app
from farrier.tables import read_table

FILES = Path(__file__).parent / "files"
MODEL = FILES / "table-2.safetensors"
QUICK = ("--hidden", "4", "--max-iter", "20")


def run(*arguments, code=0):
    """What a command printed, after checking its exit code."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def refused(*arguments):
    """The one line of an error that is the user's."""
    result = run(*arguments, code=2)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of prices in files of both kinds."""
    folder = tmp_path_factory.mktemp("tables")
    prices().to_csv(folder / "prices.csv", index=False)
    prices().to_parquet(folder / "prices.parquet")
    return folder


# --- fit --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(folder):
    """What `farrier fit` said, and where the model is."""
    model = folder / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--holdout", "0.2")
    result = run("fit", folder / "prices.csv", *options, *QUICK, "--json", "-o", model)
    return json.loads(result.stdout), model


def test_fit_says_what_it_found_and_did(fitted, folder):
    found, model = fitted
    assert (found["task"], found["target"]) == ("regression", "price")
    assert "different numbers" in found["why"]
    assert (found["rows"], found["holdout"]["rows"]) == (48, 12)
    assert [found["columns"][0][k] for k in ("name", "kind")] == ["size", "number"]
    assert found["of"] == [4]
    assert (found["status"], found["passes"]) == ("budget", 20)
    back = load(model)
    assert back.about["holdout"] == found["holdout"]
    assert [c.kind for c in back.columns.columns] == [
        *("number", "category", "date", "boolean")
    ]
    assert not [p for p in folder.iterdir() if "checkpoint" in p.name]


def test_features_are_switched_off_and_inspected(folder, tmp_path):
    options = ("--target", "price", "--missing", "impute", "--input-horseshoe")
    model = tmp_path / "model.safetensors"
    text = run("fit", folder / "prices.csv", *options, *QUICK, "-o", model).stdout
    estimator = load(model).estimator
    on, of = int(estimator.features_on_.sum()), estimator.n_features_in_
    line = f"Inputs: {on} of {of} columns on"
    assert line in text
    assert line in run("inspect", model).stdout
    found = json.loads(run("inspect", model, "--json").stdout)
    assert found["features_on"] == estimator.features_on_.tolist()
    assert found["feature_scores"] == pytest.approx(estimator.feature_scores_)


def test_inspect_gives_the_figures_of_a_sampling(tmp_path):
    """As numbers for machines, and as one line for people."""
    path = tmp_path / "model.safetensors"
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    trial = Nuts(chains=1, warm_up=150, draws=25, depth=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)  # far too short
        model = HorseshoeRegressor((3,), max_iter=5, refine=trial).fit(X, y)
    model.save(path)
    found = json.loads(run("inspect", path, "--json").stdout)["sampling"]
    assert (found["chains"], found["draws"]) == (1, 25)
    assert found["r_hat"] == pytest.approx(model.sampling_.r_hat)
    assert f"Sampled: {model.sampling_}" in run("inspect", path).stdout


def test_a_held_out_row_is_none_of_those_trained_on(fitted, folder):
    """And the figures are those of the rows that are left."""
    found, model = fitted
    frame = read_table(folder / "prices.csv")
    order = np.random.default_rng(0).permutation(60)
    test = frame.iloc[np.sort(order[:12])]
    scores = load(model).scores(test)
    assert found["holdout"] == pytest.approx({"rows": 12} | scores)


def test_several_fits_leave_one_model_and_no_checkpoint(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--restarts", "2")
    options += ("--likelihood", "gaussian,heteroscedastic")
    run("fit", folder / "prices.csv", *options, *QUICK, "-o", model)
    estimator = load(model).estimator
    assert len(estimator.restarts_) == 2
    assert estimator.likelihood == ("gaussian", "heteroscedastic")
    assert [p.name for p in tmp_path.iterdir()] == [model.name]


def test_an_existing_model_is_not_written_over(fitted, folder):
    _, model = fitted
    before = model.read_bytes()
    fit = ("fit", folder / "prices.csv", "--target", "price", "-o", model)
    assert "is there already" in refused(*fit)
    assert "nothing to go on with" in refused(*fit, "--resume")
    assert "not both" in refused(*fit, "--resume", "--force")
    assert model.read_bytes() == before


def test_ctrl_c_keeps_what_was_learned_and_resume_goes_on(
    folder, fitted, monkeypatch, tmp_path
):
    """To the same bits as the fit that nobody stopped."""
    model = tmp_path / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--holdout", "0.2")
    fit = ("fit", folder / "prices.csv", *options, *QUICK, "-o", model)
    with monkeypatch.context() as patch:
        patch.setattr(console, "_lines", lambda *_: stop)
        result = run(*fit, code=130)
    assert "--resume goes on from here" in result.stderr
    assert load(model).estimator.history_.status == "interrupted"
    assert "is there already" in refused(*fit)
    model.unlink()
    assert "of a fit that was stopped" in refused(*fit)
    result = run(*fit, "--resume")
    assert "Nodes on: " in result.stdout
    assert "Held out: RMSE" in result.stdout
    frame = read_table(folder / "prices.csv")
    expected = load(fitted[1]).predict(frame)
    np.testing.assert_array_equal(load(model).predict(frame), expected)
    assert [p.name for p in tmp_path.iterdir()] == [model.name]


def stop(done, note):
    """A progress bar at which somebody loses patience."""
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--target", "cost"), "no column 'cost'. It has 'size', 'colour'"),
        (("--target", "price"), "Values are missing in 'size' (9, row 1), of 60 rows"),
        (("--target", "price", "--drop", "sizes"), "no column 'sizes'"),
        (("--target", "price", "--drop", "price"), "--drop names the target"),
        (("--target", "price", "--missing", "guess"), "got 'guess'"),
        (("--target", "price", "--task", "sorting"), "got 'sorting'"),
        (("--target", "price", "--holdout", "1"), "a share from 0 to less than 1"),
        (("--target", "price", "--holdout", "0.99"), "leaves too few to train on"),
        (("--target", "price", "--drop", "size", "--hidden", "many"), "got 'many'"),
        (("--target", "price", "--drop", "size", "--preset", "x"), "got 'x'"),
        (("--target", "price", "--drop", "size", "--prior", "flat"), "got 'flat'"),
        (("--target", "price", "--drop", "size", "--likelihood", "no"), "got 'no'"),
        (
            ("--target", "price", "--drop", "size", "--likelihood", "gaussian,no"),
            "names 2 noise models, which fits take in turn",
        ),
        (("--target", "price", "--drop", "size", "--max-iter", "0"), "got 0"),
        (("--target", "price", "-o", "."), "is a folder"),
        (("--target", "price", "-o", "no/where"), "There is no folder 'no'"),
        ((), "Missing option '--target'"),
    ],
)
def test_a_fit_that_cannot_be_is_told(folder, options, reason, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert reason in refused("fit", folder / "prices.csv", *options)
    assert not [*tmp_path.iterdir()]


# --- predict, inspect, compact ----------------------------------------------------


def test_predictions_are_those_of_the_model(folder, tmp_path, monkeypatch):
    """The same from both kinds of files, into both, and in whatever pieces."""
    model, frames = load(MODEL), []
    expected = model.prediction(prices(), 0.8)
    for source, name in (("prices.csv", "a.csv"), ("prices.parquet", "b.parquet")):
        out = tmp_path / name
        run("predict", MODEL, folder / source, "-o", out, "--level", "0.8")
        frames.append(read_table(out).astype(float))
    for frame in frames:
        assert [*frame.columns] == ["mean", "std", "low", "high"]
        np.testing.assert_allclose(frame.to_numpy().T, [*expected.values()], rtol=1e-12)
    assert "is there already" in refused(
        "predict", MODEL, folder / "prices.csv", "-o", tmp_path / "a.csv"
    )
    assert "must end in .csv or .parquet" in refused(
        "predict", MODEL, folder / "prices.csv", "-o", tmp_path / "a.txt"
    )
    assert "between 0 and 1" in refused(
        *("predict", MODEL, folder / "prices.csv"),
        *("-o", tmp_path / "c.csv", "--level", "90"),
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.parquet"]


def test_predict_tells_of_columns_and_levels_that_it_does_not_know(folder, tmp_path):
    frame = prices().drop(columns="price").replace({"colour": {"red": "pink"}})
    frame.assign(more=1).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out.csv"
    result = run("predict", MODEL, tmp_path / "new.csv", "-o", out, "--json")
    found = json.loads(result.stdout)
    assert found["rows"] == 60
    assert len(found["notes"]) == 2
    assert "('pink')" in found["notes"][0]
    assert "more" in found["notes"][1]
    assert result.stderr.count("Note: ") == 2
    frame.drop(columns="day").to_csv(tmp_path / "less.csv", index=False)
    line = refused("predict", MODEL, tmp_path / "less.csv", "-o", tmp_path / "x.csv")
    assert "has no column 'day'" in line


def test_inspect_says_what_the_model_is():
    text = run("inspect", MODEL).stdout
    found = json.loads(run("inspect", MODEL, "--json").stdout)
    estimator = load(MODEL).estimator
    assert found["widths"] == [*estimator.widths_]
    assert f"Hidden layer 1: {estimator.widths_[0]} of 8 nodes on" in text
    for line in (
        "Task: regression of 'price'",
        "  size: number, may be missing",
        "  colour: category of 3 levels, may be missing",
        "Held out: RMSE 0.5",
    ):
        assert line in text
    terms = {n: v[-1] / 60 for n, v in estimator.history_.terms.items()}
    assert found["terms_per_row"] == pytest.approx(terms)
    assert found["settings"]["n_draws"] == 20
    assert (found["format"], found["version"]) == (2, "0.1.0")
    assert "task" not in json.loads(
        run("inspect", FILES / "classifier-2.safetensors", "--json").stdout
    )


def test_compact_says_what_it_left_out(tmp_path):
    out = tmp_path / "small.safetensors"
    found = json.loads(run("compact", MODEL, "-o", out, "--json").stdout)
    small = load(out)
    assert found["before"] == [8]
    assert found["after"] == [*small.estimator.network_.widths]
    assert found["moved"] == small.estimator.compaction_.moved
    assert "is there already" in refused("compact", MODEL, "-o", out)


def test_an_estimator_without_names_is_told(folder, tmp_path):
    model = FILES / "regressor-2.safetensors"
    line = refused("predict", model, folder / "prices.csv", "-o", tmp_path / "x.csv")
    assert "fitted in Python to an array" in line


@pytest.mark.parametrize("name", ["model.txt", "model.npz.bak"])
def test_export_knows_its_endings(name, tmp_path):
    line = refused("export", MODEL, "-o", tmp_path / name)
    assert "must end in .onnx or .npz" in line


# --- errors -----------------------------------------------------------------------


def test_an_error_of_ours_is_told_apart(monkeypatch):
    def broken(*arguments, **settings):
        raise TypeError("a bug\nin two lines")

    monkeypatch.setattr("farrier.persist.read", broken)
    result = run("inspect", MODEL, code=1)
    (line,) = result.stderr.splitlines()
    assert "TypeError: a bug in two lines" in line
    result = CliRunner().invoke(app, ["--debug", "inspect", str(MODEL)])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_debug_shows_where_an_input_is_refused(tmp_path):
    arguments = ["--debug", "inspect", str(tmp_path / "absent")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "There is no file" in result.stderr.splitlines()[-1]


def test_help_needs_no_heavy_package():
    heavy = "{'jax', 'pandas', 'sklearn', 'numpy'}"
    code = f"import sys, farrier.cli; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_json_is_strict():
    found = {"a": np.arange(2), "b": float("nan"), "c": (1, None), 3: prices}
    plain = _shared.plain(found)
    assert plain["a"] == [0, 1]
    assert plain["b"] == "nan"
    assert json.loads(json.dumps(plain, allow_nan=False))["c"] == [1, None]


WHOLE = prices().assign(size=1.5).to_csv(index=False)
LINES = WHOLE.splitlines()
ROW = st.integers(1, len(LINES) - 1)


def _with(line, fields):
    return "\n".join([*LINES[:line], ",".join(fields), *LINES[line + 1 :]])


@st.composite
def bad_tables(draw):
    """Contents of a CSV file, and the commands that must refuse it."""
    row, field = draw(ROW), draw(st.integers(0, 3))
    fields = LINES[row].split(",")
    name = LINES[0].split(",")[field]
    noise = draw(st.binary(min_size=1, max_size=60))
    place = draw(st.integers(0, len(WHOLE) - 1))
    cut = draw(st.integers(1, 60))
    wrong = draw(st.sampled_from(["x", "1.5.5", "inf", "-inf", "1e999", "--1", "?"]))
    ways = {
        "noise": noise,
        "noise after a magic number": b"PAR1" + noise,
        "broken gzip": gzip.compress(WHOLE.encode())[:-cut],
        "no rows": LINES[0] + "\n" * (cut % 3),
        "a row too short": _with(row, fields[:field] + fields[field + 1 :]),
        "a row too long": _with(row, [*fields, "1"]),
        "a name twice": WHOLE.replace("size,colour", "colour,colour", 1),
        "no name": WHOLE.replace(f"{name},", ",", 1),
        "other names": WHOLE.replace("price", "cost", 1).replace(name, "other", 1),
        "not UTF-8": WHOLE[:place].encode() + b"\xff" + WHOLE[place:].encode(),
        "an open quote": _with(row, [f'"{fields[0]}', *fields[1:]]),
        "no number": _with(row, [wrong, *fields[1:]]),
    }
    way = draw(st.sampled_from(sorted(ways)))
    if way == "no number":
        # To `fit`, a text makes a category; to `predict`, "?" is filled in.
        return ways[way], ("fit",) if wrong == "?" else ("predict",)
    return ways[way], ("fit", "predict")


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(bad=bad_tables())
def test_a_bad_table_is_refused(bad, tmp_path):
    """No traceback, no output, code 2."""
    content, commands = bad
    path, out = tmp_path / "bad.csv", tmp_path / "out.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if "fit" in commands:
        refused("fit", path, "--target", "price", "-o", out)
    if "predict" in commands:
        refused("predict", MODEL, path, "-o", out)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_damaged_model_is_refused(data, tmp_path):
    """Cut short, one byte changed, bytes taken out or put behind: code 2.

    Headers that were changed together with their checksum: test_persist.py.
    """
    path, whole = tmp_path / "model.safetensors", MODEL.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    change = data.draw(st.integers(1, 255))
    damaged = {
        "cut": whole[:place],
        "changed": whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :],
        "more": whole + data.draw(st.binary(min_size=1, max_size=9)),
        "less": whole[:place] + whole[place + change :],
    }
    path.write_bytes(damaged[data.draw(st.sampled_from(sorted(damaged)))])
    if data.draw(st.booleans()):
        refused("inspect", path)
    else:
        refused("compact", path, "-o", tmp_path / "out.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


# --- whole tables -----------------------------------------------------------------

ADULT = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,"
    "relationship,race,sex,capital_gain,capital_loss,hours_per_week,native_country,"
    "income\n"
)


def _adult(shared_data, path):
    with gzip.open(shared_data / "adult" / "adult.data.gz", "rt") as file:
        path.write_text(ADULT + "".join(next(file) for _ in range(300)))
    return ("income", "--missing", "impute"), ["label", "P(<=50K)", "P(>50K)"]


def _concrete(shared_data, path):
    table = np.loadtxt(shared_data / "uci" / "concrete" / "data.txt")[:200]
    names = "cement slag ash water superplasticiser coarse fine age strength".split()
    pd.DataFrame(table, columns=names).to_csv(path, index=False)
    return ("strength",), ["mean", "std", "low", "high"]


@pytest.mark.parametrize("make", [_adult, _concrete])
def test_from_a_raw_file_to_predictions(make, shared_data, tmp_path):
    """The commands of docs/how-to/command-line.md, on a part of the rows."""
    path, model = tmp_path / "table.csv", tmp_path / "model.safetensors"
    options, names = make(shared_data, path)
    fit = run(
        "fit", path, "--target", *options, "--holdout", "0.1", *QUICK, "-o", model
    )
    assert "Held out: " in fit.stdout
    small, out = tmp_path / "small.safetensors", tmp_path / "out.csv"
    run("inspect", model)
    run("compact", model, "-o", small)
    run("predict", small, path, "-o", out)
    frame = read_table(out)
    assert [*frame.columns] == names
    assert len(frame) == len(read_table(path))
    back = load(small)
    found = frame.iloc[:, 1].astype(float)
    expected = [*back.prediction(read_table(path)).values()][1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
