"""Reading an estimator back from its file."""

from pathlib import Path
from typing import Any

import numpy as np

from .. import files, persist
from ..tables.model import Estimator, TableModel
from .base import plain_labels
from .classifier import HorseshoeClassifier
from .regressor import HorseshoeRegressor

ESTIMATORS: dict[str, type[Estimator]] = {
    each.__name__: each for each in (HorseshoeRegressor, HorseshoeClassifier)
}


def load(path: str | Path) -> Estimator | TableModel:
    """Read a model file; the loaded model predicts what the saved one did.

    Parameters
    ----------
    path : path
        A file that `save` of an estimator or `farrier fit` wrote.

    Returns
    -------
    HorseshoeRegressor, HorseshoeClassifier or TableModel
        A file of `farrier fit` also holds the columns of a table, and gives a
        `TableModel`, which takes the table as it is.

    Raises
    ------
    ValueError
        If the file is damaged, or its content makes no sense. Nothing in a file is
        executed.
    """
    header, arrays = persist.read(path, "model")
    with persist.describing(path, "model"):
        model, more = files.from_file(header["structure"], arrays)
        if more["class"] not in ESTIMATORS:
            raise ValueError(f"{more['class']!r:.40} is an unknown estimator")
        params = {name: _param(value) for name, value in more["params"].items()}
        estimator = ESTIMATORS[more["class"]](**params)
        learned = {n: _learned(n, value) for n, value in more["learned"].items()}
        _check_learned(estimator, learned, model.posterior.d_in)
        estimator._recipe(learned)  # refuses what `fit` would refuse
        estimator._assign(model, learned)
        if "table" not in header:
            return estimator
        return TableModel.from_header(header["table"], estimator)


def _param(value: Any) -> Any:
    """A constructor argument: pairs are a dict whose keys may be any label."""
    if isinstance(value, dict):
        return dict(value["pairs"])
    return value


def _learned(name: str, value: Any) -> Any:
    if name == "classes_":
        return labels_of(value)
    return np.asarray(value, object) if name == "feature_names_in_" else value


def _check_learned(estimator: Estimator, learned: dict[str, Any], d_in: int) -> None:
    features, names = learned["n_features_in_"], learned.get("feature_names_in_")
    if features != d_in or (names is not None and len(names) != d_in):
        raise ValueError(f"its features are not those of {d_in} columns")
    kind = "classes_" if isinstance(estimator, HorseshoeClassifier) else None
    if kind is not None and kind not in learned:
        raise ValueError("it has no classes")


def labels_of(stored: dict[str, Any]) -> np.ndarray:
    """The labels of a classifier: at least two, all different, in their order."""
    values, dtype = stored["values"], np.dtype(stored["dtype"])
    if not isinstance(values, list) or dtype.kind not in "biufUO" or dtype.shape:
        raise ValueError(f"`classes` is {stored!r:.80}")
    longest = max((len(v) for v in values if isinstance(v, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * max(longest, 1):
        raise ValueError(f"`classes` are of type {stored['dtype']!r:.40}")
    labels = np.asarray(values, dtype)
    if plain_labels(labels)["values"] != values or labels.ndim != 1:
        raise ValueError(f"`classes` is {stored!r:.80}")
    if len(labels) < 2 or not (labels[1:] > labels[:-1]).all():
        raise ValueError("`classes` are not at least two labels in their order")
    return labels
