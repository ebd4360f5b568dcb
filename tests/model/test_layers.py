"""Layers: the draw of pre-activations against drawing all weights, and the prior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farrier.core.posteriors import Matrix, MeanField
from farrier.core.priors import Gaussian, Horseshoe, Outputs
from farrier.model.layers import INITIAL_SD, Layer

D_IN, NODES, ROWS = 3, 4, 50_000
X = np.array([0.5, -1.0, 2.0])
FORMS = ["non-centred", "centred"]
PRIORS = [
    pytest.param(prior(parametrisation=form), id=f"{form}-{prior.name}")
    for prior in (Horseshoe, Gaussian)
    for form in FORMS
]
every_prior = pytest.mark.parametrize("prior", PRIORS)


def set_to(tree, where, value):
    """All that `where` finds set to `value`, whatever its shape."""
    return eqx.tree_at(where, tree, replace_fn=lambda leaf: jnp.full_like(leaf, value))


def layer_of(prior, *, key, nodes=NODES, sd=0.3, spread=0.3):
    """A layer away from where training starts it: wider posteriors, uneven scales."""
    key_create, key_loc = jr.split(key)
    layer = Layer.create(D_IN, nodes, prior, MeanField(), key=key_create)
    raw_sd, raw_spread = (float(jnp.log(jnp.array(s))) for s in (sd, spread))
    layer = set_to(layer, lambda x: x.weights.kernel.log_scale, raw_sd)
    layer = set_to(layer, lambda x: x.weights.bias.log_scale, raw_sd)
    for i, name in enumerate(layer.scales):
        where = lambda x, name=name: x.scales[name].q.loc
        noise = jr.normal(jr.fold_in(key_loc, i), where(layer).shape)
        layer = eqx.tree_at(where, layer, where(layer) + 0.5 * noise)
        layer = set_to(
            layer, lambda x, name=name: x.scales[name].q.log_scale, raw_spread
        )
    return layer


def same_row(rows=ROWS):
    return jnp.broadcast_to(jnp.asarray(X)[:, None], (D_IN, rows))


@eqx.filter_jit
def conditional(layer, *, key):
    """The layer's law of many rows with the same input, rows first."""
    f = layer.conditional(same_row(), jnp.arange(ROWS), key=key)
    return jax.tree.map(jnp.transpose, f)


def scale_factors(layer, f):
    """What multiplied the mean of each row and node."""
    unscaled, _ = layer.weights.moments(same_row(1), key=jr.key(0))
    return np.asarray(f.mean) / np.asarray(unscaled.T)


@eqx.filter_jit
def all_weights(layer, *, key):
    """As many draws of every weight of the layer."""
    return jax.vmap(lambda key: layer.sample(key=key))(jr.split(key, ROWS))


def drawing_all_weights(layer, *, key):
    """Pre-activations of as many rows, each by its own draw of every weight."""
    kernel, bias = (np.asarray(w) for w in all_weights(layer, key=key))
    return np.einsum("i,rik->rk", X, kernel) + bias


def standard_errors_apart(a, b):
    """By how many standard errors means, and variances, of two samples differ."""
    apart = []
    for moment in (lambda u: u, lambda u: (u - u.mean(0)) ** 2):
        first, second = moment(np.asarray(a)), moment(np.asarray(b))
        error = np.sqrt(first.var(0) / len(first) + second.var(0) / len(second))
        apart.append(np.abs(first.mean(0) - second.mean(0)) / error)
    return np.stack(apart)


@every_prior
def test_draw_has_the_moments_of_drawing_all_weights(getkey, prior):
    """Means and variances of each node within five standard errors (M6)."""
    layer = layer_of(prior, key=getkey())
    draws = conditional(layer, key=getkey()).draw()
    weights = drawing_all_weights(layer, key=getkey())
    assert standard_errors_apart(draws, weights).max() < 5
    # The whole law, not two moments of it alone.
    for node in range(NODES):
        sample = np.asarray(draws[:, node])
        assert stats.ks_2samp(sample, weights[:, node]).pvalue > 1e-6


