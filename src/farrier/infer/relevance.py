"""Which inputs matter: how much shuffling an input changes each posterior draw.

    T_g = 1/2 sum_o mean_rows (f_o - f_o shuffled in g)^2
          / sum_o (var_rows f_o + noise_o)                                          (I1)

g is an input or a group of inputs that are shuffled together, o an output, and noise_o
the residual variance of (S1). Outputs that describe the noise have a share of their
own, and the larger of the two shares counts. There is one value for each posterior
draw, so that the shares have posterior intervals.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..model.network import ACTIVATIONS, SampledNetwork
from ..model.posterior import AbstractPosterior

ROWS = 512  # rows that are shuffled
MAX_PAIRS = 40_000  # draws x groups
MIN_DRAWS = 32


def input_shares(
    posterior: AbstractPosterior,
    x: np.ndarray,
    groups: Sequence[Sequence[int]],
    *,
    key: PRNGKeyArray,
) -> Float[np.ndarray, "draws groups"]:
    """Shares (I1) of groups of inputs, for each draw of the posterior.

    Parameters
    ----------
    x
        Rows in the units of the network; at most 512 of them are used, evenly spaced.
    groups
        The columns of each group.
    key
        Of the shuffles, and of the draws if these are random. With very many groups
        fewer draws are used.
    """
    few = jnp.asarray(x[:: -(-len(x) // ROWS)], float)
    size = max(len(group) for group in groups)
    columns = np.zeros((len(groups), size), np.int32)
    used = np.zeros((len(groups), size))
    for index, group in enumerate(groups):
        columns[index, : len(group)] = group
        used[index, : len(group)] = 1
    draws = min(posterior.draws, max(MIN_DRAWS, MAX_PAIRS // len(groups)))
    posterior = posterior.resampled(draws, key=key)
    orders = jnp.asarray(_shuffles(len(few), draws, key=key), jnp.int32)
    mask = jnp.asarray(used, float)
    return np.asarray(_shares(posterior, few, jnp.asarray(columns), mask, orders))


@eqx.filter_jit
def _shares(
    posterior: AbstractPosterior,
    x: Float[Array, "rows d_in"],
    columns: Int[Array, "groups size"],
    used: Float[Array, "groups size"],
    orders: Int[Array, "draws rows"],
) -> Float[Array, "draws groups"]:
    likelihood = posterior.likelihood
    identified = likelihood.identified
    of_noise = likelihood.noise_outputs
    kinds = [mask for mask in (~of_noise, of_noise) if mask.any()]

    def by_kind(values: Float[Array, " d_out"]) -> Float[Array, " kinds"]:
        return jnp.stack([values[mask].sum() for mask in kinds])

    def one(number: Int[Array, ""]) -> Float[Array, " groups"]:
        sampled, order = posterior.sample(number), orders[number]
        move = x[order] - x
        kernel, bias = sampled.kernels[0], sampled.biases[0]
        first = x @ kernel + bias[None]
        f = _rest(sampled, first)
        noise = likelihood.residual_variance(posterior.mean_noise(), f)
        f = identified(f)
        total = by_kind(f.var(0)) + by_kind(noise)

        def of_group(group: Any) -> Float[Array, ""]:
            inputs, use = group
            # Only the inputs of the group change: a product over these is enough.
            new = first + (move[:, inputs] * use[None]) @ kernel[inputs]
            change = ((identified(_rest(sampled, new)) - f) ** 2).mean(0)
            return (0.5 * by_kind(change) / total).max()

        return lax.map(of_group, (columns, used))

    return posterior.map(one)


def _shuffles(rows: int, draws: int, *, key: PRNGKeyArray) -> np.ndarray:
    """Random orders in which no row keeps its position."""
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    order = generator.permuted(np.tile(np.arange(rows), (draws, 1)), axis=1)
    orders = np.empty_like(order)
    np.put_along_axis(orders, order, np.roll(order, 1, axis=1), axis=1)
    return orders


def _rest(
    sampled: SampledNetwork, first: Float[Array, "rows nodes"]
) -> Float[Array, "rows d_out"]:
    """Outputs, given the pre-activations of the first layer."""
    a = ACTIVATIONS[sampled.activation](first)
    kernels, biases = sampled.kernels[1:], sampled.biases[1:]
    return SampledNetwork(kernels, biases, sampled.activation)(a)
