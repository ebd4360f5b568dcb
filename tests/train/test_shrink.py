"""Compaction while training: who leaves, what is kept, what it saves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from farrier.infer.shrink import could_pay, shrunk, without

from farrier import HorseshoeRegressor
from farrier.checkpoint import resume, write_checkpoint
from farrier.core.priors import Gaussian, Horseshoe
from farrier.infer import shrink
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.network import Network
from farrier.train.config import TrainConfig
from farrier.train.data import Data
from farrier.train.history import Status
from farrier.train.loop import Job, Run, train

ROWS, D_IN, WIDTHS = 64, 3, (12, 10)
QUIET = ([1, 2, 7], [0, 9])  # nodes that say nothing, in each layer


@pytest.fixture
def always(monkeypatch):
    """Compile as often as any node can go, from the first chunk on."""
    monkeypatch.setattr(shrink, "PAYS", 1.0)
    monkeypatch.setattr(shrink, "BEGIN", 0.0)
    monkeypatch.setattr(shrink, "round_up", lambda number: number)


def job_of(*, prior=Horseshoe(), classes=1, steps=50, key):  # noqa: B008
    key_data, key_network, key_train = jr.split(key, 3)
    generator = np.random.default_rng(np.asarray(jr.key_data(key_data)))
    x = generator.standard_normal((ROWS, D_IN))
    y, likelihood = x[:, :1] - np.abs(x[:, 1:2]), GaussianNoise()
    if classes > 1:
        y, likelihood = (y[:, 0] > 0).astype(int), Categorical()
    network = Network.create(
        D_IN, WIDTHS, likelihood.build(classes, rows=ROWS), prior, key=key_network
    )
    config = TrainConfig(steps=steps, batch_size=ROWS, tolerance=0.0)
    data = Data.create(x, y, batch_size=ROWS)
    return Job(Run.create(network, config), data, config, key_train, shrunk)


def with_quiet_nodes(job):
    """Nodes whose expected weights into the next layer are zero."""
    layers = [*job.run.state.network.layers, job.run.state.network.output]
    for index, quiet in enumerate(QUIET, start=1):
        loc = layers[index].weights.kernel.loc.at[:, jnp.array(quiet)].set(0)
        layers[index] = eqx.tree_at(
            lambda layer: layer.weights.kernel.loc, layers[index], loc
        )
    network = eqx.tree_at(
        lambda net: (net.layers, net.output),
        job.run.state.network,
        (tuple(layers[:-1]), layers[-1]),
    )
    job.run = Run.create(network, job.config)
    return job


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("prior", [Horseshoe(), Gaussian(parametrisation="centred")])
def test_shares_are_those_of_the_formula(getkey, classes, prior):
    """By hand from the same draws, with the moments of the scales (S2)."""
    network = job_of(prior=prior, classes=classes, key=getkey()).run.state.network
    x, key = jr.normal(getkey(), (50, D_IN)), getkey()
    means, shares = shrink._look(network, x, key=key)
    laws = [
        np.asarray(law.draw())
        for law in network.conditionals(x, jnp.arange(len(x)), key=key)
    ]
    noise = [0.0] * len(WIDTHS)
    noise[-1] = 1.0 if classes == 1 else (1 - 1 / 3) * np.pi**2 / 6
    for i, layer in enumerate((*network.layers[1:], network.output)):
        a, u = np.maximum(laws[i], 0), laws[i + 1]
        np.testing.assert_allclose(means[i], a.mean(1), rtol=1e-12)
        factor = np.ones(1)
        if prior.parametrisation == "non-centred":
            for scale in layer.scales.values():
                loc, sd = np.asarray(scale.q.loc), np.asarray(scale.q.scale)
                factor = factor * np.exp(loc + sd**2 / 2)
        w = factor * np.asarray(layer.weights.kernel.loc).T
        expected = a.var(1)[:, None] * w**2 / (u.var(1) + noise[i])
        np.testing.assert_allclose(shares[i], expected, rtol=1e-9)


def test_the_smallest_leave_while_they_have_little_together():
    """Each alone would be under the limit; three of them together are not (S2)."""
    little = 0.4 * shrink.TOGETHER
    last = np.array([[little, 0], [little, 0], [0.5, 0.1], [little, 0], [0, little]])
    first = np.array([[0.0, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    keep = shrink._kept([first, last])
    assert keep[1].tolist() == [False, False, True, True, True]
    # Node 0 of the first layer feeds one alone that leaves.
    assert keep[0].tolist() == [False, True]


def test_a_layer_keeps_at_least_one_node_and_numbers_are_rounded_up():
    (keep,) = shrink._kept([np.zeros((40, 2))])
    assert keep.sum() == 1
    share = np.zeros((40, 2))
    share[:17] = 1
    (keep,) = shrink._kept([share])
    assert keep.sum() == 18  # 17 is not of the form m 2^k with m from 8 to 16
    assert keep[:17].all()


def test_quiet_nodes_leave_and_all_else_stays_as_it_was(getkey, always, monkeypatch):
    """Also in the optimiser's state; the history says who left."""
    monkeypatch.setattr(shrink, "TOGETHER", 1e-20)
    job = with_quiet_nodes(job_of(key=getkey()))
    mark = lambda v: v + jnp.arange(v.size, dtype=v.dtype).reshape(v.shape)
    state = job.run.state
    state = eqx.tree_at(
        lambda s: s.optimiser, state, jax.tree.map(mark, state.optimiser)
    )
    job.run.state = state
    run = shrunk(job, job.run)
    assert run.state.network.widths == (9, 8)
    assert [(r.step, r.layer, list(r.nodes)) for r in run.history.removed] == [
        (0, 1, QUIET[0]),
        (0, 2, QUIET[1]),
    ]
    kept = [np.setdiff1d(np.arange(n), q) for n, q in zip(WIDTHS, QUIET, strict=True)]
    new = run.state
    pairs = [(state.network, new.network)]
    pairs += zip(state.optimiser[1:], new.optimiser[1:], strict=True)  # its moments
    for before, after in pairs:
        first, second = before.layers, after.layers
        np.testing.assert_array_equal(
            second[0].weights.kernel.loc, first[0].weights.kernel.loc[kept[0]]
        )
        np.testing.assert_array_equal(
            second[1].weights.kernel.log_scale,
            first[1].weights.kernel.log_scale[np.ix_(*kept[::-1])],
        )
        np.testing.assert_array_equal(
            second[1].scales["tau"].q.loc, first[1].scales["tau"].q.loc[kept[1]]
        )
        np.testing.assert_array_equal(
            after.output.weights.bias.loc, before.output.weights.bias.loc
        )
    np.testing.assert_array_equal(new.network.layers[1].nodes, kept[1])
    np.testing.assert_array_equal(new.network.output.inputs, kept[1])
    assert int(new.optimiser.count) == int(state.optimiser.count)


