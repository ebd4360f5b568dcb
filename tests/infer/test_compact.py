"""A smaller posterior that predicts the same."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import (
    NO_SPREAD,
    generator_of,
    known_network,
    random_draws,
    tiny_network,
    with_noise_sd,
    with_weights,
)

from farrier import HorseshoeRegressor, Training, TrainingWarning
from farrier.core.posteriors import Matrix
from farrier.core.priors import Horseshoe
from farrier.infer.compact import (
    MAX_MOVE,
    activations,
    compact,
    silence,
)
from farrier.infer.nodes import ACTIVE_SHARE, Nodes, find_nodes
from farrier.infer.predict import summarise
from farrier.model.distributions import ClassProbabilities
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.network import Network
from farrier.model.posterior import VariationalPosterior
from farrier.presets import PLAIN

# Few shapes: compilation takes most of the time of these tests.
ROWS, D_IN, TARGETS, DRAWS = 60, 2, 2, 8
NOISE = GaussianNoise().build(TARGETS, rows=float(ROWS))


def network_of(widths, *, likelihood=None, form="non-centred", sd=NO_SPREAD, key):
    """A network of relu nodes; `sd` is the spread of every normal in it."""
    prior = Horseshoe(parametrisation=form)
    likelihood = likelihood or NOISE
    args = D_IN, widths, likelihood, prior
    return tiny_network(*args, sd=sd, activation="relu", key=key)


def posterior_of(network, *, draws=DRAWS, key):
    return VariationalPosterior.create(network, draws, key=key)


def moments_of(network, x, *, key, draws=DRAWS):
    """What `silence` needs to know about the activations."""
    return activations(posterior_of(network, draws=draws, key=key), x)


def inputs(key):
    return generator_of(key).standard_normal((ROWS, D_IN))


def targets(key):
    return generator_of(key).standard_normal((ROWS, TARGETS))


predict = eqx.filter_jit(lambda posterior, x: posterior.predictive(x))


def drawn_mixture(network, x, *, key):
    """Means and variances of all components of the predictive mixture."""
    mix = predict(posterior_of(network, key=key), x)
    return mix.loc, mix.weight_variance


def mask(*kept):
    return np.array(kept, bool)


# --- folding ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["non-centred", "centred"])
def test_a_constant_node_is_folded_exactly(getkey, form):
    """Its weights have their full spread; only the node has none (C1)."""
    network = network_of((4,), form=form, sd=0.3, key=getkey())
    where = lambda net: [
        net.layers[0].weights.kernel.loc,
        net.layers[0].weights.bias.loc,
        net.layers[0].weights.kernel.log_scale,
        net.layers[0].weights.bias.log_scale,
        net.layers[0].scales["tau"].q.log_scale,
        net.layers[0].scales["upsilon"].q.log_scale,
    ]
    kernel, bias, *spreads, upsilon = where(network)
    tight = [spread.at[2].set(np.log(NO_SPREAD)) for spread in spreads]
    upsilon = jnp.full_like(upsilon, np.log(NO_SPREAD))
    locs = [kernel.at[2].set(0), bias.at[2].set(1.0)]
    network = eqx.tree_at(where, network, [*locs, *tight, upsilon])
    x, key, keep = jnp.asarray(inputs(getkey())), getkey(), (mask(1, 1, 0, 1),)
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    full = drawn_mixture(network, x, key=key)
    for ours, theirs in zip(drawn_mixture(silenced, x, key=key), full, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
    assert np.asarray(full[0]).std(0).min() > 0.01
    before, after = (net.output.weights.bias for net in (network, silenced))
    assert (after.scale > before.scale + 1e-3).all()
    assert (np.abs(after.loc - before.loc) > 1e-3).all()


def test_constant_nodes_without_any_spread_are_folded(getkey):
    """Where E[a^2] - E[a]^2 rounds to less than 0 it may not give NaN (C1)."""
    network, generator = network_of((4, 3), key=getkey()), generator_of(getkey())
    kernel = generator.standard_normal((2, 4)) * mask(1, 0, 1, 0)
    network = with_weights(network, 0, kernel, np.array([0.3, 2.0, -0.5, 1.1]))
    large = 30 * generator.standard_normal((4, 3))
    network = with_weights(network, 1, large, generator.standard_normal(3))
    x, key = jnp.asarray(inputs(getkey())), getkey()
    keep = (mask(1, 0, 1, 0), mask(1, 1, 1))
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    full, _ = drawn_mixture(network, x, key=key)
    folded, _ = drawn_mixture(silenced, x, key=key)
    # A difference that rounds to 1e-16 adds a spread of 1e-8, times weights of 30.
    np.testing.assert_allclose(folded, full, atol=1e-5)


def test_silenced_and_removed_nodes_predict_the_same(getkey):
    """Each node keeps its own noise when others go (C1), (R1)."""
    network = network_of((4, 3), sd=0.3, key=getkey())
    x, key = jnp.asarray(inputs(getkey())), getkey()
    keep = (mask(0, 1, 1, 0), mask(1, 0, 1))
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    dropped = silenced.take(keep)
    assert dropped.widths == (2, 2)
    for ours, theirs in zip(
        *(drawn_mixture(net, x, key=key) for net in (dropped, silenced)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        assert np.std(theirs, axis=0).max() > 0.01


def test_what_is_random_about_a_node_goes_into_the_bias(getkey):
    """Mean and variance of the outputs, against draws of all weights (C1)."""
    network = network_of((2,), sd=0.3, key=getkey())
    scales = lambda net: [s.q.log_scale for s in net.named_scales().values()]
    fixed = [jnp.full_like(v, np.log(NO_SPREAD)) for v in scales(network)]
    network = eqx.tree_at(scales, network, fixed)
    x, draws, keep = jnp.zeros((1, D_IN)), 20_000, (mask(1, 0),)
    posterior = posterior_of(network, draws=draws, key=getkey())
    silenced = silence(network, keep, activations(posterior, x))
    both = [
        np.asarray(posterior_of(net, draws=draws, key=getkey()).drawn_outputs(x))
        for net in (network, silenced)
    ]
    one, other = (f[:, 0] for f in both)
    error = np.sqrt((one.var(0) + other.var(0)) / draws)
    assert (np.abs(one.mean(0) - other.mean(0)) < 5 * error).all()
    squares = [(f - f.mean(0)) ** 2 for f in (one, other)]
    error = np.sqrt((squares[0].var(0) + squares[1].var(0)) / draws)
    assert (np.abs(squares[0].mean(0) - squares[1].mean(0)) < 5 * error).all()
    # Without Var[a_k] mu_kj^2 the test would fail.
    number = posterior.map(lambda n: posterior.sample(n).hidden(x)[0][0, 1])
    kappa = np.exp(np.asarray(network.output.scales["kappa"].q.loc))
    loc = kappa * np.asarray(network.output.weights.kernel.loc)[:, 1]
    assert (np.asarray(number).var() * loc**2 > 10 * error).any()


def test_moments_of_activations_are_over_draws_and_rows(getkey):
    """Means over the draws for each row; mean squares over draws and rows (C1)."""
    x = jnp.asarray(inputs(getkey()))
    posterior = posterior_of(network_of((3, 2), sd=0.3, key=getkey()), key=getkey())
    draws = [posterior.sample(jnp.asarray(n)).hidden(x) for n in range(DRAWS)]
    for layer, moments in enumerate(activations(posterior, x)):
        values = np.stack([np.asarray(hidden[layer]) for hidden in draws])
        np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-9)
        np.testing.assert_allclose(moments.square, (values**2).mean((0, 1)), rtol=1e-9)
        assert (moments.square > 1.1 * values.mean((0, 1)) ** 2).any()


def test_folded_nodes_are_a_constant_and_a_combination_of_the_kept_ones(getkey):
    """a_2 = 3 + 2 a_0 - a_1 exactly: nothing changes where they are folded (C1)."""
    x = np.abs(inputs(getkey())) + 0.5
    # Node 2 is 3 + 2 x_0 - x_1, which is positive over these rows.
    kernel = np.array([[1.0, 0, 2], [0, 1, -1]])
    bias = np.array([0.3, 0.2, 4.0])
    output = generator_of(getkey()).standard_normal((3, TARGETS))
    weights = [kernel, output], [bias, np.zeros(TARGETS)]
    network = known_network(*weights, NOISE, key=getkey())
    assert (x @ kernel + bias > 0).all()
    x, keep = jnp.asarray(x), (mask(1, 1, 0),)
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    key = getkey()
    full, _ = drawn_mixture(network, x, key=key)
    folded, _ = drawn_mixture(silenced, x, key=key)
    # The ridge moves slopes by about 1e-4, about the mean of the activations.
    np.testing.assert_allclose(folded, full, atol=5e-3)
    constant = np.asarray(folded - full).mean((0, 1))
    np.testing.assert_allclose(constant, 0, atol=1e-6)
    # The constant is what is left of the mean once the slopes have their share.
    before, after = (net.output.weights.bias.loc for net in (network, silenced))
    scale = np.exp(np.asarray(network.output.scales["kappa"].q.loc))
    moved = scale * np.asarray(after - before)
    expected = (4.0 - 2 * 0.3 + 0.2) * output[2]
    np.testing.assert_allclose(moved, expected, rtol=0.01)


def test_posterior_samples_fold_with_constants_of_each_draw(getkey):
    """A node that is constant over the rows is folded exactly (C1)."""
    posterior, x = random_draws((2, 4, 2), key=getkey()), inputs(getkey())
    kernel = (
        posterior.kernels[0].at[..., 1].set(0.0)
    )  # its activation: tanh of the bias
    posterior = eqx.tree_at(lambda p: p.kernels[0], posterior, kernel)
    nodes = Nodes((np.tile([0.5, 0.0, 0.5, 0.5], (posterior.draws, 1)),))
    small = compact(posterior, nodes, x, targets(getkey()))
    assert small.keep[0].tolist() == [True, False, True, True]
    assert small.posterior.widths == (3,)
    x = jnp.asarray(x)
    np.testing.assert_allclose(
        small.posterior.drawn_outputs(x), posterior.drawn_outputs(x), rtol=1e-9
    )
    assert small.moved < 1e-9
    tau = np.asarray(posterior.scales["layer_1"]["tau"])
    ours = np.asarray(small.posterior.scales["layer_1"]["tau"])
    np.testing.assert_array_equal(ours, tau[:, small.keep[0]])


def test_stored_draws_compact_as_well(getkey):
    """Draws with the output layer integrated: their variances are folded too (C1)."""
    network = network_of((4,), sd=0.3, key=getkey())
    once = posterior_of(network, key=getkey()).as_sampled()
    x, y = inputs(getkey()), targets(getkey())
    nodes = Nodes((np.tile([0.5, 0.5, 0.0, 0.5], (DRAWS, 1)),))
    small = compact(once, nodes, x, y)
    assert small.posterior.widths == (small.keep[0].sum(),)
    assert small.moved <= MAX_MOVE


def test_correlated_nodes_are_all_kept(getkey):
    """A posterior that correlates the nodes of a layer is left as it is."""
    args = D_IN, (4,), NOISE, Horseshoe(), Matrix()
    posterior = posterior_of(Network.create(*args, key=getkey()), key=getkey())
    assert not posterior.can_fold
    nodes = Nodes((np.zeros((DRAWS, 4)),))
    small = compact(posterior, nodes, inputs(getkey()), targets(getkey()))
    assert small.posterior is posterior
    assert small.keep[0].all()
    assert (small.moved, small.log_density_change) == (0, 0)


# --- compaction -------------------------------------------------------------------


def reordered(network, order):
    """The nodes of the last hidden layer in another order, numbers and all."""
    width = len(order)
    first = lambda leaf: leaf[order] if leaf.shape[:1] == (width,) else leaf
    arrays, static = eqx.partition(network.layers[-1], eqx.is_array)
    hidden = eqx.combine(jax.tree.map(first, arrays), static)
    kernel = jax.tree.map(lambda leaf: leaf[:, order], network.output.weights.kernel)
    where = lambda net: (net.layers[-1], net.output.weights.kernel, net.output.inputs)
    new = (hidden, kernel, network.output.inputs[order])
    return eqx.tree_at(where, network, new)


def test_reordering_nodes_changes_nothing(getkey):
    """Neither their shares nor what compaction keeps, makes and costs (S1), (C1)."""
    network = network_of((4, 3), sd=0.1, key=getkey())
    where = lambda net: net.output.weights.kernel
    weak = jnp.array([1, 1e-3, 1])[None]
    kernel = where(network)
    log_sd = jnp.asarray(np.log(np.asarray(kernel.scale * weak)))
    network = eqx.tree_at(where, network, type(kernel)(kernel.loc * weak, log_sd))
    order, x, y, key = (
        np.array([2, 0, 1]),
        inputs(getkey()),
        targets(getkey()),
        getkey(),
    )
    results = []
    for net in (network, reordered(network, order)):
        posterior = posterior_of(net, key=key)
        nodes = find_nodes(posterior, jnp.asarray(x))
        results.append((nodes, compact(posterior, nodes, x, y)))
    (nodes, small), (other_nodes, other) = results
    for layer, numbers in enumerate((np.arange(4), order)):
        ours, theirs = other_nodes.shares[layer], nodes.shares[layer][:, numbers]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        np.testing.assert_array_equal(other.keep[layer], small.keep[layer][numbers])
    assert small.posterior.widths == (4, 2)
    np.testing.assert_allclose(other.moved, small.moved, rtol=1e-6)
    again = reordered(small.posterior.network, np.array([1, 0]))
    for ours, theirs in zip(
        jax.tree.leaves(other.posterior.network), jax.tree.leaves(again), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_more_nodes_are_kept_where_the_active_ones_are_not_enough(getkey):
    """With little noise, half a per cent of the variation is much of it (S1), (C1).

    Node 0 is active. Node 1 has a share of about 0.005, a tenth of the noise; nodes 2
    and 3 do nothing.
    """
    kernel = np.array([[1.0, 0, 1, 1], [0, 1, 1, -1]])
    output = np.array([[1.0, 0.3], [0.005, 0.001], [1e-7, 0], [0, 1e-7]])
    weights = [kernel, output], [np.zeros(4), np.zeros(2)]
    network = known_network(*weights, NOISE, key=getkey())
    network = with_noise_sd(network, np.array([0.05, 0.05]))
    x, y = inputs(getkey()), targets(getkey())
    posterior = posterior_of(network, key=getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    assert nodes.active[0].tolist() == [True, False, False, False]
    small = compact(posterior, nodes, x, y)
    assert small.keep[0].tolist() == [True, True, False, False]
    assert small.posterior.widths == (2,)
    assert small.moved < 1e-4
    # What node 0 alone would have cost, with node 1 projected on it.
    active, other = np.maximum(x, 0).T
    basis = np.column_stack([active, np.ones(ROWS)])
    left = other - basis @ np.linalg.lstsq(basis, other)[0]
    alone = left.std() * np.linalg.norm(output[1]) / (0.05 * np.sqrt(TARGETS))
    assert alone > 2 * MAX_MOVE


def test_an_inactive_network_keeps_one_node_in_each_layer(getkey):
    """The output is its bias, and no node is active (S1), (C1)."""
    network, bias = network_of((4, 3), key=getkey()), np.array([0.7, -0.2])
    network = with_weights(network, 2, np.full((3, 2), 1e-9), bias)
    x, y = inputs(getkey()), targets(getkey())
    posterior = posterior_of(network, key=getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    assert nodes.widths == (0, 0)
    assert nodes.width_interval(0.9) == ((0, 0), (0, 0))
    small = compact(posterior, nodes, x, y)
    assert small.posterior.widths == (1, 1)
    assert small.moved < 1e-6
    kappa = np.exp(small.posterior.network.output.scales["kappa"].q.loc)
    np.testing.assert_allclose(
        kappa * small.posterior.network.output.weights.bias.loc, bias, rtol=1e-6
    )


def test_a_classifier_compacts_and_measures_its_move(getkey):
    """In standard deviations of the class; two of the nodes do little (C1)."""
    output = np.array([[3.0, -2, 0], [2e-3, 0, 0], [0, 1, 1], [0, 0, 4e-3]])
    kernel = np.array([[1.0, -0.5, 0.3, 0.8], [0.2, 1.0, -1.0, 0.4]])
    likelihood = Categorical().build(3, rows=float(ROWS))
    weights = [kernel, output], [np.zeros(4), np.zeros(3)]
    network = known_network(*weights, likelihood, key=getkey())
    x, y = inputs(getkey()), generator_of(getkey()).integers(0, 3, ROWS)
    posterior = posterior_of(network, key=getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    small = compact(posterior, nodes, x, y)
    assert small.keep[0].tolist() == [True, False, True, False]
    p, small_p = (
        summarise(ClassProbabilities.mean, each, x)
        for each in (posterior, small.posterior)
    )
    moves = np.linalg.norm(small_p - p, axis=1) / np.sqrt((p * (1 - p)).sum(1))
    np.testing.assert_allclose(small.moved, np.sqrt((moves**2).mean()), rtol=1e-6)
    assert 1e-6 < small.moved < MAX_MOVE
    change = np.log(small_p[np.arange(ROWS), y] / p[np.arange(ROWS), y]).mean()
    np.testing.assert_allclose(small.log_density_change, change, rtol=1e-6)


# --- a fitted model ---------------------------------------------------------------


def fitted(X, y):
    training = Training(max_iter=3_000, learning_rate=0.03, kl_annealing=0.6)
    settings = PLAIN | {"training": training, "n_draws": DRAWS, "random_state": 0}
    model = HorseshoeRegressor((4,), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y)


@pytest.fixture(scope="module")
def table():
    """Two targets that two nodes can make."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((ROWS, D_IN))
    signal = np.abs(X[:, :1]) * [1.0, -3.0]
    return X, signal + 0.1 * generator.standard_normal((ROWS, TARGETS))


