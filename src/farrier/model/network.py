"""A network: layers, activation, likelihood; its bound and its draws.

bound = sum_i weight_i E_q[ln p(y_i | x_i)] - sum over layers of KL(q || p)      (B1)
"""

from collections.abc import Callable
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from ..core.bound import Bound
from ..core.families import Conditional
from ..core.posteriors import AbstractPosterior, Factorised
from ..core.priors import AbstractPrior
from ..core.random import fold_in
from ..core.scales import Scale
from .inputs import InputScales
from .layers import Layer
from .likelihoods import AbstractLikelihood

INPUTS = 2**31  # number of the key for the scales of the inputs
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
}


class SampledNetwork(eqx.Module):
    """One draw of all weights: an ordinary network."""

    kernels: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: str = eqx.field(static=True)

    def hidden(
        self, x: Float[Array, "batch d_in"]
    ) -> tuple[Float[Array, "batch _"], ...]:
        """Activations of each hidden layer."""
        activations = []
        for kernel, bias in zip(self.kernels[:-1], self.biases[:-1], strict=True):
            x = ACTIVATIONS[self.activation](x @ kernel + bias[None])
            activations.append(x)
        return tuple(activations)

    def __call__(self, x: Float[Array, "batch d_in"]) -> Float[Array, "batch d_out"]:
        """Outputs for each row."""
        last = (x, *self.hidden(x))[-1]
        return last @ self.kernels[-1] + self.biases[-1][None]


