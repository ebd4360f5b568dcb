"""Bounds on the log evidence of a network, and estimates of it.

    IWAE = E ln 1/K sum_k p(y, theta_k) / q(theta_k),   theta_k ~ q

theta has all weights and the logarithms of all scales; the unknowns of the likelihood
are integrated (H2). Annealed importance sampling (AIS; Neal 2001) moves draws of the
prior by Hamiltonian Monte Carlo through the densities p(theta) p(y | theta)^t.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from farrier.core.scales import (
    AbstractScalePrior,
    HalfCauchy,
    Scale,
)
from farrier.core.weights import MeanFieldWeights
from farrier.fitted import Sample
from farrier.infer.sample.target import (
    LayerPoint,
    Point,
    Target,
    log_prior_of,
    start_of,
)
from farrier.model.likelihoods import AbstractLikelihood, AbstractNormalLikelihood
from farrier.model.network import Network

LEAPFROG, ACCEPTANCE, SCHEDULE_POWER = 8, 0.8, 4
FIRST_STEP, ADAPTATION = 0.05, 0.1  # of the step size of HMC


def under(network: Network, form: Callable[[float], AbstractScalePrior]) -> Network:
    """The network whose half-Cauchy scales have KL terms of this form."""
    is_prior = lambda node: isinstance(node, AbstractScalePrior)
    return jax.tree.map(
        lambda node: form(node.b) if is_prior(node) else node, network, is_leaf=is_prior
    )


def sampled_terms(
    network: Network, rows: Sample, elbo: int, weights: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, " elbo"], Float[Array, " weights"]]:
    """Draws of the data term of the ELBO, and log importance weights of q."""
    y = jnp.asarray(rows.y) if rows.y.dtype.kind != "f" else jnp.asarray(rows.y, float)
    x, weight = jnp.asarray(rows.x, float), jnp.asarray(rows.weight, float)
    return _sampled_terms(network, x, y, weight, elbo, weights, key=key)


@eqx.filter_jit
def _sampled_terms(
    network: Network,
    x: Array,
    y: Array,
    weight: Array,
    elbo: int,
    weights: int,
    *,
    key: PRNGKeyArray,
) -> tuple[Array, Array]:
    target = Target(network, x, y, weight)
    constant = evidence_constant(network.likelihood, weight.sum())

    def of_bound(key_draw: PRNGKeyArray) -> Array:
        return network.bound(x, y, weight, key=key_draw).log_likelihood

    def of_weight(key_draw: PRNGKeyArray) -> Array:
        point = start_of(network, key=key_draw)
        return target.log_density(point) + constant - log_q(network, point)

    key_elbo, key_weights = jr.split(key)
    data_terms = lax.map(of_bound, jr.split(key_elbo, elbo), batch_size=4)
    return data_terms, lax.map(of_weight, jr.split(key_weights, weights), batch_size=8)


def log_q(network: Network, point: Point) -> Float[Array, ""]:
    """ln q of one draw: standardised weights, and the logarithms of the scales."""
    total = jnp.zeros(())
    for layer, each in zip(network.named_layers().values(), point, strict=True):
        weights = layer.weights
        assert isinstance(weights, MeanFieldWeights)
        for q, value in ((weights.kernel, each.kernel), (weights.bias, each.bias)):
            total += norm.logpdf(value, q.loc, q.scale).sum()
        for name, scale in layer.scales.items():
            log_s = each.log_scales[name]
            total += norm.logpdf(log_s, scale.q.loc, scale.q.scale).sum()
    return total


def evidence_constant(
    likelihood: AbstractLikelihood, rows: Float[Array, ""]
) -> Float[Array, ""]:
    """What (H2) leaves out of ln p(y | theta): 0 for classes.

    a ln b - ln Gamma(a) + ln Gamma(a + n / 2) - n / 2 ln(2 pi) for each target
    """
    if not isinstance(likelihood, AbstractNormalLikelihood):
        return jnp.zeros(())
    a, b = likelihood.prior_shape, likelihood.prior_rate
    one = a * math.log(b) - math.lgamma(a) + gammaln(a + 0.5 * rows)
    return likelihood.targets * (one - 0.5 * rows * math.log(2 * math.pi))


def importance_bound(log_weights: np.ndarray, group: int) -> tuple[float, float]:
    """IWAE with groups of this size, and the standard error of its mean."""
    used = log_weights[: len(log_weights) // group * group].reshape(-1, group)
    values = np.logaddexp.reduce(used, axis=1) - math.log(group)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def log_mean(values: Any) -> float:
    """Logarithm of the mean of the exp of some numbers."""
    values = np.asarray(values, float)
    return float(np.logaddexp.reduce(values) - math.log(len(values)))


def effective(log_weights: np.ndarray) -> float:
    """Effective number of draws: (sum w)^2 / sum w^2."""
    total = 2 * np.logaddexp.reduce(log_weights)
    return float(np.exp(total - np.logaddexp.reduce(2 * log_weights)))


# -- annealed importance sampling ---------------------------------------------------


def prior_draw(network: Network, *, key: PRNGKeyArray) -> Point:
    """One draw of the prior: half-Cauchy scales and standard normal weights."""

    def log_scale(scale: Scale, key: PRNGKeyArray) -> Array:
        assert isinstance(scale.prior, HalfCauchy)
        return jnp.log(scale.prior.b * jnp.abs(jr.cauchy(key, scale.q.loc.shape)))

    points = []
    for number, layer in enumerate(network.named_layers().values()):
        key_kernel, key_bias, *keys = jr.split(
            jr.fold_in(key, number), 2 + len(layer.scales)
        )
        nodes, d_in = layer.weights.nodes, layer.weights.fan_in - 1
        scales = {
            name: log_scale(scale, key_scale)
            for (name, scale), key_scale in zip(layer.scales.items(), keys, strict=True)
        }
        kernel = jr.normal(key_kernel, (nodes, d_in))
        points.append(LayerPoint(kernel, jr.normal(key_bias, (nodes,)), scales))
    return tuple(points)


def log_parts(target: Target, point: Point) -> tuple[Array, Array]:
    """ln p(theta) and ln p(y | theta), constants included."""
    layers = target.network.named_layers().values()
    prior = sum(
        (log_prior_of(*pair) for pair in zip(layers, point, strict=True)),
        start=jnp.zeros(()),
    )
    constant = evidence_constant(target.network.likelihood, target.weight.sum())
    return prior, target.log_density(point) - prior + constant


def step_sizes(
    target: Target, chains: int, temperatures: int, *, key: PRNGKeyArray
) -> Float[Array, " temperatures"]:
    """Step sizes of HMC at each temperature, from chains that are not used again."""
    start = jnp.full(temperatures, FIRST_STEP)
    return _annealed(target, chains, start, jnp.asarray(ADAPTATION), key=key)[1]


def annealed_weights(
    target: Target, chains: int, sizes: Float[Array, " temps"], *, key: PRNGKeyArray
) -> Float[Array, " chains"]:
    """Log importance weights of some chains: the mean of their exp is unbiased (AIS).

    A chain starts at a draw of the prior and moves by HMC from temperature to
    temperature, t_k = (k / temps)^4. Its log weight is the sum over k of
    (t_k - t_(k - 1)) ln p(y | theta_(k - 1)).
    """
    return _annealed(target, chains, sizes, jnp.zeros(()), key=key)[0]


@eqx.filter_jit
def _annealed(
    target: Target,
    chains: int,
    sizes: Float[Array, " temps"],
    adaptation: Float[Array, ""],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, " chains"], Float[Array, " temps"]]:
    """Log weights of all chains, and the step sizes after adaptation.

    The sizes have a common factor, which grows where chains accept more than
    `ACCEPTANCE` of their moves; at adaptation 0 it stays 1.
    """
    unravel, temps = target.unravel(), len(sizes)
    both = lambda flat: log_parts(target, unravel(flat))
    key_start, key_moves = jr.split(key)
    draw = lambda k: ravel_pytree(prior_draw(target.network, key=k))[0]
    start = jax.vmap(draw)(jr.split(key_start, chains))

    def step(carry: tuple, k: Array) -> tuple[tuple, Array]:
        flat, log_weight, factor = carry
        before, now = ((j / temps) ** SCHEDULE_POWER for j in (k, k + 1))
        log_weight = log_weight + (now - before) * jax.vmap(both)(flat)[1]
        size = factor * sizes[k]

        def density(each: Array) -> Array:
            prior, data = both(each)
            return prior + now * data

        keys = jr.split(jr.fold_in(key_moves, k), chains)
        flat, accepted = jax.vmap(lambda f, i: hmc(density, f, size, key=i))(flat, keys)
        factor = factor * jnp.exp(adaptation * (accepted.mean() - ACCEPTANCE))
        return (flat, log_weight, factor), size

    carry = (start, jnp.zeros(chains), jnp.ones(()))
    (_, log_weight, _), used = lax.scan(step, carry, jnp.arange(temps))
    return log_weight, used


def hmc(
    density: Callable[[Array], Array],
    flat: Float[Array, " unknowns"],
    size: Float[Array, ""],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, " unknowns"], Float[Array, ""]]:
    """One move of Hamiltonian Monte Carlo, and its probability of acceptance."""
    key_momentum, key_accept = jr.split(key)
    value_and_slope = jax.value_and_grad(density)
    value, slope = value_and_slope(flat)
    momentum = jr.normal(key_momentum, flat.shape)
    energy = value - 0.5 * (momentum**2).sum()

    def leap(carry: tuple, _: None) -> tuple[tuple, None]:
        place, momentum, slope, _ = carry
        momentum = momentum + 0.5 * size * slope
        place = place + size * momentum
        value, slope = value_and_slope(place)
        return (place, momentum + 0.5 * size * slope, slope, value), None

    end, _ = lax.scan(leap, (flat, momentum, slope, value), None, length=LEAPFROG)
    place, momentum, _, value = end
    gain = value - 0.5 * (momentum**2).sum() - energy
    gain = jnp.where(jnp.isfinite(gain), gain, -jnp.inf)
    accept = jnp.log(jr.uniform(key_accept)) < gain
    return jnp.where(accept, place, flat), jnp.minimum(1, jnp.exp(gain))
