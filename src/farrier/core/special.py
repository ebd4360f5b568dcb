"""Stable scalar functions."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def softplus_inverse(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Raw value whose softplus is `x`: ln(exp(x) - 1), without overflow."""
    return x + jnp.log(-jnp.expm1(-x))
