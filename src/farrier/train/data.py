"""Rows in memory: padding, shuffled batches, and compiled chunks of steps."""

import math
from typing import Self

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .schedule import Schedule
from .step import TrainState, Unsharded, compiled, step_on

RECORDS_PER_CHUNK = 10


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

    def sample_inputs(self, count: int) -> Float[Array, "count d_in"]:
        """Inputs of `count` evenly spaced rows."""
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
    """Values in the precision that JAX is set to, padded with zeros to `rows` rows."""
    dtype = jnp.result_type(float) if values.dtype.kind == "f" else jnp.int32
    padded = np.zeros((rows, *values.shape[1:]), dtype)
    padded[: len(values)] = values
    return padded


def round_up(rows: int) -> int:
    """The next size of the form m 2^k with 8 <= m <= 16: at most an eighth more."""
    unit = 2 ** max(0, (rows - 1).bit_length() - 4)
    return -(-rows // unit) * unit


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

    A record is the mean of every term of the ELBO over its finite steps.
    """
    arrays, static = eqx.partition(state, eqx.is_array)
    n_terms = len(state.network.term_names())
    total = data.rows.astype(data.weight.dtype)

    def one_step(carry, _):
        arrays, order, sums = carry
        now = eqx.combine(arrays, static)
        order = next_order(order, data, now.step, key=key)
        rows = batch(data, order, now.step)
        new, terms = step_on(now, rows, total, schedule, Unsharded(), key=key)
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


run_chunk = compiled(chunk)


def epoch_order(
    data: Data, step: Int[Array, ""], *, key: PRNGKeyArray
) -> Int[Array, " slots"]:
    """Row numbers in the order of the pass of `step`; padding comes last."""
    padded = len(data.weight)
    if not data.shuffled:
        return jnp.arange(padded)
    key_epoch = jr.fold_in(jr.fold_in(key, 2**32 - 1), step // data.batches)
    rank = jr.bits(key_epoch, (padded,), jnp.uint32) >> jnp.uint32(1)
    real = jnp.arange(padded, dtype=jnp.int32) < data.rows
    rank = jnp.where(real, rank, jnp.uint32(2**32 - 1))
    return jnp.pad(jnp.argsort(rank), (0, data.batch_size))


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
    """Rows of one step: the mean of the ELBOs of a pass is the ELBO (T1).

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
