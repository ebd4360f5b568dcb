"""Variational posteriors over the weights into the nodes of one layer.

`MeanFieldWeights` are independent normals; `matrix.py` has the matrix normal. A fold
moves the weights of inputs that leave into those that stay (C1).
"""

import abc
import math
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .families import LowRankNormal, Normal, taken, with_fixed_rows
from .random import fold_in, normals, start_noise

UNEQUAL = 0.1  # sd of the logarithms of the factors of variances, at the start


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


def _low_rank(
    loc: Float[Array, "nodes d_in"], sd: float, rank: int, *, key: PRNGKeyArray
) -> LowRankNormal:
    """Variances of sd^2, in equal shares from factors that are not quite equal.

    Equal factors would have equal gradients and stay equal.
    """
    nodes, d_in = loc.shape
    log_rows = jnp.full((nodes, rank), math.log(sd) - 0.5 * math.log(rank), float)
    log_columns = jnp.zeros((rank, d_in))
    if rank > 1:
        log_columns = log_columns + UNEQUAL * start_noise((rank, d_in), key=key)
    return LowRankNormal(loc, log_rows, log_columns)


class MeanFieldWeights(AbstractWeights):
    """Independent normal distributions of all weights and biases.

    Their variances are free, or have a low rank over nodes and inputs (K1).

    Row k of the kernel holds the weights into node k, because the gradient of a small
    layer then comes out of its matrix product in the faster order.
    """

    can_fold: ClassVar[bool] = True

    kernel: Normal | LowRankNormal  # nodes x d_in
    bias: Normal  # nodes

    @classmethod
    def create(
        cls,
        d_in: int,
        nodes: int,
        *,
        sd: float,
        start_sd: float,
        rank: int | None = None,
        key: PRNGKeyArray,
    ) -> Self:
        """Locations drawn from N(0, start_sd^2); posterior sd the same for all.

        Parameters
        ----------
        rank
            Of the variances of the kernel; None for a free variance for each weight.
        """

        def normal(key: PRNGKeyArray, *shape: int) -> Normal:
            log_sd = jnp.asarray(np.full(shape, math.log(sd)), float)
            return Normal(start_sd * start_noise(shape, key=key), log_sd)

        key_kernel, key_bias = jr.split(key)
        kernel = normal(key_kernel, nodes, d_in)
        if rank is not None:
            kernel = _low_rank(kernel.loc, sd, rank, key=fold_in(key_kernel, 1))
        return cls(kernel, normal(key_bias, nodes))

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
        """Mean and variance of w_k . [x, 1]."""
        del key
        mean = self.kernel.loc @ x + self.bias.loc[:, None]
        variance = self.kernel.variance_times(x**2) + self.bias.variance[:, None]
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
        return self.kernel.row_squared_norms() + self.bias.second_moment()

    def entropy(self) -> Float[Array, " nodes"]:
        """Sum of the entropies (F1)."""
        return self.kernel.row_entropies() + self.bias.entropy()

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
        bias = jax.tree.map(lambda v: taken(v, nodes), self.bias)
        smaller = (self.kernel.take(nodes, inputs), bias)
        return eqx.tree_at(lambda w: (w.kernel, w.bias), self, smaller)

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
        moved = eqx.tree_at(lambda q: q.loc, self.kernel, loc + loc @ fold.slopes.T)
        bias = Normal(bias_loc, 0.5 * jnp.log(bias_variance))
        return type(self)(moved.with_certain_zeros(fold.gone), bias)

    def with_fixed_nodes(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same weights, without a gradient at the nodes that are fixed."""
        kernel = self.kernel.with_fixed_rows(fixed)
        bias = jax.tree.map(lambda v: with_fixed_rows(v, fixed), self.bias)
        return type(self)(kernel, bias)
