"""When training may stop, and whether it ended too early."""

import math

import numpy as np
import pytest
from scipy import stats

from farrier.train.history import History
from farrier.train.stopping import PLATEAU_RECORDS, gain_left, rise_at_the_end

RECORDS = 100


def history_of(bound, *, every=10):
    """Records of an ELBO with one KL term, of 3 nats."""
    kl = np.full(len(bound), 3.0)
    step = every * np.arange(1, len(bound) + 1)
    return History(step, {"log_likelihood": bound + 3, "output/beta": kl})


def noisy(slope, *, noise=0.2, records=RECORDS, seed=0):
    generator = np.random.default_rng(seed)
    return slope * np.arange(records) + noise * generator.standard_normal(records)


@pytest.mark.parametrize("slope", [-0.3, 0.0, 0.3])
def test_gain_left_is_a_line_carried_on(slope):
    """Slope and standard error by scipy, over the last 40 records (T3)."""
    bound = noisy(slope)
    bound[:-PLATEAU_RECORDS] += 1_000  # older records do not count
    history = history_of(bound)
    line = stats.linregress(history.step[-40:], bound[-40:])
    expected = (line.slope + 2 * line.stderr) * (3_000 - 1_000)
    np.testing.assert_allclose(gain_left(history, 0, 3_000), expected, rtol=1e-9)


def test_gain_left_separates_a_plateau_from_a_rise():
    """In nats, over 1000 more steps: 100 records of noise 0.2 (T3)."""
    gains = {
        slope: [
            gain_left(history_of(noisy(slope, seed=s)), 0, 2_000) for s in range(50)
        ]
        for slope in (-1.0, 0.0, 1.0)
    }
    # The error of the slope: 0.2 / sqrt(40 (40^2 - 1) / 12), a record, is 0.0027.
    assert max(gains[-1.0]) < -90
    assert np.mean(np.array(gains[0.0]) > 0) > 0.9  # two standard errors of optimism
    assert max(gains[0.0]) < 100 * 7 * 0.0027
    assert min(gains[1.0]) > 95


def test_gain_left_waits_while_noise_hides_the_slope():
    """Ten times the noise, ten times the gain that may be left (T3)."""
    quiet, loud = (
        gain_left(history_of(noisy(0.0, noise=noise)), 0, 2_000) for noise in (0.1, 1.0)
    )
    np.testing.assert_allclose(loud, 10 * quiet, rtol=1e-9)


def test_gain_left_needs_enough_records_after_the_annealing():
    """40 of them, after step `since` (T3)."""
    history = history_of(noisy(0.0))
    assert math.isfinite(gain_left(history, 609, 2_000))
    assert gain_left(history, 610, 2_000) == math.inf
    assert gain_left(history_of(noisy(0.0, records=39)), 0, 2_000) == math.inf


def test_gain_left_ignores_records_that_are_not_finite():
    """They do not count among the 40 either (T3)."""
    history = history_of(noisy(0.1))
    bad = np.arange(RECORDS) % 2 == 1
    good = History(history.step[~bad], {n: v[~bad] for n, v in history.terms.items()})
    history.terms["log_likelihood"] = np.where(
        bad, np.nan, history.terms["log_likelihood"]
    )
    assert gain_left(history, 0, 2_000) == gain_left(good, 0, 2_000)
    assert gain_left(history, 250, 2_000) == math.inf


@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_rise_at_the_end_is_that_of_a_line(slope):
    """Slope and standard error by scipy, over the last fifth of the records (T4)."""
    bound = noisy(slope)
    bound[:-20] -= 1_000  # older records do not count
    history = history_of(bound)
    line = stats.linregress(history.step[-20:], bound[-20:])
    expected = (line.slope - 2 * line.stderr) * (history.step[-1] - history.step[-20])
    np.testing.assert_allclose(rise_at_the_end(history), expected, rtol=1e-9)


def test_after_a_long_annealing_fewer_records_count():
    """Half of the records after it, where these are under a fifth of all (T4)."""
    bound = noisy(1.0)
    bound[:-10] -= 1_000
    history = history_of(bound)
    line = stats.linregress(history.step[-10:], bound[-10:])
    expected = (line.slope - 2 * line.stderr) * (history.step[-1] - history.step[-10])
    rise = rise_at_the_end(history, settled=int(history.step[-21]))
    np.testing.assert_allclose(rise, expected, rtol=1e-9)


def test_rise_at_the_end_is_zero_where_noise_hides_it():
    """A plateau, a fall, too few records (T4)."""
    rises = [rise_at_the_end(history_of(noisy(0.0, seed=s))) for s in range(50)]
    assert np.mean(np.array(rises) == 0) > 0.9
    assert rise_at_the_end(history_of(noisy(-1.0))) == 0
    assert rise_at_the_end(history_of(noisy(1.0, records=49))) == 0
    assert rise_at_the_end(history_of(noisy(1.0, records=50))) > 0
