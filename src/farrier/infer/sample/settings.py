"""Settings of the MCMC refinement, and how it went."""

import abc
import math
from dataclasses import dataclass, fields
from numbers import Integral
from typing import ClassVar

from .moves import AbstractMoves, MclmcMoves, NutsMoves

CHUNK = 25  # iterations of a chain between two looks at the clock


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
        return whole_chunks(self.warm_up) + whole_chunks(self.draws)

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
    "mclmc": Mclmc(),
}


def whole_chunks(iterations: int) -> int:
    """So many iterations or a few more: whole chunks."""
    return -(-iterations // CHUNK) * CHUNK


@dataclass(frozen=True)
class Sampling:
    """How the sampling went.

    `r_hat` and `effective_draws` are medians over training rows of those of the
    predictions, with chains split in halves; an `r_hat` near 1 means that chains agree.
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
