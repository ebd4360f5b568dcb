"""Which nodes are active, and which columns.

For each posterior draw, the share of node k in the variation of what it feeds:

    s_k = max_j sd_rows(a_k) |w_kj| / sqrt(var_rows(u_j) + noise_j)                 (S1)

Here j runs over the outputs, whose noise is the target's own (for C classes that of the
centred Gumbel variables behind the softmax, (1 - 1/C) pi^2 / 6), or over the active
nodes of the next layer, without noise. A node is active when the median of s_k over the
draws is over 1 %. Inputs and targets enter only through ratios: their units do not
matter. Where inputs have scales of their own (I2), a column of the table is judged by
its contribution beyond the noise of its weights (I4).
"""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..model.posterior import AbstractPosterior

ACTIVE_SHARE = 0.01  # a node is active when its share (S1) is over this


@dataclass(frozen=True)
class Nodes:
    """What the posterior says about each node of each hidden layer.

    Parameters
    ----------
    shares : tuple of ndarray of shape (n_draws, n_nodes)
        One array for each hidden layer: the shares (S1).
    columns : ndarray of shape (n_draws, n_columns) or None
        Shares of the columns (I4), where these have scales.
    """

    shares: tuple[np.ndarray, ...]
    columns: np.ndarray | None = None

    @property
    def scores(self) -> tuple[np.ndarray, ...]:
        """Median share of each node."""
        return tuple(np.median(s, axis=0) for s in self.shares)

    @property
    def active(self) -> tuple[np.ndarray, ...]:
        """Whether each node is active."""
        return tuple(score > ACTIVE_SHARE for score in self.scores)

    @property
    def widths(self) -> tuple[int, ...]:
        """Active nodes of each layer."""
        return tuple(int(active.sum()) for active in self.active)

    @property
    def probabilities(self) -> tuple[np.ndarray, ...]:
        """Posterior probability that each node's share is over the threshold."""
        return tuple((s > ACTIVE_SHARE).mean(axis=0) for s in self.shares)

    @property
    def of_columns(self) -> "Nodes | None":
        """The same for the columns, as if they were one layer."""
        return None if self.columns is None else Nodes((self.columns,))

    def take(self, keep: tuple[np.ndarray, ...]) -> "Nodes":
        """What is known about the kept nodes."""
        kept = tuple(s[:, k] for s, k in zip(self.shares, keep, strict=True))
        return Nodes(kept, self.columns)

    def width_interval(self, level: float) -> tuple[tuple[int, int], ...]:
        """For each layer, the central interval of the number of active nodes."""
        tails = (0.5 - level / 2, 0.5 + level / 2)
        counts = [(s > ACTIVE_SHARE).sum(axis=1) for s in self.shares]
        pairs = [np.quantile(c, tails, method="inverted_cdf") for c in counts]
        return tuple((int(low), int(high)) for low, high in pairs)


def find_nodes(posterior: AbstractPosterior, x: Float[Array, "rows d_in"]) -> Nodes:
    """Shares (S1) of all nodes on some rows, from the last layer back; then (I4)."""
    shares: list[np.ndarray] = []
    next_active = jnp.ones(posterior.likelihood.d_out, bool)
    for index in reversed(range(len(posterior.widths))):
        share = np.asarray(_shares(posterior, x, index, next_active))
        shares.insert(0, share)
        next_active = jnp.asarray(np.median(share, axis=0) > ACTIVE_SHARE)
    if not posterior.scales_columns:
        return Nodes(tuple(shares))
    return Nodes(tuple(shares), np.asarray(_column_shares(posterior, x, next_active)))


@eqx.filter_jit
def _column_shares(
    posterior: AbstractPosterior,
    x: Float[Array, "rows d_in"],
    active: Bool[Array, " nodes"],
) -> Float[Array, "draws d_in"]:
    """Shares (I4) of the columns in the active nodes, for each draw."""
    expected = posterior.expected_kernel()

    def one(number: Int[Array, ""]) -> Float[Array, " d_in"]:
        kernel = posterior.sample(number).kernels[0]
        variance = jnp.maximum((x @ kernel).var(0), 1e-30)
        share = x.var(0)[:, None] * kernel * expected / variance[None]
        return jnp.where(active[None], share, 0).max(1)

    return posterior.map(one)


@eqx.filter_jit
def _shares(
    posterior: AbstractPosterior,
    x: Float[Array, "rows d_in"],
    index: int,
    next_active: Bool[Array, " next_nodes"],
) -> Float[Array, "draws nodes"]:
    """Shares (S1) of the nodes of one layer, for each draw."""
    last = index == len(posterior.widths) - 1
    likelihood = posterior.likelihood

    def one(number: Int[Array, ""]) -> Float[Array, " nodes"]:
        sampled = posterior.sample(number)
        activation = sampled.hidden(x)[index]
        kernel = sampled.kernels[index + 1]
        noise = jnp.zeros(kernel.shape[1])
        if last:
            noise = likelihood.residual_variance(posterior.mean_noise(), sampled(x))
            kernel = likelihood.identified(kernel)
        variance = (activation @ kernel).var(0) + noise
        reach = jnp.abs(kernel) / jnp.sqrt(jnp.maximum(variance, 1e-30))[None]
        reach = jnp.where(next_active[None], reach, 0)
        return activation.std(0) * reach.max(1)

    return posterior.map(one)