def test_the_mean_of_a_node_that_leaves_goes_into_the_bias(getkey, always, monkeypatch):
    """A node that is the same for all rows has no share, but a mean."""
    job = job_of(key=getkey())
    network = job.run.state.network
    layer = network.layers[1].weights
    new = [
        layer.kernel.loc.at[3].set(0),
        layer.kernel.log_scale.at[3].set(-30),
        layer.bias.loc.at[3].set(2.0),
        layer.bias.log_scale.at[3].set(-30),
        jnp.full_like(network.layers[1].scales["tau"].q.log_scale, -30),
        jnp.full_like(network.layers[1].scales["upsilon"].q.log_scale, -30),
    ]
    where = lambda net: [
        net.layers[1].weights.kernel.loc,
        net.layers[1].weights.kernel.log_scale,
        net.layers[1].weights.bias.loc,
        net.layers[1].weights.bias.log_scale,
        net.layers[1].scales["tau"].q.log_scale,
        net.layers[1].scales["upsilon"].q.log_scale,
    ]
    job.run = Run.create(eqx.tree_at(where, network, new), job.config)
    network = job.run.state.network
    monkeypatch.setattr(shrink, "TOGETHER", 1e-20)
    run = shrunk(job, job.run)
    assert [list(r.nodes) for r in run.history.removed if r.layer == 2] == [[3]]
    scale = np.exp(
        sum(float(np.ravel(s.q.loc)[0]) for s in network.layers[1].scales.values())
    )
    added = 2.0 * scale * np.asarray(network.output.weights.kernel.loc[:, 3])
    before, after = network.output.weights.bias, run.state.network.output.weights.bias
    np.testing.assert_allclose(after.loc - before.loc, added, rtol=1e-9)
    np.testing.assert_array_equal(after.log_scale, before.log_scale)


