"""Which nodes are on, and a smaller network that predicts the same.

For each posterior draw, the share of node k in the variation of what it feeds:

    s_k = max_j sd_rows(a_k) |w_kj| / sqrt(var_rows(u_j) + noise_j)                 (S1)

Here j runs over the outputs, whose noise is the target's own (for C classes that of the
centred Gumbel law behind the softmax, (1 - 1/C) pi^2 / 6), or over the nodes of the
next layer that are on, without noise. A node is on when the median of s_k over the
draws is over 1 %. Inputs and targets enter only through ratios: their units do not
matter. Where inputs have scales of their own (I2), a column of the table is told on
from off by what it says beyond the noise of its weights (I4).

What a node that is off still says is folded into the rest of its layer. Over the rows,
its mean activation is a constant plus a little of the kept nodes,
a_k = c + sum_i d_ki a_i; its weights go to the bias and to the kept nodes:

    mu_0j += c mu_kj,   mu_ij += d_ki mu_kj,
    sigma_0j^2 += E[a_k^2] sigma_kj^2 + Var[a_k] mu_kj^2                            (C1)

Where a_k is constant this is exact, in both parametrisations: all weights into node j,
its bias included, share one scale. Covariances of the weights go the same way (N5).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ..core.weights import Fold
from ..model.drawn import AnyNetwork, DrawKey, DrawnNetwork
from ..model.inputs import InputScales
from ..model.layers import Layer
from ..model.network import Network
from .freeze import is_normal
from .predict import by_chunks, mixture, noise_sds, probabilities

ON_SHARE = 0.01  # a node is on when its share (S1) is over this
MOVED = 0.01  # most that compaction may move a prediction, in predictive sds
NEARLY_ALL = 0.9
FOLD_ROWS = 1_000  # rows from which the fold of (C1) is worked out
RIDGE = 1e-4


@dataclass(frozen=True)
class Nodes:
    """What the posterior says of each node of each hidden layer.

    `shares` has one array of draws x nodes for each layer: the shares (S1). `columns`
    has those of the inputs (I4), draws x columns, where these have scales.
    """

    shares: tuple[np.ndarray, ...]
    columns: np.ndarray | None = None

    @property
    def scores(self) -> tuple[np.ndarray, ...]:
        """Median share of each node."""
        return tuple(np.median(s, axis=0) for s in self.shares)

    @property
    def on(self) -> tuple[np.ndarray, ...]:
        """Whether each node is on."""
        return tuple(score > ON_SHARE for score in self.scores)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes on in each layer."""
        return tuple(int(on.sum()) for on in self.on)

    @property
    def probability_on(self) -> tuple[np.ndarray, ...]:
        """Posterior probability that each node's share is over the threshold."""
        return tuple((s > ON_SHARE).mean(axis=0) for s in self.shares)

    @property
    def with_columns(self) -> "Nodes":
        """The same with the columns, if they have shares, as the first layer."""
        if self.columns is None:
            return self
        return Nodes((self.columns, *self.shares))

    def width_interval(self, level: float) -> tuple[tuple[int, int], ...]:
        """For each layer, the central interval of the number of nodes on."""
        tails = (0.5 - level / 2, 0.5 + level / 2)
        counts = [(s > ON_SHARE).sum(axis=1) for s in self.shares]
        pairs = [np.quantile(c, tails, method="inverted_cdf") for c in counts]
        return tuple((int(low), int(high)) for low, high in pairs)


