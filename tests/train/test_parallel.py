"""Many runs as one piece of work: groups, threads, interrupts."""

import threading
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from builders import generator_of, job_of, quick, tiny_network

from farrier.train import parallel
from farrier.train.data import Data
from farrier.train.history import Status
from farrier.train.loop import train
from farrier.train.parallel import Machine, cores, train_many

ROWS = 12
HERE = Machine(cores=cores())
ONE_BY_ONE = replace(HERE, group_size=1)


def numbered_job(seed, *, width=3, steps=40, learning_rate=0.02):
    """A run on rows of its own, with a key of its own."""
    key_data, key_network, key = jr.split(jr.key(seed), 3)
    x = generator_of(key_data).standard_normal((ROWS, 2))
    network = tiny_network(2, (width,), rows=ROWS, key=key_network)
    config = quick(steps, ROWS, learning_rate=learning_rate)
    return job_of(network, x, np.abs(x[:, :1]), config, key=key)


def assert_close_runs(a, b):
    """The same in all that a run holds, up to the rounding of sums."""
    arrays = lambda run: eqx.filter(run.state, eqx.is_inexact_array)
    assert eqx.tree_equal(arrays(a), arrays(b), rtol=1e-6, atol=1e-9)
    assert a.history.status is b.history.status
    np.testing.assert_array_equal(a.history.step, b.history.step)
    np.testing.assert_allclose(a.history.elbo, b.history.elbo, rtol=1e-7)


@pytest.fixture(scope="module")
def alone():
    """Runs of one shape, with rates of their own, each trained by itself."""
    jobs = [numbered_job(seed, learning_rate=0.01 * (1 + seed)) for seed in range(3)]
    return jobs, [train(job) for job in jobs]


def test_runs_in_a_group_end_as_they_do_alone(alone):
    """Rows, seeds and learning rates differ; shapes do not."""
    jobs, expected = alone
    ended = dict(train_many(jobs))
    assert ended.keys() == {0, 1, 2}
    for index, run in enumerate(expected):
        assert_close_runs(ended[index], run)
        assert ended[index].history.seconds > 0
    elbos = [run.history.elbo[-1] for run in expected]
    assert len(set(elbos)) == 3


def test_a_run_that_fills_a_cache_has_the_bits_of_its_own_training(alone):
    jobs, expected = alone
    for index, run in train_many(jobs, machine=ONE_BY_ONE):
        assert eqx.tree_equal(run.state, expected[index].state)


def test_groups_hold_runs_of_one_shape_and_use_every_core():
    jobs = [numbered_job(seed, width=3 + seed % 2) for seed in range(8)]
    groups = Machine(cores=2).groups(jobs)
    assert sorted(index for group in groups for index in group) == list(range(8))
    for group in groups:
        assert len({index % 2 for index in group}) == 1
        assert len(group) == 2  # four of a shape, on two cores
    # A batch of ROWS rows rounded up, times the nodes, fits twice.
    size = jobs[0].data.batch_size
    groups = Machine(cores=1, group_size=2 * 3 * size).groups(jobs)
    assert sorted(map(len, groups)) == [1, 1, 1, 1, 2, 2]
    # Shapes take turns, so that two programs are compiled side by side.
    assert [group[0] % 2 for group in groups] == [0, 1, 0, 1, 1, 1]
    # Another budget is another number of steps in a record: another program.
    other = [numbered_job(0), numbered_job(1, steps=4_000)]
    assert Machine(cores=1).groups(other) == [[0], [1]]


def test_runs_that_lose_nodes_go_alone():
    jobs = [numbered_job(seed) for seed in range(2)]
    for job in jobs:
        job.shrink = lambda job, run: run
    assert Machine(cores=1).groups(jobs) == [[0], [1]]


def test_threads_keep_the_order_and_the_precision():
    type_of = lambda number: (number, jnp.ones(()).dtype)
    for double in (False, True):
        with jax.enable_x64(double):
            expected = [type_of(number) for number in range(5)]
            assert parallel.in_threads(type_of, range(5)) == expected
    assert parallel.in_threads(type_of, []) == []


def test_runs_that_fill_all_cores_go_one_after_the_other():
    jobs = [numbered_job(seed) for seed in range(2)]
    assert Machine(cores=2).workers(jobs) == 2
    assert Machine(cores=2, fills=3 * jobs[0].data.batch_size).workers(jobs) == 1


def test_runs_that_shuffle_many_rows_go_alone():
    """In a group they would sort all of them at each step."""
    x = np.random.default_rng(0).standard_normal((3_000, 2))

    def groups_of(rows, batch_size):
        jobs = [numbered_job(seed) for seed in range(2)]
        for job in jobs:
            job.data = Data.create(x[:rows], x[:rows, :1], batch_size=batch_size)
        return Machine(cores=1).groups(jobs)

    assert groups_of(60, 20) == [[0, 1]]
    assert groups_of(3_000, 20) == [[0], [1]]
    assert groups_of(1_800, 1_800) == [[0, 1]]  # one batch: nothing is shuffled


def test_a_run_that_has_ended_stands_still_while_others_go_on(alone):
    """One of a group stops being finite; the other ends as it does alone."""
    jobs, expected = alone
    broken = numbered_job(5)
    broken.data = replace(broken.data, y=broken.data.y.at[0].set(np.nan))
    broken.config = quick(40, ROWS, max_bad_run=5)
    ended = dict(train_many([broken, jobs[1]]))
    assert ended[0].history.status is Status.NOT_FINITE
    assert ended[0].history.step[-1] == 10  # the first chunk
    assert_close_runs(ended[1], expected[1])


def test_each_chunk_is_reported_with_the_number_of_its_job(alone):
    jobs, _ = alone
    reports = []
    dict(
        train_many(
            jobs, lambda index, run: reports.append((index, int(run.state.step)))
        )
    )
    assert sorted(reports) == [(i, s) for i in range(3) for s in (10, 20, 30, 40)]


@pytest.mark.parametrize("machine", [ONE_BY_ONE, HERE], ids=["alone", "group"])
def test_an_interrupt_ends_all_with_what_they_have(alone, monkeypatch, machine):
    """`Ctrl-C` reaches the thread that waits; the others end after their chunk."""
    jobs, _ = alone
    calm, raised = parallel.wait, threading.Event()

    def wait(*args, **kwargs):
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt
        return calm(*args, **kwargs)

    monkeypatch.setattr(parallel, "wait", wait)
    ended = dict(train_many(jobs, lambda index, run: raised.wait(10), machine))
    assert ended.keys() == {0, 1, 2}
    for run in ended.values():
        assert run.history.status is Status.INTERRUPTED
        assert int(run.state.step) == max([0, *run.history.step])


def test_an_error_in_one_run_is_raised_and_ends_the_others(alone):
    jobs, _ = alone

    def fail(index, run):
        if index == 0:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        dict(train_many(jobs, fail, ONE_BY_ONE))
