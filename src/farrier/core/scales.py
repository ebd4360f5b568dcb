"""Half-Cauchy scales under a log-normal q.

    tau ~ C+(0, b)  <=>  tau^2 | lam ~ IG(1/2, 1/lam),  lam ~ IG(1/2, 1/b^2)        (M2)

Expectations are closed under q(ln tau) = N(loc, scale^2) and q(lam) = IG(1, d), and
with d at its optimum lam is gone from the bound (M5). `tau` is a standard deviation
here, as everywhere in farrier. Derivation: docs/math.md.
"""

import abc
import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from .families import LogNormal


class AbstractScalePrior(eqx.Module):
    """The prior of a positive scale, as far as the bound needs it."""

    @abc.abstractmethod
    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || prior) or an upper bound on it, one value for each scale."""

    @abc.abstractmethod
    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of the logarithm of each scale."""


class HalfCauchy(AbstractScalePrior):
    """C+(0, b), with its auxiliary variable at the optimum (M5)."""

    b: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """Minus the share of one scale and its auxiliary variable in the bound (M5).

        ln(pi b) + ln(E[1 / tau^2] + 1 / b^2) + loc - 1/2 ln(8 pi e scale^2)
        """
        # ln(E[1 / tau^2] + 1 / b^2), finite where E[1 / tau^2] overflows.
        log_rate = jnp.logaddexp(-2 * q.loc + 2 * q.scale**2, -2 * math.log(self.b))
        constant = math.log(math.pi * self.b) - 0.5 * math.log(8 * math.pi * math.e)
        return constant + log_rate + q.loc - q.log_scale

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)


class ExactHalfCauchy(AbstractScalePrior):
    """C+(0, b) without an auxiliary variable: its KL divergence, by quadrature."""

    b: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || C+(0, b)), less than (M5) by its Jensen gap (G2).

        -H[q(s)] - ln(2 / (pi b)) + E ln(1 + s^2 / b^2)
        """
        log_b = math.log(self.b)
        excess = q.expected(lambda log_s: jax.nn.softplus(2 * (log_s - log_b)))
        return excess - q.entropy() - math.log(2 / (math.pi * self.b))

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)


def log_half_cauchy(log_s: Float[Array, "*shape"], b: float) -> Float[Array, "*shape"]:
    """ln p(ln s) = ln(2 / (pi b)) - ln(1 + s^2 / b^2) + ln s for s ~ C+(0, b) (M12)."""
    constant = math.log(2 / (math.pi * b))
    return constant - jax.nn.softplus(2 * (log_s - math.log(b))) + log_s


class Scale(eqx.Module):
    """A scale of the model: its posterior and its prior.

    One entry for each node, or none (shape `()`) for a scale that a layer shares.
    """

    q: LogNormal
    prior: AbstractScalePrior

    @classmethod
    def create(
        cls,
        prior: AbstractScalePrior,
        shape: tuple[int, ...],
        *,
        start: float = 1.0,
        sd: float = 0.1,
    ) -> Self:
        """A scale with ln s ~ N(ln start, sd^2) under q."""
        loc = jnp.full(shape, math.log(start), float)
        return cls(LogNormal(loc, jnp.log(jnp.full(shape, sd, float))), prior)

    @property
    def is_shared(self) -> bool:
        """Whether all nodes share one entry."""
        return self.q.loc.ndim == 0

    def kl(self) -> Float[Array, ""]:
        """KL term, summed over the nodes; never negative."""
        return self.prior.kl(self.q).sum()

    def take(self, nodes: Bool[np.ndarray, " nodes"]) -> Self:
        """The scale of the nodes whose mask entry is true."""
        if self.is_shared:
            return self
        q = jax.tree.map(lambda v: v[nodes], self.q)
        return eqx.tree_at(lambda scale: scale.q, self, q)

    def with_fixed(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same scale, without a gradient at the nodes that are fixed."""
        if self.is_shared:
            return self
        stop = lambda v: jnp.where(fixed, lax.stop_gradient(v), v)
        return eqx.tree_at(lambda scale: scale.q, self, jax.tree.map(stop, self.q))


HALF_CAUCHYS = {"collapsed": HalfCauchy, "exact": ExactHalfCauchy}