def find_nodes(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> Nodes:
    """Shares (S1) of all nodes on the rows `x`, from the last layer back.

    Those of the columns (I4) come last, where inputs have scales.
    """
    shares: list[np.ndarray] = []
    next_on = jnp.ones(network.likelihood.d_out, bool)
    for index in reversed(range(len(network.widths))):
        share = np.asarray(_shares(network, x, index, next_on, draws, key=key))
        shares.insert(0, share)
        next_on = jnp.asarray(np.median(share, axis=0) > ON_SHARE)
    if not network.scales_inputs:
        return Nodes(tuple(shares))
    columns = np.asarray(column_shares(network, x, next_on, draws, key=key))
    return Nodes(tuple(shares), columns)


@eqx.filter_jit
def column_shares(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    on: Bool[Array, " nodes"],
    draws: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, "draws d_in"]:
    """Shares (I4) of the columns in the nodes that are on, for each draw."""
    expected = network.expected_kernel()

    def one(key_draw: DrawKey) -> Float[Array, " d_in"]:
        kernel = network.sample(key=key_draw).kernels[0]
        variance = jnp.maximum((x @ kernel).var(0), 1e-30)
        said = x.var(0)[:, None] * kernel * expected / variance[None]
        return jnp.where(on[None], said, 0).max(1)

    return lax.map(one, network.draw_keys(draws, key=key))


@eqx.filter_jit
def _shares(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    index: int,
    next_on: Bool[Array, " next_nodes"],
    draws: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, "draws nodes"]:
    """Shares (S1) of the nodes of one layer, for each draw."""
    last = index == len(network.widths) - 1

    def one(key_draw: DrawKey) -> Float[Array, " nodes"]:
        sampled = network.sample(key=key_draw)
        activation = sampled.hidden(x)[index]
        kernel = sampled.kernels[index + 1]
        noise = jnp.zeros(kernel.shape[1])
        if last:
            noise = target_noise(network, sampled(x))
            kernel = network.likelihood.seen(kernel)
        variance = (activation @ kernel).var(0) + noise
        reach = jnp.abs(kernel) / jnp.sqrt(jnp.maximum(variance, 1e-30))[None]
        reach = jnp.where(next_on[None], reach, 0)
        return activation.std(0) * reach.max(1)

    return lax.map(one, network.draw_keys(draws, key=key))


def target_noise(
    network: AnyNetwork, f: Float[Array, "rows d_out"]
) -> Float[Array, " d_out"]:
    """The variance that the target has by itself, in the units of each output."""
    return network.likelihood.output_noise(network.noise_variance(), f)


class Activations(eqx.Module):
    """Activations of one layer over rows and draws: what folding needs of them."""

    mean: Float[Array, "rows nodes"]  # over the draws
    square: Float[Array, " nodes"]  # mean of a_k^2 over rows and draws


@eqx.filter_jit
def activations(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> tuple[Activations, ...]:
    """First two moments of the activations of each hidden layer."""

    def add(sums: PyTree, key_draw: DrawKey) -> tuple[PyTree, None]:
        hidden = network.sample(key=key_draw).hidden(x)
        new = [(a / draws, (a**2).mean(0) / draws) for a in hidden]
        return jax.tree.map(jnp.add, sums, new), None

    zero = [(jnp.zeros((len(x), n)), jnp.zeros(n)) for n in network.widths]
    sums, _ = lax.scan(add, zero, network.draw_keys(draws, key=key))
    return tuple(Activations(*pair) for pair in sums)


def _silencer(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> Callable[[tuple[np.ndarray, ...]], AnyNetwork]:
    """What makes, of the nodes to keep, a network of the same shape without the others.

    Where inputs have scales, the columns to keep stand before the nodes. Draws are
    folded one by one, with constants alone.
    """
    if isinstance(network, DrawnNetwork):
        means = _mean_activations(network, x)
        if network.scales_inputs:
            means = (jnp.tile(x.mean(0), (network.draws, 1)), *means)
        return partial(_silence_draws, network, means)
    hidden = activations(network, x, draws, key=key)
    if network.inputs is None:
        return lambda keep: silence(network, keep, hidden)
    inputs = network.inputs
    return lambda keep: silence(
        _silence_columns(network, inputs, keep[0], x), keep[1:], hidden
    )


def _silence_columns(
    network: Network, inputs: InputScales, kept: np.ndarray, x: Float[Array, "rows _"]
) -> Network:
    """The same shape, with columns that are not kept folded into the others (C1)."""
    seen = x[:, inputs.columns]
    moments = Activations(
        inputs.moment(1)[None] * seen, inputs.moment(2) * (seen**2).mean(0)
    )
    layers = [*network.layers, network.output]
    layers[0] = _fold_inputs(layers[0], inputs.present(kept), moments)
    return with_layers(network, layers)


@eqx.filter_jit
def _mean_activations(
    network: DrawnNetwork, x: Float[Array, "rows d_in"]
) -> tuple[Float[Array, "draws _"], ...]:
    """Over the rows, for each draw and each hidden layer."""

    def one(number: Int[Array, ""]) -> tuple[Float[Array, " _"], ...]:
        return tuple(a.mean(0) for a in network.sample(key=number).hidden(x))

    return lax.map(one, jnp.arange(network.draws))


def _silence_draws(
    network: DrawnNetwork,
    means: tuple[Float[Array, "draws _"], ...],
    keep: tuple[np.ndarray, ...],
) -> DrawnNetwork:
    """Each node that is not kept is a constant in the bias after it (C1)."""
    kernels, biases = [*network.kernels], [*network.biases]
    first = len(kernels) - len(keep)
    for index, (mean, kept) in enumerate(zip(means, keep, strict=True), start=first):
        gone = jnp.where(jnp.asarray(kept), 0, mean)
        biases[index] = biases[index] + jnp.einsum("sk,skj->sj", gone, kernels[index])
        kernels[index] = jnp.where(jnp.asarray(kept)[None, :, None], kernels[index], 0)
    return eqx.tree_at(
        lambda n: (n.kernels, n.biases), network, (tuple(kernels), tuple(biases))
    )


def silence(
    network: Network,
    keep: tuple[np.ndarray, ...],
    hidden: tuple[Activations, ...],
) -> Network:
    """The same shape, with each node that is not kept folded into the others (C1)."""
    layers = (*network.layers, network.output)
    folded = [
        _fold_inputs(layer, kept, moments)
        for layer, kept, moments in zip(layers[1:], keep, hidden, strict=True)
    ]
    return with_layers(network, [layers[0], *folded])


def _fold_inputs(layer: Layer, kept: np.ndarray, moments: Activations) -> Layer:
    """The layer with the weights of the other inputs moved into those it keeps (C1)."""
    constant, slopes = (jnp.asarray(c, float) for c in _project(moments.mean, kept))
    gone, mean = jnp.asarray(~kept), moments.mean.mean(0)
    # The difference may round to less than 0 where a node is constant.
    spread = jnp.maximum(moments.square - mean**2, 0)
    mean, spread = (jnp.where(gone, value, 0) for value in (mean, spread))
    weights = layer.weights.folded(Fold(gone, constant, slopes, mean, spread))
    return eqx.tree_at(lambda layer: layer.weights, layer, weights)


def _project(mean: Array, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each other node as a constant plus a combination of the kept ones, over the rows.

    Returns the constant (nodes) and the slopes (kept x others, with zeros elsewhere).
    A little ridge keeps the slopes small where kept nodes are alike.
    """
    a = np.asarray(mean, float)
    centre = a.mean(0)
    a = a - centre
    inside, outside = a[:, kept], a[:, ~kept]
    gram = inside.T @ inside
    ridge = RIDGE * np.trace(gram) / max(1, len(gram)) + np.finfo(float).tiny
    found = np.linalg.solve(gram + ridge * np.eye(len(gram)), inside.T @ outside)
    slopes = np.zeros((len(kept), len(kept)))
    slopes[np.ix_(kept, ~kept)] = found
    constant = np.where(kept, 0, centre - centre @ slopes)
    return constant, slopes


def drop(
    network: Network, keep: tuple[np.ndarray, ...], columns: np.ndarray | None = None
) -> Network:
    """The network, or a tree of its form, without the nodes that are not kept.

    And without columns, if they are given, of a network whose inputs have scales.
    """
    return network.take(keep, columns)


def pick_draws(network: DrawnNetwork, keep: tuple[np.ndarray, ...]) -> DrawnNetwork:
    """The draws of these nodes of each hidden layer: a mask, or numbers in order."""
    kernels, biases = [*network.kernels], [*network.biases]
    scales = dict(network.scales)
    for index, kept in enumerate(keep):
        kernels[index], biases[index] = (
            kernels[index][..., kept],
            biases[index][:, kept],
        )
        kernels[index + 1] = kernels[index + 1][:, kept]
        for name, values in scales.items():
            if name.startswith(f"layer_{index + 1}_") and values.ndim > 1:
                scales[name] = values[:, kept]
    new = (tuple(kernels), tuple(biases), scales)
    return eqx.tree_at(lambda n: (n.kernels, n.biases, n.scales), network, new)


def with_layers(network: Network, layers: list[Layer]) -> Network:
    """The network with other layers, the output last."""
    return network.with_layers(layers)


@dataclass(frozen=True)
class Compaction:
    """A smaller network and what it cost.

    Parameters
    ----------
    moved
        Root mean square move of the predictive means on the training inputs, in
        predictive standard deviations.
    log_density_change
        Mean change of the log density of a training row, in nats.
    """

    network: AnyNetwork
    keep: tuple[np.ndarray, ...]  # for each hidden layer, which nodes
    moved: float
    log_density_change: float
    columns: np.ndarray | None = None  # which columns, where inputs have scales

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
    network: AnyNetwork,
    nodes: Nodes,
    x: np.ndarray,
    y: np.ndarray,
    draws: int,
    *,
    key: PRNGKeyArray,
) -> Compaction:
    """The smallest of a row of networks whose predictions on `x` did not move.

    The first try keeps the nodes that are on. While the predictive means move by more
    than 1 % of their standard deviation, the best 1, 2, 4, 7, ... others are kept too.
    Where inputs have scales, columns are left out after that by the same rule. Where
    the posterior ties the nodes of a layer to each other, all of them are kept.
    """
    if isinstance(network, Network) and not is_normal(network):
        everything = tuple(np.ones(width, bool) for width in network.widths)
        columns = None if nodes.columns is None else np.ones(x.shape[1], bool)
        return Compaction(network, everything, 0.0, 0.0, columns)
    few = jnp.asarray(x[:: -(-len(x) // FOLD_ROWS)], float)
    quiet = _silencer(network, few, draws, key=key)
    check = partial(check_values, x=x, y=y, draws=draws, key=key)
    whole = check(network)
    small, keep, cost = _first_good(quiet, check, whole, _with_all_columns(nodes))
    columns = None
    if nodes.columns is not None:
        varies = np.ptp(x, axis=0) > 0  # what is constant folds away exactly
        some = _candidates(Nodes((nodes.columns,)))
        tries = [(kept & varies, *keep[1:]) for (kept,) in some] + [keep]
        small, (columns, *rest), cost = _first_good(quiet, check, whole, iter(tries))
        keep = tuple(rest)
    if isinstance(small, DrawnNetwork):
        return Compaction(pick_draws(small, keep), keep, *cost, columns)
    return Compaction(drop(small, keep, columns), keep, *cost, columns)


def _first_good(
    quiet: Callable[[tuple[np.ndarray, ...]], AnyNetwork],
    check: Callable[[AnyNetwork], tuple[np.ndarray, np.ndarray, np.ndarray]],
    whole: tuple[np.ndarray, np.ndarray, np.ndarray],
    tries: Iterator[tuple[np.ndarray, ...]],
) -> tuple[AnyNetwork, tuple[np.ndarray, ...], tuple[float, float]]:
    """The first of the tries that moves no prediction, what it keeps, and its cost."""
    mean, sd, density = whole
    for keep in tries:
        small = quiet(keep)
        new_mean, _, new_density = check(small)
        moves = np.linalg.norm(new_mean - mean, axis=1) / sd
        moved = float(np.sqrt(np.mean(moves**2)))
        if moved <= MOVED or all(kept.all() for kept in keep):
            return small, keep, (moved, float((new_density - density).mean()))
    raise AssertionError("the last candidate keeps all nodes")


def _with_all_columns(nodes: Nodes) -> Iterator[tuple[np.ndarray, ...]]:
    """Nodes to keep; before them all columns, where these may leave later."""
    columns = () if nodes.columns is None else (np.ones(nodes.columns.shape[1], bool),)
    return ((*columns, *keep) for keep in _candidates(nodes))


def _candidates(nodes: Nodes) -> Iterator[tuple[np.ndarray, ...]]:
    """Nodes to keep: those that are on, then more and more others, at last all."""
    scores = nodes.scores
    keep = [on.copy() for on in nodes.on]
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


def check_values(
    network: AnyNetwork, x: np.ndarray, y: np.ndarray, draws: int, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What must not move, predictive standard deviation over targets, log density."""
    if network.likelihood.targets:
        noise_sd = noise_sds(network, draws, key=key)
        return by_chunks(_regression_check, network, (x, y), noise_sd, key=key)
    p = by_chunks(probabilities, network, (x,), draws, key=key)
    tiny = np.finfo(p.dtype).tiny
    density = np.log(np.maximum(p[np.arange(len(y)), y], tiny))
    return p, np.sqrt(np.maximum((p * (1 - p)).sum(1), tiny)), density


def _regression_check(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "rows _"], Float[Array, " rows"], Float[Array, " rows"]]:
    mix = mixture(network, x, noise_sd, key=key)
    noise = mix.noise_variance()
    variance = noise + mix.weights_variance()
    values = jnp.concatenate([mix.mean(), jnp.sqrt(noise)], 1)
    return values, jnp.sqrt(variance.sum(1)), mix.log_density(y)