@pytest.mark.parametrize("prior", [Horseshoe(), Gaussian()], ids=lambda p: p.name)
def test_draw_has_the_moments_of_the_model_by_hand(getkey, prior):
    """E[s] m and E[s^2] (v + m^2) - (E[s] m)^2, s log-normal (M3), (M6)."""
    layer = layer_of(prior, key=getkey())
    u = np.asarray(conditional(layer, key=getkey()).draw())
    kernel, bias = layer.weights.kernel, layer.weights.bias
    m = X @ np.asarray(kernel.loc).T + np.asarray(bias.loc)
    v = X**2 @ np.asarray(kernel.scale).T ** 2 + np.asarray(bias.scale) ** 2
    qs = [scale.q for scale in layer.scales.values()]
    loc = sum(np.asarray(q.loc) for q in qs)
    variance = sum(np.asarray(q.scale) ** 2 for q in qs)
    mean_s, mean_s_sq = np.exp(loc + variance / 2), np.exp(2 * loc + 2 * variance)
    expected = mean_s_sq * (v + m**2) - (mean_s * m) ** 2
    error = u.std(0) / np.sqrt(ROWS)
    assert (np.abs(u.mean(0) - mean_s * m) < 5 * error).all()
    squares = (u - mean_s * m) ** 2
    error = squares.std(0) / np.sqrt(ROWS)
    assert (np.abs(squares.mean(0) - expected) < 5 * error).all()


@pytest.mark.parametrize("prior", [Horseshoe(), Gaussian()], ids=lambda p: p.name)
def test_public_code_variants_have_other_moments(getkey, prior):
    """What print and public code do otherwise is outside five standard errors (M6)."""
    layer = layer_of(prior, key=getkey(), sd=0.6)
    shared = {"horseshoe": "upsilon", "gaussian": "kappa"}[prior.name]
    # A scale near 1 would hide where it enters.
    layer = set_to(layer, lambda x: x.scales[shared].q.loc, np.log(0.3))
    f = conditional(layer, key=getkey())
    weights = drawing_all_weights(layer, key=getkey())
    noise, sd = np.asarray(f.noise), np.sqrt(np.asarray(f.variance))
    mean, factor = np.asarray(f.mean), scale_factors(layer, f)
    variants = {
        "noise divided by sqrt(fan-in)": mean + sd * noise / np.sqrt(D_IN + 1),
        "scales left out of the mean": mean / factor + sd * noise,
        "scales not squared in the variance": mean + sd / np.sqrt(factor) * noise,
        "logarithm of the scale": np.log(factor) / factor * (mean + sd * noise),
        "scales left out": (mean + sd * noise) / factor,
    }
    assert standard_errors_apart(mean + sd * noise, weights).max() < 5
    for name, variant in variants.items():
        assert standard_errors_apart(variant, weights).max() > 10, name


def test_scales_and_noise_are_fresh_for_each_row(getkey):
    """Rows share nothing; the nodes of one row share upsilon alone (M6)."""
    layer = layer_of(Horseshoe(), key=getkey())
    f = conditional(layer, key=getkey())
    log_scale, noise = np.log(scale_factors(layer, f)), np.asarray(f.noise)
    limit = 5 / np.sqrt(ROWS)
    for values in (log_scale, noise):
        for node in range(NODES):
            between_rows = np.corrcoef(values[1:, node], values[:-1, node])[0, 1]
            assert abs(between_rows) < limit
    between = np.corrcoef(log_scale.T) - np.eye(NODES)
    # Equal spreads of tau and upsilon: half the variance of ln s is shared.
    shared = 0.5 * (1 - np.eye(NODES))
    assert np.abs(between - shared).max() < limit
    assert np.abs(np.corrcoef(noise.T) - np.eye(NODES)).max() < limit
    # Node by node, the noise comes with a tau; the two are independent.
    across = np.corrcoef(log_scale.T, noise.T)[:NODES, NODES:]
    assert np.abs(across).max() < limit
    sizes = np.corrcoef(np.abs(log_scale - log_scale.mean(0)).T, np.abs(noise).T)
    assert np.abs(sizes[:NODES, NODES:]).max() < limit


def test_one_scale_for_the_layer_is_shared_by_all_its_nodes(getkey):
    """kappa differs from row to row and not from node to node (M1), (M6)."""
    layer = layer_of(Gaussian(), key=getkey())
    factor = scale_factors(layer, conditional(layer, key=getkey()))
    np.testing.assert_allclose(factor, np.repeat(factor[:, :1], NODES, 1), rtol=1e-12)
    q = layer.scales["kappa"].q
    law = stats.lognorm(float(q.scale), scale=np.exp(float(q.loc)))
    assert stats.kstest(factor[:, 0], law.cdf).pvalue > 1e-6


