"""Likelihoods: their expected log density under q, their own unknowns, their draws.

y ~ N(f(x), 1 / gamma),   gamma ~ Gamma(a, b)                                    (L1)
p(y = c) = softmax(f(x))_c                                                       (L2)
y ~ N(f(x), exp(-g(x)) / gamma),   gamma ~ Gamma(a, b)                           (L4)

f and g are outputs of the network.
"""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..core.families import Conditional, Gamma
from ..core.priors import AbstractPrior

GUMBEL_VARIANCE = math.pi**2 / 6
LOG_PRECISION_VARIANCE = 2.0  # what one normal number leaves unknown of its ln 1/sd^2
MOST_LOG = 10.0  # of g, either way: beyond it exp(g) is held back, to stay finite


class AbstractLikelihood(eqx.Module):
    """The law of the target given the network's outputs."""

    name: ClassVar[str]

    @abc.abstractmethod
    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """E[ln p(y | f)] for each row: in closed form, or an unbiased draw of it."""

    @abc.abstractmethod
    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """ln p(y | f) of all rows, its own unknowns integrated out, but a constant."""

    @abc.abstractmethod
    def log_density(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        precision: Float[Array, " targets"],
    ) -> Float[Array, " batch"]:
        """ln p(y | f) of each row, given the precisions of the noise."""

    @abc.abstractmethod
    def precision_given(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Gamma:
        """The law of the precisions given the outputs (H2)."""

    @abc.abstractmethod
    def noise_variance(self) -> Float[Array, " targets"]:
        """1 / E[gamma] of each target."""

    @abc.abstractmethod
    def seen(self, f: Float[Array, "rows d_out"]) -> Float[Array, "rows d_out"]:
        """Outputs, or weights into them, without what the target does not see."""

    @abc.abstractmethod
    def output_noise(
        self, noise: Float[Array, " targets"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """The variance that the target has by itself, in the units of each output."""

    @abc.abstractmethod
    def with_rows_of(self, other: "AbstractLikelihood") -> Self:
        """The same, for as many rows as the other was built for."""

    def output_prior(self, prior: AbstractPrior) -> AbstractPrior:
        """Of the output layer, where the hidden layers have this prior."""
        return prior.output_prior()

    @abc.abstractmethod
    def kl(self) -> dict[str, Float[Array, ""]]:
        """Divergences of its own unknowns from their priors, by name."""

    @staticmethod
    @abc.abstractmethod
    def kl_names() -> tuple[str, ...]:
        """Names of those divergences."""

    @property
    @abc.abstractmethod
    def d_out(self) -> int:
        """Number of outputs it needs from the network."""

    @property
    @abc.abstractmethod
    def targets(self) -> int:
        """Number of targets with a noise; none where there are classes."""

    @property
    def kinds(self) -> int:
        """Kinds of outputs, as many of each."""
        return 1


class AbstractNormalLikelihood(AbstractLikelihood):
    """Normal noise with an unknown precision for each target."""

    gamma: Gamma
    prior_shape: float
    prior_rate: float

    @abc.abstractmethod
    def log_ratio(
        self, f: Float[Array, "*draws rows d_out"]
    ) -> Float[Array, "*draws #rows targets"]:
        """Logarithm of the noise sd of each row over gamma^(-1/2)."""

    @property
    def targets(self) -> int:
        """Each has a precision."""
        return self.gamma.log_rate.shape[0]

    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """-sum over targets of (a + n / 2) ln(b + E / 2) (H2).

        And the logarithms of the noise of the rows, where it differs (H3).
        """
        law = self.precision_given(y, f, weight)
        normaliser = (weight[:, None] * self.log_ratio(f)).sum()
        return -(law.shape * law.log_rate).sum() - normaliser

    def log_density(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        precision: Float[Array, " targets"],
    ) -> Float[Array, " batch"]:
        """Of normal noise, summed over targets (L1, L4)."""
        sd = precision[None] ** -0.5 * jnp.exp(self.log_ratio(f))
        return norm.logpdf(y, f[:, : self.targets], sd).sum(1)

    def precision_given(
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

    def noise_variance(self) -> Float[Array, " targets"]:
        """1 / E[gamma] of each target."""
        return 1 / self.gamma.mean()

    def seen(self, f: Float[Array, "rows d_out"]) -> Float[Array, "rows d_out"]:
        """All of it."""
        return f

    def with_rows_of(self, other: AbstractLikelihood) -> Self:
        """The same mean of gamma, with the shape and the prior of the other (M8)."""
        assert isinstance(other, AbstractNormalLikelihood)
        old, shape = self.gamma, other.gamma.fixed_shape
        gamma = Gamma(shape, old.log_rate + jnp.log(shape / old.fixed_shape))
        return type(self)(gamma, other.prior_shape, other.prior_rate)

    def kl(self) -> dict[str, Float[Array, ""]]:
        """KL of the precisions from their Gamma prior (F7)."""
        return {
            "noise/gamma": self.gamma.kl_to(self.prior_shape, self.prior_rate).sum()
        }

    @staticmethod
    def kl_names() -> tuple[str, ...]:
        """The precision alone."""
        return ("noise/gamma",)

    def sample_sd(self, *, key: PRNGKeyArray) -> Float[Array, " targets"]:
        """One draw of the noise standard deviations, 1 / sqrt(gamma)."""
        return self.gamma.sample(key=key) ** -0.5


class GaussianLikelihood(AbstractNormalLikelihood):
    """Noise of one precision for all rows, unknown for each target (L1)."""

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
        """Nothing: all rows have the same noise."""
        return jnp.zeros_like(f[..., :1, :])

    def output_noise(
        self, noise: Float[Array, " targets"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """That of the noise."""
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
    def kinds(self) -> int:
        """Means and logarithms of precisions."""
        return 2

    def output_prior(self, prior: AbstractPrior) -> AbstractPrior:
        """A scale for each output: where noise does not depend on the row, g is 0."""
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
        return -0.5 * jnp.clip(f[..., self.targets :], -MOST_LOG, MOST_LOG)

    def output_noise(
        self, noise: Float[Array, " targets"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """The mean noise of the rows; and what a target leaves unknown of g (S1)."""
        mean = noise * jnp.exp(2 * self.log_ratio(f)).mean(0)
        return jnp.concatenate([mean, jnp.full_like(mean, LOG_PRECISION_VARIANCE)])


def _exp(g: Float[Array, "targets batch"]) -> Float[Array, "targets batch"]:
    """exp(g), which goes on as a straight line where it would become too steep."""
    bent = jnp.minimum(g, MOST_LOG)
    return jnp.exp(bent) * (1 + g - bent)


class CategoricalLikelihood(AbstractLikelihood):
    """Classes by softmax (L2)."""

    name: ClassVar[str] = "categorical"
    classes: int

    @property
    def d_out(self) -> int:
        """One output for each class."""
        return self.classes

    @property
    def targets(self) -> int:
        """None with a noise."""
        return 0

    def expected_log_density(
        self, y: Float[Array, "batch targets"] | Int[Array, " batch"], f: Conditional
    ) -> Float[Array, " batch"]:
        """One draw of ln softmax(f)_y for each row, unbiased (L2)."""
        log_probability = jax.nn.log_softmax(f.draw(), axis=0)
        return jnp.take_along_axis(log_probability, y[None], axis=0)[0]

    def log_marginal(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Float[Array, ""]:
        """Weighted sum of ln softmax(f)_y (L2)."""
        return weight @ self.log_density(y, f, jnp.zeros(0))

    def log_density(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        precision: Float[Array, " targets"],
    ) -> Float[Array, " batch"]:
        """ln softmax(f)_y (L2)."""
        del precision
        log_probability = jax.nn.log_softmax(f, axis=1)
        return jnp.take_along_axis(log_probability, y[:, None], axis=1)[:, 0]

    def precision_given(
        self,
        y: Float[Array, "batch targets"] | Int[Array, " batch"],
        f: Float[Array, "batch d_out"],
        weight: Float[Array, " batch"],
    ) -> Gamma:
        """Of no target."""
        del y, f, weight
        return Gamma(jnp.zeros(0), jnp.zeros(0))

    def noise_variance(self) -> Float[Array, " targets"]:
        """Of no target."""
        return jnp.zeros(0)

    def seen(self, f: Float[Array, "rows d_out"]) -> Float[Array, "rows d_out"]:
        """Differences: a softmax does not see what is added to all classes alike."""
        return f - f.mean(1, keepdims=True)

    def output_noise(
        self, noise: Float[Array, " targets"], f: Float[Array, "rows d_out"]
    ) -> Float[Array, " d_out"]:
        """That of the centred Gumbel law behind a softmax (S1)."""
        del noise, f
        return jnp.full(self.classes, (1 - 1 / self.classes) * GUMBEL_VARIANCE)

    def with_rows_of(self, other: AbstractLikelihood) -> Self:
        """Itself: it counts no rows."""
        del other
        return self

    def kl(self) -> dict[str, Float[Array, ""]]:
        """None: it has no unknowns of its own."""
        return {}

    @staticmethod
    def kl_names() -> tuple[str, ...]:
        """None."""
        return ()


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

    With n rows the noise standard deviation cannot go under
    sqrt(rate / (shape + n / 2)) of the target's own. The default is weak; the paper's
    Gamma(6, 6) stops at more than the noise of many tables.
    """

    name: ClassVar[str] = GaussianLikelihood.name

    def build(self, targets: int, *, rows: float) -> GaussianLikelihood:
        """The likelihood of `rows` rows; q(gamma) starts with mean 1."""
        return GaussianLikelihood(*self._parts(targets, rows))


@dataclass(frozen=True, kw_only=True)
class HeteroscedasticNoise(AbstractNoise):
    """Normal noise that depends on the row: its precision is gamma exp(g(x)) (L4).

    g is a second output of the network for each target, with a half-Cauchy scale of
    its own, and gamma ~ Gamma(shape, rate) on the standardised target. Where the data
    do not ask for it, g is 0 and the noise that of `GaussianNoise`.
    """

    name: ClassVar[str] = HeteroscedasticLikelihood.name

    def build(self, targets: int, *, rows: float) -> HeteroscedasticLikelihood:
        """The likelihood of `rows` rows; q(gamma) starts with mean 1."""
        return HeteroscedasticLikelihood(*self._parts(targets, rows))


NOISES: dict[str, AbstractNoise] = {
    "gaussian": GaussianNoise(),
    "heteroscedastic": HeteroscedasticNoise(),
}


@dataclass(frozen=True, kw_only=True)
class Categorical:
    """Classes by softmax."""

    name: ClassVar[str] = CategoricalLikelihood.name

    def build(self, d_out: int, *, rows: float) -> CategoricalLikelihood:
        """The likelihood of `d_out` classes."""
        del rows
        return CategoricalLikelihood(d_out)
