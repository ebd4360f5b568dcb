"""A matrix normal posterior tied down by pseudo-data (Louizos & Welling 2016).

    w_k ~ N(m_k, c_k^2 R),  R = diag(r_1^2, ..., r_n^2),  nodes independent         (V1)
    given  w_k . x_p = y_kp + N(0, c_k^2 e_p)  for each pair p                      (V2)

x_p and y_p are learned. One variance for each row of a batch serves all nodes, and the
weights into a node are correlated as far as the pairs tie them. The last of the n
weights into a node is its bias: its input is 1. Derivation: docs/math.md.
"""

import math
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .families import taken, with_fixed_rows
from .random import normals, start_noise
from .weights import AbstractWeights, Fold

JITTER = 1e-4  # e_p as a share of x_p . R x_p: float32 stays stable under it
PSEUDO_SIZE = 0.01  # pseudo-inputs start between plus and minus this
LEAST_NOISE = 0.25  # of the noise that is allowed
START = 4.0  # where the noise starts: at 99 % of what is allowed
# -E ln|1 + s z| by a polynomial in s^2 (Kingma, Salimans & Welling 2015, appendix C).
DROPOUT = (1.16145124, -1.50204118, 0.58629921)


def inverse(a: Float[Array, "pairs pairs"]) -> Float[Array, "pairs pairs"]:
    """Inverse of a symmetric positive definite matrix, by sweeping row after row.

    Written out because the LAPACK calls behind `jnp.linalg` deadlocked on a CPU of two
    cores when many draws of a network were predicted at once.
    """

    def sweep(a: Array, k: Array) -> tuple[Array, None]:
        here = jnp.arange(len(a)) == k
        row, column, pivot = a[k], a[:, k], a[k, k]
        swept = a - column[:, None] * row[None] / pivot
        swept = jnp.where(here[None], -column[:, None] / pivot, swept)
        swept = jnp.where(here[:, None], row[None] / pivot, swept)
        return jnp.where(here[:, None] & here[None], 1 / pivot, swept), None

    return lax.scan(sweep, a, jnp.arange(len(a)))[0] if len(a) else a


@jax.custom_jvp
def solve(
    a: Float[Array, "pairs pairs"],
    inverse_of_a: Float[Array, "pairs pairs"],
    b: Float[Array, "pairs columns"],
) -> Float[Array, "pairs columns"]:
    """a^-1 b, refined twice to remove the rounding error of the inverse."""
    solution = inverse_of_a @ b
    for _ in range(2):
        solution += inverse_of_a @ (b - a @ solution)
    return solution


@solve.defjvp
def _solve_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    a, inverse_of_a, b = primals
    solution = solve(a, inverse_of_a, b)
    return solution, solve(a, inverse_of_a, tangents[2] - tangents[0] @ solution)


class _Pairs(eqx.Module):
    """Pseudo-data, and the matrix with which weights are conditioned on them (V2)."""

    inputs: Float[Array, "pairs fan_in"]
    outputs: Float[Array, "nodes pairs"]
    covariance: Float[Array, "pairs fan_in"]  # x_p R, of w . x_p and each weight
    error: Float[Array, " pairs"]  # e_p
    gram: Float[Array, "pairs pairs"]  # X R X' + diag(e)
    inverse: Float[Array, "pairs pairs"]

    @classmethod
    def create(
        cls,
        inputs: Float[Array, "pairs fan_in"],
        outputs: Float[Array, "nodes pairs"],
        row_variance: Float[Array, " fan_in"],
    ) -> Self:
        covariance = inputs * row_variance[None]
        gram = covariance @ inputs.T
        error = JITTER * jnp.diag(gram)
        gram = gram + jnp.diag(error)
        return cls(
            inputs, outputs, covariance, error, gram, inverse(lax.stop_gradient(gram))
        )

    def gain(self, x: Float[Array, "fan_in columns"]) -> Float[Array, "pairs columns"]:
        """(X R X' + diag(e))^-1 X R x: how far each pair moves w . x (V2)."""
        return solve(self.gram, self.inverse, self.covariance @ x)

    def pull(
        self, w: Float[Array, "nodes fan_in"], missing: Float[Array, "nodes pairs"]
    ) -> Float[Array, "nodes fan_in"]:
        """`w`, moved so that the pairs miss `missing` less (V2)."""
        return w + solve(self.gram, self.inverse, missing.T).T @ self.covariance


