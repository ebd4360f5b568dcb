"""Priors a user can name: which scales multiply the weights of a layer.

horseshoe     s_k = tau_k upsilon,  tau_k ~ C+(0, b_node),  upsilon ~ C+(0, b_layer)
Gaussian      s_k = kappa,          kappa ~ C+(0, b_kappa)                      (M1)
regularised   s_k = s c / sqrt(c^2 + s^2),  s = tau_k upsilon as in the horseshoe   (G3)
half-Cauchy   s_k = tau_k,          tau_k ~ C+(0, b_node)
exponential   s_k = tau_k,          tau_k ~ Exp(mean b_node)                   (M11)
mixture       no scale; each weight ~ a mixture of two normals                 (M10)
"""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Int

from .scales import HALF_CAUCHYS, Exponential, Scale
from .weights import PARAMETRISATIONS, AbstractParametrisation, Mixed, Regularised

OUTPUT_SCALE = 5.0  # b of kappa ~ C+(0, 5), the scale of the output layer
ScaleRows = Callable[[Int[Array, " batch"]], Int[Array, " places"]]


def _for_each(rows: Int[Array, " batch"]) -> Int[Array, " batch"]:
    return rows


def _for_all(rows: Int[Array, " batch"]) -> Int[Array, " places"]:
    del rows
    return jnp.zeros(1, int)


# The rows under whose numbers the scales of a batch are drawn.
SCALE_DRAWS: dict[str, ScaleRows] = {"row": _for_each, "batch": _for_all}


@dataclass(frozen=True, kw_only=True)
class AbstractPrior(abc.ABC):
    """What a layer's weights are before the data."""

    name: ClassVar[str]

    @abc.abstractmethod
    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """Fresh scales for a layer, by name; their product starts at `start`."""

    @abc.abstractmethod
    def parametrised(self) -> AbstractParametrisation:
        """How the posterior of the weights stands to this prior."""

    @abc.abstractmethod
    def of_output(self) -> "AbstractPrior":
        """The prior of the output layer of a network whose hidden layers have this."""

    @abc.abstractmethod
    def of_unlike_outputs(self) -> "AbstractPrior":
        """The same, for outputs that have different units: a scale for each."""

    @property
    def scale_rows(self) -> ScaleRows:
        """Under which rows' numbers the scales of a batch are drawn: their own."""
        return _for_each

    @property
    def can_tie(self) -> bool:
        """Whether weights may move with a scale of their node (J1)."""
        return False


def _check_positive(prior: AbstractPrior, *fields: str) -> None:
    for field in fields:
        value = getattr(prior, field)
        if not 0 < value < math.inf:
            raise ValueError(f"`{field}` must be positive and finite, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class AbstractScaledPrior(AbstractPrior):
    """Normal weights whose scales are unknown.

    Parameters
    ----------
    parametrisation
        "non-centred" (posterior on the standardised weights) or "centred" (on the
        weights themselves).
    half_cauchy
        "collapsed" (the auxiliary variables at their optimum in closed form),
        "auxiliary" (kept, and updated after each step, as the paper describes) or
        "quadrature" (no auxiliary variables: a tighter bound).
    scale_draws
        "row" (fresh scales for each row of a batch) or "batch" (one draw for all its
        rows: the same bound with far noisier gradients).
    """

    parametrisation: str = "non-centred"
    half_cauchy: str = "collapsed"
    scale_draws: str = "row"

    def __post_init__(self) -> None:
        choices = {
            "parametrisation": PARAMETRISATIONS,
            "half_cauchy": HALF_CAUCHYS,
            "scale_draws": SCALE_DRAWS,
        }
        for field, known in choices.items():
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"`{field}` must be one of {[*known]}, got {value!r}.")
        given = [field for field, value in vars(self).items() if value is not None]
        _check_positive(self, *(field for field in given if field not in choices))

    def parametrised(self) -> AbstractParametrisation:
        """Non-centred or centred."""
        return PARAMETRISATIONS[self.parametrisation]()

    def of_output(self) -> "Gaussian":
        """One half-Cauchy scale for the layer (M1), whatever the hidden layers have."""
        return Gaussian(
            scale=OUTPUT_SCALE,
            parametrisation=self.parametrisation,
            half_cauchy=self.half_cauchy,
            scale_draws=self.scale_draws,
        )

    def of_unlike_outputs(self) -> "Outputs":
        """One half-Cauchy scale for each output."""
        return Outputs(**vars(self.of_output()))

    @property
    def scale_rows(self) -> ScaleRows:
        """Their own, or one for all."""
        return SCALE_DRAWS[self.scale_draws]

    @property
    def can_tie(self) -> bool:
        """Where they are multiplied by one."""
        return "node_scale" in vars(self) and self.parametrisation == "non-centred"

    def _half_cauchy(self, b: float, shape: tuple[int, ...], start: float) -> Scale:
        return Scale.create(HALF_CAUCHYS[self.half_cauchy](b), shape, start=start)


