"""The posterior predictive: a mixture over a fixed set of draws of the network.

    p(y | x) = 1/S sum_s N(y; m_s(x), v_s(x) + 1 / gamma_s)         regression
    p(y = c | x) = 1/S sum_s softmax(f_s(x))_c                      classification  (P1)

Draw s fixes all weights of the hidden layers, the scale of the output layer and gamma.
The weights of the output layer are integrated in closed form for regression (m_s, v_s)
and drawn for classification; those of a noise that depends on the row (L4) are drawn.
Draw s depends on the key and on s alone, so that a prediction is a function of its own
row: chunks, order and the other rows do not change it. Of each chunk only what is asked
for is kept, so that memory is bounded.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.ops import segment_max, segment_sum
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from scipy import stats

from ..core.random import normals
from ..model.drawn import AnyNetwork, DrawKey, DrawnNetwork
from ..model.likelihoods import AbstractNormalLikelihood
from ..train.data import pad_rows

CHUNK_VALUES = 2**19  # draws at once x rows x widest layer: what a cache holds ...
LEAST_CHUNK = 512  # ... but no fewer rows: a chunk has a cost of its own
DRAWS_AT_ONCE = 8

# For a quantile: a bracket of it, where it is looked for, the last step, their number.
_Search: TypeAlias = tuple[Array, Array, Array, Array, Any]


class Mixture(eqx.Module):
    """One normal for each draw, row and target: the predictive of a regression (P1)."""

    loc: Float[Array, "draws rows targets"]
    own_variance: Float[Array, "draws rows targets"]  # v_s, from the output layer
    noise_sd: Float[Array, " draws #rows targets"]

    @property
    def sd(self) -> Float[Array, "draws rows targets"]:
        """Standard deviation of each part of the mixture."""
        return jnp.sqrt(self.own_variance + self.noise_sd**2)

    def mean(self) -> Float[Array, "rows targets"]:
        """Mean of the mixture."""
        return self.loc.mean(0)

    def noise_variance(self) -> Float[Array, "rows targets"]:
        """E[1 / gamma]: what stays however well the network is known."""
        return jnp.broadcast_to((self.noise_sd**2).mean(0), self.loc.shape[1:])

    def weights_variance(self) -> Float[Array, "rows targets"]:
        """Var[f]: what comes from not knowing the weights."""
        return self.loc.var(0) + self.own_variance.mean(0)

    def log_density(self, y: Float[Array, "rows targets"]) -> Float[Array, " rows"]:
        """Joint log density of the targets of each row."""
        each = norm.logpdf(y[None], self.loc, self.sd).sum(-1)
        return logsumexp(each, axis=0) - math.log(len(each))

    def cdf(self, y: Float[Array, "rows targets"]) -> Float[Array, "rows targets"]:
        """Probability that each target is at most `y` (P2)."""
        return _over_all(norm.cdf(y[None], self.loc, self.sd))

    def left_out_cdf(
        self, y: Float[Array, "rows targets"], fit: Int[Array, " draws"]
    ) -> Float[Array, "rows targets"]:
        """The same with row i taken out of the draws by importance weights (P3).

        Draws that have the same number in `fit`, from 0, are weighed among themselves.
        """
        share = self._shares_without(y, fit)
        return (share[..., None] * norm.cdf(y[None], self.loc, self.sd)).sum(0)

    def left_out(
        self, y: Float[Array, "rows targets"]
    ) -> tuple[Float[Array, " rows"], Float[Array, "rows targets"]]:
        """Log density and mean of each row with it taken out of the draws (W4)."""
        share = self._shares_without(y, jnp.zeros(len(self.loc), int))
        each = norm.logpdf(y[None], self.loc, self.sd).sum(-1)
        mean = (share[..., None] * self.loc).sum(0)
        return logsumexp(each, axis=0, b=share), mean

    def _shares_without(
        self, y: Float[Array, "rows targets"], fit: Int[Array, " draws"]
    ) -> Float[Array, "draws rows"]:
        """Importance weights of the draws where each row is taken out of them (P3).

        They are truncated: none is over 1 / sqrt(draws) of their sum.
        """
        total = lambda values: segment_sum(values, fit, len(fit))[fit]
        log_r = -norm.logpdf(y[None], self.loc, self.sd).sum(-1)
        r = jnp.exp(log_r - segment_max(log_r, fit, len(fit))[fit])
        size = total(jnp.ones((len(fit), 1)))
        share = jnp.minimum(r / total(r), size**-0.5)
        return share / total(share) * size / len(fit)

    def density(self, y: Float[Array, "rows targets"]) -> Float[Array, "rows targets"]:
        """Density of each target by itself: the slope of `cdf`."""
        return _over_all(norm.pdf(y[None], self.loc, self.sd))

    def quantile(self, level: Float[Array, ""]) -> Float[Array, "rows targets"]:
        """Quantile of each target: a root of the mixture's distribution function.

        By Newton's steps inside a bracket, which is halved where such a step would
        leave it or is not half as long as the one before.
        """
        z, sd = norm.ppf(level), self.sd
        reach = 1 + jnp.abs(z)
        low, high = (self.loc - reach * sd).min(0), (self.loc + reach * sd).max(0)
        variance = self.noise_variance() + self.weights_variance()
        start = jnp.clip(self.mean() + z * jnp.sqrt(variance), low, high)
        number = jnp.finfo(low.dtype)
        # The error that a step of Newton's leaves is about its square.
        near, most = math.sqrt(number.eps) * sd.min(0), 2 * number.nmant

        def nearer(search: _Search) -> _Search:
            low, high, x, step, count = search
            excess = self.cdf(x) - level
            low, high = jnp.where(excess < 0, x, low), jnp.where(excess < 0, high, x)
            newton = -excess / self.density(x)
            inside = (low <= x + newton) & (x + newton <= high)
            good = inside & (2 * jnp.abs(newton) <= jnp.abs(step))
            good |= jnp.abs(newton) <= near  # there, and the rest is rounding
            step = jnp.where(good, newton, 0.5 * (low + high) - x)
            return low, high, x + step, step, count + 1

        def is_far(search: _Search) -> Bool[Array, ""]:
            *_, step, count = search
            return (count < most) & (jnp.abs(step) > near).any()

        search = low, high, start, high - low, jnp.zeros((), int)
        return lax.while_loop(is_far, nearer, search)[2]


def _over_all(
    values: Float[Array, "draws rows targets"],
) -> Float[Array, "rows targets"]:
    """The mean over the draws, as a product.

    XLA would work out what goes into a sum number by number; what goes into a product
    it makes before, in vectors, in a tenth of the time.
    """
    return jnp.tensordot(jnp.full(len(values), 1 / len(values)), values, 1)


def noise_sds(
    network: AnyNetwork, draws: int, *, key: PRNGKeyArray
) -> Float[Array, "draws targets"]:
    """1 / sqrt(gamma) for each draw: quantiles of q(gamma), evenly spread, shuffled.

    Stratified, so that its moments are those of q(gamma) even for few draws. Where the
    posterior is a set of draws, each has its own.
    """
    if isinstance(network, DrawnNetwork):
        # By NumPy: in a new process, JAX would compile each small operation.
        numbers = np.asarray(network.draw_keys(draws, key=key))
        return jnp.asarray(np.asarray(network.noise_sd)[numbers])
    likelihood = network.likelihood
    assert isinstance(likelihood, AbstractNormalLikelihood)
    shape = np.asarray(likelihood.gamma.shape, float)
    levels = (np.arange(draws) + 0.5) / draws
    order = np.random.default_rng(np.asarray(jr.key_data(key)))
    levels = order.permuted(np.tile(levels, (len(shape), 1)), axis=1).T
    precision = stats.gamma.ppf(levels, shape) / np.exp(likelihood.gamma.log_rate)
    return jnp.asarray(precision**-0.5, float)


def mixture(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> Mixture:
    """The predictive of a regression network (P1), in standardised units."""
    likelihood = network.likelihood
    assert isinstance(likelihood, AbstractNormalLikelihood)
    targets = likelihood.targets

    def one(key_draw: DrawKey) -> tuple[Array, Array, Array]:
        loc, variance, drawn = network.predictive(x, key=key_draw)
        return loc[:, :targets], variance[:, :targets], likelihood.log_ratio(drawn)

    loc, variance, ratio = _over_draws(one, network, len(noise_sd), key=key)
    return Mixture(loc, variance, noise_sd[:, None] * jnp.exp(ratio))


def _over_draws(
    one: Callable, network: AnyNetwork, draws: int, *, key: PRNGKeyArray
) -> Any:
    """`one` for each draw, a few at a time."""
    keys = network.draw_keys(draws, key=key)
    return lax.map(one, keys, batch_size=min(draws, DRAWS_AT_ONCE))


def outputs(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> Float[Array, "draws rows d_out"]:
    """Outputs of `draws` sampled networks."""

    def one(key_draw: DrawKey) -> Float[Array, "rows d_out"]:
        return network.sample(key=key_draw)(x)

    return _over_draws(one, network, draws, key=key)


def probabilities(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> Float[Array, "rows classes"]:
    """Class probabilities: the mean of the draws' softmax (P1)."""
    return jax.nn.softmax(outputs(network, x, draws, key=key)).mean(0)


