"""scikit-learn estimators."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = {
    "HorseshoeClassifier": ".classifier",
    "HorseshoeRegressor": ".regressor",
    "TableModel": "..tables.model",
    "TrainingWarning": ".checks",
    "fit_many": ".many",
    "load": ".files",
}


def __getattr__(name: str) -> Any:
    """Import a name when first used: `tables.model` builds on the estimators."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
