"""Compaction while training: which nodes are removed, what stays, what it saves."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from builders import generator_of, quick, tiny_network, with_layer
from builders import job_of as job_on

from farrier import HorseshoeRegressor, Training
from farrier.checkpoint import resume, write_checkpoint
from farrier.core.posteriors import Matrix
from farrier.core.priors import Gaussian, Horseshoe
from farrier.model.likelihoods import Categorical
from farrier.train.config import TrainConfig
from farrier.train.data import Data
from farrier.train.history import Status
from farrier.train.loop import Job, Run, train
from farrier.train.shrink import (
    Shrinking,
    can_shrink,
    mean_activations_and_shares,
    without,
)

ROWS, D_IN, WIDTHS = 64, 3, (12, 10)
QUIET = ([1, 2, 7], [0, 9])  # nodes that contribute nothing, in each layer


def eager(together=1e-20):
    """Removes nodes from the first chunk on, whenever any can go."""
    return Shrinking(together=together, begin=0.0, min_saving=1.0, rounded=int)


def job_of(*, prior=None, classes=1, steps=50, shrink=None, change=None, key):
    key_data, key_network, key_train = jr.split(key, 3)
    x = generator_of(key_data).standard_normal((ROWS, D_IN))
    y, likelihood = x[:, :1] - np.abs(x[:, 1:2]), None
    if classes > 1:
        y, likelihood = (y[:, 0] > 0).astype(int), Categorical()
    network = tiny_network(
        D_IN,
        WIDTHS,
        classes,
        rows=ROWS,
        prior=prior,
        likelihood=likelihood,
        key=key_network,
    )
    network = network if change is None else change(network)
    return job_on(network, x, y, quick(steps, ROWS), shrink=shrink, key=key_train)


def with_quiet_nodes(network):
    """Nodes whose expected weights into the next layer are zero."""
    for number, quiet in enumerate(QUIET, start=1):
        silent = lambda loc, quiet=quiet: loc.at[:, jnp.array(quiet)].set(0)
        network = with_layer(network, number, kernel=silent)
    return network


@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize(
    "prior",
    [Horseshoe(), Gaussian(parametrisation="centred")],
    ids=["horseshoe", "gaussian"],
)
def test_shares_are_those_of_the_formula(getkey, classes, prior):
    """By hand from the same draws, with the moments of the scales (S2)."""
    network = job_of(prior=prior, classes=classes, key=getkey()).run.state.network
    x, key = jr.normal(getkey(), (50, D_IN)), getkey()
    means, shares = mean_activations_and_shares(network, x, key=key)
    conditionals = [
        np.asarray(each.draw())
        for each in network.conditionals(x, jnp.arange(len(x)), key=key)
    ]
    noise = [0.0] * len(WIDTHS)
    noise[-1] = 1.0 if classes == 1 else (1 - 1 / 3) * np.pi**2 / 6
    for i, layer in enumerate((*network.layers[1:], network.output)):
        a, u = np.maximum(conditionals[i], 0), conditionals[i + 1]
        np.testing.assert_allclose(means[i], a.mean(1), rtol=1e-12)
        factor = np.ones(1)
        if prior.parametrisation == "non-centred":
            for scale in layer.scales.values():
                loc, sd = np.asarray(scale.q.loc), np.asarray(scale.q.scale)
                factor = factor * np.exp(loc + sd**2 / 2)
        w = factor * np.asarray(layer.weights.kernel.loc).T
        expected = a.var(1)[:, None] * w**2 / (u.var(1) + noise[i])
        np.testing.assert_allclose(shares[i], expected, rtol=1e-9)


def test_the_smallest_are_removed_while_they_have_little_together():
    """Each alone would be under the limit; three of them together are not (S2)."""
    shrinking = Shrinking(together=0.01)
    little = 0.004
    last = np.array([[little, 0], [little, 0], [0.5, 0.1], [little, 0], [0, little]])
    first = np.array([[0.0, 1, 0, 0, 0], [0, 0, 1, 0, 0]])
    keep = shrinking.kept_by([first, last])
    assert keep[1].tolist() == [False, False, True, True, True]
    # Node 0 of the first layer feeds only one node, which is removed.
    assert keep[0].tolist() == [False, True]


def test_a_layer_keeps_at_least_one_node_and_numbers_are_rounded_up():
    (keep,) = Shrinking().kept_by([np.zeros((40, 2))])
    assert keep.sum() == 1
    share = np.zeros((40, 2))
    share[:17] = 1
    (keep,) = Shrinking().kept_by([share])
    assert keep.sum() == 18  # 17 is not of the form m 2^k with m from 8 to 16
    assert keep[:17].all()


def test_quiet_nodes_are_removed_and_all_else_stays_as_it_was(getkey):
    """Also in the optimiser's state; the history names the nodes."""
    job = job_of(change=with_quiet_nodes, key=getkey())
    mark = lambda v: v + jnp.arange(v.size, dtype=v.dtype).reshape(v.shape)
    state = job.run.state
    state = replace(state, optimiser=jax.tree.map(mark, state.optimiser))
    job.run = replace(job.run, state=state)
    run = eager()(job, job.run)
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


