"""Rows that are not on the device: which batch they are in, and what is learned."""

import gc
import threading
import time

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from builders import tiny_network

from farrier.scale import rows as sources
from farrier.scale import stream
from farrier.scale.placement import OneDevice
from farrier.scale.rows import ArrayRows
from farrier.scale.stream import LANES, Stream, read_ahead
from farrier.train.config import TrainConfig
from farrier.train.loop import Job, Run, train

ROWS = 1_003


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(sources, "PIECE", 37)


def table(rows: int = ROWS) -> ArrayRows:
    """Rows that differ from each other."""
    x = np.arange(2.0 * rows).reshape(rows, 2)
    return ArrayRows(x, x[:, :1] + 0.5)


@pytest.mark.parametrize("batch_size", [8, 64, 100])
def test_every_row_is_in_one_batch_of_a_pass(batch_size):
    rows = Stream(table(), batch_size=batch_size, key=jr.key(0))
    batches = [rows.batch(step) for step in range(rows.batches)]
    weight = np.concatenate([w for _, _, w in batches])
    x = np.concatenate([x for x, _, _ in batches])[weight > 0]
    assert sorted(x[:, 0]) == sorted(table().x[:, 0])
    np.testing.assert_array_equal(np.unique(weight), [0, rows.batches])


def test_targets_stay_with_their_rows():
    x, y, weight = Stream(table(), batch_size=64, key=jr.key(0)).batch(3)
    np.testing.assert_array_equal(y[weight > 0], x[weight > 0, :1] + 0.5)


def test_each_pass_has_an_order_of_its_own():
    rows = Stream(table(), batch_size=64, key=jr.key(0))
    first, second = (rows.batch(step)[0] for step in (0, rows.batches))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, Stream(table(), batch_size=64, key=jr.key(1)))


def test_a_batch_depends_on_its_step_alone(monkeypatch):
    monkeypatch.setattr(stream, "BUFFER_ROWS", 50)
    whole = Stream(table(), batch_size=64, key=jr.key(0))
    steps = range(2 * whole.batches)
    batches = [whole.batch(step)[0] for step in steps]
    for step in reversed(steps):
        alone = Stream(table(), batch_size=64, key=jr.key(0)).batch(step)[0]
        np.testing.assert_array_equal(alone, batches[step])


class Part(OneDevice):
    """One of several processes, as far as reading goes."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of

    def local_rows(self, rows: int) -> slice:
        each = rows // self.of
        return slice(self.number * each, (self.number + 1) * each)


@pytest.mark.parametrize("processes", [2, LANES, 2 * LANES])
def test_parts_that_are_read_apart_are_the_batch(processes):
    places = [Part(number, processes) for number in range(processes)]
    parts = [
        Stream(table(), batch_size=64, key=jr.key(0), placement=place).batch(5)[0]
        for place in places
    ]
    whole = Stream(table(), batch_size=64, key=jr.key(0)).batch(5)[0]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_rows_of_a_batch_come_from_all_over_the_table():
    x, _, _ = Stream(table(), batch_size=64, key=jr.key(0)).batch(0)
    tenths = np.unique(x[:, 0] // (2 * ROWS / 10))
    assert len(tenths) >= 8


def small_job(rows: ArrayRows, **settings) -> Job:
    network = tiny_network(2, (3,), rows=rows.rows, key=jr.key(0))
    config = TrainConfig(steps=40, batch_size=64, **settings)
    data = Stream(rows, batch_size=64, key=jr.key(1))
    return Job(Run.create(network, config), data, config, jr.key(2))


def standard() -> ArrayRows:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 2))
    return ArrayRows(x, np.sin(x[:, :1]))


def test_small_blocks_train_the_same(monkeypatch):
    large = train(small_job(standard()))
    monkeypatch.setattr(stream, "BLOCK_VALUES", 1)
    small = train(small_job(standard()))
    np.testing.assert_allclose(small.history.elbo, large.history.elbo, rtol=1e-5)
    assert len(large.history.step) == 40


def test_a_run_goes_on_in_the_middle_of_a_pass():
    whole = train(small_job(standard()))
    job, runs = small_job(standard()), []
    train(job, lambda run: runs.append(run))
    later = small_job(standard())
    later.run = runs[1]
    assert 0 < int(later.run.state.step) % later.data.batches
    again = train(later)
    np.testing.assert_array_equal(again.history.elbo, whole.history.elbo)


def test_the_elbo_of_a_pass_is_that_of_all_rows():
    source = standard()
    rows = Stream(source, batch_size=64, key=jr.key(0))
    network = small_job(source).run.state.network
    every = jnp.asarray(source.x), jnp.asarray(source.y), jnp.ones(ROWS)
    keys = jr.split(jr.key(5), 200)
    bound = eqx.filter_jit(lambda *rows, key: network.bound(*rows, key=key))
    whole = np.mean([bound(*every, key=k).log_likelihood for k in keys[:20]])
    parts = [
        bound(*map(jnp.asarray, rows.batch(i)), key=k).log_likelihood
        for i, k in zip(range(4 * rows.batches), keys, strict=False)
    ]
    error = np.std(parts) / np.sqrt(len(parts))
    assert abs(np.mean(parts) - whole) < 4 * error + 1e-3 * abs(whole)


def test_reading_ahead_gives_all_and_its_errors():
    assert [*read_ahead(iter(range(5)))] == [0, 1, 2, 3, 4]

    def broken():
        yield 1
        raise ValueError("row group 3")

    items = read_ahead(broken())
    assert next(items) == 1
    with pytest.raises(ValueError, match="row group 3"):
        next(items)


def test_nothing_reads_on_when_a_run_has_ended():
    before = {*threading.enumerate()}
    job = small_job(standard())
    train(job)
    started = {*threading.enumerate()} - before
    del job
    until = time.monotonic() + 30
    while any(t.is_alive() for t in started) and time.monotonic() < until:
        gc.collect()
        time.sleep(0.05)
    assert [thread.is_alive() for thread in started] == [False]
