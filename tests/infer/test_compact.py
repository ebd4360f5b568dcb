"""Which nodes are on, and a smaller network that predicts the same."""

import dataclasses
import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from farrier import HorseshoeRegressor, TrainingWarning
from farrier.core.posteriors import Node
from farrier.core.priors import Horseshoe
from farrier.infer.compact import (
    MOVED,
    ON_SHARE,
    Nodes,
    activations,
    column_shares,
    compact,
    drop,
    find_nodes,
    silence,
)
from farrier.infer.predict import by_chunks, mixture, probabilities
from farrier.model.inputs import InputScales
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.network import Network
from farrier.presets import PLAIN

# Few shapes: what compiles is the dear part of these tests.
ROWS, D_IN, TARGETS, DRAWS = 60, 2, 2, 8
NO_SPREAD = 1e-12


def generator_of(key):
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def every_normal(network):
    """The posteriors of all weights and of the logarithms of all scales."""
    layers = network.named_layers().values()
    weights = [q for each in layers for q in (each.weights.kernel, each.weights.bias)]
    return weights + [scale.q for each in layers for scale in each.scales.values()]


def network_of(widths, *, likelihood=None, form="non-centred", sd=NO_SPREAD, key):
    """A network of relu nodes; `sd` is the spread of every normal in it."""
    likelihood = likelihood or GaussianNoise().build(TARGETS, rows=float(ROWS))
    prior = Horseshoe(parametrisation=form)
    network = Network.create(D_IN, widths, likelihood, prior, key=key)
    return eqx.tree_at(
        lambda net: [q.log_scale for q in every_normal(net)],
        network,
        [jnp.full_like(q.log_scale, np.log(sd)) for q in every_normal(network)],
    )


def with_weights(network, layer, kernel, bias):
    """The network with the weights of a layer set, whatever their scales are.

    Only where posteriors have no spread, so that the scales are known numbers.
    """
    get = lambda net: [*net.named_layers().values()][layer]
    scales = get(network).scales.values()
    scale = np.exp(sum(np.asarray(scale.q.loc) for scale in scales))
    new = [jnp.asarray((v / scale).T) for v in (kernel, bias)]
    where = lambda net: [get(net).weights.kernel.loc, get(net).weights.bias.loc]
    return eqx.tree_at(where, network, new)


def with_noise_sd(network, sd):
    """The network with E[gamma] = 1 / sd^2 for each target."""
    gamma = network.likelihood.gamma
    log_rate = jnp.log(gamma.fixed_shape) + 2 * np.log(sd)
    return eqx.tree_at(lambda net: net.likelihood.gamma.log_rate, network, log_rate)


def inputs(key):
    return generator_of(key).standard_normal((ROWS, D_IN))


def targets(key):
    return generator_of(key).standard_normal((ROWS, TARGETS))


@eqx.filter_jit
def drawn_mixture(network, x, *, key):
    """Means and variances of all parts of the predictive mixture."""
    mix = mixture(network, x, jnp.ones((DRAWS, TARGETS)), key=key)
    return mix.loc, mix.own_variance


def mask(*kept):
    return np.array(kept, bool)


# --- shares -----------------------------------------------------------------------


def test_shares_by_hand(getkey):
    """Two layers, two targets, no spread: every draw is one known network (S1)."""
    network, x = network_of((4, 3), key=getkey()), inputs(getkey())
    generator, noise_sd = generator_of(getkey()), np.array([0.5, 2.0])
    sizes = [(2, 4), (4, 3), (3, 2)]
    kernels = [generator.standard_normal(size) for size in sizes]
    biases = [generator.standard_normal(size[1]) for size in sizes]
    kernels[1][2] = [0, 0, 5]  # node 2 feeds node 2 of the next layer alone ...
    kernels[2][2] = [1e-4, -2e-4]  # ... which is off
    kernels[1][3] *= 1e-3
    for layer, weights in enumerate(zip(kernels, biases, strict=True)):
        network = with_weights(network, layer, *weights)
    network = with_noise_sd(network, noise_sd)
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    u = []
    a = [x]
    for kernel, bias in zip(kernels, biases, strict=True):
        u.append(a[-1] @ kernel + bias)
        a.append(np.maximum(u[-1], 0))
    spread = np.sqrt(u[2].var(0) + noise_sd**2)
    expected = [
        a[1].std(0) * (np.abs(kernels[1]) / u[1].std(0))[:, :2].max(1),
        a[2].std(0) * (np.abs(kernels[2]) / spread).max(1),
    ]
    for shares, by_hand in zip(nodes.shares, expected, strict=True):
        by_hand = np.tile(by_hand, (DRAWS, 1))
        np.testing.assert_allclose(shares, by_hand, rtol=1e-9, atol=1e-11)
    assert nodes.widths == (2, 2)
    assert nodes.on[0].tolist() == [True, True, False, False]
    assert nodes.on[1].tolist() == [True, True, False]