@pytest.mark.parametrize("nodes", [1, NODES])
def test_all_weights_into_a_node_share_its_scale(getkey, nodes):
    """w_k = tau_k upsilon beta_k, its bias included, with beta all but known (M1)."""
    layer = layer_of(Horseshoe(), key=getkey(), nodes=nodes, sd=1e-9)
    kernel, bias = all_weights(layer, key=getkey())
    factor = np.asarray(bias) / np.asarray(layer.weights.bias.loc)
    spread = np.asarray(kernel) / np.asarray(layer.weights.kernel.loc).T
    spread = spread / factor[:, None]
    np.testing.assert_allclose(spread, 1, rtol=1e-5)
    tau, upsilon = layer.scales["tau"].q, layer.scales["upsilon"].q
    sd = float(jnp.hypot(tau.scale[0], upsilon.scale))
    for node in range(nodes):
        law = stats.lognorm(sd, scale=np.exp(float(tau.loc[node] + upsilon.loc)))
        assert stats.kstest(factor[:, node], law.cdf).pvalue > 1e-6


@every_prior
def test_reordering_nodes_changes_nothing(getkey, prior):
    """The divergences are sums over nodes; noise goes by their numbers (M6), (M7)."""
    layer, key = layer_of(prior, key=getkey()), getkey()
    order = jnp.array([2, 0, 3, 1])
    reorder = lambda leaf: leaf[order] if leaf.shape[:1] == (NODES,) else leaf
    arrays, static = eqx.partition(layer, eqx.is_array)
    moved = eqx.combine(jax.tree.map(reorder, arrays), static)
    assert layer.kl(key=getkey()).keys() == moved.kl(key=getkey()).keys()
    for name, value in layer.kl(key=getkey()).items():
        np.testing.assert_allclose(moved.kl(key=getkey())[name], value, rtol=1e-12)
        assert value > 0
    draw = lambda layer: layer.conditional(same_row(5), jnp.arange(5), key=key).draw()
    np.testing.assert_allclose(draw(moved), draw(layer)[order], rtol=1e-12)


