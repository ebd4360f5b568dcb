"""How the prior's scales enter the weights: parametrisations, and their KL terms.

    w_k = tau_k upsilon beta_k,   beta_k ~ N(0, I)                                  (M1)

In the non-centred parametrisation q is a distribution of beta, and the scale multiplies
each draw; in the centred one q is a distribution of w itself. The weights into node k,
its bias included, share the scale s_k:

    KL(q(w_k) || N(0, s_k^2 I)) = 1/2 E[1/s_k^2] E|w_k|^2 + n E[ln s_k]
                                  + n/2 ln(2 pi) - H[q(w_k)]                        (M7)

A slab of scale c bounds the scale from above:

    w_k = s~_k beta_k,   s~ = s c / sqrt(c^2 + s^2),   s_k = tau_k upsilon          (G3)

With a mixture prior, each weight has two normal components and no scale:

    p(w) = share N(w; 0, wide^2) + (1 - share) N(w; 0, narrow^2)                   (M10)
"""

import abc
import math
from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray

from .families import LogNormal
from .scales import Scale
from .weights import AbstractWeights


def kl_to_scaled_normal(
    weights: AbstractWeights,
    inverse_variance: Float[Array, "#nodes"],
    log_scale: Float[Array, "#nodes"],
) -> Float[Array, ""]:
    """KL from the prior N(0, s_k^2 I), summed over the nodes (M7).

    Parameters
    ----------
    inverse_variance
        E[1 / s_k^2].
    log_scale
        E[ln s_k].
    """
    n = weights.fan_in
    cross = 0.5 * inverse_variance * weights.squared_norm()
    cross = cross + n * (log_scale + 0.5 * math.log(2 * math.pi))
    return (cross - weights.entropy()).sum()


def product_of(scales: Iterable[Scale], nodes: int) -> LogNormal:
    """Distribution of the product: ln s is a sum of independent normals."""
    loc, variance = jnp.zeros(nodes), jnp.zeros(nodes)
    for scale in scales:
        loc, variance = loc + scale.q.loc, variance + scale.q.scale**2
    return LogNormal(loc, 0.5 * jnp.log(variance))


class AbstractParametrisation(eqx.Module):
    """How the weights of the network follow from the weights that q describes.

    The base methods hold where q describes beta, the standardised weights.
    """

    @abc.abstractmethod
    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Expected KL divergence of the weights from their prior, given the scales.

        In closed form, or an unbiased estimate drawn with `key`.
        """

    @abc.abstractmethod
    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """The factor that makes network weights of a draw of q."""

    @abc.abstractmethod
    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """E[multiplier^power] of each node under q of the scales."""

    # MCMC samples beta in every parametrisation but `Mixed`, which has no scale.

    def sampling_multiplier(
        self, log_scale: Float[Array, "*#shape"]
    ) -> Float[Array, "*#shape"]:
        """The factor that makes network weights of the weights sampled by MCMC."""
        return self.multiplier(log_scale)

    def standardised(
        self,
        kernel: Float[Array, "nodes d_in"],
        bias: Float[Array, " nodes"],
        factor: Float[Array, " nodes"],
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """The weights that MCMC samples, of a draw of q and its sampling multiplier."""
        del factor
        return kernel, bias

    def log_prior(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """Log prior density of the weights that MCMC samples: N(0, 1) for beta (M1)."""
        return norm.logpdf(kernel).sum() + norm.logpdf(bias).sum()


class NonCentred(AbstractParametrisation):
    """w = beta * tau * upsilon, where q is a distribution of beta (M1)."""

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """KL(q(beta) || N(0, I)) (M7, unit scale)."""
        del key
        del scales  # they multiply the draw afterwards; beta keeps its N(0, 1) prior
        return kl_to_scaled_normal(weights, jnp.ones(1), jnp.zeros(1))

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """The scale."""
        return jnp.exp(log_scale)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """Product of the moments of independent scales (M3)."""
        log_moment = jnp.zeros(nodes)
        for scale in scales:
            log_moment = log_moment + jnp.log(scale.q.moment(power))
        return jnp.exp(log_moment)


class Regularised(AbstractParametrisation):
    """Non-centred, with scales that stay below a slab (G3).

    s~ = s c / sqrt(c^2 + s^2),  s = tau upsilon
    """

    slab: float  # c

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """KL(q(beta) || N(0, I)) (M7, unit scale): s~ is a function of the scales."""
        del key, scales
        return kl_to_scaled_normal(weights, jnp.ones(1), jnp.zeros(1))

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """The scale s~, in a form that does not overflow for large s."""
        excess = jax.nn.softplus(2 * (log_scale - math.log(self.slab)))
        return jnp.exp(log_scale - 0.5 * excess)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """E[s~^power] (G4)."""
        product = product_of(scales, nodes)
        return product.expected(lambda log_s: self.multiplier(log_s) ** power)


class Centred(AbstractParametrisation):
    """q is a distribution of w, whose prior is N(0, tau^2 upsilon^2) (M1)."""

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Expected KL(q(w) || N(0, s^2 I)) under q of the scales (M7)."""
        del key
        inverse_variance, log_scale = jnp.ones(1), jnp.zeros(1)
        for scale in scales:
            inverse_variance = inverse_variance * jnp.atleast_1d(scale.q.moment(-2))
            log_scale = log_scale + jnp.atleast_1d(scale.q.loc)
        return kl_to_scaled_normal(weights, inverse_variance, log_scale)

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """One: a draw of q is a draw of the network weights."""
        return jnp.ones_like(log_scale)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """One."""
        del scales, power
        return jnp.ones(nodes)

    def sampling_multiplier(
        self, log_scale: Float[Array, "*#shape"]
    ) -> Float[Array, "*#shape"]:
        """The scale: MCMC samples beta here too."""
        return jnp.exp(log_scale)

    def standardised(
        self,
        kernel: Float[Array, "nodes d_in"],
        bias: Float[Array, " nodes"],
        factor: Float[Array, " nodes"],
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """beta = w / s (M1)."""
        return kernel / factor[:, None], bias / factor


class Mixed(AbstractParametrisation):
    """q is a distribution of w, whose prior is a mixture of two normals (M10)."""

    share: float
    wide: float
    narrow: float

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """-H[q(w)] - ln p(w) at one draw of all weights (M10): an unbiased estimate."""
        del scales
        inputs, nodes = jnp.arange(weights.fan_in - 1), jnp.arange(weights.nodes)
        draw = weights.sample(inputs, nodes, key=key)
        return -weights.entropy().sum() - self.log_prior(*draw)

    def log_density(self, w: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """ln p(w) (M10)."""
        return jnp.logaddexp(
            math.log(self.share) + norm.logpdf(w, scale=self.wide),
            math.log1p(-self.share) + norm.logpdf(w, scale=self.narrow),
        )

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """One: there is no scale."""
        return jnp.ones_like(log_scale)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """One."""
        del scales, power
        return jnp.ones(nodes)

    def log_prior(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """Log density of all weights under the mixture (M10)."""
        return self.log_density(kernel).sum() + self.log_density(bias).sum()


PARAMETRISATIONS = {"non-centred": NonCentred, "centred": Centred}
