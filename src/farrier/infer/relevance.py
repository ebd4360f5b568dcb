"""Which inputs matter: what shuffling an input does to each posterior draw.

    T_g = 1/2 sum_o mean_rows (f_o - f_o shuffled in g)^2
          / sum_o (var_rows f_o + noise_o)                                          (I1)

g is an input or a group of inputs that are shuffled together, o an output, and noise_o
the target's own variance, as in (S1). Where there are two kinds of outputs, the larger
share counts. One value for each draw of the network: the spread over the draws is how
sure the posterior is of it.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..model.drawn import AnyNetwork, DrawKey
from ..model.network import ACTIVATIONS, SampledNetwork
from .compact import target_noise

ROWS = 512  # rows that are shuffled
MOST_PAIRS = 40_000  # draws x groups
LEAST_DRAWS = 32


def input_shares(
    network: AnyNetwork,
    x: np.ndarray,
    groups: Sequence[Sequence[int]],
    draws: int,
    *,
    key: PRNGKeyArray,
) -> Float[np.ndarray, "draws groups"]:
    """Shares (I1) of groups of inputs, for each draw of the network.

    Parameters
    ----------
    x
        Rows in the units of the network; of many, some are taken, evenly spread.
    groups
        The columns of each group.
    draws
        Draws of the network; fewer are made where there are very many groups.
    """
    few = jnp.asarray(x[:: -(-len(x) // ROWS)], float)
    size = max(len(group) for group in groups)
    columns = np.zeros((len(groups), size), np.int32)
    used = np.zeros((len(groups), size))
    for index, group in enumerate(groups):
        columns[index, : len(group)] = group
        used[index, : len(group)] = 1
    draws = min(draws, max(LEAST_DRAWS, MOST_PAIRS // len(groups)))
    orders = jnp.asarray(_shuffles(len(few), draws, key=key), jnp.int32)
    mask = jnp.asarray(used, float)
    return np.asarray(
        _shares(network, few, jnp.asarray(columns), mask, orders, key=key)
    )


@eqx.filter_jit
def _shares(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    columns: Int[Array, "groups size"],
    used: Float[Array, "groups size"],
    orders: Int[Array, "draws rows"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "draws groups"]:
    view, kinds = network.likelihood.seen, network.likelihood.kinds
    by_kind = lambda values: values.reshape(kinds, -1).sum(1)

    def one(draw: tuple[DrawKey, Array]) -> Float[Array, " groups"]:
        key_draw, order = draw
        sampled = network.sample(key=key_draw)
        move = x[order] - x
        kernel, bias = sampled.kernels[0], sampled.biases[0]
        first = x @ kernel + bias[None]
        f = _rest(sampled, first)
        noise = target_noise(network, f)
        f = view(f)
        total = by_kind(f.var(0)) + by_kind(noise)

        def moved(group: Any) -> Float[Array, ""]:
            own, use = group
            # Only the inputs of the group change: so many products, not all of them.
            new = first + (move[:, own] * use[None]) @ kernel[own]
            away = ((view(_rest(sampled, new)) - f) ** 2).mean(0)
            return (0.5 * by_kind(away) / total).max()

        return lax.map(moved, (columns, used))

    return lax.map(one, (network.draw_keys(len(orders), key=key), orders))


def _shuffles(rows: int, draws: int, *, key: PRNGKeyArray) -> np.ndarray:
    """Random orders in which no row keeps its place: each follows another one."""
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
