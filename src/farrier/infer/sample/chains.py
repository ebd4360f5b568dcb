"""MCMC refinement: Markov chains that start at draws of variational posteriors.

All chains run the same compiled program, one on each core, a few iterations at a time.
The target density and its equations are in `target.py`, the moves in `moves.py`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...model.network import Network
from ...model.posterior import SampledPosterior, VariationalPosterior
from ...train.config import COMPILER_OPTIONS
from ...train.data import Data, round_up
from ...train.parallel import Result, in_threads
from ..compact import FOLD_ROWS, activations, silence
from ..nodes import Nodes
from .moves import AbstractMoves, Chain, Trace, mixing
from .settings import CHUNK, AbstractRefinement, Sampling, whole_chunks
from .target import Target, ascended, start_of

CHECK_INTERVAL = 4 * CHUNK  # iterations between two checks of the effective draws
FIRST_WINDOW = 50  # iterations after which masses are first set, and last left alone
FOLD_DRAWS = 100
WATCHED_ROWS = 100  # rows whose predictions measure the mixing
# Each chain has one core. Loops of a chain that XLA spreads over all cores wait for
# those of the other chains: a gradient took a third longer with them.
CHAIN_OPTIONS = COMPILER_OPTIONS | {
    "xla_disable_hlo_passes": "cpu-parallel-task-assigner"
}

# A variational fit and its node scores; these are not needed where all nodes are kept.
Fit = tuple[Network, Nodes | None]


def refine(
    fits: Sequence[Fit],
    data: Data,
    method: AbstractRefinement,
    after_chunk: Callable[[int], None] = lambda done: None,
    *,
    key: PRNGKeyArray,
) -> tuple[SampledPosterior, Sampling] | None:
    """Draws of the posterior by MCMC, and a summary of the sampling.

    Chains start at the fits in turn; the fits may differ only in their posteriors.
    `after_chunk` is called with the number of iterations that are done. `Ctrl-C` ends
    the sampling with the draws so far, or with None if there are none.
    """
    began = time.monotonic()
    key_fold, key_start, key_chain, key_noise = jr.split(key, 4)
    rows = data.x[: int(data.rows) : -(-int(data.rows) // FOLD_ROWS)]
    targets = [
        Target(network, data.x, data.y, data.weight)
        for network in starts_of(fits, method, rows, key=key_fold)
    ]
    chains = _first_points(targets, method.moves, key=key_start)
    watched = rows[:: -(-len(rows) // WATCHED_ROWS)]
    traces: list[list[Trace]] = []
    outputs: list[np.ndarray] = []
    gradients = 0
    for done, chunk in _iterations(targets, chains, method, key=key_chain):
        gradients += sum(int(trace.gradients.sum()) for trace in chunk)
        after_chunk(done)
        if done > whole_chunks(method.warm_up):
            traces.append(chunk)
            outputs.append(_watched(targets, chunk, watched, compiles=not outputs))
            if _is_enough(outputs, method):
                break
    if not traces:
        return None
    joined = _joined(traces)
    points = np.asarray(joined.point)
    posterior = _posterior(targets[0], points, method.kept, key=key_noise)
    r_hat, effective = mixing(np.concatenate(outputs, axis=1))
    sampling = Sampling(
        chains=method.chains,
        draws=len(traces) * CHUNK,
        r_hat=r_hat,
        effective_draws=effective,
        acceptance=float(joined.acceptance.mean()),
        divergences=int(joined.diverged.sum()),
        gradients=gradients,
        seconds=time.monotonic() - began,
    )
    return posterior, sampling


# -- which nodes are sampled ----------------------------------------------------------


def samples_all(method: AbstractRefinement, networks: Sequence[Network]) -> bool:
    """Whether all nodes of all networks are sampled, so that none has to be chosen."""
    widths = {network.widths for network in networks}
    return len(widths) == 1 and max(*widths.pop(), 0) <= method.candidates


def starts_of(
    fits: Sequence[Fit],
    method: AbstractRefinement,
    rows: Float[Array, "rows d_in"],
    *,
    key: PRNGKeyArray,
) -> list[Network]:
    """The network at whose draws each chain starts, with the nodes that are sampled."""
    # Chains share one shape, so the narrowest fit sets a limit.
    narrowest = np.min([network.widths for network, _ in fits], axis=0)
    counts = np.minimum(node_counts(fits, method.candidates), narrowest)
    counts = tuple(counts.tolist())
    small = [with_best_nodes(*fit, counts, rows, key=key) for fit in fits]
    return [small[number % len(small)] for number in range(method.chains)]


def with_best_nodes(
    network: Network,
    nodes: Nodes | None,
    counts: tuple[int, ...],
    x: Float[Array, "rows d_in"],
    *,
    key: PRNGKeyArray,
) -> Network:
    """The network with the best `counts` nodes of each layer, others folded (C1)."""
    if nodes is None:
        return network
    keep = best_nodes(nodes, counts)
    if all(kept.all() for kept in keep):
        return network
    posterior = VariationalPosterior.create(network, FOLD_DRAWS, key=key)
    return silence(network, keep, activations(posterior, x)).take(keep)


def best_nodes(nodes: Nodes, counts: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """For each hidden layer, a mask of the `counts` nodes with the best scores."""
    keep = []
    for score, count in zip(nodes.scores, counts, strict=True):
        kept = np.zeros(len(score), bool)
        kept[np.argsort(-score, kind="stable")[:count]] = True
        keep.append(kept)
    return tuple(keep)


def node_counts(fits: Sequence[Fit], least: int) -> tuple[int, ...]:
    """Nodes of each layer that all fits keep: `least`, or more if more are active.

    All nodes are kept where they have no scores or cannot be folded one by one.
    """
    scored = [nodes.widths for network, nodes in fits if nodes and network.can_fold]
    if len(scored) < len(fits):
        return fits[0][0].widths
    active = np.max(scored, axis=0).tolist()
    return tuple(max(least, round_up(count)) for count in active)


# -- chains ---------------------------------------------------------------------------


def _first_points(
    targets: list[Target], moves: AbstractMoves, *, key: PRNGKeyArray
) -> list[Chain]:
    """A chain for each target, before its first iteration."""
    keys = jr.split(key, len(targets))
    # Their arrays are NumPy's, so that every chunk is the same program.
    create = lambda number: jax.tree.map(
        np.asarray, _first(targets[number], moves, key=keys[number])
    )
    return for_each(create, len(targets), compiles=True)


@eqx.filter_jit
def _first(target: Target, moves: AbstractMoves, *, key: PRNGKeyArray) -> Chain:
    """A chain before its first iteration, near a draw of the target's network."""
    flat, _ = ravel_pytree(start_of(target.network, key=key))
    flat, value, gradient = ascended(target, flat)
    # The moves need value and gradient, which need not be computed again.
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
    last = whole_chunks(warm_up) - FIRST_WINDOW
    ends, size = [], FIRST_WINDOW
    while size < last:
        ends.append(size)
        size *= 2
    if ends and last - ends[-1] < ends[-1] / 2:  # too short a window to learn from
        ends.pop()
    return {*ends, last}


