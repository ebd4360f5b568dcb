"""Compaction while training: nodes that stay inactive are removed.

Between two chunks of steps, on a few rows with a new draw for each row, node k has by
its expected weights the share

    c_kj = var_rows(a_k) E[w_kj]^2 / (var_rows(u_j) + noise_j)                      (S2)

of the variance of what it feeds, with j as in (S1). Its other contributions are noise.
The nodes with the smallest shares are removed, as many as have together at most 1 % of
the variance of each j. Their mean goes into the bias, their part of the optimiser's
state is dropped, and further training makes up for the little that they contributed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..core.random import fold_in
from ..model.layers import Layer
from ..model.network import ACTIVATIONS, Network
from .data import round_up
from .history import Removal
from .loop import Job, Run
from .step import TrainState, converted

ROWS = 512  # from which shares are computed
PRODUCTS = 6  # of matrices, for each layer in a step: mean, variance, their gradients


@dataclass(frozen=True)
class Shrinking:
    """When nodes are removed from a run; called between chunks of its steps.

    Parameters
    ----------
    together
        Largest part of a variance that the removed nodes may have had.
    begin
        Share of the budget before which no node is removed.
    min_saving
        Multiplications that must be saved: a few times the cost of compiling a
        smaller step.
    rounded
        Rounds the number of nodes that stay, so that few shapes are compiled.
    """

    together: float = 0.01
    begin: float = 0.1
    min_saving: float = 2e12
    rounded: Callable[[int], int] = round_up

    def __call__(self, job: Job, run: Run) -> Run:
        """The run without inactive nodes, if that saves enough."""
        if int(run.state.step) < self.begin * job.config.steps:
            return run
        network = run.state.network
        keep, means = self.kept(job, run)
        if _saved(job, run, np.array([k.sum() for k in keep])) < self.min_saving:
            return run
        folded = replace(run.state, network=_with_means(network, keep, means))
        removed = (*run.history.removed, *_gone(run, keep))
        history = replace(run.history, removed=removed)
        return Run(without(folded, keep), run.schedule, history)

    def kept(self, job: Job, run: Run) -> tuple[tuple[np.ndarray, ...], list[Array]]:
        """Which nodes of each hidden layer stay (S2), and mean activations of all.

        Their number is rounded up.
        """
        key = fold_in(fold_in(job.key, 2**32 - 2), run.state.step)
        x = job.data.sample_inputs(ROWS)
        means, shares = mean_activations_and_shares(run.state.network, x, key=key)
        return self.kept_by([np.asarray(share) for share in shares]), means

    def could_pay(self, job: Job) -> bool:
        """Whether enough would be saved if all hidden nodes were removed at once."""
        none = np.zeros(len(job.run.state.network.widths), int)
        return _saved(job, job.run, none) > self.min_saving

    def kept_by(self, shares: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Which nodes stay, from the last layer back; their number is rounded up."""
        keep: list[np.ndarray] = []
        next_kept = np.ones(shares[-1].shape[1], bool)
        for share in reversed(shares):
            share = share[:, next_kept]
            order = np.argsort(share.max(1), kind="stable")
            together = np.cumsum(share[order], axis=0).max(1)
            count = self.rounded(max(1, int((together > self.together).sum())))
            next_kept = np.zeros(len(share), bool)
            next_kept[order[-count:]] = True
            keep.insert(0, next_kept)
        return tuple(keep)


def can_shrink(job: Job) -> bool:
    """Whether single nodes can be folded into the rest of their layers."""
    network = job.run.state.network
    return network.can_fold and job.run.state.average is None


def without(state: TrainState, keep: tuple[np.ndarray, ...]) -> TrainState:
    """The state of a run and of its optimiser, with the kept nodes alone."""
    is_network = lambda tree: isinstance(tree, Network)
    smaller = lambda tree: tree.take(keep) if is_network(tree) else tree
    # By NumPy: on the device each new shape would be compiled.
    host = converted(state, np.asarray)
    host = jax.tree.map(smaller, host, is_leaf=is_network)
    return converted(host, jnp.asarray)


@eqx.filter_jit
def mean_activations_and_shares(
    network: Network, x: Float[Array, "rows d_in"], *, key: PRNGKeyArray
) -> tuple[list[Float[Array, " nodes"]], list[Float[Array, "nodes next_nodes"]]]:
    """Mean activations of each hidden layer, and the shares (S2) of its nodes."""
    likelihood = network.likelihood
    conditionals = network.conditionals(x, jnp.arange(len(x)), key=key)
    hidden = [
        ACTIVATIONS[network.activation](each.draw()) for each in conditionals[:-1]
    ]
    variances = [each.draw().var(1) for each in conditionals[1:]]
    variances[-1] = variances[-1] + likelihood.residual_variance(
        likelihood.mean_noise(), conditionals[-1].draw().T
    )
    layers = (*network.layers[1:], network.output)
    tiny = jnp.finfo(float).tiny
    shares = [
        a.var(1)[:, None] * layer.expected_weights().T ** 2 / jnp.maximum(v, tiny)[None]
        for a, layer, v in zip(hidden, layers, variances, strict=True)
    ]
    return [a.mean(1) for a in hidden], shares


def _saved(job: Job, run: Run, widths: np.ndarray) -> float:
    """Multiplications saved in the rest of a run by going down to these widths."""
    network = run.state.network
    left = int(run.schedule.end) - int(run.state.step)
    fewer = weight_count(network, network.widths) - weight_count(network, widths)
    return PRODUCTS * job.data.batch_size * left * fewer


def weight_count(network: Network, widths: np.ndarray | tuple[int, ...]) -> float:
    """Weights that a network would have with hidden layers of these widths."""
    ends = network.layers[0].weights.fan_in, network.output.weights.nodes
    sizes = np.array([ends[0], *widths, ends[1]], float)
    return float(sizes[:-1] @ sizes[1:])


def _with_means(
    network: Network, keep: tuple[np.ndarray, ...], means: list[Array]
) -> Network:
    """The network with the mean of each removed node in the biases that it feeds."""
    layers: list[Layer] = [*network.layers, network.output]
    for index, (kept, mean) in enumerate(zip(keep, means, strict=True), start=1):
        weights: Any = layers[index].weights  # mean-field: see `can_shrink`
        added = np.asarray(weights.kernel.loc) @ np.where(kept, 0, mean)
        loc = jnp.asarray(np.asarray(weights.bias.loc) + added)
        layers[index] = eqx.tree_at(
            lambda layer: layer.weights.bias.loc, layers[index], loc
        )
    return network.with_layers(layers)


def _gone(run: Run, keep: tuple[np.ndarray, ...]) -> Iterator[Removal]:
    """The removed nodes of each hidden layer, by their numbers at the start."""
    layers = run.state.network.layers
    for number, (layer, kept) in enumerate(zip(layers, keep, strict=True), start=1):
        if not kept.all():
            nodes = np.asarray(layer.nodes)[~kept].tolist()
            yield Removal(int(run.state.step), number, tuple(nodes))
