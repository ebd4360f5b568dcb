"""Many training runs as one piece of work.

Runs of one shape that are small go together: one program trains a group of them side by
side (vmap), as many as fill a cache. Groups, and runs that fill it alone, go to as many
threads as there are cores. A run on its own has the bits of `train`; in a group, sums
are rounded in another order.
"""

import itertools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
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

GROUP_SIZE = 2**14  # activations of one step of a group: a few such arrays fit a cache
# Activations of a step whose matrix products XLA spreads over all cores: two such steps
# at once gain nothing.
FILLS = 2**17
# A group shuffles its rows in every step, not once a pass: vmap takes both branches.
MOST_SHUFFLED = 1_024

Item = TypeVar("Item")
Result = TypeVar("Result")


@compiled
def run_chunks(
    states: TrainState,
    data: Data,
    schedules: Schedule,
    keys: Key[Array, " runs"],
    length: int,
) -> tuple[TrainState, Float[Array, "runs records terms"]]:
    """`chunk` for runs of one form, stacked, with `length` steps in each record."""

    def one(
        state: TrainState, data: Data, schedule: Schedule, key: PRNGKeyArray
    ) -> tuple[TrainState, Float[Array, "records terms"]]:
        return chunk(state, data, schedule, length, RECORDS_PER_CHUNK, key=key)

    return eqx.filter_vmap(one)(states, data, schedules, keys)


def train_many(
    jobs: Sequence[Job], after_chunk: Callable[[int, Run], None] = lambda i, run: None
) -> Iterator[tuple[int, Run]]:
    """Train all; yields the number of each job and its run when it has ended.

    `after_chunk` is called with the number of a job and its run, one call at a time.
    `Ctrl-C` ends all with what was learned up to their last whole chunks.
    """
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
    with ThreadPoolExecutor(_workers(jobs)) as pool:
        groups = _groups(jobs)
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
        finally:  # also where a run failed, or who asked for them has
            stop.set()


def _interrupted(run: Run) -> Run:
    return replace(run, history=replace(run.history, status=Status.INTERRUPTED))


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def as_here(work: Callable[[Item], Result]) -> Callable[[Item], Result]:
    """The work with the precision of this thread, since a new one has the default."""
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


def _workers(jobs: Sequence[Job]) -> int:
    """Threads: one where a step fills all cores by itself, else one for each core."""
    return 1 if any(_activations(job) >= FILLS for job in jobs) else cores()


def _groups(jobs: Sequence[Job]) -> list[list[int]]:
    """Numbers of the jobs that go together.

    Forms take turns, so that the programs of two are compiled side by side.
    """
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        alike[_form(job)].append(index)
    by_form = []
    for members in alike.values():
        first = jobs[members[0]]
        size = max(1, GROUP_SIZE // _activations(first))
        size = size if first.shrink is None else 1  # its shape is its own
        size = size if first.data.shuffled <= MOST_SHUFFLED else 1
        # Not so large that a core has nothing to do.
        size = min(size, -(-len(members) // cores()))
        by_form.append([members[i : i + size] for i in range(0, len(members), size)])
    turns = itertools.zip_longest(*by_form)
    return [members for turn in turns for members in turn if members is not None]


def _form(job: Job) -> Hashable:
    """What two jobs must share to be trained by one program."""
    tree = (job.run.state, job.data, job.run.schedule)
    leaves, structure = jax.tree.flatten(tree)
    shapes = [(v.shape, v.dtype) if eqx.is_array(v) else v for v in leaves]
    return structure, tuple(shapes), job.steps_per_record, job.shrink is None


def _train_group(
    jobs: list[Job], numbers: list[int], watch: Callable[[int, Run], None]
) -> list[Run]:
    """Runs of one form, side by side; those that have ended stand still."""
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
