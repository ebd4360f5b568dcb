"""Where a training run takes place: on one device, or on a mesh of devices.

The rows of a batch are sharded over the axis "rows" of the mesh, and the nodes of wide
layers over its axis "nodes"; everything else is replicated on each device. The noise of
a row depends on its number alone, so each device makes the noise of its own rows. The
gradients are summed once in a step, as one vector: a sum between processes waits for
the network, and XLA by itself makes one sum for each array. XLA chooses the
communication for what is sharded over "nodes".
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.tree_util import GetAttrKey
from jaxtyping import Array, Int, PyTree

from ..model.layers import Layer
from ..train.step import Unsharded, converted
from .processes import AbstractGroup, ProcessGroup, SingleProcess

WIDE = 256  # nodes from which a layer is sharded
# Fields of a layer's weights whose first axis is that of the nodes.
NODES_FIRST = ("kernel", "bias", "loc", "log_column", "pseudo_outputs")
ALONE = SingleProcess()
Tree = TypeVar("Tree", bound=PyTree)


@dataclass(frozen=True)
class Sharded(Unsharded):
    """A step on one shard of the rows of a batch, in one program for each shard."""

    nodes: int = 1  # devices for each shard

    def first(self, rows: int) -> int | Int[Array, ""]:
        """Number in the batch of the first row of this shard of `rows` rows."""
        return lax.axis_index("rows") * rows

    def added(self, tree: Tree) -> Tree:
        """The sum of these values over all shards."""
        if self.parts == 1:
            return tree
        if self.nodes > 1:  # one vector would gather what is sharded over nodes
            return lax.psum(tree, "rows")
        values, as_tree = ravel_pytree(tree)
        return as_tree(lax.psum(values, "rows"))


class AbstractPlacement(abc.ABC):
    """The devices that train, and the group of processes that they belong to."""

    @property
    @abc.abstractmethod
    def group(self) -> AbstractGroup:
        """The processes that train together."""

    @property
    @abc.abstractmethod
    def shard(self) -> Unsharded:
        """The rows of a batch that one program has."""

    @abc.abstractmethod
    def by_parts(self, work: Callable) -> Callable:
        """`work(rows, rest)` for each shard of the rows, with equal results on all.

        The second axis of all `rows` is that of the batch.
        """

    @abc.abstractmethod
    def local_rows(self, rows: int) -> slice:
        """Which rows of a batch of `rows` rows this process reads."""

    @abc.abstractmethod
    def put_batches(self, values: np.ndarray, rows: int) -> Array:
        """Put the local rows of a few batches, of `rows` rows each, on the devices."""

    @abc.abstractmethod
    def put_on_devices(self, tree: Tree) -> Tree:
        """A tree that is the same in all processes, put on the devices."""

    @abc.abstractmethod
    def gathered(self, tree: Tree) -> Tree:
        """A tree that is on the devices, brought to one device of this process."""


@dataclass(frozen=True)
class OneDevice(AbstractPlacement):
    """On the default device of JAX, in this process."""

    @property
    def group(self) -> AbstractGroup:
        """A group of one process."""
        return ALONE

    @property
    def shard(self) -> Unsharded:
        """The whole batch."""
        return Unsharded()

    def by_parts(self, work: Callable) -> Callable:
        """The work as it is."""
        return work

    def local_rows(self, rows: int) -> slice:
        """All rows."""
        return slice(0, rows)

    def put_batches(self, values: np.ndarray, rows: int) -> Array:
        """The batches on the device."""
        del rows
        return jnp.asarray(values)

    def put_on_devices(self, tree: Tree) -> Tree:
        """The tree as it is."""
        return tree

    def gathered(self, tree: Tree) -> Tree:
        """The tree as it is."""
        return tree


ONE_DEVICE = OneDevice()


@dataclass(frozen=True)
class Meshed(AbstractPlacement):
    """On a mesh of devices with the axes "rows" and "nodes".

    Parameters
    ----------
    wide
        Nodes from which a layer is sharded.
    """

    mesh: Mesh
    processes: AbstractGroup = ALONE
    wide: int = WIDE

    @classmethod
    def over(
        cls,
        devices: list[Any],
        nodes: int = 1,
        group: AbstractGroup = ALONE,
        *,
        wide: int = WIDE,
    ) -> "Meshed":
        """On these devices, with `nodes` of them for each shard of the rows."""
        if nodes < 1 or len(devices) % nodes:
            raise ValueError(
                f"`nodes` must divide the number of devices, {len(devices)}; got "
                f"{nodes}."
            )
        grid = np.asarray(devices).reshape(-1, nodes)
        return cls(Mesh(grid, ("rows", "nodes")), group, wide)

    @property
    def group(self) -> AbstractGroup:
        """The processes that the devices belong to."""
        return self.processes

    @property
    def shard(self) -> Unsharded:
        """The rows of a batch that one program has."""
        return Sharded(self.mesh.shape["rows"], self.mesh.shape["nodes"])

    def by_parts(self, work: Callable) -> Callable:
        """`work(rows, rest)` for each shard of the rows, with equal results on all."""
        return jax.shard_map(
            work,
            mesh=self.mesh,
            in_specs=(PartitionSpec(None, "rows"), PartitionSpec()),
            out_specs=PartitionSpec(),
            axis_names={"rows"},
            check_vma=False,
        )

    def local_rows(self, rows: int) -> slice:
        """Which rows of a batch of `rows` rows this process reads."""
        parts = self.mesh.shape["rows"]
        if rows % parts:
            raise ValueError(
                f"A batch of {rows} rows cannot be split into {parts} equal parts, one "
                "for each device. Use a number of processes that divides it, or a "
                f"`batch_size` that is a multiple of {np.lcm(8, parts)}."
            )
        indices = self._sharding("rows").addressable_devices_indices_map((rows,))
        starts = [index[0].start or 0 for index in indices.values() if index]
        return slice(min(starts), max(starts) + rows // parts)

    def put_batches(self, values: np.ndarray, rows: int) -> Array:
        """Put the local rows of a few batches, of `rows` rows each, on the devices."""
        shape = (len(values), rows, *values.shape[2:])
        sharding = self._sharding(None, "rows")
        return jax.make_array_from_process_local_data(sharding, values, shape)

    def put_on_devices(self, tree: Tree) -> Tree:
        """A tree that is the same in all processes; wide layers are sharded."""
        is_layer = lambda part: isinstance(part, Layer)
        put = lambda part: self._put_layer(part) if is_layer(part) else self._put(part)
        return jax.tree.map(put, tree, is_leaf=is_layer)

    def _put_layer(self, layer: Layer) -> Layer:
        """A layer on the devices, its node axes sharded if it is wide."""
        nodes = layer.weights.nodes
        if nodes < self.wide or nodes % self.mesh.shape["nodes"]:
            return jax.tree.map(self._put, layer)
        put = lambda value, sharded: self._put(value, "nodes" if sharded else None)
        return jax.tree.map(put, layer, nodes_first(layer))

    def _put(self, value: Any, first_axis: str | None = None) -> Any:
        """An array on the devices, its first axis sharded over an axis of the mesh."""
        if not isinstance(value, jax.Array):
            return value
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return jr.wrap_key_data(self._put(jr.key_data(value)))
        host = np.asarray(value)
        sharding = self._sharding(*([first_axis] if first_axis else []))
        return jax.make_array_from_callback(host.shape, sharding, lambda i: host[i])

    def gathered(self, tree: Tree) -> Tree:
        """A tree that is on the devices, brought to one device of this process."""
        replicate = jax.jit(lambda values: values, out_shardings=self._sharding())

        def local(value: Array) -> Array:
            if not value.is_fully_replicated:
                value = replicate(value)
            return jnp.asarray(np.asarray(value.addressable_data(0)))

        return converted(tree, local)

    def _sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))


def nodes_first(layer: Layer) -> PyTree[bool]:
    """For each leaf of a layer, whether it is an array with the nodes as first axis."""

    def is_sharded(path: tuple[Any, ...], value: Any) -> bool:
        if not isinstance(value, jax.Array):
            return False
        match path:
            case (GetAttrKey("nodes"),):  # the numbers of the nodes
                return True
            case (GetAttrKey("weights"), GetAttrKey(name), *_):
                return name in NODES_FIRST
            case (GetAttrKey("scales"), *_):  # one for each node, or one for the layer
                return value.ndim > 0
        return False

    return jax.tree_util.tree_map_with_path(is_sharded, layer)


def distributed(
    coordinator: str | None = None,
    processes: int | None = None,
    rank: int | None = None,
    *,
    nodes: int = 1,
) -> AbstractPlacement:
    """Connect the processes of a run, and return where they train.

    Call it once in each process, before anything else of JAX, and give its result to
    `fit(..., placement=placement)` or `fit_many(..., placement=placement)` in all
    processes. A fit has the same result, up to the rounding of sums, with any number of
    processes. `fit_many` divides the fits between the processes. If one process fails,
    all stop with its message; if one is killed, all stop within 30 seconds.

    Parameters
    ----------
    coordinator : str, optional
        Address (HOST:PORT) of the process of rank 0. By default the launcher supplies
        this and the next two: SLURM, Open MPI, Kubernetes.
    processes : int, optional
        Number of processes. With `processes=1` the run uses all devices of this
        process.
    rank : int, optional
        Number of this process, from 0.
    nodes : int, default=1
        Number of devices over which the nodes of wide layers are sharded. The rows of a
        batch are sharded over groups of that many devices.

    Returns
    -------
    placement : AbstractPlacement
        The devices of all processes, for `fit` and `fit_many`.

    Examples
    --------
    >>> import farrier
    >>> placement = farrier.distributed(
    ...     "10.0.0.1:7000", processes=2, rank=0
    ... )  # doctest: +SKIP
    >>> model.fit(X, y, placement=placement)  # doctest: +SKIP
    """
    group = ALONE
    if processes != 1:
        group = ProcessGroup.joined(coordinator, processes, rank)
    return Meshed.over(jax.devices(), nodes, group)