class MatrixWeights(AbstractWeights):
    """A matrix normal with diagonal covariances, conditioned on pseudo-data (V1, V2).

    What is drawn and predicted is the conditional law; what the bound compares with the
    prior, `squared_norm` and `entropy`, is the law before conditioning (V4).
    """

    loc: Float[Array, "nodes fan_in"]
    log_row: Float[Array, " fan_in"]  # ln r_i
    log_column: Float[Array, " nodes"]  # ln c_k
    pseudo_inputs: Float[Array, "pairs fan_in"]
    pseudo_outputs: Float[Array, "nodes pairs"]
    raw_noise: Float[Array, "2"]  # of the pseudo-inputs and of the pseudo-outputs
    most_noise: float

    can_fold: ClassVar[bool] = False

    @classmethod
    def create(
        cls,
        d_in: int,
        nodes: int,
        *,
        sd: float,
        start_sd: float,
        key: PRNGKeyArray,
        pairs: int = 5,
        noise: float = 0.07,
    ) -> Self:
        """Locations drawn from N(0, start_sd^2), with which the pseudo-data agree.

        Parameters
        ----------
        sd
            r_i c_k, the standard deviation of each weight before conditioning.
        pairs
            Pairs of pseudo-data. With as many as there are weights into a node, nothing
            of its weights is left random.
        noise
            Most relative noise of the pseudo-data; its level is learned.
        """
        key_loc, key_inputs = jr.split(key)
        loc = start_sd * start_noise((nodes, d_in + 1), key=key_loc)
        size = (pairs, d_in + 1)
        inputs = jr.uniform(key_inputs, size, minval=-PSEUDO_SIZE, maxval=PSEUDO_SIZE)
        return cls(
            loc,
            jnp.full(d_in + 1, math.log(sd), float),
            jnp.zeros(nodes),
            inputs,
            loc @ inputs.T,
            jnp.full(2, START, float),
            noise,
        )

    @property
    def fan_in(self) -> int:
        """Weights into one node, its bias included."""
        return self.loc.shape[1]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.loc.shape[0]

    @property
    def noise(self) -> Float[Array, "2"]:
        """Relative noise of the pseudo-inputs and of the pseudo-outputs (V3)."""
        return self.most_noise * self._noise_share

    @property
    def _noise_share(self) -> Float[Array, "2"]:
        return LEAST_NOISE + (1 - LEAST_NOISE) * jax.nn.sigmoid(self.raw_noise)

    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean and variance of w_k . [x, 1] given one draw of the pseudo-data (V2).

        The variance is a sum of squares, so that rounding cannot make it negative.
        """
        numbers = jnp.arange(self.fan_in - 1), jnp.arange(self.nodes)
        pairs, _ = self._drawn_pairs(*numbers, key=key)
        x = jnp.concatenate([x, jnp.ones_like(x[:1])])
        gain = pairs.gain(x)
        missing = pairs.outputs - self.loc @ pairs.inputs.T
        mean = self.loc @ x + missing @ gain
        rest = x - pairs.inputs.T @ gain
        shared = self._row_variance @ rest**2 + pairs.error @ gain**2
        return mean, jnp.exp(2 * self.log_column)[:, None] * shared[None]

    def expected(self) -> Float[Array, "nodes d_in"]:
        """E[w_ki] given the pseudo-data without noise, biases left out."""
        return self._conditional_mean()[:, :-1]

    def expected_norms(self) -> Float[Array, " nodes"]:
        """|E w_k| given the pseudo-data without noise."""
        return jnp.sqrt((self._conditional_mean() ** 2).sum(1))

    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|w_k|^2 before conditioning: |m_k|^2 + c_k^2 sum_i r_i^2 (V1)."""
        variance = jnp.exp(2 * self.log_column) * self._row_variance.sum()
        return (self.loc**2).sum(1) + variance

    def entropy(self) -> Float[Array, " nodes"]:
        """Before conditioning: n/2 ln(2 pi e) + n ln c_k + sum_i ln r_i (V1)."""
        n = self.fan_in
        constant = 0.5 * n * math.log(2 * math.pi * math.e)
        return constant + n * self.log_column + self.log_row.sum()

    def extra_kl(self) -> Float[Array, ""]:
        """KL term of the pseudo-data noise: 0 at its largest, positive below (V3)."""

        def dropout(share: Float[Array, "2"]) -> Float[Array, "2"]:
            a = (self.most_noise * share) ** 2
            c1, c2, c3 = DROPOUT
            return jnp.log(share) + c1 * a + c2 * a**2 + c3 * a**3

        share = self._noise_share
        entries = (self.pseudo_inputs.size, self.pseudo_outputs.size)
        numbers = jnp.asarray(entries, share.dtype)
        return numbers @ (dropout(jnp.ones_like(share)) - dropout(share))

    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw of the weights and of the biases given one of the pseudo-data.

        A draw of the matrix normal, pulled to the pairs (Matheron's rule, V2).
        """
        key_pairs, key_kernel, key_bias = jr.split(key, 3)
        pairs, error_noise = self._drawn_pairs(inputs, nodes, key=key_pairs)
        kernel_noise, _ = normals(nodes, inputs, key=key_kernel)
        bias_noise, _ = normals(nodes, jnp.zeros(1, int), key=key_bias)
        noise = jnp.concatenate([kernel_noise, bias_noise], 1)
        column = jnp.exp(self.log_column)[:, None]
        w = self.loc + column * jnp.exp(self.log_row)[None] * noise
        error = column * jnp.sqrt(pairs.error)[None] * error_noise
        w = pairs.pull(w, pairs.outputs - w @ pairs.inputs.T - error)
        return w[:, :-1], w[:, -1]

    def take(
        self,
        *,
        nodes: Bool[np.ndarray, " nodes"] | None = None,
        inputs: Bool[np.ndarray, " d_in"] | None = None,
    ) -> Self:
        """The weights of the nodes and inputs whose mask entry is true.

        Pseudo-data are those of the inputs and nodes that stay, in the same number.
        """
        weights = None if inputs is None else np.append(inputs, True)  # the bias stays
        arrays = (
            taken(taken(self.loc, nodes), weights, axis=1),
            taken(self.log_row, weights),
            taken(self.log_column, nodes),
            taken(self.pseudo_inputs, weights, axis=1),
            taken(self.pseudo_outputs, nodes),
        )
        where = lambda w: (
            w.loc,
            w.log_row,
            w.log_column,
            w.pseudo_inputs,
            w.pseudo_outputs,
        )
        return eqx.tree_at(where, self, arrays, is_leaf=lambda leaf: leaf is None)

    def folded(self, fold: Fold) -> Self:
        """Refused: the weights into a layer depend on each other through the pairs."""
        raise ValueError(
            "Inputs of a layer with matrix normal weights cannot be folded into the "
            "others, because its pseudo-data relate all weights. Keep all nodes, or "
            'fit with posterior="mean-field".'
        )

    def with_fixed_nodes(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same weights, without a gradient at the nodes that are fixed.

        Row variances, pseudo-inputs and noise levels belong to all nodes.
        """
        where = lambda w: (w.loc, w.log_column, w.pseudo_outputs)
        return eqx.tree_at(where, self, replace_fn=lambda v: with_fixed_rows(v, fixed))

    @property
    def _row_variance(self) -> Float[Array, " fan_in"]:
        return jnp.exp(2 * self.log_row)

    def _conditional_mean(self) -> Float[Array, "nodes fan_in"]:
        outputs, row_variance = self.pseudo_outputs, self._row_variance
        pairs = _Pairs.create(self.pseudo_inputs, outputs, row_variance)
        return pairs.pull(self.loc, outputs - self.loc @ self.pseudo_inputs.T)

    def _drawn_pairs(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[_Pairs, Float[Array, "nodes pairs"]]:
        """The pseudo-data with their noise drawn (V3), and noise for their error."""
        key_inputs, key_bias, key_outputs = jr.split(key, 3)
        numbers = jnp.arange(len(self.pseudo_inputs))
        input_noise, _ = normals(numbers, inputs, key=key_inputs)
        bias_noise, _ = normals(numbers, jnp.zeros(1, int), key=key_bias)
        input_noise = jnp.concatenate([input_noise, bias_noise], 1)
        output_noise, error_noise = normals(nodes, numbers, key=key_outputs)
        pairs = _Pairs.create(
            self.pseudo_inputs * (1 + self.noise[0] * input_noise),
            self.pseudo_outputs * (1 + self.noise[1] * output_noise),
            self._row_variance,
        )
        return pairs, error_noise
