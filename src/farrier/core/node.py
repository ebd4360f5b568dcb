"""One multivariate normal for the weights into each node, its bias included.

    w_k ~ N(mu_k, Sigma_k),   Sigma_k = diag(v_k) + R_k R_k',   nodes independent
    w_k . x ~ N(mu_k . x,  v_k . x^2 + |R_k' x|^2),   x = [a, 1]                    (N1)

The horseshoe ties these weights together, by one scale; here q may tie them too. With
sigma_ki > 0 for each weight, either all covariances are free, through a triangle,

    v_k = 0,   R_k = diag(sigma_k) + 10 U_k,   U_k strictly lower                   (N2)

or, where a node has many inputs, they have a low rank:

    v_k = sigma_k^2,   R_k = 10 G_k,   G_k with a few columns                       (N3)

The last of the weights into a node is its bias: its input is 1. Derivation and what the
10 is for: docs/math.md.
"""

import abc
import math
from typing import Self

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .matrix import inverse, log_det
from .random import fold_in, normals
from .weights import AbstractNormalWeights, FactorisedWeights, NormalLaw, weight_noise

# Adam moves all parameters alike, a covariance has further to go than a location.
PACE = 10.0
NEAR_ZERO = 0.01  # of sigma, the columns at the start: at 0 they have no gradient
SHARED = 2  # number of the key for the noise that the weights into a node share


@jax.checkpoint  # to make the products again is faster than to store them
def _squares(
    root: Float[Array, "nodes fan_in columns"], x: Float[Array, "fan_in batch"]
) -> Float[Array, "nodes batch"]:
    """|R_k' x|^2 for each node and row: one matrix product.

    A sum of squares cannot become negative by rounding, as x' Sigma_k x may.
    """
    nodes, fan_in, columns = root.shape
    products = root.transpose(0, 2, 1).reshape(nodes * columns, fan_in) @ x
    return (products**2).reshape(nodes, columns, -1).sum(1)


class AbstractNodeWeights(AbstractNormalWeights):
    """What the two forms of the covariance share."""

    loc: Float[Array, "nodes fan_in"]
    log_scale: Float[Array, "nodes fan_in"]  # ln sigma_ki

    @abc.abstractmethod
    def _half_log_det(self) -> Float[Array, " nodes"]:
        """Half of ln det Sigma_k, the sum of ln sigma_ki left out."""

    @abc.abstractmethod
    def _squared_distance(
        self, away: Float[Array, "nodes fan_in"]
    ) -> Float[Array, " nodes"]:
        """away' Sigma^-1 away (N4)."""

    @property
    def fan_in(self) -> int:
        """Weights into one node, its bias included."""
        return self.loc.shape[1]

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.loc.shape[0]

    @property
    def scale(self) -> Float[Array, "nodes fan_in"]:
        """sigma_ki, the standard deviation of a weight if it had no covariances."""
        return jnp.exp(self.log_scale)

    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean and variance of w_k . [x, 1] (N1)."""
        del key
        law = self.law()
        x = jnp.concatenate([x, jnp.ones_like(x[:1])])
        return law.loc @ x, law.own @ x**2 + _squares(law.root, x)

    def expected(self) -> Float[Array, "nodes d_in"]:
        """Their locations, biases left out."""
        return self.loc[:, :-1]

    def expected_norms(self) -> Float[Array, " nodes"]:
        """|mu_k|."""
        return jnp.sqrt((self.loc**2).sum(1))

    def squared_norm(self) -> Float[Array, " nodes"]:
        """|mu_k|^2 + the trace of Sigma_k (N1)."""
        return (self.loc**2 + self.law().variance).sum(1)

    def entropy(self) -> Float[Array, " nodes"]:
        """n/2 ln(2 pi e) + 1/2 ln det Sigma_k (N2, N3)."""
        constant = 0.5 * self.fan_in * math.log(2 * math.pi * math.e)
        return constant + self.log_scale.sum(1) + self._half_log_det()

    def own_kl(self) -> Float[Array, ""]:
        """None: there is nothing but the weights."""
        return jnp.zeros(())

    def log_density(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """ln q of all weights of the layer (N4)."""
        w = jnp.concatenate([kernel, bias[:, None]], 1)
        distance = self._squared_distance(w - self.loc)
        # At the mean the density is exp(n/2 - H).
        return (0.5 * self.fan_in - self.entropy() - 0.5 * distance).sum()

    def _joined_noise(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "nodes fan_in"]:
        """The noise that independent weights have."""
        kernel, bias = weight_noise(inputs, nodes, key=key)
        return jnp.concatenate([kernel, bias[:, None]], 1)


class NodeWeights(AbstractNodeWeights):
    """All covariances free (N2)."""

    lower: Float[Array, "nodes fan_in fan_in"]  # U_k, and what is not used above it

    @classmethod
    def create(
        cls, d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
    ) -> Self:
        """Where `FactorisedWeights` starts: no covariances, and U = 0."""
        start = _start(d_in, nodes, sd=sd, spread=spread, key=key)
        return cls(*start, jnp.zeros((nodes, d_in + 1, d_in + 1)))

    def law(self) -> NormalLaw:
        """No weight has a variance of its own (N2)."""
        diagonal = self.scale[:, :, None] * jnp.eye(self.fan_in)[None]
        root = diagonal + PACE * jnp.tril(self.lower, -1)
        return NormalLaw(self.loc, jnp.zeros_like(self.loc), root)

    def with_law(self, law: NormalLaw) -> Self:
        """The triangle of the covariance, with zeros for the inputs that left."""
        root, own = np.asarray(law.root, float), np.asarray(law.own, float)
        root = np.concatenate([root, np.sqrt(own)[:, :, None] * np.eye(self.fan_in)], 2)
        stays = np.flatnonzero((root**2).sum(2).any(0))
        # root root' = L L', where L' is the triangle of a QR decomposition of root'.
        triangle = np.linalg.qr(root[:, stays].transpose(0, 2, 1)).R
        triangle = triangle.transpose(0, 2, 1)
        signs = np.sign(np.diagonal(triangle, axis1=1, axis2=2))
        whole = np.zeros(self.lower.shape)
        whole[:, stays[:, None], stays] = triangle * signs[:, None]
        log_scale = jnp.log(jnp.asarray(np.diagonal(whole, axis1=1, axis2=2), float))
        lower = jnp.asarray(np.tril(whole, -1) / PACE, float)
        return type(self)(law.loc, log_scale, lower)

    def without_inputs(self, kept: Bool[np.ndarray, " d_in"]) -> Self:
        """The weights of the kept inputs: those that left have zeros in U."""
        kept = np.append(kept, True)
        lower = self.lower[:, kept][:, :, kept]
        return type(self)(self.loc[:, kept], self.log_scale[:, kept], lower)

    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw: mu + R z (N2)."""
        noise = self._joined_noise(inputs, nodes, key=key)
        w = self.loc + jnp.einsum("kij,kj->ki", self.law().root, noise)
        return w[:, :-1], w[:, -1]

    def _half_log_det(self) -> Float[Array, " nodes"]:
        """0: R is a triangle with sigma on its diagonal."""
        return jnp.zeros(self.nodes)

    def _squared_distance(
        self, away: Float[Array, "nodes fan_in"]
    ) -> Float[Array, " nodes"]:
        """|z|^2 where R z = away, weight after weight (N4)."""
        root, scale = self.law().root, self.scale

        def next_weight(z: Array, i: Array) -> tuple[Array, None]:
            # Of z, those before i are known and all others are 0.
            known = (root[:, i] * z).sum(1)
            return z.at[:, i].set((away[:, i] - known) / scale[:, i]), None

        z, _ = lax.scan(next_weight, jnp.zeros_like(away), jnp.arange(self.fan_in))
        return (z**2).sum(1)


