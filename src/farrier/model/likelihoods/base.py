"""What a likelihood is: a small class that says how targets depend on the outputs.

A new likelihood is one class in one file. It states its number of outputs, its expected
log density under the variational posterior, its log marginal for MCMC, its predictive
distribution and the residual variance that node scores are measured against. The other
methods have defaults for a likelihood without unknowns of its own.
"""

import abc
from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...core.families import Conditional
from ...core.priors import AbstractPrior
from ..distributions import AbstractDistribution


class OutputDraws(eqx.Module):
    """Outputs of all posterior draws for some rows.

    `loc` and `variance` are the mean and variance over the output layer's weights where
    these are integrated (`integrates_output`), else the drawn outputs and zeros.
    `drawn` has the outputs with the output layer's weights drawn too.
    """

    loc: Float[Array, "draws rows d_out"]
    variance: Float[Array, "draws rows d_out"]
    drawn: Float[Array, "draws rows d_out"]


class AbstractLikelihood(eqx.Module):
    """The distribution of the target given the network's outputs."""

    name: ClassVar[str]
    integrates_output: ClassVar[bool] = False  # predictions integrate the last weights

    @property
    @abc.abstractmethod
    def d_out(self) -> int:
        """Number of outputs it needs from the network."""

    @abc.abstractmethod
    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """E[ln p(y | f)] for each row: in closed form, or an unbiased sample of it."""

    @abc.abstractmethod
    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """ln p(y | f) of all rows up to a constant, its own unknowns integrated out."""

    @abc.abstractmethod
    def predictive(
        self, outputs: OutputDraws, noise: Float[Array, "draws unknowns"]
    ) -> AbstractDistribution:
        """The predictive distribution of the targets (P1)."""

    @abc.abstractmethod
    def residual_variance(
        self, noise: Float[Array, " unknowns"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """Variance of the target given the outputs, in the units of each output (S1).

        `noise` is `mean_noise` of the likelihood or of posterior samples.
        """

    def kl(self) -> dict[str, Float[Array, ""]]:
        """KL terms of its own unknowns by name: none by default."""
        return {}

    def identified(self, f: Float[Array, "rows d_out"]) -> Float[Array, "rows d_out"]:
        """Outputs, or weights into them, without what p(y) does not depend on."""
        return f

    @property
    def noise_outputs(self) -> Bool[np.ndarray, " d_out"]:
        """Outputs that make the noise depend on the row: held at 0 at first (T6)."""
        return np.zeros(self.d_out, bool)

    def output_prior(self, prior: AbstractPrior) -> AbstractPrior:
        """Prior of the output layer, given that of the hidden layers."""
        return prior.output_prior()

    def resumed(self, fresh: "AbstractLikelihood") -> Self:
        """What was learned, for the rows and the prior of a fresh likelihood (M8)."""
        del fresh
        return self

    # -- its own unknowns, such as the precision of a normal noise --------------------

    @property
    def unknowns(self) -> int:
        """Number of its unknowns."""
        return 0

    def mean_noise(self) -> Float[Array, " unknowns"]:
        """Mean of its unknowns under q, as `residual_variance` takes it."""
        return jnp.zeros(0)

    def noise_draws(
        self, draws: int, *, key: PRNGKeyArray
    ) -> Float[Array, "draws unknowns"]:
        """Samples of its unknowns under q."""
        del key
        return jnp.zeros((draws, 0))

    def noise_given(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Any:
        """What `sample_noise` needs to sample the unknowns given the outputs (H2)."""
        del y, f, weight
        return None

    def sample_noise(
        self, given: Any, draws: int, generator: np.random.Generator
    ) -> Float[Array, "draws unknowns"]:
        """Samples of the unknowns, one for each draw of the outputs."""
        del given, generator
        return jnp.zeros((draws, 0))

    def sample_targets(
        self,
        f: Float[Array, "draws rows d_out"],
        noise: Float[Array, "draws unknowns"],
        rows: Int[Array, " rows"],
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "draws rows targets"]:
        """Samples of the targets given drawn outputs; `rows` number the noise."""
        raise NotImplementedError(f"{type(self).__name__} cannot sample targets.")
