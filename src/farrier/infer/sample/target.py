"""The density that Markov chains sample, and the points where they start.

    ln p(theta | y) = ln p(y | theta) + ln p(theta) + constant                      (H1)

theta holds the standardised weights of each layer and the logarithms of its scales. The
unknowns of the likelihood are integrated out: for a normal noise, one target t at a
time,

    ln p(y | theta) = -sum_t (a + n / 2) ln(b + E_t / 2) + constant,
    E_t = sum_i weight_i (y_it - f_t(x_i))^2,  n = sum_i weight_i                   (H2)

and they are drawn afterwards: gamma_t | theta, y ~ Gamma(a + n / 2, b + E_t / 2).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ...core.scales import Scale
from ...model.layers import Layer
from ...model.network import ACTIVATIONS, Network, SampledNetwork
from ...train.step import adam

ASCENT, ASCENT_RATE = 1_000, 0.02  # steps of Adam before a chain begins, and their rate


FEW_NODES = 4  # up to which a product is taken node by node


class LayerPoint(eqx.Module):
    """The unknowns of one layer: weights before their scales, and ln of the scales."""

    kernel: Float[Array, "nodes d_in"]
    bias: Float[Array, " nodes"]
    log_scales: dict[str, Float[Array, "..."]]
    # ln of the scales of the inputs (I2), if they have scales: in the first layer only.
    log_inputs: dict[str, Float[Array, "..."]] = eqx.field(default_factory=dict)


Point = tuple[LayerPoint, ...]  # one for each layer, the output last


class Target(eqx.Module):
    """The posterior that is sampled, up to a constant (H1)."""

    network: Network  # its variational posterior only sets where a chain starts
    x: Float[Array, "rows d_in"]
    y: Float[Array, "rows targets"] | Int[Array, " rows"]
    weight: Float[Array, " rows"]

    def log_density(self, point: Point) -> Float[Array, ""]:
        """ln p(y | theta) + ln p(theta) (H1)."""
        layers = self.network.named_layers().values()
        # Rows are the last axis, as in training: loops over them are long. Ones below
        # them give the gradient of biases in the product that gives that of weights.
        a = self.x.T
        total = jnp.zeros(())
        if (inputs := self.network.inputs) is not None:
            a = a[inputs.columns]
            total += _log_prior_of_scales(inputs.scales, point[0].log_inputs)
        a = jnp.concatenate([a, jnp.ones_like(a[:1])])
        for number, (layer, each) in enumerate(zip(layers, point, strict=True)):
            kernel, bias = multiplied(layer, each)
            if number:
                a = ACTIVATIONS[self.network.activation](a)
                a = product(kernel, a) + bias[:, None]
            else:
                a = jnp.concatenate([kernel, bias[:, None]], axis=1) @ a
            total += log_prior_of(layer, each)
        return total + self.network.likelihood.log_marginal(self.y, a.T, self.weight)

    def sampled(self, point: Point) -> SampledNetwork:
        """The network of one draw."""
        pairs = zip(self.network.named_layers().values(), point, strict=True)
        weights = [multiplied(layer, each) for layer, each in pairs]
        kernels = tuple(kernel.T for kernel, _ in weights)
        if self.network.inputs is not None:
            kernels = (self.network.inputs.whole(kernels[0]), *kernels[1:])
        biases = tuple(bias for _, bias in weights)
        return SampledNetwork(kernels, biases, self.network.activation)

    def scales(self, point: Point) -> dict[str, dict[str, Array]]:
        """All scales of one draw, by layer and by name."""
        named = zip(self.network.named_layers(), point, strict=True)
        log_scales = {name: each.log_scales for name, each in named}
        if point[0].log_inputs:
            log_scales["inputs"] = point[0].log_inputs
        return jax.tree.map(jnp.exp, log_scales)

    def unravel(self) -> Callable[[Float[Array, " unknowns"]], Point]:
        """The function that turns a flat vector into a point."""
        layers = self.network.named_layers().values()
        zeros = tuple(
            LayerPoint(
                jnp.zeros((layer.weights.nodes, layer.weights.fan_in - 1)),
                jnp.zeros(layer.weights.nodes),
                {name: jnp.zeros_like(s.q.loc) for name, s in layer.scales.items()},
            )
            for layer in layers
        )
        if (inputs := self.network.inputs) is not None:
            none = {name: jnp.zeros_like(s.q.loc) for name, s in inputs.scales.items()}
            zeros = _with_inputs(zeros, none)
        return ravel_pytree(zeros)[1]


def product(
    kernel: Float[Array, "nodes d_in"], a: Float[Array, "d_in rows"]
) -> Float[Array, "nodes rows"]:
    """Kernel @ a; for few nodes one at a time.

    The gradients of these vector products are elementwise, and XLA fuses them with that
    of the activation: the gradient of a network with one or two outputs takes two
    thirds of the time.
    """
    if len(kernel) > FEW_NODES:
        return kernel @ a
    return jnp.stack([row @ a for row in kernel])


def multiplied(
    layer: Layer, point: LayerPoint
) -> tuple[Float[Array, "nodes d_in"], Float[Array, " nodes"]]:
    """Weights and biases of one draw, multiplied by their scales (M1)."""
    factor = _factor(layer, point.log_scales)
    kernel = factor[:, None] * point.kernel
    if point.log_inputs:
        zeta = jnp.exp(sum(point.log_inputs.values(), start=jnp.zeros(())))
        kernel = kernel * zeta[None]
    return kernel, factor * point.bias


def _with_inputs(point: Point, log_inputs: dict[str, Float[Array, "..."]]) -> Point:
    """The point with log scales of the inputs in its first layer."""
    return (replace(point[0], log_inputs=log_inputs), *point[1:])


def _factor(
    layer: Layer, log_scales: dict[str, Float[Array, "..."]]
) -> Float[Array, " nodes"]:
    """Factor of the weights into each node; 1 for a layer without scales."""
    total = sum(log_scales.values(), start=jnp.zeros(layer.weights.nodes))
    return layer.parametrisation.sampling_multiplier(total)


def log_prior_of(layer: Layer, point: LayerPoint) -> Float[Array, ""]:
    """ln p of one layer's weights and scales, as densities of ln s (M1, M10, M12)."""
    total = layer.parametrisation.log_prior(point.kernel, point.bias)
    return total + _log_prior_of_scales(layer.scales, point.log_scales)


