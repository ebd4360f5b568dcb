"""Weight posteriors that a user can name, before they know the size of a layer."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .matrix import MatrixWeights
from .weights import AbstractWeights, FactorisedWeights


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


POSTERIORS: dict[str, AbstractPosterior] = {
    "factorised": Factorised(),
    "matrix": Matrix(),
}
