"""Variational factors: moments, entropies, KL divergences, draws.

    q(ln s) = N(loc, scale^2)  =>  E[s^p] = exp(p loc + p^2 scale^2 / 2)            (M3)

Every `..._rate` is the rate of the density as written in docs/notation.md: Gamma(a, b)
has mean a / b.
"""

import math
from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.scipy.special import digamma, gammaln
from jaxtyping import Array, Bool, Float, PRNGKeyArray

POINTS = 24  # of the quadrature over a log-normal distribution


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

    # The rest is for a matrix: the weights of a layer, nodes x inputs.

    def variance_times(self, x: Float[Array, "d_in batch"]) -> Float[Array, "nodes _"]:
        """The product of the matrix of variances and `x`."""
        return self.variance @ x

    def row_entropies(self) -> Float[Array, " nodes"]:
        """Entropy of each row (F1)."""
        return self.entropy().sum(1)

    def row_squared_norms(self) -> Float[Array, " nodes"]:
        """Expected squared norm of each row (F2)."""
        return self.second_moment().sum(1)

    def take(
        self,
        nodes: Bool[np.ndarray, " nodes"] | None,
        inputs: Bool[np.ndarray, " d_in"] | None,
    ) -> Self:
        """The rows and columns whose mask entry is true."""
        part = lambda v: taken(taken(v, nodes), inputs, axis=1)
        return jax.tree.map(part, self)

    def with_certain_zeros(self, columns: Bool[Array, " d_in"]) -> Self:
        """The same matrix, with 0 and no variance in some columns."""
        gone = columns[None]
        variance = jnp.where(gone, 0, self.variance)
        return type(self)(jnp.where(gone, 0, self.loc), 0.5 * jnp.log(variance))

    def with_fixed_rows(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same matrix, without a gradient in the rows that are fixed."""
        return jax.tree.map(lambda v: with_fixed_rows(v, fixed), self)


class LowRankNormal(eqx.Module):
    """A matrix of independent normals whose variances have a low rank.

        variance_ki = sum_r exp(2 row_kr + 2 column_ri)                             (K1)

    Its products with a batch are two thin ones, and it has few parameters.
    """

    loc: Float[Array, "nodes d_in"]
    log_rows: Float[Array, "nodes rank"]
    log_columns: Float[Array, "rank d_in"]

    @property
    def _is_product(self) -> bool:
        """Whether the rank is 1, so that logarithms of the factors add up."""
        return self.log_rows.shape[1] == 1

    @property
    def log_scale(self) -> Float[Array, "nodes d_in"]:
        """Logarithm of the standard deviation of each entry."""
        if self._is_product:
            return self.log_rows + self.log_columns
        return 0.5 * jnp.log(jnp.exp(2 * self.log_rows) @ jnp.exp(2 * self.log_columns))

    @property
    def scale(self) -> Float[Array, "nodes d_in"]:
        """Standard deviation of each entry."""
        return jnp.exp(self.log_scale)

    @property
    def variance(self) -> Float[Array, "nodes d_in"]:
        """Variance of each entry (K1)."""
        return jnp.exp(2 * self.log_rows) @ jnp.exp(2 * self.log_columns)

    def at(self, noise: Float[Array, "nodes d_in"]) -> Float[Array, "nodes d_in"]:
        """The draw that given standard normal noise makes."""
        return self.loc + self.scale * noise

    def variance_times(self, x: Float[Array, "d_in batch"]) -> Float[Array, "nodes _"]:
        """The product of the matrix of variances and `x` (K1)."""
        return jnp.exp(2 * self.log_rows) @ (jnp.exp(2 * self.log_columns) @ x)

    def row_entropies(self) -> Float[Array, " nodes"]:
        """Entropy of each row (F1); at rank 1, sums of rows and columns (K2)."""
        n = self.loc.shape[1]
        constant = 0.5 * n * math.log(2 * math.pi * math.e)
        if self._is_product:
            return constant + n * self.log_rows[:, 0] + self.log_columns.sum()
        return constant + self.log_scale.sum(1)

    def row_squared_norms(self) -> Float[Array, " nodes"]:
        """Expected squared norm of each row (F2)."""
        ones = jnp.ones((self.loc.shape[1], 1))
        return (self.loc**2).sum(1) + self.variance_times(ones)[:, 0]

    def take(
        self,
        nodes: Bool[np.ndarray, " nodes"] | None,
        inputs: Bool[np.ndarray, " d_in"] | None,
    ) -> Self:
        """The rows and columns whose mask entry is true."""
        parts = (
            taken(taken(self.loc, nodes), inputs, axis=1),
            taken(self.log_rows, nodes),
            taken(self.log_columns, inputs, axis=1),
        )
        where = lambda q: (q.loc, q.log_rows, q.log_columns)
        return eqx.tree_at(where, self, parts, is_leaf=lambda leaf: leaf is None)

    def with_certain_zeros(self, columns: Bool[Array, " d_in"]) -> Self:
        """The same matrix, with 0 and no variance in some columns."""
        gone = columns[None]
        log_columns = jnp.where(gone, -jnp.inf, self.log_columns)
        return type(self)(jnp.where(gone, 0, self.loc), self.log_rows, log_columns)

    def with_fixed_rows(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same matrix, without a gradient in the rows that are fixed.

        The columns of the variances belong to all rows and keep their gradients.
        """
        loc, log_rows = (with_fixed_rows(v, fixed) for v in (self.loc, self.log_rows))
        return type(self)(loc, log_rows, self.log_columns)


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
