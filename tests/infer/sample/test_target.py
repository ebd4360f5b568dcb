"""The density that chains sample (H1), its networks, and where chains start."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from sample_targets import ROWS, small_target
from scipy import special, stats

from farrier.core.priors import Gaussian, Horseshoe, ScaleMixture
from farrier.infer.sample.target import (
    FEW_NODES,
    ascended,
    log_prior_of,
    multiplied,
    start_of,
)
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise

NOISE = GaussianNoise(shape=2.0, rate=0.5)
LIKELIHOODS = {
    "gaussian": NOISE.build(1, rows=ROWS),
    "heteroscedastic": HeteroscedasticNoise(shape=2.0, rate=0.5).build(1, rows=ROWS),
    "categorical": Categorical().build(3, rows=ROWS),
}
PRIORS = {
    "horseshoe": Horseshoe(node_scale=0.7),
    "gaussian": Gaussian(scale=2.0),
    "mixture": ScaleMixture(),
    "slab": Horseshoe(slab=0.5),
    "columns": Horseshoe(columns=True),
}
log_density = eqx.filter_jit(lambda target, point: target.log_density(point))


def scales_by_hand(scales, log_scales):
    """ln p of the logarithms of half-Cauchy scales, by scipy (M12)."""
    total = 0.0
    for name, log_s in log_scales.items():
        s = np.exp(np.asarray(log_s))
        law = stats.halfcauchy(scale=scales[name].prior.b)
        total += np.sum(law.logpdf(s) + np.log(s))
    return total


def layer_by_hand(layer, point):
    """ln p of one layer by scipy (M1), (M10), (M12)."""
    total = scales_by_hand(layer.scales, point.log_scales)
    values = np.concatenate([np.ravel(point.kernel), point.bias])
    form = layer.parametrisation
    if hasattr(form, "wide"):
        wide, narrow = (
            stats.norm.pdf(values, scale=s) for s in (form.wide, form.narrow)
        )
        return total + np.log(form.share * wide + (1 - form.share) * narrow).sum()
    return total + stats.norm.logpdf(values).sum()


def prior_by_hand(network, point):
    """ln p of all weights and scales, those of the columns included (H1), (I2)."""
    layers = network.named_layers().values()
    total = sum(map(layer_by_hand, layers, point))
    if network.inputs is not None:
        total += scales_by_hand(network.inputs.scales, point[0].log_inputs)
    return total


def outputs_by_hand(network, point, x):
    """Outputs of a point, by NumPy: scales times standardised weights (M1), (I2)."""
    a = np.asarray(x)
    if network.inputs is not None:
        zeta = np.exp(sum(np.asarray(v) for v in point[0].log_inputs.values()))
        a = a * zeta
    for number, (layer, each) in enumerate(
        zip(network.named_layers().values(), point, strict=True)
    ):
        a = np.maximum(a, 0) if number else a
        log_s = [np.asarray(v) for v in each.log_scales.values()]
        s = np.exp(sum(log_s, start=np.zeros(len(each.bias))))
        if hasattr(layer.parametrisation, "slab"):
            s = (s**-2 + layer.parametrisation.slab**-2) ** -0.5
        a = s * (a @ np.asarray(each.kernel).T + np.asarray(each.bias))
    return a


def likelihood_by_hand(target, f):
    """ln p(y | f) of all rows, precisions integrated out (H2), (H3), (L2)."""
    y, weight = np.asarray(target.y), np.asarray(target.weight)
    if y.ndim == 1:
        return weight @ special.log_softmax(f, axis=1)[np.arange(len(y)), y]
    g = f[:, 1] if f.shape[1] == 2 else np.zeros(len(y))
    error = weight @ (np.exp(g) * (y[:, 0] - f[:, 0]) ** 2)
    shape = 2.0 + weight.sum() / 2
    return 0.5 * weight @ g - shape * np.log(0.5 + error / 2)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_log_prior_agrees_with_scipy(prior, getkey):
    """Weights before their scales, and densities of ln s (M1), (M10), (M12)."""
    target = small_target(prior, key=getkey())
    point = start_of(target.network, key=getkey())
    for layer, each in zip(target.network.named_layers().values(), point, strict=True):
        ours = log_prior_of(layer, each)
        np.testing.assert_allclose(ours, layer_by_hand(layer, each), rtol=1e-10)


@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS)
@pytest.mark.parametrize("prior", ["horseshoe", "slab", "columns"])
def test_log_density_is_likelihood_and_prior(prior, likelihood, getkey):
    """(H1) by NumPy and scipy, up to a constant; every scale has its prior (I2)."""
    widths = (3, FEW_NODES + 1)
    target = small_target(PRIORS[prior], likelihood, key=getkey(), widths=widths)
    one, other = (start_of(target.network, key=getkey()) for _ in range(2))

    def by_hand(point):
        f = outputs_by_hand(target.network, point, target.x)
        return likelihood_by_hand(target, f) + prior_by_hand(target.network, point)

    ours = log_density(target, one) - log_density(target, other)
    np.testing.assert_allclose(ours, by_hand(one) - by_hand(other), rtol=1e-9)


@pytest.mark.parametrize("prior", ["horseshoe", "slab", "columns"])
def test_the_network_of_a_point_has_its_scales_multiplied_in(prior, getkey):
    """All outputs by NumPy (M1), (G3), (I2); the scales are reported as they are."""
    target = small_target(PRIORS[prior], key=getkey(), widths=(3, 2))
    point = start_of(target.network, key=getkey())
    expected = outputs_by_hand(target.network, point, target.x)
    ours = target.sampled(point)(target.x)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    scales = target.scales(point)
    for (name, of_layer), each in zip(
        target.network.named_layers().items(), point, strict=True
    ):
        assert set(scales[name]) == set(of_layer.scales)
        for scale, log_s in each.log_scales.items():
            np.testing.assert_allclose(scales[name][scale], np.exp(log_s))
    assert ("inputs" in scales) == (prior == "columns")
    if prior == "columns":
        tau = np.exp(point[0].log_inputs["tau"])
        np.testing.assert_allclose(scales["inputs"]["tau"], tau)


@pytest.mark.parametrize("prior", ["horseshoe", "columns"])
def test_gradient_of_log_density_by_finite_differences(prior, getkey):
    """(H1) of a classifier, in every fifth unknown and in all scales of inputs."""
    likelihood = LIKELIHOODS["categorical"]
    target = small_target(PRIORS[prior], likelihood, key=getkey())
    flat, unravel = ravel_pytree(start_of(target.network, key=getkey()))
    density = jax.jit(lambda v: target.log_density(unravel(v)))
    gradient = np.asarray(jax.grad(density)(flat))
    is_input = ravel_pytree(unravel(flat)[0].log_inputs)[0]
    numbers = [*range(0, len(flat), 5)]
    numbers += [int(jnp.argmin(jnp.abs(flat - value))) for value in is_input]
    for i in numbers:
        h = 1e-5 * jnp.eye(len(flat))[i]
        slope = float(density(flat + h) - density(flat - h)) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("prior", ["horseshoe", "columns", "mixture"])
def test_a_flat_vector_becomes_the_point_it_was_made_of(prior, getkey):
    target = small_target(PRIORS[prior], key=getkey(), widths=(3, 2))
    point = start_of(target.network, key=getkey())
    flat, _ = ravel_pytree(point)
    again = target.unravel()(flat)
    assert jax.tree.structure(again) == jax.tree.structure(point)
    for ours, theirs in zip(
        jax.tree.leaves(again), jax.tree.leaves(point), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("form", ["non-centred", "centred"])
def test_chains_begin_at_draws_of_the_variational_posterior(form, getkey):
    """Weights with their scales multiplied in have the mean E[w] (M1), (M3)."""
    network = small_target(Horseshoe(parametrisation=form), key=getkey()).network
    layer = network.layers[0]

    def kernel(key):
        return multiplied(layer, start_of(network, key=key)[0])[0]

    drawn = np.asarray(jax.vmap(kernel)(jr.split(getkey(), 20_000)))
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert (abs(drawn.mean(0) - np.asarray(layer.expected_weights())) < 5 * error).all()


def test_scales_of_inputs_begin_at_draws_too(getkey):
    """ln tau ~ N(loc, scale^2), one for each column (I2), (M3)."""
    network = small_target(PRIORS["columns"], key=getkey()).network
    draw = jax.vmap(lambda key: start_of(network, key=key)[0].log_inputs["tau"])
    drawn = np.asarray(draw(jr.split(getkey(), 2_000)))
    assert network.inputs is not None
    q = network.inputs.tau.q
    for column in range(2):
        law = stats.norm(float(q.loc[column]), float(q.scale[column]))
        assert stats.kstest(drawn[:, column], law.cdf).pvalue > 1e-6


def test_ascent_goes_up(getkey):
    target = small_target(key=getkey())
    flat, unravel = ravel_pytree(start_of(target.network, key=getkey()))
    higher, value, gradient = ascended(target, flat)
    density = lambda v: target.log_density(unravel(v))
    assert value > density(flat) + 10
    np.testing.assert_allclose(value, density(higher), rtol=1e-10)
    np.testing.assert_allclose(gradient, jax.grad(density)(higher), atol=1e-8)
