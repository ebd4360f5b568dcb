"""The schedule: learning rate, KL weight, share of the noise by row, averaging."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from farrier.train.config import TrainConfig
from farrier.train.schedule import Schedule


def steps_to(number):
    return jnp.arange(number, dtype=jnp.int32)


def test_schedule_by_hand():
    """Half a cosine, and a ramp of 6 steps out of 10 (T2)."""
    config = TrainConfig(steps=10, learning_rate=0.4, kl_weight=3.0, kl_annealing=0.6)
    schedule, steps = Schedule.create(config), steps_to(11)
    rates = jax.vmap(schedule.rate)(steps)
    root = math.sqrt(5)  # cos(36 degrees) = (1 + sqrt 5) / 4
    tenths = [1.0, 0.5 + math.sqrt(10 + 2 * root) / 8, 0.5 + (1 + root) / 8]
    np.testing.assert_allclose(rates[:3], 0.4 * np.array(tenths), rtol=1e-12)
    np.testing.assert_allclose(rates + rates[::-1], 0.4, rtol=1e-12)
    assert rates[10] == 0
    weights = jax.vmap(schedule.kl_weight_at)(steps)
    np.testing.assert_allclose(weights[:6], [0.5, 1, 1.5, 2, 2.5, 3], rtol=1e-12)
    np.testing.assert_array_equal(weights[6:], 3)


def test_without_annealing_the_kl_terms_have_full_weight_at_once():
    """W = 0 (T2)."""
    schedule = Schedule.create(TrainConfig(steps=10, kl_annealing=0.0))
    np.testing.assert_array_equal(jax.vmap(schedule.kl_weight_at)(steps_to(3)), 1)


def test_the_noise_varies_by_row_late_in_the_annealing():
    """Of 12 steps of annealing 10 at 0, one half-way, then 1 (T6)."""
    schedule = Schedule.create(TrainConfig(steps=24, kl_annealing=0.5))
    shares = jax.vmap(schedule.noise_share)(steps_to(24))
    np.testing.assert_allclose(shares[:10], 0, atol=1e-12)
    np.testing.assert_allclose(shares[10:], [0.5] + 13 * [1], rtol=1e-12)
    at_once = Schedule.create(TrainConfig(steps=24, kl_annealing=0.0))
    assert at_once.noise_share(jnp.zeros((), jnp.int32)) == 1


def test_cooling_starts_at_the_present_rate_and_ends_at_zero():
    """Whatever the rate was, with the KL annealing untouched (T2)."""
    schedule = Schedule.create(TrainConfig(steps=1_000, learning_rate=0.3))
    cooled = schedule.cooled(700, 800)
    at = lambda schedule, *steps: np.array([schedule.rate(jnp.int32(s)) for s in steps])
    now = at(schedule, 700)[0]
    np.testing.assert_allclose(at(cooled, 700, 750, 800), [now, now / 2, 0], rtol=1e-12)
    assert (np.diff(at(cooled, *range(700, 801, 10))) < 0).all()
    assert at(schedule, 800)[0] > 0.01
    step = jnp.int32(300)
    assert cooled.kl_weight_at(step) == schedule.kl_weight_at(step)


@pytest.mark.parametrize("averaging", [0.0, 0.75, 0.9])
def test_the_average_begins_as_a_plain_mean(averaging):
    """Step i weighs 1 / (i + 1) until that is less than 1 - averaging."""
    schedule = Schedule.create(TrainConfig(steps=40, averaging=averaging))
    weights = jax.vmap(schedule.averaging_weight)(steps_to(40))
    first = min(40, round(1 / (1 - averaging)))
    np.testing.assert_allclose(weights[:first], 1 / np.arange(1, first + 1), rtol=1e-12)
    np.testing.assert_allclose(weights[first:], 1 - averaging, rtol=1e-12)
