"""Predictions for any number of rows, chunk by chunk.

Draw s of a posterior depends on its key and on s alone, so that a prediction is a
function of its own row: chunks, order and the other rows do not change it. Of each
chunk only the requested summary is kept, so that memory is bounded.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..model.posterior import DRAWS_AT_ONCE, AbstractPosterior
from ..train.data import pad_rows

CHUNK_VALUES = 2**19  # draws at once x rows x widest layer: what fits a cache
MIN_CHUNK = 512  # fewest rows of a chunk, because each chunk has a fixed cost


def summarise(
    summary: str | Callable[..., Any],
    posterior: AbstractPosterior,
    x: np.ndarray,
    *row_values: np.ndarray,
    args: tuple[Any, ...] = (),
) -> Any:
    """`summary(distribution, *row_values, *args)` of the predictive distribution.

    Parameters
    ----------
    summary
        Name of a method of the distribution, such as "cdf", or a function of the
        distribution. Each array that it returns has the rows as its first axis.
    row_values
        Arrays with one entry for each row, such as the targets.
    """
    return _by_chunks(_OfPredictive(summary), posterior, (x, *row_values), args)


def sample_targets(
    posterior: AbstractPosterior, x: np.ndarray, draws: int, *, key: PRNGKeyArray
) -> np.ndarray:
    """Samples of the targets, one function a draw: rows x targets x draws."""
    key_weights, key_noise = jr.split(key)
    posterior = posterior.resampled(draws, key=key_weights)
    return _by_chunks(_targets, posterior, (x, np.arange(len(x))), (key_noise,))


class _OfPredictive(eqx.Module):
    """A summary of the predictive distribution, as a function of posterior and rows."""

    summary: str | Callable[..., Any] = eqx.field(static=True)

    def __call__(
        self, posterior: AbstractPosterior, x: Float[Array, "rows d_in"], *values: Any
    ) -> Any:
        distribution = posterior.predictive(x)
        if isinstance(self.summary, str):
            return getattr(distribution, self.summary)(*values)
        return self.summary(distribution, *values)


def _targets(
    posterior: AbstractPosterior,
    x: Float[Array, "rows d_in"],
    rows: Int[Array, " rows"],
    key: PRNGKeyArray,
) -> Float[Array, "rows targets draws"]:
    f = posterior.drawn_outputs(x)
    y = posterior.likelihood.sample_targets(f, posterior.noise, rows, key=key)
    return jnp.moveaxis(y, 0, -1)


def _by_chunks(
    function: Callable[..., Any],
    posterior: AbstractPosterior,
    rows: tuple[np.ndarray, ...],
    args: tuple[Any, ...],
) -> Any:
    """`function(posterior, *rows, *args)`; chunks are padded to few sizes."""
    total = len(rows[0])
    widest = max((*posterior.widths, rows[0].shape[1], posterior.likelihood.d_out))
    most = max(MIN_CHUNK, CHUNK_VALUES // (DRAWS_AT_ONCE * widest))
    size = min(2 ** int(math.log2(most)), max(16, 2 ** (total - 1).bit_length()))
    parts = []
    for first in range(0, total, size):
        chunk = [values[first : first + size] for values in rows]
        padded = [jnp.asarray(pad_rows(values, size)) for values in chunk]
        result = _compiled(function, posterior, padded, args)
        real = len(chunk[0])
        parts.append(jax.tree.map(lambda v, n=real: np.asarray(v)[:n], result))
    return jax.tree.map(lambda *v: np.concatenate(v), *parts)


@eqx.filter_jit
def _compiled(
    function: Callable[..., Any],
    posterior: AbstractPosterior,
    rows: list[Array],
    args: tuple[Any, ...],
) -> Any:
    return function(posterior, *rows, *args)
