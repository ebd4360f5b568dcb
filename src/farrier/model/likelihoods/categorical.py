"""Classes by softmax.

p(y = c) = softmax(f(x))_c                                                       (L2)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...core.families import Conditional
from ..distributions import ClassProbabilities
from .base import AbstractLikelihood, OutputDraws

GUMBEL_VARIANCE = math.pi**2 / 6


class CategoricalLikelihood(AbstractLikelihood):
    """Classes by softmax (L2)."""

    name: ClassVar[str] = "categorical"
    classes: int

    @property
    def d_out(self) -> int:
        """One output for each class."""
        return self.classes

    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """One sample of ln softmax(f)_y for each row, unbiased (L2)."""
        log_probability = jax.nn.log_softmax(f.draw(), axis=0)
        return jnp.take_along_axis(log_probability, y[None], axis=0)[0]

    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """Weighted sum of ln softmax(f)_y (L2)."""
        log_probability = jax.nn.log_softmax(f, axis=1)
        return weight @ jnp.take_along_axis(log_probability, y[:, None], axis=1)[:, 0]

    def predictive(
        self, outputs: OutputDraws, noise: Float[Array, "draws unknowns"]
    ) -> ClassProbabilities:
        """Softmax of each draw's outputs (P1)."""
        del noise
        return ClassProbabilities(jax.nn.softmax(outputs.drawn))

    def identified(self, f: Float[Array, "rows d_out"]) -> Float[Array, "rows d_out"]:
        """Less the mean over the classes, which a softmax does not depend on."""
        return f - f.mean(1, keepdims=True)

    def residual_variance(
        self, noise: Float[Array, " unknowns"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """That of the centred Gumbel variables behind a softmax (S1)."""
        del noise, f
        return jnp.full(self.classes, (1 - 1 / self.classes) * GUMBEL_VARIANCE)


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """Classes by softmax."""

    name: ClassVar[str] = CategoricalLikelihood.name

    def build(self, d_out: int, *, rows: float) -> CategoricalLikelihood:
        """The likelihood of `d_out` classes."""
        del rows
        return CategoricalLikelihood(d_out)
