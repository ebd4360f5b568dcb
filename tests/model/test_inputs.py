"""A horseshoe over the inputs: its draws, its share of the bound, its moments."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farrier.core.priors import COLUMN_SCALE, Horseshoe
from farrier.core.scales import ExactHalfCauchy
from farrier.model.inputs import InputScales
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network

D_IN, NODES, DRAWS = 3, 2, 10_000


def scales_of(key):
    """Scales away from where training starts them."""
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    inputs = InputScales.create(Horseshoe(columns=True).column_scales(D_IN))
    where = lambda s: [s.tau.q.loc, s.tau.q.log_scale, s.upsilon.q.loc]
    new = [generator.normal(size=v.shape) * 0.3 - 0.5 for v in where(inputs)]
    return eqx.tree_at(where, inputs, [jnp.asarray(v) for v in new])


def network_of(key, *, scaled=True):
    """One hidden layer whose weights have a spread of their own."""
    key_network, key_inputs = jr.split(key)
    network = Network.create(
        D_IN,
        (NODES,),
        GaussianNoise().build(1, rows=10.0),
        Horseshoe(columns=scaled),
        key=key_network,
    )
    if scaled:
        moved = scales_of(key_inputs)
        network = eqx.tree_at(lambda net: net.inputs, network, moved)
    sd = lambda net: net.layers[0].weights.kernel.log_scale
    return eqx.tree_at(sd, network, jnp.full((NODES, D_IN), np.log(0.4)))


def within(values, expected):
    error = values.std(0) / np.sqrt(len(values))
    assert (abs(values.mean(0) - expected) < 5 * error).all()


def first_layer(network, x, *, key):
    """Pre-activations of the first layer for each of many rows that are all `x`."""
    rows = jnp.tile(x, (DRAWS, 1))
    draw = eqx.filter_jit(
        lambda net: net.conditionals(rows, jnp.arange(len(rows)), key=key)[0].draw()
    )
    return np.asarray(draw(network)).T


def test_rows_have_the_law_of_drawing_the_weights(getkey):
    """Fresh scales for each row, against zeta multiplied into the kernel (I2)."""
    network, x = network_of(getkey()), jnp.array([1.0, -2.0, 0.5])
    drawn = first_layer(network, x, key=getkey())
    keys = jr.split(getkey(), DRAWS)
    sample = jax.jit(jax.vmap(lambda k: _into_nodes(network, x, k)))
    weights = np.asarray(sample(keys))
    for power in (1, 2):
        a, b = drawn**power, weights**power
        error = np.sqrt((a.var(0) + b.var(0)) / DRAWS)
        assert (abs(a.mean(0) - b.mean(0)) < 5 * error).all()


def _into_nodes(network, x, key):
    sampled = network.sample(key=key)
    return x @ sampled.kernels[0] + sampled.biases[0]


def test_a_draw_has_the_moments_of_two_log_normals(getkey):
    """Draws, and SciPy's log-normal of the sum of two normal logarithms (I2, M3)."""
    inputs = scales_of(getkey())
    keys = jr.split(getkey(), DRAWS)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: inputs.sample(key=k)))(keys))
    tau, upsilon = inputs.tau.q, inputs.upsilon.q
    sd = np.sqrt(np.asarray(tau.scale) ** 2 + float(upsilon.scale) ** 2)
    law = stats.lognorm(sd, scale=np.exp(np.asarray(tau.loc) + float(upsilon.loc)))
    for power in (1, 2):
        within(draws**power, inputs.moment(power))
        np.testing.assert_allclose(inputs.moment(power), law.moment(power), rtol=1e-6)


def test_a_column_has_a_scale_and_a_bias_has_none(getkey):
    """With no spread at all, zeta multiplies the rows of the kernel alone (I2)."""
    key = getkey()
    network, plain = network_of(key), network_of(key, scaled=False)
    same = getkey()
    one, other = (net.sample(key=same) for net in (network, plain))
    ratio = np.asarray(one.kernels[0]) / np.asarray(other.kernels[0])
    np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones((1, NODES)))
    assert len(np.unique(ratio[:, 0].round(6))) == D_IN
    np.testing.assert_array_equal(one.biases[0], other.biases[0])
    np.testing.assert_array_equal(one.kernels[1], other.kernels[1])


