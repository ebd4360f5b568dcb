"""Files: what is saved comes back bit-identical, and damage is reported."""

import copy
import dataclasses
import json
import os
import stat
import struct
import time
import warnings
from collections.abc import Iterator
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
    Training,
    TrainingWarning,
    load,
    persist,
)

ROWS = 40


def fitted(model, X, y):
    """Fitted, with no word about widths: a few steps make no good model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y)


def rows(columns=3):
    return np.random.default_rng(0).normal(5, 2, (ROWS, columns))


def assert_same_estimator(a, b):
    """All that an estimator reports about itself, bit-identical."""
    assert type(a) is type(b)
    assert repr(a.get_params()) == repr(b.get_params())
    assert eqx.tree_equal(a.model_.posterior, b.model_.posterior)
    assert eqx.tree_equal(a.model_.network, b.model_.network)
    assert a.widths_ == b.widths_
    assert a.built_widths_ == b.built_widths_
    assert a.width_interval() == b.width_interval()
    for name in ("node_scores_", "node_probabilities_", "weight_norms_"):
        for ours, theirs in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert a.n_iter_ == b.n_iter_
    assert a.n_rows_ == b.n_rows_
    assert a.history_.status is b.history_.status
    assert list(a.history_.terms) == list(b.history_.terms)
    np.testing.assert_array_equal(a.history_.elbo, b.history_.elbo)


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


def trained_regressor(**settings):
    """A trained model of one target, with active and inactive nodes."""
    X = rows()
    noise = np.random.default_rng(1).normal(0, 0.05, ROWS)
    y = 100 + 10 * np.abs(X[:, 0] - 5) + noise
    training = Training(max_iter=500, learning_rate=0.05)
    small = {"training": training, "n_draws": 16, "random_state": 3}
    return fitted(HorseshoeRegressor((6,), **small | settings), X, y)


@pytest.fixture(scope="module")
def regressor():
    return trained_regressor()


def test_a_trained_regressor_comes_back_bit_identical(regressor, tmp_path):
    X, path = rows(), tmp_path / "model.safetensors"
    regressor.save(path)
    model = load(path)
    assert 0 < model.widths_[0] < 6
    assert len(model.history_.elbo) == 500
    assert_same_estimator(model, regressor)
    assert_same_predictions(model, regressor, X)
    intervals = (each.predict_interval(X, 0.8) for each in (model, regressor))
    np.testing.assert_array_equal(*intervals)


def test_a_file_that_is_read_and_written_again_is_the_same_file(regressor, tmp_path):
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    regressor.save(first)
    load(first).save(second)
    assert first.read_bytes() == second.read_bytes()


def test_a_compacted_estimator_comes_back_bit_identical(regressor, tmp_path):
    """From its own file, and made out of the loaded whole one."""
    X, path = rows(), tmp_path / "small.safetensors"
    small = regressor.compact()
    small.save(path)
    model = load(path)
    widths = [each.model_.posterior.widths for each in (model, small, regressor)]
    assert widths[0] == widths[1] < widths[2]
    assert str(model.compaction_) == str(small.compaction_)
    assert_same_estimator(model, small)
    assert_same_predictions(model, small, X)
    regressor.save(path)  # its compaction is computed by now
    assert not hasattr(load(path), "compaction_")
    assert_same_estimator(load(path).compact(), small)


def test_what_is_compact_compacts_to_itself(regressor, tmp_path):
    small = regressor.compact()
    small.save(tmp_path / "small.safetensors")
    for model in (small, load(tmp_path / "small.safetensors")):
        assert_same_estimator(model.compact(), small)
        assert str(model.compact().compaction_) == str(small.compaction_)


def test_a_compacted_model_has_the_smaller_file(regressor, tmp_path):
    paths = [tmp_path / name for name in ("small", "whole", "both")]
    fresh = trained_regressor()
    fresh.save(paths[1])
    fresh.compact().save(paths[0])
    fresh.save(paths[2])  # with its compaction
    small, whole, both = (path.stat().st_size for path in paths)
    assert small < whole < both


def test_a_file_holds_no_training_rows(regressor, tmp_path):
    """No array has one entry for each row; what needs the rows is refused."""
    path = tmp_path / "model.safetensors"
    trained_regressor().save(path)
    _, arrays = persist.read(path, "model")
    assert not [name for name, value in arrays.items() if ROWS in value.shape]
    model = load(path)
    for needs_rows in (model.compact, lambda: model.feature_scores_):
        with pytest.raises(ValueError, match=r"file, which holds no training rows.*"):
            needs_rows()


def test_training_goes_on_from_a_file(regressor, tmp_path):
    """By `warm_start` and by `partial_fit`; the results are those of the original."""
    X, path = rows(), tmp_path / "model.safetensors"
    y = 100 + 10 * np.abs(X[:, 0] - 5)
    regressor.save(path)
    further = Training(max_iter=20, learning_rate=0.005)
    models = [load(path), trained_regressor()]
    for model in models:
        fitted(model.set_params(warm_start=True, training=further), X, y)
    assert_same_predictions(*models, X)
    assert models[0].history_.elbo[-1] > regressor.history_.elbo[0]


COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: COMPILED.append(event)
)


def compilations():
    """Programs that JAX has compiled so far in this process."""
    return sum("backend_compile" in event for event in COMPILED)


def test_saving_and_loading_compute_nothing(tmp_path):
    """No program is compiled, and a small model is written in a moment."""
    path, model = tmp_path / "model.safetensors", trained_regressor()
    assert model.model_.is_computed("nodes")
    assert model.model_.is_computed("depths")
    jax.clear_caches()
    before, began = compilations(), time.process_time()
    model.save(path)
    assert time.process_time() - began < 0.2
    assert compilations() == before
    back = load(path)
    assert compilations() == before
    back.predict(rows())
    assert compilations() > before  # the counter counts


def test_targets_frames_and_prior_objects_come_back(tmp_path):
    """Two targets, two tanh layers, pandas columns, a prior and a noise of one's own.

    The history is empty, as after an interrupt in the first chunk.
    """
    X = pd.DataFrame(rows(), columns=["height", "mass", "age"])
    y = rows(2)
    model = HorseshoeRegressor(
        np.array([3, 2]),
        "tanh",
        prior=Horseshoe(layer_scale=0.1, half_cauchy="exact"),
        likelihood=GaussianNoise(shape=6.0, rate=6.0),
        training=Training(max_iter=7),
        n_draws=np.int64(8),
        random_state=np.random.RandomState(0),
    )
    fitted(model, X, y)
    history = model.history_
    none = {name: values[:0] for name, values in history.terms.items()}
    history = dataclasses.replace(history, step=history.step[:0], terms=none)
    known = {name: getattr(model.model_, name) for name in ("nodes", "depths")}
    model.model_ = dataclasses.replace(model.model_, history=history).computed(**known)
    model.save(tmp_path / "model.safetensors")
    back = load(tmp_path / "model.safetensors")
    assert back.hidden_layer_sizes == (3, 2)
    assert back.prior == model.prior
    assert back.likelihood == model.likelihood
    assert back.training == model.training
    assert len(back.history_.elbo) == 0
    assert back.predict(X).shape == (ROWS, 2)
    assert_same_predictions(back, model, X)
    assert back.feature_names_in_.tolist() == ["height", "mass", "age"]
    with pytest.raises(ValueError, match="- tall\n"):
        back.predict(X.rename(columns={"height": "tall"}))


@pytest.mark.parametrize(
    "labels",
    [["no", "yes", "perhaps"], [7, -1, 3], np.array(["b", "a", "c"], object)],
    ids=str,
)
def test_labels_and_class_weights_come_back(tmp_path, labels):
    """A classifier with labels of any type, whose class weights are a dict."""
    X, y = rows(), np.asarray(labels)[np.arange(ROWS) % 3]
    weights = {np.unique(y)[i]: weight for i, weight in enumerate([1, 2.5, 0.5])}
    model = HorseshoeClassifier(
        3,
        prior=Gaussian(scale=2.0),
        class_weight=weights,
        training=Training(max_iter=2),
        n_draws=8,
        random_state=0,
    )
    fitted(model, X, y).save(tmp_path / "model.safetensors")
    back = load(tmp_path / "model.safetensors")
    assert back.class_weight == weights
    assert back.classes_.dtype == y.dtype
    np.testing.assert_array_equal(back.classes_, np.unique(y))
    assert set(back.predict(X)) <= set(labels)
    assert_same_predictions(back, model, X)
    assert back.prior == Gaussian(scale=2.0)
    assert not hasattr(back, "n_targets_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnPrior(Horseshoe):
    """A class that no file can name."""


def test_a_prior_of_ones_own_makes_no_file(regressor, tmp_path):
    model = copy.copy(regressor).set_params(prior=OwnPrior())
    with pytest.raises(TypeError, match=r"cannot be saved: .*OwnPrior\. Pickle"):
        model.save(tmp_path / "model.safetensors")
    assert not [*tmp_path.iterdir()]


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


# --- files that make no sense -----------------------------------------------------

FILES = Path(__file__).parent / "files"
NAMES = ("regressor", "classifier", "table", "sampled")
NONSENSE = {"no": "sense"}  # wrong in any place of a header
DELETED = object()


def places(value, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
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
    """The header with one value replaced, or taken out where `change` is DELETED."""
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


MODEL = ("structure", "dict", "model", "fields")
MORE = ("structure", "dict", "more", "dict")
PARAMS, LEARNED = (*MORE, "params", "dict"), (*MORE, "learned", "dict")
NAN = {"float": "nan"}


def unimportant(path):
    """Places where any value, or none, is as good as another."""
    # What is written about a table may be more than we know of.
    return not path or path[0] in ("format", "kind") or path[-1] == "about"


def alterations():
    """All headers that must be refused: name of the file, path, what stands there."""
    for name in NAMES:
        header = json.loads(content(name)[0])
        for path in places(header):
            if not unimportant(path):
                yield name, path, NONSENSE
                if isinstance(path[-1], str) and "about" not in path[:-1]:
                    yield name, path, DELETED
        for value in (-1, 2.5, "many", True, None):
            for field in ("draws", "seed", "epochs"):
                yield name, (*MODEL, field), value
            yield name, (*LEARNED, "n_features_in_"), value
            yield name, (*MODEL, "built_widths", "tuple", 0), value
        for field in ("total", "draws", "seed", "epochs"):
            yield name, (*MODEL, field), NAN
        yield name, (*MODEL, "total"), -1.0
        yield name, (*MODEL, "draws"), 10**12
        yield name, (*MODEL, "seed"), 10**30
        yield name, (*PARAMS, "prior"), "farrier"
        yield name, (*PARAMS, "posterior"), "full"
        yield name, (*PARAMS, "hidden_layer_sizes"), 0
        yield name, (*PARAMS, "n_draws"), 1
        yield name, (*PARAMS, "more"), 1
        yield name, (*PARAMS, "training", "fields", "tol"), NAN
        yield name, (*PARAMS, "training", "fields", "learning_rate"), 0.0
        yield name, (*MORE, "class"), "Farrier"
        yield name, ("version",), 3
    for name in ("regressor", "classifier", "table"):
        network = (*MODEL, "posterior", "fields", "network", "fields")
        yield name, (*MODEL, "built_widths", "tuple", 0), 10**12
        yield name, (*network, "activation"), "sigmoid"
        layer = (*network, "layers", "tuple", 0, "fields")
        yield name, (*layer, "parametrisation"), {"class": "Gaussian", "fields": {}}
        yield name, (*layer, "scales", "dict"), {}
    yield "regressor", (*MORE, "class"), "HorseshoeClassifier"
    yield "classifier", (*MORE, "class"), "HorseshoeRegressor"
    yield "regressor", (*LEARNED, "n_targets_"), 2
    classes = (*LEARNED, "classes_", "dict")
    yield "classifier", (*classes, "dtype"), "<U999999999"
    yield "classifier", (*classes, "dtype"), "(99999,99999)f8"
    yield "classifier", (*classes, "values"), ["low", "low", "middle"]
    yield "classifier", (*classes, "values"), ["high", "low"]
    yield "sampled", (*MODEL, "is_compact"), False
    yield "sampled", (*MODEL, "fits", "tuple", 0, "fields", "weight"), 0.7
    yield "table", ("table", "about"), "sense"


# "table" itself may be absent: the file is then one of the estimator alone.
ALTERATIONS = [a for a in alterations() if a[1:] != (("table",), DELETED)]


def refused(path, name, header, arrays, what):
    """The message with which a file is refused: one line that names the file."""
    persist.write(path, "model", header, arrays)
    with pytest.raises(ValueError, match=r"file\.safetensors") as caught:
        pytest.fail(f"{load(path)} of {name} has {what}")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_header_that_makes_no_sense_is_reported_in_one_line(tmp_path):
    """Whatever stands where; checksums are right. Nothing large is built."""
    path = tmp_path / "file.safetensors"
    assert len(ALTERATIONS) > 1_000
    for name, place, change in ALTERATIONS:
        header = altered(name, place, change)
        refused(path, name, header, content(name)[1], f"{change} at {place}")


def test_any_parameter_of_another_type_is_refused(tmp_path):
    """Numbers in the place of objects and the other way round."""
    path = tmp_path / "file.safetensors"
    for name, place in (
        ("regressor", (*MODEL, "history")),
        ("regressor", (*MODEL, "units")),
        ("regressor", (*MODEL, "posterior", "fields", "network")),
        ("regressor", ("structure", "dict", "nodes")),
        ("regressor", ("structure", "dict", "depths")),
        ("sampled", ("structure", "dict", "compaction")),
        ("sampled", (*MODEL, "posterior")),
    ):
        header, arrays = altered(name, place, 3), dict(content(name)[1])
        kept = json.dumps(header)
        arrays = {n: v for n, v in arrays.items() if json.dumps(n) in kept}
        refused(path, name, header, arrays, f"3 at {place}")


def described(structure):
    """The descriptions of all arrays within a structure."""
    if isinstance(structure, dict) and {"dtype", "shape"} <= structure.keys():
        yield structure
    elif isinstance(structure, dict | list):
        inner = structure.values() if isinstance(structure, dict) else structure
        for each in inner:
            yield from described(each)


@pytest.mark.parametrize("name", NAMES)
def test_any_array_of_another_length_is_refused(name, tmp_path):
    """An array loses its last entry along one axis, and its description agrees."""
    path = tmp_path / "file.safetensors"
    text, arrays = content(name)
    count = len([*described(json.loads(text)["structure"])])
    for number in range(count):
        shape = [*described(json.loads(text)["structure"])][number]["shape"]
        for axis in [axis for axis, length in enumerate(shape) if length]:
            header = json.loads(text)
            entry = [*described(header["structure"])][number]
            array = next(
                v for v in entry.values() if isinstance(v, str) and v in arrays
            )
            shorter = np.delete(arrays[array], -1, axis)
            if array.startswith("compaction.keep") and not arrays[array][-1]:
                continue  # still a mask of the nodes that a compacted model has
            entry["shape"] = [*shorter.shape]
            more = arrays | {array: shorter}
            refused(path, name, header, more, f"{array} of {shorter.shape}")


@pytest.mark.parametrize("name", NAMES)
def test_weights_that_are_not_numbers_are_refused(name, tmp_path):
    path, (text, arrays) = tmp_path / "file.safetensors", content(name)
    weights = [
        array
        for array, value in arrays.items()
        if array.startswith("model.posterior") and value.dtype == float and value.size
    ]
    assert len(weights) > 3
    for array in weights:
        bad = arrays[array].copy()
        bad[(0,) * bad.ndim] = np.nan
        more = arrays | {array: bad}
        message = refused(path, name, json.loads(text), more, f"NaN in {array}")
        assert "not" in message


@pytest.mark.parametrize(
    ("name", "place", "change", "message"),
    [
        ("regressor", (*MORE, "class"), "Farrier", "'Farrier' is an unknown estimator"),
        ("regressor", (*MODEL, "draws"), 3, "its node or column scores are not shares"),
        ("regressor", (*MODEL, "seed"), -1, "its seed is -1"),
        ("regressor", (*MODEL, "total"), 0.0, "its numbers of rows and epochs are not"),
        (
            "regressor",
            (*MODEL, "posterior", "fields", "network", "fields", "activation"),
            "sigmoid",
            "its activation is 'sigmoid'",
        ),
        ("classifier", (*MORE, "class"), "HorseshoeRegressor", "its settings are"),
        ("regressor", (*LEARNED, "n_features_in_"), 2, "not those of 3 columns"),
        ("regressor", (*LEARNED, "n_targets_"), 2, "its number of targets is 2"),
    ],
)
def test_a_message_says_what_makes_no_sense(name, place, change, message, tmp_path):
    header = altered(name, place, change)
    path = tmp_path / "file.safetensors"
    said = refused(path, name, header, content(name)[1], str(place))
    assert "does not describe a model" in said
    assert message in said


@pytest.mark.parametrize("name", NAMES)
def test_stored_models_predict_what_they_did(name):
    """tests/model_files.py made these files."""
    expected = json.loads((FILES / "expected.json").read_text())[name]
    model = load(FILES / f"{name}.safetensors")
    if name == "classifier":
        found = model.predict_proba(file_rows())
    elif name == "table":
        frame = file_table()
        found = [model.predict(frame), *model.predict_interval(frame, 0.8)]
        assert model.about["holdout"]["rmse"] == 0.5
    else:
        found = model.predict(file_rows(), return_std=True)
        prior = {"regressor": Horseshoe(layer_scale=0.5)}
        assert model.prior == prior.get(name, Horseshoe(columns=True))
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
