"""Reading an estimator back from its file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import files, persist
from ..fitted import FittedModel
from ..tables.model import ESTIMATORS, Estimator, TableModel
from .base import LEARNED, assign, recipe_of
from .storable import labels_of, names_of, setting

CLASSES = {each.__name__: each for each in ESTIMATORS.values()}


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
        if not isinstance(header["version"], str):
            raise ValueError(f"its version is {header['version']!r:.40}")
        model, more = files.from_file(header["structure"], arrays)
        if more["class"] not in CLASSES:
            raise ValueError(f"{more['class']!r:.40} is an unknown estimator")
        estimator = CLASSES[more["class"]]()
        _check_names("settings", more["params"], estimator.get_params(deep=False))
        _check_names("attributes", more["learned"], LEARNED)
        estimator.set_params(**{n: setting(v) for n, v in more["params"].items()})
        learned = _learned(more["learned"])
        _check(estimator, learned, model)
        recipe_of(estimator, learned)  # refuses what `fit` would refuse
        assign(estimator, model, learned)
        if "table" not in header:
            return estimator
        return TableModel.from_header(header["table"], estimator)


def _check_names(what: str, values: dict[str, Any], known: Iterable[str]) -> None:
    if values.keys() != {*known}:
        raise ValueError(f"its {what} are {[*values]!r:.200}, not {[*known]}")


def _learned(stored: dict[str, Any]) -> dict[str, Any]:
    """Attributes that a fit learned; those that are None there do not exist here."""
    read = {"classes_": labels_of, "feature_names_in_": names_of}
    return {
        name: read[name](value) if name in read else value
        for name, value in stored.items()
        if value is not None or name == "n_targets_"
    }


def _check(estimator: Estimator, learned: dict[str, Any], model: FittedModel) -> None:
    """Raise a ValueError where an estimator and its model do not fit each other."""
    d_in, outputs = model.posterior.d_in, model.likelihood.d_out
    names = learned.get("feature_names_in_")
    if learned["n_features_in_"] != d_in or (names is not None and len(names) != d_in):
        raise ValueError(f"its features are not those of {d_in} columns")
    of_y = model.units.y
    if ESTIMATORS[model.task] is not type(estimator):
        raise ValueError(f"its posterior is not that of a {type(estimator).__name__}")
    if of_y is not None:
        targets, count = learned["n_targets_"], len(of_y.mean)
        known = (None, 1) if count == 1 else (count,)
        if "classes_" in learned or targets not in known or isinstance(targets, bool):
            raise ValueError(f"its number of targets is {targets!r:.40}")
    elif len(learned["classes_"]) != outputs or learned.pop("n_targets_") is not None:
        raise ValueError(f"its classes are not those of {outputs} outputs")
