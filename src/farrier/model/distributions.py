"""Predictive distributions: mixtures over posterior draws, in standardised units.

    p(y | x) = 1/S sum_s N(y; m_s(x), v_s(x) + 1 / gamma_s)         regression
    p(y = c | x) = 1/S sum_s softmax(f_s(x))_c                      classification  (P1)

A likelihood returns one of these objects for the outputs of all draws.
"""

import abc
import math
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jax.ops import segment_max, segment_sum
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float, Int

# For a quantile: the ends of its bracket, the estimate, the last step, the step count.
_Search: TypeAlias = tuple[Array, Array, Array, Array, Any]


class AbstractDistribution(eqx.Module):
    """The distribution of the targets of some rows."""

    @abc.abstractmethod
    def check_values(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> tuple[Float[Array, "rows _"], Float[Array, " rows"], Float[Array, " rows"]]:
        """Values that compaction must keep, their scale, and the log density of `y`."""

    @abc.abstractmethod
    def log_density(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """Log density or log probability of the targets of each row."""


class AbstractTargetDistribution(AbstractDistribution):
    """The distribution of numeric targets: a mixture of one component for each draw.

    A likelihood for regression returns one. Its components are what it must define;
    `farrier.HorseshoeRegressor` calls the methods that are made of them by name.
    """

    @abc.abstractmethod
    def moments(self) -> tuple[Float[Array, "rows targets"], ...]:
        """Mean, noise variance and model variance of each target."""

    @abc.abstractmethod
    def component_log_density(
        self, y: Float[Array, "rows targets"]
    ) -> Float[Array, "draws rows targets"]:
        """Log density of each target by itself, in each component."""

    @abc.abstractmethod
    def component_cdf(
        self, y: Float[Array, "rows targets"]
    ) -> Float[Array, "draws rows targets"]:
        """Probability that each target is at most `y`, in each component."""

    def log_density(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """Joint log density of the targets of each row."""
        each = self.component_log_density(y).sum(-1)
        return logsumexp(each, axis=0) - math.log(len(each))

    def cdf(self, y: Float[Array, "rows targets"]) -> Float[Array, "rows targets"]:
        """Probability that each target is at most `y` (P2)."""
        return _mean_over_draws(self.component_cdf(y))

    def leave_one_out_cdf(
        self, y: Float[Array, "rows targets"], group: Int[Array, " draws"]
    ) -> Float[Array, "rows targets"]:
        """`cdf` of each row under the posterior of all other rows (P3).

        Importance weights are normalised within each `group` of draws, numbered from 0.
        """
        weight = self._leave_one_out_weights(y, group)
        return (weight[..., None] * self.component_cdf(y)).sum(0)

    def _leave_one_out_weights(
        self, y: Float[Array, "rows targets"], group: Int[Array, " draws"]
    ) -> Float[Array, "draws rows"]:
        """Importance weights of the draws for the posterior without each row (P3).

        They are truncated at 1 / sqrt(draws) of their sum.
        """
        total = lambda values: segment_sum(values, group, len(group))[group]
        log_r = -self.component_log_density(y).sum(-1)
        r = jnp.exp(log_r - segment_max(log_r, group, len(group))[group])
        size = total(jnp.ones((len(group), 1)))
        weight = jnp.minimum(r / total(r), size**-0.5)
        return weight / total(weight) * size / len(group)

    def quantiles(
        self, levels: Float[Array, " levels"]
    ) -> Float[Array, "rows targets levels"]:
        """Quantiles of each target."""
        return jnp.moveaxis(lax.map(self.quantile, levels), 0, -1)

    def quantile(self, level: Float[Array, ""]) -> Float[Array, "rows targets"]:
        """Quantile of each target, by bisection of the distribution function.

        Cantelli's inequality, by mean and variance alone, gives the first bracket.
        """
        mean, noise, model = self.moments()
        sd = jnp.sqrt(noise + model)
        ends = (
            mean - sd * jnp.sqrt((1 - level) / level),
            mean + sd * jnp.sqrt(level / (1 - level)),
        )

        def halved(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = 0.5 * (low + high)
            is_under = self.cdf(middle) < level
            return jnp.where(is_under, middle, low), jnp.where(is_under, high, middle)

        steps = 2 * jnp.finfo(mean.dtype).nmant
        return lax.fori_loop(0, steps, halved, ends)[1]

    def check_values(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> tuple[Float[Array, "rows _"], Float[Array, " rows"], Float[Array, " rows"]]:
        """Means and noise sds; the predictive sd over all targets; the log density."""
        mean, noise, model = self.moments()
        values = jnp.concatenate([mean, jnp.sqrt(noise)], 1)
        return values, jnp.sqrt((noise + model).sum(1)), self.log_density(y)


class NormalMixture(AbstractTargetDistribution):
    """One normal for each draw, row and target (P1)."""

    loc: Float[Array, "draws rows targets"]
    weight_variance: Float[Array, "draws rows targets"]  # of the output layer's weights
    noise_sd: Float[Array, " draws #rows targets"]

    @property
    def sd(self) -> Float[Array, "draws rows targets"]:
        """Standard deviation of each component."""
        return jnp.sqrt(self.weight_variance + self.noise_sd**2)

    def mean(self) -> Float[Array, "rows targets"]:
        """Mean of the mixture."""
        return self.loc.mean(0)

    def noise_variance(self) -> Float[Array, "rows targets"]:
        """E[1 / gamma], the aleatoric part of the variance."""
        return jnp.broadcast_to((self.noise_sd**2).mean(0), self.loc.shape[1:])

    def model_variance(self) -> Float[Array, "rows targets"]:
        """Var[f], the epistemic part of the variance."""
        return self.loc.var(0) + self.weight_variance.mean(0)

    def moments(self) -> tuple[Float[Array, "rows targets"], ...]:
        """Mean, noise variance and model variance of each target."""
        return self.mean(), self.noise_variance(), self.model_variance()

    def component_log_density(
        self, y: Float[Array, "rows targets"]
    ) -> Float[Array, "draws rows targets"]:
        """Log density of each target by itself, in each component."""
        return norm.logpdf(y[None], self.loc, self.sd)

    def component_cdf(
        self, y: Float[Array, "rows targets"]
    ) -> Float[Array, "draws rows targets"]:
        """Probability that each target is at most `y`, in each component."""
        return norm.cdf(y[None], self.loc, self.sd)

    def density(self, y: Float[Array, "rows targets"]) -> Float[Array, "rows targets"]:
        """Density of each target by itself: the slope of `cdf`."""
        return _mean_over_draws(norm.pdf(y[None], self.loc, self.sd))

    def quantile(self, level: Float[Array, ""]) -> Float[Array, "rows targets"]:
        """Quantile of each target: a root of the mixture's distribution function.

        Newton's method inside a bracket. A step that would leave the bracket, or is not
        half as long as the step before it, is replaced by bisection.
        """
        z, sd = norm.ppf(level), self.sd
        reach = 1 + jnp.abs(z)
        low, high = (self.loc - reach * sd).min(0), (self.loc + reach * sd).max(0)
        variance = self.noise_variance() + self.model_variance()
        start = jnp.clip(self.mean() + z * jnp.sqrt(variance), low, high)
        number = jnp.finfo(low.dtype)
        # The error that is left after a Newton step is about its square.
        near, most = math.sqrt(number.eps) * sd.min(0), 2 * number.nmant

        def step_closer(search: _Search) -> _Search:
            low, high, x, step, count = search
            excess = self.cdf(x) - level
            low, high = jnp.where(excess < 0, x, low), jnp.where(excess < 0, high, x)
            newton = -excess / self.density(x)
            inside = (low <= x + newton) & (x + newton <= high)
            good = inside & (2 * jnp.abs(newton) <= jnp.abs(step))
            good |= jnp.abs(newton) <= near  # converged: the rest is rounding
            step = jnp.where(good, newton, 0.5 * (low + high) - x)
            return low, high, x + step, step, count + 1

        def is_far(search: _Search) -> Bool[Array, ""]:
            *_, step, count = search
            return (count < most) & (jnp.abs(step) > near).any()

        search = low, high, start, high - low, jnp.zeros((), int)
        return lax.while_loop(is_far, step_closer, search)[2]


class ClassProbabilities(AbstractDistribution):
    """Class probabilities of each draw; the prediction is their mean (P1)."""

    each: Float[Array, "draws rows classes"]

    def mean(self) -> Float[Array, "rows classes"]:
        """Probability of each class."""
        return self.each.mean(0)

    def draws(self) -> Float[Array, "rows classes draws"]:
        """Probabilities of each draw."""
        return jnp.moveaxis(self.each, 0, -1)

    def quantiles(
        self, levels: Float[Array, " levels"]
    ) -> Float[Array, "rows classes levels"]:
        """Quantiles, over the draws, of each class's probability."""
        return jnp.moveaxis(jnp.quantile(self.each, levels, axis=0), 0, -1)

    def log_density(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> Float[Array, " rows"]:
        """Log probability of each row's class, finite where it rounds to 0."""
        return _log_probability(self.mean(), y)

    def check_values(
        self, y: Float[Array, "rows targets"] | Int[Array, " rows"]
    ) -> tuple[Float[Array, "rows _"], Float[Array, " rows"], Float[Array, " rows"]]:
        """Probabilities; the sd of the class indicators; the log probability."""
        p = self.mean()
        tiny = jnp.finfo(p.dtype).tiny
        sd = jnp.sqrt(jnp.maximum((p * (1 - p)).sum(1), tiny))
        return p, sd, _log_probability(p, y)


def _log_probability(
    p: Float[Array, "rows classes"], y: Int[Array, " rows"]
) -> Float[Array, " rows"]:
    of_class = jnp.take_along_axis(p, y[:, None], axis=1)[:, 0]
    return jnp.log(jnp.maximum(of_class, jnp.finfo(p.dtype).tiny))


def _mean_over_draws(
    values: Float[Array, "draws rows targets"],
) -> Float[Array, "rows targets"]:
    """The mean over the draws, as a matrix product.

    XLA computes the operands of a sum one number at a time, but materialises those of a
    product with vector instructions: a tenth of the time.
    """
    return jnp.tensordot(jnp.full(len(values), 1 / len(values)), values, 1)
