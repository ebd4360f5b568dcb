"""Settings of the MCMC refinement, and a summary of a run."""

import abc
import math
from dataclasses import dataclass, fields
from numbers import Integral
from typing import ClassVar

from .moves import AbstractMoves, MclmcMoves, NutsMoves

CHUNK = 25  # iterations of a chain that run before progress is reported


@dataclass(frozen=True, kw_only=True)
class AbstractRefinement(abc.ABC):
    """Settings that all ways of sampling share."""

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
            value, lowest = getattr(self, name), least.get(name, 1)
            if not isinstance(value, Integral) or value < lowest:
                raise ValueError(
                    f"`{name}` must be a whole number from {lowest}, got {value!r}."
                )

    @property
    def iterations(self) -> int:
        """Iterations of each chain, warm-up included, in whole chunks."""
        return whole_chunks(self.warm_up) + whole_chunks(self.draws)

    @property
    @abc.abstractmethod
    def moves(self) -> AbstractMoves:
        """How the chains move."""


@dataclass(frozen=True, kw_only=True)
class Nuts(AbstractRefinement):
    """MCMC refinement by the No-U-Turn sampler (NUTS), after the variational fit.

    Parameters
    ----------
    candidates : int, default=50
        Number of nodes of each hidden layer that are sampled, best scores first; all
        active nodes if there are more. The posterior of their scales selects among
        them.
    chains : int, default=4
        Number of Markov chains. Each starts at a draw of the variational posterior.
        With several fits (`n_restarts`), chains start at the fits in turn, best ELBO
        first.
    warm_up : int, default=400
        Iterations of each chain that adapt the step size and the mass matrix.
    draws : int, default=400
        Maximum number of iterations of each chain after the warm-up.
    effective : int, default=200
        Number of effective draws of a prediction at which sampling stops, checked every
        100 iterations.
    kept : int, default=400
        Number of posterior draws in the model, evenly spaced over all chains.
    depth : int, default=7
        Maximum number of doublings of a trajectory, which then has 2^depth - 1
        gradients.
    """

    name: ClassVar[str] = "nuts"
    depth: int = 7

    @property
    def moves(self) -> AbstractMoves:
        """NUTS trajectories."""
        return NutsMoves(self.depth)


@dataclass(frozen=True, kw_only=True)
class Mclmc(AbstractRefinement):
    """MCMC refinement by microcanonical Langevin Monte Carlo (MCLMC; H4).

    MCLMC explores more than NUTS for the same computation, but it is not exact: it has
    no accept-reject step.

    Parameters
    ----------
    candidates, chains, draws, effective, kept
        See `Nuts`.
    warm_up : int, default=250
        See `Nuts`.
    steps : int, default=50
        Number of steps in each iteration, each with two gradients.
    energy : float, default=0.002
        Variance of the change of energy in one step, per unknown (H5). Smaller values
        are slower and closer to the posterior.
    """

    name: ClassVar[str] = "mclmc"
    warm_up: int = 250
    steps: int = 50
    energy: float = 0.002

    def __post_init__(self) -> None:
        super().__post_init__()
        energy = self.energy
        if not isinstance(energy, int | float) or not 0 < energy < math.inf:
            raise ValueError(f"`energy` must be a number over 0, got {energy!r}.")

    @property
    def moves(self) -> AbstractMoves:
        """MCLMC steps."""
        return MclmcMoves(self.steps, self.energy)


REFINEMENTS: dict[str, AbstractRefinement] = {
    "nuts": Nuts(),
    "mclmc": Mclmc(),
}


def whole_chunks(iterations: int) -> int:
    """The number of iterations, rounded up to whole chunks."""
    return -(-iterations // CHUNK) * CHUNK


@dataclass(frozen=True)
class Sampling:
    """Summary of the sampling.

    Attributes
    ----------
    chains, draws : int
        Number of chains, and draws of each chain after the warm-up.
    r_hat, effective_draws : float
        Medians of R-hat and of the effective number of draws of the predictions for
        training rows, with chains split in halves. An `r_hat` near 1 means that the
        chains agree.
    acceptance : float
        Mean acceptance rate; 1 for MCLMC.
    divergences : int
        Number of iterations after the warm-up that diverged.
    gradients : int
        Number of gradients of the log density, warm-up included.
    seconds : float
        Duration of the sampling.
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
        """Whether all draws were made, or the effective draws were reached before."""
        return self.draws >= method.draws or self.effective_draws >= method.effective

    def __str__(self) -> str:
        """The summary in one line."""
        return (
            f"{self.chains} chains of {self.draws} draws, R-hat {self.r_hat:.2f}, "
            f"{self.effective_draws:.0f} effective draws of a prediction, "
            f"{self.divergences} divergences, {self.seconds:.0f} s"
        )
