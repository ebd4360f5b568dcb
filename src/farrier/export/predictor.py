"""From a fitted model to the `Predictor` that is deployed."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators.base import NetworkEstimator
from ..estimators.classifier import HorseshoeClassifier
from ..estimators.regressor import DEPTHS, HorseshoeRegressor
from ..infer.freeze import Draws, Moments
from ..tables.model import TableModel
from .portable import Predictor


def to_numpy(
    model: Any,
    path: str | Path | None = None,
    *,
    method: Draws | Moments | None = None,
) -> Predictor:
    """The compacted network as a predictor that needs NumPy alone.

    Parameters
    ----------
    model
        A fitted estimator, or a model of a table.
    path
        Where to write it (`.npz`); `portable.Predictor.load` reads it, from a copy of
        the file `portable.py` alone if need be.
    method
        `Draws()`, the default: the fixed set of posterior draws with which farrier
        predicts. `Moments()`: means and variances carried through the layers.
    """
    method = Draws() if method is None else method
    estimator, columns = _parts(model)
    small = estimator.compact()
    network = small.network_
    arrays = method.freeze(network, small.n_draws, key=small._key("predict"))
    arrays |= _units(small)
    header = {
        "version": version("farrier"),
        "task": "regression",
        "method": method.name,
        "activation": network.activation,
        "layers": len(network.widths),
        "columns": columns,
        "compaction": str(small.compaction_),
        "targets": getattr(small, "_columns", None),
    }
    if isinstance(small, HorseshoeClassifier):
        header["task"] = "classification"
        header["classes"] = small.classes_.tolist()
        header["label_type"] = small.classes_.dtype.str
    predictor = Predictor(header, arrays)
    if path is not None:
        predictor.save(path)
    return predictor


def _parts(model: Any) -> tuple[NetworkEstimator, dict | None]:
    """The estimator, and the columns of the table that it was trained on."""
    if isinstance(model, NetworkEstimator):
        return model, None
    if isinstance(model, TableModel):
        return model.estimator, model.columns.to_json()
    raise TypeError(
        "`model` must be a HorseshoeRegressor, a HorseshoeClassifier or a model that "
        f"`farrier.load` read, got {type(model).__name__}. For a scikit-learn pipeline "
        "see `farrier.export.pipelines`."
    )


def _units(estimator: NetworkEstimator) -> dict[str, np.ndarray]:
    """Mean and scale of inputs and, for regression, of targets and its intervals."""
    standards = {"x": estimator._x_standard}
    depths = {}
    if isinstance(estimator, HorseshoeRegressor):
        standards["y"] = estimator._y_standard
        depths[DEPTHS] = estimator._depths("calibrated")
    return depths | {
        f"{name}.{part}": getattr(standard, part)
        for name, standard in standards.items()
        for part in ("mean", "scale")
    }