def test_small_networks_and_short_runs_do_not_pay(getkey):
    job = job_of(key=getkey())
    assert not could_pay(job)
    assert shrunk(job, job.run) is job.run  # the first tenth
    likelihood = Categorical().build(10, rows=60_000.0)
    wide = Network.create(784, (400, 400), likelihood, Horseshoe(), key=getkey())
    config = TrainConfig(steps=7_000)
    data = Data.create(np.zeros((512, 784)), np.zeros(512, int), batch_size=512)
    assert could_pay(Job(Run.create(wide, config), data, config, getkey()))


def test_a_training_sheds_nodes_and_goes_on(getkey, always, monkeypatch):
    """The bound stays finite and rises; a resumed run has the bits of a whole one."""
    monkeypatch.setattr(shrink, "TOGETHER", 0.2)
    job = job_of(steps=400, key=getkey())
    whole = train(job)
    assert whole.history.status is Status.BUDGET
    removed = whole.history.removed
    assert removed
    gone = {n: [i for r in removed if r.layer == n for i in r.nodes] for n in (1, 2)}
    for number, width in enumerate(WIDTHS, start=1):
        nodes = np.asarray(whole.state.network.layers[number - 1].nodes)
        assert sorted([*nodes, *gone[number]]) == list(range(width))
    assert np.isfinite(whole.history.bound).all()
    assert whole.history.bound[-1] > whole.history.bound[0]


def test_a_run_resumed_after_nodes_left_has_the_bits_of_a_whole_one(
    getkey, always, monkeypatch, tmp_path
):
    monkeypatch.setattr(shrink, "TOGETHER", 0.2)
    job = job_of(steps=100, key=getkey())
    fresh, path = job.run, tmp_path / "checkpoint"
    whole = train(job)

    def stop(run):
        if run.history.removed:
            write_checkpoint(path, run, mark="m", seed=0)
            raise KeyboardInterrupt

    stopped = train(job, stop)
    assert stopped.history.status is Status.INTERRUPTED
    job.run = resume(path, fresh)
    assert job.run.history.removed == stopped.history.removed
    again = train(job)
    assert eqx.tree_equal(again.state, whole.state)
    assert again.history.removed == whole.history.removed
    np.testing.assert_array_equal(again.history.bound, whole.history.bound)


def test_without_keeps_a_state_that_loses_nothing(getkey):
    state = job_of(key=getkey()).run.state
    same = without(state, tuple(np.ones(n, bool) for n in WIDTHS))
    assert eqx.tree_equal(same, state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_an_estimator_that_shed_nodes_can_do_all_that_others_can(
    always, monkeypatch, tmp_path
):
    """Files, another fit from there, and reports of nodes."""
    from farrier import load

    monkeypatch.setattr(shrink, "TOGETHER", 0.3)
    x = np.random.default_rng(0).standard_normal((60, 2))
    y = x[:, 0]
    model = HorseshoeRegressor(
        (12,), max_iter=300, n_draws=8, warm_start=True, random_state=0
    )
    model.fit(x, y)
    (width,) = model.network_.widths
    assert width < 12
    assert len(model.node_scores_[0]) == len(model.weight_norms_[0]) == width
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.history_.removed == model.history_.removed
    again.fit(x, y)  # goes on from the nodes that are left
    assert again.network_.widths[0] <= width
    assert (
        not HorseshoeRegressor((12,), max_iter=300, shrink=False)
        .fit(x, y)
        .history_.removed
    )
