"""Weight posteriors that a user can choose, before the size of a layer is known."""

import abc
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import PRNGKeyArray

from .matrix import MatrixWeights
from .weights import AbstractWeights, MeanFieldWeights


@dataclass(frozen=True, kw_only=True)
class AbstractWeightPosterior(abc.ABC):
    """The variational family of the weights of each layer."""

    name: ClassVar[str]

    @abc.abstractmethod
    def weights(
        self, d_in: int, nodes: int, *, sd: float, start_sd: float, key: PRNGKeyArray
    ) -> AbstractWeights:
        """The weights of a layer before training.

        Parameters
        ----------
        sd
            Standard deviation of each weight under q.
        start_sd
            Standard deviation of the random locations.
        """


@dataclass(frozen=True, kw_only=True)
class MeanField(AbstractWeightPosterior):
    """An independent normal distribution for each weight."""

    name: ClassVar[str] = "mean-field"

    def weights(
        self, d_in: int, nodes: int, *, sd: float, start_sd: float, key: PRNGKeyArray
    ) -> MeanFieldWeights:
        """Independent normal weights."""
        return MeanFieldWeights.create(d_in, nodes, sd=sd, start_sd=start_sd, key=key)


@dataclass(frozen=True, kw_only=True)
class LowRank(AbstractWeightPosterior):
    """Independent normals whose variances have a low rank over nodes and inputs.

    A training step needs about half of the multiplications of a mean-field posterior
    with free variances; Swiatkowski et al. (2020).

    Parameters
    ----------
    rank
        Rank of the matrix of variances in each layer. At 1 the variance of a weight is
        a number of its node times a number of its input.
    """

    name: ClassVar[str] = "low-rank"
    rank: int = 1

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"`rank` must be at least 1, got {self.rank!r}.")

    def weights(
        self, d_in: int, nodes: int, *, sd: float, start_sd: float, key: PRNGKeyArray
    ) -> MeanFieldWeights:
        """Independent normal weights with variances of this rank."""
        sizes = {"sd": sd, "start_sd": start_sd, "rank": int(self.rank)}
        return MeanFieldWeights.create(d_in, nodes, **sizes, key=key)


@dataclass(frozen=True, kw_only=True)
class Matrix(AbstractWeightPosterior):
    """A matrix normal conditioned on pseudo-data; Louizos & Welling (2016).

    The training objective is then not a lower bound on the log evidence.

    Parameters
    ----------
    pairs
        Number of pseudo-data pairs in each layer. Louizos and Welling used 5 for
        regression and 50 for MNIST.
    noise
        Largest relative noise of the pseudo-data. Louizos and Welling used 0.07 for
        regression and 0.01 for MNIST.
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
        self, d_in: int, nodes: int, *, sd: float, start_sd: float, key: PRNGKeyArray
    ) -> MatrixWeights:
        """Matrix normal weights."""
        return MatrixWeights.create(
            d_in,
            nodes,
            sd=sd,
            start_sd=start_sd,
            pairs=self.pairs,
            noise=float(self.noise),
            key=key,
        )


POSTERIORS: dict[str, AbstractWeightPosterior] = {
    "mean-field": MeanField(),
    "low-rank": LowRank(),
    "matrix": Matrix(),
}
