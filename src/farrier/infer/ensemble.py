"""Several fits of the same rows, mixed into one posterior.

    p(y | x) = sum_r w_r p_r(y | x),   w_r >= 0,   sum_r w_r = 1                    (W1)

A variational posterior sits on one mode; fits from other seeds sit on others. Their
mixture is a set of draws, as sampling leaves behind: each fit has draws in proportion
to its weight. Node k is the k-th best node of each fit. All keep as many as the fit
that needs most, the others are folded into those (C1); a fit that has fewer gets dead
nodes, whose weights are zero. Fits may differ in their noise: draws with equal noise
are draws with noise by the row where its output is zero (W3).

Weights are equal, or those that make the rows of the fit most likely (stacking):

    w = argmax sum_i weight_i ln sum_r w_r p_r(y_i | x_i)                           (W2)

Chains under two noise models are weighed by rows that are left out of their draws:

    p_r(y_i | x_i) = sum_s r_is p(y_i | x_i, theta_s) / sum_s r_is                  (W4)

with the r_is of (P3), and their means m_r in the same way. Half of the weight is theirs
by the number c_r of their chains, half is where density and mean are good together:

    w = c / 2 + v / 2,   v = argmax sum_i weight_i ln sum_r v_r p_r(y_i | x_i)
                             - 1/2 sum_t ln sum_i weight_i (y_it - sum_r v_r m_rit)^2

with weights that sum to 1 here.                                                    (W5)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy import optimize

from ..model.drawn import DrawnNetwork
from ..model.network import Network
from ..train.data import Data
from .compact import Nodes, check_values, pick_draws
from .predict import by_chunks, left_out_scores, noise_sds
from .sample.chains import (
    Fit,
    Weigh,
    allotted,
    best_nodes,
    by_chains,
    candidates,
    counts_of,
    multiplied,
    start_of,
)

STACKING_ROWS = 10_000
SWEEPS = 1_000  # of the ascent to (W2)
TINY = 1e-300  # what is less is no longer told from 0


@dataclass(frozen=True)
class Restart:
    """One of several fits.

    Parameters
    ----------
    bound
        In nats over the whole data set, as in `history_`.
    weight
        Share of the fit in the mixture.
    widths
        Nodes on in each hidden layer. None are counted where chains sample all.
    likelihood
        Name of its noise model.
    """

    bound: float
    weight: float
    widths: tuple[int, ...]
    likelihood: str = ""  # older files do not tell


def equal_weights(
    networks: Sequence[Network], data: Data, draws: int, *, key: PRNGKeyArray
) -> Float[np.ndarray, " fits"]:
    """The same for all."""
    del data, draws, key
    return np.full(len(networks), 1 / len(networks))


def stacked_weights(
    networks: Sequence[Network], data: Data, draws: int, *, key: PRNGKeyArray
) -> Float[np.ndarray, " fits"]:
    """Those under which rows of the fit are most likely (W2)."""
    x, y, weight = _some_rows(data)
    density = [check_values(n, x, y, draws, key=key)[2] for n in networks]
    return stacking(np.asarray(density, float), weight)


def _some_rows(data: Data) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets and weights of rows that stand for all."""
    rows = slice(0, int(data.rows), -(-int(data.rows) // STACKING_ROWS))
    x, y, weight = (np.asarray(v[rows]) for v in (data.x, data.y, data.weight))
    return x, y, weight.astype(float)


def stacked_kinds(
    parts: Sequence[DrawnNetwork],
    chains: Int[np.ndarray, " kinds"],
    data: Data,
    *,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " kinds"]:
    """Half by the chains, half by rows that are left out of them (W4, W5)."""
    even = by_chains(parts, chains, data, key=key)
    if len(parts) == 1:  # and classes have one noise model
        return even
    x, y, weight = _some_rows(data)
    scores = [
        by_chunks(left_out_scores, part, (x, y), part.noise_sd, key=key)
        for part in DrawnNetwork.alike(parts)  # one program for all
    ]
    density, mean = (np.asarray(part, float) for part in zip(*scores, strict=True))
    return 0.5 * even + 0.5 * best_shares(density, mean, y.astype(float), weight)


def best_shares(
    log_density: Float[np.ndarray, "kinds rows"],
    mean: Float[np.ndarray, "kinds rows targets"],
    y: Float[np.ndarray, "rows targets"],
    weight: Float[np.ndarray, " rows"],
) -> Float[np.ndarray, " kinds"]:
    """Those with the best log density - ln RMSE of a mixture (W5).

    From equal shares, and from each kind alone: there may be more than one hill.
    """
    share = weight / weight.sum()
    highest = log_density.max(axis=0)
    density = np.exp(log_density - highest)

    def score(v: Float[np.ndarray, " kinds"]) -> float:
        error = y - np.einsum("k,krt->rt", v, mean)
        ln_density = np.log(np.maximum(v @ density, TINY)) + highest
        square = np.maximum(share @ error**2, TINY)
        return float(share @ ln_density - 0.5 * np.log(square).sum())

    kinds = len(mean)
    found = [
        optimize.minimize(
            lambda v: -score(v),
            start,
            method="SLSQP",
            bounds=[(0, 1)] * kinds,
            constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        ).x
        for start in (np.full(kinds, 1 / kinds), *np.eye(kinds))
    ]
    best = np.clip(max(found, key=score), 0, None)
    return best / best.sum()


class Weights(NamedTuple):
    """How parts of a mixture are weighed: fits, or chains under two noise models."""

    of_fits: Callable[..., Float[np.ndarray, " fits"]]
    of_kinds: Weigh


WEIGHTS: dict[str, Weights] = {
    "equal": Weights(equal_weights, by_chains),
    "stacked": Weights(stacked_weights, stacked_kinds),
}


@dataclass(frozen=True, kw_only=True)
class Restarts:
    """Independent fits from seeds of their own, mixed into one posterior.

    Parameters
    ----------
    count
        How many.
    weights
        "equal", or "stacked": those under which the rows of the fit are most likely.
        Chains (`refine`) that begin at the fits have equal weights too; or their noise
        models have weights that lean to the one that tells more of rows left out.
    """

    count: int = 5
    weights: str = "equal"

    def __post_init__(self) -> None:
        if not isinstance(self.count, Integral) or self.count < 1:
            raise ValueError(
                f"`count` must be a whole number from 1, got {self.count!r}."
            )
        if self.weights not in WEIGHTS:
            raise ValueError(
                f"`weights` must be one of {[*WEIGHTS]}, got {self.weights!r}."
            )


def stacking(
    log_density: Float[np.ndarray, "fits rows"], weight: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " fits"]:
    """Weights of the best mixture of given densities (W2), by EM.

    Each sweep gives a fit its mean share in the densities of the rows. The problem is
    concave and no sweep goes down.
    """
    density = np.exp(log_density - log_density.max(axis=0))
    share = weight / weight.sum()
    w = np.full(len(density), 1 / len(density))
    for _ in range(SWEEPS):
        w = w * (density / (w @ density) @ share)
    return w / w.sum()


def mixed(
    fits: Sequence[Fit],
    weights: Float[np.ndarray, " fits"],
    x: Float[Array, "rows d_in"],
    draws: int,
    *,
    key: PRNGKeyArray,
) -> DrawnNetwork:
    """Draws of all fits, in proportion to their weights (W1).

    Parameters
    ----------
    x
        Rows over which nodes are folded into others.
    """
    counts = counts_of(fits, least=1)
    parts = []
    for number, share in enumerate(allotted(weights, draws)):
        if share:
            key_fold, key_draws = jr.split(jr.fold_in(key, number))
            small = candidates(*fits[number], counts, x, key=key_fold)
            part = drawn(small, share, key=key_draws)
            parts.append(pick_draws(part, _order(fits[number][1], counts)))
    widest = tuple(np.max([part.widths for part in parts], axis=0).tolist())
    return DrawnNetwork.joined([_widened(part, widest) for part in parts])


def _order(nodes: Nodes, counts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Places of the kept nodes of each layer, best first."""
    pairs = zip(nodes.scores, best_nodes(nodes, counts), strict=True)
    return tuple(np.argsort(-score[kept], kind="stable") for score, kept in pairs)


def drawn(network: Network, draws: int, *, key: PRNGKeyArray) -> DrawnNetwork:
    """So many draws of a variational posterior."""
    key_weights, key_noise = jr.split(key)
    noise_sd = jnp.zeros((draws, 0))
    if network.likelihood.targets:
        noise_sd = noise_sds(network, draws, key=key_noise)
    kernels, biases, scales = _draws(network, draws, key=key_weights)
    return DrawnNetwork(
        kernels, biases, scales, noise_sd, network.likelihood, network.activation
    )


@eqx.filter_jit
def _draws(
    network: Network, draws: int, *, key: PRNGKeyArray
) -> tuple[tuple[Array, ...], tuple[Array, ...], dict[str, Array]]:
    """For each draw its weights, scales multiplied in, its biases and its scales."""
    layers = network.named_layers()

    def one(key_draw: PRNGKeyArray) -> tuple:
        points = dict(zip(layers, start_of(network, key=key_draw), strict=True))
        weights = [multiplied(layer, points[n]) for n, layer in layers.items()]
        log_scales = {name: point.log_scales for name, point in points.items()}
        log_scales["inputs"] = points["layer_1"].log_inputs
        scales = {
            f"{name}_{scale}": jnp.exp(value)
            for name, of in log_scales.items()
            for scale, value in of.items()
        }
        return tuple(k.T for k, _ in weights), tuple(b for _, b in weights), scales

    return lax.map(one, jr.split(key, draws))


def _widened(network: DrawnNetwork, widths: tuple[int, ...]) -> DrawnNetwork:
    """The draws with dead nodes after those that they have."""
    kernels, biases = [*network.kernels], [*network.biases]
    scales = dict(network.scales)
    for index, (now, then) in enumerate(zip(network.widths, widths, strict=True)):
        more = (0, then - now)
        kernels[index] = jnp.pad(kernels[index], ((0, 0), (0, 0), more))
        biases[index] = jnp.pad(biases[index], ((0, 0), more))
        kernels[index + 1] = jnp.pad(kernels[index + 1], ((0, 0), more, (0, 0)))
        for name, values in scales.items():
            if name.startswith(f"layer_{index + 1}_") and values.ndim > 1:
                scales[name] = jnp.pad(values, ((0, 0), more))
    new = (tuple(kernels), tuple(biases), scales)
    return eqx.tree_at(lambda n: (n.kernels, n.biases, n.scales), network, new)
