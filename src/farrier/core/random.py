"""Normal noise as a function of (key, row, column), fast enough to stand inside a step.

    (x0, x1) = threefry_13(key, (row, column))
    z0 = r cos(pi v),  z1 = r sin(pi v),  r = sqrt(-2 ln u)                     (R1)

with u in (0, 1] and v in [-1, 1] made from x0 and x1. Threefry with 2 x 32 bits has no
known statistical flaw from 13 rounds on (Salmon et al. 2011). Written out, it is one
elementwise expression that XLA fuses with the Box-Muller transform: no array of bits is
ever stored. An entry does not depend on how many others are drawn with it.
"""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Complex, Float, Int, PRNGKeyArray, UInt32

LEAST_NOISE = 1_024  # entries that are drawn to begin with
_ROUNDS = 13
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def normals(
    rows: Int[Array, " rows"], columns: Int[Array, " columns"], *, key: PRNGKeyArray
) -> tuple[Float[Array, "rows columns"], Float[Array, "rows columns"]]:
    """Two independent standard normal arrays (R1), one entry for each row and column.

    Parameters
    ----------
    rows, columns
        Their numbers: an entry depends on its own two numbers and on nothing else, so
        that a part of a table gets the noise that it has in the whole.
    """
    words = jr.key_data(key).astype(jnp.uint32)
    shape = (len(rows), len(columns))

    def pairs(words: UInt32[Array, "2"]) -> Complex[Array, "rows columns"]:
        row = jnp.broadcast_to(rows.astype(jnp.uint32)[:, None], shape)
        column = jnp.broadcast_to(columns.astype(jnp.uint32)[None], shape)
        return lax.complex(*box_muller(*threefry(words[0], words[1], row, column)))

    def none(words: UInt32[Array, "2"]) -> Complex[Array, "rows columns"]:
        del words
        return jnp.zeros(shape, jnp.result_type(complex))

    # Always true, but XLA cannot know: the pairs are made once, in one loop, and not
    # again in each place that uses one of them.
    noise = lax.cond(words[0] | words[1] | 1 > 0, pairs, none, words)
    return noise.real, noise.imag


def start_noise(shape: tuple[int, ...], *, key: PRNGKeyArray) -> Float[Array, "..."]:
    """`jax.random.normal` of this shape, without a program of its own for each shape.

    An entry depends on its number alone, so that one program of a round size serves all
    arrays that are smaller.
    """
    if isinstance(key, Tracer):
        return jr.normal(key, shape)
    size = math.prod(shape)
    enough = jr.normal(key, (max(LEAST_NOISE, 2 ** (size - 1).bit_length()),))
    return jnp.asarray(np.asarray(enough)[:size].reshape(shape))


def fold_in(key: PRNGKeyArray, number: int | Int[Array, ""]) -> PRNGKeyArray:
    """`jax.random.fold_in` with its loops written out: one small piece of a step."""
    words = jr.key_data(key)
    counter = jnp.asarray(number, jnp.uint32)
    folded = threefry(words[0], words[1], jnp.zeros_like(counter), counter, rounds=20)
    return jr.wrap_key_data(jnp.stack(folded))


def threefry(
    key0: UInt32[Array, ""],
    key1: UInt32[Array, ""],
    counter0: UInt32[Array, "*shape"],
    counter1: UInt32[Array, "*shape"],
    rounds: int = _ROUNDS,
) -> tuple[UInt32[Array, "*shape"], UInt32[Array, "*shape"]]:
    """Threefry-2x32, unrolled. With 20 rounds it is the generator of `jax.random`."""
    schedule = (key0, key1, key0 ^ key1 ^ jnp.uint32(_PARITY))
    x0, x1 = counter0 + schedule[0], counter1 + schedule[1]
    for i in range(rounds):
        x0 = x0 + x1
        left = _ROTATIONS[i % 8]
        x1 = (x1 << jnp.uint32(left)) | (x1 >> jnp.uint32(32 - left))
        x1 = x1 ^ x0
        if i % 4 == 3:
            j = i // 4 + 1
            x0 = x0 + schedule[j % 3]
            x1 = x1 + schedule[(j + 1) % 3] + jnp.uint32(j)
    return x0, x1


def box_muller(
    bits0: UInt32[Array, "*shape"], bits1: UInt32[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Both halves of the Box-Muller transform of two words (R1)."""
    dtype = jnp.result_type(float)
    # 31 bits go through a signed integer, which converts to float in one instruction.
    u = ((bits0 >> jnp.uint32(1)).astype(jnp.int32).astype(dtype) + 0.5) * 2.0**-31
    v = lax.bitcast_convert_type(bits1, jnp.int32).astype(dtype) * 2.0**-31
    radius = jnp.sqrt(-2 * jnp.log(u))
    cosine, sine = _cos_sin_pi(v)
    return radius * cosine, radius * sine


def _cos_sin_pi(
    v: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """cos(pi v) and sin(pi v) for v in [-1, 1] by Taylor polynomials about |v| = 1/2.

    XLA's own sine and cosine reduce any argument; here |h| <= 1/2 is known, and the
    remainder of these polynomials is under 6e-8.
    """
    h = jnp.abs(v) - 0.5
    square = h * h
    sine_h = h * _polynomial(square, _SINE)
    cosine_h = _polynomial(square, _COSINE)
    return -sine_h, jnp.where(v < 0, -cosine_h, cosine_h)


_TAYLOR = [math.pi**n / math.factorial(n) for n in range(13)]
_SINE = tuple((-1) ** i * c for i, c in enumerate(_TAYLOR[1::2]))
_COSINE = tuple((-1) ** i * c for i, c in enumerate(_TAYLOR[0::2]))


def _polynomial(
    x: Float[Array, "*shape"], coefficients: tuple[float, ...]
) -> Float[Array, "*shape"]:
    total = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total