@every_prior
def test_divergences_of_a_layer_are_those_of_its_parts(getkey, prior):
    """The weights given the scales (M7), and each scale (M5)."""
    layer = layer_of(prior, key=getkey())
    kl = layer.kl(key=getkey())
    assert kl.keys() == {"beta", *layer.scales}
    scales = layer.scales.values()
    expected = layer.parametrisation.weight_kl(layer.weights, scales, key=getkey())
    np.testing.assert_allclose(kl["beta"], expected, rtol=1e-12)
    for name, scale in layer.scales.items():
        q, b = scale.q, scale.prior.b
        rate = np.exp(-2 * q.loc + 2 * q.scale**2) + b**-2
        entropy = 0.5 * np.log(8 * np.pi * np.e * q.scale**2)
        by_hand = np.log(np.pi * b) + np.log(rate) + q.loc - entropy
        np.testing.assert_allclose(kl[name], np.sum(by_hand), rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("prior", [Horseshoe, Gaussian])
def test_a_layer_starts_with_weights_of_variance_two_over_fan_in(getkey, prior, form):
    """At the median of the scales, in both forms; their own sd is 1 % of it (M1)."""
    d_in, nodes = 24, 400
    prior = prior(parametrisation=form)
    layer = Layer.create(d_in, nodes, prior, MeanField(), key=getkey())
    median = sum(np.asarray(scale.q.loc) for scale in layer.scales.values())
    factor = np.exp(median) if form == "non-centred" else 1.0
    kernel, bias = layer.weights.kernel, layer.weights.bias
    w = np.concatenate([np.asarray(kernel.loc).T, np.asarray(bias.loc)[None]]) * factor
    sd = np.sqrt(2 / (d_in + 1))
    assert stats.kstest(w.ravel(), stats.norm(0, sd).cdf).pvalue > 1e-6
    own_sd = np.asarray(kernel.scale).T * factor
    np.testing.assert_allclose(own_sd, INITIAL_SD * sd, rtol=1e-9)


def test_a_regularised_layer_has_the_moments_of_drawing_its_weights(getkey):
    """Under a slab of 0.5 (G3), by the draw of (M6) and by the moments of (G4)."""
    layer = layer_of(Horseshoe(slab=0.5), key=getkey())
    f = conditional(layer, key=getkey())
    factors = scale_factors(layer, f)
    assert factors.max() < 0.5
    for power in (1, 2):
        draws = factors**power
        error = draws.std(0) / np.sqrt(ROWS)
        assert (abs(draws.mean(0) - layer.scale_moment(power)) < 5 * error).all()
    drawn, other = np.asarray(f.draw()), drawing_all_weights(layer, key=getkey())
    error = np.sqrt((drawn.var(0) + other.var(0)) / ROWS)
    assert (abs(drawn.mean(0) - other.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(drawn.std(0), other.std(0), rtol=0.05)


MASK_NODES, MASK_INPUTS = np.array([1, 0, 1, 1], bool), np.array([0, 1, 1], bool)


def to_numpy(tree):
    return jax.tree.map(lambda v: np.asarray(v) if eqx.is_array(v) else v, tree)


@pytest.mark.parametrize(
    "posterior", [MeanField(), Matrix(pairs=2)], ids=lambda p: p.name
)
@pytest.mark.parametrize("prior", [Horseshoe(), Gaussian()], ids=lambda p: p.name)
def test_a_part_of_a_layer_has_the_numbers_and_the_draws_of_the_whole(
    getkey, prior, posterior
):
    """Nodes and inputs keep their numbers, and so their noise (R1), (M6)."""
    layer = Layer.create(D_IN, NODES, prior, posterior, key=getkey())
    part = layer.take(nodes=MASK_NODES, inputs=MASK_INPUTS)
    np.testing.assert_array_equal(part.nodes, [0, 2, 3])
    np.testing.assert_array_equal(part.inputs, [1, 2])
    assert (part.weights.nodes, part.weights.fan_in) == (3, 3)
    for name, scale in part.scales.items():
        whole = layer.scales[name].q.loc
        np.testing.assert_array_equal(
            scale.q.loc, whole[MASK_NODES] if whole.ndim else whole
        )
    # Without inputs removed, the nodes that stay have the same draws.
    key = getkey()
    kernel, bias = layer.sample(key=key)
    fewer = layer.take(nodes=MASK_NODES).sample(key=key)
    np.testing.assert_allclose(fewer[0], kernel[:, MASK_NODES], rtol=1e-9)
    np.testing.assert_allclose(fewer[1], bias[MASK_NODES], rtol=1e-9)


@pytest.mark.parametrize(
    "posterior", [MeanField(), Matrix(pairs=2)], ids=lambda p: p.name
)
def test_a_part_of_a_tree_of_numpy_arrays_is_of_numpy(getkey, posterior):
    """Also where a tree of an optimiser has None in the place of an array."""
    layer = Layer.create(D_IN, NODES, Horseshoe(), posterior, key=getkey())
    expected = layer.take(nodes=MASK_NODES, inputs=MASK_INPUTS)
    host = to_numpy(layer).take(nodes=MASK_NODES, inputs=MASK_INPUTS)
    assert {type(v) for v in jax.tree.leaves(eqx.filter(host, eqx.is_array))} == {
        np.ndarray
    }
    assert eqx.tree_equal(to_numpy(expected), host)
    moments = eqx.filter(layer, eqx.is_inexact_array)
    part = to_numpy(moments).take(nodes=MASK_NODES, inputs=MASK_INPUTS)
    assert part.inputs is None
    expected = eqx.filter(expected, eqx.is_inexact_array)
    assert eqx.tree_equal(to_numpy(expected), part)


@pytest.mark.parametrize(
    "posterior", [MeanField(), Matrix(pairs=2)], ids=lambda p: p.name
)
def test_fixed_nodes_have_no_gradient_and_the_same_values(getkey, posterior):
    """Parameters that all nodes share keep the gradient of all nodes (M7), (V3)."""
    layer = Layer.create(D_IN, 2, Outputs(), posterior, key=getkey())
    fixed, key = jnp.array([False, True]), getkey()
    kl = lambda v: sum(v.kl(key=key).values())
    value, grads = eqx.filter_value_and_grad(lambda v: kl(v.with_fixed_nodes(fixed)))(
        layer
    )
    plain_value, plain = eqx.filter_value_and_grad(kl)(layer)
    assert value == plain_value
    if isinstance(posterior, Matrix):
        names = {"loc", "log_column"}
        shared = {"log_row", "raw_noise"}
    else:
        names, shared = {"kernel", "bias"}, set()
    pairs = [(getattr(grads.weights, n), getattr(plain.weights, n)) for n in names]
    pairs.append((grads.scales["kappa"].q, plain.scales["kappa"].q))
    for found, expected in zip(
        *map(jax.tree.leaves, zip(*pairs, strict=True)), strict=True
    ):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], np.zeros_like(expected[1]))
        assert np.abs(expected).max() > 0
    for name in shared:
        found, expected = getattr(grads.weights, name), getattr(plain.weights, name)
        np.testing.assert_array_equal(found, expected)
        assert np.abs(expected).max() > 0
