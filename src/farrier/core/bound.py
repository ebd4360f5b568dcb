"""The evidence lower bound (ELBO), with its terms kept apart.

    bound = E_q[ln p(y | x, ...)] - sum of KL(q || p)                               (B1)

All terms are in nats over the whole data set, constants included, so that the ELBOs of
two models of the same data can be compared.
"""

import equinox as eqx
from jaxtyping import Array, Float


class Bound(eqx.Module):
    """The ELBO: its expected log likelihood and its KL terms."""

    log_likelihood: Float[Array, "*shape"]
    kl: dict[str, Float[Array, "*shape"]]  # "layer_1/beta", ..., "noise/gamma"

    @property
    def total(self) -> Float[Array, "*shape"]:
        """The ELBO (B1)."""
        return self.weighted(1.0)

    def weighted(self, kl_weight: float | Float[Array, ""]) -> Float[Array, "*shape"]:
        """The log likelihood minus `kl_weight` times the KL terms."""
        return self.log_likelihood - kl_weight * sum(self.kl.values())

    def cut(self, parts: int) -> "Bound":
        """The contribution of rows that are one of `parts` parts of a batch.

        The log likelihood is that of the rows; the KL terms are divided by `parts`.
        """
        return Bound(self.log_likelihood, {n: v / parts for n, v in self.kl.items()})

    def terms(self) -> dict[str, Float[Array, "*shape"]]:
        """Every term by name, the log likelihood first."""
        return {"log_likelihood": self.log_likelihood, **self.kl}
