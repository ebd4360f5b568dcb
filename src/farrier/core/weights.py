"""Weight posteriors, and how the prior stands to them.

    w_k = tau_k upsilon beta_k,   beta_k ~ N(0, I)                                  (M1)

Non-centred, the posterior stands on beta and the scale multiplies the draw; centred, it
stands on w itself. The weights into node k, its bias included, share the scale s_k:

    KL(q(w_k) || N(0, s_k^2 I)) = 1/2 E[1/s_k^2] E|w_k|^2 + n E[ln s_k]
                                  + n/2 ln(2 pi) - H[q(w_k)]                        (M7)

Regularised, the scale goes no further than a slab of scale c:

    w_k = s~_k beta_k,   s~ = s c / sqrt(c^2 + s^2),   s_k = tau_k upsilon          (G3)

Or each weight has a mixture of two normals as its prior, and no scale:

    p(w) = share N(w; 0, wide^2) + (1 - share) N(w; 0, narrow^2)                   (M10)
"""

import abc
import math
from collections.abc import Iterable
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .families import LogNormal, Normal
from .random import normals, start_noise
from .scales import Scale


class AbstractWeights(eqx.Module):
    """A posterior over the weights into the nodes of one layer, biases included."""

    @abc.abstractmethod
    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean and variance of w_k . [x, 1] for each node and row (M6, unit scale).

        They may depend on a draw of more than the weights, for which there is the key.
        """

    @abc.abstractmethod
    def expected(self) -> Float[Array, "nodes d_in"]:
        """E[w_ki], biases left out."""

    @abc.abstractmethod
    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|w_k|^2."""

    @abc.abstractmethod
    def expected_norms(self) -> Float[Array, " nodes"]:
        """|E w_k|."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, " nodes"]:
        """Entropy of the weights into each node."""

    @abc.abstractmethod
    def own_kl(self) -> Float[Array, ""]:
        """Divergence of what this posterior has besides the weights."""

    @abc.abstractmethod
    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw of the weights and of the biases.

        `inputs` and `nodes` are the numbers under which each has its noise.
        """

    @property
    @abc.abstractmethod
    def fan_in(self) -> int:
        """Weights into one node, its bias included."""

    @property
    @abc.abstractmethod
    def nodes(self) -> int:
        """Number of nodes."""


class Fold(eqx.Module):
    """Inputs that leave a layer, and what they say in terms of those that stay (C1).

    Over rows and draws, an input that leaves is its constant plus its slopes times the
    others. All are 0 for inputs that stay.
    """

    gone: Bool[Array, " d_in"]
    constant: Float[Array, " d_in"]
    slopes: Float[Array, "d_in d_in"]  # rows: those that stay; columns: those that go
    mean: Float[Array, " d_in"]
    variance: Float[Array, " d_in"]


class NormalLaw(eqx.Module):
    """The weights into node k as one normal law, the bias last (N1).

    w_k ~ N(loc_k, diag(own_k) + root_k root_k')
    """

    loc: Float[Array, "nodes fan_in"]
    own: Float[Array, "nodes fan_in"]  # variance that a weight shares with no other
    root: Float[Array, "nodes fan_in columns"]

    @property
    def variance(self) -> Float[Array, "nodes fan_in"]:
        """Variance of each weight."""
        return self.own + (self.root**2).sum(2)

    def folded(self, fold: Fold) -> "NormalLaw":
        """The law with the weights of inputs that leave moved into the rest (C1, N5).

        What is random about them goes into the bias: with the mean of their input it
        stays correlated with the other weights, with its spread it does not.
        """
        kernel = self.loc[:, :-1]
        second = kernel**2 + self.variance[:, :-1]
        zero = jnp.pad(fold.gone, (0, 1))  # the bias stays
        loc = jnp.concatenate([kernel + kernel @ fold.slopes.T, self.loc[:, -1:]], 1)
        loc = jnp.where(zero[None], 0, loc).at[:, -1].add(kernel @ fold.constant)
        own = jnp.where(zero[None], 0, self.own)
        own = own.at[:, -1].add(self.own[:, :-1] @ fold.mean**2)
        own = own.at[:, -1].add(second @ fold.variance)
        root = jnp.where(zero[None, :, None], 0, self.root)
        moved = jnp.einsum("kic,i->kc", self.root[:, :-1], fold.mean)
        return NormalLaw(loc, own, root.at[:, -1].add(moved))


