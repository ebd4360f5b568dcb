"""Shares of nodes and of columns, against networks whose weights are known."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import (
    generator_of,
    known_network,
    random_draws,
    stacked,
    tiny_network,
    with_noise_sd,
)

from farrier.core.priors import Horseshoe
from farrier.infer.nodes import ACTIVE_SHARE, Nodes, find_nodes
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.posterior import VariationalPosterior

ROWS, D_IN, TARGETS, DRAWS = 60, 2, 2, 8
NOISE = GaussianNoise().build(TARGETS, rows=float(ROWS))


def inputs(key):
    return generator_of(key).standard_normal((ROWS, D_IN))


def posterior_of(network, *, key, draws=DRAWS):
    return VariationalPosterior.create(network, draws, key=key)


def columns_of(posterior, x):
    """Shares of the columns, and whether each is active."""
    nodes = find_nodes(posterior, jnp.asarray(x))
    assert nodes.columns is not None
    assert nodes.of_columns is not None
    return nodes.columns, nodes.of_columns.active[0]


def with_columns(kernels, biases, *, key):
    """A known network whose columns have scales."""
    prior = Horseshoe(columns=True)
    return known_network(kernels, biases, NOISE, prior, key=key)


# --- shares of nodes --------------------------------------------------------------


def two_layers(key):
    """Known weights of two layers and two targets, and the expected shares."""
    generator, noise_sd = generator_of(key), np.array([0.5, 2.0])
    sizes = [(2, 4), (4, 3), (3, 2)]
    kernels = [generator.standard_normal(size) for size in sizes]
    biases = [generator.uniform(0.5, 1.5, size[1]) for size in sizes]  # none is dead
    kernels[1][2] = [0, 0, 5]  # node 2 feeds node 2 of the next layer alone ...
    kernels[2][2] = [1e-4, -2e-4]  # ... which is inactive
    kernels[1][3] *= 1e-3
    x, u = inputs(key), []
    a = [x]
    for kernel, bias in zip(kernels, biases, strict=True):
        u.append(a[-1] @ kernel + bias)
        a.append(np.maximum(u[-1], 0))
    sd = np.sqrt(u[2].var(0) + noise_sd**2)
    expected = [
        a[1].std(0) * (np.abs(kernels[1]) / u[1].std(0))[:, :2].max(1),
        a[2].std(0) * (np.abs(kernels[2]) / sd).max(1),
    ]
    return kernels, biases, noise_sd, x, expected


@pytest.mark.parametrize("kind", ["variational", "sampled"])
def test_shares_by_hand(kind, getkey):
    """Two layers, two targets: every draw is one known network (S1)."""
    kernels, biases, noise_sd, x, expected = two_layers(getkey())
    if kind == "variational":
        network = known_network(kernels, biases, NOISE, key=getkey())
        posterior = posterior_of(with_noise_sd(network, noise_sd), key=getkey())
    else:
        repeat = lambda arrays: [np.repeat(v[None], DRAWS, 0) for v in arrays]
        # Their noise is a mean square over the draws.
        noise = noise_sd * np.sqrt(np.linspace(0.5, 1.5, DRAWS))[:, None]
        arrays = repeat(kernels), repeat(biases)
        posterior = stacked(*arrays, NOISE, noise=noise, activation="relu")
    nodes = find_nodes(posterior, jnp.asarray(x))
    for shares, by_hand in zip(nodes.shares, expected, strict=True):
        by_hand = np.tile(by_hand, (DRAWS, 1))
        np.testing.assert_allclose(shares, by_hand, rtol=1e-9, atol=1e-9)
    assert nodes.columns is None
    assert nodes.of_columns is None
    assert nodes.widths == (2, 2)
    assert nodes.active[0].tolist() == [True, True, False, False]
    assert nodes.active[1].tolist() == [True, True, False]


def test_each_draw_has_its_own_shares(getkey):
    """Loops over draws, nodes and outputs by NumPy (S1)."""
    posterior, x = random_draws((D_IN, 5, TARGETS), key=getkey()), inputs(getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    noise = (np.asarray(posterior.noise) ** 2).mean(0)
    for draw in range(posterior.draws):
        first, last = (np.asarray(k)[draw] for k in posterior.kernels)
        bias = np.asarray(posterior.biases[0])[draw]
        a = np.tanh(x @ first + bias)
        sd = np.sqrt((a @ last).var(0) + noise)
        for node in range(5):
            expected = (a[:, node].std() * np.abs(last[node]) / sd).max()
            np.testing.assert_allclose(nodes.shares[0][draw, node], expected)
    assert nodes.shares[0].std(0).min() > 1e-3


def test_shares_of_a_classifier_by_hand(getkey):
    """Logits centred over the classes, with the variance of centred Gumbels (S1)."""
    output = generator_of(getkey()).standard_normal((4, 3))
    output[1] = 40.0  # the same for all classes: a softmax does not depend on it
    kernel = np.array([[1.0, -0.5, 0.3, 0.8], [0.2, 1.0, -1.0, 0.4]])
    likelihood = Categorical().build(3, rows=float(ROWS))
    weights = [kernel, output], [np.zeros(4), np.zeros(3)]
    network, x = known_network(*weights, likelihood, key=getkey()), inputs(getkey())
    nodes = find_nodes(posterior_of(network, key=getkey()), jnp.asarray(x))
    a, centred = np.maximum(x @ kernel, 0), output - output.mean(1, keepdims=True)
    noise = (1 - 1 / 3) * np.pi**2 / 6
    reach = np.abs(centred) / np.sqrt((a @ centred).var(0) + noise)
    np.testing.assert_allclose(
        nodes.scores[0], a.std(0) * reach.max(1), rtol=1e-9, atol=1e-9
    )
    assert nodes.active[0].tolist() == [True, False, True, True]


def test_a_node_that_feeds_the_noise_alone_is_active(getkey):
    """Its share in g, whose residual variance is 2 (S1), (L4)."""
    kernel, output = np.eye(2), np.array([[1.0, 0.0], [0.0, 0.5]])
    likelihood = HeteroscedasticNoise().build(1, rows=float(ROWS))
    weights = [kernel, output], [np.zeros(2), np.zeros(2)]
    network, x = known_network(*weights, likelihood, key=getkey()), inputs(getkey())
    nodes = find_nodes(posterior_of(network, key=getkey()), jnp.asarray(x))
    a = np.maximum(x, 0)
    noise = np.exp(-0.5 * a[:, 1]).mean()  # E[gamma] is 1
    expected = [
        a[:, 0].std() / np.sqrt(a[:, 0].var() + noise),
        0.5 * a[:, 1].std() / np.sqrt(0.25 * a[:, 1].var() + 2),
    ]
    np.testing.assert_allclose(nodes.scores[0], expected, rtol=1e-9)


def test_units_of_targets_do_not_change_the_shares(getkey):
    """Outputs and noise in other units, for each target its own (S1)."""
    network = tiny_network(D_IN, (4, 3), NOISE, sd=0.2, activation="relu", key=getkey())
    x, key = jnp.asarray(inputs(getkey())), getkey()
    plain = find_nodes(posterior_of(network, key=key), x)
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
    other = find_nodes(posterior_of(eqx.tree_at(where, network, new), key=key), x)
    for ours, theirs in zip(other.shares, plain.shares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    assert plain.shares[0].std(0).min() > 1e-3  # the posterior is uncertain of them


def test_summaries_of_nodes_agree_with_the_shares():
    """Median, probability and the interval of the width (S1)."""
    generator = np.random.default_rng(0)
    factors = np.geomspace(0.05, 20, 6)
    shares = factors * generator.lognormal(np.log(ACTIVE_SHARE), 1, (2_000, 6))
    nodes, active = Nodes((shares,)), shares > ACTIVE_SHARE
    (scores,), (probability,) = nodes.scores, nodes.probabilities
    np.testing.assert_allclose(scores, np.quantile(shares, 0.5, axis=0))
    np.testing.assert_allclose(probability, active.mean(0))
    np.testing.assert_array_equal(nodes.active[0], probability > 0.5)
    assert nodes.widths == ((probability > 0.5).sum(),)
    counts = active.sum(1)
    for level in (0.5, 0.9, 0.99):
        ((low, high),) = nodes.width_interval(level)
        tail = 0.5 - level / 2
        assert (counts < low).mean() <= tail < (counts <= low).mean()
        assert (counts > high).mean() <= tail + 1e-9 < (counts >= high).mean()
    ((low, high),) = nodes.width_interval(0.9)
    assert low < nodes.widths[0] < high


def test_taken_nodes_keep_their_shares():
    generator = np.random.default_rng(0)
    shares, columns = generator.uniform(size=(2, 5, 4)), generator.uniform(size=(5, 3))
    keep = (np.array([1, 0, 0, 1], bool), np.array([0, 1, 1, 1], bool))
    small = Nodes(tuple(shares), columns).take(keep)
    for ours, whole, kept in zip(small.shares, shares, keep, strict=True):
        np.testing.assert_array_equal(ours, whole[:, kept])
    np.testing.assert_array_equal(small.columns, columns)


# --- columns ----------------------------------------------------------------------


def test_shares_of_columns_by_hand(getkey):
    """No spread: the largest share of a column in the variance of a node (I4)."""
    x, generator = inputs(getkey()), generator_of(getkey())
    kernel = generator.standard_normal((D_IN, 3))
    kernel[1] *= [1, 0.01, 0.02]  # the second column feeds the first node ...
    out = generator.standard_normal((3, TARGETS)) * [[1e-9], [1], [1]]  # not active
    biases = [np.zeros(3), np.zeros(TARGETS)]
    network = with_columns([kernel, out], biases, key=getkey())
    shares, active = columns_of(posterior_of(network, key=getkey()), x)
    share = x.var(0)[:, None] * kernel**2 / (x @ kernel).var(0)
    expected = share[:, 1:].max(1)
    np.testing.assert_allclose(shares, np.tile(expected, (DRAWS, 1)))
    assert active.tolist() == [True, False]


def test_a_column_of_noise_is_inactive(getkey):
    """Weights of mean 0 carry nothing, however large they are (I4)."""
    output = np.ones((3, TARGETS))
    weights = [np.ones((D_IN, 3)), output], [np.zeros(3), np.zeros(TARGETS)]
    network = with_columns(*weights, key=getkey())
    where = lambda net: net.layers[0].weights.kernel
    q = where(network)
    mean = jnp.asarray(q.loc).at[:, 1].set(0)
    log_sd = jnp.asarray(q.log_scale).at[:, 1].set(0)
    noisy = eqx.tree_at(where, network, type(q)(mean, log_sd))
    shares, _ = columns_of(posterior_of(noisy, key=getkey()), inputs(getkey()))
    assert np.median(shares[:, 0]) > 5 * ACTIVE_SHARE
    np.testing.assert_array_equal(shares[:, 1], 0)


def test_a_constant_column_is_inactive(getkey):
    """It has no variance over the rows (I4)."""
    weights = [np.ones((D_IN, 3)), np.ones((3, 2))], [np.zeros(3), np.zeros(2)]
    network = with_columns(*weights, key=getkey())
    x = jnp.asarray(inputs(getkey())).at[:, 1].set(3.0)
    shares, _ = columns_of(posterior_of(network, key=getkey()), x)
    np.testing.assert_allclose(shares[:, 1], 0, atol=1e-12)
    assert (shares[:, 0] > 0.9).all()


def test_columns_of_posterior_samples_are_judged_by_their_mean_weights(getkey):
    """w_kis times the mean of the draws, over the variance of the node (I4)."""
    posterior = random_draws((3, 4, 2), columns=True, key=getkey())
    x = np.asarray(jr.normal(getkey(), (ROWS, 3)))
    shares, _ = columns_of(posterior, x)
    kernel = np.asarray(posterior.kernels[0])
    active = find_nodes(posterior, jnp.asarray(x)).active[0]
    for draw in range(posterior.draws):
        variance = (x @ kernel[draw]).var(0)
        share = x.var(0)[:, None] * kernel[draw] * kernel.mean(0) / variance
        expected = np.where(active, share, 0).max(1)
        np.testing.assert_allclose(shares[draw], expected, rtol=1e-9)
