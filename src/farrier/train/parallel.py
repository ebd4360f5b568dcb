"""Many training runs as one piece of work.

Small runs of one shape go together: one program trains a group of them side by side
(vmap), as many as fill a cache. Groups, and runs that fill the cache alone, go to as
many threads as there are cores. A run on its own is bit-identical to `train`; in a
group, sums are rounded in another order.
"""

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray, PyTree

from .data import RECORDS_PER_CHUNK, Data, chunk
from .history import Status
from .loop import Job, Run, advanced, train
from .schedule import Schedule
from .step import TrainState, compiled, converted

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How much work goes side by side.

    Parameters
    ----------
    cores
        Threads that train at once.
    group_size
        Activations of one step of a group: a few such arrays fit a cache.
    fills
        Activations of a step whose matrix products XLA spreads over all cores: two such
        steps at once gain nothing.
    most_shuffled
        Rows up to which runs that shuffle go together. A group shuffles its rows in
        every step, not once a pass, because vmap computes both branches.
    """

    cores: int
    group_size: int = 2**14
    fills: int = 2**17
    most_shuffled: int = 1_024

    def workers(self, jobs: Sequence[Job]) -> int:
        """Threads: one where a step fills all cores by itself, else one a core."""
        return 1 if any(_activations(job) >= self.fills for job in jobs) else self.cores

    def groups(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Numbers of the jobs that go together.

        Shapes take turns, so that the programs of two are compiled side by side.
        """
        same_shape: dict[Hashable, list[int]] = defaultdict(list)
        for index, job in enumerate(jobs):
            same_shape[_shape(job)].append(index)
        by_shape = []
        for members in same_shape.values():
            size = self._group_size(jobs[members[0]])
            # Not so large that a core has nothing to do.
            size = min(size, -(-len(members) // self.cores))
            starts = range(0, len(members), size)
            by_shape.append([members[i : i + size] for i in starts])
        turns = itertools.zip_longest(*by_shape)
        return [members for turn in turns for members in turn if members is not None]

    def _group_size(self, job: Job) -> int:
        """Runs like this one that go together."""
        if job.shrink is not None:  # its shape changes while it is trained
            return 1
        if job.data.shuffled > self.most_shuffled:
            return 1
        return max(1, self.group_size // _activations(job))


@compiled
def run_chunks(
    states: TrainState,
    data: Data,
    schedules: Schedule,
    keys: Key[Array, " runs"],
    length: int,
) -> tuple[TrainState, Float[Array, "runs records terms"]]:
    """`chunk` for stacked runs of one shape, with `length` steps in each record."""

    def one(
        state: TrainState, data: Data, schedule: Schedule, key: PRNGKeyArray
    ) -> tuple[TrainState, Float[Array, "records terms"]]:
        return chunk(state, data, schedule, length, RECORDS_PER_CHUNK, key=key)

    return eqx.filter_vmap(one)(states, data, schedules, keys)


def train_many(
    jobs: Sequence[Job],
    after_chunk: Callable[[int, Run], None] = lambda i, run: None,
    machine: Machine | None = None,
) -> Iterator[tuple[int, Run]]:
    """Train all; yields the number of each job and its run when it has ended.

    `after_chunk` is called with the number of a job and its run, one call at a time.
    `Ctrl-C` ends all with what was learned up to their last whole chunks. The machine
    is by default this one, with all cores that this process may use.
    """
    machine = Machine(cores=cores()) if machine is None else machine
    stop, lock = threading.Event(), threading.Lock()

    def watch(index: int, run: Run) -> None:
        with lock:
            after_chunk(index, run)
        if stop.is_set():
            raise KeyboardInterrupt

    def work(members: list[int]) -> list[Run]:
        if stop.is_set():
            return [_interrupted(jobs[i].run) for i in members]
        if len(members) == 1:
            (index,) = members
            return [train(jobs[index], lambda run: watch(index, run))]
        return _train_group([jobs[i] for i in members], members, watch)

    work_here = as_here(work)
    with ThreadPoolExecutor(machine.workers(jobs)) as pool:
        groups = machine.groups(jobs)
        waiting = {pool.submit(work_here, members): members for members in groups}
        try:
            while waiting:
                try:
                    ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                except KeyboardInterrupt:
                    stop.set()
                    continue
                for future in ended:
                    yield from zip(waiting.pop(future), future.result(), strict=True)
        finally:  # also after an error in a run or in the caller
            stop.set()


def _interrupted(run: Run) -> Run:
    return replace(run, history=replace(run.history, status=Status.INTERRUPTED))


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def as_here(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The work in the precision of this thread: a new thread has the default one."""
    double = jnp.result_type(float) == jnp.float64

    def same(item: Item) -> Result:
        with jax.enable_x64(double):
            return work(item)

    return same


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """What the work on each item returns, one on each core at a time."""
    with ThreadPoolExecutor(max(1, min(len(items), cores()))) as pool:
        return list(pool.map(as_here(work), items))


def _activations(job: Job) -> int:
    """Of the widest layer, in one step."""
    return job.data.batch_size * max(job.run.state.network.widths)


def _shape(job: Job) -> Hashable:
    """What two jobs must share to be trained by one program."""
    tree = (job.run.state, job.data, job.run.schedule)
    leaves, structure = jax.tree.flatten(tree)
    shapes = [(v.shape, v.dtype) if eqx.is_array(v) else v for v in leaves]
    return structure, tuple(shapes), job.steps_per_record, job.shrink is None


def _train_group(
    jobs: list[Job], numbers: list[int], watch: Callable[[int, Run], None]
) -> list[Run]:
    """Runs of one shape, side by side; those that have ended stay as they are."""
    runs = [job.run for job in jobs]
    states = _stacked([run.state for run in runs])
    data, keys = _stacked([job.data for job in jobs]), _stacked([j.key for j in jobs])
    length = jobs[0].steps_per_record
    try:
        while any(run.history.status is Status.RUNNING for run in runs):
            began = time.monotonic()
            schedules = _stacked([run.schedule for run in runs])
            states, means = run_chunks(states, data, schedules, keys, length)
            parts, means = _unstacked(states, len(jobs)), np.asarray(means, float)
            for i, run in enumerate(runs):
                if run.history.status is Status.RUNNING:
                    runs[i] = advanced(jobs[i], run, parts[i], means[i])
                    runs[i].history.seconds += time.monotonic() - began
                    watch(numbers[i], _on_device(runs[i]))
    except KeyboardInterrupt:
        running = Status.RUNNING
        runs = [_interrupted(r) if r.history.status is running else r for r in runs]
    return [_on_device(run) for run in runs]


def _on_device(run: Run) -> Run:
    """The run with JAX arrays; between chunks its state holds NumPy arrays."""
    return replace(run, state=converted(run.state, jnp.asarray))


def _stacked(trees: list[PyTree]) -> PyTree:
    def stack(first: Any, *others: Any) -> Any:
        return jnp.stack([first, *others]) if eqx.is_array(first) else first

    return jax.tree.map(stack, *trees)


def _unstacked(tree: PyTree, count: int) -> list[PyTree]:
    """Parts of a stacked tree, as views into host memory."""
    host = converted(tree, np.asarray)
    return [converted(host, itemgetter(i)) for i in range(count)]
