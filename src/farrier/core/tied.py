"""Weights that move with the scale of their node.

    ln tau_k = m_k + s_k z_k,   z_k ~ N(0, 1)
    beta_k | z_k ~ N(mu_k + c_k z_k, Sigma_k),   c_k = 10 pull_k                    (J1)

The data know the product tau_k beta_k far better than its two factors, so that a large
scale goes with small weights. Given z the weights are any normal law that there is, and
in the divergence, by the chain rule, their entropy is the one given z:

    KL(q(tau, beta) || p) = KL(q(tau) || p(tau)) + E_z KL(q(beta | z) || N(0, I))
    E|beta_k|^2 = |mu_k|^2 + tr Sigma_k + |c_k|^2                                   (J2)

which is (M7) with this second moment. A multiplier of the weights that is a function of
ln s, the sum of ln tau and of other normals, sees them moved:

    E[multiplier beta_k] = E[multiplier] (mu_k + t_k c_k),
    t_k = E[multiplier z_k] / E[multiplier],  E[z_k | ln s] = s_k (ln s - m) / v    (J3)

with the mean m and the variance v of ln s; where the multiplier is s itself, t_k = s_k.
"""

from collections.abc import Iterable
from typing import Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .node import PACE
from .scales import Scale
from .weights import (
    AbstractNormalWeights,
    AbstractParametrisation,
    NormalLaw,
    product_of,
)


class TiedWeights(AbstractNormalWeights):
    """Normal weights whose mean moves with the noise of their node's scale (J1)."""

    free: AbstractNormalWeights  # the weights where that noise is 0
    pull: Float[Array, "nodes fan_in"]  # the bias last

    @classmethod
    def create(cls, free: AbstractNormalWeights) -> Self:
        """Weights that do not move yet."""
        return cls(free, jnp.zeros((free.nodes, free.fan_in)))

    @property
    def fan_in(self) -> int:
        """Weights into one node, its bias included."""
        return self.free.fan_in

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.free.nodes

    def moments(
        self, x: Float[Array, "d_in batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "nodes batch"], Float[Array, "nodes batch"]]:
        """Mean, where the noise of the scale is 0, and variance given that noise."""
        return self.free.moments(x, key=key)

    def rise(self, x: Float[Array, "d_in batch"]) -> Float[Array, "nodes batch"]:
        """c_k . [x, 1]: how the mean of w_k . [x, 1] moves with that noise (J1)."""
        return PACE * (self.pull[:, :-1] @ x + self.pull[:, -1:])

    def moved(
        self,
        kernel: Float[Array, "nodes d_in"],
        bias: Float[Array, " nodes"],
        noise: Float[Array, " nodes"],
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """A draw of weights and biases, given the noise of the scales (J1)."""
        away = PACE * self.pull * noise[:, None]
        return kernel + away[:, :-1], bias + away[:, -1]

    def expected_at(self, noise: Float[Array, " nodes"]) -> Float[Array, "nodes d_in"]:
        """mu + c t, biases left out (J1, J3)."""
        return self._loc_at(noise)[:, :-1]

    def norms_at(self, noise: Float[Array, " nodes"]) -> Float[Array, " nodes"]:
        """|mu + c t| (J1, J3)."""
        return jnp.sqrt((self._loc_at(noise) ** 2).sum(1))

    def _loc_at(self, noise: Float[Array, " nodes"]) -> Float[Array, "nodes fan_in"]:
        return self.free.law().loc + PACE * self.pull * noise[:, None]

    def expected(self) -> Float[Array, "nodes d_in"]:
        """Their locations, biases left out: the noise has mean 0."""
        return self.free.expected()

    def expected_norms(self) -> Float[Array, " nodes"]:
        """|mu_k|."""
        return self.free.expected_norms()

    def squared_norm(self) -> Float[Array, " nodes"]:
        """E|beta_k|^2 (J2)."""
        return self.free.squared_norm() + ((PACE * self.pull) ** 2).sum(1)

    def entropy(self) -> Float[Array, " nodes"]:
        """Entropy of the weights into each node, given its scale (J2)."""
        return self.free.entropy()

    def own_kl(self) -> Float[Array, ""]:
        """That of the weights given the scales."""
        return self.free.own_kl()

    def sample(
        self,
        inputs: Int[Array, " d_in"],
        nodes: Int[Array, " nodes"],
        *,
        key: PRNGKeyArray,
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """One draw where the noise of the scales is 0: then they are `moved`."""
        return self.free.sample(inputs, nodes, key=key)

    def law(self) -> NormalLaw:
        """Whatever the scale: the noise that weights share is one more column (N1)."""
        law = self.free.law()
        root = jnp.concatenate([law.root, PACE * self.pull[:, :, None]], axis=2)
        return NormalLaw(law.loc, law.own, root)

    def with_law(self, law: NormalLaw) -> Self:
        """The last column is what moves with the scale."""
        free = NormalLaw(law.loc, law.own, law.root[:, :, :-1])
        return type(self)(self.free.with_law(free), law.root[:, :, -1] / PACE)

    def without_inputs(self, kept: Bool[np.ndarray, " d_in"]) -> Self:
        """The weights of the kept inputs."""
        pull = self.pull[:, np.append(kept, True)]
        return type(self)(self.free.without_inputs(kept), pull)

    def log_density(
        self, kernel: Float[Array, "nodes d_in"], bias: Float[Array, " nodes"]
    ) -> Float[Array, ""]:
        """ln q given the scales, of weights before they are moved."""
        return self.free.log_density(kernel, bias)


def tilt(
    form: AbstractParametrisation, scales: Iterable[Scale], own: Scale
) -> Float[Array, " nodes"]:
    """E[multiplier z] / E[multiplier], z being the noise of a node's own scale (J3)."""
    law = product_of(scales, len(own.q.loc))
    away = lambda log_s: form.multiplier(log_s) * (log_s - law.loc[None])
    ratio = law.expected(away) / law.expected(form.multiplier)
    return own.q.scale / law.scale**2 * ratio
