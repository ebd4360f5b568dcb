"""Files: arrays as safetensors with one JSON header, and a checksum. No pickle.

A tree is written leaf by leaf under the names of its fields, and read into a skeleton
of the same structure. Files are written under a temporary name and then renamed, so
that a file under its own name is always whole.
"""

import hashlib
import json
import os
import uuid
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

FORMAT = 2
_HEADER = "farrier"
Tree = TypeVar("Tree")


def flatten(tree: Any, prefix: str) -> dict[str, np.ndarray]:
    """The arrays of a tree by name: `network.layers[0].weights.kernel.loc`, ..."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(tree, eqx.is_array))
    return {prefix + jax.tree_util.keystr(path): np.asarray(v) for path, v in leaves}


def fill(skeleton: Tree, prefix: str, arrays: dict[str, np.ndarray]) -> Tree:
    """The skeleton with its arrays replaced by those of the same names."""
    dynamic, static = eqx.partition(skeleton, eqx.is_array)
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
        found.append(jnp.asarray(arrays[name], old.dtype))
    return eqx.combine(jax.tree_util.tree_unflatten(structure, found), static)


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


def read(path: str | Path, kind: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file, after checking that it is whole and of this kind."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get(_HEADER)
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    except SafetensorError as error:
        raise ValueError(
            f"{str(path)!r} is damaged or is not a file that farrier wrote: {error}."
        ) from error
    if text is None:
        raise ValueError(f"{str(path)!r} is not a file that farrier wrote.")
    try:
        header = json.loads(text)
        found, found_kind = header["format"], header["kind"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{str(path)!r} is damaged: its header is broken.") from error
    if found != FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {found}; this version reads format {FORMAT}. "
            f"Read it with the version that wrote it, {header.get('version')}."
        )
    if found_kind != kind:
        raise ValueError(f"{str(path)!r} is a {found_kind}, not a {kind}.")
    if header.pop("checksum", None) != checksum(header, arrays):
        raise ValueError(f"{str(path)!r} is damaged: its checksum does not fit.")
    return header, arrays
