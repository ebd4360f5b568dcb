"""The half-Cauchy with its auxiliary variable kept: an oracle for the collapsed form.

    tau ~ C+(0, b)  <=>  tau^2 | lam ~ IG(1/2, 1/lam),  lam ~ IG(1/2, 1/b^2)        (M2)

The bound is differentiated with q(lam) = IG(1, d) held fixed, and `updated` moves d to
its optimum after each step of the optimiser, as the paper describes (M4), (M9).
"""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Float

from farrier.core.families import LogNormal
from farrier.core.scales import AbstractScalePrior, log_half_cauchy


class InverseGamma(eqx.Module):
    """A positive x with 1 / x ~ Gamma(shape, rate)."""

    shape: Float[Array, "*shape"]
    rate: Float[Array, "*shape"]

    def mean_inverse(self):
        """E[1 / x] = shape / rate   (F8)."""
        return self.shape / self.rate

    def expected_log(self):
        """E[ln x] = ln rate - digamma(shape)   (F9)."""
        return jnp.log(self.rate) - digamma(self.shape)

    def entropy(self):
        """shape + ln rate + ln Gamma(shape) - (1 + shape) digamma(shape)   (F10)."""
        a = self.shape
        return a + jnp.log(self.rate) + gammaln(a) - (1 + a) * digamma(a)

    def expected_log_density(self, shape, rate, log_rate):
        """E ln IG(x; shape, rate), where E[rate] and E[ln rate] may differ   (F11)."""
        constant = shape * log_rate - math.lgamma(shape)
        return constant - (shape + 1) * self.expected_log() - rate * self.mean_inverse()

    def sample(self, *, key):
        """One draw."""
        return self.rate / jr.gamma(key, self.shape)


class AuxiliaryHalfCauchy(AbstractScalePrior):
    """C+(0, b) with q(lam) = IG(1, d) kept."""

    b: float
    rate: Float[Array, "*shape"]

    def kl(self, q):
        """-E ln p(tau^2 | lam) - E ln p(lam) - H[q(tau^2)] - H[q(lam)]   (M9)."""
        rate = lax.stop_gradient(self.rate)
        lam = InverseGamma(jnp.ones_like(rate), rate)
        log_p_tau_sq = -0.5 * lam.expected_log() - 0.5 * math.log(math.pi) - 3 * q.loc
        log_p_tau_sq = log_p_tau_sq - lam.mean_inverse() * q.moment(-2)
        inverse_b_sq = jnp.full_like(rate, self.b**-2)
        log_p_lam = lam.expected_log_density(0.5, inverse_b_sq, jnp.log(inverse_b_sq))
        entropy = squared(q).entropy() + lam.entropy()
        return -(log_p_tau_sq + log_p_lam + entropy)

    def log_density(self, log_s):
        """Of ln s, lam integrated out (M12)."""
        return log_half_cauchy(log_s, self.b)

    def updated(self, q):
        """The same prior with q(lam) at its optimum (M4)."""
        return type(self)(self.b, optimal_rate(q, self.b))


def squared(q):
    """The distribution of s^2: q(ln s^2) = N(2 loc, 4 scale^2)."""
    return LogNormal(2 * q.loc, q.log_scale + math.log(2))


def optimal_rate(tau, b):
    """Rate of the best q(lam) = IG(1, d): d = E[1 / tau^2] + 1 / b^2 (M4)."""
    return tau.moment(-2) + 1 / b**2


def half_cauchy_sample(b, shape, *, key):
    """Draws of tau ~ C+(0, b) through the auxiliary variable (M2)."""
    key_lam, key_tau = jr.split(key)
    half = jnp.full(shape, 0.5)
    lam = InverseGamma(half, jnp.full(shape, b**-2)).sample(key=key_lam)
    return jnp.sqrt(InverseGamma(half, 1 / lam).sample(key=key_tau))
