"""A smaller posterior that predicts the same.

What an inactive node still contributes is folded into the rest of its layer. Over the
rows, its mean activation is a constant plus a little of the kept nodes,
a_k = c + sum_i d_ki a_i; its weights go to the bias and to the kept nodes:

    mu_0j += c mu_kj,   mu_ij += d_ki mu_kj,
    sigma_0j^2 += E[a_k^2] sigma_kj^2 + Var[a_k] mu_kj^2                            (C1)

Where a_k is constant this is exact, in both parametrisations: all weights into node j,
its bias included, share one scale. Stored draws are folded one by one, with constants
alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ..core.weights import Fold
from ..model.inputs import InputScales
from ..model.layers import Layer
from ..model.network import Network
from ..model.posterior import AbstractPosterior, Masks, SampledPosterior
from .nodes import Nodes
from .predict import summarise

MAX_MOVE = 0.01  # largest move of predictions by compaction, in predictive sds
FOLD_ROWS = 1_000  # rows from which the fold of (C1) is computed
RIDGE = 1e-4

Check = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Compaction:
    """A smaller posterior and what it cost.

    Parameters
    ----------
    posterior : AbstractPosterior
        The posterior with the kept nodes alone.
    keep : tuple of ndarray of bool
        Which nodes of each hidden layer are kept.
    moved : float
        Root mean square move of the predictive means on the training inputs, in
        predictive standard deviations.
    log_density_change : float
        Mean change of the log density of the training rows.
    columns : ndarray of bool or None
        Which columns are kept, where columns have scales.
    """

    posterior: AbstractPosterior
    keep: Masks
    moved: float
    log_density_change: float
    columns: np.ndarray | None = None

    def __str__(self) -> str:
        """One sentence: what was kept, and the cost."""
        kept = ", ".join(f"{keep.sum()} of {len(keep)}" for keep in self.keep)
        if self.columns is not None:
            columns = f"{self.columns.sum()} of {len(self.columns)} columns"
            kept = f"{columns} and {kept}"
        return (
            f"{kept} nodes kept, predictive means moved by {100 * self.moved:.2g} % of "
            f"their standard deviation, log density changed by "
            f"{self.log_density_change:+.2g} a point"
        )


def compact(
    posterior: AbstractPosterior, nodes: Nodes, x: np.ndarray, y: np.ndarray
) -> Compaction:
    """The smallest of several candidates whose predictions on `x` did not move.

    The first candidate keeps the active nodes. While the predictive means move by more
    than 1 % of their standard deviation, the best 1, 2, 4, 7, ... other nodes are kept
    too. Where inputs have scales, columns are then removed by the same rule. A
    posterior that correlates the nodes of a layer keeps all of them.
    """
    if not posterior.can_fold:
        everything = tuple(np.ones(width, bool) for width in posterior.widths)
        columns = None if nodes.columns is None else np.ones(x.shape[1], bool)
        return Compaction(posterior, everything, 0.0, 0.0, columns)
    few = jnp.asarray(x[:: -(-len(x) // FOLD_ROWS)], float)
    silence = _silencer(posterior, few)
    check = lambda of: summarise("check_values", of, x, y)
    whole = check(posterior)
    all_columns = () if nodes.columns is None else (np.ones(x.shape[1], bool),)
    tries = ((*all_columns, *keep) for keep in _candidates(nodes))
    small, keep, cost = _first_unmoved(silence, check, whole, tries)
    columns = None
    if (of_columns := nodes.of_columns) is not None:
        varies = np.ptp(x, axis=0) > 0  # a constant column is folded exactly
        fewer = [(kept & varies, *keep[1:]) for (kept,) in _candidates(of_columns)]
        tries = iter([*fewer, keep])
        small, (columns, *rest), cost = _first_unmoved(silence, check, whole, tries)
        keep = tuple(rest)
    return Compaction(small.take(keep, columns), keep, *cost, columns)


class Activations(eqx.Module):
    """Moments of the activations of one layer over rows and draws, for folding."""

    mean: Float[Array, "rows nodes"]  # over the draws
    square: Float[Array, " nodes"]  # mean of a_k^2 over rows and draws


@eqx.filter_jit
def activations(
    posterior: AbstractPosterior, x: Float[Array, "rows d_in"]
) -> tuple[Activations, ...]:
    """First two moments of the activations of each hidden layer, for (C1)."""
    draws = posterior.draws

    def add(sums: PyTree, number: Int[Array, ""]) -> tuple[PyTree, None]:
        hidden = posterior.sample(number).hidden(x)
        new = [(a / draws, (a**2).mean(0) / draws) for a in hidden]
        return jax.tree.map(jnp.add, sums, new), None

    zero = [(jnp.zeros((len(x), n)), jnp.zeros(n)) for n in posterior.widths]
    sums, _ = lax.scan(add, zero, jnp.arange(draws))
    return tuple(Activations(*pair) for pair in sums)


def _silencer(
    posterior: AbstractPosterior, x: Float[Array, "rows d_in"]
) -> Callable[[Masks], AbstractPosterior]:
    """A function of the masks to keep: the posterior with the other nodes folded.

    Its networks keep their shape. Where inputs have scales, a mask of the columns
    stands before those of the nodes.
    """
    if isinstance(posterior, SampledPosterior):
        means = _mean_activations(posterior, x)
        if posterior.scales_columns:
            means = (jnp.tile(x.mean(0), (posterior.draws, 1)), *means)
        return lambda keep: posterior.silenced(keep, means)
    network, hidden = posterior.variational, activations(posterior, x)
    assert network is not None

    def silenced(keep: Masks) -> AbstractPosterior:
        start = network
        if network.inputs is not None:
            start = _silence_columns(network, network.inputs, keep[0], x)
            keep = keep[1:]
        return replace(posterior, network=silence(start, keep, hidden))

    return silenced


@eqx.filter_jit
def _mean_activations(
    posterior: SampledPosterior, x: Float[Array, "rows d_in"]
) -> tuple[Float[Array, "draws _"], ...]:
    """Over the rows, for each draw and each hidden layer."""
    return posterior.map(
        lambda number: tuple(a.mean(0) for a in posterior.sample(number).hidden(x))
    )


def _silence_columns(
    network: Network, inputs: InputScales, kept: np.ndarray, x: Float[Array, "rows _"]
) -> Network:
    """The same shape, with columns that are not kept folded into the others (C1)."""
    used = x[:, inputs.columns]
    moments = Activations(
        inputs.moment(1)[None] * used, inputs.moment(2) * (used**2).mean(0)
    )
    layers = [*network.layers, network.output]
    layers[0] = _fold_inputs(layers[0], inputs.present(kept), moments)
    return network.with_layers(layers)


def silence(network: Network, keep: Masks, hidden: tuple[Activations, ...]) -> Network:
    """The same shape, with nodes that are not kept folded into the others (C1)."""
    layers = (*network.layers, network.output)
    folded = [
        _fold_inputs(layer, kept, moments)
        for layer, kept, moments in zip(layers[1:], keep, hidden, strict=True)
    ]
    return network.with_layers([layers[0], *folded])


def _fold_inputs(layer: Layer, kept: np.ndarray, moments: Activations) -> Layer:
    """The layer with the weights of the other inputs moved into those it keeps (C1)."""
    constant, slopes = (jnp.asarray(c, float) for c in _project(moments.mean, kept))
    gone, mean = jnp.asarray(~kept), moments.mean.mean(0)
    # The difference may round to less than 0 where a node is constant.
    variance = jnp.maximum(moments.square - mean**2, 0)
    mean, variance = (jnp.where(gone, value, 0) for value in (mean, variance))
    folded = layer.weights.folded(Fold(gone, constant, slopes, mean, variance))
    return eqx.tree_at(lambda layer: layer.weights, layer, folded)


def _project(mean: Array, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each other node as a constant plus a combination of the kept ones, over the rows.

    Returns the constant (nodes) and the slopes (kept x others, with zeros elsewhere).
    A small ridge keeps the slopes small where kept nodes are nearly equal.
    """
    a = np.asarray(mean, float)
    centre = a.mean(0)
    a = a - centre
    inside, outside = a[:, kept], a[:, ~kept]
    gram = inside.T @ inside
    ridge = RIDGE * np.trace(gram) / max(1, len(gram)) + np.finfo(float).tiny
    solution = np.linalg.solve(gram + ridge * np.eye(len(gram)), inside.T @ outside)
    slopes = np.zeros((len(kept), len(kept)))
    slopes[np.ix_(kept, ~kept)] = solution
    constant = np.where(kept, 0, centre - centre @ slopes)
    return constant, slopes


