"""What a run records."""

import math

import numpy as np
import pytest

from farrier.train.history import History, Removal, Status


def history_of(*log_likelihood, **kwargs):
    """Records of a run with two KL terms, of 3 and 0.5 nats."""
    ones = np.ones(len(log_likelihood))
    terms = {
        "log_likelihood": np.array(log_likelihood),
        "layer_1/beta": 3 * ones,
        "noise/gamma": 0.5 * ones,
    }
    return History(10 * np.arange(1, len(ones) + 1), terms, **kwargs)


def test_the_elbo_is_the_log_likelihood_less_every_kl_term():
    """At weight 1 (B1)."""
    history = history_of(-20.0, -7.0)
    np.testing.assert_array_equal(history.log_likelihood, [-20, -7])
    assert list(history.kl) == ["layer_1/beta", "noise/gamma"]
    np.testing.assert_array_equal(history.elbo, [-23.5, -10.5])
    assert history.last_elbo == -10.5


@pytest.mark.parametrize("values", [(), (-3.0, math.nan), (-3.0, math.inf)])
def test_a_run_that_ended_badly_has_the_least_elbo(values):
    assert history_of(*values).last_elbo == -math.inf


def test_a_chunk_is_added_and_the_history_before_it_stays():
    removed = (Removal(5, 1, (0, 3)),)
    before = history_of(-20.0, -7.0, skipped=2, seconds=0.5, removed=removed)
    more = history_of(-5.0)
    after = before.extended(np.array([30]), more.terms)
    np.testing.assert_array_equal(after.step, [10, 20, 30])
    np.testing.assert_array_equal(after.elbo, [-23.5, -10.5, -8.5])
    assert (after.skipped, after.seconds, after.removed) == (2, 0.5, removed)
    assert len(before.step) == len(before.elbo) == 2


def test_the_summary_is_plain_and_holds_no_records():
    removed = (Removal(5, 1, (0, 3)),)
    summary = history_of(-20.0, status=Status.BUDGET, removed=removed).summary()
    assert summary == {
        "status": "budget",
        "skipped": 0,
        "bad_step": -1,
        "bad_term": "",
        "seconds": 0.0,
        "removed": ({"step": 5, "layer": 1, "nodes": (0, 3)},),
    }
