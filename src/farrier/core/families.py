"""Variational factors: moments, entropies, KL divergences, draws.

    q(ln s) = N(loc, scale^2)  =>  E[s^p] = exp(p loc + p^2 scale^2 / 2)            (M3)

Every `..._rate` is the rate of the density as written in docs/notation.md: Gamma(a, b)
has mean a / b.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float, PRNGKeyArray

POINTS = 24  # of the quadrature over a log-normal distribution


class Normal(eqx.Module):
    """Independent normals, one for each entry."""

    loc: Float[Array, "*shape"]
    log_scale: Float[Array, "*shape"]  # scale = exp(log_scale)

    @property
    def scale(self) -> Float[Array, "*shape"]:
        """Standard deviation."""
        return jnp.exp(self.log_scale)

    @property
    def variance(self) -> Float[Array, "*shape"]:
        """scale^2."""
        return jnp.exp(2 * self.log_scale)

    def entropy(self) -> Float[Array, "*shape"]:
        """1/2 ln(2 pi e scale^2)   (F1)."""
        return 0.5 * math.log(2 * math.pi * math.e) + self.log_scale

    def second_moment(self) -> Float[Array, "*shape"]:
        """E[x^2] = loc^2 + scale^2   (F2)."""
        return self.loc**2 + self.variance

    def at(self, noise: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The draw that given standard normal noise makes."""
        return self.loc + self.scale * noise


class LogNormal(eqx.Module):
    """A positive s with q(ln s) = N(loc, scale^2)."""

    loc: Float[Array, "*shape"]
    log_scale: Float[Array, "*shape"]  # scale = exp(log_scale)

    @property
    def scale(self) -> Float[Array, "*shape"]:
        """Standard deviation of ln s."""
        return jnp.exp(self.log_scale)

    def moment(self, power: float) -> Float[Array, "*shape"]:
        """E[s^power] = exp(power * loc + power^2 * scale^2 / 2)   (M3)."""
        return jnp.exp(power * self.loc + 0.5 * power**2 * self.scale**2)

    def entropy(self) -> Float[Array, "*shape"]:
        """Entropy of s itself: loc + 1/2 ln(2 pi e scale^2)   (F3)."""
        return self.loc + 0.5 * math.log(2 * math.pi * math.e) + self.log_scale

    def expected(self, function: Callable[[Array], Array]) -> Float[Array, "*shape"]:
        """E[function(ln s)] by Gauss-Hermite quadrature, entry by entry   (G1)."""
        points, weights = np.polynomial.hermite_e.hermegauss(POINTS)
        ones = (1,) * self.loc.ndim
        points = jnp.asarray(points, self.loc.dtype).reshape(-1, *ones)
        weights = jnp.asarray(weights / weights.sum(), self.loc.dtype)
        values = function(self.loc[None] + self.scale[None] * points)
        return jnp.tensordot(weights, values, 1)

    def log_at(self, noise: Float[Array, "nodes batch"]) -> Float[Array, "nodes batch"]:
        """ln s of the draws that given standard normal noise makes."""
        return self.loc.reshape(-1, 1) + self.scale.reshape(-1, 1) * noise


class Gamma(eqx.Module):
    """A positive x with density proportional to x^(shape - 1) exp(-rate x).

    Only the rate is learned by gradient. The shape of the optimal q for a precision is
    known in advance (M8), so no gradient flows through it.
    """

    fixed_shape: Float[Array, "*shape"]
    log_rate: Float[Array, "*shape"]

    @property
    def shape(self) -> Float[Array, "*shape"]:
        """Shape parameter, held fixed under differentiation."""
        return lax.stop_gradient(self.fixed_shape)

    def mean(self) -> Float[Array, "*shape"]:
        """E[x] = shape / rate   (F4)."""
        return self.shape * jnp.exp(-self.log_rate)

    def expected_log(self) -> Float[Array, "*shape"]:
        """E[ln x] = digamma(shape) - ln rate   (F5)."""
        return self._digamma - self.log_rate

    def entropy(self) -> Float[Array, "*shape"]:
        """shape - ln rate + ln Gamma(shape) + (1 - shape) digamma(shape)   (F6)."""
        a = self.shape
        return a - self.log_rate + gammaln(a) + (1 - a) * self._digamma

    @property
    def _digamma(self) -> Float[Array, "*shape"]:
        # The barrier keeps XLA from computing it again for each of its uses.
        return lax.optimization_barrier(digamma(self.shape))

    def kl_to(self, shape: float, rate: float) -> Float[Array, "*shape"]:
        """KL(q || Gamma(shape, rate))   (F7).

        -entropy - shape ln rate + ln Gamma(shape) - (shape - 1) E[ln x] + rate E[x]
        """
        constant = math.lgamma(shape) - shape * math.log(rate)
        cross = constant - (shape - 1) * self.expected_log() + rate * self.mean()
        return cross - self.entropy()

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "*shape"]:
        """One draw."""
        return jr.gamma(key, self.shape) * jnp.exp(-self.log_rate)


class Conditional(eqx.Module):
    """A normal distribution given all earlier draws: factor * N(loc, base_variance).

    `noise` is the standard normal noise of its one draw. The factor is a separate
    field: multiplied into the variance, it would cost a second exponential an entry.
    """

    factor: Float[Array, "#nodes batch"]
    loc: Float[Array, "nodes batch"]
    base_variance: Float[Array, "nodes batch"]  # before the factor
    noise: Float[Array, "nodes batch"]

    @property
    def mean(self) -> Float[Array, "nodes batch"]:
        """Mean, factor included."""
        return self.factor * self.loc

    @property
    def variance(self) -> Float[Array, "nodes batch"]:
        """Variance, factor included."""
        return self.factor**2 * self.base_variance

    def scaled(self, multiplier: Float[Array, "nodes 1"]) -> "Conditional":
        """The distribution of each node times its multiplier."""
        factor = self.factor * multiplier
        return Conditional(factor, self.loc, self.base_variance, self.noise)

    def draw(self) -> Float[Array, "nodes batch"]:
        """Mean + standard deviation x noise."""
        return self.factor * (self.loc + jnp.sqrt(self.base_variance) * self.noise)
