"""A layer: a weight posterior, the scales that multiply it, and the parametrisation.

    u_k | tau, upsilon ~ N(tau_k upsilon mu_k.[a, 1],
                           tau_k^2 upsilon^2 (sigma_k^2).[a, 1]^2)                  (M6)

Scales and noise are drawn anew for each row. Each data term of the bound depends only
on the marginal of q, so this is exact; one draw for a whole batch has the same mean and
a far larger variance.

Inside a network the rows of the table are the last axis: whatever the width, loops over
a batch are long and contiguous, and what a batch shares is one number.
"""

import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..core.families import Conditional, taken
from ..core.forms import AbstractParametrisation
from ..core.posteriors import AbstractWeightPosterior
from ..core.priors import AbstractPrior
from ..core.random import fold_in, normals
from ..core.scales import Scale
from ..core.weights import AbstractWeights

MORE = 2**31  # number of the key for auxiliary variables of the weight posterior
INITIAL_SD = 0.01  # of beta: 0.1 prunes nodes before they have learned anything


class Layer(eqx.Module):
    """One layer of the network: its draws, and its KL terms."""

    weights: AbstractWeights
    scales: dict[str, Scale]
    parametrisation: AbstractParametrisation
    # Numbers of the inputs and nodes, unchanged when others are removed: the noise of a
    # node depends on its number.
    inputs: Int[Array, " d_in"]
    nodes: Int[Array, " nodes"]

    @classmethod
    def create(
        cls,
        d_in: int,
        nodes: int,
        prior: AbstractPrior,
        posterior: AbstractWeightPosterior,
        *,
        key: PRNGKeyArray,
    ) -> Self:
        """A layer whose weights start with variance 2 / (d_in + 1)."""
        start = math.sqrt(2 / (d_in + 1))
        parametrisation = prior.parametrised()
        with jax.ensure_compile_time_eval():  # a number, even where all else is traced
            start_sd = start / float(parametrisation.multiplier(jnp.log(start)))
        return cls(
            posterior.weights(
                d_in, nodes, sd=INITIAL_SD * start_sd, start_sd=start_sd, key=key
            ),
            prior.scales(nodes, start=start),
            parametrisation,
            jnp.arange(d_in),
            jnp.arange(nodes),
        )

    def conditional(
        self,
        x: Float[Array, "d_in batch"],
        rows: Int[Array, " batch"],
        *,
        key: PRNGKeyArray,
    ) -> Conditional:
        """The pre-activations given new scales for each row (M6)."""
        mean, variance = self.weights.moments(x, key=fold_in(key, MORE))
        log_scale, noise = self._draw_scales(rows, key=key)
        factor = self.parametrisation.multiplier(log_scale)
        return Conditional(factor, mean, variance, noise)

    def _draw_scales(
        self, rows: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "#nodes batch"], Float[Array, "nodes batch"]]:
        """Sum of the log scales, and standard normal noise for each node.

        `normals` makes two arrays at a time: where a scale has an entry for each node
        and uses the first, the second is the noise of the nodes.
        """
        log_scale, noise = jnp.zeros((1, len(rows))), None
        for number, scale in enumerate(self.scales.values(), start=1):
            nodes = jnp.zeros(1, int) if scale.is_shared else self.nodes
            first, second = normals(nodes, rows, key=fold_in(key, number))
            log_scale = log_scale + scale.q.log_at(first)
            noise = noise if scale.is_shared else second
        if noise is None:
            noise, _ = normals(self.nodes, rows, key=fold_in(key, 0))
        return log_scale, noise

    def kl(self, *, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        """KL terms of the weights and of each scale."""
        weight_kl = self.parametrisation.weight_kl(
            self.weights, self.scales.values(), key=key
        )
        weight_kl = weight_kl + self.weights.extra_kl()
        return {"beta": weight_kl} | {n: s.kl() for n, s in self.scales.items()}

    def sample(
        self, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "d_in nodes"], Float[Array, " nodes"]]:
        """One draw of the weights and biases, scales multiplied in (M1)."""
        key_weights, key_scales = jr.split(key)
        log_scale, _ = self._draw_scales(jnp.zeros(1, int), key=key_scales)
        kernel, bias = self.weights.sample(self.inputs, self.nodes, key=key_weights)
        factor = self.parametrisation.multiplier(log_scale)
        return (factor * kernel).T, factor[:, 0] * bias

    def expected_norms(self) -> Float[Array, " nodes"]:
        """Norm of the expected weights into each node, bias included (M3)."""
        return self.scale_moment(1) * self.weights.expected_norms()

    def expected_weights(self) -> Float[Array, "nodes d_in"]:
        """E[w_ki], scales multiplied in, without the biases (M3)."""
        return self.scale_moment(1)[:, None] * self.weights.expected()

    def scale_moment(self, power: float) -> Float[Array, " nodes"]:
        """E[s^power] of what multiplies the weights into each node (M3)."""
        scales, nodes = self.scales.values(), self.weights.nodes
        return self.parametrisation.moment(scales, nodes, power)

    def take(
        self,
        *,
        nodes: Bool[np.ndarray, " nodes"] | None = None,
        inputs: Bool[np.ndarray, " d_in"] | None = None,
    ) -> Self:
        """The layer of the nodes and inputs whose mask entry is true.

        The tree may hold NumPy arrays, or None in the place of an array, as the state
        of an optimiser does.
        """
        scales = self.scales
        if nodes is not None:
            scales = {name: scale.take(nodes) for name, scale in scales.items()}
        smaller = (
            self.weights.take(nodes=nodes, inputs=inputs),
            scales,
            taken(self.inputs, inputs),
            taken(self.nodes, nodes),
        )
        where = lambda v: (v.weights, v.scales, v.inputs, v.nodes)
        return eqx.tree_at(where, self, smaller, is_leaf=lambda leaf: leaf is None)

    def with_fixed_nodes(self, fixed: Bool[Array, " nodes"]) -> Self:
        """The same layer, without a gradient at the nodes that are fixed."""
        scales = {name: scale.with_fixed(fixed) for name, scale in self.scales.items()}
        weights = self.weights.with_fixed_nodes(fixed)
        return eqx.tree_at(lambda v: (v.weights, v.scales), self, (weights, scales))
