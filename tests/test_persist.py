"""Files: what is saved comes back bit for bit, and damage is told."""

import json
import os
import stat
import struct
import warnings
from functools import cache
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from model_files import rows as file_rows
from model_files import table as file_table
from safetensors.numpy import save_file

from farrier import (
    Gaussian,
    GaussianNoise,
    Horseshoe,
    HorseshoeClassifier,
    HorseshoeRegressor,
    TrainingWarning,
    load,
    persist,
)
from farrier.infer.compact import Compaction, Nodes
from farrier.train.history import Status

ROWS = 40


def fitted(model, X, y):
    """Fitted, with no word about widths: a few steps make no good model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y)


@pytest.fixture
def untrained(monkeypatch):
    """A fit that builds a network and no more: most files do not need training."""

    def no_training(job, *args, **kwargs):
        run = job.run
        run.history.status = Status.BUDGET
        return run

    def some_nodes(network, x, draws, *, key):
        generator = np.random.default_rng(draws)
        return Nodes(tuple(generator.random((draws, n)) for n in network.widths))

    def keep_all(network, nodes, *args, key):
        return Compaction(
            network, tuple(np.ones(n, bool) for n in network.widths), 0, 0
        )

    for name, stub in {
        "train": no_training,
        "find_nodes": some_nodes,
        "compact": keep_all,
    }.items():
        monkeypatch.setattr(f"farrier.estimators.base.{name}", stub)


def rows(columns=3):
    return np.random.default_rng(0).normal(5, 2, (ROWS, columns))


def assert_same_estimator(a, b):
    """All that an estimator says about itself, bit for bit."""
    assert type(a) is type(b)
    assert repr(a.get_params()) == repr(b.get_params())
    assert eqx.tree_equal(a.network_, b.network_)
    assert a.widths_ == b.widths_
    assert a.width_interval() == b.width_interval()
    for name in ("node_scores_", "node_probabilities_", "weight_norms_"):
        for ours, theirs in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert a.n_iter_ == b.n_iter_
    assert a.history_.status is b.history_.status
    assert list(a.history_.terms) == list(b.history_.terms)
    np.testing.assert_array_equal(a.history_.bound, b.history_.bound)


def assert_same_predictions(a, b, X):
    if isinstance(a, HorseshoeClassifier):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))
        return np.testing.assert_array_equal(a.predict(X), b.predict(X))
    for ours, theirs in zip(
        a.predict(X, return_std=True), b.predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    return None


# --- estimators -------------------------------------------------------------------


@pytest.fixture(scope="module")
def regressor():
    """A really trained model of one target, with nodes on and nodes off."""
    X = rows()
    noise = np.random.default_rng(1).normal(0, 0.05, ROWS)
    y = 100 + 10 * np.abs(X[:, 0] - 5) + noise
    model = HorseshoeRegressor(
        (6,), max_iter=500, learning_rate_init=0.05, n_draws=16, random_state=3
    )
    return fitted(model, X, y)


def test_a_trained_regressor_comes_back_bit_for_bit(regressor, tmp_path):
    X, path = rows(), tmp_path / "model.safetensors"
    regressor.save(path)
    model = load(path)
    assert 0 < model.widths_[0] < 6
    assert len(model.history_.bound) == 500
    assert_same_estimator(model, regressor)
    assert_same_predictions(model, regressor, X)


def test_a_file_that_is_read_and_written_again_is_the_same_file(regressor, tmp_path):
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    regressor.save(first)
    load(first).save(second)
    assert first.read_bytes() == second.read_bytes()


def test_a_compacted_estimator_comes_back_bit_for_bit(regressor, tmp_path):
    """From its own file, and made out of the loaded full one."""
    X, path = rows(), tmp_path / "small.safetensors"
    small = regressor.compact()
    small.save(path)
    model = load(path)
    assert model.network_.widths == small.network_.widths < regressor.network_.widths
    assert str(model.compaction_) == str(small.compaction_)
    assert_same_estimator(model, small)
    assert_same_predictions(model, small, X)
    regressor.save(path)
    assert not hasattr(load(path), "compaction_")
    assert_same_estimator(load(path).compact(), small)


def test_what_is_compact_compacts_to_itself(regressor, tmp_path):
    small = regressor.compact()
    small.save(tmp_path / "small.safetensors")
    for model in (small, load(tmp_path / "small.safetensors")):
        assert_same_estimator(model.compact(), small)
        assert str(model.compact().compaction_) == str(small.compaction_)


@pytest.mark.usefixtures("untrained")
def test_targets_frames_and_prior_objects_come_back(tmp_path):
    """Two targets, two tanh layers, pandas columns, a prior and a noise of one's own.

    The history is empty, as after an interrupt in the first chunk.
    """
    X = pd.DataFrame(rows(), columns=["height", "mass", "age"])
    y = rows(2)
    model = HorseshoeRegressor(
        np.array([3, 2]),
        "tanh",
        prior=Horseshoe(layer_scale=0.1, half_cauchy="auxiliary"),
        likelihood=GaussianNoise(shape=6.0, rate=6.0),
        max_iter=np.int64(7),
        n_draws=8,
        random_state=np.random.RandomState(0),
    )
    fitted(model, X, y).save(tmp_path / "model.safetensors")
    back = load(tmp_path / "model.safetensors")
    assert back.hidden_layer_sizes == (3, 2)
    assert back.prior == model.prior
    assert back.likelihood == model.likelihood
    assert back.max_iter == 7
    assert len(back.history_.bound) == 0
    assert back.predict(X).shape == (ROWS, 2)
    assert_same_predictions(back, model, X)
    assert back.feature_names_in_.tolist() == ["height", "mass", "age"]
    with pytest.raises(ValueError, match="- tall\n"):
        back.predict(X.rename(columns={"height": "tall"}))


@pytest.mark.usefixtures("untrained")
@pytest.mark.parametrize("labels", [["no", "yes", "perhaps"], [7, -1, 3]], ids=str)
def test_labels_and_class_weights_come_back(tmp_path, labels):
    """A classifier with string or whole labels, whose class weights are a dict."""
    X, y = rows(), np.asarray(labels)[np.arange(ROWS) % 3]
    weights = {np.unique(y)[i]: weight for i, weight in enumerate([1, 2.5, 0.5])}
    model = HorseshoeClassifier(
        3, prior=Gaussian(scale=2.0), class_weight=weights, n_draws=8, random_state=0
    )
    fitted(model, X, y).save(tmp_path / "model.safetensors")
    back = load(tmp_path / "model.safetensors")
    assert back.class_weight == weights
    assert back.classes_.dtype == y.dtype
    np.testing.assert_array_equal(back.classes_, np.unique(y))
    assert set(back.predict(X)) <= set(labels)
    assert_same_predictions(back, model, X)
    assert back.prior == Gaussian(scale=2.0)


# --- damage -----------------------------------------------------------------------

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.ones((), bool),
    "empty": np.zeros(0),
}


def written(folder, kind="model", **header):
    path = folder / "file.safetensors"
    persist.write(path, kind, {"version": "0.9"} | header, ARRAYS)
    return path


def test_header_and_arrays_come_back(tmp_path):
    """Zero-dimensional, empty and transposed arrays as well."""
    path = tmp_path / "file.safetensors"
    arrays = ARRAYS | {"t": ARRAYS["a"].T, "n": np.array([np.nan, np.inf])}
    persist.write(path, "model", {"n": 0.1, "list": [1, None]}, arrays)
    header, found = persist.read(path, "model")
    assert header == {
        "format": persist.FORMAT,
        "kind": "model",
        "n": 0.1,
        "list": [1, None],
    }
    assert found.keys() == arrays.keys()
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        np.testing.assert_array_equal(found[name], value)


def test_any_flipped_bit_is_noticed(tmp_path):
    """In the length, the header or the data: one bit of each byte in turn."""
    path = written(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"file\.safetensors"):
            persist.read(path, "model")
    path.write_bytes(whole)
    assert persist.read(path, "model")[0]["version"] == "0.9"


def test_a_flipped_byte_in_the_numbers_of_a_model_is_told(regressor, tmp_path):
    path = tmp_path / "model.safetensors"
    regressor.save(path)
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"model\.safetensors' is damaged: its checksum"
    ):
        load(path)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_told(tmp_path, share):
    path = written(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"file\.safetensors' is damaged or is not"):
        load(path)


def test_a_text_file_is_told(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_text("x,y\n1,2\n" * 10)
    with pytest.raises(ValueError, match="is damaged or is not a file that farrier"):
        load(path)


def test_a_file_of_another_program_is_told(tmp_path):
    path = tmp_path / "theirs.safetensors"
    save_file({"weight": np.ones(3)}, path, {"format": "pt"})
    with pytest.raises(
        ValueError, match=r"theirs\.safetensors' is not a file that farr"
    ):
        load(path)


@pytest.mark.parametrize("name", ["absent.safetensors", "."])
def test_a_missing_file_is_told(tmp_path, name):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load(tmp_path / name)


def test_a_file_of_another_kind_is_told(tmp_path):
    path = written(tmp_path, "checkpoint")
    with pytest.raises(ValueError, match="is a checkpoint, not a model"):
        load(path)


def test_a_file_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(persist, "FORMAT", 7)
    path = written(tmp_path)
    monkeypatch.undo()
    with pytest.raises(
        ValueError, match=r"has format 7, .* reads format 1\. .* farrier 0\.9, which"
    ):
        load(path)


def test_an_unknown_estimator_is_told(tmp_path):
    path = written(tmp_path, **{"class": "Farrier"})
    with pytest.raises(ValueError, match="'Farrier' is an unknown estimator"):
        load(path)


def test_arrays_that_do_not_fit_are_told():
    skeleton = {"w": jnp.zeros((2, 3))}
    for arrays, found in (({}, "nothing"), ({"net['w']": np.zeros(2)}, r"\(2,\)")):
        with pytest.raises(
            ValueError, match=rf"`net\['w'\]` .*\(2, 3\), found {found}"
        ):
            persist.fill(skeleton, "net", arrays)


def test_a_tree_is_filled_by_name(getkey):
    """And keeps the types of the skeleton and what is not an array."""
    tree = {"a": jax.random.normal(getkey(), (3,)), "b": (jnp.arange(2), "text")}
    arrays = persist.flatten(tree, "tree")
    assert sorted(arrays) == ["tree['a']", "tree['b'][0]"]
    empty = {"a": jnp.zeros(3), "b": (jnp.zeros(2, int), "text")}
    assert eqx.tree_equal(persist.fill(empty, "tree", arrays), tree)


# --- headers that make no sense ---------------------------------------------------

FILES = Path(__file__).parent / "files"
NAMES = ("regressor", "classifier", "table")
NONSENSE = {"no": "sense"}  # wrong in any place of a header
# Numbers that only a fit would look at, and sizes.
SETTINGS = ("kl_weight", "kl_warm_up", "learning_rate_init", "averaging", "tol")
SIZES = (("n_features_in",), ("widths", 0), ("built_widths", 0), ("params", "n_draws"))


def places(value, path=()):
    """The paths of all values within a header."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


