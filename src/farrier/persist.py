"""Files: arrays as safetensors with one JSON header, and a checksum. No pickle.

There are two ways to store a tree. `flatten` writes its arrays under the names of their
fields, and `fill` reads them into a tree of the same structure. `encode` also describes
the structure itself as JSON, from which `decode` builds the tree: objects of registered
classes only. Files are written under a temporary name and then renamed, so that a file
under its final name is always complete.
"""

import dataclasses
import enum
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .atomic import replacing

FORMAT = 1
_HEADER = "farrier"
Tree = TypeVar("Tree")
Content: TypeAlias = tuple[dict, dict[str, np.ndarray]]  # header and arrays
Arrays: TypeAlias = Mapping[str, np.ndarray]
Classes: TypeAlias = Mapping[str, type]

# The errors that damaged contents raise where they are first used.
BROKEN = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


def flatten(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a tree by name: `network.layers[0].weights.kernel.loc`, ..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {prefix + jax.tree_util.keystr(path): np.asarray(v) for path, v in leaves}


def fill(skeleton: Tree, prefix: str, arrays: dict[str, np.ndarray]) -> Tree:
    """The skeleton with its arrays replaced by those of the same names.

    Of an array in the skeleton only the shape and the type are used: it may also be a
    `jax.ShapeDtypeStruct`.
    """
    dynamic, static = eqx.partition(skeleton, _is_form)
    leaves, structure = jax.tree_util.tree_flatten_with_path(dynamic)
    found = []
    for path, old in leaves:
        name = prefix + jax.tree_util.keystr(path)
        if name not in arrays or arrays[name].shape != old.shape:
            shape = arrays[name].shape if name in arrays else "nothing"
            raise ValueError(
                f"The file does not fit: `{name}` should have shape {old.shape}, "
                f"found {shape}."
            )
        if arrays[name].dtype.kind != np.dtype(old.dtype).kind:
            raise ValueError(
                f"The file does not fit: `{name}` should be of {old.dtype}, found "
                f"{arrays[name].dtype}."
            )
        found.append(jnp.asarray(arrays[name], old.dtype))
    return eqx.combine(jax.tree_util.tree_unflatten(structure, found), static)


def _is_form(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def checksum(header: dict, arrays: dict[str, np.ndarray]) -> str:
    """sha256 over the header and the arrays: names, shapes, types and contents."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{value.shape}{value.dtype.str}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def write(path: str | Path, kind: str, header: dict, arrays: dict) -> None:
    """Write a file of one kind, "model" or "checkpoint"."""
    # Zero-dimensional and non-contiguous arrays are laid out anew for safetensors.
    arrays = {name: np.array(value, order="C") for name, value in arrays.items()}
    full = {"format": FORMAT, "kind": kind, **header}
    full["checksum"] = checksum(full, arrays)
    with replacing(path) as file:
        file.write(save(arrays, {_HEADER: json.dumps(full)}))


def read(path: str | Path, kind: str) -> Content:
    """Header and arrays of a file, which must be undamaged and of this kind."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_HEADER)
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, *BROKEN) as error:
        raise ValueError(
            f"{str(path)!r} is damaged or is not a file that farrier wrote: {error}."
        ) from error
    if text is None:
        raise ValueError(f"{str(path)!r} is not a file that farrier wrote.")
    try:
        header = json.loads(text)
        number, found_kind = header["format"], header["kind"]
        total = header.pop("checksum", None)
    except BROKEN as error:
        raise ValueError(f"{str(path)!r} is damaged: its header is broken.") from error
    _check_format(path, number, header.get("version"))
    if total != checksum(header, arrays):
        raise ValueError(f"{str(path)!r} is damaged: its checksum does not fit.")
    if found_kind != kind:
        raise ValueError(f"{str(path)!r} is a {found_kind}, not a {kind}.")
    return header, arrays


def _check_format(path: Path, number: Any, version: Any) -> None:
    """Refuse a file of another format."""
    if type(number) is not int:
        raise ValueError(f"{str(path)!r} is damaged: its format is {number!r:.40}.")
    if number != FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {number}, and this version of farrier reads "
            f"format {FORMAT}. Read the file with farrier {version}, which wrote it, "
            "or fit the model again."
        )


