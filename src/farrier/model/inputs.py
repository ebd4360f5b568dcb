"""A horseshoe over the inputs: a scale for each column, in front of the first layer.

    w_ki = zeta_i s_k beta_ki,   zeta_i = tau_i upsilon,
    tau_i ~ C+(0, 1),   upsilon ~ C+(0, 1)                                          (I2)

A column that is not needed is shrunk towards 0 with all its weights; biases have no
such scale. Given zeta, the first layer receives zeta_i x_i in the place of x_i: with
new scales for each row its pre-activations are still drawn exactly (M6).
"""

from typing import Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..core.random import fold_in, normals
from ..core.scales import Scale


class InputScales(eqx.Module):
    """The scales of all columns: their draws, and their KL terms."""

    tau: Scale  # one for each column
    upsilon: Scale
    columns: Int[Array, " d_in"]  # numbers of the columns, unchanged when others go
    total: int = eqx.field(static=True)  # columns of the table

    @classmethod
    def create(cls, scales: dict[str, Scale]) -> Self:
        """The scales `tau`, one for each column, and `upsilon`, before training."""
        total = scales["tau"].q.loc.size
        return cls(**scales, columns=jnp.arange(total), total=total)

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
        """zeta_i x_i with new scales for each row (I2)."""
        return x[self.columns] * self._draw(rows, key=key)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d_in"]:
        """One draw of zeta (I2)."""
        return self._draw(jnp.zeros(1, int), key=key)[:, 0]

    def _draw(
        self, rows: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> Float[Array, "d_in batch"]:
        tau_noise, _ = normals(self.columns, rows, key=fold_in(key, 1))
        upsilon_noise, _ = normals(jnp.zeros(1, int), rows, key=fold_in(key, 2))
        log_tau = self.tau.q.log_at(tau_noise)
        return jnp.exp(log_tau + self.upsilon.q.log_at(upsilon_noise))

    def moment(self, power: float) -> Float[Array, " d_in"]:
        """E[zeta_i^power]: a product of two of (M3)."""
        return self.tau.q.moment(power) * self.upsilon.q.moment(power)

    def whole(self, kernel: Float[Array, "d_in nodes"]) -> Float[Array, "total nodes"]:
        """The kernel with a row for each column of the table: 0 for those removed."""
        full = jnp.zeros((self.total, kernel.shape[1]))
        return full.at[self.columns].set(kernel)

    def kl(self) -> dict[str, Float[Array, ""]]:
        """KL terms of the scales (M5), (G2)."""
        return {name: scale.kl() for name, scale in self.scales.items()}

    def present(self, mask: Bool[np.ndarray, " _"]) -> Bool[np.ndarray, " d_in"]:
        """A mask over the columns of the table, for the columns that are present.

        A mask over the columns that are present is returned as it is.
        """
        if len(mask) == self.columns.size:
            return mask
        return mask[np.asarray(self.columns)]

    def take(self, columns: Bool[np.ndarray, " d_in"]) -> Self:
        """The scales of the columns whose mask entry is true."""
        smaller = (self.tau.take(columns), self.columns[columns])
        return eqx.tree_at(lambda s: (s.tau, s.columns), self, smaller)