@cache
def content(name):
    """Header, as text, and arrays of a file."""
    header, arrays = persist.read(FILES / f"{name}.safetensors", "model")
    return json.dumps(header), arrays


def altered(name, path, change):
    """The header with one value replaced, or taken out where `change` is deleting."""
    header = json.loads(content(name)[0])
    *outer, last = path
    place = header
    for key in outer:
        place = place[key]
    if change is DELETED:
        del place[last]
    else:
        place[last] = change
    return header


DELETED = object()


def alterations():
    """All headers that must be refused: name of the file, path, what stands there."""
    for name in NAMES:
        header = json.loads(content(name)[0])
        for path in places(header):
            # What a model is about may say more than we know of.
            if path and path[0] not in ("format", "kind") and path[-1] != "about":
                yield name, path, NONSENSE
                if isinstance(path[-1], str) and "about" not in path[:-1]:
                    yield name, path, DELETED
        for path in SIZES:
            for value in (10**12, -1, 2.5, "many"):
                yield name, path, value
        for path in (*(("params", name) for name in SETTINGS), ("rows",)):
            yield name, path, float("nan")
        yield name, ("params", "prior"), {"object": "Farrier", "fields": {}}
        for pairs in (1, 10**12):
            matrix = {"object": "Matrix", "fields": {"pairs": pairs}}
            yield name, ("params", "posterior"), matrix
        for rank in (None, 1, 10**12):
            node = {"object": "Node", "fields": {"rank": rank}}
            yield name, ("params", "posterior"), node
        yield name, ("params", "more"), 1
        yield name, ("seed",), 10**30
    yield "classifier", ("classes", "dtype"), "<U999999999"
    yield "classifier", ("classes", "dtype"), "(99999,99999)f8"
    yield "classifier", ("classes", "values"), ["low", "low", "middle"]
    yield "regressor", ("columns",), 10**9
    yield "table", ("table", "about"), "sense"


