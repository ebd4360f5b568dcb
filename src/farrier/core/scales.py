"""Half-Cauchy scales under a log-normal q.

    tau ~ C+(0, b)  <=>  tau^2 | lam ~ IG(1/2, 1/lam),  lam ~ IG(1/2, 1/b^2)        (M2)

Expectations are closed under q(ln tau) = N(loc, scale^2) and q(lam) = IG(1, d), and
with d at its optimum lam is gone from the bound (M5). Without lam, the divergence needs
E ln(1 + tau^2 / b^2), the mean of a softplus over a normal distribution (G2), (G5).
`tau` is a standard deviation here, as everywhere in farrier. Derivation: docs/math.md.
"""

import abc
import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import erfc
from jaxtyping import Array, Bool, Float

from .families import LogNormal

# The logistic distribution as a mixture of eight normals with mean 0 (Monahan &
# Stefanski 1992): shares, and 1 / standard deviation. Test:
# tests/core/test_scales.py::test_logistic_distribution_is_a_mixture_of_eight_normals.
_SHARES = (
    0.003246343272134,
    0.051517477033972,
    0.195077912673858,
    0.315569823632818,
    0.274149576158423,
    0.131076880695470,
    0.027912418727972,
    0.001449567805354,
)
_INVERSE_SDS = (
    1.365340806296348,
    1.059523971016916,
    0.830791313765644,
    0.650732166639391,
    0.508135425366489,
    0.396313345166341,
    0.308904252267995,
    0.238212616409306,
)


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
    """C+(0, b) without an auxiliary variable: the KL divergence itself."""

    b: float

    def kl(self, q: LogNormal) -> Float[Array, "*shape"]:
        """KL(q || C+(0, b)), less than (M5) by its Jensen gap (G2).

        -H[q(s)] - ln(2 / (pi b)) + E ln(1 + s^2 / b^2)
        """
        log_b = math.log(self.b)
        excess = expected_softplus(2 * (q.loc - log_b), 2 * q.scale)
        return excess - q.entropy() - math.log(2 / (math.pi * self.b))

    def log_density(self, log_s: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Log density of ln s (M12)."""
        return log_half_cauchy(log_s, self.b)


@jax.custom_jvp
def expected_softplus(
    mean: Float[Array, "*shape"], sd: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E softplus(z) for z ~ N(mean, sd^2), within 1e-8 for every mean and sd (G5).

    sum_i p_i (mean Phi(t_i) + r_i phi(t_i)),  t_i = mean / r_i,  r_i^2 = sd^2 + c_i^2
    """
    return _softplus_parts(mean, sd)[0]


@expected_softplus.defjvp
def _expected_softplus_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    value, to_mean, to_sd = _softplus_parts(*primals)
    return value, to_mean * tangents[0] + to_sd * tangents[1]


def _softplus_parts(
    mean: Float[Array, "*shape"], sd: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], ...]:
    """The expectation (G5) and its derivatives in mean and sd.

    The derivatives are sum_i p_i Phi(t_i) and sd sum_i p_i phi(t_i) / r_i. For accuracy
    in both tails, max(mean, 0) is apart from the rest, which is even in the mean:
    mean Phi(t) + r phi(t) = max(mean, 0) + r phi(t) - |mean| Phi(-|t|).
    """
    size = jnp.abs(mean)
    even = tail = curvature = jnp.zeros_like(mean)
    # Unrolled, so that XLA fuses it: an array with an axis of eight takes four times
    # as long.
    for share, inverse_sd in zip(_SHARES, _INVERSE_SDS, strict=True):
        variance = sd**2 + inverse_sd**-2
        inverse = lax.rsqrt(variance)
        t = size * inverse
        below = share * 0.5 * erfc(t * math.sqrt(0.5))
        density = share * math.sqrt(0.5 / math.pi) * jnp.exp(-0.5 * t**2) * inverse
        even += density * variance - size * below
        tail += below
        curvature += density
    above = jnp.where(mean > 0, 1 - tail, tail)
    return jnp.maximum(mean, 0) + even, above, sd * curvature


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
