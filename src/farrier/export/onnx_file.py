"""A fitted model as a whole ONNX model: inputs, network, outputs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import replacing
from ..infer.freeze import Draws, Moments
from . import network
from .graph import DOUBLE, FLOAT, LABELS, Graph, ModelProto
from .portable import Predictor
from .predictor import to_numpy
from .table import table_features


def to_onnx(
    model: Any,
    path: str | Path | None = None,
    *,
    method: Draws | Moments | None = None,
    quantiles: tuple[float, ...] = (0.05, 0.95),
) -> ModelProto:
    """The compacted network as an ONNX model.

    It takes `X`, rows x features in double precision, or for a model of a table one
    input for each raw column. For regression it gives `mean`, `std` and `quantiles`
    (one for each level, last axis), for classification `label` and `probabilities`.

    Parameters
    ----------
    model
        A fitted estimator, or a model of a table.
    path
        Where to write it (`.onnx`).
    method
        `Draws()`, the default: the fixed set of posterior draws with which farrier
        predicts. `Moments()`: means and variances carried through the layers.
    quantiles
        Levels of the quantiles, between 0 and 1.
    """
    levels = tuple(float(level) for level in quantiles)
    if not all(0 < level < 1 for level in levels):
        raise ValueError(f"`quantiles` must lie between 0 and 1, got {quantiles!r}.")
    found = onnx_model(to_numpy(model, method=method), levels)
    if path is not None:
        with replacing(path) as file:
            file.write(found.SerializeToString())
    return found


def onnx_model(predictor: Predictor, levels: tuple[float, ...]) -> ModelProto:
    """The model, with quantiles at `levels` if it is a regression."""
    graph, header = Graph(), predictor.header
    if header["columns"] is None:
        x = graph.input("X", DOUBLE, "rows", len(predictor.arrays["x.mean"]))
    else:
        x = table_features(graph, header["columns"])
    metadata = {
        name: str(header[name]) for name in ("version", "task", "method", "compaction")
    }
    if header["task"] == "classification":
        label, p = network.classification(graph, predictor, x)
        kind, _ = LABELS[np.dtype(header["label_type"]).kind]
        graph.output(label, "label", kind, "rows")
        graph.output(p, "probabilities", FLOAT, "rows", len(header["classes"]))
        metadata["classes"] = json.dumps(header["classes"])
    else:
        several = header["targets"] is not None
        shape: tuple[str | int, ...] = ("rows", header["targets"])[: 1 + several]
        mean, sd, q = network.regression(graph, predictor, x, levels)
        outputs = {"mean": (mean, shape), "std": (sd, shape)}
        if q is not None:
            outputs["quantiles"] = (q, (*shape, len(levels)))
            metadata["quantiles"] = json.dumps(levels)
        for name, (value, shape) in outputs.items():
            flat = value if several else graph.add("Squeeze", value, graph.axes(1))
            graph.output(flat, name, DOUBLE, *shape)
    return graph.model("farrier", header["compaction"], metadata)
