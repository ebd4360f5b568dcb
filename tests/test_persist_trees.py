"""Trees with their structure: `persist.encode` and `persist.decode`."""

import copy
import dataclasses
import enum
import json
import math

import equinox as eqx
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float

from farrier import persist


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Layer(eqx.Module):
    kernel: object
    bias: object
    name: str = eqx.field(static=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    rate: object
    more: object = None

    def __post_init__(self):
        if isinstance(self.rate, str) and self.rate == "refused":
            raise ValueError(f"`rate` must not be {self.rate!r}.")


@dataclasses.dataclass(frozen=True)
class Doubled:
    half: int
    whole: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        object.__setattr__(self, "whole", 2 * self.half)


class Shifted(eqx.Module):
    """With a constructor of its own, which must not run when it is read."""

    loc: Float[Array, " n"]

    def __init__(self, values):
        self.loc = jnp.asarray(values) + 1

    def __check_init__(self):
        if self.loc.ndim != 1:
            raise ValueError("`loc` must have one axis.")


CLASSES = {
    c.__name__: c for c in (Colour, Layer, Settings, Doubled, Shifted, enum.Enum)
}

dtypes = st.sampled_from(sorted(persist.DTYPES)).map(np.dtype)
numpy_arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3))
)
jax_arrays = numpy_arrays.map(jnp.asarray)
keys = st.builds(
    lambda seed, implementation: jr.key(seed, impl=implementation),
    st.integers(0, 2**31 - 1),
    st.sampled_from(["threefry2x32", "rbg"]),
)
scalars = st.sampled_from([np.float32(0.1), np.int64(3), np.bool_(1), np.float64(2)])
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    numpy_arrays,
    jax_arrays,
    keys,
    scalars,
    st.sampled_from(Colour),
)
strings = st.text(max_size=4) | st.sampled_from(["a", "a.b", "['a']", "__metadata__"])


def branches(inner):
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(strings, inner, max_size=3),
        st.builds(Layer, inner, inner, st.text(max_size=3)),
        st.builds(lambda rate, more: Settings(rate=rate, more=more), inner, inner),
        st.builds(Doubled, st.integers(-5, 5)),
        st.builds(Shifted, st.lists(st.floats(width=32), max_size=3)),
    )


trees = st.recursive(leaves, branches, max_leaves=8)


def assert_same(ours, theirs):
    """Equal types, structure and bits."""
    assert type(ours) is type(theirs)
    if dataclasses.is_dataclass(ours):
        for field in dataclasses.fields(ours):
            assert_same(getattr(ours, field.name), getattr(theirs, field.name))
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs)
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, jax.Array | np.ndarray | np.generic):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if jnp.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, theirs = jr.key_data(ours), jr.key_data(theirs)
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes()
    elif isinstance(ours, float):
        assert math.copysign(1, ours) == math.copysign(1, theirs) or math.isnan(ours)
        assert ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    else:
        assert ours == theirs


many = settings(max_examples=150, suppress_health_check=[*HealthCheck], deadline=None)


@many
@given(trees)
def test_a_tree_comes_back_with_the_same_bits(tree):
    structure, arrays = persist.encode(tree, CLASSES)
    text = json.dumps(structure, allow_nan=False)
    assert_same(persist.decode(json.loads(text), arrays, CLASSES), tree)


@settings(max_examples=30, suppress_health_check=[*HealthCheck], deadline=None)
@given(trees)
def test_a_tree_comes_back_from_a_file(tmp_path, tree):
    path = tmp_path / "tree.safetensors"
    structure, arrays = persist.encode((tree,), CLASSES)
    persist.write(path, "model", {"tree": structure}, arrays)
    header, found = persist.read(path, "model")
    assert_same(persist.decode(header["tree"], found, CLASSES), (tree,))


# --- damage -----------------------------------------------------------------------


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def altered(structure, path, change):
    """The structure with one value replaced."""
    if not path:
        return change
    new = copy.deepcopy(structure)
    inner = new
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = change
    return new


changes = st.sampled_from(
    [
        None,
        0,
        -1,
        2.5,
        float("nan"),
        "",
        "text",
        "Layer",
        "Enum",
        "float64",
        [],
        [[]],
        {},
        {"class": "Layer", "fields": {}},
        {"class": "Enum", "fields": {}},
        {"class": "Colour", "fields": {}},
        {"class": "os", "fields": {}},
        {"class": ["Layer"], "fields": {}},
        {"enum": "Colour", "value": "green"},
        {"enum": "Layer", "value": []},
        {"float": "1"},
        {"float": []},
        {"array": "none", "dtype": "float32", "shape": []},
        {"key": "none", "dtype": "uint32", "shape": [2], "implementation": "x"},
    ]
)