def classifier_by_hand(output, *, key):
    """One hidden layer, three classes, no spread; and its activations for some rows."""
    key_network, key_x = jr.split(key)
    likelihood = Categorical().build(3, rows=float(ROWS))
    network = network_of((4,), likelihood=likelihood, key=key_network)
    kernel = np.array([[1.0, -0.5, 0.3, 0.8], [0.2, 1.0, -1.0, 0.4]])
    network = with_weights(network, 0, kernel, np.zeros(4))
    x = inputs(key_x)
    return with_weights(network, 1, output, np.zeros(3)), x, np.maximum(x @ kernel, 0)


def test_shares_of_a_classifier_by_hand(getkey):
    """Logits centred over the classes, with the noise of a centred Gumbel law (S1)."""
    output = generator_of(getkey()).standard_normal((4, 3))
    output[1] = 40.0  # the same for all classes: a softmax does not see it
    network, x, a = classifier_by_hand(output, key=getkey())
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    centred = output - output.mean(1, keepdims=True)
    noise = (1 - 1 / 3) * np.pi**2 / 6
    utilities = generator_of(getkey()).gumbel(size=(200_000, 3))
    drawn = (utilities - utilities.mean(1, keepdims=True)).var(0)
    np.testing.assert_allclose(drawn, noise, rtol=0.02)
    reach = np.abs(centred) / np.sqrt((a @ centred).var(0) + noise)
    np.testing.assert_allclose(
        nodes.scores[0], a.std(0) * reach.max(1), rtol=1e-9, atol=1e-9
    )
    assert nodes.on[0].tolist() == [True, False, True, True]


