"""Normal noise, homoscedastic or heteroscedastic, with a learned precision.

y ~ N(f(x), 1 / gamma),   gamma ~ Gamma(a, b)                                    (L1)
y ~ N(f(x), exp(-g(x)) / gamma),   gamma ~ Gamma(a, b)                           (L4)

f and g are outputs of the network.
"""

import abc
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from scipy import stats

from ...core.families import Conditional, Gamma
from ...core.priors import AbstractPrior
from ...core.random import normals
from ..distributions import NormalMixture
from .base import AbstractLikelihood, OutputDraws

LOG_PRECISION_VARIANCE = 2.0  # variance of ln(1 / sd^2) given one normal number
MAX_LOG = 10.0  # g is clipped to [-10, 10] so that exp(g) stays finite


class AbstractNormalLikelihood(AbstractLikelihood):
    """Normal noise with an unknown precision for each target."""

    integrates_output: ClassVar[bool] = True
    gamma: Gamma
    prior_shape: float
    prior_rate: float

    @abc.abstractmethod
    def log_ratio(
        self, f: Float[Array, "*draws rows d_out"]
    ) -> Float[Array, "*draws #rows targets"]:
        """Logarithm of the ratio of each row's noise sd to gamma^(-1/2)."""

    @property
    def targets(self) -> int:
        """Number of targets; each has a precision."""
        return self.gamma.log_rate.shape[0]

    @property
    def unknowns(self) -> int:
        """The precision of each target."""
        return self.targets

    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """-sum over targets of (a + n / 2) ln(b + E / 2) (H2).

        Less the logarithms of the noise sd of the rows, where it varies (H3).
        """
        gamma = self.noise_given(y, f, weight)
        normaliser = (weight[:, None] * self.log_ratio(f)).sum()
        return -(gamma.shape * gamma.log_rate).sum() - normaliser

    def noise_given(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Gamma:
        """gamma | y, f ~ Gamma(a + n / 2, b + E / 2), one for each target (H2).

        E is the weighted sum of squared errors and n the sum of the weights. Where the
        noise differs between rows, errors are over its ratio (H3).
        """
        error = (y - f[:, : self.targets]) * jnp.exp(-self.log_ratio(f))
        shape = jnp.full(self.targets, self.prior_shape + 0.5 * weight.sum())
        return Gamma(shape, jnp.log(self.prior_rate + 0.5 * weight @ error**2))

    def mean_noise(self) -> Float[Array, " unknowns"]:
        """1 / E[gamma] of each target."""
        return 1 / self.gamma.mean()

    def noise_draws(
        self, draws: int, *, key: PRNGKeyArray
    ) -> Float[Array, "draws unknowns"]:
        """1 / sqrt(gamma): evenly spaced quantiles of q(gamma), shuffled.

        Stratified, so that its moments are those of q(gamma) even for few draws.
        """
        shape = np.asarray(self.gamma.shape, float)
        levels = (np.arange(draws) + 0.5) / draws
        order = np.random.default_rng(np.asarray(jr.key_data(key)))
        levels = order.permuted(np.tile(levels, (len(shape), 1)), axis=1).T
        precision = stats.gamma.ppf(levels, shape) / np.exp(self.gamma.log_rate)
        return jnp.asarray(precision**-0.5, float)

    def sample_noise(
        self, given: Any, draws: int, generator: np.random.Generator
    ) -> Float[Array, "draws unknowns"]:
        """1 / sqrt(gamma) given the outputs of each draw (H2).

        NumPy draws, because XLA takes long to compile gamma variates.
        """
        del draws
        standard = generator.standard_gamma(np.asarray(given.shape))
        gamma = standard * np.exp(-np.asarray(given.log_rate))
        return jnp.asarray(gamma**-0.5, float)

    def predictive(
        self, outputs: OutputDraws, noise: Float[Array, "draws unknowns"]
    ) -> NormalMixture:
        """One normal for each draw (P1)."""
        mean = slice(0, self.targets)
        sd = noise[:, None] * jnp.exp(self.log_ratio(outputs.drawn))
        return NormalMixture(outputs.loc[..., mean], outputs.variance[..., mean], sd)

    def sample_targets(
        self,
        f: Float[Array, "draws rows d_out"],
        noise: Float[Array, "draws unknowns"],
        rows: Int[Array, " rows"],
        *,
        key: PRNGKeyArray,
    ) -> Float[Array, "draws rows targets"]:
        """f plus normal noise, independent for each draw and row."""
        sd = noise[:, None] * jnp.exp(self.log_ratio(f))
        targets = jnp.arange(self.targets)
        standard = jax.vmap(lambda k: normals(rows, targets, key=k)[0])(
            jr.split(key, len(f))
        )
        return f[..., : self.targets] + sd * standard

    def resumed(self, fresh: Any) -> Self:
        """The same mean of gamma, with the shape and the prior of a fresh one (M8)."""
        old, shape = self.gamma, fresh.gamma.fixed_shape
        gamma = Gamma(shape, old.log_rate + jnp.log(shape / old.fixed_shape))
        return type(self)(gamma, fresh.prior_shape, fresh.prior_rate)

    def kl(self) -> dict[str, Float[Array, ""]]:
        """KL of the precisions from their Gamma prior (F7)."""
        return {
            "noise/gamma": self.gamma.kl_to(self.prior_shape, self.prior_rate).sum()
        }


class GaussianLikelihood(AbstractNormalLikelihood):
    """Homoscedastic noise: one precision for all rows (L1)."""

    name: ClassVar[str] = "gaussian"

    @property
    def d_out(self) -> int:
        """One output for each target."""
        return self.targets

    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """Closed over gamma and the last layer's weights (L3), summed over targets.

        1/2 (E[ln gamma] - ln 2 pi) - 1/2 E[gamma] ((y - E f)^2 + Var f)
        """
        squared_error = (y.T - f.mean) ** 2 + f.variance
        log_gamma, gamma = self.gamma.expected_log(), self.gamma.mean()
        log_normaliser = 0.5 * (log_gamma - math.log(2 * math.pi))
        return log_normaliser.sum() - 0.5 * gamma @ squared_error

    def log_ratio(
        self, f: Float[Array, "*draws rows d_out"]
    ) -> Float[Array, "*draws #rows targets"]:
        """Zero: all rows have the same noise."""
        return jnp.zeros_like(f[..., :1, :])

    def residual_variance(
        self, noise: Float[Array, " unknowns"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """The noise variance."""
        del f
        return noise


class HeteroscedasticLikelihood(AbstractNormalLikelihood):
    """Noise whose precision is gamma exp(g(x)), g an output for each target (L4).

    The outputs are f of all targets, then g of all targets.
    """

    name: ClassVar[str] = "heteroscedastic"

    @property
    def d_out(self) -> int:
        """Two outputs for each target."""
        return 2 * self.targets

    @property
    def noise_outputs(self) -> Bool[np.ndarray, " d_out"]:
        """g, the second half of the outputs."""
        return np.arange(self.d_out) >= self.targets

    def output_prior(self, prior: AbstractPrior) -> AbstractPrior:
        """A scale for each output, so that g can be 0 while f is not."""
        return prior.separate_output_prior()

    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """Closed over gamma and the last layer's weights (L5), summed over targets.

        1/2 (E[ln gamma] + E g - ln 2 pi)
        - 1/2 E[gamma] exp(E g + Var g / 2) ((y - E f)^2 + Var f)
        """
        mean, variance = f.mean, f.variance
        g = mean[self.targets :]
        squared_error = (y.T - mean[: self.targets]) ** 2 + variance[: self.targets]
        squared_error *= _exp(g + 0.5 * variance[self.targets :])
        log_gamma, gamma = self.gamma.expected_log(), self.gamma.mean()
        log_normaliser = 0.5 * (log_gamma - math.log(2 * math.pi))
        return log_normaliser.sum() + 0.5 * g.sum(0) - 0.5 * gamma @ squared_error

    def log_ratio(
        self, f: Float[Array, "*draws rows d_out"]
    ) -> Float[Array, "*draws #rows targets"]:
        """-g / 2."""
        return -0.5 * jnp.clip(f[..., self.targets :], -MAX_LOG, MAX_LOG)

    def residual_variance(
        self, noise: Float[Array, " unknowns"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """The mean noise variance of the rows for f; a constant for g (S1)."""
        mean = noise * jnp.exp(2 * self.log_ratio(f)).mean(0)
        return jnp.concatenate([mean, jnp.full_like(mean, LOG_PRECISION_VARIANCE)])


def _exp(g: Float[Array, "targets batch"]) -> Float[Array, "targets batch"]:
    """exp(g), continued as a straight line beyond `MAX_LOG`."""
    bent = jnp.minimum(g, MAX_LOG)
    return jnp.exp(bent) * (1 + g - bent)


@dataclass(frozen=True, kw_only=True)
class AbstractNoise(abc.ABC):
    """Normal noise on the standardised target, with gamma ~ Gamma(shape, rate)."""

    name: ClassVar[str]
    shape: float = 1.0
    rate: float = 0.01

    def __post_init__(self) -> None:
        for field in ("shape", "rate"):
            value = getattr(self, field)
            if not 0 < value < float("inf"):
                raise ValueError(
                    f"`{field}` must be positive and finite, got {value!r}."
                )

    @abc.abstractmethod
    def build(self, targets: int, *, rows: float) -> AbstractNormalLikelihood:
        """The likelihood of `rows` rows; q(gamma) starts with mean 1."""

    def _parts(self, targets: int, rows: float) -> tuple[Gamma, float, float]:
        """q(gamma), and the two numbers of its prior.

        The best q(gamma) is Gamma(shape + rows / 2, .) whatever the network does (M8).
        """
        shape = jnp.full((targets,), self.shape + 0.5 * rows, float)
        return Gamma(shape, jnp.log(shape)), float(self.shape), float(self.rate)


@dataclass(frozen=True, kw_only=True)
class GaussianNoise(AbstractNoise):
    """Normal noise on the standardised target, its precision ~ Gamma(shape, rate).

    With n rows, the noise standard deviation cannot be below
    sqrt(rate / (shape + n / 2)) standard deviations of the target. The default is a
    weak prior. The lower limit of Gamma(6, 6), used by Ghosh & Doshi-Velez (2017), is
    larger than the noise of many tables.

    Parameters
    ----------
    shape : float, default=1.0
        Shape of the Gamma prior of the precision.
    rate : float, default=0.01
        Rate of the Gamma prior of the precision.
    """

    name: ClassVar[str] = GaussianLikelihood.name

    def build(self, targets: int, *, rows: float) -> GaussianLikelihood:
        """The likelihood of `rows` rows; q(gamma) starts with mean 1."""
        return GaussianLikelihood(*self._parts(targets, rows))


@dataclass(frozen=True, kw_only=True)
class HeteroscedasticNoise(AbstractNoise):
    """Heteroscedastic normal noise, of precision gamma exp(g(x)) (L4).

    g is a second output of the network for each target, with its own half-Cauchy scale,
    and gamma ~ Gamma(shape, rate) on the standardised target. If the noise does not
    depend on the inputs, g shrinks to 0, which gives the noise of `GaussianNoise`.

    Parameters
    ----------
    shape : float, default=1.0
        Shape of the Gamma prior of the precision.
    rate : float, default=0.01
        Rate of the Gamma prior of the precision.
    """

    name: ClassVar[str] = HeteroscedasticLikelihood.name

    def build(self, targets: int, *, rows: float) -> HeteroscedasticLikelihood:
        """The likelihood of `rows` rows; q(gamma) starts with mean 1."""
        return HeteroscedasticLikelihood(*self._parts(targets, rows))


NOISES: dict[str, AbstractNoise] = {
    "gaussian": GaussianNoise(),
    "heteroscedastic": HeteroscedasticNoise(),
}