def probability_draws(
    network: AnyNetwork, x: Float[Array, "rows d_in"], draws: int, *, key: PRNGKeyArray
) -> Float[Array, "rows classes draws"]:
    """Class probabilities of each draw: their mean is the prediction (P1)."""
    return jnp.moveaxis(jax.nn.softmax(outputs(network, x, draws, key=key)), 0, -1)


def probability_quantiles(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    draws: int,
    levels: Float[Array, " levels"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "rows classes levels"]:
    """Quantiles, over the draws, of each class's probability."""
    each = jax.nn.softmax(outputs(network, x, draws, key=key))
    return jnp.moveaxis(jnp.quantile(each, levels, axis=0), 0, -1)


def moments(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "rows targets"], ...]:
    """Mean, noise variance and weights variance of each target."""
    mix = mixture(network, x, noise_sd, key=key)
    return mix.mean(), mix.noise_variance(), mix.weights_variance()


def log_densities(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, " rows"]:
    """Log density of each row's targets."""
    return mixture(network, x, noise_sd, key=key).log_density(y)


def cdfs(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "rows targets"]:
    """Where the targets of each row lie in their predictive laws (P2)."""
    return mixture(network, x, noise_sd, key=key).cdf(y)


def left_out_cdfs(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"],
    noise_sd: Float[Array, "draws targets"],
    fit: Int[Array, " draws"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "rows targets"]:
    """Where the targets of each row lie in the laws of all other rows (P3)."""
    return mixture(network, x, noise_sd, key=key).left_out_cdf(y, fit)


def left_out_scores(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    y: Float[Array, "rows targets"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> tuple[Float[Array, " rows"], Float[Array, "rows targets"]]:
    """Log density and mean of each row under the laws of all other rows (W4)."""
    return mixture(network, x, noise_sd, key=key).left_out(y)


def quantiles(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    noise_sd: Float[Array, "draws targets"],
    levels: Float[Array, " levels"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "rows targets levels"]:
    """Quantiles of each target."""
    mix = mixture(network, x, noise_sd, key=key)
    return jnp.moveaxis(lax.map(mix.quantile, levels), 0, -1)


def sampled_targets(
    network: AnyNetwork,
    x: Float[Array, "rows d_in"],
    rows: Int[Array, " rows"],
    noise_sd: Float[Array, "draws targets"],
    *,
    key: PRNGKeyArray,
) -> Float[Array, "rows targets draws"]:
    """Draws of the targets: a whole function each, with fresh noise for each row."""
    key_weights, key_noise = jr.split(key)
    f = outputs(network, x, len(noise_sd), key=key_weights)
    likelihood = network.likelihood
    assert isinstance(likelihood, AbstractNormalLikelihood)
    sd = noise_sd[:, None] * jnp.exp(likelihood.log_ratio(f))
    targets = jnp.arange(likelihood.targets)
    noise = jax.vmap(lambda k: normals(rows, targets, key=k)[0])(
        jr.split(key_noise, len(f))
    )
    return jnp.moveaxis(f[..., : likelihood.targets] + sd * noise, 0, -1)


def by_chunks(
    summary: Callable,
    network: AnyNetwork,
    rows: tuple[np.ndarray, ...],
    *args: Any,
    key: PRNGKeyArray,
) -> Any:
    """`summary(network, *rows, *args, key=key)` for all rows, chunk by chunk.

    Parameters
    ----------
    rows
        Arrays with one entry for each row; they are cut and padded together. Every
        array that `summary` returns has the rows as its first axis.
    """
    total = len(rows[0])
    widest = max((*network.widths, rows[0].shape[1], network.likelihood.d_out))
    most = max(LEAST_CHUNK, CHUNK_VALUES // (DRAWS_AT_ONCE * widest))
    size = min(2 ** int(math.log2(most)), max(16, 2 ** (total - 1).bit_length()))
    parts = []
    for first in range(0, total, size):
        chunk = [values[first : first + size] for values in rows]
        padded = [jnp.asarray(pad_rows(values, size)) for values in chunk]
        result = _compiled(summary, network, *padded, *args, key=key)
        real = len(chunk[0])
        parts.append(jax.tree.map(lambda v, n=real: np.asarray(v)[:n], result))
    return jax.tree.map(lambda *v: np.concatenate(v), *parts)


@eqx.filter_jit
def _compiled(
    summary: Callable, network: AnyNetwork, *args: Any, key: PRNGKeyArray
) -> Any:
    return summary(network, *args, key=key)
