"""Weight posteriors that a user can name, before they know the size of a layer."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import PRNGKeyArray

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


POSTERIORS: dict[str, AbstractPosterior] = {"factorised": Factorised()}
