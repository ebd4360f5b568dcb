"""A network: layers, activation and likelihood; its ELBO and its draws.

bound = sum_i weight_i E_q[ln p(y_i | x_i)] - sum over layers of KL(q || p)      (B1)
"""

from collections.abc import Callable, Sequence
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..core.bound import Bound
from ..core.families import Conditional
from ..core.posteriors import AbstractWeightPosterior, MeanField
from ..core.priors import AbstractPrior
from ..core.random import fold_in
from ..core.scales import Scale
from .inputs import InputScales
from .layers import Layer
from .likelihoods import AbstractLikelihood

INPUTS = 2**31  # number of the key for the scales of the columns
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
    inputs: InputScales | None = None  # scales of the columns

    @classmethod
    def create(
        cls,
        d_in: int,
        widths: tuple[int, ...],
        likelihood: AbstractLikelihood,
        prior: AbstractPrior,
        posterior: AbstractWeightPosterior | None = None,
        *,
        activation: str = "relu",
        key: PRNGKeyArray,
    ) -> Self:
        """A network before training, with a mean-field posterior by default."""
        posterior = MeanField() if posterior is None else posterior
        of_columns = prior.column_scales(d_in)
        inputs = InputScales.create(of_columns) if of_columns else None
        *keys, key_output = jr.split(key, len(widths) + 1)
        layers = []
        for nodes, key_layer in zip(widths, keys, strict=True):
            layers.append(Layer.create(d_in, nodes, prior, posterior, key=key_layer))
            d_in = nodes
        output = Layer.create(
            d_in,
            likelihood.d_out,
            likelihood.output_prior(prior),
            posterior,
            key=key_output,
        )
        return cls(tuple(layers), output, likelihood, activation, inputs)

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""
        return tuple(layer.weights.nodes for layer in self.layers)

    @property
    def d_in(self) -> int:
        """Number of inputs, which are the columns of the table."""
        first = self.layers[0].weights.fan_in - 1
        return first if self.inputs is None else self.inputs.total

    @property
    def can_fold(self) -> bool:
        """Whether single nodes can be folded into the rest of their layers (C1)."""
        return all(layer.weights.can_fold for layer in (*self.layers, self.output))

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
        """An unbiased estimate of the ELBO (B1).

        Parameters
        ----------
        weight
            How many rows of the data set each row of the batch stands for.
        first
            Number of the first row, where the rows are a part of a batch: the draws of
            a row depend on its number.
        noise_share
            Share of input-dependent noise (T6). At 0 the noise is constant, and the
            outputs that describe it receive no gradient.
        """
        rows = jnp.arange(len(x)) + jnp.asarray(first, int)
        *_, f = self.conditionals(x, rows, key=key)
        network = self
        if self.likelihood.noise_outputs.any():
            share = jnp.asarray(noise_share, f.loc.dtype)
            means = self.likelihood.d_out - int(self.likelihood.noise_outputs.sum())
            of_noise = jnp.arange(self.likelihood.d_out) >= means
            f = f.scaled(jnp.where(of_noise, share, 1)[:, None])
            output = self.output.with_fixed_nodes(of_noise & (share == 0))
            network = self.with_layers([*self.layers, output])
        log_likelihood = weight @ self.likelihood.expected_log_density(y, f)
        return Bound(log_likelihood, network.kl(key=key))

    def conditionals(
        self,
        x: Float[Array, "batch d_in"],
        rows: Int[Array, " batch"],
        *,
        key: PRNGKeyArray,
    ) -> list[Conditional]:
        """Each layer's pre-activations, given a draw of those of the layer before it.

        The draws of a row depend on its number in `rows`.
        """
        conditionals: list[Conditional] = []
        a = x.T
        if self.inputs is not None:
            a = self.inputs.scaled(a, rows, key=fold_in(key, INPUTS))
        for number, layer in enumerate((*self.layers, self.output)):
            if conditionals:
                a = ACTIVATIONS[self.activation](conditionals[-1].draw())
            one = layer.conditional(a, rows, key=fold_in(key, number))
            conditionals.append(one)
        return conditionals

    def kl(self, *, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        """Every KL term by name: `layer_1/beta`, ..., `noise/gamma`.

        Scales of columns come first: `inputs/tau`, `inputs/upsilon`.
        """
        groups = {} if self.inputs is None else {"inputs": self.inputs.kl()}
        named = self.named_layers()
        # The keys after those that draw the pre-activations of the layers.
        for number, (name, layer) in enumerate(named.items(), start=len(named)):
            groups[name] = layer.kl(key=fold_in(key, number))
        terms = {
            f"{group}/{name}": value
            for group, values in groups.items()
            for name, value in values.items()
        }
        return terms | self.likelihood.kl()

    def named_layers(self) -> dict[str, Layer]:
        """`layer_1`, `layer_2`, ..., `output`."""
        hidden = {f"layer_{i}": layer for i, layer in enumerate(self.layers, start=1)}
        return hidden | {"output": self.output}

    def named_scales(self) -> dict[str, Scale]:
        """`layer_1_tau`, ..., `output_kappa`; those of columns first: `inputs_tau`."""
        groups = {} if self.inputs is None else {"inputs": self.inputs.scales}
        groups |= {name: layer.scales for name, layer in self.named_layers().items()}
        return {
            f"{group}_{name}": scale
            for group, scales in groups.items()
            for name, scale in scales.items()
        }

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

    def predictive(
        self, x: Float[Array, "rows d_in"], *, key: PRNGKeyArray
    ) -> tuple[Float[Array, "rows d_out"], ...]:
        """Mean and variance of the outputs, given a draw of the hidden layers.

        The third array is the outputs with a draw of the output layer's weights too.
        """
        key_sample, key_output = jr.split(key)
        sampled = self.sample(key=key_sample)
        last = (x, *sampled.hidden(x))[-1]
        # Number 0 for each row: all rows share one draw of the scale.
        rows = jnp.zeros(len(x), int)
        f = self.output.conditional(last.T, rows, key=key_output)
        return f.mean.T, f.variance.T, sampled(x)

    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """E[w] from each column to each node of the first layer, scales included."""
        kernel = self.layers[0].expected_weights().T
        if self.inputs is None:
            return kernel
        return self.inputs.whole(self.inputs.moment(1)[:, None] * kernel)

    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the expected weights into each node."""
        norms = tuple(layer.expected_norms() for layer in self.layers)
        if self.inputs is None:
            return norms
        change = (self.expected_kernel() ** 2).sum(0)  # biases stay as they are
        change = change - (self.layers[0].expected_weights() ** 2).sum(1)
        return (jnp.sqrt(jnp.maximum(norms[0] ** 2 + change, 0)), *norms[1:])

    def term_names(self) -> tuple[str, ...]:
        """Names of the terms of the ELBO, in the order in which they are recorded."""
        names = ["log_likelihood"]
        if self.inputs is not None:
            names += [f"inputs/{part}" for part in self.inputs.scales]
        for name, layer in self.named_layers().items():
            names += [f"{name}/{part}" for part in ("beta", *sorted(layer.scales))]
        return (*names, *eqx.filter_eval_shape(self.likelihood.kl))

    def with_layers(self, layers: Sequence[Layer]) -> Self:
        """The network with other layers, the output layer last."""
        new = (tuple(layers[:-1]), layers[-1])
        return eqx.tree_at(lambda network: (network.layers, network.output), self, new)

    def take(
        self,
        keep: Sequence[Bool[np.ndarray, " _"]],
        columns: Bool[np.ndarray, " _"] | None = None,
    ) -> Self:
        """The network without the nodes and columns that are not kept.

        The tree may hold NumPy arrays, or None in the place of an array, as the state
        of an optimiser does.

        Parameters
        ----------
        keep
            For each hidden layer, a mask over its nodes.
        columns
            A mask over the columns, of a network whose columns have scales.
        """
        layers = [*self.layers, self.output]
        for index, kept in enumerate(keep):
            if not kept.all():
                layers[index] = layers[index].take(nodes=kept)
                layers[index + 1] = layers[index + 1].take(inputs=kept)
        if columns is None or self.inputs is None:
            return self.with_layers(layers)
        kept = self.inputs.present(columns)
        layers[0] = layers[0].take(inputs=kept)
        network = self.with_layers(layers)
        return eqx.tree_at(lambda n: n.inputs, network, self.inputs.take(kept))
