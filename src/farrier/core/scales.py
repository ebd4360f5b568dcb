"""Half-Cauchy scales, written with one inverse-gamma auxiliary variable.

    tau ~ C+(0, b)  <=>  tau^2 | lam ~ IG(1/2, 1/lam),  lam ~ IG(1/2, 1/b^2)        (M2)

Expectations are closed under q(ln tau) = N(loc, scale^2) and q(lam) = IG(1, d).
`tau` is a standard deviation here, as everywhere in farrier. Derivation: docs/math.md.
"""

import abc
import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .families import InverseGamma, LogNormal


class AbstractScalePrior(eqx.Module):
    """The prior of a positive scale, as far as the bound needs it."""

    @abc.abstractmethod
    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || prior) or an upper bound on it, one value for each scale."""

    @abc.abstractmethod
    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """ln p of the logarithm of each scale, auxiliary variables integrated out."""

    @abc.abstractmethod
    def updated(self, q: LogNormal) -> Self:
        """The prior with its auxiliary variables at their optimum for `q`."""


class HalfCauchy(AbstractScalePrior):
    """C+(0, b) with the auxiliary variable already at its optimum (M5)."""

    b: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """Minus the share of the bound of one scale and its auxiliary variable (M5).

        ln(pi b) + ln(E[1 / tau^2] + 1 / b^2) + loc - 1/2 ln(8 pi e scale^2)
        """
        # ln(E[1 / tau^2] + 1 / b^2), safe where E[1 / tau^2] overflows.
        log_rate = jnp.logaddexp(-2 * q.loc + 2 * q.scale**2, -2 * math.log(self.b))
        constant = math.log(math.pi * self.b) - 0.5 * math.log(8 * math.pi * math.e)
        return constant + log_rate + q.loc - q.log_scale

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)

    def updated(self, q: LogNormal) -> Self:
        """Itself: there is nothing left to update."""
        del q
        return self


class QuadratureHalfCauchy(AbstractScalePrior):
    """C+(0, b) without auxiliary variable: the divergence itself, by quadrature."""

    b: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || C+(0, b)), tighter than (M5) by its Jensen gap (G2).

        -H[q(s)] - ln(2 / (pi b)) + E ln(1 + s^2 / b^2)
        """
        log_b = math.log(self.b)
        excess = q.expected(lambda log_s: jax.nn.softplus(2 * (log_s - log_b)))
        return excess - q.entropy() - math.log(2 / (math.pi * self.b))

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)

    def updated(self, q: LogNormal) -> Self:
        """Itself: it has no auxiliary variables."""
        del q
        return self


class AuxiliaryHalfCauchy(AbstractScalePrior):
    """C+(0, b) with its auxiliary variable kept: q(lam) = IG(1, d) (M2, M4).

    The bound is differentiated with `d` held fixed, and `updated` moves `d` to its
    optimum after each step of the optimiser, as the paper describes.
    """

    b: float
    rate: Float[Array, "*shape"] = eqx.field(default_factory=lambda: jnp.ones(()))

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """Minus the share of the bound of tau^2 and lam, at the present q(lam) (M9).

        -E ln p(tau^2 | lam) - E ln p(lam) - H[q(tau^2)] - H[q(lam)]
        """
        rate = lax.stop_gradient(self.rate)
        lam = InverseGamma(jnp.ones_like(rate), rate)
        log_lam, inverse_lam = lam.expected_log(), lam.mean_inverse()
        log_gamma_half = 0.5 * math.log(math.pi)
        log_p_tau_sq = (
            -0.5 * log_lam - log_gamma_half - 3 * q.loc - inverse_lam * q.moment(-2)
        )
        inverse_b_sq = jnp.full_like(rate, self.b**-2)
        log_p_lam = lam.expected_log_density(0.5, inverse_b_sq, jnp.log(inverse_b_sq))
        return -(log_p_tau_sq + log_p_lam + q.squared().entropy() + lam.entropy())

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)

    def updated(self, q: LogNormal) -> Self:
        """The same prior with q(lam) at its optimum (M4)."""
        return type(self)(self.b, optimal_rate(q, self.b))


class Exponential(AbstractScalePrior):
    """p(s) = exp(-s / mean) / mean: no spike at zero and a light tail (M11)."""

    mean: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || prior) = ln mean + E[s] / mean - H[q(s)] (M11)."""
        return math.log(self.mean) + q.moment(1) / self.mean - q.entropy()

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Of ln s: -ln mean - s / mean + ln s (M11)."""
        return log_s - math.log(self.mean) - jnp.exp(log_s) / self.mean

    def updated(self, q: LogNormal) -> Self:
        """Itself: it has no auxiliary variables."""
        del q
        return self


def log_half_cauchy(log_s: Float[Array, "*shape"], b: float) -> Float[Array, "*shape"]:
    """ln p(ln s) = ln(2 / (pi b)) - ln(1 + s^2 / b^2) + ln s for s ~ C+(0, b) (M12)."""
    constant = math.log(2 / (math.pi * b))
    return constant - jax.nn.softplus(2 * (log_s - math.log(b))) + log_s


def optimal_rate(tau: LogNormal, b: float) -> Float[Array, "*shape"]:
    """Rate of the best q(lam) = IG(1, d) for a fixed q(tau) (M4).

    d = E[1 / tau^2] + 1 / b^2
    """
    return tau.moment(-2) + 1 / b**2


def half_cauchy_sample(
    b: float, shape: tuple[int, ...], *, key: PRNGKeyArray
) -> Float[Array, "..."]:
    """Draws of tau ~ C+(0, b) through the auxiliary variable (M2)."""
    key_lam, key_tau = jr.split(key)
    half = jnp.full(shape, 0.5)
    lam = InverseGamma(half, jnp.full(shape, b**-2)).sample(key=key_lam)
    return jnp.sqrt(InverseGamma(half, 1 / lam).sample(key=key_tau))


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
        spread: float = 0.1,
    ) -> Self:
        """A scale with ln s ~ N(ln start, spread^2) under q."""
        loc = jnp.full(shape, math.log(start), float)
        q = LogNormal(loc, jnp.log(jnp.full(shape, spread, float)))
        return cls(q, prior.updated(q))

    def kl(self) -> Float[Array, ""]:
        """Divergence from the prior, summed over the nodes; never negative."""
        return self.prior.kl(self.q).sum()

    def updated(self) -> Self:
        """The scale with its auxiliary variables at their optimum."""
        return type(self)(self.q, self.prior.updated(self.q))


HALF_CAUCHYS = {
    "collapsed": HalfCauchy,
    "auxiliary": AuxiliaryHalfCauchy,
    "quadrature": QuadratureHalfCauchy,
}
