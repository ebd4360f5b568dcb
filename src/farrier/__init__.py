"""Bayesian neural networks that choose their own width."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, export, presets
    from .core.posteriors import LowRank, Matrix, MeanField
    from .core.priors import Gaussian, Horseshoe, ScaleMixture
    from .estimators import (
        HorseshoeClassifier,
        HorseshoeRegressor,
        TableModel,
        TrainingWarning,
        fit_many,
        load,
    )
    from .export import portable
    from .fit import FittedModel, Units
    from .infer.compact import Compaction
    from .infer.ensemble import FitSummary
    from .infer.nodes import Nodes
    from .infer.sample.settings import Mclmc, Nuts, Sampling
    from .model.likelihoods import GaussianNoise, HeteroscedasticNoise
    from .scale.placement import distributed
    from .scale.rows import ArrayRows, BatchRows, ParquetRows
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

# The modules of the public names; those that are not here are modules themselves.
_HOMES = {
    "ArrayRows": ".scale.rows",
    "BandDisplay": ".views.displays",
    "BatchRows": ".scale.rows",
    "CalibrationDisplay": ".views.displays",
    "Compaction": ".infer.compact",
    "FitSummary": ".infer.ensemble",
    "FittedModel": ".fit",
    "Gaussian": ".core.priors",
    "GaussianNoise": ".model.likelihoods",
    "HeteroscedasticNoise": ".model.likelihoods",
    "History": ".train.history",
    "HistoryDisplay": ".views.displays",
    "Horseshoe": ".core.priors",
    "HorseshoeClassifier": ".estimators",
    "HorseshoeRegressor": ".estimators",
    "Matrix": ".core.posteriors",
    "Mclmc": ".infer.sample.settings",
    "LowRank": ".core.posteriors",
    "MeanField": ".core.posteriors",
    "Nodes": ".infer.nodes",
    "NodesDisplay": ".views.displays",
    "Nuts": ".infer.sample.settings",
    "ParquetRows": ".scale.rows",
    "Removal": ".train.history",
    "Sampling": ".infer.sample.settings",
    "ScaleMixture": ".core.priors",
    "Status": ".train.history",
    "Summary": ".views.describe",
    "TableModel": ".estimators",
    "Training": ".train.config",
    "TrainingWarning": ".estimators",
    "Units": ".fit",
    "distributed": ".scale.placement",
    "fit_many": ".estimators",
    "load": ".estimators",
    "write_report": ".views.report",
}


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
