"""A layer: a weight posterior, the scales that multiply it, and the prior's form.

    u_k | tau, upsilon ~ N(tau_k upsilon mu_k.[a, 1],
                           tau_k^2 upsilon^2 (sigma_k^2).[a, 1]^2)                  (M6)

Scales and noise are drawn fresh for each row. Each data term of the bound depends only
on the marginal of q, so this is exact; one draw for a whole batch has the same mean and
a far larger variance.

Inside a network the rows of the table are the last axis: whatever the width, loops over
a batch are long and contiguous, and what is shared by a batch is one number.
"""

import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core.families import Conditional
from ..core.posteriors import AbstractPosterior
from ..core.priors import AbstractPrior, ScaleRows
from ..core.random import fold_in, normals
from ..core.scales import Scale
from ..core.tied import TiedWeights, tilt
from ..core.weights import AbstractParametrisation, AbstractWeights

MORE = 2**31  # number of the key for what a posterior draws besides its weights
INITIAL_SD = 0.01  # of beta: 0.1 prunes nodes before they have learned anything


class Layer(eqx.Module):
    """One layer of the network: what is drawn, and its share of the bound."""

    weights: AbstractWeights
    scales: dict[str, Scale]
    parametrisation: AbstractParametrisation
    inputs: Int[Array, " d_in"]  # numbers of its inputs and nodes, which they keep
    nodes: Int[Array, " nodes"]  # when others are removed: the noise goes by them
    scale_rows: ScaleRows = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        d_in: int,
        nodes: int,
        prior: AbstractPrior,
        posterior: AbstractPosterior,
        *,
        key: PRNGKeyArray,
    ) -> Self:
        """A layer whose weights start with variance 2 / (d_in + 1)."""
        start = math.sqrt(2 / (d_in + 1))
        parametrisation = prior.parametrised()
        with jax.ensure_compile_time_eval():  # a number, even where all else is traced
            spread = start / float(parametrisation.multiplier(jnp.log(start)))
        return cls(
            posterior.weights(
                d_in, nodes, sd=INITIAL_SD * spread, spread=spread, key=key
            ),
            prior.scales(nodes, start=start),
            parametrisation,
            jnp.arange(d_in),
            jnp.arange(nodes),
            prior.scale_rows,
        )

    def conditional(
        self,
        x: Float[Array, "d_in batch"],
        rows: Int[Array, " batch"],
        *,
        key: PRNGKeyArray,
    ) -> Conditional:
        """The pre-activations given fresh scales for each row (M6)."""
        mean, variance = self.weights.moments(x, key=fold_in(key, MORE))
        log_scale, noise, of_node = self._draw_scales(rows, key=key)
        if isinstance(self.weights, TiedWeights):
            mean = mean + self.weights.rise(x) * of_node
        factor = self.parametrisation.multiplier(log_scale)
        return Conditional(factor, mean, variance, noise)

    def _draw_scales(
        self, rows: Int[Array, " batch"], *, key: PRNGKeyArray
    ) -> tuple[
        Float[Array, "#nodes batch"],
        Float[Array, "nodes batch"],
        Float[Array, "#nodes #batch"],
    ]:
        """Sum of the log scales, and standard normal noise of the layer's width.

        `normals` makes two arrays at a time: where a scale uses one of the width of
        the layer, the other is the noise. The third array is the noise of the scale
        that each node has for itself; 0 where there is none.
        """
        places = self.scale_rows(rows)
        log_scale = jnp.zeros((1, len(rows)))
        noise, of_node = None, jnp.zeros((1, 1))
        for number, scale in enumerate(self.scales.values(), start=1):
            own = scale.q.loc.ndim > 0  # one for each node, or one for the layer
            nodes = self.nodes if own else jnp.zeros(1, int)
            first, second = normals(nodes, places, key=fold_in(key, number))
            log_scale = log_scale + scale.q.log_at(first)
            of_node = first if own else of_node
            noise = second if own and len(places) == len(rows) else noise
        if noise is None:
            noise, _ = normals(self.nodes, rows, key=fold_in(key, 0))
        return log_scale, noise, of_node

    def kl(self, *, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        """Divergences of the weights and of each scale from their priors."""
        weight_kl = self.parametrisation.weight_kl(
            self.weights, self.scales.values(), key=key
        )
        weight_kl = weight_kl + self.weights.own_kl()
        return {"beta": weight_kl} | {n: s.kl() for n, s in self.scales.items()}

    def sample(
        self, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "d_in nodes"], Float[Array, " nodes"]]:
        """One draw of the weights themselves, scales multiplied in (M1)."""
        key_weights, key_scales = jr.split(key)
        log_scale, _, of_node = self._draw_scales(jnp.zeros(1, int), key=key_scales)
        still = self.weights.sample(self.inputs, self.nodes, key=key_weights)
        kernel, bias = self.moved(*still, of_node[:, 0])
        factor = self.parametrisation.multiplier(log_scale)
        return (factor * kernel).T, factor[:, 0] * bias

    def moved(
        self,
        kernel: Float[Array, "nodes d_in"],
        bias: Float[Array, " nodes"],
        of_node: Float[Array, "#nodes"],
    ) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
        """A draw of weights and biases, given the noise of the nodes' scales (J1)."""
        if isinstance(self.weights, TiedWeights):
            return self.weights.moved(kernel, bias, of_node)
        return kernel, bias

    def noise_of_nodes(
        self, log_scales: dict[str, Float[Array, "..."]]
    ) -> Float[Array, "#nodes"]:
        """The noise of the nodes' own scales, from draws of all log scales."""
        if (own := self._own_scale) is None:
            return jnp.zeros(1)
        q = self.scales[own].q
        return (log_scales[own] - q.loc) / q.scale

    @property
    def _own_scale(self) -> str | None:
        """Name of the scale that each node has for itself."""
        return next((n for n, s in self.scales.items() if s.q.loc.ndim), None)

    def expected_norms(self) -> Float[Array, " nodes"]:
        """Norm of the expected weights into each node, bias included (M3, J3)."""
        weights, moment = self.weights, self.scale_moment(1)
        if isinstance(weights, TiedWeights):
            return moment * weights.norms_at(self._tilt())
        return moment * weights.expected_norms()

    def expected_weights(self) -> Float[Array, "nodes d_in"]:
        """E[w_ki], scales multiplied in, biases left out (M3, J3)."""
        weights, moment = self.weights, self.scale_moment(1)[:, None]
        if isinstance(weights, TiedWeights):
            return moment * weights.expected_at(self._tilt())
        return moment * weights.expected()

    def _tilt(self) -> Float[Array, " nodes"]:
        assert self._own_scale is not None
        scales = self.scales.values()
        return tilt(self.parametrisation, scales, self.scales[self._own_scale])

    def scale_moment(self, power: float) -> Float[Array, " nodes"]:
        """E[s^power] of what multiplies the weights into each node (M3)."""
        scales, nodes = self.scales.values(), self.weights.nodes
        return self.parametrisation.moment(scales, nodes, power)

    def updated(self) -> Self:
        """The layer with all auxiliary variables at their optimum (M4)."""
        scales = {name: scale.updated() for name, scale in self.scales.items()}
        return eqx.tree_at(lambda layer: layer.scales, self, scales)