def test_units_of_targets_do_not_change_the_shares(getkey):
    """Outputs and noise in other units, for each target its own (S1)."""
    network = network_of((4, 3), sd=0.2, key=getkey())
    x, key = jnp.asarray(inputs(getkey())), getkey()
    plain = find_nodes(network, x, DRAWS, key=key)
    units = np.array([1e3, 1e-3])
    kernel = network.output.weights.kernel
    new = [
        kernel.loc * units[:, None],
        jnp.asarray(np.log(np.asarray(kernel.scale) * units[:, None])),
        network.likelihood.gamma.log_rate + 2 * np.log(units),
    ]
    where = lambda net: [
        net.output.weights.kernel.loc,
        net.output.weights.kernel.log_scale,
        net.likelihood.gamma.log_rate,
    ]
    other = find_nodes(eqx.tree_at(where, network, new), x, DRAWS, key=key)
    for ours, theirs in zip(other.shares, plain.shares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert plain.shares[0].std(0).min() > 1e-3  # the posterior is uncertain of them


def test_what_is_said_of_nodes_agrees_with_the_shares():
    """Median, probability and the interval of the width (S1)."""
    generator = np.random.default_rng(0)
    factors = np.geomspace(0.05, 20, 6)
    shares = factors * generator.lognormal(np.log(ON_SHARE), 1, (2_000, 6))
    nodes, on = Nodes((shares,)), shares > ON_SHARE
    (scores,), (probability,) = nodes.scores, nodes.probability_on
    np.testing.assert_allclose(scores, np.quantile(shares, 0.5, axis=0))
    np.testing.assert_allclose(probability, on.mean(0))
    np.testing.assert_array_equal(nodes.on[0], probability > 0.5)
    assert nodes.widths == ((probability > 0.5).sum(),)
    counts = on.sum(1)
    for level in (0.5, 0.9, 0.99):
        ((low, high),) = nodes.width_interval(level)
        tail = 0.5 - level / 2
        assert (counts < low).mean() <= tail < (counts <= low).mean()
        assert (counts > high).mean() <= tail + 1e-9 < (counts >= high).mean()
    ((low, high),) = nodes.width_interval(0.9)
    assert low < nodes.widths[0] < high


# --- folding ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["non-centred", "centred"])
def test_a_constant_node_is_folded_exactly(getkey, form):
    """Its weights have their full spread; it is only the node that has none (C1)."""
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
    silenced = silence(network, keep, activations(network, x, DRAWS, key=getkey()))
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
    silenced = silence(network, keep, activations(network, x, DRAWS, key=getkey()))
    full, _ = drawn_mixture(network, x, key=key)
    folded, _ = drawn_mixture(silenced, x, key=key)
    # A difference that rounds to 1e-16 adds a spread of 1e-8, times weights of 30.
    np.testing.assert_allclose(folded, full, atol=1e-5)


def test_silent_and_dropped_nodes_predict_the_same(getkey):
    """Each node keeps its own noise when others go (C1), (R1)."""
    network = network_of((4, 3), sd=0.3, key=getkey())
    x, key = jnp.asarray(inputs(getkey())), getkey()
    keep = (mask(0, 1, 1, 0), mask(1, 0, 1))
    silenced = silence(network, keep, activations(network, x, DRAWS, key=getkey()))
    dropped = drop(silenced, keep)
    assert dropped.widths == (2, 2)
    for ours, theirs in zip(
        *(drawn_mixture(net, x, key=key) for net in (dropped, silenced)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        assert np.std(theirs, axis=0).max() > 0.01


def test_dead_nodes_of_correlated_weights_are_folded_exactly(getkey):
    """Their output is 0 and all else keeps its law; then they are dropped (N5)."""
    likelihood = GaussianNoise().build(TARGETS, rows=float(ROWS))
    args = (D_IN, (4,), likelihood, Horseshoe(), Node())
    network, key = Network.create(*args, key=getkey()), getkey()
    weights = lambda net: [net.layers[0].weights, net.output.weights]
    moved = [
        jax.tree.map(lambda v: v + 0.03 * jr.normal(key, v.shape), w)
        for w in weights(network)
    ]
    network = eqx.tree_at(weights, network, moved)
    bias = lambda net: net.layers[0].weights.loc
    network = eqx.tree_at(bias, network, bias(network).at[2, -1].set(-1e3))
    x, keep = jnp.asarray(inputs(getkey())), (mask(1, 1, 0, 1),)
    silenced = silence(network, keep, activations(network, x, DRAWS, key=getkey()))
    dropped = drop(silenced, keep)
    assert dropped.widths == (3,)
    full = drawn_mixture(network, x, key=key)
    for net in (silenced, dropped):
        for ours, theirs in zip(drawn_mixture(net, x, key=key), full, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


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
    spread = jnp.asarray(np.log(np.asarray(kernel.scale * weak)))
    network = eqx.tree_at(where, network, type(kernel)(kernel.loc * weak, spread))
    order, x, y, key = (
        np.array([2, 0, 1]),
        inputs(getkey()),
        targets(getkey()),
        getkey(),
    )
    results = []
    for net in (network, reordered(network, order)):
        nodes = find_nodes(net, jnp.asarray(x), DRAWS, key=key)
        results.append((nodes, compact(net, nodes, x, y, DRAWS, key=key)))
    (nodes, small), (other_nodes, other) = results
    for layer, places in enumerate((np.arange(4), order)):
        ours, theirs = other_nodes.shares[layer], nodes.shares[layer][:, places]
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
        np.testing.assert_array_equal(other.keep[layer], small.keep[layer][places])
    assert small.network.widths == (4, 2)
    np.testing.assert_allclose(other.moved, small.moved, rtol=1e-6)
    again = reordered(small.network, np.array([1, 0]))
    for ours, theirs in zip(
        jax.tree.leaves(other.network), jax.tree.leaves(again), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_more_nodes_are_kept_where_those_on_are_not_enough(getkey):
    """With little noise, half a per cent of the variation is much of it (S1), (C1).

    Node 0 is on. Node 1 has a share of about 0.005, a tenth of the noise; nodes 2 and 3
    do nothing.
    """
    network = with_noise_sd(network_of((4,), key=getkey()), np.array([0.05, 0.05]))
    kernel = np.array([[1.0, 0, 1, 1], [0, 1, 1, -1]])
    output = np.array([[1.0, 0.3], [0.005, 0.001], [1e-7, 0], [0, 1e-7]])
    network = with_weights(network, 0, kernel, np.zeros(4))
    network = with_weights(network, 1, output, np.zeros(2))
    x, y = inputs(getkey()), targets(getkey())
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    assert nodes.on[0].tolist() == [True, False, False, False]
    small = compact(network, nodes, x, y, DRAWS, key=getkey())
    assert small.keep[0].tolist() == [True, True, False, False]
    assert small.network.widths == (2,)
    assert small.moved < 1e-4
    # What node 0 alone would have cost, with node 1 projected on it.
    on, other = np.maximum(x, 0).T
    basis = np.column_stack([on, np.ones(ROWS)])
    left = other - basis @ np.linalg.lstsq(basis, other)[0]
    alone = left.std() * np.linalg.norm(output[1]) / (0.05 * np.sqrt(TARGETS))
    assert alone > 2 * MOVED


def test_a_network_that_is_off_keeps_one_node_a_layer(getkey):
    """The output is its bias; both layers are then off altogether (S1), (C1)."""
    network, bias = network_of((4, 3), key=getkey()), np.array([0.7, -0.2])
    network = with_weights(network, 2, np.full((3, 2), 1e-9), bias)
    x, y = inputs(getkey()), targets(getkey())
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    assert nodes.widths == (0, 0)
    assert nodes.width_interval(0.9) == ((0, 0), (0, 0))
    small = compact(network, nodes, x, y, DRAWS, key=getkey())
    assert small.network.widths == (1, 1)
    assert small.moved < 1e-6
    kappa = np.exp(small.network.output.scales["kappa"].q.loc)
    np.testing.assert_allclose(
        kappa * small.network.output.weights.bias.loc, bias, rtol=1e-6
    )


def test_a_classifier_compacts_and_measures_its_move(getkey):
    """In standard deviations of the class; two of the nodes do little (C1)."""
    output = np.array([[3.0, -2, 0], [2e-3, 0, 0], [0, 1, 1], [0, 0, 4e-3]])
    network, x, _ = classifier_by_hand(output, key=getkey())
    y, key = generator_of(getkey()).integers(0, 3, ROWS), getkey()
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    small = compact(network, nodes, x, y, DRAWS, key=key)
    assert small.keep[0].tolist() == [True, False, True, False]
    p, small_p = (
        by_chunks(probabilities, net, (x,), DRAWS, key=key)
        for net in (network, small.network)
    )
    moves = np.linalg.norm(small_p - p, axis=1) / np.sqrt((p * (1 - p)).sum(1))
    np.testing.assert_allclose(small.moved, np.sqrt((moves**2).mean()), rtol=1e-6)
    assert 1e-6 < small.moved < MOVED
    change = np.log(small_p[np.arange(ROWS), y] / p[np.arange(ROWS), y]).mean()
    np.testing.assert_allclose(small.log_density_change, change, rtol=1e-6)


# --- a fitted model ---------------------------------------------------------------


def fitted(X, y):
    settings = {"max_iter": 3_000, "learning_rate_init": 0.03, "n_draws": DRAWS}
    model = HorseshoeRegressor((4,), **PLAIN, **settings, random_state=0)
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
    """Within 1 % of the predictive standard deviation, and it says so (C1)."""
    X, _ = table
    small = model.compact()
    assert small.network_.widths == small.widths_ == model.widths_ == (2,)
    mean, sd = model.predict(X, return_std=True)
    # Moves and spreads in the standard units of each target, over both of them.
    scale = model._y_standard.scale
    moves = np.linalg.norm((small.predict(X) - mean) / scale, axis=1)
    moved = np.sqrt(np.mean((moves / np.linalg.norm(sd / scale, axis=1)) ** 2))
    assert 0 < moved <= MOVED
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
    assert model.widths_ == ((scores > ON_SHARE).sum(),)
    assert (probability[scores > ON_SHARE] >= 0.5).all()
    assert (probability[scores <= ON_SHARE] <= 0.5).all()
    ((low, high),) = model.width_interval(0.9)
    assert 1 <= low <= model.widths_[0] <= high <= 4
    small = model.compact()
    (kept,) = small.compaction_.keep
    np.testing.assert_array_equal(small.node_scores_[0], scores[kept])
    np.testing.assert_array_equal(small.node_probabilities_[0], probability[kept])


def test_units_of_inputs_and_targets_do_not_matter(table, monkeypatch):
    """Metres or millimetres, and any origin (S1). Rows stay in their order here."""
    (X, y), units = table, np.array([1e-2, 1e4])
    monkeypatch.setattr("farrier.estimators.base.merge_rows", lambda *rows: rows)
    plain, other = fitted(X, y), fitted(1e3 * X + 5, units * y - 7)
    assert other.widths_ == plain.widths_ == (2,)
    ours, theirs = other.node_scores_[0], plain.node_scores_[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    predicted = (other.predict(1e3 * X + 5) + 7) / units
    np.testing.assert_allclose(predicted, plain.predict(X), atol=1e-4)


# --- columns ----------------------------------------------------------------------


def with_input_scales(network, *, sd=NO_SPREAD):
    """The network with scales of its inputs that start at 1."""
    inputs = InputScales.create(D_IN)
    spread = lambda scales: [scales.tau.q.log_scale, scales.upsilon.q.log_scale]
    new = [jnp.full_like(v, np.log(sd)) for v in spread(inputs)]
    return dataclasses.replace(network, inputs=eqx.tree_at(spread, inputs, new))


def test_shares_of_columns_by_hand(getkey):
    """No spread: the largest share of a column in the variance of a node (I4)."""
    network = with_input_scales(network_of((3,), key=getkey()))
    x, generator = inputs(getkey()), generator_of(getkey())
    kernel = generator.standard_normal((D_IN, 3))
    kernel[1] *= [1, 0.01, 0.02]  # the second column feeds the first node ...
    out = generator.standard_normal((3, TARGETS)) * [[1e-9], [1], [1]]  # which is off
    network = with_weights(network, 0, kernel, np.zeros(3))
    network = with_weights(network, 1, out, np.zeros(TARGETS))
    found = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    share = x.var(0)[:, None] * kernel**2 / (x @ kernel).var(0)
    expected = share[:, 1:].max(1)
    np.testing.assert_allclose(found.columns, np.tile(expected, (DRAWS, 1)))
    assert found.with_columns.on[0].tolist() == [True, False]


def test_a_column_of_noise_is_off(getkey):
    """Weights of mean 0 say nothing, however large they are (I4); a constant too."""
    network = with_input_scales(network_of((3,), key=getkey()))
    loc = lambda net: net.layers[0].weights.kernel
    q = loc(network)
    mean = jnp.asarray(q.loc).at[:, 1].set(0)
    spread = jnp.asarray(q.log_scale).at[:, 1].set(0)
    noisy = eqx.tree_at(loc, network, type(q)(mean, spread))
    x = jnp.asarray(inputs(getkey()))
    share = column_shares(noisy, x, jnp.ones(3, bool), DRAWS, key=getkey())
    assert np.median(share[:, 0]) > 5 * ON_SHARE
    np.testing.assert_array_equal(share[:, 1], 0)
    still = x.at[:, 1].set(3.0)
    share = column_shares(network, still, jnp.ones(3, bool), DRAWS, key=getkey())
    np.testing.assert_allclose(share[:, 1], 0, atol=1e-12)


def test_a_constant_column_leaves_and_predictions_stay(getkey):
    """Its mean goes into the biases (C1); whatever scales and weights it has."""
    network = with_input_scales(network_of((3,), key=getkey()))
    x, y = inputs(getkey()), targets(getkey())
    x[:, 1] = 2.0
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    found = compact(network, nodes, x, y, DRAWS, key=getkey())
    np.testing.assert_array_equal(found.columns, [True, False])
    assert found.network.layers[0].weights.fan_in == 2
    assert str(found).startswith("1 of 2 columns and ")
    assert found.moved < 1e-6
    key = getkey()
    before, after = (drawn_mixture(n, x, key=key)[0] for n in (network, found.network))
    np.testing.assert_allclose(after, before, atol=1e-6)
