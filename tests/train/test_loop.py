"""The loop: budgets, stopping, interrupts, what a run records and learns."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from builders import NOISE, fit, job_of, quick, straight_line, tiny_network
from scipy import stats

from farrier.train.config import TrainConfig
from farrier.train.data import RECORDS_PER_CHUNK
from farrier.train.history import History, Status
from farrier.train.loop import train
from farrier.train.stopping import PLATEAU_RECORDS, gain_left

ROWS, BATCH = 19, 7  # a pass is 7, 7 and 5 rows, out of 20 places


def assert_equal_runs(a, b):
    """The same bits in all that a run holds but the clock."""
    assert eqx.tree_equal(a.state, b.state)
    assert eqx.tree_equal(a.schedule, b.schedule)
    assert a.history.status is b.history.status
    np.testing.assert_array_equal(a.history.step, b.history.step)
    for name, values in a.history.terms.items():
        np.testing.assert_array_equal(values, b.history.terms[name])


def test_an_easy_run_stops_by_itself_and_cools_down(getkey):
    """A plateau, then a tenth of the budget down to the rate 0 (T3), (T2)."""
    x, y = straight_line(key=getkey())
    config = TrainConfig(
        steps=799, batch_size=BATCH, learning_rate=0.05, kl_annealing=0.2, tolerance=3.0
    )
    run = fit(tiny_network(key=getkey()), x, y, config, key=getkey())
    start, end = int(run.schedule.start), int(run.schedule.end)
    assert run.history.status is Status.CONVERGED
    assert int(run.state.step) == end == run.history.step[-1] == start + 79
    assert 160 + PLATEAU_RECORDS <= start < end < 799
    assert float(run.schedule.rate(run.state.step)) == 0
    before = run.history.step <= start
    records = History(
        run.history.step[before], {n: v[before] for n, v in run.history.terms.items()}
    )
    assert gain_left(records, 160, 799) < 3.0 * ROWS


@pytest.mark.parametrize("steps", [1, 25])
def test_a_run_without_tolerance_takes_exactly_its_budget(getkey, steps):
    """Also where it is not a whole number of chunks."""
    x, y = straight_line(key=getkey())
    config = quick(steps)
    run = fit(tiny_network(key=getkey()), x, y, config, key=getkey())
    assert run.history.status is Status.BUDGET
    assert int(run.state.step) == run.history.step[-1] == steps
    np.testing.assert_array_equal(run.history.step, np.arange(1, steps + 1))
    assert np.isfinite(run.history.elbo).all()
    assert int(run.state.optimiser.count) == steps


def test_an_interrupt_keeps_the_last_whole_chunk_and_can_go_on(getkey):
    """`Ctrl-C` between chunks; going on gives the bits of a run never stopped."""
    x, y = straight_line(key=getkey())
    network, key = tiny_network(key=getkey()), getkey()
    config = quick(50)
    whole = fit(network, x, y, config, key=key)
    seen = []

    def interrupt(run):
        seen.append(run)
        if len(seen) == 2:
            raise KeyboardInterrupt

    stopped = fit(network, x, y, config, key=key, after_chunk=interrupt)
    assert stopped.history.status is Status.INTERRUPTED
    assert int(stopped.state.step) == 2 * RECORDS_PER_CHUNK
    assert eqx.tree_equal(stopped.state, seen[1].state)
    np.testing.assert_array_equal(stopped.history.elbo, whole.history.elbo[:20])
    stopped.history.status = Status.RUNNING
    job = job_of(network, x, y, config, key=key)
    job.run = stopped
    assert_equal_runs(train(job), whole)


def test_equal_keys_give_equal_bits_and_others_do_not(getkey):
    """Of parameters, optimiser and records."""
    x, y = straight_line(key=getkey())
    network, key, other = tiny_network(key=getkey()), getkey(), getkey()
    config = quick(30)
    first, second, third = (
        fit(network, x, y, config, key=k) for k in (key, key, other)
    )
    assert_equal_runs(first, second)
    assert not (first.history.elbo == third.history.elbo).any()


def test_history_holds_the_terms_of_the_elbo_layer_by_layer(getkey):
    """Each at weight 1, whatever the annealing; the first record is the start (B1)."""
    x, y = straight_line(16, key=getkey())
    network = tiny_network(widths=(2, 3), rows=16, key=getkey())
    config, key = TrainConfig(steps=12, batch_size=16), getkey()
    history = fit(network, x, y, config, key=key).history
    hidden = [
        f"layer_{i}/{part}" for i in (1, 2) for part in ("beta", "tau", "upsilon")
    ]
    kl_terms = [*hidden, "output/beta", "output/kappa", "noise/gamma"]
    assert list(history.terms) == ["log_likelihood", *kl_terms]
    assert list(history.kl) == kl_terms
    total = history.terms["log_likelihood"] - sum(history.terms[n] for n in kl_terms)
    np.testing.assert_allclose(history.elbo, total, rtol=1e-12)
    start = eqx.filter_jit(network.bound)(
        jnp.asarray(x), jnp.asarray(y), jnp.ones(16), key=jr.fold_in(key, 0)
    )
    for name, value in start.terms().items():
        np.testing.assert_allclose(history.terms[name][0], value, rtol=1e-9)
    np.testing.assert_array_equal(history.step, np.arange(1, 13))


def test_training_raises_the_elbo_far_above_any_constant(getkey):
    """The ELBO, KL terms included, beats the best likelihood without inputs (B1), (M8).

    The noise that was learned is that of the data. A record has two steps here, and
    the last has one.
    """
    x, y = straight_line(200, key=getkey())
    network = tiny_network(rows=200, key=getkey())
    config = TrainConfig(steps=805, batch_size=256, learning_rate=0.05, tolerance=0.0)
    run = fit(network, x, y, config, key=getkey())
    assert int(run.state.step) == run.history.step[-1] == 805
    np.testing.assert_array_equal(run.history.step[:-1], 2 * np.arange(1, 403))
    constant = stats.norm(y.mean(), y.std()).logpdf(y).sum()
    best = stats.norm(x, NOISE).logpdf(y).sum()
    bound = run.history.elbo[-40:].mean()
    assert run.history.elbo[0] < constant
    assert constant + 0.8 * (best - constant) < bound < best
    gamma = run.state.network.likelihood.gamma
    np.testing.assert_allclose(gamma.fixed_shape, 1 + 200 / 2)
    # (M8): the rate is the prior's plus half the sum of squares, here that of a line.
    residual = y - x * (x * y).sum() / (x**2).sum()
    np.testing.assert_allclose(
        np.exp(gamma.log_rate), 0.01 + 0.5 * (residual**2).sum(), rtol=0.15
    )
