"""An ensemble of several fits of the same rows, as one posterior.

    p(y | x) = 1/R sum_r p_r(y | x)                                                 (W1)

A variational posterior covers one mode; fits from other seeds cover other modes. The
ensemble is a set of draws, with equal shares of all fits. Node k is the k-th best node
of each fit. Every fit keeps as many nodes as are active in the fit that has most; its
other nodes are folded into those (C1). A fit with fewer nodes is padded with nodes of
zero weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.network import Network
from ..model.posterior import SampledPosterior
from .nodes import Nodes
from .sample.chains import best_nodes, node_counts, with_best_nodes
from .sample.target import Target, start_of


@dataclass(frozen=True)
class FitSummary:
    """One of several fits.

    Parameters
    ----------
    elbo : float
        In nats over the whole data set, as in `history_`.
    weight : float
        Share of the fit in the ensemble.
    widths : tuple of int
        Active nodes of each hidden layer; empty where MCMC samples all nodes.
    """

    elbo: float
    weight: float
    widths: tuple[int, ...]


def ensemble(
    fits: Sequence[tuple[Network, Nodes]],
    x: Float[Array, "rows d_in"],
    draws: int,
    *,
    key: PRNGKeyArray,
) -> SampledPosterior:
    """Draws of all fits, in equal shares (W1).

    Parameters
    ----------
    fits
        The network and the node scores of each fit.
    x
        Rows over which inactive nodes are folded into the others (C1).
    draws
        Total number of draws.
    """
    counts = node_counts(fits, least=1)
    parts = []
    for number, share in enumerate(equal_counts(len(fits), draws)):
        if share:
            network, nodes = fits[number]
            key_fold, key_draws = jr.split(jr.fold_in(key, number))
            small = with_best_nodes(network, nodes, counts, x, key=key_fold)
            part = sampled(small, share, key=key_draws)
            parts.append(part.take(_order(nodes, counts)))
    widest = tuple(np.max([part.widths for part in parts], axis=0).tolist())
    return SampledPosterior.concatenated([part.padded(widest) for part in parts])


def equal_counts(parts: int, draws: int) -> list[int]:
    """Whole numbers of draws, as equal as they can be, `draws` in all."""
    ends = np.round(np.cumsum(np.full(parts, 1 / parts)) * draws).astype(int)
    return np.diff(ends, prepend=0).tolist()


def draw_groups(fits: int, draws: int) -> np.ndarray:
    """For each draw of an ensemble, the number of the fit that it comes from."""
    return np.repeat(np.arange(fits), equal_counts(fits, draws))


def _order(nodes: Nodes, counts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Positions of the kept nodes of each layer, best first."""
    pairs = zip(nodes.scores, best_nodes(nodes, counts), strict=True)
    return tuple(np.argsort(-score[kept], kind="stable") for score, kept in pairs)


def sampled(network: Network, draws: int, *, key: PRNGKeyArray) -> SampledPosterior:
    """Draws of a variational posterior, with their scales."""
    key_weights, key_noise = jr.split(key)
    noise = network.likelihood.noise_draws(draws, key=key_noise)
    kernels, biases, scales = _draws(network, draws, key=key_weights)
    return SampledPosterior(
        kernels=kernels,
        biases=biases,
        scales=scales,
        noise=noise,
        likelihood=network.likelihood,
        activation=network.activation,
    )


@eqx.filter_jit
def _draws(
    network: Network, draws: int, *, key: PRNGKeyArray
) -> tuple[tuple[Array, ...], tuple[Array, ...], dict[str, dict[str, Array]]]:
    """For each draw its weights, scales multiplied in, its biases and its scales."""
    nothing = jnp.zeros((0, network.layers[0].weights.fan_in - 1))
    target = Target(network, nothing, nothing, jnp.zeros(0))

    def one(key_draw: PRNGKeyArray) -> tuple:
        point = start_of(network, key=key_draw)
        drawn = target.sampled(point)
        return drawn.kernels, drawn.biases, target.scales(point)

    return lax.map(one, jr.split(key, draws))
