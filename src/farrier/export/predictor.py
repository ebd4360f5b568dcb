"""From a fitted model to the `Predictor` that is deployed."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators.base import NetworkEstimator
from ..estimators.classifier import HorseshoeClassifier
from ..estimators.regressor import DEPTHS, HorseshoeRegressor
from ..infer.freeze import Draws
from ..tables.model import TableModel
from ..tables.table import Columns
from .portable import Predictor


def to_numpy(
    model: Any, path: str | Path | None = None, *, draws: int | None = None
) -> Predictor:
    """Convert a fitted model to a predictor that needs NumPy alone.

    Parameters
    ----------
    model : HorseshoeRegressor, HorseshoeClassifier or TableModel
        A fitted model. The columns of a `TableModel` must all be numbers.
    path : str or Path, optional
        Where to write the predictor (`.npz`). `portable.Predictor.load` reads it; a
        copy of the file `portable.py` is all that is needed there.
    draws : int, optional
        Number of posterior samples (draws) in the file. Default: the draws that the
        estimator itself predicts with (`n_draws`), so that predictions are the same.
        Fewer draws make the file smaller and predictions faster, but noisier.

    Returns
    -------
    Predictor
        The compacted network.

    See Also
    --------
    to_onnx : Also encodes the raw columns of a table.

    Examples
    --------
    >>> from farrier.export import to_numpy
    >>> predictor = to_numpy(model, "small.npz")  # doctest: +SKIP
    """
    estimator, columns = parts_of(model)
    names = getattr(estimator, "feature_names_in_", None)
    if columns is not None:
        names = _names_of_numbers(columns)
    predictor = predictor_of(estimator, names, draws=draws)
    if path is not None:
        predictor.save(path)
    return predictor


def predictor_of(
    estimator: NetworkEstimator, names: Any, *, draws: int | None
) -> Predictor:
    """The compacted network of an estimator; `names` are those of its features.

    The only place in `export` that reads the inside of an estimator.
    """
    if draws is not None and draws < 2:
        raise ValueError(f"`draws` must be at least 2, got {draws}.")
    small = estimator.compact()
    network, key = small.network_, small._key("predict")
    header = {
        "version": version("farrier"),
        "task": "regression",
        "activation": network.activation,
        "layers": len(network.widths),
        "features": None if names is None else [str(name) for name in names],
        "compaction": str(small.compaction_),
        "targets": target_columns(small),
    }
    if isinstance(small, HorseshoeClassifier):
        header["task"] = "classification"
        header["classes"] = small.classes_.tolist()
        header["label_type"] = small.classes_.dtype.str
    arrays = Draws(count=draws).freeze(network, small.n_draws, key=key)
    return Predictor(header, arrays | _units(small))


def target_columns(estimator: NetworkEstimator) -> int | None:
    """Number of columns of the target; None where it is one-dimensional."""
    return getattr(estimator, "_columns", None)


def parts_of(model: Any) -> tuple[NetworkEstimator, Columns | None]:
    """The estimator, and the columns of the table that it was fitted to."""
    if isinstance(model, NetworkEstimator):
        return model, None
    if isinstance(model, TableModel):
        return model.estimator, model.columns
    raise TypeError(
        "`model` must be a HorseshoeRegressor, a HorseshoeClassifier or a TableModel, "
        f"got {type(model).__name__}. For a scikit-learn pipeline see "
        "`farrier.export.pipelines`."
    )


def _names_of_numbers(columns: Columns) -> list[str]:
    """Names of the columns of a table, each of which must be one feature."""
    for column in columns.columns:
        if column.feature_names != [column.name]:
            kind = "has missing values" if column.indicator else f"is a {column.kind}"
            raise ValueError(
                f"A NumPy file takes numeric features only, and column {column.name!r} "
                f"{kind}. Export to ONNX, which encodes raw columns; or export "
                "`model.estimator`, which takes `model.columns.features(frame)`."
            )
    return columns.feature_names


def _units(estimator: NetworkEstimator) -> dict[str, np.ndarray]:
    """Mean and scale of inputs; for regression, of targets, and interval depths."""
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
