"""Where a training run lives: on one device, or over a mesh of devices and processes.

The rows of a batch are cut over the axis "rows" of the mesh, and the nodes of wide
layers over its axis "nodes"; all else stands on each device. The noise of a row depends
on its number alone, so each device makes that of its own rows. The gradients are added
up once in a step, as one vector: a sum between processes waits for their network, and
XLA, left to itself, asks for one sum for each array. What is cut over "nodes" is XLA's.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int, PyTree

from ..model.layers import Layer
from ..train.step import Whole, converted
from .processes import is_alone, start, together

WIDE = 256  # nodes from which a layer is cut
Tree = TypeVar("Tree", bound=PyTree)


@dataclass(frozen=True)
class Cut(Whole):
    """A step on one part of the rows of a batch, in a program for each part."""

    nodes: int = 1  # devices for each part

    def first(self, rows: int) -> int | Int[Array, ""]:
        """Number in the batch of the first of so many rows."""
        return lax.axis_index("rows") * rows

    def added(self, tree: Tree) -> Tree:
        """The sum of these values over all parts."""
        if self.parts == 1:
            return tree
        if self.nodes > 1:  # one vector would bring together what is cut
            return lax.psum(tree, "rows")
        values, as_tree = ravel_pytree(tree)
        return as_tree(lax.psum(values, "rows"))


@dataclass(frozen=True)
class OneDevice:
    """All on the device that JAX chooses."""

    @property
    def part(self) -> Whole:
        """The rows of a batch that one program has."""
        return Whole()

    def by_parts(self, work: Callable) -> Callable:
        """`work(rows, rest)` for each part of the rows, with results alike on all.

        The second axis of all `rows` is that of the batch.
        """
        return work

    def share(self, rows: int) -> slice:
        """Which rows of a batch are read by this process."""
        return slice(0, rows)

    def block(self, values: np.ndarray, rows: int) -> Array:
        """Values of its rows of a few batches, each of so many rows, on the devices."""
        del rows
        return jnp.asarray(values)

    def spread(self, tree: Tree) -> Tree:
        """What is the same in all processes, on the devices."""
        return tree

    def gathered(self, tree: Tree) -> Tree:
        """What was on the devices, on one of this process."""
        return tree

    def together(self) -> AbstractContextManager[None]:
        """A block that fails on all processes where it fails on one."""
        return nullcontext()


@dataclass(frozen=True)
class Meshed(OneDevice):
    """Over a mesh with the axes "rows" and "nodes"."""

    mesh: Mesh

    @classmethod
    def over(cls, devices: list[Any], nodes: int = 1) -> "Meshed":
        """Over these devices, with so many for each part of the rows."""
        if nodes < 1 or len(devices) % nodes:
            raise ValueError(
                f"`nodes` must divide the number of devices, {len(devices)}; got "
                f"{nodes}."
            )
        grid = np.asarray(devices).reshape(-1, nodes)
        return cls(Mesh(grid, ("rows", "nodes")))

    @property
    def part(self) -> Whole:
        """The rows of a batch that one program has."""
        return Cut(self.mesh.shape["rows"], self.mesh.shape["nodes"])

    def by_parts(self, work: Callable) -> Callable:
        """`work(rows, rest)` for each part of the rows, with results alike on all."""
        return jax.shard_map(
            work,
            mesh=self.mesh,
            in_specs=(PartitionSpec(None, "rows"), PartitionSpec()),
            out_specs=PartitionSpec(),
            axis_names={"rows"},
            check_vma=False,
        )

    def share(self, rows: int) -> slice:
        """Which rows of a batch are read by this process."""
        parts = self.mesh.shape["rows"]
        if rows % parts:
            raise ValueError(
                f"A batch of {rows} rows cannot be cut into {parts} equal parts, one "
                "for each device. Take a number of processes that divides it, or a "
                f"`batch_size` that is a multiple of {np.lcm(8, parts)}."
            )
        places = self._sharding("rows").addressable_devices_indices_map((rows,))
        starts = [index[0].start or 0 for index in places.values() if index]
        return slice(min(starts), max(starts) + rows // parts)

    def block(self, values: np.ndarray, rows: int) -> Array:
        """Values of its rows of a few batches, each of so many rows, on the devices."""
        shape = (len(values), rows, *values.shape[2:])
        sharding = self._sharding(None, "rows")
        return jax.make_array_from_process_local_data(sharding, values, shape)

    def spread(self, tree: Tree) -> Tree:
        """What is the same in all processes, on the devices; wide layers are cut."""

        def put(part: PyTree) -> PyTree:
            if not isinstance(part, Layer):
                return self._put(part, 0)
            return converted(part, lambda v: self._put(v, part.weights.nodes))

        return jax.tree.map(put, tree, is_leaf=lambda part: isinstance(part, Layer))

    def _put(self, value: Any, nodes: int) -> Any:
        """An array on the devices, cut where its first axis is that of many nodes."""
        if not isinstance(value, jax.Array):
            return value
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return jr.wrap_key_data(self._put(jr.key_data(value), 0))
        host = np.asarray(value)
        cut = nodes >= WIDE and not nodes % self.mesh.shape["nodes"]
        own = cut and host.ndim > 0 and len(host) == nodes
        sharding = self._sharding("nodes") if own else self._sharding()
        return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])

    def gathered(self, tree: Tree) -> Tree:
        """What was on the devices, on one of this process."""
        whole = jax.jit(lambda values: values, out_shardings=self._sharding())

        def local(value: Array) -> Array:
            if not value.is_fully_replicated:
                value = whole(value)
            return jnp.asarray(np.asarray(value.addressable_data(0)))

        return converted(tree, local)

    def together(self) -> AbstractContextManager[None]:
        """A block that fails on all processes where it fails on one."""
        return together()

    def _sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


class _Chosen:
    """Where fits of this process are trained, if it was said."""

    placement: OneDevice | None = None


def current() -> OneDevice | None:
    """Where a fit is to be trained, if not on one device by rows that it holds."""
    return None if is_alone() else _Chosen.placement


def distributed(
    coordinator: str | None = None,
    processes: int | None = None,
    rank: int | None = None,
    *,
    nodes: int = 1,
) -> None:
    """Spread each `fit` that follows over all processes and devices of a run.

    Call it once, before anything else of JAX, in each process of the run; then let all
    of them do the same. A fit is the same, up to the rounding of sums, for any number
    of processes. `fit_many` gives each process its share of the fits. One process that
    fails stops all with its message; one that is killed stops all within 30 seconds.

    Parameters
    ----------
    coordinator, processes, rank
        Address (HOST:PORT) of the first process, their number, and which this one is;
        by default as the launcher says: SLURM, Open MPI, Kubernetes. With `processes=1`
        all devices of this process are used.
    nodes
        Devices over which the nodes of wide layers are cut; the others share the rows.

    Examples
    --------
    >>> import farrier
    >>> farrier.distributed("10.0.0.1:7000", processes=2, rank=0)  # doctest: +SKIP
    """
    if processes != 1:
        start(coordinator, processes, rank)
    _Chosen.placement = Meshed.over(jax.devices(), nodes)
