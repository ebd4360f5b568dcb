"""Markov chains: how a point moves, what is adapted, how well chains agree.

NUTS (Hoffman & Gelman 2014) follows a trajectory until it turns back, and draws a point
of it, such that the draws have exactly the posterior distribution.

MCLMC (Robnik et al. 2023) has no accept-reject step. A point z of d unknowns moves at
unit speed in coordinates of unit variance, pulled by the gradient and turned randomly,

    dz = u dt,   du = (1 - u u') (grad ln p(z) / (d - 1) dt + sqrt(2 / (d L)) dW),
    |u| = 1,   L = sqrt(d)                                                          (H4)

which leaves the posterior invariant. A step of size eps is an integrator step between
two halves of the noise,

    u <- v / |v|,   v = u + sqrt((exp(eps / L) - 1) / d) z,   z ~ N(0, 1)           (H6)

A step of finite size leaves the posterior only nearly invariant: it changes the energy,
which (H4) conserves, by dE. The size is adapted so that this change is small,

    E[dE^2] / d = energy,  since E[dE^2] grows as eps^6:
    eps = (mean of w dE^2 / (d energy eps^6) / mean of w)^(-1/6),
    w = exp(-1/2 (ln(dE^2 / (d energy)) / (6 x 1.5))^2)                             (H5)

over about the last 150 steps; w is small for steps far from the right size.
"""

import abc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.diagnostics import effective_sample_size, potential_scale_reduction
from blackjax.mcmc.integrators import isokinetic_mclachlan
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ...core.random import normals

FIRST_STEP = 0.01
ACCEPTANCE = 0.8
TRUST = 6 * 1.5  # sd, in ln dE^2, of the weight of a step in the adaptation
MEMORY = 149 / 151  # factor by which the weight of earlier steps fades at each step
SHRINK = 0.8  # later steps are at most this x a step whose result was not finite

LogDensity: TypeAlias = Callable[[Float[Array, " unknowns"]], Float[Array, ""]]

_steps = dual_averaging_adaptation(ACCEPTANCE)
_masses = mass_matrix_adaptation(is_diagonal_matrix=True)


