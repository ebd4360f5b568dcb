"""Converters for skl2onnx, registered by importing this module.

`skl2onnx.to_onnx(pipeline, X)` then converts a pipeline that contains a farrier
estimator. A regressor returns its mean, and with `options={id(model): {"return_std":
True}}` also its standard deviation, as for scikit-learn's Gaussian processes. A
classifier has the options of all classifiers (`zipmap`).
"""

from typing import Any

try:
    from skl2onnx import update_registered_converter
    from skl2onnx.common.data_types import guess_tensor_type
    from skl2onnx.common.shape_calculator import (
        calculate_linear_classifier_output_shapes,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Pipelines are converted by skl2onnx: pip install 'farrier[onnx]'."
    ) from error

from ..estimators.classifier import HorseshoeClassifier
from ..estimators.regressor import HorseshoeRegressor
from . import network
from .graph import DOUBLE, STRING, Graph, attributes_of
from .predictor import predictor_of, target_columns


def _parse_regressor(
    scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None
) -> Any:
    """One output, or with `return_std` two."""
    del custom_parsers
    operator = scope.declare_local_operator("FarrierRegressor", model)
    operator.inputs = inputs
    options = scope.get_options(model, {"return_std": False})
    for name in ("variable", "std")[: 1 + bool(options["return_std"])]:
        kind = guess_tensor_type(inputs[0].type)
        operator.outputs.append(scope.declare_local_variable(name, kind))
    return operator.outputs


def _shape_regressor(operator: Any) -> None:
    rows = operator.inputs[0].get_first_dimension()
    for output in operator.outputs:
        output.type.shape = [rows, target_columns(operator.raw_operator) or 1]


def _convert_regressor(scope: Any, operator: Any, container: Any) -> None:
    graph, x = _started(scope, operator)
    predictor = predictor_of(operator.raw_operator, None, draws=None)
    mean, sd, _ = network.regression(graph, predictor, x, ())
    _add_to(container, graph, (mean, sd), operator)


def _convert_classifier(scope: Any, operator: Any, container: Any) -> None:
    graph, x = _started(scope, operator)
    predictor = predictor_of(operator.raw_operator, None, draws=None)
    results = network.classification(graph, predictor, x)
    _add_to(container, graph, results, operator)


def _started(scope: Any, operator: Any) -> tuple[Graph, str]:
    """A graph with unique names, and the operator's inputs in double precision."""
    graph = Graph(scope.get_unique_operator_name("farrier") + "_")
    parts = [graph.cast(v.onnx_name, DOUBLE) for v in operator.inputs]
    return graph, parts[0] if len(parts) == 1 else graph.add("Concat", *parts, axis=1)


def _add_to(
    container: Any, graph: Graph, results: tuple[str, ...], operator: Any
) -> None:
    """Add nodes and constants to skl2onnx's container, results in declared types."""
    container.initializers.extend(graph.constants)
    for node in graph.nodes:
        container.add_node(
            node.op_type, [*node.input], [*node.output], **attributes_of(node)
        )
    for value, output in zip(results, operator.outputs, strict=False):
        kind = output.type.to_onnx_type().tensor_type.elem_type
        op, settings = ("Identity", {}) if kind == STRING else ("Cast", {"to": kind})
        container.add_node(op, [value], [output.onnx_name], **settings)


update_registered_converter(
    HorseshoeRegressor,
    "FarrierRegressor",
    _shape_regressor,
    _convert_regressor,
    parser=_parse_regressor,
    options={"return_std": [True, False]},
)
update_registered_converter(
    HorseshoeClassifier,
    "FarrierClassifier",
    calculate_linear_classifier_output_shapes,
    _convert_classifier,
    options={
        "zipmap": [True, False, "columns"],
        "output_class_labels": [False, True],
        "nocl": [False],
    },
)