@pytest.fixture(scope="module")
def model(table):
    return fitted(*table)


def test_compaction_of_a_fitted_model_keeps_its_predictions(table, model):
    """Within 1 % of the predictive standard deviation, as reported (C1)."""
    X, _ = table
    small = model.compact()
    assert small.model_.posterior.widths == small.widths_ == model.widths_ == (2,)
    mean, sd = model.predict(X, return_std=True)
    # Moves and sds in the standard units of each target, over both of them.
    scale = model.model_.units.y.scale
    moves = np.linalg.norm((small.predict(X) - mean) / scale, axis=1)
    moved = np.sqrt(np.mean((moves / np.linalg.norm(sd / scale, axis=1)) ** 2))
    assert 0 < moved <= MAX_MOVE
    np.testing.assert_allclose(small.compaction_.moved, moved, rtol=1e-4)
    match = re.fullmatch(
        r"(\d+) of (\d+) nodes kept, predictive means moved by (\S+) % of their "
        r"standard deviation, log density changed by (\S+) a point",
        str(small.compaction_),
    )
    assert match
    kept, of, per_cent, nats = match.groups()
    assert (kept, of) == ("2", "4")
    np.testing.assert_allclose(float(per_cent), 100 * moved, rtol=0.06)
    change = small.compaction_.log_density_change
    np.testing.assert_allclose(float(nats), change, rtol=0.06)
    assert abs(change) < 0.01