@many
@given(trees, st.data())
def test_a_damaged_structure_is_a_value_error_or_another_tree(tree, data):
    """Never another error; and what is read can be written again as it was found."""
    structure, arrays = persist.encode(tree, CLASSES)
    path = data.draw(st.sampled_from([*places(structure)]))
    damaged = altered(structure, path, data.draw(changes))
    message = ""
    try:
        again, kept = persist.encode(persist.decode(damaged, arrays, CLASSES), CLASSES)
        assert kept.keys() == arrays.keys()
        assert repr(again) == repr(damaged)
    except ValueError as error:
        message = str(error)
    assert "\n" not in message


@many
@given(trees, st.data())
def test_damaged_arrays_are_refused(tree, data):
    structure, arrays = persist.encode({"a": np.zeros(2), "tree": tree}, CLASSES)
    name = data.draw(st.sampled_from(sorted(arrays)))
    value = arrays[name]
    damages = {
        "absent": lambda: arrays.pop(name),
        "more": lambda: arrays.update(more=value),
        "shape": lambda: arrays.update({name: value[None]}),
        "type": lambda: arrays.update(
            {name: value.astype("int8" if value.dtype != np.int8 else "float16")}
        ),
    }
    with np.errstate(all="ignore"):
        damages[data.draw(st.sampled_from(sorted(damages)))]()
    with pytest.raises(ValueError, match="array"):
        persist.decode(structure, arrays, CLASSES)


def layer():
    return Layer(jnp.ones((2, 3)), np.zeros(2), "hidden")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update({"class": "Farrier"}), "`value` is of the unknown class"),
        (lambda s: s["fields"].pop("bias"), r"a Layer has the fields .*'bias'.*not"),
        (lambda s: s["fields"].update(more=1), r"a Layer has the fields .*not .*more"),
        (lambda s: s.update(more=1), "describes no value"),
        (
            lambda s: s["fields"].update(bias=s["fields"]["kernel"]),
            "`bias` needs the array 'kernel': none is left",
        ),
        (
            lambda s: s["fields"].update(bias=None),
            r"the arrays \['bias'\] have no place",
        ),
        (
            lambda s: s["fields"]["bias"].update(shape=[3]),
            r"`bias` should be 'float64' of shape \[3\]; its array is float64 of .*2",
        ),
        (lambda s: s["fields"]["bias"].update(more=1), "`bias` is described by"),
    ],
)
def test_messages_name_the_place(change, message):
    structure, arrays = persist.encode(layer(), CLASSES)
    change(structure)
    with pytest.raises(ValueError, match=message):
        persist.decode(structure, arrays, CLASSES)


def test_checks_of_a_class_run_when_it_is_read():
    structure, _ = persist.encode(Settings(rate=1.0), CLASSES)
    structure["fields"]["rate"] = "refused"
    with pytest.raises(ValueError, match="no valid Settings: `rate` must not be"):
        persist.decode(structure, {}, CLASSES)
    structure, arrays = persist.encode(Shifted([1.0]), CLASSES)
    structure["fields"]["loc"]["shape"] = [1, 1]
    arrays = {"loc": np.ones((1, 1))}
    with pytest.raises(ValueError, match="no valid Shifted: `loc` must have one axis"):
        persist.decode(structure, arrays, CLASSES)


def test_a_stored_field_is_not_computed_again():
    structure, _ = persist.encode(Doubled(2), CLASSES)
    assert structure["fields"] == {"half": 2, "whole": 4}
    structure["fields"]["whole"] = 5
    assert persist.decode(structure, {}, CLASSES).whole == 5


def test_names_of_arrays_are_paths():
    tree = {"layers": [layer()], "a b": (jnp.zeros(1),)}
    _, arrays = persist.encode(tree, CLASSES)
    assert sorted(arrays) == ['["a b"][0]', "layers[0].bias", "layers[0].kernel"]


class Unknown:
    pass


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Unknown(), "`a.b` cannot be stored: it is a Unknown"),
        (len, "`a.b` cannot be stored: it is a builtin"),
        ({1: 2}, "`a.b` cannot be stored: it is a dict"),
        (np.array(["text"]), "`a.b` cannot be stored: its type is <U4"),
        (np.ones(1, complex), "`a.b` cannot be stored: its type is complex128"),
        (jnp.ones(1, jnp.bfloat16), "`a.b` cannot be stored: its type is bfloat16"),
        (np.ma.array([1]), "`a.b` cannot be stored: it is a MaskedArray"),
    ],
)
def test_what_cannot_be_stored_is_refused_when_it_is_written(value, message):
    with pytest.raises(TypeError, match=message):
        persist.encode({"a": {"b": value}}, CLASSES)


def test_a_structure_that_is_nested_too_deeply_is_refused():
    structure = []
    for _ in range(100_000):
        structure = [structure]
    with pytest.raises(ValueError, match="nested too deeply"):
        persist.decode(structure, {}, CLASSES)


def test_big_endian_arrays_come_back_in_the_order_of_the_machine():
    value = np.arange(3, dtype=">f8")
    structure, arrays = persist.encode(value, CLASSES)
    np.testing.assert_array_equal(persist.decode(structure, arrays, CLASSES), value)
    assert arrays["value"].dtype == np.float64