def test_divergence_is_that_of_the_half_cauchy_and_a_gap(getkey):
    """By quadrature: (M5) is KL(q || C+) plus the gap of Jensen's inequality."""
    inputs = scales_of(getkey())
    b = COLUMN_SCALE
    for name in ("tau", "upsilon"):
        q, total = inputs.scales[name].q, 0.0
        for loc, sd in zip(np.ravel(q.loc), np.ravel(q.scale), strict=True):
            log_s, ends = stats.norm(loc, sd), (loc - 10 * sd, loc + 10 * sd)
            mean = partial(log_s.expect, lb=ends[0], ub=ends[1])
            prior = lambda z: stats.halfcauchy(scale=b).logpdf(np.exp(z)) + z
            rate = lambda z: np.exp(-2 * z) + 1 / b**2
            log_rate = lambda z, rate=rate: np.log(rate(z))
            total += -log_s.entropy() - mean(prior)
            total += np.log(mean(rate)) - mean(log_rate)
        np.testing.assert_allclose(inputs.kl()[name], total, rtol=1e-6)


def test_terms_of_the_bound_have_names(getkey):
    network = network_of(getkey())
    x, y = jnp.ones((4, D_IN)), jnp.ones((4, 1))
    terms = network.bound(x, y, jnp.ones(4), key=getkey()).terms()
    assert {*terms} == {*network.term_names()}
    assert {"inputs/tau", "inputs/upsilon"} < {*terms}
    assert terms["inputs/tau"] == network.inputs.tau.kl()


@pytest.mark.parametrize("kept", [[True, False, True], [True, True, True]])
def test_a_removed_column_has_weights_of_zero(getkey, kept):
    """The others keep their numbers, and so their noise."""
    inputs, key = scales_of(getkey()), getkey()
    small = inputs.take(np.array(kept))
    whole = np.asarray(inputs.sample(key=key))
    found = small.whole(small.sample(key=key)[:, None])[:, 0]
    np.testing.assert_allclose(found, np.where(kept, whole, 0))
    x, rows = jnp.ones((D_IN, 2)), jnp.arange(2)
    every = inputs.scaled(x, rows, key=key)
    np.testing.assert_allclose(small.scaled(x, rows, key=key), every[np.array(kept)])


def test_expected_norms_have_the_scales_in_them(getkey):
    network = network_of(getkey())
    keys = jr.split(getkey(), DRAWS)
    weights = jax.jit(jax.vmap(lambda k: _weights(network, k)))(keys)
    norms = np.linalg.norm(np.asarray(weights).mean(0), axis=0)
    np.testing.assert_allclose(network.expected_norms()[0], norms, rtol=0.03)


def _weights(network, key):
    sampled = network.sample(key=key)
    return jnp.concatenate([sampled.kernels[0], sampled.biases[0][None]])


def test_a_prior_with_columns_gives_each_column_a_scale(getkey):
    """tau_i ~ C+(0, 1) and one upsilon, which start at 1 (I2)."""
    built = GaussianNoise().build(1, rows=10.0)
    network = Network.create(
        D_IN, (NODES,), built, Horseshoe(columns=True), key=getkey()
    )
    assert network.inputs is not None
    tau, upsilon = network.inputs.tau, network.inputs.upsilon
    assert (tau.prior.b, upsilon.prior.b) == (COLUMN_SCALE, COLUMN_SCALE)
    np.testing.assert_array_equal(tau.q.loc, np.zeros(D_IN))
    np.testing.assert_array_equal(upsilon.q.loc, 0)
    assert network_of(getkey(), scaled=False).inputs is None


def test_scales_of_columns_have_the_kl_term_of_the_prior():
    """The exact KL term is one of all half-Cauchy scales of a network (G2)."""
    exact = Horseshoe(columns=True, half_cauchy="exact")
    inputs = InputScales.create(exact.column_scales(D_IN))
    for scale in inputs.scales.values():
        assert scale.prior == ExactHalfCauchy(COLUMN_SCALE)


def test_masks_are_over_the_columns_that_are_present(getkey):
    """A mask over all columns of the table loses the entries of those removed."""
    inputs = scales_of(getkey()).take(np.array([True, False, True]))
    mask = np.array([False, True, True])
    np.testing.assert_array_equal(inputs.present(mask), [False, True])
    np.testing.assert_array_equal(inputs.present(mask[1:]), mask[1:])
