"""Priors a user can name: which scales multiply the weights of a layer.

horseshoe   s_k = tau_k upsilon,  tau_k ~ C+(0, b_node),  upsilon ~ C+(0, b_layer)
Gaussian    s_k = kappa,          kappa ~ C+(0, b_kappa)                         (M1)
"""

import abc
from dataclasses import dataclass
from typing import ClassVar

from .scales import HALF_CAUCHYS, Scale
from .weights import PARAMETRISATIONS


@dataclass(frozen=True, kw_only=True)
class AbstractPrior(abc.ABC):
    """How the weights into the nodes of a layer are scaled.

    Parameters
    ----------
    parametrisation
        "non-centred" (posterior on the standardised weights) or "centred" (on the
        weights themselves).
    half_cauchy
        "collapsed" (the auxiliary variables at their optimum in closed form) or
        "auxiliary" (kept, and updated after each step, as the paper describes).
    """

    name: ClassVar[str]
    parametrisation: str = "non-centred"
    half_cauchy: str = "collapsed"

    def __post_init__(self) -> None:
        for field, known in (
            ("parametrisation", PARAMETRISATIONS),
            ("half_cauchy", HALF_CAUCHYS),
        ):
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"`{field}` must be one of {[*known]}, got {value!r}.")
        for field, value in vars(self).items():
            if field not in (
                "parametrisation",
                "half_cauchy",
            ) and not 0 < value < float("inf"):
                raise ValueError(
                    f"`{field}` must be positive and finite, got {value!r}."
                )

    @abc.abstractmethod
    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """Fresh scales for a layer, by name; their product starts at `start`."""

    def _scale(self, b: float, shape: tuple[int, ...], start: float) -> Scale:
        return Scale.create(HALF_CAUCHYS[self.half_cauchy](b), shape, start=start)


@dataclass(frozen=True, kw_only=True)
class Horseshoe(AbstractPrior):
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
            "tau": self._scale(self.node_scale, (nodes,), 1.0),
            "upsilon": self._scale(self.layer_scale, (), start),
        }


@dataclass(frozen=True, kw_only=True)
class Gaussian(AbstractPrior):
    """One half-Cauchy scale for the whole layer and none for its nodes (M1)."""

    name: ClassVar[str] = "gaussian"
    scale: float = 5.0

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The layer scale `kappa`."""
        del nodes
        return {"kappa": self._scale(self.scale, (), start)}


PRIORS = {
    "horseshoe": Horseshoe(),
    "centred-horseshoe": Horseshoe(parametrisation="centred"),
    "gaussian": Gaussian(),
}
