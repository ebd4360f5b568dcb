"""Training: one compiled scan over a chunk of steps, and a host loop over chunks.

Step i of a run uses the key fold_in(key, i) and nothing else that is random, so that a
run that was stopped and resumed ends with the same bits as one that was not.
"""

import enum
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..core.random import fold_in
from ..model.network import Network

RECORDS_PER_CHUNK = 10
CHUNKS = 40
PLATEAU_RECORDS = 40  # a tenth of the budget
LEAST_RECORDS = 10  # from which a slope at the end is told
NOISE_WAITS = 5 / 6  # of the warm-up, before rows have a noise of their own
COMPILER_OPTIONS = {
    # XLA's own choice is 256 bits; where a processor has no wider, nothing changes.
    "xla_cpu_prefer_vector_width": 512,
    # Fewer copies of what a loop carries: a twentieth of a small step. Bits stay.
    "xla_cpu_copy_insertion_use_region_analysis": True,
}


@dataclass(frozen=True, kw_only=True)
class KlRelease:
    """A weight of the divergences that is high at first and low at the end (T5).

    Under the high weight nodes switch off; under the low one those that are left fit
    the rows more closely. What is maximised at the end is the bound only if `final` is
    1.

    Parameters
    ----------
    peak
        Weight after the warm-up.
    final
        Weight at the end.
    begin, end
        Shares of the budget between which it falls, linearly, from `peak` to `final`.
    """

    peak: float = 0.3
    final: float = 0.03
    begin: float = 0.4
    end: float = 0.6

    def __post_init__(self) -> None:
        for name in ("peak", "final"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(
                    f"`{name}` must be positive and finite, got {value!r}."
                )
        shares = self.begin, self.end
        if not (
            all(isinstance(v, int | float) for v in shares)
            and 0 <= shares[0] <= shares[1] <= 1
        ):
            raise ValueError(
                "`begin` and `end` are shares of the steps, from 0 to 1 and in order, "
                f"got {self.begin!r} and {self.end!r}."
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long and how fast to train.

    Parameters
    ----------
    steps
        Budget; training may stop before it (`tolerance`).
    batch_size
        Most rows in one step. A pass is cut into batches of nearly equal size.
    kl_weight
        Weight of the divergences, 1 being the exact bound, or how it falls.
    kl_warm_up
        Share of the budget over which that weight rises linearly from 0.
    averaging
        The network of a run is a moving average over its steps, each of which keeps
        this share of the average before it; 0 is the network of the last step.
    tolerance
        Stop when the gain still to be had, in nats a row, is surely under this.
    max_bad_run
        Stop after this many steps in a row that were not finite.
    """

    steps: int = 5_000
    batch_size: int = 512
    learning_rate: float = 0.01
    kl_weight: float | KlRelease = 1.0
    kl_warm_up: float = 0.6
    averaging: float = 0.0
    tolerance: float = 1e-3
    max_bad_run: int = 20

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "max_bad_run"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )
        for name in ("learning_rate", "kl_weight"):
            value = getattr(self, name)
            if not (isinstance(value, KlRelease) or 0 < value < math.inf):
                raise ValueError(
                    f"`{name}` must be positive and finite, got {value!r}."
                )
        if not 0 <= self.kl_warm_up <= 1:
            raise ValueError(
                "`kl_warm_up` is a share of the steps, from 0 to 1, got "
                f"{self.kl_warm_up!r}."
            )
        if not 0 <= self.averaging < 1:
            raise ValueError(
                "`averaging` is a share, from 0 to less than 1, got "
                f"{self.averaging!r}."
            )
        if not self.tolerance >= 0:
            raise ValueError(
                f"`tolerance` must not be negative, got {self.tolerance!r}."
            )


Function = TypeVar("Function", bound=Callable)


class Data(eqx.Module):
    """Rows on the device, padded so that nearby sizes share one compiled program."""

    x: Float[Array, "padded d_in"]
    y: Float[Array, "padded targets"] | Int[Array, " padded"]
    weight: Float[Array, " padded"]  # 0 for padding
    rows: Int[Array, ""]  # without the padding
    batch_size: int = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None = None,
        *,
        batch_size: int,
    ) -> Self:
        """Rows in the precision that JAX is set to."""
        rows = len(x)
        batches = math.ceil(rows / batch_size)
        even = round_up(math.ceil(rows / batches))
        size = even if batches == 1 else min(even, batch_size)
        padded = size if batches == 1 else round_up(rows)
        weight = np.ones(rows) if weight is None else weight

        x, y, weight = (pad_rows(values, padded) for values in (x, y, weight))
        return cls(
            jnp.asarray(x),
            jnp.asarray(y),
            jnp.asarray(weight),
            jnp.asarray(rows, jnp.int32),
            size,
        )

    @property
    def shuffled(self) -> int:
        """Rows, padding included, that are shuffled for a pass; 0 for one batch."""
        padded = len(self.weight)
        return 0 if padded == self.batch_size else padded

    @property
    def batches(self) -> Int[Array, ""]:
        """Steps in one pass over the rows."""
        return -(-self.rows // self.batch_size)

    def some(self, count: int) -> Float[Array, "count d_in"]:
        """Inputs of so many rows, spread evenly over all."""
        return self.x[np.linspace(0, int(self.rows) - 1, count).astype(int)]

    def advance(
        self,
        state: "TrainState",
        schedule: "Schedule",
        steps_per_record: int,
        *,
        key: PRNGKeyArray,
    ) -> tuple["TrainState", Float[Array, "records terms"]]:
        """The state after one more chunk of steps, and its records."""
        return run_chunk(
            state, self, schedule, steps_per_record, RECORDS_PER_CHUNK, key=key
        )


def pad_rows(values: np.ndarray, rows: int) -> np.ndarray:
    """Values in the precision that JAX is set to, with zeros up to so many rows."""
    dtype = jnp.result_type(float) if values.dtype.kind == "f" else jnp.int32
    padded = np.zeros((rows, *values.shape[1:]), dtype)
    padded[: len(values)] = values
    return padded


def round_up(rows: int) -> int:
    """The next size of the form m 2^k with 8 <= m <= 16: at most an eighth more."""
    unit = 2 ** max(0, (rows - 1).bit_length() - 4)
    return -(-rows // unit) * unit


class Falling(eqx.Module):
    """A weight that goes from `peak` at step `begin` linearly to another at `end`."""

    peak: Float[Array, ""]
    begin: Int[Array, ""]
    end: Int[Array, ""]

    def towards(
        self, final: Float[Array, ""], step: Int[Array, ""]
    ) -> Float[Array, ""]:
        """The weight at a step: final + (peak - final) c(step)   (T5)."""
        length = jnp.maximum(self.end - self.begin, 1).astype(final.dtype)
        left = (self.end - step).astype(final.dtype) / length
        return final + (self.peak - final) * jnp.clip(left, 0, 1)


class Schedule(eqx.Module):
    """Learning rate and weight of the divergences at each step.

    rate(i) = start_rate (1 + cos(pi (i - start) / (end - start))) / 2
    kl_weight(i) = kl_weight min(1, (i + 1) / warm_up)                           (T2)

    where `kl_weight` falls from a peak to its final value if there is a `release` (T5),
    and the share of step i in the moving average of the parameters,
    max(1 - averaging, 1 / (i + 1)): a plain mean at first; the start has no say.
    """

    start_rate: Float[Array, ""]
    start: Int[Array, ""]
    end: Int[Array, ""]
    kl_weight: Float[Array, ""]
    warm_up: Int[Array, ""]
    averaging: Float[Array, ""]
    release: Falling | None = None

    @classmethod
    def create(cls, config: TrainConfig) -> Self:
        """The schedule of a run from its first step."""
        step = lambda share: jnp.asarray(round(share * config.steps), jnp.int32)
        weight, release = config.kl_weight, None
        if isinstance(weight, KlRelease):
            peak = jnp.asarray(weight.peak, float)
            release = Falling(peak, step(weight.begin), step(weight.end))
            weight = weight.final
        return cls(
            jnp.asarray(config.learning_rate, float),
            jnp.zeros((), jnp.int32),
            jnp.asarray(config.steps, jnp.int32),
            jnp.asarray(weight, float),
            step(config.kl_warm_up),
            jnp.asarray(config.averaging, float),
            release,
        )

    @property
    def settled(self) -> int:
        """The step from which the weight of the divergences stays as it is."""
        falls = 0 if self.release is None else int(self.release.end)
        return max(int(self.warm_up), falls)

    def rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate: half a cosine from `start` to `end`."""
        dtype = self.start_rate.dtype
        progress = (step - self.start).astype(dtype) / (self.end - self.start).astype(
            dtype
        )
        return self.start_rate * 0.5 * (1 + jnp.cos(jnp.pi * progress))

    def kl_weight_at(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the divergences: linear over the warm-up, constant or released."""
        weight = self.kl_weight
        if self.release is not None:
            weight = self.release.towards(weight, step)
        return weight * jnp.minimum(1, self._warmth(step))

    def noise_share(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Share of the noise that rows have of their own: 1 after the warm-up (T6)."""
        done = self._warmth(step) - NOISE_WAITS
        return jnp.clip(done / (1 - NOISE_WAITS), 0, 1)

    def _warmth(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Steps done over those of the warm-up: 1 at its end, and more after it."""
        dtype = self.kl_weight.dtype
        return (step + 1).astype(dtype) / jnp.maximum(self.warm_up, 1).astype(dtype)

    def share(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Share of a step in the moving average."""
        steps = (step + 1).astype(self.averaging.dtype)
        return jnp.maximum(1 - self.averaging, 1 / steps)

    def cooled(self, now: int, end: int) -> Self:
        """The schedule that goes from the present rate down to 0 at `end`."""
        step = jnp.asarray(now, jnp.int32)
        return replace(
            self,
            start_rate=self.rate(step),
            start=step,
            end=jnp.asarray(end, jnp.int32),
        )


class TrainState(eqx.Module):
    """All that a run needs to go on from here."""

    network: Network
    optimiser: PyTree
    average: PyTree  # of the network's parameters over the steps, or None
    step: Int[Array, ""]
    skipped: Int[Array, ""]  # steps that were not finite
    bad_run: Int[Array, ""]  # of them, those at the end in a row
    bad_step: Int[Array, ""]  # the first of them, or -1
    bad_term: Int[Array, ""]  # its first term that was not finite

    @classmethod
    def create(cls, network: Network, config: TrainConfig) -> Self:
        """A run before its first step."""
        params = eqx.filter(network, eqx.is_inexact_array)
        average = params if config.averaging else None
        zero = jnp.zeros((), jnp.int32)
        return cls(
            network, adam().init(params), average, zero, zero, zero, zero - 1, zero
        )

    @property
    def result(self) -> Network:
        """The network that the run has to show: the average, where there is one."""
        return eqx.combine(self.average, self.network)


def converted(tree: PyTree, convert: Callable[[Any], Any]) -> PyTree:
    """The tree with all its arrays converted: `np.asarray`, `jnp.asarray`, a part."""
    return jax.tree.map(lambda v: convert(v) if eqx.is_array(v) else v, tree)


class Status(enum.StrEnum):
    """How a run ended."""

    RUNNING = "running"
    BUDGET = "budget"
    CONVERGED = "converged"
    INTERRUPTED = "interrupted"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Removal:
    """Nodes of one hidden layer that left the network while it was trained."""

    step: int
    layer: int  # 1 is the first
    nodes: tuple[int, ...]  # the numbers that they had at the start


@dataclass
class History:
    """The bound and its terms over the steps, in nats over the whole data set.

    Each entry is the mean over the steps since the entry before it. Where nodes have
    left, the bound is that of the network without them.
    """

    step: np.ndarray
    terms: dict[str, np.ndarray]
    status: Status = Status.RUNNING
    skipped: int = 0
    bad_step: int = -1
    bad_term: str = ""
    seconds: float = 0.0
    removed: tuple[Removal, ...] = ()

    @property
    def log_likelihood(self) -> np.ndarray:
        """Expected log likelihood."""
        return self.terms["log_likelihood"]

    @property
    def kl(self) -> dict[str, np.ndarray]:
        """Every divergence: `layer_1/beta`, `layer_1/tau`, ..."""
        return {n: v for n, v in self.terms.items() if n != "log_likelihood"}

    @property
    def bound(self) -> np.ndarray:
        """The exact bound, with every divergence at weight 1."""
        return self.log_likelihood - sum(self.kl.values())

    def summary(self) -> dict[str, Any]:
        """All but the records, as plain values."""
        return {k: v for k, v in asdict(self).items() if k not in ("step", "terms")}

    def extended(self, step: np.ndarray, terms: dict[str, np.ndarray]) -> "History":
        """The history with the records of one more chunk."""
        joined = {n: np.concatenate([self.terms[n], terms[n]]) for n in self.terms}
        return replace(self, step=np.concatenate([self.step, step]), terms=joined)


def adam() -> optax.GradientTransformation:
    """The optimiser, without its learning rate."""
    return optax.scale_by_adam()


def chunk(
    state: TrainState,
    data: Data,
    schedule: Schedule,
    steps_per_record: int,
    records: int,
    *,
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, "records terms"]]:
    """`records` x `steps_per_record` steps, as one program; none past the budget.

    Each record holds the mean of every term of the bound over its finite steps.
    """
    arrays, static = eqx.partition(state, eqx.is_array)
    n_terms = len(state.network.term_names())
    total = data.rows.astype(data.weight.dtype)

    def one_step(carry, _):
        arrays, order, sums = carry
        now = eqx.combine(arrays, static)
        order = next_order(order, data, now.step, key=key)
        rows = batch(data, order, now.step)
        new, terms = step_on(now, rows, total, schedule, Whole(), key=key)
        return (eqx.filter(new, eqx.is_array), order, sums + terms), None

    def guarded(carry, _):
        inside = carry[0].step < schedule.end
        return lax.cond(inside, one_step, lambda c, _: (c, None), carry, None)

    def record(carry, _):
        start = (*carry, jnp.zeros(n_terms + 1))
        (*carry, sums), _ = lax.scan(guarded, start, length=steps_per_record)
        return tuple(carry), sums[:-1] / sums[-1]  # NaN where no step was finite

    order = epoch_order(data, state.step, key=key)
    (arrays, _), means = lax.scan(record, (arrays, order), length=records)
    return eqx.combine(arrays, static), means


def compiled(function: Function) -> Function:
    """The function, compiled for training."""
    jit: Any = eqx.filter_jit
    return jit(function, compiler_options=COMPILER_OPTIONS)


run_chunk = compiled(chunk)


Tree = TypeVar("Tree", bound=PyTree)


@dataclass(frozen=True)
class Whole:
    """A step whose rows are all here."""

    parts: int = 1  # into which the rows of a batch are cut

    def first(self, rows: int) -> int | Int[Array, ""]:
        """Number in the batch of the first of so many rows."""
        del rows
        return 0

    def added(self, tree: Tree) -> Tree:
        """The sum of these values over all parts."""
        return tree


def step_on(
    state: TrainState,
    rows: tuple[Array, Array, Array],
    total: Float[Array, ""],
    schedule: Schedule,
    part: Whole,
    *,
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, " terms_and_one"]]:
    """One step of the optimiser; one that is not finite is counted and changes nothing.

    Returned with the terms of the bound and a last entry of 1, or zeros for a bad step.

    Parameters
    ----------
    rows
        Inputs, targets, and how many rows of the data set each stands for.
    total
        Rows of the data set.
    part
        Which of the batch these rows are: gradients and terms are those of all of it.
    """
    x, y, weight = rows
    params, fixed = eqx.partition(state.network, eqx.is_inexact_array)
    names = state.network.term_names()

    def loss(params):
        network = eqx.combine(params, fixed)
        key_step, first = fold_in(key, state.step), part.first(len(x))
        share = schedule.noise_share(state.step)
        bound = network.bound(
            x, y, weight, key=key_step, first=first, noise_share=share
        ).cut(part.parts)
        kl_weight = schedule.kl_weight_at(state.step)
        terms = bound.terms()
        loss = -bound.weighted(kl_weight) / total
        return loss, jnp.stack([terms[n] for n in names])

    (_, terms), grads = jax.value_and_grad(loss, has_aux=True)(params)
    terms, grads = part.added((terms, grads))

    def move(params, optimiser, average):
        with jax.numpy_dtype_promotion("standard"):
            updates, optimiser = adam().update(grads, optimiser, params)
        rate = schedule.rate(state.step)
        params = jax.tree.map(lambda p, u: p - rate * u, params, updates)
        params = eqx.filter(eqx.combine(params, fixed).updated(), eqx.is_inexact_array)
        if average is not None:
            share = schedule.share(state.step)
            average = jax.tree.map(lambda a, p: a + share * (p - a), average, params)
        return params, optimiser, average

    term_finite = jnp.isfinite(terms)
    good = term_finite.all() & jnp.isfinite(optax.tree.norm(grads))
    params, optimiser, average = lax.cond(
        good, move, lambda *old: old, params, state.optimiser, state.average
    )
    bad_term = jnp.where(term_finite.all(), len(terms), jnp.argmin(term_finite))
    first = ~good & (state.bad_step < 0)
    bad = (~good).astype(jnp.int32)
    new = TrainState(
        eqx.combine(params, fixed),
        optimiser,
        average,
        state.step + 1,
        state.skipped + bad,
        (state.bad_run + 1) * bad,
        jnp.where(first, state.step, state.bad_step),
        jnp.where(first, bad_term.astype(jnp.int32), state.bad_term),
    )
    counted = jnp.append(terms, jnp.ones_like(terms[0]))
    return new, jnp.where(good, counted, 0)


def epoch_order(
    data: Data, step: Int[Array, ""], *, key: PRNGKeyArray
) -> Int[Array, " slots"]:
    """Row numbers in the order of the pass that holds `step`; padding comes last."""
    padded = len(data.weight)
    if not data.shuffled:
        return jnp.arange(padded)
    key_epoch = jr.fold_in(jr.fold_in(key, 2**32 - 1), step // data.batches)
    lots = jr.bits(key_epoch, (padded,), jnp.uint32) >> jnp.uint32(1)
    real = jnp.arange(padded, dtype=jnp.int32) < data.rows
    lots = jnp.where(real, lots, jnp.uint32(2**32 - 1))
    return jnp.pad(jnp.argsort(lots), (0, data.batch_size))


def next_order(order, data: Data, step: Int[Array, ""], *, key: PRNGKeyArray):
    """The order for `step`: shuffled anew where a pass begins."""
    if not data.shuffled:
        return order
    return lax.cond(
        step % data.batches == 0,
        lambda: epoch_order(data, step, key=key),
        lambda: order,
    )


def batch(data: Data, order: Int[Array, " slots"], step: Int[Array, ""]):
    """Rows of one step; the mean over a pass of their bounds is the bound (T1).

    With J batches in a pass every row stands for J rows, also in a short last batch.
    """
    if not data.shuffled:
        return data.x, data.y, data.weight
    first = (step % data.batches) * data.batch_size
    rows = lax.dynamic_slice(order, (first,), (data.batch_size,))
    real = first + jnp.arange(data.batch_size, dtype=jnp.int32) < data.rows
    weight = jnp.where(real, data.weight[rows], 0) * data.batches.astype(
        data.weight.dtype
    )
    return data.x[rows], data.y[rows], weight


def gain_left(history: History, since: int, until: int) -> float:
    """Upper limit, in nats, on what the bound will still gain by step `until` (T3).

    A straight line through the last records after step `since`: two standard errors
    above its slope, carried on to the end. Infinite while there are too few records.
    """
    recent = (history.step > since) & np.isfinite(history.bound)
    step = history.step[recent][-PLATEAU_RECORDS:]
    bound = history.bound[recent][-PLATEAU_RECORDS:]
    if len(step) < PLATEAU_RECORDS:
        return math.inf
    slope, error = _line(step, bound)
    return float((slope + 2 * error) * (until - step[-1]))


def rise_at_the_end(history: History, settled: int = 0) -> float:
    """Least, in nats, that the bound surely gained at the end of a run (T4).

    A straight line through the last fifth of its records, or the last half of those
    after the step `settled`, from which the objective stayed as it was, if these are
    fewer: two standard errors under its slope, times its length. Zero where that is
    less, or where there are too few records.
    """
    finite = np.isfinite(history.bound)
    step, bound = history.step[finite], history.bound[finite]
    last = min(len(step) // 5, int((step > settled).sum()) // 2)
    if last < LEAST_RECORDS:
        return 0.0
    step, bound = step[-last:], bound[-last:]
    slope, error = _line(step, bound)
    return max(0.0, float((slope - 2 * error) * (step[-1] - step[0])))


def _line(step: np.ndarray, bound: np.ndarray) -> tuple[float, float]:
    """Slope of a straight line through records, and its standard error."""
    centred = step - step.mean()
    spread = (centred**2).sum()
    slope = (centred * bound).sum() / spread
    residual = bound - bound.mean() - slope * centred
    return slope, math.sqrt((residual**2).sum() / (len(step) - 2) / spread)


@dataclass
class Run:
    """A training run between two chunks: all that it needs to go on."""

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
class Rows(Protocol):
    """The rows of a data set, wherever they are."""

    @property
    def batch_size(self) -> int:
        """How many stand in one step."""
        ...

    @property
    def rows(self) -> Any:
        """How many there are."""
        ...

    @property
    def shuffled(self) -> int:
        """How many are shuffled for a pass."""
        ...

    @property
    def batches(self) -> Any:
        """Steps in one pass over them."""
        ...

    def some(self, count: int) -> Float[Array, "count d_in"]:
        """Inputs of so many rows, spread evenly over all."""
        ...

    def advance(
        self,
        state: TrainState,
        schedule: Schedule,
        steps_per_record: int,
        *,
        key: PRNGKeyArray,
    ) -> tuple[TrainState, Float[Array, "records terms"]]:
        """The state after one more chunk of steps, and its records."""
        ...


@dataclass
class Job:
    """A run and all that it is trained with."""

    run: Run
    data: Rows
    config: TrainConfig
    key: PRNGKeyArray
    shrink: Callable[["Job", Run], Run] | None = None  # called between chunks

    @property
    def steps_per_record(self) -> int:
        """Steps over which one record of the history is a mean."""
        return max(1, self.config.steps // (CHUNKS * RECORDS_PER_CHUNK))


def train(job: Job, after_chunk: Callable[[Run], None] = lambda run: None) -> Run:
    """Go on with a run until it ends; `run.history.status` says how.

    `Ctrl-C` ends it with what was learned up to the last whole chunk. `after_chunk` is
    called between chunks, to show progress or to write a checkpoint.
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
    """The run after one more chunk, with the decision whether it was the last."""
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
        gain = gain_left(history, schedule.settled, end)
        shortest = now + max(length * RECORDS_PER_CHUNK, config.steps // 10)
        if gain < config.tolerance * int(job.data.rows) and shortest < end:
            schedule = schedule.cooled(now, shortest)
    return Run(state, schedule, history)
