"""The training loop: compiled chunks of steps, with decisions in between."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.network import Network
from .config import TrainConfig
from .data import RECORDS_PER_CHUNK
from .history import History, Status
from .schedule import Schedule
from .step import TrainState
from .stopping import gain_left

CHUNKS = 40


@dataclass
class Run:
    """A training run between two chunks, with all that the next chunk needs."""

    state: TrainState
    schedule: Schedule
    history: History

    @classmethod
    def create(cls, network: Network, config: TrainConfig) -> Self:
        """A run before its first step."""
        names = network.term_names()
        schedule = Schedule.create(config)
        history = History(np.zeros(0, int), {name: np.zeros(0) for name in names})
        return cls(TrainState.create(network, config), schedule, history)


@runtime_checkable
class TrainingRows(Protocol):
    """Rows to train on, in the units of the network: in memory or read in pieces."""

    @property
    def batch_size(self) -> int:
        """Number of rows in one step."""
        ...

    @property
    def rows(self) -> Any:
        """Number of rows."""
        ...

    @property
    def shuffled(self) -> int:
        """Number of rows that are shuffled for a pass."""
        ...

    @property
    def batches(self) -> Any:
        """Number of steps in one pass over the rows."""
        ...

    def sample_inputs(self, count: int) -> Float[Array, "count d_in"]:
        """Inputs of `count` evenly spaced rows."""
        ...

    def advance(
        self,
        state: TrainState,
        schedule: Schedule,
        steps_per_record: int,
        *,
        key: PRNGKeyArray,
    ) -> tuple[TrainState, Float[Array, "records terms"]]:
        """The state after one more chunk of steps, and the records of the chunk."""
        ...


@dataclass
class Job:
    """A run and all that it is trained with."""

    run: Run
    data: TrainingRows
    config: TrainConfig
    key: PRNGKeyArray
    shrink: Callable[["Job", Run], Run] | None = None  # called between chunks

    @property
    def steps_per_record(self) -> int:
        """Number of steps that one record of the history averages."""
        return max(1, self.config.steps // (CHUNKS * RECORDS_PER_CHUNK))


def train(job: Job, after_chunk: Callable[[Run], None] = lambda run: None) -> Run:
    """Continue a run until it ends; `run.history.status` tells how.

    `Ctrl-C` ends it with the state after the last whole chunk. `after_chunk` is called
    between chunks, to show progress or to write a checkpoint.
    """
    run = job.run
    try:
        while run.history.status is Status.RUNNING:
            began = time.monotonic()
            state, means = job.data.advance(
                run.state, run.schedule, job.steps_per_record, key=job.key
            )
            run = advanced(job, run, state, np.asarray(means, float))
            if job.shrink is not None and run.history.status is Status.RUNNING:
                run = job.shrink(job, run)
            run.history.seconds += time.monotonic() - began
            after_chunk(run)
    except KeyboardInterrupt:
        run.history.status = Status.INTERRUPTED
    return run


def advanced(job: Job, run: Run, state: TrainState, means: np.ndarray) -> Run:
    """The run after one more chunk: still running, cooling down or ended."""
    config, length = job.config, job.steps_per_record
    before, end = int(run.state.step), int(run.schedule.end)
    now = int(state.step)
    steps = before + length * np.arange(1, RECORDS_PER_CHUNK + 1)
    used = steps < end + length  # records that lie past the budget are empty
    names = list(run.history.terms)
    terms = dict(zip(names, means[used].T, strict=True))
    history = run.history.extended(np.minimum(steps[used], end), terms)
    history.skipped = int(state.skipped)
    if history.skipped:
        history.bad_step = int(state.bad_step)
        history.bad_term = [*names, "gradient"][int(state.bad_term)]
    schedule = run.schedule
    cooling = int(schedule.start) > 0
    if int(state.bad_run) >= config.max_bad_run:
        history.status = Status.NOT_FINITE
    elif now >= end:
        history.status = Status.CONVERGED if cooling else Status.BUDGET
    elif not cooling and config.tolerance > 0:
        gain = gain_left(history, int(schedule.annealing), end)
        shortest = now + max(length * RECORDS_PER_CHUNK, config.steps // 10)
        if gain < config.tolerance * int(job.data.rows) and shortest < end:
            schedule = schedule.cooled(now, shortest)
    return Run(state, schedule, history)
