"""A fitted model as an ONNX model: inputs, network, outputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import replacing
from ..tables.model import parts_of
from ..tables.table import Columns
from . import network
from .graph import DOUBLE, FLOAT, LABELS, Graph, ModelProto
from .portable import Predictor
from .predictor import predictor_of
from .table import table_features


def to_onnx(
    model: Any,
    path: str | Path | None = None,
    *,
    draws: int | None = None,
    quantiles: tuple[float, ...] = (0.05, 0.95),
) -> ModelProto:
    """Convert a fitted model to an ONNX model.

    Its input is `X`, an array of shape (rows, features) in double precision; for a
    `TableModel` there is one input for each raw column instead. The outputs of a
    regression are `mean`, `std` and `quantiles` (one for each level, on the last axis),
    those of a classification `label` and `probabilities`.

    Parameters
    ----------
    model : HorseshoeRegressor, HorseshoeClassifier or TableModel
        A fitted model.
    path : str or Path, optional
        Where to write the ONNX model (`.onnx`).
    draws : int, optional
        Number of posterior samples (draws) in the file. Default: the draws that the
        estimator itself predicts with (`n_draws`), so that predictions are the same.
        Fewer draws make the file smaller and predictions faster, but noisier.
    quantiles : tuple of float, default=(0.05, 0.95)
        Levels of the quantiles, between 0 and 1. Only for regressions.

    Returns
    -------
    onnx.ModelProto
        The compacted network.

    See Also
    --------
    to_numpy : A file for predictions with NumPy alone.

    Examples
    --------
    >>> from farrier.export import to_onnx
    >>> onnx_model = to_onnx(model, "small.onnx")  # doctest: +SKIP
    """
    levels = tuple(float(level) for level in quantiles)
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"`quantiles` must lie between 0 and 1, got {quantiles!r}.")
    estimator, columns = parts_of(model)
    predictor = predictor_of(estimator, None, draws=draws)
    onnx_model = model_of(predictor, columns, levels)
    if path is not None:
        with replacing(path) as file:
            file.write(onnx_model.SerializeToString())
    return onnx_model


def model_of(
    predictor: Predictor, columns: Columns | None, levels: tuple[float, ...]
) -> ModelProto:
    """The ONNX model of a predictor, with quantiles at `levels` for a regression."""
    graph, header = Graph(), predictor.header
    if columns is None:
        x = graph.input("X", DOUBLE, "rows", len(predictor.arrays["x.mean"]))
    else:
        x = table_features(graph, columns)
    metadata = {name: str(header[name]) for name in ("version", "task", "compaction")}
    if header["task"] == "classification":
        label, p = network.classification(graph, predictor, x)
        kind, _ = LABELS[np.dtype(header["label_type"]).kind]
        graph.output(label, "label", kind, "rows")
        graph.output(p, "probabilities", FLOAT, "rows", len(header["classes"]))
        metadata["classes"] = json.dumps(header["classes"])
    else:
        mean, sd, q = network.regression(graph, predictor, x, levels)
        _output(graph, predictor, mean, "mean")
        _output(graph, predictor, sd, "std")
        if q is not None:
            _output(graph, predictor, q, "quantiles", len(levels))
            metadata["quantiles"] = json.dumps(levels)
    return graph.model("farrier", header["compaction"], metadata)


def _output(
    graph: Graph, predictor: Predictor, value: str, name: str, *last: int
) -> None:
    """An output of a regression, without an axis for a one-dimensional target."""
    targets = predictor.header["targets"]
    if targets is None:
        flat = graph.add("Squeeze", value, graph.axes(1))
        graph.output(flat, name, DOUBLE, "rows", *last)
    else:
        graph.output(value, name, DOUBLE, "rows", targets, *last)
