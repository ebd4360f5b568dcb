"""Priors of the ablation: other node scales, and scales drawn once for each batch.

half-Cauchy   s_k = tau_k,  tau_k ~ C+(0, b_node), and no scale for the layer
exponential   s_k = tau_k,  tau_k ~ Exp(mean b_node)                           (M11)

They are written with what a researcher may subclass, and with nothing else.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from farrier.core.families import LogNormal
from farrier.core.forms import AbstractParametrisation
from farrier.core.priors import AbstractPrior, AbstractScaledPrior, check_positive
from farrier.core.scales import AbstractScalePrior, Scale


class Exponential(AbstractScalePrior):
    """p(s) = exp(-s / mean) / mean: finite at zero, with a light tail (M11)."""

    mean: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || prior) = ln mean + E[s] / mean - H[q(s)] (M11)."""
        return math.log(self.mean) + q.moment(1) / self.mean - q.entropy()

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of ln s: -ln mean - s / mean + ln s (M11)."""
        return log_s - math.log(self.mean) - jnp.exp(log_s) / self.mean


@dataclass(frozen=True, kw_only=True)
class NodeHalfCauchy(AbstractScaledPrior):
    """A half-Cauchy scale for each node and none for the layer.

    Without the layer scale, nothing shrinks all nodes of a layer together.
    """

    name: ClassVar[str] = "half-cauchy"
    node_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "node_scale")

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau`."""
        return {"tau": self.half_cauchy_scale(self.node_scale, (nodes,), start=start)}


@dataclass(frozen=True, kw_only=True)
class NodeExponential(AbstractScaledPrior):
    """An exponential scale for each node and none for the layer (M11).

    Its light tail shrinks the nodes that are needed too.

    Parameters
    ----------
    node_scale
        Mean of the exponential distribution.
    """

    name: ClassVar[str] = "exponential"
    node_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "node_scale")

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau`."""
        prior = Exponential(float(self.node_scale))
        return {"tau": Scale.create(prior, (nodes,), start=start)}


class BatchLogNormal(LogNormal):
    """A log-normal scale with one draw for all rows of a batch.

    Each row has the same marginal distribution as with a draw of its own, so that the
    expected ELBO is the same and its gradient far noisier.
    """

    def log_at(self, noise: Float[Array, "nodes batch"]) -> Float[Array, "nodes batch"]:
        """ln s of the draw that the noise of the first row makes, for all rows."""
        return super().log_at(jnp.broadcast_to(noise[:, :1], noise.shape))


@dataclass(frozen=True, kw_only=True)
class BatchScales(AbstractPrior):
    """Another prior, whose scales are drawn once for each batch.

    Parameters
    ----------
    prior
        The other prior.
    """

    name: ClassVar[str] = "batch-scales"
    prior: AbstractPrior

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The scales of the other prior, with the same q but one draw for a batch."""
        scales = self.prior.scales(nodes, start=start)
        return {
            name: Scale(BatchLogNormal(scale.q.loc, scale.q.log_scale), scale.prior)
            for name, scale in scales.items()
        }

    def parametrised(self) -> AbstractParametrisation:
        """That of the other prior."""
        return self.prior.parametrised()

    def output_prior(self) -> "BatchScales":
        """That of the other prior, with scales drawn once for each batch."""
        return dataclasses.replace(self, prior=self.prior.output_prior())

    def separate_output_prior(self) -> "BatchScales":
        """The same, with a scale for each output."""
        return dataclasses.replace(self, prior=self.prior.separate_output_prior())
