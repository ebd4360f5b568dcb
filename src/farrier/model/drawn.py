"""A posterior that is a set of draws: what sampling leaves behind, and predictions use.

It answers as a `Network` does wherever a posterior is looked at draw by draw. A draw
goes by its number, and a smaller set of them is spread evenly over the whole.
"""

from collections.abc import Sequence
from typing import Self, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .likelihoods import AbstractLikelihood
from .network import Network, SampledNetwork


class DrawnNetwork(eqx.Module):
    """Draws of all weights, scales multiplied in, of the scales and of the noise."""

    kernels: tuple[Float[Array, "draws _ _"], ...]
    biases: tuple[Float[Array, "draws _"], ...]
    scales: dict[str, Float[Array, "draws ..."]]  # `layer_1_tau`, ...
    noise_sd: Float[Array, "draws targets"]  # no targets where there are classes
    likelihood: AbstractLikelihood
    activation: str = eqx.field(static=True)
    # Of the output layer's weights, where they are not drawn: kernels and biases are
    # then their means. `kernel`, `bias`; and `root_kernel`, `root_bias` (N1).
    variances: dict[str, Float[Array, "draws ..."]] = eqx.field(default_factory=dict)

    @classmethod
    def like(cls, network: Network, draws: int) -> Self:
        """So many draws of a network of that shape, all zero."""
        layers = (*network.layers, network.output)
        shapes = [(v.weights.fan_in - 1, v.weights.nodes) for v in layers]
        if network.inputs is not None:
            shapes[0] = (network.inputs.total, shapes[0][1])
        scales = {
            name: jnp.zeros((draws, *scale.q.loc.shape))
            for name, scale in network.named_scales().items()
        }
        return cls(
            tuple(jnp.zeros((draws, d_in, nodes)) for d_in, nodes in shapes),
            tuple(jnp.zeros((draws, nodes)) for _, nodes in shapes),
            scales,
            jnp.zeros((draws, network.likelihood.targets)),
            network.likelihood,
            network.activation,
        )

    @classmethod
    def joined(cls, parts: Sequence["DrawnNetwork"]) -> Self:
        """The draws of all parts, one part after the other, as one posterior."""
        alike = cls.alike(parts)
        arrays = [(p.kernels, p.biases, p.scales, p.noise_sd) for p in alike]
        kernels, biases, scales, noise_sd = jax.tree.map(
            lambda *each: jnp.concatenate(each), *arrays
        )
        first = alike[0]
        return cls(
            kernels, biases, scales, noise_sd, first.likelihood, first.activation
        )

    @classmethod
    def alike(cls, parts: Sequence["DrawnNetwork"]) -> list["DrawnNetwork"]:
        """The same draws, all under the noise model that has the most outputs."""
        likelihoods = [part.likelihood for part in parts]
        widest = max(likelihoods, key=lambda likelihood: likelihood.d_out)
        return [part.under(widest) for part in parts]

    def under(self, likelihood: AbstractLikelihood) -> Self:
        """The same draws, whose outputs that only this likelihood has are 0 (W3).

        Draws with equal noise are draws with noise by the row (L4) where g = 0.
        """
        own = self.likelihood.d_out
        more = likelihood.d_out - own
        kernels, biases, scales = self.kernels, self.biases, self.scales
        if more:
            last = jnp.pad(kernels[-1], ((0, 0), (0, 0), (0, more)))
            kernels = (*kernels[:-1], last)
            biases = (*biases[:-1], jnp.pad(biases[-1], ((0, 0), (0, more))))
            of_output = {n: v for n, v in scales.items() if n.startswith("output_")}
            scales = scales | {
                name: jnp.pad(jnp.tile(value[:, None], own), ((0, 0), (0, more)))
                for name, value in of_output.items()
            }
        return type(self)(
            kernels, biases, scales, self.noise_sd, likelihood, self.activation
        )

    @property
    def draws(self) -> int:
        """How many draws there are."""
        return len(self.noise_sd)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""
        return tuple(bias.shape[1] for bias in self.biases[:-1])

    @property
    def scales_inputs(self) -> bool:
        """Whether each input had a scale of its own (I2)."""
        return "inputs_tau" in self.scales

    def draw_keys(self, draws: int, *, key: PRNGKeyArray) -> Int[Array, " count"]:
        """Numbers of so many draws, evenly spread; there is nothing random left."""
        del key
        return jnp.asarray([number * self.draws // draws for number in range(draws)])

    def some(self, draws: int) -> Self:
        """So many of the draws, evenly spread."""
        numbers = np.linspace(0, self.draws - 1, draws).round().astype(int)
        arrays = (self.kernels, self.biases, self.scales, self.noise_sd)
        kernels, biases, scales, noise_sd = jax.tree.map(
            lambda v: jnp.asarray(np.asarray(v)[numbers]),
            arrays,  # nothing to compile
        )
        return type(self)(
            kernels, biases, scales, noise_sd, self.likelihood, self.activation
        )

    def sample(self, *, key: Int[Array, ""]) -> SampledNetwork:
        """The draw of this number."""
        kernels = tuple(kernel[key] for kernel in self.kernels)
        biases = tuple(bias[key] for bias in self.biases)
        return SampledNetwork(kernels, biases, self.activation)

    def noise_variance(self) -> Float[Array, " targets"]:
        """Of each target with a noise: the mean over the draws."""
        return (self.noise_sd**2).mean(0)

    def predictive(
        self, x: Float[Array, "rows d_in"], *, key: Int[Array, ""]
    ) -> tuple[Float[Array, "rows d_out"], ...]:
        """Mean and variance of the outputs of the draw of this number.

        The third array is the outputs with nothing left to vary: what noise depends on.
        """
        sampled = self.sample(key=key)
        last = (x, *sampled.hidden(x))[-1]
        f = sampled(x)
        return f, self._variance(last, key), f

    def _variance(
        self, a: Float[Array, "rows nodes"], number: Int[Array, ""]
    ) -> Float[Array, "rows d_out"]:
        """a^2 V + c, and what correlated weights add to it (N1)."""
        parts = {name: values[number] for name, values in self.variances.items()}
        if not parts:
            return jnp.zeros((len(a), self.likelihood.d_out))
        variance = a**2 @ parts["kernel"] + parts["bias"][None]
        if "root_kernel" in parts:
            along = a @ parts["root_kernel"] + parts["root_bias"][None]
            squares = (along**2).reshape(*variance.shape, -1)
            variance = variance + squares.sum(-1)
        return variance

    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """Mean weights from each column to each node of the first layer."""
        return self.kernels[0].mean(0)

    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the mean weights into each node."""
        pairs = zip(self.kernels[:-1], self.biases[:-1], strict=True)
        means = [(kernel.mean(0), bias.mean(0)) for kernel, bias in pairs]
        return tuple(jnp.sqrt((k**2).sum(0) + b**2) for k, b in means)


AnyNetwork: TypeAlias = Network | DrawnNetwork
DrawKey: TypeAlias = PRNGKeyArray | Int[Array, ""]  # of one draw of either
