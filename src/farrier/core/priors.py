"""Priors a user can name: which scales multiply the weights of a layer.

    horseshoe   s_k = tau_k upsilon,  tau_k ~ C+(0, b_node),  upsilon ~ C+(0, b_layer)
    Gaussian    s_k = kappa,          kappa ~ C+(0, b_kappa)                         (M1)
"""

import abc
from dataclasses import dataclass, field
from typing import ClassVar

from .scales import HalfCauchy, Scale
from .weights import AbstractParametrisation, Centred, NonCentred

PARAMETRISATIONS = {"non-centred": NonCentred, "centred": Centred}


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < float("inf"):
            raise ValueError(f"`{name}` must be positive and finite, got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class AbstractPrior(abc.ABC):
    """How the weights into the nodes of a layer are scaled."""

    name: ClassVar[str]
    parametrisation: AbstractParametrisation = field(default_factory=NonCentred)

    @abc.abstractmethod
    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """Fresh scales for a layer, by name; their product starts at `start`."""


@dataclass(frozen=True, kw_only=True)
class Horseshoe(AbstractPrior):
    """A half-Cauchy scale for each node, and one for the layer (M1).

    Parameters
    ----------
    node_scale, layer_scale
        Scales of the two half-Cauchy priors: `b_node` and `b_layer`.
    parametrisation
        `NonCentred()` or `Centred()`.
    """

    name: ClassVar[str] = "horseshoe"
    node_scale: float = 1.0
    layer_scale: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(node_scale=self.node_scale, layer_scale=self.layer_scale)

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau` and the layer scale `upsilon`."""
        return {
            "tau": Scale.create(HalfCauchy(self.node_scale), (nodes,)),
            "upsilon": Scale.create(HalfCauchy(self.layer_scale), (), start=start),
        }


@dataclass(frozen=True, kw_only=True)
class Gaussian(AbstractPrior):
    """One half-Cauchy scale for the whole layer and none for its nodes (M1)."""

    name: ClassVar[str] = "gaussian"
    scale: float = 5.0

    def __post_init__(self) -> None:
        _check_positive(scale=self.scale)

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The layer scale `kappa`."""
        del nodes
        return {"kappa": Scale.create(HalfCauchy(self.scale), (), start=start)}
