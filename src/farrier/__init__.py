"""Bayesian neural networks that choose their own width."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, export, presets
    from .core.posteriors import LowRank, Matrix, MeanField
    from .core.priors import Gaussian, Horseshoe, ScaleMixture
    from .estimators.checks import TrainingWarning
    from .estimators.classifier import HorseshoeClassifier
    from .estimators.files import load
    from .estimators.many import fit_many
    from .estimators.regressor import HorseshoeRegressor
    from .export import portable
    from .fit import FittedModel, Units
    from .infer.compact import Compaction
    from .infer.ensemble import FitSummary
    from .infer.nodes import Nodes
    from .infer.sample.settings import Mclmc, Nuts, Sampling
    from .model.likelihoods import GaussianNoise, HeteroscedasticNoise
    from .scale.placement import distributed
    from .scale.rows import ArrayRows, BatchRows, ParquetRows
    from .tables.model import TableModel
    from .train.config import Training
    from .train.history import History, Removal, Status
    from .views.describe import Summary
    from .views.displays import (
        BandDisplay,
        CalibrationDisplay,
        HistoryDisplay,
        NodesDisplay,
    )
    from .views.report import write_report

__version__ = version("farrier")
__all__ = [
    "ArrayRows",
    "BandDisplay",
    "BatchRows",
    "CalibrationDisplay",
    "Compaction",
    "FitSummary",
    "FittedModel",
    "Gaussian",
    "GaussianNoise",
    "HeteroscedasticNoise",
    "History",
    "HistoryDisplay",
    "Horseshoe",
    "HorseshoeClassifier",
    "HorseshoeRegressor",
    "LowRank",
    "Matrix",
    "Mclmc",
    "MeanField",
    "Nodes",
    "NodesDisplay",
    "Nuts",
    "ParquetRows",
    "Removal",
    "Sampling",
    "ScaleMixture",
    "Status",
    "Summary",
    "TableModel",
    "Training",
    "TrainingWarning",
    "Units",
    "datasets",
    "distributed",
    "export",
    "fit_many",
    "load",
    "portable",
    "presets",
    "write_report",
]

# The public names of each module; those that are not here are modules themselves.
_NAMES = {
    ".core.posteriors": "LowRank Matrix MeanField",
    ".core.priors": "Gaussian Horseshoe ScaleMixture",
    ".estimators.checks": "TrainingWarning",
    ".estimators.classifier": "HorseshoeClassifier",
    ".estimators.files": "load",
    ".estimators.many": "fit_many",
    ".estimators.regressor": "HorseshoeRegressor",
    ".fit": "FittedModel Units",
    ".infer.compact": "Compaction",
    ".infer.ensemble": "FitSummary",
    ".infer.nodes": "Nodes",
    ".infer.sample.settings": "Mclmc Nuts Sampling",
    ".model.likelihoods": "GaussianNoise HeteroscedasticNoise",
    ".scale.placement": "distributed",
    ".scale.rows": "ArrayRows BatchRows ParquetRows",
    ".tables.model": "TableModel",
    ".train.config": "Training",
    ".train.history": "History Removal Status",
    ".views.describe": "Summary",
    ".views.displays": "BandDisplay CalibrationDisplay HistoryDisplay NodesDisplay",
    ".views.report": "write_report",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name when first used: the command line starts without JAX."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    if name == "portable":
        return import_module(".export.portable", __name__)
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'farrier' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
