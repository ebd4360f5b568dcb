"""Bayesian neural networks that choose their own width."""

from importlib.metadata import version

from . import presets
from .core.priors import Gaussian, Horseshoe
from .estimators import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    TrainingWarning,
    load,
)
from .model.likelihoods import GaussianNoise

__version__ = version("farrier")
__all__ = [
    "Gaussian",
    "GaussianNoise",
    "Horseshoe",
    "HorseshoeClassifier",
    "HorseshoeRegressor",
    "TrainingWarning",
    "__version__",
    "load",
    "presets",
]
