"""Bayesian neural networks that choose their own width."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, export, presets
    from .core.posteriors import Matrix, MeanField
    from .core.priors import (
        Gaussian,
        Horseshoe,
        ScaleMixture,
    )
    from .estimators import (
        HorseshoeClassifier,
        HorseshoeRegressor,
        TableModel,
        TrainingWarning,
        fit_many,
        load,
    )
    from .export import portable
    from .infer.sample.settings import Mclmc, Nuts
    from .model.likelihoods import GaussianNoise, HeteroscedasticNoise
    from .scale.placement import distributed
    from .scale.rows import ArrayRows, BatchRows, ParquetRows
    from .train.config import Training
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
    "Gaussian",
    "GaussianNoise",
    "HeteroscedasticNoise",
    "HistoryDisplay",
    "Horseshoe",
    "HorseshoeClassifier",
    "HorseshoeRegressor",
    "Matrix",
    "Mclmc",
    "MeanField",
    "NodesDisplay",
    "Nuts",
    "ParquetRows",
    "ScaleMixture",
    "TableModel",
    "Training",
    "TrainingWarning",
    "datasets",
    "distributed",
    "export",
    "fit_many",
    "load",
    "portable",
    "presets",
    "write_report",
]

_HOMES = {
    "BandDisplay": ".views.displays",
    "CalibrationDisplay": ".views.displays",
    "HistoryDisplay": ".views.displays",
    "NodesDisplay": ".views.displays",
    "Matrix": ".core.posteriors",
    "MeanField": ".core.posteriors",
    "Gaussian": ".core.priors",
    "Horseshoe": ".core.priors",
    "ScaleMixture": ".core.priors",
    "GaussianNoise": ".model.likelihoods",
    "HeteroscedasticNoise": ".model.likelihoods",
    "Mclmc": ".infer.sample.settings",
    "Nuts": ".infer.sample.settings",
    "Training": ".train.config",
    "distributed": ".scale.placement",
    "HorseshoeClassifier": ".estimators",
    "HorseshoeRegressor": ".estimators",
    "TableModel": ".estimators",
    "TrainingWarning": ".estimators",
    "fit_many": ".estimators",
    "load": ".estimators",
    "write_report": ".views.report",
    "ArrayRows": ".scale.rows",
    "BatchRows": ".scale.rows",
    "ParquetRows": ".scale.rows",
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
