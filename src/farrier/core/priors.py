"""Priors that a user can choose: which scales multiply the weights of a layer.

horseshoe     s_k = tau_k upsilon,  tau_k ~ C+(0, b_node),  upsilon ~ C+(0, b_layer)
with a slab   s_k = s c / sqrt(c^2 + s^2),  s = tau_k upsilon as in the horseshoe   (G3)
Gaussian      s_k = kappa,          kappa ~ C+(0, b_kappa)                      (M1)
mixture       no scale; each weight ~ a mixture of two normals                 (M10)
"""

import abc
import math
from dataclasses import dataclass
from typing import ClassVar

from .forms import PARAMETRISATIONS, AbstractParametrisation, Mixed, Regularised
from .scales import HALF_CAUCHYS, Scale

COLUMN_SCALE = 1.0  # b of the scales of columns
OUTPUT_SCALE = 5.0  # b of kappa ~ C+(0, 5), the scale of the output layer


@dataclass(frozen=True, kw_only=True)
class AbstractPrior(abc.ABC):
    """The prior of the weights of a layer."""

    name: ClassVar[str]

    def column_scales(self, columns: int) -> dict[str, Scale]:
        """New scales of the columns of the table, by name; none by default."""
        del columns
        return {}

    @abc.abstractmethod
    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """New scales for a layer, by name; their product starts at `start`."""

    @abc.abstractmethod
    def parametrised(self) -> AbstractParametrisation:
        """The parametrisation of a layer's weights under this prior."""

    @abc.abstractmethod
    def output_prior(self) -> "AbstractPrior":
        """The prior of the output layer, where the hidden layers have this prior."""

    @abc.abstractmethod
    def separate_output_prior(self) -> "AbstractPrior":
        """The same for outputs of different units: a scale for each output."""


def check_positive(prior: AbstractPrior, *fields: str) -> None:
    """Raise a ValueError unless each of these fields is positive and finite."""
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
        "non-centred" (the variational posterior describes the standardised weights) or
        "centred" (it describes the weights themselves).
    half_cauchy
        How the KL term of a half-Cauchy scale is computed: "collapsed" (an upper bound
        in closed form) or "exact" (to 1e-8 nats, which gives a tighter ELBO).
    """

    parametrisation: str = "non-centred"
    half_cauchy: str = "collapsed"

    def __post_init__(self) -> None:
        choices = {"parametrisation": PARAMETRISATIONS, "half_cauchy": HALF_CAUCHYS}
        for field, known in choices.items():
            value = getattr(self, field)
            if value not in known:
                raise ValueError(f"`{field}` must be one of {[*known]}, got {value!r}.")

    def parametrised(self) -> AbstractParametrisation:
        """Non-centred or centred."""
        return PARAMETRISATIONS[self.parametrisation]()

    def output_prior(self) -> "Gaussian":
        """One half-Cauchy scale for the output layer (M1)."""
        return Gaussian(
            scale=OUTPUT_SCALE,
            parametrisation=self.parametrisation,
            half_cauchy=self.half_cauchy,
        )

    def separate_output_prior(self) -> "Outputs":
        """One half-Cauchy scale for each output."""
        return Outputs(**vars(self.output_prior()))

    def half_cauchy_scale(
        self, b: float, shape: tuple[int, ...], *, start: float
    ) -> Scale:
        """A scale with the prior C+(0, b); its median under q is `start`."""
        return Scale.create(HALF_CAUCHYS[self.half_cauchy](b), shape, start=start)


@dataclass(frozen=True, kw_only=True)
class Horseshoe(AbstractScaledPrior):
    """A half-Cauchy scale for each node, and one for the layer.

    Parameters
    ----------
    node_scale, layer_scale
        Scales of the two half-Cauchy priors.
    slab
        Upper limit of the scale of a node, or None for no limit: the weights into
        active nodes are then about N(0, slab^2), as in the regularised horseshoe of
        Piironen & Vehtari (2017). A slab requires the non-centred parametrisation.
    columns
        Whether each column of the table has a half-Cauchy scale too, so that columns
        that are not needed are switched off.
    """

    name: ClassVar[str] = "horseshoe"
    node_scale: float = 1.0
    layer_scale: float = 1.0
    slab: float | None = None
    columns: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "node_scale", "layer_scale")
        if self.slab is None:
            return
        check_positive(self, "slab")
        if self.parametrisation != "non-centred":
            raise ValueError(
                "A horseshoe with a `slab` must be non-centred, got `parametrisation` "
                f"{self.parametrisation!r}. Set it to 'non-centred', or `slab` to None."
            )

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The node scales `tau` and the layer scale `upsilon`."""
        return {
            "tau": self.half_cauchy_scale(self.node_scale, (nodes,), start=1.0),
            "upsilon": self.half_cauchy_scale(self.layer_scale, (), start=start),
        }

    def column_scales(self, columns: int) -> dict[str, Scale]:
        """The scales `tau` of the columns and `upsilon` of all of them (I2)."""
        if not self.columns:
            return {}
        return {
            "tau": self.half_cauchy_scale(COLUMN_SCALE, (columns,), start=1.0),
            "upsilon": self.half_cauchy_scale(COLUMN_SCALE, (), start=1.0),
        }

    def parametrised(self) -> AbstractParametrisation:
        """Non-centred or centred, or non-centred with the slab."""
        if self.slab is None:
            return super().parametrised()
        return Regularised(float(self.slab))


