"""One step of the optimiser: its noise, steps that are not finite, averaging."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from auxiliary_scales import AuxiliaryHalfCauchy
from builders import fit, quick, straight_line, tiny_network, with_scales

from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianLikelihood, HeteroscedasticNoise
from farrier.train.config import TrainConfig
from farrier.train.data import RECORDS_PER_CHUNK, Data, batch, epoch_order, run_chunk
from farrier.train.history import Status
from farrier.train.loop import Run
from farrier.train.schedule import Schedule
from farrier.train.step import TrainState, Unsharded, step_on

ROWS, BATCH = 19, 7


@eqx.filter_jit
def one_step(state, rows, schedule, key, total=19.0):
    """The state after a step, and its terms."""
    return step_on(
        state, rows, jnp.asarray(total, float), schedule, Unsharded(), key=key
    )


@eqx.filter_jit
def bound_of(network, x, y, weight, key, noise_share=1.0):
    return network.bound(x, y, weight, key=key, noise_share=noise_share)


def rows_of(x, y):
    return jnp.asarray(x), jnp.asarray(y), jnp.ones(len(x))


def test_every_step_has_noise_of_its_own(getkey):
    """Step i is at the key fold_in(key, i), whatever the parameters (T1)."""
    x, y = straight_line(key=getkey())
    config, key = quick(100, ROWS), getkey()
    run = Run.create(tiny_network(key=getkey()), config)
    seen = []
    for step in (0, 1, 7):
        state = replace(run.state, step=jnp.int32(step))
        _, terms = one_step(state, rows_of(x, y), run.schedule, key)
        expected = bound_of(run.state.network, *rows_of(x, y), jr.fold_in(key, step))
        np.testing.assert_allclose(terms[0], expected.log_likelihood, rtol=1e-9)
        seen.append(float(terms[0]))
    assert len(set(seen)) == 3


def test_a_step_is_one_of_adam_on_the_annealed_elbo_of_a_row(getkey):
    """The first step of Adam moves each parameter by the rate, up the gradient (T2)."""
    x, y = straight_line(key=getkey())
    config = TrainConfig(
        steps=10, batch_size=ROWS, learning_rate=0.02, kl_weight=3.0, kl_annealing=0.4
    )
    network, key = tiny_network(key=getkey()), getkey()
    run = Run.create(network, config)
    new, _ = one_step(run.state, rows_of(x, y), run.schedule, key)

    def objective(params):
        whole = eqx.combine(params, network)
        bound = bound_of(whole, *rows_of(x, y), jr.fold_in(key, 0))
        return (bound.log_likelihood - 0.75 * sum(bound.kl.values())) / ROWS

    params = eqx.filter(network, eqx.is_inexact_array)
    grads = jax.grad(objective)(params)
    pairs = zip(
        jax.tree.leaves(params),
        jax.tree.leaves(eqx.filter(new.network, eqx.is_inexact_array)),
        jax.tree.leaves(grads),
        strict=True,
    )
    moved = 0
    for before, after, grad in pairs:
        expected = 0.02 * grad / (np.abs(grad) + 1e-8)
        np.testing.assert_allclose(after - before, expected, rtol=1e-6, atol=1e-12)
        moved += int((np.abs(grad) > 1e-6).sum())
    assert moved > 10
    # The step shows the sign of the gradient alone; the state of Adam has its size.
    means = jax.tree.leaves(new.optimiser.mu)
    for mean, grad in zip(means, jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(mean, -0.1 * grad, rtol=1e-9, atol=1e-15)


def test_the_noise_is_constant_until_late_in_the_annealing(getkey):
    """The share of (T6) reaches the ELBO of the step."""
    x, y = straight_line(key=getkey())
    config, key = quick(24, ROWS, kl_annealing=0.5), getkey()
    network = tiny_network(likelihood=HeteroscedasticNoise(), key=getkey())
    run = Run.create(network, config)
    for step, share in ((3, 0.0), (10, 0.5), (11, 1.0)):
        state = replace(run.state, step=jnp.int32(step))
        _, terms = one_step(state, rows_of(x, y), run.schedule, key)
        at = [
            bound_of(network, *rows_of(x, y), jr.fold_in(key, step), s).log_likelihood
            for s in (share, 0.75)
        ]
        np.testing.assert_allclose(terms[0], at[0], rtol=1e-9)
        assert abs(float(at[0] - at[1])) > 1e-3


# --- steps that are not finite ----------------------------------------------------


def test_a_step_that_is_not_finite_is_counted_and_changes_nothing(getkey):
    """One row is NaN: the step that holds it is skipped, once in each pass."""
    x, y = straight_line(key=getkey())
    y[4] = np.nan
    data, key = Data.create(x, y, batch_size=BATCH), getkey()
    schedule = Schedule.create(TrainConfig(steps=100))
    state = TrainState.create(tiny_network(key=getkey()), TrainConfig())
    skipped, first = 0, None
    for step in range(6):
        order = epoch_order(data, jnp.int32(step), key=key)
        _, y_batch, weight = batch(data, order, jnp.int32(step))
        bad = bool(np.isnan(np.asarray(y_batch)[np.asarray(weight) > 0]).any())
        first = step if bad and first is None else first
        skipped += bad
        one_more = replace(schedule, end=jnp.int32(step + 1))
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


def test_history_counts_skipped_steps(getkey):
    """Their number, the first of them and its term; the run goes on."""
    x, y = straight_line(key=getkey())
    y[4] = np.nan
    network, key = tiny_network(key=getkey()), getkey()
    history = fit(network, x, y, quick(30), key=key).history
    assert history.status is Status.BUDGET
    assert history.skipped == 10
    assert history.bad_term == "log_likelihood"
    bad = np.flatnonzero(np.isnan(history.elbo))  # one record is one step here
    assert len(bad) == 10
    assert history.bad_step == bad[0] < 3
    assert len(set(bad % 3)) > 1  # passes differ in their order


def test_a_run_of_bad_steps_stops_the_training(getkey):
    """E[1/lam] = 1/0 in one scale: its KL term is named, the network stays (M9)."""
    x, y = straight_line(key=getkey())
    network = tiny_network(key=getkey())
    broken = AuxiliaryHalfCauchy(1.0, jnp.zeros(2))
    first = network.layers[0]
    tau = replace(first.scales["tau"], prior=broken)
    layer = replace(first, scales=first.scales | {"tau": tau})
    network = network.with_layers([layer, network.output])
    config = TrainConfig(steps=300, batch_size=BATCH, max_bad_run=15)
    run = fit(network, x, y, config, key=getkey())
    assert run.history.status is Status.NOT_FINITE
    assert run.history.bad_term == "layer_1/tau"
    assert run.history.bad_step == 0
    assert run.history.skipped == int(run.state.step) == 2 * RECORDS_PER_CHUNK
    assert eqx.tree_equal(run.state.network, network)


class RoughLikelihood(GaussianLikelihood):
    """Its KL term is sqrt(0), which is finite; the slope of that is not."""

    def kl(self):
        return {"noise/gamma": jnp.sqrt(0 * self.gamma.log_rate.sum())}


def test_a_gradient_that_is_not_finite_is_named(getkey):
    x, y = straight_line(11, key=getkey())
    network = tiny_network(rows=11, key=getkey())
    rough = RoughLikelihood(**vars(network.likelihood))
    network = replace(network, likelihood=rough)
    config = TrainConfig(steps=3, batch_size=64)
    run = fit(network, x, y, config, key=getkey())
    assert run.history.bad_term == "gradient"
    assert run.history.skipped == 3
    assert eqx.tree_equal(run.state.network, network)


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
    """Computed by NumPy from the networks of the single steps."""
    x, y = straight_line(key=getkey())
    config = TrainConfig(steps=12, batch_size=ROWS, averaging=0.75, learning_rate=0.1)
    data = Data.create(x, y, batch_size=ROWS)
    network, key = tiny_network(key=getkey()), getkey()
    networks, state = step_by_step(network, data, config, 12, key=key)
    locs = [np.asarray(n.output.weights.kernel.loc) for n in networks]
    expected = np.mean(locs[:4], axis=0)  # 1 / (i + 1) reaches 1/4 at the fourth step
    for loc in locs[4:]:
        expected = 0.75 * expected + 0.25 * loc
    average = state.result.output.weights.kernel.loc
    np.testing.assert_allclose(average, expected, rtol=1e-12)
    assert not np.allclose(average, locs[-1], rtol=1e-3)


def test_averaging_does_not_change_the_steps(getkey):
    """The same bits in the network of the last step; without it that is the result."""
    x, y = straight_line(key=getkey())
    data = Data.create(x, y, batch_size=ROWS)
    network, key = tiny_network(key=getkey()), getkey()
    states = [
        step_by_step(network, data, quick(9, ROWS, averaging=a), 9, key=key)[1]
        for a in (0.0, 0.9)
    ]
    np.testing.assert_allclose(
        states[0].network.output.weights.kernel.loc,
        states[1].network.output.weights.kernel.loc,
        rtol=1e-12,
    )
    assert eqx.tree_equal(states[0].result, states[0].network)


def test_a_bad_step_leaves_the_average_as_it_was(getkey):
    x, y = straight_line(key=getkey())
    y[:] = np.nan
    network = tiny_network(key=getkey())
    run = fit(network, x, y, quick(3, ROWS, averaging=0.5), key=getkey())
    assert run.history.skipped == 3
    assert eqx.tree_equal(run.state.result, network)


# --- the auxiliary variables as an oracle -----------------------------------------


def with_best_auxiliary(network):
    """Every scale with its auxiliary variable, at the optimum (M4)."""

    def change(scale):
        start = AuxiliaryHalfCauchy(scale.prior.b, jnp.ones_like(scale.q.loc))
        return replace(scale, prior=start.updated(scale.q))

    return with_scales(network, change)


def test_both_forms_of_the_scales_train_to_the_same_network(getkey):
    """Collapsed (M5) against updating q(lam) after each step (M4), (M9)."""
    x, y = straight_line(key=getkey())
    config, key = quick(60, ROWS, kl_annealing=0.2, learning_rate=0.05), getkey()
    network = tiny_network(prior=Horseshoe(node_scale=0.7), key=getkey())
    ends, elbos = [], []
    for update in (lambda net: net, with_best_auxiliary):
        run = Run.create(update(network), config)
        state, elbo = run.state, []
        for _ in range(60):
            state, terms = one_step(state, rows_of(x, y), run.schedule, key)
            state = replace(state, network=update(state.network))
            elbo.append(float(terms[0] - terms[1:-1].sum()))
        layers = (*state.network.layers, state.network.output)
        learned = [(v.weights, [s.q for s in v.scales.values()]) for v in layers]
        ends.append(jax.tree.leaves([learned, state.network.likelihood.gamma]))
        elbos.append(elbo)
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-8)
    np.testing.assert_allclose(*elbos, rtol=1e-8)
    start = network.output.weights.kernel.loc
    assert (np.abs(state.network.output.weights.kernel.loc - start) > 0.1).any()