class AbstractNormalWeights(AbstractWeights):
    """Weights that are one normal law for each node, whatever their covariance."""

    @abc.abstractmethod
    def law(self) -> NormalLaw:
        """The law of the weights into each node."""

    @abc.abstractmethod
    def with_law(self, law: NormalLaw) -> Self:
        """Weights of this form with the law that folding has left."""

    @abc.abstractmethod
    def without_inputs(self, kept: Bool[np.ndarray, " d_in"]) -> Self:
        """The weights of the kept inputs, after the others were folded away."""

    @abc.abstractmethod
    def log_density(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """ln q of all weights of the layer."""


def weight_noise(
    inputs: Int[Array, " d_in"], nodes: Int[Array, " nodes"], *, key: PRNGKeyArray
) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
    """Standard normal noise for weights and biases, by the numbers of both ends."""
    key_kernel, key_bias = jr.split(key)
    kernel, _ = normals(nodes, inputs, key=key_kernel)
    bias, _ = normals(jnp.zeros(1, int), nodes, key=key_bias)
    return kernel, bias[0]


class FactorisedWeights(AbstractNormalWeights):
    """Independent normals for all weights and biases.

    Row k of the kernel holds the weights into node k: so the gradient of a small layer
    comes out of its matrix product in the faster of the two orders.
    """

    kernel: Normal  # nodes x d_in
    bias: Normal

    @classmethod
    def create(
        cls, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> Self:
        """Locations drawn from N(0, spread^2); posterior sd the same for all."""

        def normal(key: PRNGKeyArray, *shape: int) -> Normal:
            log_sd = jnp.asarray(np.full(shape, math.log(sd)), float)
            return Normal(spread * start_noise(shape, key=key), log_sd)

        key_kernel, key_bias = jr.split(key)
        return cls(normal(key_kernel, nodes, d_in), normal(key_bias, nodes))

    @property
    def fan_in(self) -> int:
        """Weights into one node, its bias included."""
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

    def expected(self) -> Float[Array, "nodes d_in"]:
        """Their locations, biases left out."""
        return self.kernel.loc

    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|w_k|^2 (F2)."""
        return self.kernel.second_moment().sum(1) + self.bias.second_moment()

    def expected_norms(self) -> Float[Array, " nodes"]:
        """|E w_k|."""
        return jnp.sqrt((self.kernel.loc**2).sum(1) + self.bias.loc**2)

    def entropy(self) -> Float[Array, " nodes"]:
        """Sum of the entropies (F1)."""
        return self.kernel.entropy().sum(1) + self.bias.entropy()

    def own_kl(self) -> Float[Array, ""]:
        """None: there is nothing but the weights."""
        return jnp.zeros(())

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

    def law(self) -> NormalLaw:
        """Without any covariance (N1)."""
        join = lambda kernel, bias: jnp.concatenate([kernel, bias[:, None]], 1)
        return NormalLaw(
            join(self.kernel.loc, self.bias.loc),
            join(self.kernel.variance, self.bias.variance),
            jnp.zeros((self.nodes, self.fan_in, 0)),
        )

    def with_law(self, law: NormalLaw) -> Self:
        """Independent normals of the same means and variances."""
        log_scale = 0.5 * jnp.log(law.variance)
        kernel = Normal(law.loc[:, :-1], log_scale[:, :-1])
        return type(self)(kernel, Normal(law.loc[:, -1], log_scale[:, -1]))

    def without_inputs(self, kept: Bool[np.ndarray, " d_in"]) -> Self:
        """The weights of the kept inputs."""
        return type(self)(jax.tree.map(lambda v: v[:, kept], self.kernel), self.bias)

    def log_density(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """Sum of the log densities of all weights."""
        each = norm.logpdf(kernel, self.kernel.loc, self.kernel.scale)
        return each.sum() + norm.logpdf(bias, self.bias.loc, self.bias.scale).sum()


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
    """The law of s: ln s is normal, a sum of independent normals."""
    loc, variance = jnp.zeros(nodes), jnp.zeros(nodes)
    for scale in scales:
        loc, variance = loc + scale.q.loc, variance + scale.q.scale**2
    return LogNormal(loc, 0.5 * jnp.log(variance))


class AbstractParametrisation(eqx.Module):
    """Where the posterior stands: on the standardised weights or on the weights."""

    @abc.abstractmethod
    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Expected divergence of the weights from their prior, given the scales.

        In closed form, or an unbiased draw of it, for which there is the key.
        """

    @abc.abstractmethod
    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """What multiplies a draw from the weight posterior to give the weights."""

    @abc.abstractmethod
    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """E[multiplier^power] of each node under the posterior of the scales."""


class NonCentred(AbstractParametrisation):
    """w = beta * tau * upsilon, with the posterior placed on beta (M1)."""

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """KL(q(beta) || N(0, I)) (M7, unit scale)."""
        del key
        del scales  # they multiply the draw afterwards; beta keeps its N(0, 1) prior
        return kl_to_scaled_normal(weights, jnp.ones(1), jnp.zeros(1))

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """The scale itself."""
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
    """Non-centred, with scales that go no further than a slab (G3).

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
        """The scale s~, in a form that is safe for large s."""
        over = jax.nn.softplus(2 * (log_scale - math.log(self.slab)))
        return jnp.exp(log_scale - 0.5 * over)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """E[s~^power] (G4)."""
        law = product_of(scales, nodes)
        return law.expected(lambda log_s: self.multiplier(log_s) ** power)


class Centred(AbstractParametrisation):
    """The posterior placed on w, whose prior is N(0, tau^2 upsilon^2) (M1)."""

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """Expected KL(q(w) || N(0, s^2 I)) under the posterior of the scales (M7)."""
        del key
        inverse_variance, log_scale = jnp.ones(1), jnp.zeros(1)
        for scale in scales:
            inverse_variance = inverse_variance * jnp.atleast_1d(scale.q.moment(-2))
            log_scale = log_scale + jnp.atleast_1d(scale.q.loc)
        return kl_to_scaled_normal(weights, inverse_variance, log_scale)

    def multiplier(self, log_scale: Float[Array, "*#shape"]) -> Float[Array, "*#shape"]:
        """One: the posterior holds the weights as they are."""
        return jnp.ones_like(log_scale)

    def moment(
        self, scales: Iterable[Scale], nodes: int, power: float
    ) -> Float[Array, " nodes"]:
        """One."""
        del scales, power
        return jnp.ones(nodes)


class Mixed(AbstractParametrisation):
    """The posterior placed on w, whose prior is a mixture of two normals (M10)."""

    share: float
    wide: float
    narrow: float

    def weight_kl(
        self, weights: AbstractWeights, scales: Iterable[Scale], *, key: PRNGKeyArray
    ) -> Float[Array, ""]:
        """-H[q(w)] - ln p(w) at one draw of all weights (M10): an unbiased draw."""
        del scales
        inputs, nodes = jnp.arange(weights.fan_in - 1), jnp.arange(weights.nodes)
        kernel, bias = weights.sample(inputs, nodes, key=key)
        log_prior = self.log_density(kernel).sum() + self.log_density(bias).sum()
        return -weights.entropy().sum() - log_prior

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


PARAMETRISATIONS = {"non-centred": NonCentred, "centred": Centred}