@dataclass(frozen=True, kw_only=True)
class Horseshoe(AbstractScaledPrior):
    """A half-Cauchy scale for each node, and one for the layer (M1).

    Parameters
    ----------
    node_scale, layer_scale
        Scales of the two half-Cauchy priors: `b_node` and `b_layer`.
    """

    name: ClassVar[str] = "horseshoe"
    node_scale: float = 1.0
    layer_scale: float = 1.0

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau` and the layer scale `upsilon`."""
        return {
            "tau": self._half_cauchy(self.node_scale, (nodes,), 1.0),
            "upsilon": self._half_cauchy(self.layer_scale, (), start),
        }


@dataclass(frozen=True, kw_only=True)
class RegularisedHorseshoe(AbstractScaledPrior):
    """A horseshoe whose scales go no further than a slab (G3); Piironen & Vehtari 2017.

    Nodes that are on have weights of about N(0, slab_scale^2), and the layer scale may
    be set by how many nodes are expected to be on (G5).

    Parameters
    ----------
    node_scale, layer_scale
        Scales of the two half-Cauchy priors, as in `Horseshoe`.
    slab_scale
        Scale c that no node's scale exceeds.
    expected_nodes
        Nodes of a layer that are expected to be on, or under 1 their share; at most all
        but one. It takes the place of `layer_scale`, and needs `rows`.
    rows
        About how many rows the data have.
    """

    name: ClassVar[str] = "regularised-horseshoe"
    node_scale: float = 1.0
    layer_scale: float = 1.0
    slab_scale: float = 2.0
    expected_nodes: float | None = None
    rows: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parametrisation != "non-centred":
            raise ValueError(
                "RegularisedHorseshoe is non-centred, got `parametrisation` "
                f"{self.parametrisation!r}."
            )
        if (self.expected_nodes is None) != (self.rows is None):
            raise ValueError(
                "`expected_nodes` and `rows` go together, got "
                f"{self.expected_nodes!r} and {self.rows!r}."
            )

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau` and the layer scale `upsilon`."""
        b = self.layer_scale
        if self.expected_nodes is not None and self.rows is not None:
            b = layer_scale_for(self.expected_nodes, nodes, self.rows)
            b = b / self.node_scale
        return {
            "tau": self._half_cauchy(self.node_scale, (nodes,), 1.0),
            "upsilon": self._half_cauchy(b, (), start),
        }

    def parametrised(self) -> Regularised:
        """Non-centred, with the slab."""
        return Regularised(float(self.slab_scale))


def layer_scale_for(expected: float, nodes: int, rows: float) -> float:
    """Layer scale under which so many nodes are expected to be on (G5).

    b = p / (K - p) / sqrt(n): the K nodes' mean of 1 - 1 / (1 + n upsilon^2 tau^2) is
    p / K at upsilon = b, for tau ~ C+(0, 1).
    """
    count = min(expected * nodes if expected < 1 else expected, max(nodes - 1, 0.5))
    return count / (nodes - count) / math.sqrt(rows)


@dataclass(frozen=True, kw_only=True)
class Gaussian(AbstractScaledPrior):
    """One half-Cauchy scale for the whole layer and none for its nodes (M1)."""

    name: ClassVar[str] = "gaussian"
    scale: float = 5.0

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The layer scale `kappa`."""
        del nodes
        return {"kappa": self._half_cauchy(self.scale, (), start)}


@dataclass(frozen=True, kw_only=True)
class Outputs(AbstractScaledPrior):
    """One half-Cauchy scale for each output of a network (M1)."""

    name: ClassVar[str] = "outputs"
    scale: float = OUTPUT_SCALE

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The scales `kappa`."""
        return {"kappa": self._half_cauchy(self.scale, (nodes,), start)}


@dataclass(frozen=True, kw_only=True)
class NodeHalfCauchy(AbstractScaledPrior):
    """A half-Cauchy scale for each node and none for the layer.

    Without the layer's scale nothing pulls all nodes towards zero together.
    """

    name: ClassVar[str] = "half-cauchy"
    node_scale: float = 1.0

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau`."""
        return {"tau": self._half_cauchy(self.node_scale, (nodes,), start)}


@dataclass(frozen=True, kw_only=True)
class NodeExponential(AbstractScaledPrior):
    """An exponential scale for each node and none for the layer (M11).

    Its light tail shrinks the nodes that are needed with those that are not.

    Parameters
    ----------
    node_scale
        Mean of the exponential law.
    """

    name: ClassVar[str] = "exponential"
    node_scale: float = 1.0

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau`."""
        prior = Exponential(float(self.node_scale))
        return {"tau": Scale.create(prior, (nodes,), start=start)}


@dataclass(frozen=True, kw_only=True)
class ScaleMixture(AbstractPrior):
    """Two normals mixed, for each weight on its own (M10); Blundell et al. 2015.

    Parameters
    ----------
    share
        Prior probability of the wide normal. They tried 1/4, 1/2 and 3/4.
    wide, narrow
        Standard deviations of the two. They tried exp(0), exp(-1), exp(-2) and exp(-6),
        exp(-7), exp(-8).
    """

    name: ClassVar[str] = "scale-mixture"
    share: float = 0.5
    wide: float = 1.0
    narrow: float = math.exp(-6)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"`share` must be between 0 and 1, got {self.share!r}.")
        _check_positive(self, "wide", "narrow")
        if not self.narrow < self.wide:
            raise ValueError(
                f"`narrow` must be less than `wide`, got {self.narrow!r} and "
                f"{self.wide!r}."
            )

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """None."""
        del nodes, start
        return {}

    def parametrised(self) -> AbstractParametrisation:
        """The posterior stands on the weights themselves."""
        return Mixed(float(self.share), float(self.wide), float(self.narrow))

    def of_output(self) -> "ScaleMixture":
        """The same."""
        return self

    def of_unlike_outputs(self) -> "ScaleMixture":
        """The same."""
        return self


PRIORS: dict[str, AbstractPrior] = {
    "horseshoe": Horseshoe(),
    # Nodes that are off are quieter, which few rows are grateful for.
    "narrow-horseshoe": Horseshoe(node_scale=0.01),
    "centred-horseshoe": Horseshoe(parametrisation="centred"),
    "regularised-horseshoe": RegularisedHorseshoe(),
    "gaussian": Gaussian(),
    "half-cauchy": NodeHalfCauchy(),
    "exponential": NodeExponential(),
    "scale-mixture": ScaleMixture(),
}
