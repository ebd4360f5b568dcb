"""Weight posteriors that a user can name, before they know the size of a layer."""

import abc
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .matrix import MatrixWeights
from .node import LowRankWeights, NodeWeights
from .tied import TiedWeights
from .weights import AbstractNormalWeights, AbstractWeights, FactorisedWeights

MOST_FULL = 128  # weights into a node up to which all their covariances are learned
RANK = 4  # of the covariances where there are more


@dataclass(frozen=True, kw_only=True)
class AbstractPosterior(abc.ABC):
    """The form of q for the weights of each layer."""

    name: ClassVar[str]

    @abc.abstractmethod
    def weights(
        self, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """A layer's weights before training.

        Parameters
        ----------
        sd
            Standard deviation of each weight under q.
        spread
            Standard deviation with which their locations are drawn.
        """

    def untied(self) -> "AbstractPosterior":
        """The form where nodes have no scale of their own."""
        return self


@dataclass(frozen=True, kw_only=True)
class Factorised(AbstractPosterior):
    """An independent normal for each weight."""

    name: ClassVar[str] = "factorised"

    def weights(
        self, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """Factorised weights."""
        return FactorisedWeights.create(d_in, nodes, sd=sd, spread=spread, key=key)


@dataclass(frozen=True, kw_only=True)
class Node(AbstractPosterior):
    """One multivariate normal for the weights into each node, bias included (N1).

    Parameters
    ----------
    rank
        None: all covariances of the weights into a node are learned where it has up to
        128 of them, its bias included, and covariances of rank 4 where it has more. A
        number: covariances of that rank in all layers.
    """

    name: ClassVar[str] = "node"
    rank: int | None = None

    def __post_init__(self) -> None:
        rank = self.rank
        if rank is not None and not (isinstance(rank, Integral) and rank >= 1):
            raise ValueError(
                f"`rank` must be None or a whole number from 1, got {rank!r}."
            )

    def weights(
        self, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """Weights with all covariances, or with covariances of a low rank."""
        if self.rank is None and d_in + 1 <= MOST_FULL:
            return NodeWeights.create(d_in, nodes, sd=sd, spread=spread, key=key)
        rank = RANK if self.rank is None else int(self.rank)
        return LowRankWeights.create(
            d_in, nodes, sd=sd, spread=spread, key=key, rank=rank
        )


@dataclass(frozen=True, kw_only=True)
class Tied(AbstractPosterior):
    """Weights that move with the scale of their node (J1).

    In the output layer, where nodes have no scale of their own, they do not.

    Parameters
    ----------
    given
        The form of q of the weights given the scales: "factorised" or "node".
    """

    name: ClassVar[str] = "tied"
    given: str = "factorised"

    def __post_init__(self) -> None:
        if self.given not in GIVEN:
            raise ValueError(f"`given` must be one of {[*GIVEN]}, got {self.given!r}.")

    def weights(
        self, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """Weights that do not move yet."""
        free = self.untied().weights(d_in, nodes, sd=sd, spread=spread, key=key)
        assert isinstance(free, AbstractNormalWeights)
        return TiedWeights.create(free)

    def untied(self) -> AbstractPosterior:
        """That of the weights given the scales."""
        return GIVEN[self.given]


@dataclass(frozen=True, kw_only=True)
class Matrix(AbstractPosterior):
    """A matrix normal tied down by pseudo-data (V1, V2); Louizos & Welling 2016.

    What is maximised is then not a lower bound on the log evidence (V4).

    Parameters
    ----------
    pairs
        Pairs of pseudo-data in each layer: 5 in their regression, 50 on MNIST.
    noise
        Most relative noise of the pseudo-data: 0.07 in their regression, 0.01 on MNIST.
    """

    name: ClassVar[str] = "matrix"
    pairs: int = 5
    noise: float = 0.07

    def __post_init__(self) -> None:
        if self.pairs < 0:
            raise ValueError(f"`pairs` must not be negative, got {self.pairs!r}.")
        if not 0 <= self.noise < 1:
            raise ValueError(
                f"`noise` is relative, from 0 to less than 1, got {self.noise!r}."
            )

    def weights(
        self, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """Matrix normal weights."""
        extra = {"pairs": self.pairs, "noise": float(self.noise)}
        return MatrixWeights.create(d_in, nodes, sd=sd, spread=spread, key=key, **extra)


GIVEN: dict[str, AbstractPosterior] = {"factorised": Factorised(), "node": Node()}
POSTERIORS: dict[str, AbstractPosterior] = {
    **GIVEN,
    "tied": Tied(),
    "matrix": Matrix(),
}
