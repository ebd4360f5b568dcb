"""`farrier fit`, `predict`, `inspect`, `compact`: from raw tables to predictions."""

import gzip
import json
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_files import table as prices
from typer.testing import CliRunner

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    Nuts,
    Training,
    TrainingWarning,
    console,
    load,
    presets,
)
from farrier.cli import _shared
from farrier.cli.app import app
from farrier.core.priors import PRIORS
from farrier.tables import read_table

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


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory):
    """A function that fits an estimator to arrays in Python and saves it."""

    def save(estimator, name, *, compact=False):
        path = tmp_path_factory.mktemp("plain") / f"{name}.safetensors"
        X = np.random.default_rng(0).normal(size=(30, 2))
        y = np.arange(30) if name == "regressor" else np.arange(30) % 2
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)  # far too short
            fitted = estimator.fit(X, y)
        (fitted.compact() if compact else fitted).save(path)
        return path

    return save


def quick(estimator_class, **settings):
    """An estimator with three nodes and a few epochs."""
    training = Training(max_iter=5)
    return estimator_class((3,), training=training, n_draws=8, **settings)


@pytest.fixture(scope="module")
def regressor(plain_model):
    return plain_model(quick(HorseshoeRegressor), "regressor")


# --- fit --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(folder):
    """What `farrier fit` said, and where the model is."""
    model = folder / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--holdout", "0.2")
    result = run("fit", folder / "prices.csv", *options, *QUICK, "--json", "-o", model)
    return json.loads(result.stdout), model


def test_fit_reports_its_result(fitted, folder):
    found, model = fitted
    assert (found["task"], found["target"]) == ("regression", "price")
    assert "different numbers" in found["why"]
    assert (found["rows"], found["holdout"]["rows"]) == (48, 12)
    assert [found["columns"][0][k] for k in ("name", "kind")] == ["size", "number"]
    assert found["built_widths"] == [4]
    assert (found["status"], found["epochs"]) == ("budget", 20)
    back = load(model)
    history = back.estimator.history_
    assert found["elbo_per_row"] == pytest.approx(history.elbo[-1] / 48)
    assert found["widths"] == [*back.estimator.widths_]
    assert found["settings"]["training"]["max_iter"] == 20
    assert back.about["holdout"] == found["holdout"]
    assert [c.kind for c in back.columns.columns] == [
        *("number", "category", "date", "boolean")
    ]
    assert not [p for p in folder.iterdir() if "checkpoint" in p.name]


def test_inactive_features_are_inspected(folder, tmp_path):
    options = ("--target", "price", "--missing", "impute")
    model = tmp_path / "model.safetensors"
    text = run("fit", folder / "prices.csv", *options, *QUICK, "-o", model).stdout
    estimator = load(model).estimator
    assert PRIORS[estimator.prior].columns
    active, built = int(estimator.features_on_.sum()), estimator.n_features_in_
    line = f"{active} of {built} columns active"
    assert f"Inputs: {line}" in text
    assert line in run("inspect", model).stdout
    found = json.loads(run("inspect", model, "--json").stdout)
    assert found["features_on"] == estimator.features_on_.tolist()
    probabilities = estimator.feature_probabilities_
    assert found["feature_probabilities"] == pytest.approx(probabilities)
    assert found["feature_scores"] == pytest.approx(estimator.feature_scores_)
    names = np.array(load(model).columns.feature_names)[estimator.features_on_]
    assert len(names) > 2
    assert f": {', '.join(names[:10])}" in found["inputs"]


def test_settings_of_a_preset_are_replaced_one_by_one(folder, tmp_path):
    fit = ("fit", folder / "prices.csv", "--target", "price", "--drop", "size")
    model = tmp_path / "model.safetensors"
    run(*fit, "--preset", "paper", *QUICK, "-o", model)
    estimator, paper = load(model).estimator, presets.paper()
    assert estimator.hidden_layer_sizes == (4,)
    assert estimator.training == replace(paper["training"], max_iter=20)
    assert estimator.likelihood == paper["likelihood"]
    assert estimator.prior == "horseshoe"


def test_inspect_reports_the_mcmc_refinement(plain_model):
    """As numbers in JSON, and as one line of text."""
    trial = Nuts(chains=1, warm_up=150, draws=25, depth=2)
    path = plain_model(quick(HorseshoeRegressor, refine=trial), "regressor")
    sampling = load(path).sampling_
    found = json.loads(run("inspect", path, "--json").stdout)["sampling"]
    assert (found["chains"], found["draws"]) == (1, 25)
    assert found["r_hat"] == pytest.approx(sampling.r_hat)
    assert found["text"] == str(sampling)
    assert f"  {sampling}\n" in run("inspect", path).stdout


