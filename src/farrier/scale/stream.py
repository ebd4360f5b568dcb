"""Training on rows that are not on the device: batches are read in advance.

The rows are divided into lanes: lane l of L has the rows from l N / L to (l + 1) N / L,
and supplies 1 / L of each batch. In each pass a lane reads its pieces (row groups of a
file) in a new random order, a few at a time, and shuffles their rows. The batch of a
step depends only on the key and the step: a run can be resumed in the middle of a pass,
and any number of processes, each with its share of the lanes, uses the same batches.
"""

import bisect
import copy
import itertools
import math
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..train.data import RECORDS_PER_CHUNK, pad_rows
from ..train.schedule import Schedule
from ..train.step import TrainState, compiled, step_on
from .placement import ONE_DEVICE, AbstractPlacement
from .rows import Raw, RowSource

LANES = 8
BUFFER_ROWS = 2**16  # rows of a lane that are shuffled together; at least a piece
BLOCK_VALUES = 2**22  # inputs that are sent to the device at once
PLACES = 16  # positions from which sample inputs are read
AHEAD = 2  # blocks that are read while the device computes

Part: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]  # inputs, targets, weights
Pieces: TypeAlias = list[tuple[int, int]]  # first rows, and the rows after the last


class Block(eqx.Module):
    """Batches of a few steps, on the device."""

    x: Float[Array, "steps batch d_in"]
    y: Float[Array, "steps batch targets"] | Int[Array, "steps batch"]
    weight: Float[Array, "steps batch"]  # number of rows that each row represents


@dataclass
class Lane:
    """The rows from `first` to before `last` of a source, shuffled in each pass."""

    source: RowSource
    first: int
    last: int
    seed: tuple[int, ...]  # of the order of its rows
    _plan: tuple[int, list[Pieces]] = (-1, [])  # of one pass
    _buffer: tuple[Pieces, Part] | None = None

    def take(self, epoch: int, first: int, count: int) -> Part:
        """`count` rows of a pass from row `first` on; fewer at the end of the pass."""
        parts = []
        begin = 0
        for buffer in self._buffers(epoch):
            end = begin + sum(high - low for low, high in buffer)
            low, high = max(begin, first) - begin, min(end, first + count) - begin
            if low < high:
                rows = self._shuffled(buffer, epoch, begin)
                x, y, weight = (values[low:high] for values in rows)
                parts.append((x, y, weight))
            begin = end
        if not parts:
            parts = [_joined([self.source.read(self.first, self.first)])]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _buffers(self, epoch: int) -> list[Pieces]:
        """The pieces of this lane in the order of a pass, grouped into buffers."""
        if self._plan[0] != epoch:
            starts = self.source.pieces
            low = bisect.bisect_right(starts, self.first)
            inner = starts[low : bisect.bisect_left(starts, self.last)]
            cuts = [self.first, *inner, self.last]
            pieces = [*itertools.pairwise(cuts)]
            order = np.random.default_rng((*self.seed, epoch)).permutation(len(pieces))
            self._plan = (epoch, _buffered([pieces[i] for i in order]))
        return self._plan[1]

    def _shuffled(self, buffer: Pieces, epoch: int, begin: int) -> Part:
        """The rows of a buffer; the last buffer is kept."""
        if self._buffer is None or self._buffer[0] is not buffer:
            self._buffer = None  # before the next is read: memory has room for one
            rows = _joined([self.source.read(low, high) for low, high in buffer])
            seed = (*self.seed, epoch, begin + 1)
            order = np.random.default_rng(seed).permutation(len(rows[0]))
            x, y, weight = (values[order] for values in rows)
            self._buffer = buffer, (x, y, weight)
        return self._buffer[1]


def _joined(parts: Sequence[Raw]) -> Part:
    """The rows of all parts, which have targets."""
    x, y, weight = (np.concatenate(values) for values in zip(*parts, strict=True))
    return x, y, weight


def _buffered(pieces: Pieces) -> list[Pieces]:
    """Pieces in groups of about `BUFFER_ROWS` rows."""
    buffers, size = [], math.inf
    for low, high in pieces:
        if size >= BUFFER_ROWS:
            buffers.append([])
            size = 0
        buffers[-1].append((low, high))
        size += high - low
    return buffers