def _first_unmoved(
    silence: Callable[[Masks], AbstractPosterior],
    check: Callable[[AbstractPosterior], Check],
    whole: Check,
    tries: Iterator[Masks],
) -> tuple[AbstractPosterior, Masks, tuple[float, float]]:
    """The first candidate that moves no prediction, what it keeps, and its cost."""
    mean, sd, density = whole
    for keep in tries:
        small = silence(keep)
        new_mean, _, new_density = check(small)
        moves = np.linalg.norm(new_mean - mean, axis=1) / sd
        moved = float(np.sqrt(np.mean(moves**2)))
        if moved <= MAX_MOVE or all(kept.all() for kept in keep):
            return small, keep, (moved, float((new_density - density).mean()))
    raise AssertionError("the last candidate keeps all nodes")


def _candidates(nodes: Nodes) -> Iterator[Masks]:
    """Nodes to keep: the active ones, then more and more, and finally all."""
    scores = nodes.scores
    keep = [active.copy() for active in nodes.active]
    for kept, score in zip(keep, scores, strict=True):
        kept[score.argmax()] = True  # a layer keeps at least its best node
    others = [(s[i], layer, i) for layer, s in enumerate(scores) for i in range(len(s))]
    others = [other for other in others if not keep[other[1]][other[2]]]
    others.sort(key=lambda other: -other[0])
    yield tuple(kept.copy() for kept in keep)
    extra, done = 1, 0
    while done < len(others):
        for _, layer, i in others[done:extra]:
            keep[layer][i] = True
        yield tuple(kept.copy() for kept in keep)
        done, extra = extra, 3 * extra // 2 + 1
