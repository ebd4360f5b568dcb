"""A horseshoe over the inputs: a scale for each column, in front of the first layer.

    w_ki = zeta_i s_k beta_ki,   zeta_i = tau_i upsilon,
    tau_i ~ C+(0, 1),   upsilon ~ C+(0, b)                                          (I2)

A column that is not needed is taken towards 0 with all its weights; biases have no such
scale. Given zeta, the first layer sees zeta_i x_i in the place of x_i: with fresh
scales for each row its pre-activations are still drawn exactly (M6).
"""

from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core.random import fold_in, normals
from ..core.scales import HalfCauchy, Scale

COMMON_SCALE = 1.0  # b of upsilon ~ C+(0, b), which all columns share


class InputScales(eqx.Module):
    """The scales of all columns: what is drawn, and their share of the bound."""

    tau: Scale  # one for each column
    upsilon: Scale
    columns: Int[Array, " d_in"]  # numbers of the columns, kept when others are removed
    total: int = eqx.field(static=True)  # columns of the table

    @classmethod
    def create(cls, total: int) -> Self:
        """Scales that start at 1."""
        tau = Scale.create(HalfCauchy(1.0), (total,))
        upsilon = Scale.create(HalfCauchy(COMMON_SCALE), ())
        return cls(tau, upsilon, jnp.arange(total), total)

    @property
    def scales(self) -> dict[str, Scale]:
        """By name, as those of a layer."""
        return {"tau": self.tau, "upsilon": self.upsilon}

    def scaled(
        self,
        x: Float[Array, "total batch"],
        rows: Int[Array, " batch"],
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "d_in batch"]:
        """zeta_i x_i with fresh scales for each row (I2)."""
        return x[self.columns] * self._draw(rows, key=key)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d_in"]:
        """One draw of zeta (I2)."""
        return self._draw(jnp.zeros(1, int), key=key)[:, 0]

    def _draw(
        self, rows: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> Float[Array, "d_in batch"]:
        own, _ = normals(self.columns, rows, key=fold_in(key, 1))
        common, _ = normals(jnp.zeros(1, int), rows, key=fold_in(key, 2))
        return jnp.exp(self.tau.q.log_at(own) + self.upsilon.q.log_at(common))

    def moment(self, power: float) -> Float[Array, " d_in"]:
        """E[zeta_i^power]: a product of two of (M3)."""
        return self.tau.q.moment(power) * self.upsilon.q.moment(power)

    def whole(self, kernel: Float[Array, "d_in nodes"]) -> Float[Array, "total nodes"]:
        """The kernel with a row for each column of the table: 0 for those removed."""
        full = jnp.zeros((self.total, kernel.shape[1]))
        return full.at[self.columns].set(kernel)

    def kl(self) -> dict[str, Float[Array, ""]]:
        """Divergences of the scales from their priors (M5)."""
        return {name: scale.kl() for name, scale in self.scales.items()}

    def own(self, kept: np.ndarray) -> np.ndarray:
        """Of a mask over the columns of the table, the part for those it has."""
        same = len(kept) == self.columns.size
        return kept if same else kept[np.asarray(self.columns)]

    def without(self, kept: np.ndarray) -> Self:
        """The scales of the kept columns alone."""
        new = jax.tree.map(lambda v: v[kept] if np.ndim(v) else v, self.tau)
        return eqx.tree_at(
            lambda s: (s.tau, s.columns), self, (new, self.columns[kept])
        )
