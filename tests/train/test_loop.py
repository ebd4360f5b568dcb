"""Training: minibatches, schedules, stopping, steps that are not finite, the loop."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farrier.core.bound import Bound
from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.train.config import KlRelease, TrainConfig
from farrier.train.data import (
    RECORDS_PER_CHUNK,
    Data,
    batch,
    epoch_order,
    next_order,
    round_up,
    run_chunk,
)
from farrier.train.history import History, Status
from farrier.train.loop import Job, Run, train
from farrier.train.schedule import Schedule
from farrier.train.step import TrainState
from farrier.train.stopping import PLATEAU_RECORDS, gain_left, rise_at_the_end

ROWS, BATCH = 19, 7  # a pass is 7, 7 and 5 rows, out of 20 places
NOISE = 0.1


def table(*, rows=ROWS, key):
    """A straight line with a little noise: one node can learn it."""
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    x = generator.standard_normal((rows, 1))
    return x, x + NOISE * generator.standard_normal((rows, 1))


def network_of(*, rows=ROWS, half_cauchy="collapsed", key):
    likelihood = GaussianNoise().build(1, rows=float(rows))
    return Network.create(
        1, (2,), likelihood, Horseshoe(half_cauchy=half_cauchy), key=key
    )


def fit(network, x, y, config, *, key, **kwargs):
    data = Data.create(x, y, batch_size=config.batch_size)
    return train(Job(Run.create(network, config), data, config, key), **kwargs)


def assert_equal_runs(a, b):
    """The same bits in all that a run holds but the clock."""
    assert eqx.tree_equal(a.state, b.state)
    assert eqx.tree_equal(a.schedule, b.schedule)
    assert a.history.status is b.history.status
    np.testing.assert_array_equal(a.history.step, b.history.step)
    for name, values in a.history.terms.items():
        np.testing.assert_array_equal(values, b.history.terms[name])


# --- minibatches ------------------------------------------------------------------

SIZES = [(19, 7), (100, 17), (10, 9), (9, 1), (12, 12), (13, 64)]


@pytest.mark.parametrize(("rows", "batch_size"), SIZES)
def test_a_pass_sees_each_row_once_and_its_mean_is_the_whole_sum(
    getkey, rows, batch_size
):
    """Short last batches and padding included; row i says i + 1 (T1)."""
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
    x, y = table(key=getkey())
    data, key = Data.create(x, y, batch_size=BATCH), getkey()
    following = jax.jit(lambda order, step: next_order(order, data, step, key=key))
    fresh = jax.jit(lambda step: epoch_order(data, step, key=key))
    order = fresh(jnp.int32(0))
    for step in range(7):
        order = following(order, jnp.int32(step))
        np.testing.assert_array_equal(order, fresh(jnp.int32(step)))
    assert not (order == fresh(jnp.int32(0))).all()


def test_padding_is_little_and_leaves_few_sizes():
    sizes = {rows: round_up(rows) for rows in range(1, 5_000)}
    assert all(rows <= size <= 1.125 * rows + 1 for rows, size in sizes.items())
    assert len(set(sizes.values())) < 100
    assert all(round_up(size) == size for size in sizes.values())


# --- schedule ---------------------------------------------------------------------


def test_schedule_by_hand():
    """Half a cosine, and a ramp of 6 steps out of 10 (T2)."""
    config = TrainConfig(steps=10, learning_rate=0.4, kl_weight=3.0, kl_warm_up=0.6)
    schedule, steps = Schedule.create(config), jnp.arange(11, dtype=jnp.int32)
    rates = jax.vmap(schedule.rate)(steps)
    root = math.sqrt(5)  # cos(36 degrees) = (1 + sqrt 5) / 4
    tenths = [1.0, 0.5 + math.sqrt(10 + 2 * root) / 8, 0.5 + (1 + root) / 8]
    np.testing.assert_allclose(rates[:3], 0.4 * np.array(tenths), rtol=1e-12)
    np.testing.assert_allclose(rates + rates[::-1], 0.4, rtol=1e-12)
    assert rates[10] == 0
    weights = jax.vmap(schedule.kl_weight_at)(steps)
    np.testing.assert_allclose(weights[:6], [0.5, 1, 1.5, 2, 2.5, 3], rtol=1e-12)
    np.testing.assert_array_equal(weights[6:], 3)


def test_without_warm_up_the_divergences_have_full_weight_at_once():
    """W = 0 (T2)."""
    schedule = Schedule.create(TrainConfig(steps=10, kl_warm_up=0.0))
    np.testing.assert_array_equal(
        jax.vmap(schedule.kl_weight_at)(jnp.arange(3, dtype=jnp.int32)), 1
    )


def test_the_noise_of_rows_waits_for_most_of_the_warm_up():
    """Of 12 steps of warm-up 10 at 0, one half-way, then 1 (T6)."""
    schedule = Schedule.create(TrainConfig(steps=24, kl_warm_up=0.5))
    shares = jax.vmap(schedule.noise_share)(jnp.arange(24, dtype=jnp.int32))
    np.testing.assert_allclose(shares[:10], 0, atol=1e-12)
    np.testing.assert_allclose(shares[10:], [0.5] + 13 * [1], rtol=1e-12)
    at_once = Schedule.create(TrainConfig(steps=24, kl_warm_up=0.0))
    assert at_once.noise_share(jnp.zeros((), jnp.int32)) == 1


def test_a_released_weight_by_hand():
    """Up over 2 steps, at the peak until step 4, down to the final one at 8 (T5)."""
    release = KlRelease(peak=0.5, final=0.1, begin=0.4, end=0.8)
    schedule = Schedule.create(TrainConfig(steps=10, kl_weight=release, kl_warm_up=0.2))
    weights = jax.vmap(schedule.kl_weight_at)(jnp.arange(10, dtype=jnp.int32))
    by_hand = [0.25, 0.5, 0.5, 0.5, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1]
    np.testing.assert_allclose(weights, by_hand, rtol=1e-12)
    assert schedule.settled == 8
    assert Schedule.create(TrainConfig(steps=10, kl_warm_up=0.2)).settled == 2


def test_a_release_at_one_step_is_a_drop():
    """A = B (T5)."""
    release = KlRelease(peak=2.0, final=1.0, begin=0.5, end=0.5)
    schedule = Schedule.create(TrainConfig(steps=4, kl_weight=release, kl_warm_up=0.0))
    weights = jax.vmap(schedule.kl_weight_at)(jnp.arange(4, dtype=jnp.int32))
    np.testing.assert_array_equal(weights, [2, 2, 1, 1])


def test_a_release_to_where_it_began_changes_no_bit(getkey):
    """p = w is a constant weight (T5)."""
    x, y = table(key=getkey())
    network, key = network_of(key=getkey()), getkey()
    level = KlRelease(peak=0.3, final=0.3)
    runs = [
        fit(
            network,
            x,
            y,
            TrainConfig(steps=30, batch_size=BATCH, tolerance=0.0, kl_weight=weight),
            key=key,
        )
        for weight in (0.3, level)
    ]
    np.testing.assert_array_equal(runs[0].history.bound, runs[1].history.bound)
    assert eqx.tree_equal(runs[0].state, runs[1].state)


def test_cooling_starts_at_the_present_rate_and_ends_at_zero():
    """Whatever the rate was, with the ramp of the divergences untouched (T2)."""
    schedule = Schedule.create(TrainConfig(steps=1_000, learning_rate=0.3))
    cooled = schedule.cooled(700, 800)
    at = lambda schedule, *steps: np.array([schedule.rate(jnp.int32(s)) for s in steps])
    now = at(schedule, 700)[0]
    np.testing.assert_allclose(at(cooled, 700, 750, 800), [now, now / 2, 0], rtol=1e-12)
    assert (np.diff(at(cooled, *range(700, 801, 10))) < 0).all()
    assert at(schedule, 800)[0] > 0.01
    step = jnp.int32(300)
    assert cooled.kl_weight_at(step) == schedule.kl_weight_at(step)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"steps": 0}, "`steps` must be at least 1, got 0"),
        ({"batch_size": -3}, "`batch_size` must be at least 1, got -3"),
        (
            {"learning_rate": 0.0},
            "`learning_rate` must be positive and finite, got 0.0",
        ),
        ({"kl_weight": math.inf}, "`kl_weight` must be positive and finite, got inf"),
        ({"kl_warm_up": 1.5}, "from 0 to 1, got 1.5"),
        ({"tolerance": math.nan}, "`tolerance` must not be negative, got nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(setting, text):
    with pytest.raises(ValueError, match=text):
        TrainConfig(**setting)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"peak": 0.0}, "`peak` must be positive and finite, got 0.0"),
        ({"final": math.nan}, "`final` must be positive and finite, got nan"),
        ({"begin": 0.7}, "in order, got 0.7 and 0.6"),
        ({"end": 1.5}, "from 0 to 1 and in order, got 0.4 and 1.5"),
    ],
)
def test_a_release_out_of_range_is_refused(setting, text):
    with pytest.raises(ValueError, match=text):
        KlRelease(**setting)


# --- stopping ---------------------------------------------------------------------

RECORDS = 100


def history_of(bound, *, every=10):
    """Records of a bound that has one divergence, of 3 nats."""
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


def test_gain_left_tells_a_plateau_from_a_rise():
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


def test_gain_left_needs_enough_records_after_the_warm_up():
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


def test_after_a_long_warm_up_less_of_a_run_is_looked_at():
    """Half of the records after it, where these are under a fifth of all (T4)."""
    bound = noisy(1.0)
    bound[:-10] -= 1_000
    history = history_of(bound)
    line = stats.linregress(history.step[-10:], bound[-10:])
    expected = (line.slope - 2 * line.stderr) * (history.step[-1] - history.step[-10])
    found = rise_at_the_end(history, settled=int(history.step[-21]))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_rise_at_the_end_is_none_where_nothing_is_sure():
    """A plateau, a fall, too few records (T4)."""
    rises = [rise_at_the_end(history_of(noisy(0.0, seed=s))) for s in range(50)]
    assert np.mean(np.array(rises) == 0) > 0.9
    assert rise_at_the_end(history_of(noisy(-1.0))) == 0
    assert rise_at_the_end(history_of(noisy(1.0, records=49))) == 0
    assert rise_at_the_end(history_of(noisy(1.0, records=50))) > 0


def test_an_easy_run_stops_by_itself_and_cools_down(getkey):
    """A plateau, then a tenth of the budget down to the rate 0 (T3), (T2)."""
    x, y = table(key=getkey())
    config = TrainConfig(
        steps=799, batch_size=BATCH, learning_rate=0.05, kl_warm_up=0.2, tolerance=3.0
    )
    run = fit(network_of(key=getkey()), x, y, config, key=getkey())
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
    x, y = table(key=getkey())
    config = TrainConfig(steps=steps, batch_size=BATCH, tolerance=0.0)
    run = fit(network_of(key=getkey()), x, y, config, key=getkey())
    assert run.history.status is Status.BUDGET
    assert int(run.state.step) == run.history.step[-1] == steps
    np.testing.assert_array_equal(run.history.step, np.arange(1, steps + 1))
    assert np.isfinite(run.history.bound).all()
    assert int(run.state.optimiser.count) == steps


# --- one program ------------------------------------------------------------------


def test_bound_is_traced_once_in_a_fit_and_not_for_one_row_less(getkey, monkeypatch):
    """Chunks, cooling and a table of nearly the same size share one program."""
    original = Network.bound
    counted = eqx.debug.assert_max_traces(
        lambda *args, **kwargs: original(*args, **kwargs), max_traces=1
    )
    monkeypatch.setattr(
        Network, "bound", lambda self, *args, **kwargs: counted(self, *args, **kwargs)
    )
    config = TrainConfig(
        steps=300, batch_size=64, learning_rate=0.05, kl_warm_up=0.1, tolerance=30.0
    )
    x, y = table(rows=18, key=getkey())
    networks = [network_of(rows=rows, key=getkey()) for rows in (18, 17)]
    runs = [
        fit(network, x[:rows], y[:rows], config, key=getkey())
        for network, rows in zip(networks, (18, 17), strict=True)
    ]
    assert {run.history.status for run in runs} == {Status.CONVERGED}
    assert eqx.debug.get_num_traces(counted) == 1


# --- steps that are not finite ----------------------------------------------------


def test_a_step_that_is_not_finite_is_counted_and_changes_nothing(getkey):
    """One row is NaN: the step that holds it is skipped, once in each pass."""
    x, y = table(key=getkey())
    y[4] = np.nan
    data, key = Data.create(x, y, batch_size=BATCH), getkey()
    schedule = Schedule.create(TrainConfig(steps=100))
    state = TrainState.create(network_of(key=getkey()), TrainConfig())
    skipped, first = 0, None
    for step in range(6):
        order = epoch_order(data, jnp.int32(step), key=key)
        _, y_batch, weight = batch(data, order, jnp.int32(step))
        bad = bool(np.isnan(np.asarray(y_batch)[np.asarray(weight) > 0]).any())
        first = step if bad and first is None else first
        skipped += bad
        one_more = eqx.tree_at(lambda s: s.end, schedule, jnp.int32(step + 1))
        new, means = run_chunk(state, data, one_more, 1, RECORDS_PER_CHUNK, key=key)
        assert eqx.tree_equal(new.network, state.network) == bad
        assert eqx.tree_equal(new.optimiser, state.optimiser) == bad
        assert bool(np.isnan(means[0]).all()) == bad
        assert int(new.step) == step + 1
        assert int(new.skipped) == skipped
        assert int(new.bad_run) == (int(state.bad_run) + 1 if bad else 0)
        assert int(new.bad_step) == (-1 if first is None else first)
        state = new
    assert skipped == 2


def test_history_tells_of_skipped_steps(getkey):
    """Their number, the first of them and its term; the run goes on."""
    x, y = table(key=getkey())
    y[4] = np.nan
    network, key = network_of(key=getkey()), getkey()
    config = TrainConfig(steps=30, batch_size=BATCH, tolerance=0.0)
    history = fit(network, x, y, config, key=key).history
    assert history.status is Status.BUDGET
    assert history.skipped == 10
    assert history.bad_term == "log_likelihood"
    bad = np.flatnonzero(np.isnan(history.bound))  # one record is one step here
    assert len(bad) == 10
    assert history.bad_step == bad[0] < 3


def test_a_run_of_bad_steps_stops_the_training(getkey):
    """E[1/lam] = 1/0 in one scale: its divergence is named, the network stays (M9)."""
    x, y = table(key=getkey())
    network = network_of(half_cauchy="auxiliary", key=getkey())
    where = lambda net: net.layers[0].scales["tau"].prior.rate
    network = eqx.tree_at(where, network, 0 * where(network))
    config = TrainConfig(steps=300, batch_size=BATCH, max_bad_run=15)
    run = fit(network, x, y, config, key=getkey())
    assert run.history.status is Status.NOT_FINITE
    assert run.history.bad_term == "layer_1/tau"
    assert run.history.bad_step == 0
    assert run.history.skipped == int(run.state.step) == 2 * RECORDS_PER_CHUNK
    assert eqx.tree_equal(run.state.network, network)


def test_a_gradient_that_is_not_finite_is_named(getkey, monkeypatch):
    """sqrt(0) is finite, its slope is not."""
    original = Network.bound

    def bound(self, *args, **kwargs):
        terms = original(self, *args, **kwargs)
        rough = jnp.sqrt(0 * self.output.weights.bias.loc.sum())
        return Bound(terms.log_likelihood + rough, terms.kl)

    monkeypatch.setattr(Network, "bound", bound)
    x, y = table(rows=11, key=getkey())
    config = TrainConfig(steps=3, batch_size=64)
    network = network_of(rows=11, key=getkey())
    run = fit(network, x, y, config, key=getkey())
    assert run.history.bad_term == "gradient"
    assert run.history.skipped == 3
    assert eqx.tree_equal(run.state.network, network)


# --- the loop ---------------------------------------------------------------------


def test_an_interrupt_keeps_the_last_whole_chunk_and_can_go_on(getkey):
    """`Ctrl-C` between chunks; going on gives the bits of a run never stopped."""
    x, y = table(key=getkey())
    network, key = network_of(key=getkey()), getkey()
    config = TrainConfig(steps=50, batch_size=BATCH, tolerance=0.0)
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
    np.testing.assert_array_equal(stopped.history.bound, whole.history.bound[:20])
    stopped.history.status = Status.RUNNING
    data = Data.create(x, y, batch_size=BATCH)
    assert_equal_runs(train(Job(stopped, data, config, key)), whole)


def test_equal_keys_give_equal_bits_and_others_do_not(getkey):
    """Of parameters, optimiser and records."""
    x, y = table(key=getkey())
    network, key, other = network_of(key=getkey()), getkey(), getkey()
    config = TrainConfig(steps=30, batch_size=BATCH, tolerance=0.0)
    first, second, third = (
        fit(network, x, y, config, key=k) for k in (key, key, other)
    )
    assert_equal_runs(first, second)
    assert not (first.history.bound == third.history.bound).any()


def test_both_forms_of_the_scales_train_to_the_same_network(getkey):
    """Collapsed (M5) against updating q(lam) after each step (M4), (M9)."""
    x, y = table(key=getkey())
    key_build, key = getkey(), getkey()
    config = TrainConfig(steps=60, batch_size=BATCH, tolerance=0.0, kl_warm_up=0.2)
    runs = []
    for half_cauchy in ("collapsed", "auxiliary"):
        network = network_of(half_cauchy=half_cauchy, key=key_build)
        runs.append(fit(network, x, y, config, key=key))
    collapsed, explicit = (
        [layer.weights for layer in net.named_layers().values()]
        + [
            scale.q
            for layer in net.named_layers().values()
            for scale in layer.scales.values()
        ]
        + [net.likelihood.gamma]
        for net in (run.state.network for run in runs)
    )
    pairs = zip(jax.tree.leaves(collapsed), jax.tree.leaves(explicit), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(theirs, ours, rtol=1e-8)
    np.testing.assert_allclose(*(run.history.bound for run in runs), rtol=1e-8)
    moved = runs[0].state.network.output.weights.kernel.loc
    start = network_of(key=key_build).output.weights.kernel.loc
    assert (np.abs(moved - start) > 0.1).any()


def test_history_holds_the_terms_of_the_bound_layer_by_layer(getkey):
    """Each at weight 1, whatever the warm-up; the first record is the start (B1)."""
    x, y = table(rows=16, key=getkey())
    likelihood = GaussianNoise().build(1, rows=16.0)
    network = Network.create(1, (2, 3), likelihood, Horseshoe(), key=getkey())
    config, key = TrainConfig(steps=12, batch_size=16), getkey()
    history = fit(network, x, y, config, key=key).history
    hidden = [
        f"layer_{i}/{part}" for i in (1, 2) for part in ("beta", "tau", "upsilon")
    ]
    divergences = [*hidden, "output/beta", "output/kappa", "noise/gamma"]
    assert list(history.terms) == ["log_likelihood", *divergences]
    assert list(history.kl) == divergences
    total = history.terms["log_likelihood"] - sum(history.terms[n] for n in divergences)
    np.testing.assert_allclose(history.bound, total, rtol=1e-12)
    start = eqx.filter_jit(network.bound)(
        jnp.asarray(x), jnp.asarray(y), jnp.ones(16), key=jr.fold_in(key, 0)
    )
    for name, value in start.terms().items():
        np.testing.assert_allclose(history.terms[name][0], value, rtol=1e-9)
    np.testing.assert_array_equal(history.step, np.arange(1, 13))


def test_training_raises_the_bound_far_above_any_constant(getkey):
    """The bound, divergences paid, beats the best likelihood without inputs (B1), (M8).

    The noise that was learned is that of the data. A record has two steps here, and
    the last has one.
    """
    x, y = table(rows=200, key=getkey())
    network = network_of(rows=200, key=getkey())
    config = TrainConfig(steps=805, batch_size=256, learning_rate=0.05, tolerance=0.0)
    run = fit(network, x, y, config, key=getkey())
    assert int(run.state.step) == run.history.step[-1] == 805
    np.testing.assert_array_equal(run.history.step[:-1], 2 * np.arange(1, 403))
    constant = stats.norm(y.mean(), y.std()).logpdf(y).sum()
    best = stats.norm(x, NOISE).logpdf(y).sum()
    bound = run.history.bound[-40:].mean()
    assert run.history.bound[0] < constant
    assert constant + 0.8 * (best - constant) < bound < best
    gamma = run.state.network.likelihood.gamma
    np.testing.assert_allclose(gamma.fixed_shape, 1 + 200 / 2)
    # (M8): the rate is the prior's plus half the sum of squares, here that of a line.
    residual = y - x * (x * y).sum() / (x**2).sum()
    np.testing.assert_allclose(
        np.exp(gamma.log_rate), 0.01 + 0.5 * (residual**2).sum(), rtol=0.15
    )


# --- averaging --------------------------------------------------------------------


def step_by_step(network, data, config, steps, *, key):
    """The network after each step, and the last state."""
    run = Run.create(network, config)
    state, networks = run.state, []
    for _ in range(steps):
        state, _ = run_chunk(state, data, run.schedule, 1, 1, key=key)
        networks.append(state.network)
    return networks, state


def test_the_average_is_a_mean_at_first_and_a_moving_one_then(getkey):
    """Worked out by NumPy from the networks of the single steps."""
    x, y = table(key=getkey())
    config = TrainConfig(steps=12, batch_size=ROWS, averaging=0.75, learning_rate=0.1)
    data = Data.create(x, y, batch_size=ROWS)
    network, key = network_of(key=getkey()), getkey()
    networks, state = step_by_step(network, data, config, 12, key=key)
    locs = [np.asarray(n.output.weights.kernel.loc) for n in networks]
    expected = np.mean(locs[:4], axis=0)  # 1 / (i + 1) reaches 1/4 at the fourth step
    for loc in locs[4:]:
        expected = 0.75 * expected + 0.25 * loc
    found = state.result.output.weights.kernel.loc
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.allclose(found, locs[-1], rtol=1e-3)


def test_averaging_does_not_change_the_steps(getkey):
    """The same bits in the network of the last step; without it that is the result."""
    x, y = table(key=getkey())
    data = Data.create(x, y, batch_size=ROWS)
    network, key = network_of(key=getkey()), getkey()
    states = [
        step_by_step(
            network,
            data,
            TrainConfig(steps=9, averaging=a, batch_size=ROWS),
            9,
            key=key,
        )[1]
        for a in (0.0, 0.9)
    ]
    np.testing.assert_allclose(
        states[0].network.output.weights.kernel.loc,
        states[1].network.output.weights.kernel.loc,
        rtol=1e-12,
    )
    assert eqx.tree_equal(states[0].result, states[0].network)


def test_a_bad_step_leaves_the_average_as_it_was(getkey):
    x, y = table(key=getkey())
    y[:] = np.nan
    config = TrainConfig(steps=3, batch_size=ROWS, averaging=0.5)
    network = network_of(key=getkey())
    run = fit(network, x, y, config, key=getkey())
    assert run.history.skipped == 3
    assert eqx.tree_equal(run.state.result, network)
