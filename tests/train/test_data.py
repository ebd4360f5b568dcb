"""Rows in memory: padding, shuffled batches, one program for many sizes."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from builders import fit, straight_line, tiny_network

from farrier.model.likelihoods import GaussianLikelihood
from farrier.train.config import TrainConfig
from farrier.train.data import Data, batch, epoch_order, next_order, pad_rows, round_up
from farrier.train.history import Status

ROWS, BATCH = 19, 7  # a pass is 7, 7 and 5 rows, out of 20 places
SIZES = [(19, 7), (100, 17), (10, 9), (9, 1), (12, 12), (13, 64)]


@pytest.mark.parametrize(("rows", "batch_size"), SIZES)
def test_a_pass_sees_each_row_once_and_its_mean_is_the_whole_sum(
    getkey, rows, batch_size
):
    """Short last batches and padding included; row i is i + 1 (T1)."""
    number = np.arange(1.0, rows + 1)
    omega = np.random.default_rng(rows).uniform(0.5, 2, rows)
    data = Data.create(number[:, None], number[:, None], omega, batch_size=batch_size)
    batches, key = int(data.batches), getkey()
    assert batches == math.ceil(rows / batch_size)

    @jax.jit
    def one_batch(step):
        return batch(data, epoch_order(data, step, key=key), step)

    orders = []
    for first in (0, 5 * batches):
        seen, sums = [], []
        for step in range(first, first + batches):
            x, y, weight = map(np.asarray, one_batch(jnp.int32(step)))
            assert len(x) <= max(batch_size, round_up(rows))
            np.testing.assert_array_equal(x, y)
            seen += x[weight > 0, 0].tolist()
            sums.append(weight @ x[:, 0] ** 2)
        assert sorted(seen) == number.tolist()
        np.testing.assert_allclose(np.mean(sums), omega @ number**2, rtol=1e-12)
        orders.append(seen)
    assert (orders[0] == orders[1]) == (batches == 1)


def test_order_is_kept_within_a_pass_and_made_anew_after_it(getkey):
    """What the scan carries along is the order of the pass it is in (T1)."""
    x, y = straight_line(key=getkey())
    data, key = Data.create(x, y, batch_size=BATCH), getkey()
    following = jax.jit(lambda order, step: next_order(order, data, step, key=key))
    fresh = jax.jit(lambda step: epoch_order(data, step, key=key))
    order = fresh(jnp.int32(0))
    passes = [np.asarray(order)[:ROWS]]
    for step in range(10):
        order = following(order, jnp.int32(step))
        np.testing.assert_array_equal(order, fresh(jnp.int32(step)))
        if step % 3 == 0 and step:
            passes.append(np.asarray(order)[:ROWS])
        np.testing.assert_array_equal(order[:ROWS], passes[-1])
    assert len(np.unique(passes, axis=0)) == 4


def test_another_key_is_another_order(getkey):
    x, y = straight_line(key=getkey())
    data = Data.create(x, y, batch_size=BATCH)
    first, second = (epoch_order(data, jnp.int32(0), key=getkey()) for _ in range(2))
    assert not (first == second).all()


def test_every_row_is_equally_likely_in_every_place(getkey):
    """Mean and variance of the place of each row, over 2000 passes."""
    data = Data.create(np.zeros((6, 1)), np.zeros((6, 1)), batch_size=2)
    key = getkey()
    orders = jax.vmap(lambda n: epoch_order(data, 3 * n, key=key))(
        jnp.arange(2_000, dtype=jnp.int32)
    )
    place = np.argsort(np.asarray(orders)[:, :6], axis=1)
    sd = math.sqrt(35 / 12)  # of a uniform place out of six
    assert (abs(place.mean(0) - 2.5) < 5 * sd / math.sqrt(2_000)).all()
    assert (abs(place.std(0) - sd) < 0.2).all()


def test_padding_is_little_and_leaves_few_sizes():
    sizes = {rows: round_up(rows) for rows in range(1, 5_000)}
    assert all(rows <= size <= 1.125 * rows + 1 for rows, size in sizes.items())
    assert len(set(sizes.values())) < 100
    assert all(round_up(size) == size for size in sizes.values())


def test_padded_rows_are_zeros_in_the_precision_of_jax():
    padded = pad_rows(np.array([[1.5], [2.5]], np.float32), 4)
    np.testing.assert_array_equal(padded, [[1.5], [2.5], [0], [0]])
    assert padded.dtype == jnp.result_type(float)
    assert pad_rows(np.array([3, 1]), 3).dtype == np.int32


def test_sampled_inputs_are_evenly_spaced_over_the_real_rows():
    x = np.arange(19.0)[:, None]
    data = Data.create(x, x, batch_size=BATCH)
    np.testing.assert_array_equal(data.sample_inputs(4)[:, 0], [0, 6, 12, 18])
    assert data.sample_inputs(100).max() == 18


class CountedLikelihood(GaussianLikelihood):
    """Notes each time that its expected log density is traced."""

    traces: ClassVar[list[int]] = []

    def expected_log_density(self, y, f):
        self.traces.append(1)
        return super().expected_log_density(y, f)


class CountedNoise:
    """Builds the likelihood that counts."""

    def build(self, targets, *, rows):
        from farrier.model.likelihoods import GaussianNoise

        return CountedLikelihood(**vars(GaussianNoise().build(targets, rows=rows)))


def test_the_elbo_is_traced_once_in_a_fit_and_not_for_one_row_less(getkey):
    """Chunks, cooling and a table of nearly the same size share one program."""
    config = TrainConfig(
        steps=300, batch_size=64, learning_rate=0.05, kl_annealing=0.1, tolerance=30.0
    )
    x, y = straight_line(18, key=getkey())
    CountedLikelihood.traces.clear()
    statuses = []
    for rows in (18, 17):
        network = tiny_network(rows=rows, likelihood=CountedNoise(), key=getkey())
        run = fit(network, x[:rows], y[:rows], config, key=getkey())
        statuses.append(run.history.status)
    assert statuses == [Status.CONVERGED] * 2
    assert len(CountedLikelihood.traces) == 1