@dataclass(frozen=True, kw_only=True)
class Gaussian(AbstractScaledPrior):
    """One half-Cauchy scale for the whole layer and none for its nodes.

    Parameters
    ----------
    scale
        Scale of the half-Cauchy prior.
    """

    name: ClassVar[str] = "gaussian"
    scale: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "scale")

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The layer scale `kappa`."""
        del nodes
        return {"kappa": self.half_cauchy_scale(self.scale, (), start=start)}


@dataclass(frozen=True, kw_only=True)
class Outputs(AbstractScaledPrior):
    """One half-Cauchy scale for each output of a network (M1)."""

    name: ClassVar[str] = "outputs"
    scale: float = OUTPUT_SCALE

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "scale")

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """The output scales `kappa`."""
        return {"kappa": self.half_cauchy_scale(self.scale, (nodes,), start=start)}


@dataclass(frozen=True, kw_only=True)
class ScaleMixture(AbstractPrior):
    """A mixture of two normals for each weight; Blundell et al. (2015).

    Parameters
    ----------
    share
        Prior probability of the wide normal. Blundell et al. tried 1/4, 1/2 and 3/4.
    wide, narrow
        Standard deviations of the two normals. Blundell et al. tried exp(0), exp(-1),
        exp(-2) and exp(-6), exp(-7), exp(-8).
    """

    name: ClassVar[str] = "scale-mixture"
    share: float = 0.5
    wide: float = 1.0
    narrow: float = math.exp(-6)

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"`share` must be between 0 and 1, got {self.share!r}.")
        check_positive(self, "wide", "narrow")
        if not self.narrow < self.wide:
            raise ValueError(
                f"`narrow` must be less than `wide`, got {self.narrow!r} and "
                f"{self.wide!r}."
            )

    def scales(self, nodes: int, *, start: float) -> dict[str, Scale]:
        """No scales."""
        del nodes, start
        return {}

    def parametrised(self) -> AbstractParametrisation:
        """The posterior describes the weights themselves."""
        return Mixed(float(self.share), float(self.wide), float(self.narrow))

    def output_prior(self) -> "ScaleMixture":
        """The same prior."""
        return self

    def separate_output_prior(self) -> "ScaleMixture":
        """The same prior."""
        return self


PRIORS: dict[str, AbstractPrior] = {
    "horseshoe": Horseshoe(),
    # A smaller node scale makes inactive nodes add less noise, which helps on small
    # data sets.
    "narrow-horseshoe": Horseshoe(node_scale=0.01),
    # The same with scales of the columns.
    "column-horseshoe": Horseshoe(node_scale=0.01, columns=True),
    "centred-horseshoe": Horseshoe(parametrisation="centred"),
    "regularised-horseshoe": Horseshoe(slab=2.0),
    "gaussian": Gaussian(),
    "scale-mixture": ScaleMixture(),
}