def _log_prior_of_scales(
    scales: dict[str, Scale], log_scales: dict[str, Float[Array, "..."]]
) -> Float[Array, ""]:
    total = jnp.zeros(())
    for name, scale in scales.items():
        total += scale.prior.log_density(log_scales[name]).sum()
    return total


def start_of(network: Network, *, key: PRNGKeyArray) -> Point:
    """One draw of the variational posterior, at which a chain may start."""
    points = []
    for number, layer in enumerate(network.named_layers().values()):
        key_weights, *keys = jr.split(jr.fold_in(key, number), 1 + len(layer.scales))
        log_scales = _drawn_scales(layer.scales, keys)
        sample = layer.weights.sample(layer.inputs, layer.nodes, key=key_weights)
        factor = _factor(layer, log_scales)
        kernel, bias = layer.parametrisation.standardised(*sample, factor)
        points.append(LayerPoint(kernel, bias, log_scales))
    if network.inputs is not None:
        keys = [*jr.split(jr.fold_in(key, len(points)))]
        return _with_inputs(tuple(points), _drawn_scales(network.inputs.scales, keys))
    return tuple(points)


def _drawn_scales(
    scales: dict[str, Scale], keys: Sequence[PRNGKeyArray]
) -> dict[str, Float[Array, "..."]]:
    return {
        name: scale.q.loc + scale.q.scale * jr.normal(key, scale.q.loc.shape)
        for (name, scale), key in zip(scales.items(), keys, strict=True)
    }


def ascended(
    target: Target, flat: Float[Array, " unknowns"]
) -> tuple[Float[Array, " unknowns"], Float[Array, ""], Float[Array, " unknowns"]]:
    """The point after a thousand steps of Adam; its log density and the gradient.

    A variational posterior is too narrow, and it has removed nodes that the exact
    posterior still uses a little. Chains that start there take long to use these nodes;
    chains that start here are among likely networks at once.
    """
    unravel, optimiser = target.unravel(), adam()
    density = jax.value_and_grad(lambda v: target.log_density(unravel(v)))

    def step(carry: tuple, i: Int[Array, ""]) -> tuple[tuple, None]:
        flat, state, *_ = carry
        value, gradient = density(flat)
        update: Any
        with jax.numpy_dtype_promotion("standard"):
            update, state = optimiser.update(-gradient, state, flat)
        done = i.astype(flat.dtype) / ASCENT
        rate = ASCENT_RATE * 0.5 * (1 + jnp.cos(jnp.pi * done))
        return (flat - rate * update, state, value, gradient), None

    # One more step, whose rate is 0, for the density at the end.
    start = (flat, optimiser.init(flat), jnp.zeros(()), jnp.zeros_like(flat))
    (flat, _, value, slope), _ = lax.scan(step, start, jnp.arange(ASCENT + 1))
    return flat, value, slope