class Network(eqx.Module):
    """A variational posterior over networks of one shape."""

    layers: tuple[Layer, ...]  # the hidden ones
    output: Layer
    likelihood: AbstractLikelihood
    activation: str = eqx.field(static=True)
    inputs: InputScales | None = None

    @classmethod
    def create(
        cls,
        d_in: int,
        widths: tuple[int, ...],
        likelihood: AbstractLikelihood,
        prior: AbstractPrior,
        posterior: AbstractPosterior | None = None,
        *,
        activation: str = "relu",
        inputs: InputScales | None = None,
        key: PRNGKeyArray,
    ) -> Self:
        """A network before training; factorised unless another posterior is given."""
        posterior = Factorised() if posterior is None else posterior
        *keys, key_output = jr.split(key, len(widths) + 1)
        layers = []
        for nodes, key_layer in zip(widths, keys, strict=True):
            layers.append(Layer.create(d_in, nodes, prior, posterior, key=key_layer))
            d_in = nodes
        output = Layer.create(
            d_in,
            likelihood.d_out,
            likelihood.output_prior(prior),
            posterior.untied(),
            key=key_output,
        )
        return cls(tuple(layers), output, likelihood, activation, inputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""
        return tuple(layer.weights.nodes for layer in self.layers)

    @property
    def scales_inputs(self) -> bool:
        """Whether each input has a scale of its own (I2)."""
        return self.inputs is not None

    def bound(
        self,
        x: Float[Array, "batch d_in"],
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        weight: Float[Array, " batch"],
        *,
        key: PRNGKeyArray,
        first: int | Int[Array, ""] = 0,
        noise_share: float | Float[Array, ""] = 1.0,
    ) -> Bound:
        """An unbiased draw of the bound (B1).

        Parameters
        ----------
        weight
            How many rows of the data set each row of the batch stands for.
        first
            Number of the first row, where these are a part of a batch: a row has the
            noise of its number.
        noise_share
            Of what makes the noise of a row, where it has its own (T6): at 0 all rows
            have the same, and the outputs that make it learn nothing.
        """
        rows = jnp.arange(len(x)) + jnp.asarray(first, int)
        *_, f = self.conditionals(x, rows, key=key)
        network, outputs = self, self.likelihood.d_out
        if self.likelihood.kinds > 1:
            share = jnp.asarray(noise_share, f.loc.dtype)
            of_noise = jnp.arange(outputs) >= outputs // self.likelihood.kinds
            f = f.times(jnp.where(of_noise, share, 1)[:, None])
            network = self._held(of_noise & (share == 0))
        log_likelihood = weight @ self.likelihood.expected_log_density(y, f)
        return Bound(log_likelihood, network.kl(key=key))

    def _held(self, still: Bool[Array, " d_out"]) -> Self:
        """The network, of whose outputs some are constants."""

        def held(leaf: Any) -> Any:
            if not eqx.is_inexact_array(leaf) or leaf.shape[:1] != still.shape:
                return leaf
            rows = still.reshape(-1, *(1,) * (leaf.ndim - 1))
            return jnp.where(rows, lax.stop_gradient(leaf), leaf)

        where = lambda network: (network.output.weights, network.output.scales)
        return eqx.tree_at(where, self, jax.tree.map(held, where(self)))

    def conditionals(
        self,
        x: Float[Array, "batch d_in"],
        rows: Int[Array, " batch"],
        *,
        key: PRNGKeyArray,
    ) -> list[Conditional]:
        """The law of each layer's pre-activations given a draw of those before it.

        `rows` are the numbers under which each row has its noise.
        """
        laws = []
        a = x.T
        if self.inputs is not None:
            a = self.inputs.scaled(a, rows, key=fold_in(key, INPUTS))
        for number, layer in enumerate((*self.layers, self.output)):
            if laws:
                a = ACTIVATIONS[self.activation](laws[-1].draw())
            laws.append(layer.conditional(a, rows, key=fold_in(key, number)))
        return laws

    def kl(self, *, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        """Every divergence by name: `layer_1/beta`, ..., `noise/gamma`.

        Scales of inputs come first: `inputs/tau`, `inputs/upsilon`.
        """
        parts = {}
        if self.inputs is not None:
            found = self.inputs.kl()
            parts = {f"inputs/{part}": value for part, value in found.items()}
        named = self.named_layers()
        # The keys after those with which the layers' outputs are drawn.
        for number, (name, layer) in enumerate(named.items(), start=len(named)):
            found = layer.kl(key=fold_in(key, number))
            parts |= {f"{name}/{part}": value for part, value in found.items()}
        return parts | self.likelihood.kl()

    def named_layers(self) -> dict[str, Layer]:
        """`layer_1`, `layer_2`, ..., `output`."""
        hidden = {f"layer_{i}": layer for i, layer in enumerate(self.layers, start=1)}
        return hidden | {"output": self.output}

    def named_scales(self) -> dict[str, Scale]:
        """`layer_1_tau`, ..., `output_kappa`; those of inputs first: `inputs_tau`."""
        parts = {} if self.inputs is None else {"inputs": self.inputs.scales}
        parts |= {name: layer.scales for name, layer in self.named_layers().items()}
        return {
            f"{part}_{name}": scale
            for part, scales in parts.items()
            for name, scale in scales.items()
        }

    def draw_keys(self, draws: int, *, key: PRNGKeyArray) -> Key[Array, " draws"]:
        """What `sample` and `predictive` need for each of so many draws."""
        return jr.split(key, draws)

    def sample(self, *, key: PRNGKeyArray) -> SampledNetwork:
        """One draw of all weights."""
        layers = (*self.layers, self.output)
        draws = [
            layer.sample(key=key_layer)
            for layer, key_layer in zip(layers, jr.split(key, len(layers)), strict=True)
        ]
        kernels, biases = zip(*draws, strict=True)
        if self.inputs is not None:
            zeta = self.inputs.sample(key=fold_in(key, INPUTS))
            first = self.inputs.whole(zeta[:, None] * kernels[0])
            kernels = (first, *kernels[1:])
        return SampledNetwork(kernels, biases, self.activation)

    def noise_variance(self) -> Float[Array, " targets"]:
        """Of each target with a noise."""
        return self.likelihood.noise_variance()

    def predictive(
        self, x: Float[Array, "rows d_in"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "rows d_out"], ...]:
        """Mean and variance of the outputs given a draw of all but the last weights.

        The third array is the outputs with a draw of those weights too.
        """
        key_sample, key_output = jr.split(key)
        sampled = self.sample(key=key_sample)
        last = (x, *sampled.hidden(x))[-1]
        # Row 0 for all: one draw of the scale, shared by all rows.
        same = jnp.zeros(len(x), int)
        f = self.output.conditional(last.T, same, key=key_output)
        return f.mean.T, f.variance.T, sampled(x)

    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """E[w] from each column to each node of the first layer, scales included."""
        plain = self.layers[0].expected_weights().T
        if self.inputs is None:
            return plain
        return self.inputs.whole(self.inputs.moment(1)[:, None] * plain)

    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the expected weights into each node."""
        norms = tuple(layer.expected_norms() for layer in self.layers)
        if self.inputs is None:
            return norms
        change = (self.expected_kernel() ** 2).sum(0)  # biases stay as they are
        change = change - (self.layers[0].expected_weights() ** 2).sum(1)
        return (jnp.sqrt(jnp.maximum(norms[0] ** 2 + change, 0)), *norms[1:])

    def term_names(self) -> tuple[str, ...]:
        """Names of the terms of the bound, in the order in which they are recorded."""
        names = ["log_likelihood"]
        if self.inputs is not None:
            names += [f"inputs/{part}" for part in self.inputs.scales]
        for name, layer in self.named_layers().items():
            names += [f"{name}/{part}" for part in ("beta", *sorted(layer.scales))]
        return (*names, *self.likelihood.kl_names())

    def updated(self) -> Self:
        """The network with all auxiliary variables at their optimum (M4)."""
        layers = tuple(layer.updated() for layer in self.layers)
        new = (layers, self.output.updated())
        return eqx.tree_at(lambda network: (network.layers, network.output), self, new)
