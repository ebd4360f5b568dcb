"""Which nodes are on, and a smaller network that predicts the same."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from farrier import HorseshoeRegressor, TrainingWarning
from farrier.core.priors import Horseshoe
from farrier.infer.compact import (
    MOVED,
    ON_SHARE,
    Nodes,
    activations,
    compact,
    drop,
    find_nodes,
    silence,
)
from farrier.infer.predict import by_chunks, mixture, outputs
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.network import Network

ROWS, D_IN, TARGETS, DRAWS = 30, 2, 2, 8
NO_SPREAD = 1e-12


def generator_of(key):
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def raw(sd):
    """The raw value of a standard deviation."""
    return np.log(np.expm1(sd))


def every_normal(network):
    """The posteriors of all weights and of the logarithms of all scales."""
    layers = [*network.layers, network.output]
    weights = [q for l in layers for q in (l.weights.kernel, l.weights.bias)]
    return weights + [scale.q for l in layers for scale in l.scales.values()]


def network_of(widths, *, likelihood=None, form="non-centred", sd=NO_SPREAD, key):
    """A tanh network; `sd` is the spread of every normal in it."""
    likelihood = likelihood or GaussianNoise().build(TARGETS, rows=float(ROWS))
    prior = Horseshoe(parametrisation=form)
    network = Network.create(
        D_IN, widths, likelihood, prior, activation="tanh", key=key
    )
    spread = lambda q: jnp.full_like(q.raw_scale, raw(sd))
    return eqx.tree_at(
        lambda net: [q.raw_scale for q in every_normal(net)],
        network,
        [spread(q) for q in every_normal(network)],
    )


def with_weights(network, layer, values, where="kernel"):
    """The network with the weights themselves set, whatever their scales are.

    Only where posteriors have no spread, so that the scales are known numbers.
    """
    hidden = layer < len(network.layers)
    old = network.layers[layer] if hidden else network.output
    log_scale = sum(np.asarray(scale.q.loc) for scale in old.scales.values())
    loc = jnp.asarray(values / np.exp(log_scale))
    get = lambda net: (
        getattr((net.layers[layer] if hidden else net.output).weights, where).loc
    )
    assert get(network).shape == loc.shape
    return eqx.tree_at(get, network, loc)


def with_noise_sd(network, sd):
    """The network with E[gamma] = 1 / sd^2."""
    gamma = network.likelihood.gamma
    log_rate = jnp.log(gamma.fixed_shape) + 2 * np.log(sd)
    return eqx.tree_at(lambda net: net.likelihood.gamma.log_rate, network, log_rate)


def inputs(key):
    return generator_of(key).standard_normal((ROWS, D_IN))


def moments_of(network, x, *, key):
    """First moments of the activations, as folding takes them."""
    return activations(network, jnp.asarray(x), DRAWS, key=key)


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
    network = network_of((4, 3), key=getkey())
    x, generator = inputs(getkey()), generator_of(getkey())
    first = generator.standard_normal((2, 4))
    second = generator.standard_normal((4, 3))
    second[2] = [0, 0, 5]  # node 2 feeds node 2 of the next layer alone ...
    last = generator.standard_normal((3, 2))
    last[2] = [1e-4, -2e-4]  # ... which is off
    second[3] *= 1e-3
    for layer, values in enumerate((first, second, last)):
        network = with_weights(network, layer, values)
    network = with_noise_sd(network, np.array([0.5, 2.0]))
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    draw = network.sample(key=getkey())
    a1, a2 = (np.asarray(a) for a in draw.hidden(jnp.asarray(x)))
    u3, u2 = a2 @ last, a1 @ second
    noise = np.array([0.5, 2.0]) ** 2
    expected_2 = a2.std(0) * (np.abs(last) / np.sqrt(u3.var(0) + noise)).max(1)
    to_on = np.abs(second[:, :2]) / u2[:, :2].std(0)
    expected_1 = a1.std(0) * to_on.max(1)
    for scores, shares, expected in zip(
        nodes.scores, nodes.shares, (expected_1, expected_2), strict=True
    ):
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(
            shares, np.tile(expected, (DRAWS, 1)), rtol=1e-9, atol=1e-15
        )
    assert nodes.scores[0][2] == 0
    assert nodes.widths == (2, 2)
    assert nodes.on[1].tolist() == [True, True, False]


def test_shares_of_a_classifier_by_hand(getkey):
    """Logits centred over the classes, with the noise of a centred Gumbel law (S1)."""
    likelihood = Categorical().build(3, rows=float(ROWS))
    network = network_of((4,), likelihood=likelihood, key=getkey())
    x, last = inputs(getkey()), generator_of(getkey()).standard_normal((4, 3))
    last[1] = 40.0  # the same for all classes: a softmax does not see it
    network = with_weights(network, 1, last)
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    a = np.asarray(network.sample(key=getkey()).hidden(jnp.asarray(x))[0])
    centred = last - last.mean(1, keepdims=True)
    # Noise of one utility less the mean of three, by drawing it.
    gumbel = generator_of(getkey()).gumbel(size=(200_000, 3))
    noise = (gumbel - gumbel.mean(1, keepdims=True)).var(0)
    np.testing.assert_allclose(noise, (1 - 1 / 3) * np.pi**2 / 6, rtol=0.02)
    spread = np.sqrt((a @ centred).var(0) + (1 - 1 / 3) * np.pi**2 / 6)
    expected = a.std(0) * (np.abs(centred) / spread).max(1)
    np.testing.assert_allclose(nodes.scores[0], expected, rtol=1e-9, atol=1e-12)
    assert nodes.on[0].tolist() == [True, False, True, True]


def test_units_of_targets_do_not_change_the_shares(getkey):
    """Outputs and noise in other units, for each target its own (S1)."""
    network = network_of((4, 3), sd=0.2, key=getkey())
    x, key = jnp.asarray(inputs(getkey())), getkey()
    plain = find_nodes(network, x, DRAWS, key=key)
    units = jnp.array([1e3, 1e-3])
    weights = network.output.weights
    new = (
        weights.kernel.loc * units[None],
        jnp.asarray(raw(np.asarray(weights.kernel.scale) * np.asarray(units))),
        network.likelihood.gamma.log_rate + 2 * jnp.log(units),
    )
    where = lambda net: (
        net.output.weights.kernel.loc,
        net.output.weights.kernel.raw_scale,
        net.likelihood.gamma.log_rate,
    )
    other = find_nodes(eqx.tree_at(where, network, new), x, DRAWS, key=key)
    for ours, theirs in zip(other.shares, plain.shares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert plain.shares[0].std(0).min() > 1e-3  # the posterior is uncertain of them


def test_what_is_said_of_nodes_agrees_with_the_shares():
    """Median, probability and the interval of the width (S1)."""
    generator = np.random.default_rng(0)
    shares = generator.lognormal(np.log(ON_SHARE), 1, (2_000, 6)) * np.geomspace(
        0.05, 20, 6
    )
    nodes = Nodes((shares,))
    on = shares > ON_SHARE
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
        assert (counts > high).mean() <= tail + 1e-12 < (counts >= high).mean()
    ((low, high),) = nodes.width_interval(0.9)
    assert low < nodes.widths[0] < high


# --- folding ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["non-centred", "centred"])
def test_a_constant_node_is_folded_exactly(getkey, form):
    """Its weights have their full spread; it is only the node that has none (C1)."""
    network = network_of((4,), form=form, sd=0.3, key=getkey())
    layer = network.layers[0]
    where = lambda net: (
        net.layers[0].weights.kernel,
        net.layers[0].weights.bias.raw_scale,
        net.layers[0].scales["tau"].q.raw_scale,
        net.layers[0].scales["upsilon"].q.raw_scale,
    )
    tight = raw(NO_SPREAD)
    kernel = jax.tree.map(lambda leaf: leaf.at[:, 2].set(0.0), layer.weights.kernel)
    kernel = eqx.tree_at(
        lambda q: q.raw_scale, kernel, kernel.raw_scale.at[:, 2].set(-jnp.inf)
    )
    new = (
        kernel,
        layer.weights.bias.raw_scale.at[2].set(tight),
        layer.scales["tau"].q.raw_scale.at[2].set(tight),
        jnp.asarray(tight),
    )
    network = eqx.tree_at(where, network, new)
    x, key = inputs(getkey()), getkey()
    keep = (mask(1, 1, 0, 1),)
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    full = drawn_mixture(network, jnp.asarray(x), key=key)
    for small in (silenced, drop(silenced, keep)):
        for ours, theirs in zip(
            drawn_mixture(small, jnp.asarray(x), key=key), full, strict=True
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert np.asarray(full[0]).std(0).min() > 0.01
    gone = network.output.weights.kernel
    assert np.abs(gone.loc[2]).min() > 1e-3
    changed = silenced.output.weights.bias
    assert (changed.scale > network.output.weights.bias.scale).all()


def test_a_constant_node_without_any_spread_is_folded_exactly(getkey):
    """Rounding may not make a variance negative (C1). Two layers deep."""
    network = network_of((4, 3), key=getkey())
    kernel = np.array(network.layers[0].weights.kernel.loc)
    kernel[:, [1, 3]] = 0
    network = with_weights(network, 0, kernel)
    network = with_weights(network, 0, np.array([0.3, 2.0, -0.5, -1.1]), "bias")
    large = 30 * np.asarray(generator_of(getkey()).standard_normal((4, 3)))
    network = with_weights(network, 1, large)
    x, key = inputs(getkey()), getkey()
    keep = (mask(1, 0, 1, 0), mask(1, 1, 1))
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    full = drawn_mixture(network, jnp.asarray(x), key=key)
    folded = drawn_mixture(silenced, jnp.asarray(x), key=key)
    # Where var_rows(a) rounds to 1e-16 rather than 0, its root 1e-8 is in the bias.
    np.testing.assert_allclose(folded[0], full[0], rtol=1e-5)


@pytest.mark.parametrize("likelihood", ["gaussian", "categorical"])
def test_silent_and_dropped_nodes_predict_the_same(getkey, likelihood):
    """Each node keeps its own noise when others go (C1), (R1)."""
    categorical = Categorical().build(TARGETS, rows=float(ROWS))
    network = network_of(
        (4, 3),
        likelihood=categorical if likelihood == "categorical" else None,
        sd=0.3,
        key=getkey(),
    )
    x, key = inputs(getkey()), getkey()
    keep = (mask(0, 1, 1, 0), mask(1, 0, 1))
    silenced = silence(network, keep, moments_of(network, x, key=getkey()))
    dropped = drop(silenced, keep)
    assert dropped.widths == (2, 2)
    if likelihood == "gaussian":
        draws = lambda net: drawn_mixture(net, jnp.asarray(x), key=key)
    else:
        draws = lambda net: [by_chunks(outputs_first, net, (x,), key=key)]
    for ours, theirs in zip(draws(dropped), draws(silenced), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
        assert np.std(theirs, axis=0).max() > 0.01


def outputs_first(network, x, *, key):
    return jnp.moveaxis(outputs(network, x, DRAWS, key=key), 0, 1)


# --- compaction -------------------------------------------------------------------


def reordered(network, order):
    """The nodes of the one hidden layer in another order, numbers and all."""
    order = jnp.asarray(order)
    width = len(order)
    last = lambda leaf: leaf[..., order] if leaf.shape[-1:] == (width,) else leaf
    arrays, static = eqx.partition(network.layers[0], eqx.is_array)
    hidden = eqx.combine(jax.tree.map(last, arrays), static)
    kernel = jax.tree.map(lambda leaf: leaf[order], network.output.weights.kernel)
    where = lambda net: (net.layers[0], net.output.weights.kernel, net.output.inputs)
    new = (hidden, kernel, network.output.inputs[order])
    return eqx.tree_at(where, network, new)


def targets(key):
    return generator_of(key).standard_normal((ROWS, TARGETS))


def test_reordering_nodes_changes_nothing(getkey):
    """Neither their shares nor what compaction keeps and costs (S1), (C1)."""
    network = network_of((4,), sd=0.1, key=getkey())
    output = np.array(network.output.weights.kernel.loc)
    network = with_weights(network, 1, output * np.array([1, 1e-3, 1, 2e-3])[:, None])
    tight = network.output.weights.kernel.raw_scale.at[[1, 3]].set(raw(1e-4))
    where = lambda net: net.output.weights.kernel.raw_scale
    network = eqx.tree_at(where, network, tight)
    order = [2, 3, 0, 1]
    x, y, key = inputs(getkey()), targets(getkey()), getkey()
    results = []
    for net in (network, reordered(network, order)):
        nodes = find_nodes(net, jnp.asarray(x), DRAWS, key=key)
        results.append((nodes, compact(net, nodes, x, y, DRAWS, key=key)))
    (nodes, small), (other_nodes, other) = results
    np.testing.assert_allclose(
        other_nodes.shares[0], nodes.shares[0][:, order], rtol=1e-9
    )
    np.testing.assert_array_equal(other.keep[0], small.keep[0][order])
    assert 0 < small.keep[0].sum() < 4
    np.testing.assert_allclose(other.moved, small.moved, rtol=1e-6)
    draws = [drawn_mixture(s.network, jnp.asarray(x), key=key) for s in (small, other)]
    for ours, theirs in zip(*draws, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_more_nodes_are_kept_where_those_on_are_not_enough(getkey):
    """With little noise, half a per cent of the variation is much of it (S1).

    Node 0 is on. Node 1 has a share of about 0.005, a tenth of the noise; nodes 2 and 3
    do nothing.
    """
    network = network_of((4,), key=getkey())
    kernel = np.array([[1.0, 0, 1, 1], [0, 1, 1, -1]])
    output = np.array([[1.0, 0.3], [0.005, 0.001], [1e-7, 0], [0, 1e-7]])
    network = with_weights(network, 0, kernel)
    network = with_weights(network, 0, np.zeros(4), "bias")
    network = with_noise_sd(with_weights(network, 1, output), np.array([0.05, 0.05]))
    x, y, key = inputs(getkey()), targets(getkey()), getkey()
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    assert nodes.on[0].tolist() == [True, False, False, False]
    small = compact(network, nodes, x, y, DRAWS, key=key)
    assert small.keep[0].tolist() == [True, True, False, False]
    assert small.moved <= MOVED
    assert small.network.widths == (2,)
    # What the nodes that are on would have cost, folded as well as may be.
    alone = silence(network, nodes.on, moments_of(network, x, key=key))
    mean, alone_mean = (
        np.asarray(drawn_mixture(net, jnp.asarray(x), key=key)[0]).mean(0)
        for net in (network, alone)
    )
    noise_sd = 0.05 * np.sqrt(TARGETS)
    moves = np.linalg.norm(alone_mean - mean, axis=1) / noise_sd
    assert np.sqrt((moves**2).mean()) > 2 * MOVED


def test_a_network_that_is_off_keeps_one_node_a_layer(getkey):
    """The output is its bias; both layers are then off altogether (S1), (C1)."""
    network = network_of((4, 3), key=getkey())
    network = with_weights(network, 2, np.full((3, 2), 1e-9))
    network = with_weights(network, 2, np.array([0.7, -0.2]), "bias")
    x, y, key = inputs(getkey()), targets(getkey()), getkey()
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    assert nodes.widths == (0, 0)
    assert nodes.width_interval(0.9) == ((0, 0), (0, 0))
    small = compact(network, nodes, x, y, DRAWS, key=key)
    assert small.network.widths == (1, 1)
    assert small.moved < 1e-6
    loc, _ = drawn_mixture(small.network, jnp.asarray(x), key=key)
    expected = np.broadcast_to([0.7, -0.2], loc.shape)
    np.testing.assert_allclose(loc, expected, rtol=1e-6)


def test_a_classifier_compacts_and_measures_its_move(getkey):
    """In standard deviations of the class; two of the nodes do nothing (C1)."""
    likelihood = Categorical().build(3, rows=float(ROWS))
    network = network_of((4,), likelihood=likelihood, key=getkey())
    output = np.array([[3.0, -2, 0], [1e-5, 0, 0], [0, 1, 1], [0, 0, 2e-5]])
    network = with_weights(network, 1, output)
    x, y = inputs(getkey()), generator_of(getkey()).integers(0, 3, ROWS)
    nodes = find_nodes(network, jnp.asarray(x), DRAWS, key=getkey())
    small = compact(network, nodes, x, y, DRAWS, key=getkey())
    assert small.keep[0].tolist() == [True, False, True, False]
    p, small_p = (
        np.asarray(jax.nn.softmax(net.sample(key=getkey())(jnp.asarray(x))))
        for net in (network, small.network)
    )
    moves = np.linalg.norm(small_p - p, axis=1) / np.sqrt((p * (1 - p)).sum(1))
    np.testing.assert_allclose(small.moved, np.sqrt((moves**2).mean()), rtol=1e-3)
    assert 0 < small.moved < 1e-3
    change = np.log(small_p[np.arange(ROWS), y] / p[np.arange(ROWS), y]).mean()
    np.testing.assert_allclose(small.log_density_change, change, rtol=1e-3)


# --- a fitted model ---------------------------------------------------------------


def fitted(X, y):
    model = HorseshoeRegressor(
        (6,), max_iter=500, learning_rate_init=0.05, n_draws=40, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y)


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    X = generator.standard_normal((60, 2))
    return X, np.abs(X[:, 0]) + 0.05 * generator.standard_normal(60)


@pytest.fixture(scope="module")
def model(table):
    """Two nodes make an absolute value; the others go."""
    return fitted(*table)


def test_compaction_of_a_fitted_model_keeps_its_predictions(table, model):
    """Within 1 % of the predictive standard deviation, and it says so (C1)."""
    X, y = table
    small = model.compact()
    assert small.network_.widths == small.widths_ == model.widths_
    assert 1 <= small.widths_[0] < 6
    assert small.compaction_.moved <= MOVED
    mean, sd = model.predict(X, return_std=True)
    moves = (small.predict(X) - mean) / sd
    moved = np.sqrt((moves**2).mean())
    assert moved <= MOVED
    np.testing.assert_allclose(small.compaction_.moved, moved, rtol=0.01)
    change = (small.log_density(X, y) - model.log_density(X, y)).mean()
    np.testing.assert_allclose(
        small.compaction_.log_density_change, change, rtol=0.01, atol=1e-6
    )
    text = str(small.compaction_)
    kept, of, per_cent, nats = re.fullmatch(
        r"(\d+) of (\d+) nodes kept, predictive means moved by (\S+) % of their "
        r"standard deviation, log density changed by (\S+) a point",
        text,
    ).groups()
    assert (int(kept), int(of)) == (small.widths_[0], 6)
    np.testing.assert_allclose(float(per_cent), 100 * moved, rtol=0.06)
    np.testing.assert_allclose(float(nats), change, rtol=0.06, atol=1e-6)


def test_reports_on_nodes_agree_with_one_another(model):
    """Scores, probabilities, widths and their interval, before and after (S1)."""
    (scores,), (probability,) = model.node_scores_, model.node_probabilities_
    assert model.widths_ == ((scores > ON_SHARE).sum(),)
    assert (probability[scores > ON_SHARE] >= 0.5).all()
    assert (probability[scores <= ON_SHARE] <= 0.5).all()
    ((low, high),) = model.width_interval(0.9)
    assert 0 <= low <= model.widths_[0] <= high <= 6
    small = model.compact()
    kept = small.compaction_.keep[0]
    np.testing.assert_array_equal(small.node_scores_[0], scores[kept])
    np.testing.assert_array_equal(small.node_probabilities_[0], probability[kept])


def test_units_of_inputs_and_targets_do_not_matter(table, model):
    """Metres or millimetres, and any origin (S1)."""
    X, y = table
    other = fitted(1e3 * X + 5, 1e-2 * y - 7)
    assert other.widths_ == model.widths_
    np.testing.assert_allclose(other.node_scores_[0], model.node_scores_[0], rtol=1e-3)
    predicted = other.predict(1e3 * X + 5)
    np.testing.assert_allclose(100 * (predicted + 7), model.predict(X), atol=1e-4)
