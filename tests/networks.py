"""Small networks and posteriors for tests, given by their weights or their spread."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.model.posterior import SampledPosterior

NO_SPREAD = 1e-22  # a standard deviation that rounds away


def generator_of(key):
    """NumPy's generator: random numbers without compiling anything."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def every_normal(network):
    """The posteriors of all weights and of the logarithms of all scales."""
    layers = network.named_layers().values()
    weights = [q for each in layers for q in (each.weights.kernel, each.weights.bias)]
    return weights + [scale.q for scale in network.named_scales().values()]


def with_sd(network, sd):
    """The network with this standard deviation of every normal in it."""
    return eqx.tree_at(
        lambda net: [q.log_scale for q in every_normal(net)],
        network,
        [jnp.full_like(q.log_scale, np.log(sd)) for q in every_normal(network)],
    )


def tiny_network(
    d_in, widths, likelihood=None, prior=None, *, sd=0.3, activation="tanh", key
):
    """A mean-field network; `sd` is that of every normal in it."""
    likelihood = likelihood or GaussianNoise().build(2, rows=30.0)
    prior = prior or Horseshoe()
    network = Network.create(
        d_in, widths, likelihood, prior, activation=activation, key=key
    )
    return with_sd(network, sd)


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


def known_network(
    kernels, biases, likelihood=None, prior=None, *, activation="relu", key
):
    """A network whose every draw has these weights."""
    widths = tuple(len(bias) for bias in biases[:-1])
    network = tiny_network(
        len(kernels[0]),
        widths,
        likelihood,
        prior,
        sd=NO_SPREAD,
        activation=activation,
        key=key,
    )
    for layer, weights in enumerate(zip(kernels, biases, strict=True)):
        network = with_weights(network, layer, *weights)
    return network


def with_noise_sd(network, sd):
    """The network with E[gamma] = 1 / sd^2 for each target."""
    gamma = network.likelihood.gamma
    log_rate = jnp.log(gamma.fixed_shape) + 2 * np.log(sd)
    return eqx.tree_at(lambda net: net.likelihood.gamma.log_rate, network, log_rate)


def stacked(kernels, biases, likelihood, *, noise, scales=None, activation="tanh"):
    """A `SampledPosterior` of arrays whose first axis is the draws."""
    as_jax = lambda arrays: tuple(jnp.asarray(v, float) for v in arrays)
    return SampledPosterior(
        kernels=as_jax(kernels),
        biases=as_jax(biases),
        scales=jax.tree.map(lambda v: jnp.asarray(v, float), scales or {}),
        noise=jnp.asarray(noise, float),
        likelihood=likelihood,
        activation=activation,
    )


def random_draws(
    sizes, likelihood=None, *, draws=6, columns=False, activation="tanh", key
):
    """A `SampledPosterior` of random weights; `sizes` begins with the inputs."""
    likelihood = likelihood or GaussianNoise().build(sizes[-1], rows=30.0)
    generator = generator_of(key)
    pairs = [*itertools.pairwise(sizes)]
    scales = {
        f"layer_{number}": {
            "tau": generator.uniform(size=(draws, nodes)),
            "upsilon": generator.uniform(size=draws),
        }
        for number, (_, nodes) in enumerate(pairs[:-1], start=1)
    }
    scales["output"] = {"kappa": generator.uniform(size=draws)}
    if columns:
        scales["inputs"] = {"tau": generator.uniform(size=(draws, sizes[0]))}
    unknowns = likelihood.mean_noise().shape[0]
    return stacked(
        [generator.standard_normal((draws, *pair)) for pair in pairs],
        [generator.standard_normal((draws, nodes)) for _, nodes in pairs],
        likelihood,
        noise=generator.uniform(0.2, 1, (draws, unknowns)),
        scales=scales,
        activation=activation,
    )
