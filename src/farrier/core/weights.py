"""Weight posteriors, and the parametrisations that relate them to the prior.

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
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .families import LogNormal, Normal
from .random import normals, start_noise
from .scales import Scale


class Fold(eqx.Module):
    """Inputs to remove from a layer, predicted from the inputs that stay (C1).

    Over rows and draws, an input that is removed is approximated by a constant plus
    slopes times the inputs that stay. All arrays are 0 at inputs that stay.
    """

    gone: Bool[Array, " d_in"]
    constant: Float[Array, " d_in"]
    slopes: Float[Array, "d_in d_in"]  # rows: inputs that stay; columns: removed ones
    mean: Float[Array, " d_in"]
    variance: Float[Array, " d_in"]


def taken(
    array: Any, mask: Bool[np.ndarray, " entries"] | None, *, axis: int = 0
) -> Any:
    """The entries of `array` where the mask is true along one axis.

    The array belongs to JAX or NumPy, and so does the result. None stays None: trees of
    gradients and of optimiser states have no array there.
    """
    if array is None or mask is None:
        return array
    return array[(slice(None),) * axis + (mask,)]


def with_fixed_rows(
    array: Float[Array, "nodes ..."], fixed: Bool[Array, " nodes"]
) -> Float[Array, "nodes ..."]:
    """The same values, without a gradient in the rows that are fixed."""
    rows = fixed.reshape(-1, *(1,) * (array.ndim - 1))
    return jnp.where(rows, lax.stop_gradient(array), array)


class AbstractWeights(eqx.Module):
    """A posterior of the weights into the nodes of one layer, biases included."""

    can_fold: ClassVar[bool]

    @abc.abstractmethod
    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean and variance of w_k . [x, 1] for each node and row (M6, unit scale).

        Both may depend on auxiliary random variables, which `key` draws.
        """

    @abc.abstractmethod
    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw of the weights and of the biases.

        Parameters
        ----------
        inputs, nodes
            Numbers of the inputs and of the nodes: the noise of a weight depends on
            the two numbers alone, so that it is unchanged when others are removed.
        """

    @abc.abstractmethod
    def expected(self) -> Float[Array, "nodes d_in"]:
        """E[w_ki], without the biases."""

    @abc.abstractmethod
    def expected_norms(self) -> Float[Array, " nodes"]:
        """|E w_k|, biases included."""

    @abc.abstractmethod
    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|w_k|^2, biases included."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, " nodes"]:
        """Entropy of the weights into each node."""

    @abc.abstractmethod
    def extra_kl(self) -> Float[Array, ""]:
        """KL terms of auxiliary random variables other than the weights."""

    @property
    @abc.abstractmethod
    def fan_in(self) -> int:
        """Number of weights into one node, its bias included."""

    @property
    @abc.abstractmethod
    def nodes(self) -> int:
        """Number of nodes."""

    @abc.abstractmethod
    def take(
        self,
        *,
        nodes: Bool[np.ndarray, " nodes"] | None = None,
        inputs: Bool[np.ndarray, " d_in"] | None = None,
    ) -> Self:
        """The weights of the nodes and inputs whose mask entry is true.

        The tree may hold NumPy arrays, or None in the place of an array.
        """

    @abc.abstractmethod
    def folded(self, fold: Fold) -> Self:
        """The weights with those of removed inputs folded into the others (C1).

        Shapes stay the same: the weights of removed inputs are 0 with certainty.
        """

    @abc.abstractmethod
    def with_fixed_nodes(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same weights, without a gradient at the nodes that are fixed.

        Parameters that all nodes share keep their gradients.
        """


def weight_noise(
    inputs: Int[Array, " d_in"], nodes: Int[Array, " nodes"], *, key: PRNGKeyArray
) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
    """Standard normal noise of weights and biases, by node and input numbers."""
    key_kernel, key_bias = jr.split(key)
    kernel, _ = normals(nodes, inputs, key=key_kernel)
    bias, _ = normals(jnp.zeros(1, int), nodes, key=key_bias)
    return kernel, bias[0]


