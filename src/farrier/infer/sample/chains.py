"""Sampling what is left: the exact posterior of a small network, by Markov chains.

    ln p(theta | y) = ln p(y | theta) + ln p(theta) + constant                      (H1)

theta holds the standardised weights of each layer and the logarithms of its scales. The
noise precision of a regression is integrated out, one target t at a time,

    ln p(y | theta) = -sum_t (a + n / 2) ln(b + E_t / 2) + constant,
    E_t = sum_i weight_i (y_it - f_t(x_i))^2,  n = sum_i weight_i                   (H2)

and drawn afterwards: gamma_t | theta, y ~ Gamma(a + n / 2, b + E_t / 2). Variational
inference has made the network small, and chains begin at draws of its posterior. All
chains run the same compiled program, one on each core, a few iterations at a time.
"""

import abc
import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Integral
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core.families import Gamma
from ...core.scales import Scale
from ...model.drawn import DrawnNetwork
from ...model.layers import Layer
from ...model.network import ACTIVATIONS, Network, SampledNetwork
from ...train.config import COMPILER_OPTIONS
from ...train.data import Data, round_up
from ...train.parallel import Result, in_threads
from ...train.step import adam
from ..compact import FOLD_ROWS, Nodes, activations, drop, silence
from ..freeze import is_normal
from .moves import AbstractMoves, Chain, MclmcMoves, NutsMoves, Trace, mixing

CHUNK = 25  # iterations of a chain between two looks at the clock
LOOK = 4 * CHUNK  # iterations between two looks at how the draws have mixed
FIRST_WINDOW = 50  # iterations after which masses are first set, and last left alone
ASCENT, ASCENT_RATE = 1_000, 0.02  # steps of Adam before a chain begins, and their rate
FOLD_DRAWS = 100
FEW_NODES = 4  # up to which a product is taken node by node
WATCHED_ROWS = 100  # rows on which the mixing of predictions is judged
# Chains have a core each. Loops of one that are spread over all cores wait for those of
# the others: a gradient on its own took a third longer so.
CHAIN_OPTIONS = COMPILER_OPTIONS | {
    "xla_disable_hlo_passes": "cpu-parallel-task-assigner"
}


@dataclass(frozen=True, kw_only=True)
class AbstractRefinement(abc.ABC):
    """Sampling of the whole posterior, after the variational fit: what all ask."""

    name: ClassVar[str]
    candidates: int = 50
    chains: int = 4
    warm_up: int = 400
    draws: int = 400
    effective: int = 200
    kept: int = 400

    def __post_init__(self) -> None:
        least = {"warm_up": 150, "draws": 4, "kept": 2}
        counts = [field.name for field in fields(self) if field.type is int]
        for name in counts:
            found, lowest = getattr(self, name), least.get(name, 1)
            if not isinstance(found, Integral) or found < lowest:
                raise ValueError(
                    f"`{name}` must be a whole number from {lowest}, got {found!r}."
                )

    @property
    def iterations(self) -> int:
        """Of each chain, warm-up included, in whole chunks."""
        return _chunks(self.warm_up) + _chunks(self.draws)

    @property
    @abc.abstractmethod
    def moves(self) -> AbstractMoves:
        """How its chains move."""


@dataclass(frozen=True, kw_only=True)
class Nuts(AbstractRefinement):
    """Sampling of the whole posterior by NUTS, after the variational fit.

    Parameters
    ----------
    candidates
        Nodes of each hidden layer that are sampled, best first; more where more are on.
        The posterior of their scales selects among them.
    chains
        Markov chains. Each begins at a draw of the variational posterior; of several
        fits (`n_restarts`), the next chain begins at the next fit, best bound first.
    warm_up
        Iterations of each chain in which step and masses are adapted.
    draws
        Iterations of each chain after that, at most.
    effective
        Effective draws of a prediction that are enough: chains are asked every 100
        iterations, and end once they have so many.
    kept
        Draws that are kept in the model, spread evenly over all chains.
    depth
        Most doublings of a trajectory: it has up to 2^depth - 1 gradients.
    """

    name: ClassVar[str] = "nuts"
    depth: int = 7

    @property
    def moves(self) -> AbstractMoves:
        """Trajectories that turn back by themselves."""
        return NutsMoves(self.depth)


