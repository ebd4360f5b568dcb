"""A posterior over networks: a numbered sequence of draws, the same ones at each use.

`VariationalPosterior` draws from a trained `Network`; `SampledPosterior` holds draws of
all weights: those of Markov chains, of an ensemble, or of a small variational network.

    loc = a K_s + b_s,   variance = a^2 V_s + c_s                                  (P1)

are the mean and variance of the outputs of draw s, given its last hidden activations a,
over the output layer's weights where the likelihood integrates these.
"""

import abc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, UInt32

from .distributions import AbstractDistribution
from .likelihoods import AbstractLikelihood, OutputDraws
from .network import Network, SampledNetwork

DRAWS_AT_ONCE = 8  # draws that are computed in parallel
MAX_STORED = 2**20  # weights of all draws up to which these are kept for predictions

Result = TypeVar("Result", bound=PyTree)
Outputs = tuple[Array, ...]
Masks = tuple[np.ndarray, ...]  # of the kept nodes of each hidden layer


class AbstractPosterior(eqx.Module):
    """Networks 0, 1, ..., draws - 1."""

    likelihood: eqx.AbstractVar[AbstractLikelihood]
    noise: eqx.AbstractVar[Float[Array, "draws unknowns"]]  # of the likelihood

    @property
    def draws(self) -> int:
        """Number of draws."""
        return len(self.noise)

    @property
    @abc.abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""

    @property
    @abc.abstractmethod
    def d_in(self) -> int:
        """Number of inputs."""

    @property
    @abc.abstractmethod
    def scales_columns(self) -> bool:
        """Whether each input has a scale of its own (I2)."""

    @property
    def variational(self) -> Network | None:
        """The network that the draws are made from; None for stored draws."""
        return None

    @property
    def can_fold(self) -> bool:
        """Whether single nodes can be folded into the rest of their layers (C1)."""
        return self.variational is None or self.variational.can_fold

    @abc.abstractmethod
    def sample(self, number: Int[Array, ""]) -> SampledNetwork:
        """All weights of one draw."""

    @abc.abstractmethod
    def outputs(self, x: Float[Array, "rows d_in"], number: Int[Array, ""]) -> Outputs:
        """`loc`, `variance` and `drawn` of `OutputDraws`, for one draw."""

    @abc.abstractmethod
    def resampled(self, draws: int, *, key: PRNGKeyArray) -> "AbstractPosterior":
        """The same posterior with this many draws, from the key if they are random."""

    @abc.abstractmethod
    def take(self, keep: Masks, columns: np.ndarray | None = None) -> Self:
        """The posterior with the kept nodes and columns alone."""

    @abc.abstractmethod
    def mean_noise(self) -> Float[Array, " unknowns"]:
        """Mean of the likelihood's unknowns, as its `residual_variance` takes it."""

    @abc.abstractmethod
    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """Mean weights from each input to each node of the first layer."""

    @abc.abstractmethod
    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the mean weights into each node."""

    @abc.abstractmethod
    def scale_draws(self, *, key: PRNGKeyArray) -> dict[str, np.ndarray]:
        """Draws of each scale by name: `layer_1_tau`, ..., `output_kappa`."""

    @abc.abstractmethod
    def as_sampled(self) -> "SampledPosterior":
        """All draws, made once and kept; the predictions are the same."""

    def stored(self) -> "AbstractPosterior":
        """The posterior with its draws made and kept, if they are few."""
        return self

    def map(
        self, function: Callable[[Int[Array, ""]], Result], *, at_once: int = 1
    ) -> Result:
        """`function` of the number of each draw, `at_once` of them in parallel."""
        size = None if at_once == 1 else min(self.draws, at_once)
        return lax.map(function, jnp.arange(self.draws), batch_size=size)

    def predictive(self, x: Float[Array, "rows d_in"]) -> AbstractDistribution:
        """Predictive distribution of the targets of some rows (P1)."""
        outputs = self.map(lambda s: self.outputs(x, s), at_once=DRAWS_AT_ONCE)
        return self.likelihood.predictive(OutputDraws(*outputs), self.noise)

    def drawn_outputs(
        self, x: Float[Array, "rows d_in"]
    ) -> Float[Array, "draws rows d_out"]:
        """Outputs of each draw, all weights drawn."""
        return self.map(lambda s: self.sample(s)(x), at_once=DRAWS_AT_ONCE)


class VariationalPosterior(AbstractPosterior):
    """Draws from a variational posterior, made from a key when they are needed."""

    network: Network
    key_data: UInt32[Array, "2"]
    noise: Float[Array, "draws unknowns"]

    @classmethod
    def create(cls, network: Network, draws: int, *, key: PRNGKeyArray) -> Self:
        """A posterior of `draws` draws of a network."""
        noise = network.likelihood.noise_draws(draws, key=key)
        create: Any = cls  # a type checker asks for `likelihood`, which is a property
        return create(network=network, key_data=jr.key_data(key), noise=noise)

    @property
    def likelihood(self) -> AbstractLikelihood:  # pyright: ignore
        """That of the network."""
        return self.network.likelihood

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""
        return self.network.widths

    @property
    def d_in(self) -> int:
        """Number of inputs."""
        return self.network.d_in

    @property
    def scales_columns(self) -> bool:
        """Whether each input has a scale of its own (I2)."""
        return self.network.inputs is not None

    @property
    def variational(self) -> Network:
        """The network."""
        return self.network

    def sample(self, number: Int[Array, ""]) -> SampledNetwork:
        """All weights of one draw."""
        return self.network.sample(key=self._key(number))

    def outputs(self, x: Float[Array, "rows d_in"], number: Int[Array, ""]) -> Outputs:
        """Integrated over the output layer's weights where the likelihood does so."""
        if self.likelihood.integrates_output:
            return self.network.predictive(x, key=self._key(number))
        f = self.sample(number)(x)
        return f, jnp.zeros_like(f), f

    def resampled(self, draws: int, *, key: PRNGKeyArray) -> "VariationalPosterior":
        """Draws from another key."""
        return VariationalPosterior.create(self.network, draws, key=key)

    def take(self, keep: Masks, columns: np.ndarray | None = None) -> Self:
        """Draws of the network with the kept nodes and columns alone."""
        return replace(self, network=self.network.take(keep, columns))

    def as_sampled(self) -> "SampledPosterior":
        """All draws, however many weights they have."""
        make = _integrated if self.likelihood.integrates_output else _drawn
        kernels, biases, variance = make(self)
        return SampledPosterior(
            kernels=kernels,
            biases=biases,
            scales={},
            noise=self.noise,
            likelihood=self.likelihood,
            activation=self.network.activation,
            output_variance=variance,
        )

    @property
    def can_store(self) -> bool:
        """Whether the weights of all draws are few enough to be kept."""
        layers = (*self.network.layers, self.network.output)
        weights = sum(layer.weights.fan_in * layer.weights.nodes for layer in layers)
        return self.can_fold and self.draws * weights <= MAX_STORED

    def stored(self) -> AbstractPosterior:
        """All draws, if their weights are few (`can_store`)."""
        return self.as_sampled() if self.can_store else self

    def mean_noise(self) -> Float[Array, " unknowns"]:
        """That of q."""
        return self.likelihood.mean_noise()

    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """Mean weights from each input to each node of the first layer."""
        return self.network.expected_kernel()

    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the mean weights into each node."""
        return self.network.expected_norms()

    def scale_draws(self, *, key: PRNGKeyArray) -> dict[str, np.ndarray]:
        """Log-normal draws of each scale, by NumPy."""
        generator = np.random.default_rng(np.asarray(jr.key_data(key)))
        drawn = {}
        for name, scale in self.network.named_scales().items():
            loc, sd = np.asarray(scale.q.loc, float), np.asarray(scale.q.scale, float)
            noise = generator.standard_normal((self.draws, *loc.shape))
            drawn[name] = np.exp(loc + sd * noise)
        return drawn

    def _key(self, number: Int[Array, ""]) -> PRNGKeyArray:
        return jr.split(jr.wrap_key_data(self.key_data), self.draws)[number]


class SampledPosterior(AbstractPosterior):
    """Draws of all weights, with the scales multiplied in."""

    kernels: tuple[Float[Array, "draws _ _"], ...]  # the output layer last
    biases: tuple[Float[Array, "draws _"], ...]
    scales: dict[str, dict[str, Float[Array, "draws ..."]]]  # by layer, then by name
    noise: Float[Array, "draws unknowns"]
    likelihood: AbstractLikelihood
    activation: str = eqx.field(static=True)
    # Variances V_s and c_s of the output layer's weights where they are integrated:
    # the last kernel and bias are then their means.
    output_variance: (
        tuple[Float[Array, "draws nodes d_out"], Float[Array, "draws d_out"]] | None
    ) = None

    @classmethod
    def concatenated(cls, parts: Sequence["SampledPosterior"]) -> "SampledPosterior":
        """The draws of all parts, one part after the other."""
        return jax.tree.map(
            lambda *each: jnp.concatenate(each) if eqx.is_array(each[0]) else each[0],
            *(eqx.tree_at(lambda p: p.likelihood, p, None) for p in parts),
        ).with_likelihood(parts[0].likelihood)

    def with_likelihood(self, likelihood: AbstractLikelihood) -> "SampledPosterior":
        """The same draws under a likelihood."""
        return eqx.tree_at(
            lambda p: p.likelihood, self, likelihood, is_leaf=lambda v: v is None
        )

    @property
    def widths(self) -> tuple[int, ...]:
        """Nodes of each hidden layer."""
        return tuple(bias.shape[1] for bias in self.biases[:-1])

    @property
    def d_in(self) -> int:
        """Number of inputs."""
        return self.kernels[0].shape[1]

    @property
    def scales_columns(self) -> bool:
        """Whether each input had a scale of its own (I2)."""
        return "inputs" in self.scales

    def sample(self, number: Int[Array, ""]) -> SampledNetwork:
        """All weights of one draw."""
        kernels = tuple(kernel[number] for kernel in self.kernels)
        biases = tuple(bias[number] for bias in self.biases)
        return SampledNetwork(kernels, biases, self.activation)

    def outputs(self, x: Float[Array, "rows d_in"], number: Int[Array, ""]) -> Outputs:
        """Nothing varies but the output layer's weights, if they are integrated."""
        sampled = self.sample(number)
        last = (x, *sampled.hidden(x))[-1]
        f = sampled(x)
        if self.output_variance is None:
            return f, jnp.zeros((len(x), self.likelihood.d_out)), f
        kernel, bias = (values[number] for values in self.output_variance)
        return f, last**2 @ kernel + bias[None], f

    def resampled(self, draws: int, *, key: PRNGKeyArray) -> "SampledPosterior":
        """Evenly spaced draws of this posterior; the key is not used."""
        del key
        if draws == self.draws:
            return self
        return self.take_draws([s * self.draws // draws for s in range(draws)])

    def take_draws(self, numbers: Sequence[int]) -> "SampledPosterior":
        """The draws of these numbers, by NumPy, so that nothing is compiled."""
        chosen = np.asarray(numbers, int)
        taken = jax.tree.map(
            lambda v: jnp.asarray(np.asarray(v)[chosen]) if eqx.is_array(v) else v,
            eqx.tree_at(lambda p: p.likelihood, self, None),
        )
        return taken.with_likelihood(self.likelihood)

    def mean_noise(self) -> Float[Array, " unknowns"]:
        """Mean square over the draws."""
        return (self.noise**2).mean(0)

    def expected_kernel(self) -> Float[Array, "d_in nodes"]:
        """Mean weights from each input to each node of the first layer."""
        return self.kernels[0].mean(0)

    def expected_norms(self) -> tuple[Float[Array, " _"], ...]:
        """For each hidden layer, the norm of the mean weights into each node."""
        pairs = zip(self.kernels[:-1], self.biases[:-1], strict=True)
        means = [(kernel.mean(0), bias.mean(0)) for kernel, bias in pairs]
        return tuple(jnp.sqrt((k**2).sum(0) + b**2) for k, b in means)

    def scale_draws(self, *, key: PRNGKeyArray) -> dict[str, np.ndarray]:
        """The scales that were drawn with the weights."""
        del key
        return {
            f"{layer}_{name}": np.asarray(values)
            for layer, scales in self.scales.items()
            for name, values in scales.items()
        }

    def as_sampled(self) -> "SampledPosterior":
        """The posterior itself."""
        return self

    def take(self, keep: Masks, columns: np.ndarray | None = None) -> Self:
        """These nodes of each hidden layer: a mask, or numbers in their new order."""
        kernels, biases = [*self.kernels], [*self.biases]
        scales = {layer: dict(of_layer) for layer, of_layer in self.scales.items()}
        for index, kept in enumerate(keep):
            kernels[index] = kernels[index][..., kept]
            biases[index] = biases[index][:, kept]
            kernels[index + 1] = kernels[index + 1][:, kept]
            of_layer = scales.get(f"layer_{index + 1}", {})
            of_layer |= {n: v[:, kept] for n, v in of_layer.items() if v.ndim > 1}
        if (variance := self.output_variance) is not None and keep:
            variance = (variance[0][:, keep[-1]], variance[1])
        return self._with(kernels, biases, scales, variance)

    def padded(self, widths: tuple[int, ...]) -> Self:
        """The same predictions, with nodes of zero weight after the other nodes."""
        kernels, biases = [*self.kernels], [*self.biases]
        scales = {layer: dict(of_layer) for layer, of_layer in self.scales.items()}
        variance = self.output_variance
        for index, (now, then) in enumerate(zip(self.widths, widths, strict=True)):
            more = (0, then - now)
            kernels[index] = jnp.pad(kernels[index], ((0, 0), (0, 0), more))
            biases[index] = jnp.pad(biases[index], ((0, 0), more))
            kernels[index + 1] = jnp.pad(kernels[index + 1], ((0, 0), more, (0, 0)))
            of_layer = scales.get(f"layer_{index + 1}", {})
            of_layer |= {
                n: jnp.pad(v, ((0, 0), more)) for n, v in of_layer.items() if v.ndim > 1
            }
            if variance is not None and index == len(self.widths) - 1:
                variance = (jnp.pad(variance[0], ((0, 0), more, (0, 0))), variance[1])
        return self._with(kernels, biases, scales, variance)

    def silenced(self, keep: Masks, means: tuple[Float[Array, "draws _"], ...]) -> Self:
        """The same shape; nodes that are not kept are constants in the next bias (C1).

        `keep` and `means` (mean activations) may begin with the inputs.
        """
        kernels, biases = [*self.kernels], [*self.biases]
        variance, each = self.output_variance, partial(jnp.einsum, "sk,skj->sj")
        first = len(kernels) - len(keep)
        for index, (mean, kept) in enumerate(zip(means, keep, strict=True), first):
            gone = jnp.where(jnp.asarray(kept), 0, mean)
            mask = jnp.asarray(kept)[None, :, None]
            biases[index] = biases[index] + each(gone, kernels[index])
            kernels[index] = jnp.where(mask, kernels[index], 0)
            if variance is not None and index == len(kernels) - 1:
                of_kernel, of_bias = variance
                of_bias = of_bias + each(gone**2, of_kernel)
                variance = (jnp.where(mask, of_kernel, 0), of_bias)
        return self._with(kernels, biases, self.scales, variance)

    def _with(
        self, kernels: list, biases: list, scales: dict, variance: tuple | None
    ) -> Self:
        return replace(
            self,
            kernels=tuple(kernels),
            biases=tuple(biases),
            scales=scales,
            output_variance=variance,
        )


@eqx.filter_jit
def _integrated(posterior: VariationalPosterior) -> tuple:
    """Weights of the hidden layers, and means and variances of the output layer's.

    Outputs that noise depends on are drawn and not integrated.
    """
    network = posterior.network
    weights: Any = network.output.weights  # mean-field: see `stored`
    d_out = network.likelihood.d_out
    is_drawn = jnp.asarray(network.likelihood.noise_outputs)

    def one(number: Int[Array, ""]) -> tuple:
        key_sample, key_output = jr.split(posterior._key(number))
        nothing = jnp.zeros((weights.fan_in - 1, 1))
        f = network.output.conditional(nothing, jnp.zeros(1, int), key=key_output)
        sampled = network.sample(key=key_sample)
        kernel = jnp.where(is_drawn[None], sampled.kernels[-1], 0)
        bias = jnp.where(is_drawn, sampled.biases[-1], 0)
        hidden = sampled.kernels[:-1], sampled.biases[:-1]
        return hidden, f.factor[:, 0], kernel, bias

    (kernels, biases), factor, kernel, bias = posterior.map(one)
    factor = jnp.broadcast_to(factor, (posterior.draws, d_out))
    factor = jnp.where(is_drawn[None], 0, factor)
    kernel = factor[:, None] * weights.kernel.loc.T[None] + kernel
    bias = factor * weights.bias.loc[None] + bias
    variance = (
        factor[:, None] ** 2 * weights.kernel.variance.T[None],
        factor**2 * weights.bias.variance[None],
    )
    return (*kernels, kernel), (*biases, bias), variance


@eqx.filter_jit
def _drawn(posterior: VariationalPosterior) -> tuple:
    """All weights of each draw."""

    def one(number: Int[Array, ""]) -> tuple:
        sampled = posterior.sample(number)
        return sampled.kernels, sampled.biases

    kernels, biases = posterior.map(one)
    return kernels, biases, None