def test_the_mean_of_a_removed_node_goes_into_the_bias(getkey):
    """A node that is the same for all rows has no share, but a mean."""

    def constant(network):
        return with_layer(
            network,
            1,
            kernel=lambda loc: loc.at[3].set(0),
            bias=lambda loc: loc.at[3].set(2.0),
            sd=np.exp(-30),
            scale_sd=np.exp(-30),
        )

    job = job_of(change=constant, key=getkey())
    network = job.run.state.network
    run = eager()(job, job.run)
    assert [list(r.nodes) for r in run.history.removed if r.layer == 2] == [[3]]
    scale = np.exp(
        sum(float(np.ravel(s.q.loc)[0]) for s in network.layers[1].scales.values())
    )
    added = 2.0 * scale * np.asarray(network.output.weights.kernel.loc[:, 3])
    before, after = network.output.weights.bias, run.state.network.output.weights.bias
    np.testing.assert_allclose(after.loc - before.loc, added, rtol=1e-9)
    np.testing.assert_array_equal(after.log_scale, before.log_scale)


def test_small_networks_and_short_runs_do_not_pay(getkey):
    job, shrinking = job_of(key=getkey()), Shrinking()
    assert not shrinking.could_pay(job)
    assert shrinking(job, job.run) is job.run  # the first tenth
    wide = tiny_network(
        784, (400, 400), 10, rows=60_000, likelihood=Categorical(), key=getkey()
    )
    config = TrainConfig(steps=7_000)
    data = Data.create(np.zeros((512, 784)), np.zeros(512, int), batch_size=512)
    job = Job(Run.create(wide, config), data, config, getkey())
    assert shrinking.could_pay(job)
    # 784 x 400 + 400 x 400 + 400 x 10 weights, six products each, in 7000 steps.
    saved = 6 * 512 * 7_000 * (784 * 400 + 400 * 400 + 400 * 10)
    assert Shrinking(min_saving=0.999 * saved).could_pay(job)
    assert not Shrinking(min_saving=1.001 * saved).could_pay(job)


def test_no_node_is_removed_before_its_share_of_the_budget(getkey):
    job = job_of(change=with_quiet_nodes, key=getkey())
    late = replace(eager(), begin=0.5)
    for step, widths in ((24, WIDTHS), (25, (9, 8))):
        state = replace(job.run.state, step=jnp.int32(step))
        run = late(job, replace(job.run, state=state))
        assert run.state.network.widths == widths


def test_correlated_weights_and_averages_keep_all_nodes(getkey):
    """Single nodes cannot be removed from them."""
    x, config = np.zeros((ROWS, D_IN)), quick(5, ROWS)
    for posterior, averaging, expected in (
        (None, 0.0, True),
        (None, 0.5, False),
        (Matrix(), 0.0, False),
    ):
        network = tiny_network(D_IN, WIDTHS, posterior=posterior, key=getkey())
        settings = replace(config, averaging=averaging)
        job = job_on(network, x, x[:, :1], settings, key=getkey())
        assert can_shrink(job) == expected


def test_a_run_loses_nodes_and_goes_on(getkey):
    """The ELBO stays finite and rises."""
    job = job_of(steps=400, shrink=eager(0.2), key=getkey())
    whole = train(job)
    assert whole.history.status is Status.BUDGET
    removed = whole.history.removed
    assert removed
    gone = {n: [i for r in removed if r.layer == n for i in r.nodes] for n in (1, 2)}
    for number, width in enumerate(WIDTHS, start=1):
        nodes = np.asarray(whole.state.network.layers[number - 1].nodes)
        assert sorted([*nodes, *gone[number]]) == list(range(width))
    assert np.isfinite(whole.history.elbo).all()
    assert whole.history.elbo[-1] > whole.history.elbo[0]


def test_a_run_resumed_after_nodes_were_removed_has_the_bits_of_a_whole_one(
    getkey, tmp_path
):
    job = job_of(steps=100, shrink=eager(0.2), key=getkey())
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
    np.testing.assert_array_equal(again.history.elbo, whole.history.elbo)


def test_without_keeps_a_state_that_loses_nothing(getkey):
    state = job_of(key=getkey()).run.state
    same = without(state, tuple(np.ones(n, bool) for n in WIDTHS))
    assert eqx.tree_equal(same, state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_an_estimator_that_lost_nodes_can_do_all_that_others_can(monkeypatch, tmp_path):
    """Files, another fit from there, and reports of nodes."""
    from farrier import fit, load

    monkeypatch.setattr(fit, "Shrinking", lambda: eager(0.3))
    x = np.random.default_rng(0).standard_normal((60, 2))
    y = x[:, 0]
    model = HorseshoeRegressor(
        (12,),
        training=Training(max_iter=300),
        n_draws=8,
        warm_start=True,
        random_state=0,
    )
    model.fit(x, y)
    (width,) = model.model_.posterior.widths
    assert width < 12
    assert len(model.node_scores_[0]) == len(model.weight_norms_[0]) == width
    model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.history_.removed == model.history_.removed
    again.fit(x, y)  # goes on from the nodes that are left
    assert again.model_.posterior.widths[0] <= width