@dataclass(frozen=True, kw_only=True)
class Mclmc(AbstractRefinement):
    """Sampling of the whole posterior by MCLMC (H4), after the variational fit.

    It goes farther than NUTS for the same work, but not quite to the posterior: no step
    is refused.

    Parameters
    ----------
    candidates, chains, warm_up, draws, effective, kept
        As of `Nuts`.
    steps
        In each iteration, with two gradients each.
    energy
        Variance of the change of the energy in a step, for each unknown (H5): less is
        nearer to the posterior, and slower.
    """

    name: ClassVar[str] = "mclmc"
    warm_up: int = 250
    steps: int = 50
    energy: float = 0.002

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.energy
        if not isinstance(found, int | float) or not 0 < found < math.inf:
            raise ValueError(f"`energy` must be a number over 0, got {found!r}.")

    @property
    def moves(self) -> AbstractMoves:
        """Steps of unit speed."""
        return MclmcMoves(self.steps, self.energy)


REFINEMENTS: dict[str, AbstractRefinement] = {
    "nuts": Nuts(),
    "nuts-short": Nuts(chains=2, warm_up=250, draws=250, depth=6),
    "mclmc": Mclmc(),
}


def _chunks(iterations: int) -> int:
    return -(-iterations // CHUNK) * CHUNK


@dataclass(frozen=True)
class Sampling:
    """How the sampling went.

    `r_hat` and `effective_draws` are medians over training rows of those of the
    predictions, chains split in halves; an `r_hat` near 1 says that chains agree. Of
    chains with different noise models, which sample different posteriors, `r_hat` is
    that of the model whose chains agree least, and effective draws are added up.
    """

    chains: int
    draws: int
    r_hat: float
    effective_draws: float
    acceptance: float
    divergences: int
    gradients: int
    seconds: float

    def is_whole(self, method: AbstractRefinement) -> bool:
        """Whether it went on for as long as was asked, or had enough before."""
        return self.draws >= method.draws or self.effective_draws >= method.effective

    def __str__(self) -> str:
        """In one line."""
        return (
            f"{self.chains} chains of {self.draws} draws, R-hat {self.r_hat:.2f}, "
            f"{self.effective_draws:.0f} effective draws of a prediction, "
            f"{self.divergences} divergences, {self.seconds:.0f} s"
        )


class LayerPoint(eqx.Module):
    """What is sampled of one layer: weights before their scales, and ln of those."""

    kernel: Float[Array, "nodes d_in"]
    bias: Float[Array, " nodes"]
    log_scales: dict[str, Float[Array, "..."]]
    # Of the inputs (I2), where they have scales: in the first layer alone.
    log_inputs: dict[str, Float[Array, "..."]] = eqx.field(default_factory=dict)


Fit = tuple[Network, Nodes]  # a variational posterior, and what it says of its nodes
Start = tuple[Network, Nodes | None]  # where chains sample all nodes, it need not say
Point = tuple[LayerPoint, ...]  # one for each layer, the output last
# From draws under each noise model, numbers of chains, rows and a key: the shares.
Weigh: TypeAlias = Callable[..., Float[np.ndarray, " kinds"]]


class Target(eqx.Module):
    """The posterior that is sampled, up to a constant (H1)."""

    network: Network  # its posterior says no more than where a chain begins
    x: Float[Array, "rows d_in"]
    y: Float[Array, "rows targets"] | Int[Array, " rows"]
    weight: Float[Array, " rows"]

    def log_density(self, point: Point) -> Float[Array, ""]:
        """ln p(y | theta) + ln p(theta) (H1)."""
        layers = self.network.named_layers().values()
        # Rows are the last axis, as in training: loops over them are long. Ones below
        # them give the gradient of biases in the product that gives that of weights.
        a = self.x.T
        total = jnp.zeros(())
        if (inputs := self.network.inputs) is not None:
            a = a[inputs.columns]
            total += _log_prior_of_scales(inputs.scales, point[0].log_inputs)
        a = jnp.concatenate([a, jnp.ones_like(a[:1])])
        for number, (layer, each) in enumerate(zip(layers, point, strict=True)):
            kernel, bias = multiplied(layer, each)
            if number:
                a = ACTIVATIONS[self.network.activation](a)
                a = product(kernel, a) + bias[:, None]
            else:
                a = jnp.concatenate([kernel, bias[:, None]], axis=1) @ a
            total += log_prior_of(layer, each)
        return total + self.network.likelihood.log_marginal(self.y, a.T, self.weight)

    def sampled(self, point: Point) -> SampledNetwork:
        """The network of one draw."""
        pairs = zip(self.network.named_layers().values(), point, strict=True)
        weights = [multiplied(layer, each) for layer, each in pairs]
        kernels = tuple(kernel.T for kernel, _ in weights)
        if self.network.inputs is not None:
            kernels = (self.network.inputs.whole(kernels[0]), *kernels[1:])
        biases = tuple(bias for _, bias in weights)
        return SampledNetwork(kernels, biases, self.network.activation)

    def unravel(self) -> Callable[[Float[Array, " unknowns"]], Point]:
        """What makes a point of a flat vector of its numbers."""
        layers = self.network.named_layers().values()
        zeros = tuple(
            LayerPoint(
                jnp.zeros((layer.weights.nodes, layer.weights.fan_in - 1)),
                jnp.zeros(layer.weights.nodes),
                {name: jnp.zeros_like(s.q.loc) for name, s in layer.scales.items()},
            )
            for layer in layers
        )
        if (inputs := self.network.inputs) is not None:
            none = {name: jnp.zeros_like(s.q.loc) for name, s in inputs.scales.items()}
            zeros = _with_inputs(zeros, none)
        return ravel_pytree(zeros)[1]


def product(
    kernel: Float[Array, "nodes d_in"], a: Float[Array, "d_in rows"]
) -> Float[Array, "nodes rows"]:
    """Kernel @ a; for few nodes one at a time.

    The gradients of these vector products are elementwise, and XLA makes one loop of
    them and of the activation's: a gradient of a network with one or two outputs takes
    two thirds of the time.
    """
    if len(kernel) > FEW_NODES:
        return kernel @ a
    return jnp.stack([row @ a for row in kernel])


def multiplied(
    layer: Layer, point: LayerPoint
) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
    """Weights and biases of one draw, multiplied by their scales (M1)."""
    factor = _factor(layer, point.log_scales)
    kernel = factor[:, None] * point.kernel
    if point.log_inputs:
        zeta = jnp.exp(sum(point.log_inputs.values(), start=jnp.zeros(())))
        kernel = kernel * zeta[None]
    return kernel, factor * point.bias


def _with_inputs(point: Point, log_inputs: dict[str, Float[Array, "..."]]) -> Point:
    """The point with log scales of the inputs, which the first layer holds."""
    return (replace(point[0], log_inputs=log_inputs), *point[1:])


def _factor(
    layer: Layer, log_scales: dict[str, Float[Array, "..."]]
) -> Float[Array, " nodes"]:
    """Scale of the weights into each node; one where there is none."""
    total = sum(log_scales.values(), start=jnp.zeros(layer.weights.nodes))
    return layer.parametrisation.sampling_multiplier(total)


def log_prior_of(layer: Layer, point: LayerPoint) -> Float[Array, ""]:
    """ln p of one layer's weights and scales, as densities of ln s (M1, M10, M12)."""
    total = layer.parametrisation.log_prior(point.kernel, point.bias)
    return total + _log_prior_of_scales(layer.scales, point.log_scales)


def _log_prior_of_scales(
    scales: dict[str, Scale], log_scales: dict[str, Float[Array, "..."]]
) -> Float[Array, ""]:
    total = jnp.zeros(())
    for name, scale in scales.items():
        total += scale.prior.log_density(log_scales[name]).sum()
    return total


def start_of(network: Network, *, key: PRNGKeyArray) -> Point:
    """One draw of the variational posterior, where a chain may begin."""
    points = []
    for number, layer in enumerate(network.named_layers().values()):
        key_weights, *keys = jr.split(jr.fold_in(key, number), 1 + len(layer.scales))
        log_scales = _drawn_scales(layer.scales, keys)
        kernel, bias = layer.weights.sample(layer.inputs, layer.nodes, key=key_weights)
        factor = _factor(layer, log_scales)
        kernel, bias = layer.parametrisation.standardised(kernel, bias, factor)
        points.append(LayerPoint(kernel, bias, log_scales))
    if network.inputs is not None:
        keys = [*jr.split(jr.fold_in(key, len(points)))]
        return _with_inputs(tuple(points), _drawn_scales(network.inputs.scales, keys))
    return tuple(points)


def _drawn_scales(
    scales: dict[str, Scale], keys: Sequence[PRNGKeyArray]
) -> dict[str, Float[Array, "..."]]:
    return {
        name: scale.q.loc + scale.q.scale * jr.normal(key, scale.q.loc.shape)
        for (name, scale), key in zip(scales.items(), keys, strict=True)
    }


def ascended(
    target: Target, flat: Float[Array, " unknowns"]
) -> tuple[Float[Array, " unknowns"], Float[Array, ""], Float[Array, " unknowns"]]:
    """The point after a thousand steps of Adam up the log density; that, its gradient.

    A variational posterior is too narrow, and has switched off what the exact one still
    uses a little. Chains that begin there take long to find that; from here they are
    among likely networks at once.
    """
    unravel, optimiser = target.unravel(), adam()
    density = jax.value_and_grad(lambda v: target.log_density(unravel(v)))

    def step(carry: tuple, i: Int[Array, ""]) -> tuple[tuple, None]:
        flat, state, *_ = carry
        value, gradient = density(flat)
        update: Any
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(-gradient, state, flat)
        done = i.astype(flat.dtype) / ASCENT
        rate = ASCENT_RATE * 0.5 * (1 + jnp.cos(jnp.pi * done))
        return (flat - rate * update, state, value, gradient), None

    # One more step, which goes nowhere: its rate is 0.
    start = (flat, optimiser.init(flat), jnp.zeros(()), jnp.zeros_like(flat))
    (flat, _, value, slope), _ = lax.scan(step, start, jnp.arange(ASCENT + 1))
    return flat, value, slope


# -- chains ---------------------------------------------------------------------------


@eqx.filter_jit
def _first(target: Target, moves: AbstractMoves, *, key: PRNGKeyArray) -> Chain:
    """A chain before its first iteration, near a draw of the target's network."""
    flat, _ = ravel_pytree(start_of(target.network, key=key))
    flat, value, gradient = ascended(target, flat)
    # All that the first point asks of a density, without the density once more.
    line = lambda v: value + gradient @ (v - flat)
    return moves.first(flat, line, key=key)


def _advance(
    target: Target,
    chain: Chain,
    moves: AbstractMoves,
    adapting: Bool[Array, ""],
    *,
    key: PRNGKeyArray,
) -> tuple[Chain, Trace]:
    """One chunk of iterations."""
    unravel = target.unravel()
    density = lambda v: target.log_density(unravel(v))
    one = lambda chain, _: moves.after(chain, density, adapting, key=key)
    return lax.scan(one, chain, length=CHUNK)


_jit: Any = eqx.filter_jit
advance = _jit(_advance, compiler_options=CHAIN_OPTIONS)


@eqx.filter_jit
def _new_masses(chain: Chain, moves: AbstractMoves) -> Chain:
    return moves.with_masses(chain)


def window_ends(warm_up: int) -> set[int]:
    """Iterations after which masses are set: 50, 100, 200, ...

    The last is 50 before the end of the warm-up, so that the step has time to follow.
    """
    last = _chunks(warm_up) - FIRST_WINDOW
    ends, size = [], FIRST_WINDOW
    while size < last:
        ends.append(size)
        size *= 2
    if ends and last - ends[-1] < ends[-1] / 2:  # too short a window to learn from
        ends.pop()
    return {*ends, last}


# -- the whole of it ------------------------------------------------------------------


def samples_all(method: AbstractRefinement, networks: Sequence[Network]) -> bool:
    """Whether all nodes of all networks are sampled, so that none has to be chosen."""
    widths = {network.widths for network in networks}
    return len(widths) == 1 and max(*widths.pop(), 0) <= method.candidates


def candidates(
    network: Network,
    nodes: Nodes | None,
    counts: tuple[int, ...],
    x: Float[Array, "rows d_in"],
    *,
    key: PRNGKeyArray,
) -> Network:
    """The network with the best so many nodes of each layer.

    The others are folded into the rest (C1).
    """
    if nodes is None:
        return network
    keep = best_nodes(nodes, counts)
    if all(kept.all() for kept in keep):
        return network
    hidden = activations(network, x, FOLD_DRAWS, key=key)
    return drop(silence(network, keep, hidden), keep)


def best_nodes(nodes: Nodes, counts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """For each hidden layer, which nodes are among the best so many."""
    keep = []
    for score, count in zip(nodes.scores, counts, strict=True):
        kept = np.zeros(len(score), bool)
        kept[np.argsort(-score, kind="stable")[:count]] = True
        keep.append(kept)
    return tuple(keep)


def counts_of(fits: Sequence[Start], least: int) -> tuple[int, ...]:
    """Nodes of each layer that fits keep: `least`, or more where one has more on.

    Where nodes have no scores, or the posterior ties those of a layer to each other,
    all stay.
    """
    scored = [nodes.widths for network, nodes in fits if nodes and is_normal(network)]
    if len(scored) < len(fits):
        return fits[0][0].widths
    on = np.max(scored, axis=0).tolist()
    return tuple(max(least, round_up(count)) for count in on)


def refine(
    fits: Sequence[Start],
    data: Data,
    method: AbstractRefinement,
    after_chunk: Callable[[int], None] = lambda done: None,
    weigh: Weigh | None = None,
    *,
    key: PRNGKeyArray,
) -> tuple[DrawnNetwork, Sampling, Float[np.ndarray, " chains"]] | None:
    """Draws of the posterior, how the sampling went, the share of each chain in them.

    Chains begin at the fits in turn; these may differ in nothing but their posterior
    and their noise, and `weigh` says how much of the draws each noise model has: as
    much as it has of the chains, if it is not given. `after_chunk` is called with the
    number of iterations that are done. `Ctrl-C` ends it with the draws so far, or with
    None before there are any.
    """
    weigh = weigh or by_chains
    began = time.monotonic()
    key_fold, key_start, key_chain, key_noise = jr.split(key, 4)
    every = -(-int(data.rows) // FOLD_ROWS)
    few = data.x[: int(data.rows) : every]
    # Chains share one shape: fits that have shed nodes set a limit to it.
    narrowest = np.min([network.widths for network, _ in fits], axis=0)
    counts = np.minimum(counts_of(fits, method.candidates), narrowest)
    counts = tuple(counts.tolist())
    small = [candidates(*fit, counts, few, key=key_fold) for fit in fits]
    starts = [small[number % len(small)] for number in range(method.chains)]
    targets = [Target(start, data.x, data.y, data.weight) for start in starts]
    kinds = kinds_of(starts)
    keys = jr.split(key_start, method.chains)
    # Their arrays are NumPy's, so that every chunk is the same program.
    create = lambda number: jax.tree.map(
        np.asarray, _first(targets[number], method.moves, key=keys[number])
    )
    chains = each_of(create, kinds, compiles=True)
    watched = few[:: -(-len(few) // WATCHED_ROWS)]
    traces: list[list[Trace]] = []
    outputs: list[np.ndarray] = []
    gradients = 0
    for done, found in _iterations(targets, chains, kinds, method, key=key_chain):
        gradients += sum(int(trace.gradients.sum()) for trace in found)
        after_chunk(done)
        if done > _chunks(method.warm_up):
            traces.append(found)
            compiles = not outputs
            seen = _watched(targets, found, kinds, watched, compiles=compiles)
            outputs.append(seen)
            if _is_enough(outputs, kinds, method):
                break
    if not traces:
        return None
    joined = [_joined(traces, members) for members in kinds]
    parts = in_threads(
        lambda number: _drawn(
            targets[kinds[number][0]],
            np.asarray(joined[number].point),
            method.kept,
            key=key_noise,
        ),
        range(len(kinds)),
    )
    chains_of = np.array([len(members) for members in kinds])
    shares = weigh(parts, chains_of, data, key=key_noise)
    most = min(p.draws / s for p, s in zip(parts, shares, strict=True) if s > 0)
    kept_of = allotted(shares, min(method.kept, int(most)))
    kept = [part.some(n) for part, n in zip(parts, kept_of, strict=True) if n]
    accepted = np.concatenate([trace.acceptance.ravel() for trace in joined])
    r_hat, effective = mixing_of(np.concatenate(outputs, axis=1), kinds)
    sampling = Sampling(
        chains=method.chains,
        draws=len(traces) * CHUNK,
        r_hat=r_hat,
        effective_draws=effective,
        acceptance=float(accepted.mean()),
        divergences=int(sum(trace.diverged.sum() for trace in joined)),
        gradients=gradients,
        seconds=time.monotonic() - began,
    )
    per_chain = np.zeros(method.chains)
    for members, share in zip(kinds, shares, strict=True):
        per_chain[members] = share / len(members)
    return DrawnNetwork.joined(kept), sampling, per_chain


def allotted(shares: Float[np.ndarray, " parts"], draws: int) -> list[int]:
    """Whole numbers of draws in proportion to the shares, `draws` in all."""
    ends = np.round(np.cumsum(shares) / shares.sum() * draws).astype(int)
    return np.diff(ends, prepend=0).tolist()


def by_chains(
    parts: Sequence[DrawnNetwork],
    chains: Int[np.ndarray, " kinds"],
    data: Data,
    *,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " kinds"]:
    """Noise models by the number of their chains, whatever the rows say."""
    del parts, data, key
    return chains / chains.sum()


def kinds_of(networks: Sequence[Network]) -> list[list[int]]:
    """Numbers of the networks that have the same noise model, and so one posterior."""
    kinds: dict[Hashable, list[int]] = {}
    for number, network in enumerate(networks):
        settings = eqx.filter(network.likelihood, eqx.is_array, inverse=True)
        kind = type(network.likelihood), *jax.tree.leaves(settings)
        kinds.setdefault(kind, []).append(number)
    return [*kinds.values()]


def _iterations(
    targets: list[Target],
    chains: list[Chain],
    kinds: list[list[int]],
    method: AbstractRefinement,
    *,
    key: PRNGKeyArray,
) -> Iterator[tuple[int, list[Trace]]]:
    """Iterations that are done, and what all chains found in the last chunk of them.

    Ends early, after a whole chunk, on `Ctrl-C`.
    """
    warm_up, ends = _chunks(method.warm_up), window_ends(method.warm_up)
    keys = jr.split(key, len(chains))

    def work(index: int) -> tuple[Chain, Trace]:
        chain = chains[index]
        adapting = np.asarray(chain.seen < warm_up)
        found = advance(targets[index], chain, method.moves, adapting, key=keys[index])
        chain, trace = jax.tree.map(np.asarray, found)
        if adapting and int(chain.seen) in ends:
            chain = jax.tree.map(np.asarray, _new_masses(chain, method.moves))
        return chain, trace

    for done in range(CHUNK, method.iterations + 1, CHUNK):
        try:
            both = each_of(work, kinds, compiles=done == CHUNK)
        except KeyboardInterrupt:
            return
        chains, found = (list(part) for part in zip(*both, strict=True))
        yield done, found


def each_of(
    work: Callable[[int], Result], kinds: list[list[int]], *, compiles: bool
) -> list[Result]:
    """What the work on each chain or fit returns, by its number, one on each core.

    Where it `compiles`, one of each kind goes first: the others find a program.
    """
    numbers = sorted(number for members in kinds for number in members)
    first = [members[0] for members in kinds] if compiles else []
    others = [number for number in numbers if number not in first]
    done = dict(zip(first, in_threads(work, first), strict=True))
    done |= zip(others, in_threads(work, others), strict=True)
    return [done[number] for number in numbers]


def _joined(traces: list[list[Trace]], members: list[int]) -> Trace:
    """Traces of all chunks of these chains as one: chains x iterations x ..."""
    by_chain = [
        jax.tree.map(lambda *parts: np.concatenate(parts), *(t[n] for t in traces))
        for n in members
    ]
    return jax.tree.map(lambda *chains: np.stack(chains), *by_chain)


def _watched(
    targets: list[Target],
    found: list[Trace],
    kinds: list[list[int]],
    rows: Float[Array, "few d_in"],
    *,
    compiles: bool,
) -> np.ndarray:
    """Predictions by the draws of one chunk on a few rows: chains x draws x the rest.

    Means of targets, or the outputs of classes.
    """
    seen = targets[0].network.likelihood.targets or None
    of_chain = lambda number: np.asarray(
        _outputs(targets[number], jnp.asarray(found[number].point), rows), float
    )
    outputs = each_of(of_chain, kinds, compiles=compiles)
    return np.stack([each[..., :seen].reshape(len(each), -1) for each in outputs])


def _is_enough(
    outputs: list[np.ndarray], kinds: list[list[int]], method: AbstractRefinement
) -> bool:
    """Whether predictions have the effective draws that were asked for."""
    done = len(outputs) * CHUNK
    if done % LOOK or done >= _chunks(method.draws):
        return False
    found = mixing_of(np.concatenate(outputs, axis=1), kinds)
    return found[1] >= method.effective


def mixing_of(outputs: np.ndarray, kinds: list[list[int]]) -> tuple[float, float]:
    """The worst R-hat of chains of one kind, and the effective draws of all kinds."""
    r_hats, effective = zip(*(mixing(outputs[of]) for of in kinds), strict=True)
    return max(r_hats), sum(effective)


def _drawn(
    target: Target, points: np.ndarray, kept: int, *, key: PRNGKeyArray
) -> DrawnNetwork:
    """The draws that are kept; `points` are chains x draws x unknowns."""
    flat = points.reshape(-1, points.shape[-1])
    numbers = np.linspace(0, len(flat) - 1, min(kept, len(flat)))
    some = jnp.asarray(flat[numbers.round().astype(int)])
    kernels, biases, scales, law = _networks(target, some)
    # On the host: XLA takes longer to compile a gamma variate than all of the rest.
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    gamma = generator.standard_gamma(law.shape) * np.exp(-np.asarray(law.log_rate))
    return DrawnNetwork(
        kernels,
        biases,
        scales,
        jnp.asarray(gamma**-0.5, float),
        target.network.likelihood,
        target.network.activation,
    )


@eqx.filter_jit
def _outputs(
    target: Target, points: Float[Array, "draws unknowns"], x: Float[Array, "few d_in"]
) -> Float[Array, "draws few d_out"]:
    unravel = target.unravel()
    return lax.map(lambda v: target.sampled(unravel(v))(x), points, batch_size=16)


@eqx.filter_jit
def _networks(
    target: Target, points: Float[Array, "draws unknowns"]
) -> tuple[tuple[Array, ...], tuple[Array, ...], dict[str, Array], Gamma]:
    """For each draw its weights, its scales, and the law of its noise (H2)."""
    likelihood, unravel = target.network.likelihood, target.unravel()
    names = target.network.named_layers()

    def one(flat: Float[Array, " unknowns"]) -> tuple:
        point = unravel(flat)
        network = target.sampled(point)
        f = network(target.x)
        law = likelihood.precision_given(target.y, f, target.weight)
        # One more entry: `lax.map` takes no array without any, as that of classes is.
        law = jax.tree.map(lambda v: jnp.pad(v, (0, 1)), law)
        scales = {
            f"{name}_{scale}": jnp.exp(value)
            for name, each in zip(names, point, strict=True)
            for scale, value in each.log_scales.items()
        }
        of_inputs = point[0].log_inputs.items()
        scales |= {f"inputs_{name}": jnp.exp(value) for name, value in of_inputs}
        return network.kernels, network.biases, scales, law

    *found, law = lax.map(one, points, batch_size=4)
    return *found, jax.tree.map(lambda v: v[:, :-1], law)
