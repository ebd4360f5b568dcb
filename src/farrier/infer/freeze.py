"""The predictive as plain arrays, from which it can be worked out without JAX.

`Draws` fixes the very draws of `infer/predict.py` (P1): for each of S draws an ordinary
network, whose last layer gives a mean and, for regression, a variance:

    loc = a K_s + b_s,   variance = a^2 V_s + c_s,   c_s with 1 / gamma_s in it

Where the noise depends on the row (L4), c_s has none in it. The second half of loc is a
draw of g, and the variance of the noise is an array of its own, to be multiplied by
exp(-g); by moments, with g ~ N(m_g, v_g), by E exp(-g) = exp(-m_g + v_g / 2)       (E4)

Correlated weights add the squared length of [a, 1] times a root of their covariance
(N1): a layer of that name, which is there where it is needed.

`Moments` draws nothing. It carries the mean and the variance of each activation from
layer to layer, as if activations were independent and pre-activations normal:

    E u   = E[s] M,   M = mu . [E a, 1]
    Var u = E[s^2] V + Var[s] M^2,
            V = (sigma^2) . [E a^2, 1] + (mu^2) . [Var a, 0]                        (E1)

and what correlated weights add to V (N6).

What to do with the arrays is in `portable.py`, and once more in `export/network.py`.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core.weights import MeanFieldWeights
from ..model.drawn import AnyNetwork, DrawnNetwork
from ..model.inputs import InputScales
from ..model.layers import Layer
from ..model.likelihoods import MOST_LOG, AbstractLikelihood, AbstractNormalLikelihood
from ..model.network import Network
from .predict import noise_sds

Frozen: TypeAlias = dict[str, np.ndarray]
MOST_VALUES = 2**20  # of draws that are kept for predictions


@dataclass(frozen=True, kw_only=True)
class Draws:
    """A fixed set of posterior draws: the numbers of farrier's own predictions.

    Parameters
    ----------
    count
        How many, or None: as many as the estimator predicts with (`n_draws`). With
        fewer, files are smaller and predictions those of an estimator of so few draws.
    """

    name: ClassVar[str] = "draws"
    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 2:
            raise ValueError(f"`count` must be at least 2, got {self.count}.")

    def freeze(self, network: AnyNetwork, draws: int, *, key: PRNGKeyArray) -> Frozen:
        """Arrays by name; `draws` are those of the estimator."""
        count = self.count or draws
        if isinstance(network, DrawnNetwork):
            return _numpy(_drawn(network, network.draw_keys(count, key=key)))
        if network.likelihood.targets:
            noise_sd = noise_sds(network, count, key=key)
            return _numpy(_regression(network, noise_sd, key=key))
        return _numpy(_classification(network, count, key=key))


@dataclass(frozen=True, kw_only=True)
class Moments:
    """Means and variances carried from layer to layer (E1): small, and without noise.

    An approximation: `docs/how-to/prune-and-export.md` says how far off it is.
    """

    name: ClassVar[str] = "moments"

    def freeze(self, network: AnyNetwork, draws: int, *, key: PRNGKeyArray) -> Frozen:
        """Arrays by name; there is nothing to draw."""
        del draws, key
        if isinstance(network, DrawnNetwork):
            raise ValueError(
                "A posterior that is a set of draws has no moments to carry from layer "
                "to layer. Export its draws: `method=Draws()`."
            )
        frozen = {}
        for index, layer in enumerate(network.layers):
            frozen |= _moment_arrays(layer, f"hidden.{index}")
        if network.inputs is not None:
            frozen |= _scaled_inputs(network.inputs, frozen, "hidden.0")
        frozen |= _moment_arrays(network.output, "output")
        if isinstance(network.likelihood, AbstractNormalLikelihood):
            gamma = network.likelihood.gamma
            # E[1 / gamma] of a Gamma law, which q(gamma) has for any number of rows.
            frozen["noise"] = jnp.exp(gamma.log_rate) / (gamma.shape - 1)
            frozen |= _limit(network.likelihood)
        return _numpy(frozen)


def is_normal(network: Network) -> bool:
    """Whether the weights into each node have one normal law under q."""
    layers = (*network.layers, network.output)
    return all(layer.weights.can_fold for layer in layers)


def can_fix(network: AnyNetwork, draws: int) -> bool:
    """Whether so many draws of all weights are few enough to be kept."""
    if isinstance(network, DrawnNetwork) or not is_normal(network):
        return False
    layers = (*network.layers, network.output)
    weights = sum(layer.weights.fan_in * layer.weights.nodes for layer in layers)
    return draws * weights <= MOST_VALUES


def fixed(network: Network, draws: int, *, key: PRNGKeyArray) -> DrawnNetwork:
    """The very draws that predictions are made with (P1), made once."""
    likelihood, variances = network.likelihood, {}
    noise_sd = jnp.zeros((draws, 0))
    if likelihood.targets:
        noise_sd = noise_sds(network, draws, key=key)
        arrays = _regression(network, jnp.zeros_like(noise_sd), key=key)
        named = {
            "kernel": "kernel_variance",
            "bias": "bias_variance",
            "root_kernel": "root.kernel",
            "root_bias": "root.bias",
        }
        variances = {
            short: arrays[f"output.{name}"]
            for short, name in named.items()
            if f"output.{name}" in arrays
        }
    else:
        arrays = _classification(network, draws, key=key)
    layers = [f"hidden.{index}" for index in range(len(network.layers))] + ["output"]
    return DrawnNetwork(
        tuple(arrays[f"{layer}.kernel"] for layer in layers),
        tuple(arrays[f"{layer}.bias"] for layer in layers),
        {},
        noise_sd,
        likelihood,
        network.activation,
        variances,
    )


def form_of_fixed(network: Network, draws: int) -> DrawnNetwork:
    """What `fixed` gives, all zero: its shapes, for which nothing has to be drawn."""
    like, variances = DrawnNetwork.like(network, draws), {}
    if network.likelihood.targets:
        kernel, bias = like.kernels[-1], like.biases[-1]
        variances = {"kernel": kernel, "bias": bias}
    return replace(like, scales={}, variances=variances)


def _numpy(arrays: dict[str, Array]) -> Frozen:
    return {name: np.asarray(value, np.float32) for name, value in arrays.items()}


def _drawn(network: DrawnNetwork, chosen: Int[Array, " count"]) -> dict[str, Array]:
    """Draws of a network that are there already: their outputs vary no more."""
    *kernels, kernel = (values[chosen] for values in network.kernels)
    *biases, bias = (values[chosen] for values in network.biases)
    arrays = {"output.kernel": kernel, "output.bias": bias}
    for index, pair in enumerate(zip(kernels, biases, strict=True)):
        arrays[f"hidden.{index}.kernel"], arrays[f"hidden.{index}.bias"] = pair
    if network.likelihood.targets:
        arrays["output.kernel_variance"] = jnp.zeros_like(kernel)
        none, noise_sd = jnp.zeros_like(bias), network.noise_sd[chosen]
        arrays |= _noise_arrays(network.likelihood, none, noise_sd)
    return arrays


def _noise_arrays(
    likelihood: AbstractLikelihood,
    variance: Float[Array, "draws d_out"],
    noise_sd: Float[Array, "draws targets"],
) -> dict[str, Array]:
    """The noise, together with the variance of the biases or, by the row, apart."""
    if likelihood.kinds == 1:
        return {"output.bias_variance": variance + noise_sd**2}
    noise = {"output.bias_variance": variance, "noise": noise_sd[:, None] ** 2}
    return noise | _limit(likelihood)


def _limit(likelihood: AbstractLikelihood) -> dict[str, Array]:
    """Most of |g|, which tells that there is one."""
    return {"noise.limit": jnp.asarray(MOST_LOG)} if likelihood.kinds == 2 else {}


@eqx.filter_jit
def _regression(
    network: Network, noise_sd: Float[Array, "draws targets"], *, key: PRNGKeyArray
) -> dict[str, Array]:
    """The arrays of `predict.mixture`."""
    law, outputs = _law(network.output), network.likelihood.d_out
    drawn = jnp.arange(outputs) >= network.likelihood.targets  # and not integrated

    def one(key_draw: PRNGKeyArray) -> tuple[dict[str, Array], Array, Array, Array]:
        key_sample, key_output = jr.split(key_draw)
        nothing = jnp.zeros((law.loc.shape[1] - 1, 1))
        f = network.output.conditional(nothing, jnp.zeros(1, int), key=key_output)
        sampled = network.sample(key=key_sample)
        last = jnp.where(drawn[None], sampled.kernels[-1], 0)
        bias = jnp.where(drawn, sampled.biases[-1], 0)
        return _hidden(network, key_sample), f.factor[:, 0], last, bias

    arrays, factor, kernel, bias = lax.map(one, jr.split(key, len(noise_sd)))
    factor = jnp.broadcast_to(factor, (len(noise_sd), outputs))
    factor = jnp.where(drawn[None], 0, factor)
    variance = factor**2 * law.own[None, :, -1]
    roots = jax.vmap(lambda f: _root_arrays(law.root * f[:, None, None], "output"))
    return arrays | {
        "output.kernel": factor[:, None] * law.loc[:, :-1].T[None] + kernel,
        "output.bias": factor * law.loc[None, :, -1] + bias,
        "output.kernel_variance": factor[:, None] ** 2 * law.own[:, :-1].T[None],
        **_noise_arrays(network.likelihood, variance, noise_sd),
        **roots(factor),
    }


@eqx.filter_jit
def _classification(
    network: Network, draws: int, *, key: PRNGKeyArray
) -> dict[str, Array]:
    """The arrays of `predict.probabilities`."""

    def one(key_draw: PRNGKeyArray) -> dict[str, Array]:
        sampled = network.sample(key=key_draw)
        output = {
            "output.kernel": sampled.kernels[-1],
            "output.bias": sampled.biases[-1],
        }
        return _hidden(network, key_draw) | output

    return lax.map(one, jr.split(key, draws))


def _hidden(network: Network, key: PRNGKeyArray) -> dict[str, Array]:
    """Weights of the hidden layers of one draw."""
    sampled = network.sample(key=key)
    arrays = {}
    for index in range(len(network.layers)):
        arrays[f"hidden.{index}.kernel"] = sampled.kernels[index]
        arrays[f"hidden.{index}.bias"] = sampled.biases[index]
    return arrays


def _moment_arrays(layer: Layer, name: str) -> dict[str, Array]:
    """What (E1) needs of one layer, scales multiplied in."""
    law = _law(layer)
    first, second = (layer.scale_moment(power) for power in (1, 2))
    square = law.loc**2 + (law.root**2).sum(2)
    return {
        f"{name}.kernel": (first[:, None] * law.loc[:, :-1]).T,
        f"{name}.bias": first * law.loc[:, -1],
        f"{name}.kernel_variance": (second[:, None] * law.own[:, :-1]).T,
        f"{name}.bias_variance": second * law.own[:, -1],
        f"{name}.kernel_square": (second[:, None] * square[:, :-1]).T,
        # Var[s] / E[s]^2
        f"{name}.scale_spread": second / first**2 - 1,
        **_root_arrays(law.root * jnp.sqrt(second)[:, None, None], name),
    }


def _scaled_inputs(
    inputs: InputScales, arrays: dict[str, Array], name: str
) -> dict[str, Array]:
    """The first layer with the scales of its inputs multiplied in (I3).

    One row for each column of the table: known inputs again, whose weights vary more.
    """
    first, second = (inputs.moment(power)[:, None] for power in (1, 2))
    square = arrays[f"{name}.kernel_square"]
    own = second * arrays[f"{name}.kernel_variance"]
    found = {
        f"{name}.kernel": first * arrays[f"{name}.kernel"],
        f"{name}.kernel_variance": own + (second - first**2) * square,
        f"{name}.kernel_square": second * square,
    }
    if f"{name}.root.kernel" in arrays:
        found[f"{name}.root.kernel"] = first * arrays[f"{name}.root.kernel"]
    return {part: inputs.whole(value) for part, value in found.items()}


def _root_arrays(
    root: Float[Array, "nodes fan_in columns"], name: str
) -> dict[str, Array]:
    """The root of the covariances as a layer, the columns of a node side by side."""
    if not root.shape[2]:
        return {}
    root = root.transpose(1, 0, 2).reshape(root.shape[1], -1)
    return {f"{name}.root.kernel": root[:-1], f"{name}.root.bias": root[-1]}


class _Law(NamedTuple):
    """Mean-field weights into each node, the bias last; `root` has no columns."""

    loc: Float[Array, "nodes fan_in"]
    own: Float[Array, "nodes fan_in"]  # variance
    root: Float[Array, "nodes fan_in 0"]


def _law(layer: Layer) -> _Law:
    weights = layer.weights
    if not isinstance(weights, MeanFieldWeights):
        raise ValueError(
            "Only networks with mean-field weights can be exported, and this one has "
            f'{type(weights).__name__}. Fit with posterior="mean-field".'
        )
    kernel, bias = weights.kernel, weights.bias
    return _Law(
        jnp.concatenate([kernel.loc, bias.loc[:, None]], 1),
        jnp.concatenate([kernel.variance, bias.variance[:, None]], 1),
        jnp.zeros((weights.nodes, weights.fan_in, 0)),
    )