class LowRankWeights(AbstractNodeWeights):
    """Covariances of a low rank, and a variance of its own for each weight (N3)."""

    factor: Float[Array, "nodes fan_in rank"]  # G_k

    @classmethod
    def create(
        cls,
        d_in: int,
        nodes: int,
        *,
        sd: float,
        spread: float,
        key: PRNGKeyArray,
        rank: int = 4,
    ) -> Self:
        """Where `FactorisedWeights` starts, but for small covariances."""
        start = _start(d_in, nodes, sd=sd, spread=spread, key=key)
        noise = jr.normal(fold_in(key, SHARED), (nodes, d_in + 1, rank))
        return cls(*start, NEAR_ZERO * sd / PACE * noise)

    def law(self) -> NormalLaw:
        """Each weight has its own variance, and a part in that of the columns (N3)."""
        return NormalLaw(self.loc, self.scale**2, PACE * self.factor)

    def with_law(self, law: NormalLaw) -> Self:
        """The same form: folding keeps it."""
        return type(self)(law.loc, 0.5 * jnp.log(law.own), law.root / PACE)

    def without_inputs(self, kept: Bool[np.ndarray, " d_in"]) -> Self:
        """The weights of the kept inputs."""
        kept = np.append(kept, True)
        return type(self)(
            self.loc[:, kept], self.log_scale[:, kept], self.factor[:, kept]
        )

    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw: mu + sigma z + R z', with z' shared by all weights (N3)."""
        columns = jnp.arange(self.factor.shape[2])
        shared, _ = normals(nodes, columns, key=fold_in(key, SHARED))
        noise = self._joined_noise(inputs, nodes, key=key)
        w = self.loc + self.scale * noise
        w = w + jnp.einsum("kir,kr->ki", self.law().root, shared)
        return w[:, :-1], w[:, -1]

    @property
    def _relative(self) -> Float[Array, "nodes fan_in rank"]:
        """diag(1 / sigma) R."""
        return PACE * self.factor / self.scale[:, :, None]

    @property
    def _capacitance(self) -> Float[Array, "nodes rank rank"]:
        """I + R' diag(1 / sigma^2) R."""
        gram = jnp.einsum("kir,kis->krs", self._relative, self._relative)
        return gram + jnp.eye(gram.shape[1])[None]

    def _half_log_det(self) -> Float[Array, " nodes"]:
        """1/2 ln det of the capacitance (N3)."""
        return 0.5 * jax.vmap(log_det)(self._capacitance)

    def _squared_distance(
        self, away: Float[Array, "nodes fan_in"]
    ) -> Float[Array, " nodes"]:
        """The least of |(away - R t) / sigma|^2 + |t|^2 over t (N4)."""
        away, relative = away / self.scale, self._relative
        shared = jnp.einsum("kir,ki->kr", relative, away)
        t = jnp.einsum("krs,ks->kr", jax.vmap(inverse)(self._capacitance), shared)
        rest = away - jnp.einsum("kir,kr->ki", relative, t)
        return (rest**2).sum(1) + (t**2).sum(1)


def _start(
    d_in: int, nodes: int, *, sd: float, spread: float, key: PRNGKeyArray
) -> tuple[Float[Array, "nodes fan_in"], Float[Array, "nodes fan_in"]]:
    """Locations and log scales, as those of independent weights."""
    start = FactorisedWeights.create(d_in, nodes, sd=sd, spread=spread, key=key)
    return start.law().loc, jnp.full((nodes, d_in + 1), math.log(sd), float)