class Stream:
    """The rows of a source as rows to train on.

    Parameters
    ----------
    source
        Rows with targets, in the units of the network.
    key
        Random key of the order of the rows in each pass.
    placement
        The devices that train; they decide which rows of a batch are read here.
    """

    def __init__(
        self,
        source: RowSource,
        *,
        batch_size: int,
        key: PRNGKeyArray,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> None:
        self.rows = source.rows
        self.share = max(1, batch_size // LANES)  # rows of a lane in each batch
        self.batch_size = LANES * self.share
        self._source = source
        self._placement = placement
        self._local = placement.local_rows(self.batch_size)
        words = [int(word) for word in np.asarray(jr.key_data(key))]
        cuts = [number * self.rows // LANES for number in range(LANES + 1)]
        self._longest = max(b - a for a, b in itertools.pairwise(cuts))
        first, last = self._local.start, self._local.stop
        numbers = range(first // self.share, -(-last // self.share))
        self._lanes = [
            Lane(source, cuts[number], cuts[number + 1], (*words, number))
            for number in numbers
        ]
        self._skip = first - self.share * numbers.start  # rows that others read
        self._reader: Iterator[tuple[int, Part]] = iter(())
        self._begins: int | None = None  # step at which the reader's next block begins

    @property
    def shuffled(self) -> int:
        """All rows are shuffled for a pass."""
        return self.rows

    @property
    def batches(self) -> int:
        """Steps in one pass over the rows."""
        return -(-self._longest // self.share)

    def sample_inputs(self, count: int) -> Float[Array, "count d_in"]:
        """Inputs of `count` rows, from a few places spread evenly over all rows."""
        firsts = np.linspace(0, self.rows, PLACES, endpoint=False).astype(int).tolist()
        each = -(-count // PLACES)
        with self._placement.group.together():
            read = [self._source.read(f, min(f + each, self.rows))[0] for f in firsts]
        return jnp.asarray(np.concatenate(read)[:count], float)

    def advance(
        self,
        state: TrainState,
        schedule: Schedule,
        steps_per_record: int,
        *,
        key: PRNGKeyArray,
    ) -> tuple[TrainState, Float[Array, "records terms"]]:
        """The state after one more chunk of steps, and its records."""
        step, end = int(state.step), int(schedule.end)
        placement, communicating = self._placement, self._placement.group.communicating
        total = jnp.asarray(self.rows, float)
        put = placement.put_on_devices
        state, total, schedule, key = put((state, total, schedule, key))
        records = []
        for _ in range(RECORDS_PER_CHUNK):
            sums = put(jnp.zeros(len(state.network.term_names()) + 1))
            last = step + steps_per_record
            while step < min(last, end):
                block = self._next(step, steps_per_record)
                step = min(step + len(block.weight), last)
                stop = put(jnp.asarray(min(step, end), jnp.int32))
                with communicating():
                    state, sums = run_block(
                        state, sums, block, total, schedule, stop, placement, key=key
                    )
            with communicating():
                sums = placement.gathered(sums)
            records.append(sums[:-1] / sums[-1])  # NaN where no step was finite
        with communicating():
            return placement.gathered(state), jnp.stack(records)

    def _next(self, step: int, steps_per_record: int) -> Block:
        """The block that begins at a step; the next ones are read in the background."""
        with self._placement.group.together():
            if self._begins != step:
                blocks = self._without_reader()._blocks(step, steps_per_record)
                self._reader = read_ahead(blocks)
            self._begins, part = next(self._reader)
        return Block(*(self._placement.put_batches(v, self.batch_size) for v in part))

    def _without_reader(self) -> "Stream":
        """A copy for the reading thread, with lanes that no other thread reads.

        It has no reference to the reader, so that the thread ends when the stream is
        deleted.
        """
        twin = copy.copy(self)
        twin._reader = iter(())
        twin._lanes = [replace(v, _plan=(-1, []), _buffer=None) for v in self._lanes]
        return twin

    def _blocks(self, first: int, steps_per_record: int) -> Iterator[tuple[int, Part]]:
        """Blocks from a step on, without end, and the step after each block."""
        values = self.batch_size * self._source.read(0, 1)[0].shape[1]
        parts = -(-steps_per_record * values // BLOCK_VALUES)
        length = -(-steps_per_record // parts)
        for record in itertools.count(first, steps_per_record):
            ends = record + steps_per_record
            for begin in range(record, ends, length):
                batches = [self.batch(step) for step in range(begin, begin + length)]
                x, y, weight = (np.stack(v) for v in zip(*batches, strict=True))
                yield min(begin + length, ends), (x, y, weight)

    def batch(self, step: int) -> Part:
        """The local rows of a step, with weights as in (T1).

        A lane that has no rows left in a pass supplies rows of weight 0.
        """
        epoch, number = divmod(step, self.batches)
        parts = []
        for lane in self._lanes:
            x, y, weight = lane.take(epoch, number * self.share, self.share)
            weight = weight * self.batches
            parts.append([pad_rows(v, self.share) for v in (x, y, weight)])
        local = slice(self._skip, self._skip + self._local.stop - self._local.start)
        x, y, weight = (np.concatenate(v)[local] for v in zip(*parts, strict=True))
        return x, y, weight


@compiled
def run_block(
    state: TrainState,
    sums: Float[Array, " terms_and_one"],
    block: Block,
    total: Float[Array, ""],
    schedule: Schedule,
    stop: Int[Array, ""],
    placement: AbstractPlacement,
    *,
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, " terms_and_one"]]:
    """Run the steps of a block before `stop`, and add their terms to `sums`."""
    arrays, static = eqx.partition(state, eqx.is_array)
    shard = placement.shard

    def steps(block: Block, rest):
        start, total, schedule, stop, key = rest

        def one(carry, batch: Block):
            def step(carry):
                arrays, sums = carry
                rows = batch.x, batch.y, batch.weight
                now = eqx.combine(arrays, static)
                new, terms = step_on(now, rows, total, schedule, shard, key=key)
                return eqx.filter(new, eqx.is_array), sums + terms

            return lax.cond(carry[0].step < stop, step, lambda c: c, carry), None

        return lax.scan(one, start, block)[0]

    rest = (arrays, sums), total, schedule, stop, key
    arrays, sums = placement.by_parts(steps)(block, rest)
    return eqx.combine(arrays, static), sums


Item = TypeVar("Item")


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, computed in advance by a thread."""
    ready: queue.Queue[Item | BaseException] = queue.Queue(AHEAD)
    stopped = threading.Event()

    def put(item: Item | BaseException) -> None:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                break
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
        except BaseException as error:  # raised where the item is used
            put(error)
        else:
            put(StopIteration())

    threading.Thread(target=work, daemon=True).start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, StopIteration):
                return
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
