"""One step of the optimiser.

The key of step i is fold_in(key, i), so that a run that was stopped and resumed is
bit-identical to one that was not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ..core.random import fold_in
from ..model.network import Network
from .config import COMPILER_OPTIONS, TrainConfig
from .schedule import Schedule

Function = TypeVar("Function", bound=Callable)


class TrainState(eqx.Module):
    """All that a run needs to go on from here."""

    network: Network
    optimiser: PyTree
    average: PyTree  # of the network's parameters over the steps, or None
    step: Int[Array, ""]
    skipped: Int[Array, ""]  # steps that were not finite
    bad_run: Int[Array, ""]  # of them, those at the end in a row
    bad_step: Int[Array, ""]  # the first of them, or -1
    bad_term: Int[Array, ""]  # its first term that was not finite

    @classmethod
    def create(cls, network: Network, config: TrainConfig) -> Self:
        """A run before its first step."""
        params = eqx.filter(network, eqx.is_inexact_array)
        average = params if config.averaging else None
        zero = jnp.zeros((), jnp.int32)
        return cls(
            network, adam().init(params), average, zero, zero, zero, zero - 1, zero
        )

    @property
    def result(self) -> Network:
        """The averaged network if averaging is on, else the current one."""
        return eqx.combine(self.average, self.network)


def converted(tree: PyTree, convert: Callable[[Any], Any]) -> PyTree:
    """The tree with all its arrays converted: `np.asarray`, `jnp.asarray`, a part."""
    return jax.tree.map(lambda v: convert(v) if eqx.is_array(v) else v, tree)


def adam() -> optax.GradientTransformation:
    """The optimiser, without its learning rate."""
    return optax.scale_by_adam()


def compiled(function: Function) -> Function:
    """The function, compiled for training."""
    jit: Any = eqx.filter_jit
    return jit(function, compiler_options=COMPILER_OPTIONS)


Tree = TypeVar("Tree", bound=PyTree)


@dataclass(frozen=True)
class Unsharded:
    """A step with all rows of its batch in one program."""

    parts: int = 1  # into which the rows of a batch are cut

    def first(self, rows: int) -> int | Int[Array, ""]:
        """Number in the batch of the first of these rows."""
        del rows
        return 0

    def added(self, tree: Tree) -> Tree:
        """The sum of these values over all parts."""
        return tree


def step_on(
    state: TrainState,
    rows: tuple[Array, Array, Array],
    total: Float[Array, ""],
    schedule: Schedule,
    part: Unsharded,
    *,
    key: PRNGKeyArray,
) -> tuple[TrainState, Float[Array, " terms_and_one"]]:
    """One step of the optimiser; a step that is not finite changes nothing.

    Returns the new state, and the terms of the ELBO and 1: zeros after a bad step.

    Parameters
    ----------
    rows
        Inputs, targets, and how many rows of the data set each stands for.
    total
        Rows of the data set.
    part
        Which part of the batch these rows are; gradients and terms are summed over all.
    """
    x, y, weight = rows
    params, fixed = eqx.partition(state.network, eqx.is_inexact_array)

    def loss(params):
        network = eqx.combine(params, fixed)
        key_step, first = fold_in(key, state.step), part.first(len(x))
        share = schedule.noise_share(state.step)
        bound = network.bound(
            x, y, weight, key=key_step, first=first, noise_share=share
        ).cut(part.parts)
        kl_weight = schedule.kl_weight_at(state.step)
        terms = bound.terms()
        loss = -bound.weighted(kl_weight) / total
        return loss, jnp.stack([terms[name] for name in network.term_names()])

    (_, terms), grads = jax.value_and_grad(loss, has_aux=True)(params)
    terms, grads = part.added((terms, grads))
    move = partial(_moved, grads=grads, schedule=schedule, step=state.step)
    term_finite = jnp.isfinite(terms)
    good = term_finite.all() & jnp.isfinite(optax.tree.norm(grads))
    params, optimiser, average = lax.cond(
        good, move, lambda *old: old, params, state.optimiser, state.average
    )
    bad_term = jnp.where(term_finite.all(), len(terms), jnp.argmin(term_finite))
    first = ~good & (state.bad_step < 0)
    bad = (~good).astype(jnp.int32)
    new = TrainState(
        eqx.combine(params, fixed),
        optimiser,
        average,
        state.step + 1,
        state.skipped + bad,
        (state.bad_run + 1) * bad,
        jnp.where(first, state.step, state.bad_step),
        jnp.where(first, bad_term.astype(jnp.int32), state.bad_term),
    )
    counted = jnp.append(terms, jnp.ones_like(terms[0]))
    return new, jnp.where(good, counted, 0)


def _moved(
    params: PyTree,
    optimiser: PyTree,
    average: PyTree,
    *,
    grads: PyTree,
    schedule: Schedule,
    step: Int[Array, ""],
) -> tuple[PyTree, PyTree, PyTree]:
    """Parameters, optimiser and average after a step along these gradients."""
    with jax.numpy_dtype_promotion("standard"):
        updates, optimiser = adam().update(grads, optimiser, params)
    rate = schedule.rate(step)
    params = jax.tree.map(lambda p, u: p - rate * u, params, updates)
    if average is not None:
        weight = schedule.averaging_weight(step)
        average = jax.tree.map(lambda a, p: a + weight * (p - a), average, params)
    return params, optimiser, average