def test_a_held_out_row_is_none_of_those_trained_on(fitted, folder):
    """Its scores are those of the model on the rows that are left."""
    found, model = fitted
    frame = read_table(folder / "prices.csv")
    order = np.random.default_rng(0).permutation(60)
    test = frame.iloc[np.sort(order[:12])]
    scores = load(model).scores(test)
    assert found["holdout"] == pytest.approx({"rows": 12} | scores)


def test_several_fits_leave_one_model_and_no_checkpoint(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--restarts", "2")
    options += ("--likelihood", "gaussian")
    run("fit", folder / "prices.csv", *options, *QUICK, "-o", model)
    estimator = load(model).estimator
    assert len(estimator.restarts_) == 2
    assert estimator.likelihood == "gaussian"
    found = json.loads(run("inspect", model, "--json").stdout)
    elbos = [fit["elbo"] for fit in found["restarts"]]
    assert elbos == [fit.elbo for fit in estimator.restarts_]
    assert [p.name for p in tmp_path.iterdir()] == [model.name]


def test_an_existing_model_is_not_overwritten(fitted, folder):
    _, model = fitted
    before = model.read_bytes()
    fit = ("fit", folder / "prices.csv", "--target", "price", "-o", model)
    assert "exists already" in refused(*fit)
    assert "nothing to resume" in refused(*fit, "--resume")
    assert "not both" in refused(*fit, "--resume", "--force")
    assert model.read_bytes() == before


def test_ctrl_c_keeps_what_was_learned_and_resume_goes_on(
    folder, fitted, monkeypatch, tmp_path
):
    """The resumed fit is bit-identical to one that was never stopped."""
    model = tmp_path / "model.safetensors"
    options = ("--target", "price", "--missing", "impute", "--holdout", "0.2")
    fit = ("fit", folder / "prices.csv", *options, *QUICK, "-o", model)
    with monkeypatch.context() as patch:
        patch.setattr(console, "_lines", lambda *_: stop)
        result = run(*fit, code=130)
    assert "--resume continues the fit" in result.stderr
    assert load(model).estimator.history_.status == "interrupted"
    assert "exists already" in refused(*fit)
    model.unlink()
    assert "belongs to a fit that was stopped" in refused(*fit)
    result = run(*fit, "--resume")
    assert "Active nodes: " in result.stdout
    assert "Held out: RMSE" in result.stdout
    frame = read_table(folder / "prices.csv")
    expected = load(fitted[1]).predict(frame)
    np.testing.assert_array_equal(load(model).predict(frame), expected)
    assert [p.name for p in tmp_path.iterdir()] == [model.name]


def stop(done, note):
    """A progress bar during which the user presses Ctrl-C."""
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
        (("--target", "price", "--drop", "size", "--max-iter", "0"), "got 0"),
        (("--target", "price", "-o", "."), "is a folder"),
        (("--target", "price", "-o", "no/where"), "There is no folder 'no'"),
        ((), "Missing option '--target'"),
    ],
)
def test_a_wrong_fit_is_refused(folder, options, reason, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert reason in refused("fit", folder / "prices.csv", *options)
    assert not [*tmp_path.iterdir()]


# --- predict, inspect, compact ----------------------------------------------------


def test_predictions_are_those_of_the_model(fitted, folder, tmp_path):
    """The same from both kinds of files, and into both."""
    file, frames = fitted[1], []
    model = load(file)
    expected = model.prediction(prices(), 0.8)
    for source, name in (("prices.csv", "a.csv"), ("prices.parquet", "b.parquet")):
        out = tmp_path / name
        run("predict", file, folder / source, "-o", out, "--level", "0.8")
        frames.append(read_table(out).astype(float))
    for frame in frames:
        assert [*frame.columns] == ["mean", "std", "low", "high"]
        np.testing.assert_allclose(frame.to_numpy().T, [*expected.values()], rtol=1e-12)
    assert "exists already" in refused(
        "predict", file, folder / "prices.csv", "-o", tmp_path / "a.csv"
    )
    assert "must end in .csv or .parquet" in refused(
        "predict", file, folder / "prices.csv", "-o", tmp_path / "a.txt"
    )
    assert "between 0 and 1" in refused(
        *("predict", file, folder / "prices.csv"),
        *("-o", tmp_path / "c.csv", "--level", "90"),
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "b.parquet"]


def test_predict_reports_columns_and_levels_that_it_does_not_know(fitted, tmp_path):
    frame = prices().drop(columns="price").replace({"colour": {"red": "pink"}})
    frame.assign(more=1).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out.csv"
    result = run("predict", fitted[1], tmp_path / "new.csv", "-o", out, "--json")
    found = json.loads(result.stdout)
    assert found["rows"] == 60
    assert len(found["notes"]) == 2
    assert "('pink')" in found["notes"][0]
    assert "more" in found["notes"][1]
    assert result.stderr.count("Note: ") == 2
    frame.drop(columns="day").to_csv(tmp_path / "less.csv", index=False)
    line = refused(
        "predict", fitted[1], tmp_path / "less.csv", "-o", tmp_path / "x.csv"
    )
    assert "has no column 'day'" in line


def test_inspect_describes_the_model(fitted):
    path = fitted[1]
    text = run("inspect", path).stdout
    found = json.loads(run("inspect", path, "--json").stdout)
    estimator = load(path).estimator
    assert (found["widths"], found["built_widths"]) == ([*estimator.widths_], [4])
    low, high = found["width_interval_90"][0]
    assert [(low, high)] == [*estimator.width_interval(0.9)]
    width = f"{estimator.widths_[0]} of 4 nodes active (90 % interval {low} to {high})"
    for line in (
        "Target: 'price'",
        "  size: number, may be missing",
        "  colour: category of 3 levels, may be missing",
        width,
        f"Held out: RMSE {fitted[0]['holdout']['rmse']:.4g}",
    ):
        assert line in text
    terms = {n: v[-1] / 48 for n, v in estimator.history_.terms.items()}
    assert found["terms_per_row"] == pytest.approx(terms)
    assert found["elbo_per_row"] == pytest.approx(estimator.history_.elbo[-1] / 48)
    assert found["settings"]["n_draws"] == 200
    assert found["format"] == 1
    assert found["compaction"] == str(estimator.compact().compaction_)


def test_inspect_prints_the_summary(fitted):
    """One description serves both."""
    estimator = load(fitted[1]).estimator
    lines = dict(estimator.summary().lines)
    text = run("inspect", fitted[1]).stdout
    shown = dict(line.split("  ", 1) for line in text.splitlines() if "  " in line[1:])
    shown = {label.strip(): value.strip() for label, value in shown.items()}
    for label in ("task", "rows", "ELBO", "training", "hidden layer 1", "compaction"):
        assert shown[label] == lines[label]


def test_inspect_of_a_model_without_a_table(plain_model):
    path = plain_model(quick(HorseshoeClassifier), "classifier")
    found = json.loads(run("inspect", path, "--json").stdout)
    assert found["task"] == "classification"
    assert "columns" not in found
    assert found["compaction"] is None


def test_compact_reports_what_was_removed(fitted, tmp_path):
    out = tmp_path / "small.safetensors"
    found = json.loads(run("compact", fitted[1], "-o", out, "--json").stdout)
    small = load(out)
    assert found["before"] == [4]
    assert found["after"] == [*small.estimator.model_.posterior.widths]
    assert found["moved"] == small.estimator.compaction_.moved
    assert "exists already" in refused("compact", fitted[1], "-o", out)
    again = json.loads(run("inspect", out, "--json").stdout)
    assert again["compacted"]
    assert again["compaction"] == str(small.estimator.compaction_)


def test_a_model_without_its_compaction_cannot_be_compacted(
    regressor, plain_model, tmp_path
):
    """Files hold no training rows; a compact model from Python is all right."""
    out = tmp_path / "small.safetensors"
    assert "saved from Python without its compaction" in refused(
        "compact", regressor, "-o", out
    )
    small = plain_model(quick(HorseshoeRegressor), "regressor", compact=True)
    run("compact", small, "-o", out)
    assert load(out).compaction_.moved == load(small).compaction_.moved


def test_a_model_of_arrays_takes_no_tables(regressor, folder, tmp_path):
    out = tmp_path / "x.csv"
    line = refused("predict", regressor, folder / "prices.csv", "-o", out)
    assert "fitted in Python to an array" in line


@pytest.mark.parametrize("name", ["model.txt", "model.npz.bak"])
def test_export_knows_its_endings(fitted, name, tmp_path):
    line = refused("export", fitted[1], "-o", tmp_path / name)
    assert "must end in .onnx or .npz" in line


# --- errors -----------------------------------------------------------------------


def test_a_bug_has_its_own_exit_code(fitted, monkeypatch):
    def broken(*arguments, **settings):
        raise TypeError("a bug\nin two lines")

    monkeypatch.setattr("farrier.persist.read", broken)
    result = run("inspect", fitted[1], code=1)
    (line,) = result.stderr.splitlines()
    assert "TypeError: a bug in two lines" in line
    result = CliRunner().invoke(app, ["--debug", "inspect", str(fitted[1])])
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
def test_a_bad_table_is_refused(fitted, bad, tmp_path):
    """No traceback, no output, code 2."""
    content, commands = bad
    path, out = tmp_path / "bad.csv", tmp_path / "out.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if "fit" in commands:
        refused("fit", path, "--target", "price", "-o", out)
    if "predict" in commands:
        refused("predict", fitted[1], path, "-o", out)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_damaged_model_is_refused(fitted, data, tmp_path):
    """Cut short, one byte changed, bytes removed or added: exit code 2.

    Headers that were changed together with their checksum: test_persist.py.
    """
    path, whole = tmp_path / "model.safetensors", fitted[1].read_bytes()
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
