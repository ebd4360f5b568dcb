"""scikit-learn estimators."""

from ..tables.model import TableModel
from .checks import TrainingWarning
from .classifier import HorseshoeClassifier
from .files import load
from .many import fit_many
from .regressor import HorseshoeRegressor

__all__ = [
    "HorseshoeClassifier",
    "HorseshoeRegressor",
    "TableModel",
    "TrainingWarning",
    "fit_many",
    "load",
]