# "table" itself may be absent: the file is then one of the estimator alone.
ALTERATIONS = [a for a in alterations() if a[1:] != (("table",), DELETED)]


def test_a_header_that_makes_no_sense_is_told_in_one_line(tmp_path):
    """Whatever stands where; checksums are right. Nothing is built that is large."""
    path = tmp_path / "file.safetensors"
    assert len(ALTERATIONS) > 300
    for name, place, change in ALTERATIONS:
        persist.write(path, "model", altered(name, place, change), content(name)[1])
        with pytest.raises(ValueError, match=r"file\.safetensors") as caught:
            pytest.fail(f"{load(path)} has {change} at {place}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_stored_models_predict_what_they_did(name):
    """tests/model_files.py made these files."""
    expected = json.loads((FILES / "expected.json").read_text())[name]
    model = load(FILES / f"{name}.safetensors")
    if name == "classifier":
        found = model.predict_proba(file_rows())
    elif name == "regressor":
        found = model.predict(file_rows(), return_std=True)
        assert model.prior == Horseshoe(layer_scale=0.5)
    else:
        frame = file_table()
        found = [model.predict(frame), *model.predict_interval(frame, 0.8)]
        assert model.about["holdout"]["rmse"] == 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", "{}", '{"format": 1}', "{"])
def test_a_header_that_is_no_header_is_told(tmp_path, text):
    path = tmp_path / "file.safetensors"
    save_file({"weight": np.ones(3)}, path, {"farrier": text})
    with pytest.raises(ValueError, match=r"file\.safetensors' is damaged"):
        load(path)


@pytest.mark.parametrize("number", ["2", None, 2.5, True])
def test_a_format_that_is_no_number_is_told(tmp_path, monkeypatch, number):
    monkeypatch.setattr(persist, "FORMAT", number)
    path = written(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="is damaged: its format is"):
        load(path)


def test_arrays_of_another_type_are_told():
    skeleton = {"w": jnp.zeros(3)}
    with pytest.raises(ValueError, match=r"`net\['w'\]` should be of float64, found"):
        persist.fill(skeleton, "net", {"net['w']": np.zeros(3, int)})


# --- writing ----------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = written(tmp_path, note="old")

    def fail(*args):
        raise OSError("disk full")

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            with pytest.raises(OSError, match="disk full"):
                written(tmp_path, note="new")
        assert persist.read(path, "model")[0]["note"] == "old"
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
    written(tmp_path, note="new")
    assert persist.read(path, "model")[0]["note"] == "new"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_can_be_read_by_those_who_may_read_any_new_file(tmp_path):
    """A model is there to be deployed, by others as well."""
    plain = tmp_path / "plain"
    plain.touch()
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (written(tmp_path), plain)]
    assert modes[0] == modes[1]


def test_a_file_is_plain_safetensors_with_a_json_header(tmp_path):
    """Read by hand: no pickle, nothing but numbers and text."""
    content = written(tmp_path).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    outer = json.loads(content[8 : 8 + length])
    header = json.loads(outer.pop("__metadata__")["farrier"])
    assert (header["format"], header["kind"]) == (persist.FORMAT, "model")
    begin, end = outer["a"]["data_offsets"]
    data = np.frombuffer(content[8 + length :][begin:end])
    np.testing.assert_array_equal(data, np.arange(6.0))
