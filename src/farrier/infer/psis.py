"""How far q is from the posterior: Pareto-smoothed importance sampling.

    ln w_s = ln p(y, theta_s) - ln q(theta_s),   theta_s ~ q                        (K1)
    the largest w_s follow a generalised Pareto law of shape k                      (K2)

theta holds all unknowns of the network: weights, scales, noise precision; the auxiliary
variables of the scales are integrated out. k is the honest word on q as a whole: under
0.5 weights have a finite variance and q is close, up to 0.7 they can still be used, and
over that q differs from the posterior in more than importance sampling can mend. q may
still predict well: k sees every direction of theta, a prediction few of them.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import stats

from ..core.scales import Scale
from ..core.weights import Centred, MeanFieldWeights, Mixed
from ..model.inputs import InputScales
from ..model.layers import Layer
from ..model.likelihoods import AbstractNormalLikelihood
from ..model.network import Network, SampledNetwork
from ..train.data import pad_rows

DRAWS = 2_000
DRAWS_AT_ONCE = 20
CHUNK = 4_096  # rows
LEAST_TAIL = 5
GOOD, USABLE = 0.5, 0.7


def log_weights(
    network: Network,
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    draws: int = DRAWS,
    *,
    key: PRNGKeyArray,
) -> np.ndarray:
    """ln w (K1) of each draw of q, for the rows of the fit and their weights."""
    gamma, total = _noise(network, draws, key=key)
    for first in range(0, len(x), CHUNK):
        chunk = slice(first, first + CHUNK)
        rows = (_padded(x[chunk]), _padded(y[chunk]), _padded(weight[chunk]))
        likelihood, ratio = _terms(network, *rows, jnp.asarray(gamma, float), key=key)
        total += np.asarray(likelihood, float)
        if first == 0:  # the same for all rows
            total += np.asarray(ratio, float)
    return total


def _noise(
    network: Network, draws: int, *, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the noise precisions (none for classes), and ln p - ln q of each."""
    likelihood = network.likelihood
    if not isinstance(likelihood, AbstractNormalLikelihood):
        return np.zeros((draws, 0)), np.zeros(draws)
    rate = np.exp(np.asarray(likelihood.gamma.log_rate, float))
    q: Any = stats.gamma(np.asarray(likelihood.gamma.shape, float), scale=1 / rate)
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    gamma = q.rvs((draws, len(rate)), random_state=generator)
    p: Any = stats.gamma(likelihood.prior_shape, scale=1 / likelihood.prior_rate)
    return gamma, (p.logpdf(gamma) - q.logpdf(gamma)).sum(axis=1)


def _padded(values: np.ndarray) -> Array:
    """A chunk filled up with zeros: rows of weight 0."""
    rows = min(CHUNK, 2 ** max(4, (len(values) - 1).bit_length()))
    return jnp.asarray(pad_rows(values, rows))


# -- one draw --------------------------------------------------------------------------


def _draw_layer(
    layer: Layer, *, key: PRNGKeyArray
) -> tuple[tuple[Array, Array], Float[Array, ""]]:
    """One draw of a layer's weights, scales multiplied in, and ln p - ln q of it."""
    weights = layer.weights
    assert isinstance(weights, MeanFieldWeights)
    key_weights, *keys = jr.split(key, 1 + len(layer.scales))
    log_scale, ratio = jnp.zeros(weights.nodes), jnp.zeros(())
    for scale, key_scale in zip(layer.scales.values(), keys, strict=True):
        log_s, own = _draw_scale(scale, key=key_scale)
        log_scale, ratio = log_scale + log_s, ratio + own
    kernel, bias = weights.sample(layer.inputs, layer.nodes, key=key_weights)
    for q, w in ((weights.kernel, kernel), (weights.bias, bias)):
        ratio -= norm.logpdf(w, q.loc, q.scale).sum()
    form = layer.parametrisation
    if isinstance(form, Mixed):
        ratio += form.log_density(kernel).sum() + form.log_density(bias).sum()
    else:
        # Centred, the posterior stands on w, whose prior has the scale; else on beta.
        own = log_scale if isinstance(form, Centred) else jnp.zeros_like(log_scale)
        ratio += norm.logpdf(kernel, scale=jnp.exp(own)[:, None]).sum()
        ratio += norm.logpdf(bias, scale=jnp.exp(own)).sum()
    factor = form.multiplier(log_scale)
    return ((factor[:, None] * kernel).T, factor * bias), ratio


