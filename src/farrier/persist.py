"""Files: arrays as safetensors with one JSON header, and a checksum. No pickle.

A tree is written leaf by leaf under the names of its fields, and read into a skeleton
of the same structure. Files are written under a temporary name and then renamed, so
that a file under its own name is always whole.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

FORMAT = 2
_HEADER = "farrier"
Tree = TypeVar("Tree")
Content: TypeAlias = tuple[dict, dict[str, np.ndarray]]  # header and arrays

# For an older format, what makes the next one of it: {2: from_2_to_3}. A format that
# is not here is refused. Format 1 had no release.
MIGRATIONS: dict[int, Callable[[Content], Content]] = {}

# What broken contents raise, wherever they are first used.
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
    """Write a file of one kind, "model" or "checkpoint", in one piece."""
    path = Path(path)
    # Zero-dimensional and non-contiguous arrays are laid out anew for safetensors.
    arrays = {name: np.array(value, order="C") for name, value in arrays.items()}
    full = {"format": FORMAT, "kind": kind, **header}
    full["checksum"] = checksum(full, arrays)
    data = save(arrays, {_HEADER: json.dumps(full)})
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read(path: str | Path, kind: str) -> Content:
    """Header and arrays of a file, after checking that it is whole and of this kind."""
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
    for older in range(number, FORMAT):
        header, arrays = MIGRATIONS[older]((header, arrays))
    return header, arrays


def _check_format(path: Path, number: Any, version: Any) -> None:
    """Refuse a format that cannot be read nor be brought up to date."""
    if type(number) is not int:
        raise ValueError(f"{str(path)!r} is damaged: its format is {number!r:.40}.")
    if number > FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {number}; this farrier reads up to format "
            f"{FORMAT}. It was written by farrier {version}: update farrier."
        )
    if any(older not in MIGRATIONS for older in range(number, FORMAT)):
        raise ValueError(
            f"{str(path)!r} has format {number}, which this farrier no longer reads. "
            f"Fit the model again, or read it with farrier {version}, which wrote it."
        )


@contextmanager
def describing(path: str | Path, what: str) -> Iterator[None]:
    """A block in which whatever is wrong with the contents of a file is a ValueError.

    The checksum says that a file is as it was written, not that it makes sense.
    """
    try:
        yield
    except BROKEN as error:
        reason = f"no {error}" if isinstance(error, LookupError) else str(error)
        reason = " ".join(reason.split()).rstrip(".")[:300]
        raise ValueError(
            f"{str(path)!r} does not describe a {what}: {reason}."
        ) from error
