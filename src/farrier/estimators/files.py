"""Reading an estimator back from its file."""

from pathlib import Path

from .. import persist
from .base import NetworkEstimator
from .classifier import HorseshoeClassifier
from .regressor import HorseshoeRegressor

CLASSES = {c.__name__: c for c in (HorseshoeRegressor, HorseshoeClassifier)}


def load(path: str | Path) -> NetworkEstimator:
    """The estimator that `save` wrote: it predicts the same bits."""
    header, arrays = persist.read(path, "model")
    if header["class"] not in CLASSES:
        raise ValueError(
            f"{str(path)!r} holds an unknown estimator, {header['class']!r}."
        )
    return CLASSES[header["class"]]._from_file(header, arrays)
