"""Model files: a fitted model as arrays by name and one JSON header.

`to_file` writes down the fields of a `FittedModel` and what was computed of it;
`from_file` reads them back. Neither computes anything, and reading makes no object but
those of the classes listed here; `validity` checks that its parts fit each other.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from . import persist
from .core import families, forms, posteriors, priors, scales, weights
from .core.matrix import MatrixWeights
from .fitted import FittedModel, Units
from .infer.compact import Compaction
from .infer.ensemble import FitSummary
from .infer.nodes import Nodes
from .infer.sample.settings import Mclmc, Nuts, Sampling
from .model import likelihoods
from .model.inputs import InputScales
from .model.layers import Layer
from .model.network import Network
from .model.posterior import SampledPosterior, VariationalPosterior
from .train.config import Training
from .train.history import History, Removal, Status
from .train.step import converted
from .units import Standardiser
from .validity import check_model

COMPUTED = ("nodes", "depths", "compaction", "column_shares")
# Of a model, its posterior is stored; these fields are not.
LEFT_OUT: dict[str, Any] = {"network": None, "sample": None, "run": None}

_CLASSES = (
    FittedModel,
    Units,
    Standardiser,
    History,
    Removal,
    Status,
    Nodes,
    Sampling,
    FitSummary,
    Compaction,
    Training,
    Nuts,
    Mclmc,
    VariationalPosterior,
    SampledPosterior,
    Network,
    Layer,
    InputScales,
    MatrixWeights,
    weights.MeanFieldWeights,
    forms.NonCentred,
    forms.Regularised,
    forms.Centred,
    forms.Mixed,
    scales.Scale,
    scales.HalfCauchy,
    scales.ExactHalfCauchy,
    families.Normal,
    families.LowRankNormal,
    families.LogNormal,
    families.Gamma,
    posteriors.MeanField,
    posteriors.LowRank,
    posteriors.Matrix,
    priors.Horseshoe,
    priors.Gaussian,
    priors.Outputs,
    priors.ScaleMixture,
    likelihoods.GaussianLikelihood,
    likelihoods.HeteroscedasticLikelihood,
    likelihoods.CategoricalLikelihood,
    likelihoods.GaussianNoise,
    likelihoods.HeteroscedasticNoise,
    likelihoods.Categorical,
)
CLASSES: dict[str, type] = {each.__name__: each for each in _CLASSES}


def to_file(model: FittedModel, more: dict[str, Any]) -> tuple[dict, dict]:
    """Header and arrays of a model, with more plain values such as the settings."""
    known = {n: getattr(model, n) for n in COMPUTED if model.is_computed(n)}
    if model.is_compact:  # its posterior is that of the model
        known["compaction"] = dict(vars(known["compaction"]))
        del known["compaction"]["posterior"]
    lean = dataclasses.replace(model, **LEFT_OUT)
    try:
        return persist.encode({"model": lean, **known, "more": more}, CLASSES)
    except TypeError as error:
        raise TypeError(
            f"This model cannot be saved: {error} Pickle models with a prior, "
            "posterior or likelihood of your own instead."
        ) from error


def from_file(structure: Any, arrays: dict) -> tuple[FittedModel, dict[str, Any]]:
    """The model of a file, and the plain values that were stored with it."""
    tree = persist.decode(structure, arrays, CLASSES)
    model, more = tree.pop("model"), tree.pop("more")
    if not isinstance(model, FittedModel) or not isinstance(more, dict):
        raise ValueError("it holds no fitted model")
    posterior = _in_precision(model.posterior)
    model = dataclasses.replace(
        model, posterior=posterior, network=posterior.variational
    )
    if model.is_compact:
        tree["compaction"] = Compaction(model.posterior, **tree["compaction"])
    elif "compaction" in tree:
        small = _in_precision(tree["compaction"].posterior)
        tree["compaction"] = dataclasses.replace(tree["compaction"], posterior=small)
    unknown = tree.keys() - set(COMPUTED)
    if unknown or not {"nodes", "depths"} <= tree.keys():
        raise ValueError(f"what is computed of it is {sorted(tree)}")
    check_model(model, tree)
    return model.computed(**tree), more


def _in_precision(tree: Any) -> Any:
    """The tree with its JAX numbers in the precision that JAX is set to."""
    dtype = jnp.result_type(float)

    def cast(value: Any) -> Any:
        is_other = jnp.issubdtype(value.dtype, jnp.floating) and value.dtype != dtype
        return jnp.asarray(np.asarray(value), dtype) if is_other else value

    return converted(tree, cast)