class MeanFieldWeights(AbstractWeights):
    """Independent normal distributions of all weights and biases.

    Row k of the kernel holds the weights into node k, because the gradient of a small
    layer then comes out of its matrix product in the faster order.
    """

    can_fold: ClassVar[bool] = True

    kernel: Normal  # nodes x d_in
    bias: Normal  # nodes

    @classmethod
    def create(
        cls, d_in: int, nodes: int, *, sd: float, start_sd: float, key: PRNGKeyArray
    ) -> Self:
        """Locations drawn from N(0, start_sd^2); posterior sd the same for all."""

        def normal(key: PRNGKeyArray, *shape: int) -> Normal:
            log_sd = jnp.asarray(np.full(shape, math.log(sd)), float)
            return Normal(start_sd * start_noise(shape, key=key), log_sd)

        key_kernel, key_bias = jr.split(key)
        return cls(normal(key_kernel, nodes, d_in), normal(key_bias, nodes))

    @property
    def fan_in(self) -> int:
        """Number of weights into one node, its bias included."""
        return self.kernel.loc.shape[1] + 1

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.kernel.loc.shape[0]

    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean and variance of w_k . [x, 1]: two matrix products."""
        del key
        mean = self.kernel.loc @ x + self.bias.loc[:, None]
        variance = self.kernel.variance @ x**2 + self.bias.variance[:, None]
        return mean, variance

    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw of the weights and of the biases."""
        kernel_noise, bias_noise = weight_noise(inputs, nodes, key=key)
        return self.kernel.at(kernel_noise), self.bias.at(bias_noise)

    def expected(self) -> Float[Array, "nodes d_in"]:
        """Locations of the weights, without those of the biases."""
        return self.kernel.loc

    def expected_norms(self) -> Float[Array, " nodes"]:
        """|E w_k|, biases included."""
        return jnp.sqrt((self.kernel.loc**2).sum(1) + self.bias.loc**2)

    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|w_k|^2 (F2)."""
        return self.kernel.second_moment().sum(1) + self.bias.second_moment()

    def entropy(self) -> Float[Array, " nodes"]:
        """Sum of the entropies (F1)."""
        return self.kernel.entropy().sum(1) + self.bias.entropy()

    def extra_kl(self) -> Float[Array, ""]:
        """0: the weights are the only random variables."""
        return jnp.zeros(())

    def take(
        self,
        *,
        nodes: Bool[np.ndarray, " nodes"] | None = None,
        inputs: Bool[np.ndarray, " d_in"] | None = None,
    ) -> Self:
        """The weights of the nodes and inputs whose mask entry is true."""
        kernel = jax.tree.map(
            lambda v: taken(taken(v, nodes), inputs, axis=1), self.kernel
        )
        return type(self)(kernel, jax.tree.map(lambda v: taken(v, nodes), self.bias))

    def folded(self, fold: Fold) -> Self:
        """The weights with those of removed inputs folded into the others (C1).

        The weights of the inputs that stay change their locations alone. All variance
        goes into the bias: that of the removed weights, times the squared mean of
        their input, and E[w^2] times the variance of their input.
        """
        loc, variance = self.kernel.loc, self.kernel.variance
        bias_loc = self.bias.loc + loc @ fold.constant
        bias_variance = self.bias.variance + variance @ fold.mean**2
        bias_variance = bias_variance + (loc**2 + variance) @ fold.variance
        gone = fold.gone[None]
        loc = jnp.where(gone, 0, loc + loc @ fold.slopes.T)
        variance = jnp.where(gone, 0, variance)
        joined = jnp.concatenate([variance, bias_variance[:, None]], 1)
        log_scale = 0.5 * jnp.log(joined)
        kernel = Normal(loc, log_scale[:, :-1])
        return type(self)(kernel, Normal(bias_loc, log_scale[:, -1]))

    def with_fixed_nodes(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same weights, without a gradient at the nodes that are fixed."""
        return jax.tree.map(lambda v: with_fixed_rows(v, fixed), self)


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