def _iterations(
    targets: list[Target],
    chains: list[Chain],
    method: AbstractRefinement,
    *,
    key: PRNGKeyArray,
) -> Iterator[tuple[int, list[Trace]]]:
    """Number of iterations done, and the traces of all chains of the last chunk.

    Ends early, after a whole chunk, on `Ctrl-C`.
    """
    warm_up, ends = whole_chunks(method.warm_up), window_ends(method.warm_up)
    keys = jr.split(key, len(chains))

    def work(index: int) -> tuple[Chain, Trace]:
        chain = chains[index]
        adapting = np.asarray(chain.seen < warm_up)
        new = advance(targets[index], chain, method.moves, adapting, key=keys[index])
        chain, trace = jax.tree.map(np.asarray, new)
        if adapting and int(chain.seen) in ends:
            chain = jax.tree.map(np.asarray, _new_masses(chain, method.moves))
        return chain, trace

    for done in range(CHUNK, method.iterations + 1, CHUNK):
        try:
            both = for_each(work, len(chains), compiles=done == CHUNK)
        except KeyboardInterrupt:
            return
        chains, traces = (list(part) for part in zip(*both, strict=True))
        yield done, traces


def for_each(
    work: Callable[[int], Result], count: int, *, compiles: bool
) -> list[Result]:
    """`work` of each number below `count`, one on each core.

    If it `compiles`, the first runs alone, so that the others use its program.
    """
    alone = 1 if compiles and count else 0
    first = [work(number) for number in range(alone)]
    return first + in_threads(work, range(alone, count))


# -- posterior samples ----------------------------------------------------------------


def _joined(traces: list[list[Trace]]) -> Trace:
    """Traces of all chunks of all chains as one: chains x iterations x ..."""
    by_chain = [
        jax.tree.map(lambda *parts: np.concatenate(parts), *of_chain)
        for of_chain in zip(*traces, strict=True)
    ]
    return jax.tree.map(lambda *chains: np.stack(chains), *by_chain)


def _watched(
    targets: list[Target],
    chunk: list[Trace],
    rows: Float[Array, "few d_in"],
    *,
    compiles: bool,
) -> np.ndarray:
    """Predictions by the draws of one chunk on a few rows: chains x draws x the rest.

    Outputs that only the noise depends on are not included.
    """
    is_mean = ~targets[0].network.likelihood.noise_outputs
    of_chain = lambda number: np.asarray(
        _outputs(targets[number], jnp.asarray(chunk[number].point), rows), float
    )
    outputs = for_each(of_chain, len(targets), compiles=compiles)
    return np.stack([each[..., is_mean].reshape(len(each), -1) for each in outputs])


def _is_enough(outputs: list[np.ndarray], method: AbstractRefinement) -> bool:
    """Whether predictions have as many effective draws as `method.effective`."""
    done = len(outputs) * CHUNK
    if done % CHECK_INTERVAL or done >= whole_chunks(method.draws):
        return False
    return mixing(np.concatenate(outputs, axis=1))[1] >= method.effective


def _posterior(
    target: Target, points: np.ndarray, kept: int, *, key: PRNGKeyArray
) -> SampledPosterior:
    """The draws that are kept; `points` are chains x draws x unknowns."""
    flat = points.reshape(-1, points.shape[-1])
    numbers = np.linspace(0, len(flat) - 1, min(kept, len(flat)))
    few = jnp.asarray(flat[numbers.round().astype(int)])
    kernels, biases, scales, given = _networks(target, few)
    likelihood = target.network.likelihood
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    noise = likelihood.sample_noise(given, len(few), generator)
    return SampledPosterior(
        kernels=kernels,
        biases=biases,
        scales=scales,
        noise=noise,
        likelihood=likelihood,
        activation=target.network.activation,
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
) -> tuple[tuple[Array, ...], tuple[Array, ...], dict[str, dict[str, Array]], Any]:
    """For each draw its weights, its scales, and what its noise is sampled from."""
    likelihood, unravel = target.network.likelihood, target.unravel()

    def one(flat: Float[Array, " unknowns"]) -> tuple:
        point = unravel(flat)
        network = target.sampled(point)
        f = network(target.x)
        given = likelihood.noise_given(target.y, f, target.weight)
        return network.kernels, network.biases, target.scales(point), given

    return lax.map(one, points, batch_size=4)
