"""Many runs as one piece of work: groups, threads, interrupts."""

import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.train import parallel
from farrier.train.config import TrainConfig
from farrier.train.data import Data
from farrier.train.history import Status
from farrier.train.loop import Job, Run, train
from farrier.train.parallel import train_many

ROWS = 12


def job_of(seed, *, width=3, steps=40, learning_rate=0.02, tolerance=0.0):
    """A run on rows of its own, with a key of its own."""
    key_data, key_network, key = jr.split(jr.key(seed), 3)
    generator = np.random.default_rng(np.asarray(jr.key_data(key_data)))
    x = generator.standard_normal((ROWS, 2))
    likelihood = GaussianNoise().build(1, rows=float(ROWS))
    network = Network.create(2, (width,), likelihood, Horseshoe(), key=key_network)
    config = TrainConfig(
        steps=steps,
        batch_size=ROWS,
        learning_rate=learning_rate,
        tolerance=tolerance,
    )
    data = Data.create(x, np.abs(x[:, :1]), batch_size=ROWS)
    return Job(Run.create(network, config), data, config, key)


def assert_close_runs(a, b):
    """The same in all that a run holds, up to the rounding of sums."""
    arrays = lambda run: eqx.filter(run.state, eqx.is_inexact_array)
    assert eqx.tree_equal(arrays(a), arrays(b), rtol=1e-6, atol=1e-9)
    assert a.history.status is b.history.status
    np.testing.assert_array_equal(a.history.step, b.history.step)
    np.testing.assert_allclose(a.history.bound, b.history.bound, rtol=1e-7)


@pytest.fixture(scope="module")
def alone():
    """Runs of one form, with rates of their own, each trained by itself."""
    jobs = [job_of(seed, learning_rate=0.01 * (1 + seed)) for seed in range(3)]
    return jobs, [train(job) for job in jobs]


def test_runs_in_a_group_end_as_they_do_alone(alone):
    """Rows, seeds and learning rates differ; shapes do not."""
    jobs, expected = alone
    found = dict(train_many(jobs))
    assert found.keys() == {0, 1, 2}
    for index, run in enumerate(expected):
        assert_close_runs(found[index], run)
        assert found[index].history.seconds > 0
    bounds = [run.history.bound[-1] for run in expected]
    assert len(set(bounds)) == 3


def test_a_run_that_fills_a_cache_has_the_bits_of_its_own_training(alone, monkeypatch):
    monkeypatch.setattr(parallel, "GROUP_SIZE", 1)
    jobs, expected = alone
    for index, run in train_many(jobs):
        assert eqx.tree_equal(run.state, expected[index].state)


def test_groups_hold_runs_of_one_form_and_use_every_core(monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    jobs = [job_of(seed, width=3 + seed % 2) for seed in range(8)]
    groups = parallel._groups(jobs)
    assert sorted(index for group in groups for index in group) == list(range(8))
    for group in groups:
        assert len({index % 2 for index in group}) == 1
        assert len(group) == 2  # four of a form, on two cores
    # A batch of ROWS rows rounded up, times the nodes, fits twice.
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    size = jobs[0].data.batch_size
    monkeypatch.setattr(parallel, "GROUP_SIZE", 2 * 3 * size)
    assert sorted(map(len, parallel._groups(jobs))) == [1, 1, 1, 1, 2, 2]
    # Forms take turns, so that two programs are compiled side by side.
    forms = [group[0] % 2 for group in parallel._groups(jobs)]
    assert forms == [0, 1, 0, 1, 1, 1]
    # Another budget is another number of steps in a record: another program.
    other = [job_of(0), job_of(1, steps=4_000)]
    assert parallel._groups(other) == [[0], [1]]


def test_threads_keep_the_order_and_the_precision():
    type_of = lambda number: (number, jnp.ones(()).dtype)
    for double in (False, True):
        with jax.enable_x64(double):
            expected = [type_of(number) for number in range(5)]
            assert parallel.in_threads(type_of, range(5)) == expected
    assert parallel.in_threads(type_of, []) == []


def test_runs_that_fill_all_cores_go_one_after_the_other(monkeypatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    jobs = [job_of(seed) for seed in range(2)]
    assert parallel._workers(jobs) == 2
    monkeypatch.setattr(parallel, "FILLS", 3 * jobs[0].data.batch_size)
    assert parallel._workers(jobs) == 1


def test_runs_that_shuffle_many_rows_go_alone(monkeypatch):
    """In a group they would sort all of them at each step."""
    monkeypatch.setattr(parallel, "cores", lambda: 1)
    x = np.random.default_rng(0).standard_normal((3_000, 2))

    def groups_of(rows, batch_size):
        jobs = [job_of(seed) for seed in range(2)]
        for job in jobs:
            job.data = Data.create(x[:rows], x[:rows, :1], batch_size=batch_size)
        return parallel._groups(jobs)

    assert groups_of(60, 20) == [[0, 1]]
    assert groups_of(3_000, 20) == [[0], [1]]
    assert groups_of(1_800, 1_800) == [[0, 1]]  # one batch: nothing is shuffled


def test_a_run_that_has_ended_stands_still_while_others_go_on(alone):
    """One of a group stops being finite; the other ends as it does alone."""
    jobs, expected = alone
    broken = job_of(5)
    broken.data = eqx.tree_at(
        lambda data: data.y, broken.data, broken.data.y.at[0].set(np.nan)
    )
    broken.config = TrainConfig(steps=40, batch_size=ROWS, tolerance=0.0, max_bad_run=5)
    found = dict(train_many([broken, jobs[1]]))
    assert found[0].history.status is Status.NOT_FINITE
    assert found[0].history.step[-1] == 10  # the first chunk
    assert_close_runs(found[1], expected[1])


def test_each_chunk_is_told_with_the_number_of_its_job(alone):
    jobs, _ = alone
    told = []
    dict(train_many(jobs, lambda index, run: told.append((index, int(run.state.step)))))
    assert sorted(told) == [(i, s) for i in range(3) for s in (10, 20, 30, 40)]


@pytest.mark.parametrize("group_size", [1, 2**14])
def test_an_interrupt_ends_all_with_what_they_have(alone, monkeypatch, group_size):
    """`Ctrl-C` reaches the thread that waits; the others end after their chunk."""
    monkeypatch.setattr(parallel, "GROUP_SIZE", group_size)
    jobs, _ = alone
    calm, raised = parallel.wait, threading.Event()

    def wait(*args, **kwargs):
        if not raised.is_set():
            raised.set()
            raise KeyboardInterrupt
        return calm(*args, **kwargs)

    monkeypatch.setattr(parallel, "wait", wait)
    found = dict(train_many(jobs, lambda index, run: raised.wait(10)))
    assert found.keys() == {0, 1, 2}
    for run in found.values():
        assert run.history.status is Status.INTERRUPTED
        assert int(run.state.step) == max([0, *run.history.step])


def test_an_error_in_one_run_is_raised_and_ends_the_others(alone, monkeypatch):
    monkeypatch.setattr(parallel, "GROUP_SIZE", 1)
    jobs, _ = alone

    def fail(index, run):
        if index == 0:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        dict(train_many(jobs, fail))