def _draw_scale(
    scale: Scale, *, key: PRNGKeyArray
) -> tuple[Float[Array, "*shape"], Float[Array, ""]]:
    """One draw of ln s, and ln p - ln q of it, as densities of ln s (M11, M12)."""
    q = scale.q
    noise = jr.normal(key, q.loc.shape)
    log_s = q.loc + q.scale * noise
    log_q = norm.logpdf(noise) - q.log_scale
    return log_s, (scale.prior.log_density(log_s) - log_q).sum()


def _draw_inputs(
    inputs: InputScales, *, key: PRNGKeyArray
) -> tuple[Float[Array, " d_in"], Float[Array, ""]]:
    """One draw of the scales of the inputs, and ln p - ln q of it (I2)."""
    key_tau, key_upsilon = jr.split(key)
    tau, ratio = _draw_scale(inputs.tau, key=key_tau)
    upsilon, own = _draw_scale(inputs.upsilon, key=key_upsilon)
    return jnp.exp(tau + upsilon), ratio + own


@eqx.filter_jit
def _terms(
    network: Network,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"] | Int[Array, " rows"],
    weight: Float[Array, " rows"],
    gamma: Float[Array, "draws _"],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, " draws"], Float[Array, " draws"]]:
    """Log likelihood of the rows, and ln p - ln q of the network, for each draw."""
    layers = (*network.layers, network.output)

    def one(draw: tuple[PRNGKeyArray, Array]) -> tuple[Array, Array]:
        key_draw, precision = draw
        keys = jr.split(key_draw, len(layers))
        found = [_draw_layer(v, key=k) for v, k in zip(layers, keys, strict=True)]
        parts, ratios = zip(*found, strict=True)
        kernels, biases = zip(*parts, strict=True)
        if network.inputs is not None:
            zeta, own = _draw_inputs(network.inputs, key=jr.fold_in(key_draw, 1))
            first = network.inputs.whole(zeta[:, None] * kernels[0])
            kernels, ratios = (first, *kernels[1:]), (*ratios, own)
        f = SampledNetwork(kernels, biases, network.activation)(x)
        each = network.likelihood.log_density(y, f, precision)
        return weight @ each, jnp.stack(ratios).sum()

    pairs = (jr.split(key, len(gamma)), gamma)
    return lax.map(one, pairs, batch_size=DRAWS_AT_ONCE)


# -- the tail of the weights -----------------------------------------------------------


def pareto_k(log_w: np.ndarray) -> float:
    """Shape k of the generalised Pareto law of the largest weights (K2).

    Of S weights the largest min(S / 5, 3 sqrt(S)) are the tail; the next one is where
    it begins. Minus infinity where all weights of the tail are equal.
    """
    log_w = np.sort(np.asarray(log_w, float))
    size = math.ceil(min(0.2 * len(log_w), 3 * math.sqrt(len(log_w))))
    if size < LEAST_TAIL:
        raise ValueError(
            f"The tail needs {LEAST_TAIL} weights or more, but {len(log_w)} draws have "
            f"one of {size}. Take more draws."
        )
    w = np.exp(log_w[-size - 1 :] - log_w[-1])
    excess = w[1:] - w[0]
    if excess[-1] <= 0:
        return -math.inf
    return generalised_pareto_shape(np.maximum(excess, np.finfo(float).tiny))


def generalised_pareto_shape(x: np.ndarray) -> float:
    """Shape of a generalised Pareto law from sorted draws of it (K3).

    The estimate of Zhang and Stephens (2009): the likelihood, profiled over the shape,
    is averaged over a grid of b = -k / scale. Ten more observations of 1/2 steady it.
    """
    n = len(x)
    count = 30 + math.isqrt(n)
    quartile = x[int(n / 4 + 0.5) - 1]
    steps = 1 - np.sqrt(count / (np.arange(1, count + 1) - 0.5))
    b = 1 / x[-1] + steps / (3 * quartile)
    k = np.log1p(-b[:, None] * x).mean(axis=1)
    profile = n * (np.log(-b / k) - k - 1)
    share = np.exp(profile - profile.max())
    best = float((b * share).sum() / share.sum())
    shape = float(np.log1p(-best * x).mean())
    return (n * shape + 10 * 0.5) / (n + 10)