@contextmanager
def describing(path: str | Path, what: str) -> Iterator[None]:
    """A block in which any error in the contents of a file becomes a ValueError.

    The checksum proves that a file is as it was written, not that it makes sense.
    """
    try:
        yield
    except BROKEN as error:
        reason = f"no {error}" if isinstance(error, LookupError) else str(error)
        reason = " ".join(reason.split()).rstrip(".")[:300]
        raise ValueError(
            f"{str(path)!r} does not describe a {what}: {reason}."
        ) from error


# -- trees with their structure ----------------------------------------------------

# Types of arrays that a file can hold.
DTYPES = frozenset(("bool", "float16", "float32", "float64"))
DTYPES |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
PLAIN = (type(None), bool, int, str)  # stand in JSON as they are


def encode(tree: Any, classes: Classes) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree as a structure in JSON, and its arrays by name: `network.layers[0].bias`.

    The structure of an object is {"class": name, "fields": {...}}, that of an array
    {"array": name, "dtype": ..., "shape": ...}; "numpy" and "scalar" mark arrays and
    scalars of NumPy, "key" a random key of JAX.

    Parameters
    ----------
    tree
        Objects of `classes`, tuples, lists, dicts with strings as keys, arrays, random
        keys, numbers, strings and None, in any combination.
    classes
        The dataclasses, Equinox modules and enums that may occur, each by its name.
    """
    arrays: dict[str, np.ndarray] = {}
    names = {of: name for name, of in classes.items()}
    return _encode(tree, "", names, arrays), arrays


def decode(structure: Any, arrays: Arrays, classes: Classes) -> Any:
    """The tree that `encode` made into this structure and these arrays.

    Only objects of `classes` are built. Whatever is wrong is a ValueError: an unknown
    class, fields that are not those of the class, arrays that are missing, superfluous
    or of another shape or type. A JAX array of 64 bits has 32 bits if JAX is set so.
    """
    rest = dict(arrays)
    try:
        tree = _decode(structure, "", rest, classes)
    except RecursionError as error:
        raise ValueError("the structure is nested too deeply.") from error
    if rest:
        raise ValueError(f"the arrays {sorted(rest)[:3]} have no place in it.")
    return tree


def _encode(
    value: Any, path: str, names: Mapping[type, str], arrays: dict[str, np.ndarray]
) -> Any:
    of = type(value)
    inner = lambda entry, step: _encode(entry, path + step, names, arrays)
    if of in PLAIN:
        return value
    if of is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if of in (list, tuple):
        parts = [inner(entry, f"[{number}]") for number, entry in enumerate(value)]
        return parts if of is list else {"tuple": parts}
    if of is dict and all(type(key) is str for key in value):
        return {"dict": {key: inner(v, _step(key)) for key, v in value.items()}}
    if of in names and isinstance(value, enum.Enum):
        return {"enum": names[of], "value": value.value}
    if of in names and dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        found = {name: inner(getattr(value, name), _step(name)) for name in fields}
        return {"class": names[of], "fields": found}
    return _encode_array(value, path, arrays)


def _encode_array(value: Any, path: str, arrays: dict[str, np.ndarray]) -> dict:
    name, more = path.removeprefix(".") or "value", {}
    if isinstance(value, jax.Array):
        kind = "array"
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            kind, more = "key", {"implementation": str(jr.key_impl(value))}
            value = jr.key_data(value)
    elif isinstance(value, np.generic):
        kind = "scalar"
    elif type(value) in (np.ndarray, np.memmap):
        kind = "numpy"
    else:
        raise TypeError(f"`{name}` cannot be stored: it is a {type(value).__name__}.")
    array = np.asarray(value)
    if array.dtype.name not in DTYPES:
        raise TypeError(f"`{name}` cannot be stored: its type is {array.dtype}.")
    arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    shape = list(array.shape)
    return {kind: name, "dtype": array.dtype.name, "shape": shape, **more}


def _step(name: str) -> str:
    """A field or key in the name of an array; different ones give different names."""
    plain = re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name)
    return f".{name}" if plain else f"[{json.dumps(name)}]"


def _decode(
    structure: Any, path: str, rest: dict[str, np.ndarray], classes: Classes
) -> Any:
    inner = lambda entry, step: _decode(entry, path + step, rest, classes)
    of, name = type(structure), path.removeprefix(".") or "value"
    if of in PLAIN or (of is float and math.isfinite(structure)):
        return structure
    if of is list:
        return [inner(entry, f"[{i}]") for i, entry in enumerate(structure)]
    match structure:
        case {"float": str(text), **more} if not more and text in NOT_FINITE:
            return NOT_FINITE[text]
        case {"tuple": list(parts), **more} if not more:
            return tuple(inner(entry, f"[{i}]") for i, entry in enumerate(parts))
        case {"dict": dict(entries), **more} if not more:
            return {key: inner(entry, _step(key)) for key, entry in entries.items()}
        case {"enum": str(known), "value": value, **more} if not more:
            return _member(_class(known, classes, name), value, name)
        case {"class": str(known), "fields": dict(entries), **more} if not more:
            built = _class(known, classes, name)
            fields = {key: inner(entry, _step(key)) for key, entry in entries.items()}
            return _object(built, fields, name)
        case {"dtype": str(dtype), "shape": list(shape), **more}:
            return _decode_array(more, dtype, shape, rest, name)
    raise ValueError(f"`{name}` is {structure!r:.60}, which describes no value.")


def _class(known: str, classes: Classes, name: str) -> type:
    if known not in classes:
        raise ValueError(f"`{name}` is of the unknown class {known!r:.60}.")
    return classes[known]


def _member(of: type, value: Any, name: str) -> enum.Enum:
    """The member of an enum with this value."""
    if issubclass(of, enum.Enum):
        for member in of:
            if type(member.value) is type(value) and member.value == value:
                return member
    raise ValueError(f"`{name}` is {value!r:.60}, which is no {of.__name__}.")


def _object(of: type, fields: dict[str, Any], name: str) -> Any:
    """An object of a dataclass with these values in its fields.

    The constructor runs its checks. A class that has its own constructor, and a field
    that is not an argument of it, get the stored values as they are.
    """
    if not dataclasses.is_dataclass(of):
        raise ValueError(f"`{name}`: {of.__name__} has no fields.")
    known = {field.name: field for field in dataclasses.fields(of)}
    if fields.keys() != known.keys():
        raise ValueError(
            f"`{name}`: a {of.__name__} has the fields {[*known]}, not {[*fields]}."
        )
    plain = of.__dict__["__dataclass_params__"].init
    arguments = {n: v for n, v in fields.items() if plain and known[n].init}
    try:
        made = of(**arguments) if plain else object.__new__(of)
        for field in fields.keys() - arguments.keys():
            object.__setattr__(made, field, fields[field])
        for base in () if plain else of.__mro__:
            if "__check_init__" in vars(base):  # the checks of an Equinox module
                vars(base)["__check_init__"](made)
    except Exception as error:  # whatever the checks of a class raise
        reason = " ".join(str(error).split()).rstrip(".")[:200]
        raise ValueError(f"`{name}` is no valid {of.__name__}: {reason}.") from error
    return made


def _decode_array(
    what: dict[str, Any],
    dtype: str,
    shape: list[Any],
    rest: dict[str, np.ndarray],
    name: str,
) -> Any:
    """An array that is taken out of those that are left."""
    implementation = what.pop("implementation", None)
    kind, stored = what.popitem() if len(what) == 1 else ("", "")
    is_key = kind == "key"
    known = kind in ("array", "numpy", "scalar", "key")
    if not known or is_key != isinstance(implementation, str):
        raise ValueError(f"`{name}` is described by {[*what, kind]}: no array.")
    if not isinstance(stored, str) or stored not in rest:
        raise ValueError(f"`{name}` needs the array {stored!r:.60}: none is left.")
    array = rest.pop(stored)
    if array.dtype.name != dtype or [*array.shape] != shape:
        raise ValueError(
            f"`{name}` should be {dtype!r:.20} of shape {shape!r:.60}; its array is "
            f"{array.dtype} of shape {[*array.shape]}."
        )
    if kind == "numpy":
        return array
    if kind == "array":
        return jax.device_put(array)  # `jnp.asarray` compiles a program for each shape
    if kind == "scalar" and not shape:
        return array[()]
    try:
        assert is_key and dtype == "uint32"  # noqa: PT018
        return jr.wrap_key_data(jnp.asarray(array), impl=implementation)
    except Exception as error:  # JAX has several for data that do not fit
        raise ValueError(f"`{name}` is no valid random key or number.") from error