def test_reports_on_nodes_agree_with_one_another(model):
    """Scores, probabilities, widths and their interval, before and after (S1)."""
    (scores,), (probability,) = model.node_scores_, model.node_probabilities_
    assert model.widths_ == ((scores > ACTIVE_SHARE).sum(),)
    assert (probability[scores > ACTIVE_SHARE] >= 0.5).all()
    assert (probability[scores <= ACTIVE_SHARE] <= 0.5).all()
    ((low, high),) = model.width_interval(0.9)
    assert 1 <= low <= model.widths_[0] <= high <= 4
    small = model.compact()
    (kept,) = small.compaction_.keep
    np.testing.assert_array_equal(small.node_scores_[0], scores[kept])
    np.testing.assert_array_equal(small.node_probabilities_[0], probability[kept])


def test_units_of_inputs_and_targets_do_not_matter(table, monkeypatch):
    """Metres or millimetres, and any origin (S1). Rows stay in their order here."""
    (X, y), units = table, np.array([1e-2, 1e4])
    monkeypatch.setattr("farrier.estimators.rows.merge_rows", lambda *rows: rows)
    plain, other = fitted(X, y), fitted(1e3 * X + 5, units * y - 7)
    assert other.widths_ == plain.widths_ == (2,)
    ours, theirs = other.node_scores_[0], plain.node_scores_[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    predicted = (other.predict(1e3 * X + 5) + 7) / units
    np.testing.assert_allclose(predicted, plain.predict(X), atol=1e-4)


# --- columns ----------------------------------------------------------------------


def columns_of(x, *, sd, key):
    """A posterior of a network whose columns have scales, and its node scores."""
    key_network, key_draws = jr.split(key)
    args = D_IN, (3,), NOISE, Horseshoe(columns=True)
    network = tiny_network(*args, sd=sd, activation="relu", key=key_network)
    posterior = posterior_of(network, key=key_draws)
    return posterior, find_nodes(posterior, jnp.asarray(x))


def test_a_constant_column_is_removed_and_predictions_stay(getkey):
    """Its mean goes into the biases (C1), with its scale (I2)."""
    x, y = inputs(getkey()), targets(getkey())
    x[:, 1] = 2.0
    posterior, nodes = columns_of(x, sd=NO_SPREAD, key=getkey())
    small = compact(posterior, nodes, x, y)
    np.testing.assert_array_equal(small.columns, [True, False])
    assert small.posterior.network.layers[0].weights.fan_in == 2
    assert str(small).startswith("1 of 2 columns and ")
    assert small.moved < 1e-6
    np.testing.assert_allclose(
        small.posterior.drawn_outputs(jnp.asarray(x)),
        posterior.drawn_outputs(jnp.asarray(x)),
        atol=1e-6,
    )


def test_a_constant_column_of_posterior_samples_is_removed(getkey):
    """The weights of the column become constants in the bias (C1)."""
    x, y = inputs(getkey()), targets(getkey())
    x[:, 1] = 2.0
    posterior = random_draws((D_IN, 3, TARGETS), columns=True, key=getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    small = compact(posterior, nodes, x, y)
    np.testing.assert_array_equal(small.columns, [True, False])
    assert not np.asarray(small.posterior.kernels[0])[:, 1].any()
    assert small.moved < 1e-9
    np.testing.assert_allclose(
        small.posterior.drawn_outputs(jnp.asarray(x)),
        posterior.take(small.keep).drawn_outputs(jnp.asarray(x)),
        rtol=1e-9,
    )