@contextmanager
def relaxed() -> Iterator[None]:
    """JAX's default promotion of types and ranks, which BlackJAX relies on."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Chain(eqx.Module):
    """The state of a Markov chain between two chunks."""

    state: PyTree
    step: PyTree  # state of the adaptation of the step size
    mass: PyTree  # state of the adaptation of the masses
    inverse_mass: Float[Array, " unknowns"]
    seen: Int[Array, ""]  # iterations so far


class Trace(eqx.Module):
    """What is recorded of the iterations of one chunk of one chain."""

    point: Float[Array, "*iterations unknowns"]
    acceptance: Float[Array, "*iterations"]
    gradients: Int[Array, "*iterations"]
    diverged: Bool[Array, "*iterations"]


class AbstractMoves(abc.ABC):
    """The start and one iteration of a chain."""

    def first(
        self, flat: Float[Array, " unknowns"], density: LogDensity, *, key: PRNGKeyArray
    ) -> Chain:
        """A chain before its first iteration."""
        mass = _masses[0](len(flat))
        state, step = self._first(flat, density, key)
        seen = jnp.zeros((), jnp.int32)
        return Chain(state, step, mass, mass.inverse_mass_matrix, seen)

    def after(
        self,
        chain: Chain,
        density: LogDensity,
        adapting: Bool[Array, ""],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Chain, Trace]:
        """The chain after one iteration; the key of iteration i is fold_in(key, i)."""
        with relaxed():
            key_here = jr.fold_in(key, chain.seen)
            state, step, trace = self._moved(chain, density, adapting, key_here)
            mass = _masses[1](chain.mass, state.position)
        step, mass = jax.tree.map(
            lambda new, old: jnp.where(adapting, new, old).astype(old.dtype),
            (step, mass),
            (chain.step, chain.mass),
        )
        return Chain(state, step, mass, chain.inverse_mass, chain.seen + 1), trace

    def with_masses(self, chain: Chain) -> Chain:
        """The chain at the end of a window: masses from its draws, a new step size."""
        with relaxed():
            mass = _masses[2](chain.mass)
            step = self._restarted(chain.step)
        return Chain(chain.state, step, mass, mass.inverse_mass_matrix, chain.seen)

    @abc.abstractmethod
    def _first(
        self, flat: Float[Array, " unknowns"], density: LogDensity, key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        """Initial state of the chain and of the adaptation of the step size."""

    @abc.abstractmethod
    def _moved(
        self,
        chain: Chain,
        density: LogDensity,
        adapting: Bool[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Trace]:
        """New state, state of the adaptation of the step size, and the record."""

    @abc.abstractmethod
    def _restarted(self, step: PyTree) -> PyTree:
        """An adaptation that starts at the step size of another."""


@dataclass(frozen=True)
class NutsMoves(AbstractMoves):
    """A trajectory of up to 2^depth - 1 steps in each iteration."""

    depth: int

    def _first(
        self, flat: Float[Array, " unknowns"], density: LogDensity, key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        del key
        return blackjax.nuts.init(flat, density), _steps[0](FIRST_STEP)

    def _moved(
        self,
        chain: Chain,
        density: LogDensity,
        adapting: Bool[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Trace]:
        now, mean = chain.step.log_step_size, chain.step.log_step_size_avg
        state, info = blackjax.nuts.build_kernel()(
            key,
            chain.state,
            density,
            jnp.exp(jnp.where(adapting, now, mean)),
            chain.inverse_mass,
            max_num_doublings=self.depth,
        )
        record = (info.acceptance_rate, info.num_integration_steps, info.is_divergent)
        step = _steps[1](chain.step, info.acceptance_rate)
        return state, step, Trace(state.position, *record)

    def _restarted(self, step: PyTree) -> PyTree:
        return _steps[0](_steps[2](step))


class StepSize(eqx.Module):
    """Adaptation of the step size from the last steps (H5)."""

    size: Float[Array, ""]
    ratio: Float[Array, ""]  # sum of w dE^2 / (d energy size^6), the past fading
    weight: Float[Array, ""]  # sum of w
    longest: Float[Array, ""]  # limit from steps whose result was not finite

    @classmethod
    def create(cls, size: Float[Array, ""]) -> "StepSize":
        """An adaptation without any steps."""
        return cls(size, jnp.zeros(()), jnp.zeros(()), jnp.asarray(jnp.inf))

    def after(self, excess: Float[Array, ""], fine: Bool[Array, ""]) -> "StepSize":
        """After a step whose dE^2 was `excess` times the target (H5)."""
        excess = jnp.where(fine, excess, 0) + 1e-8
        w = jnp.exp(-0.5 * (jnp.log(excess) / TRUST) ** 2)
        ratio = MEMORY * self.ratio + w * excess / self.size**6
        weight = MEMORY * self.weight + w
        longest = jnp.where(
            fine, self.longest, jnp.minimum(self.longest, SHRINK * self.size)
        )
        size = jnp.minimum((ratio / weight) ** (-1 / 6), longest)
        return StepSize(size, ratio, weight, longest)


def turned(
    u: Float[Array, " d"], noise: Float[Array, " d"], size: Float[Array, ""]
) -> Float[Array, " d"]:
    """The direction after the noise of half a step of this size (H6)."""
    d = len(u)
    moved = u + jnp.sqrt(jnp.expm1(size / math.sqrt(d)) / d) * noise
    return moved / jnp.linalg.norm(moved)


@dataclass(frozen=True)
class MclmcMoves(AbstractMoves):
    """Several steps (H4) in each iteration, of an adapted size (H5)."""

    steps: int
    energy: float

    def _first(
        self, flat: Float[Array, " unknowns"], density: LogDensity, key: PRNGKeyArray
    ) -> tuple[PyTree, PyTree]:
        step = StepSize.create(jnp.asarray(FIRST_STEP))
        return blackjax.mclmc.init(flat, density, key), step

    def _moved(
        self,
        chain: Chain,
        density: LogDensity,
        adapting: Bool[Array, ""],
        key: PRNGKeyArray,
    ) -> tuple[PyTree, PyTree, Trace]:
        unknowns = len(chain.inverse_mass)
        onwards: Any = isokinetic_mclachlan(density, chain.inverse_mass)
        # All noise of the iteration in one loop. BlackJAX's kernel draws four times in
        # each step, which took as long as the gradients of a small network.
        noise = normals(jnp.arange(self.steps), jnp.arange(unknowns), key=key)

        def one(
            carry: tuple[PyTree, StepSize], noise: tuple[Array, Array]
        ) -> tuple[tuple[PyTree, StepSize], Bool[Array, ""]]:
            state, step = carry
            new = state._replace(momentum=turned(state.momentum, noise[0], step.size))
            new, kinetic = onwards(new, step.size)
            new = new._replace(momentum=turned(new.momentum, noise[1], step.size))
            change = kinetic - new.logdensity + state.logdensity
            fine = jnp.isfinite(change + (new.position + new.logdensity_grad).sum())
            back = state._replace(momentum=-state.momentum)
            state = jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, back)
            after = step.after(change**2 / (unknowns * self.energy), fine)
            step = jax.tree.map(lambda a, b: jnp.where(adapting, a, b), after, step)
            return (state, step), ~fine

        start: Any = chain.state, chain.step
        (state, step), lost = lax.scan(one, start, noise)
        gradients = jnp.asarray(2 * self.steps, jnp.int32)  # two in each step
        trace = Trace(state.position, jnp.ones(()), gradients, lost.any())
        return state, step, trace

    def _restarted(self, step: StepSize) -> StepSize:
        return StepSize.create(step.size)


def mixing(outputs: np.ndarray) -> tuple[float, float]:
    """R-hat and effective number of draws of a prediction: medians over predictions.

    `outputs` are chains x draws x predictions. Chains are split in halves, so that a
    chain that still drifts does not agree with itself.
    """
    half = outputs.shape[1] // 2
    split = jnp.asarray(np.concatenate([outputs[:, :half], outputs[:, -half:]]))
    with relaxed():
        r_hat = jax.jit(potential_scale_reduction)(split)
        effective = jax.jit(effective_sample_size)(split)
    return float(np.median(r_hat)), float(np.median(effective))
