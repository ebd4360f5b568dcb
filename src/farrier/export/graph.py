"""A small builder of ONNX graphs: a call adds a node and returns its output's name."""

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import onnx
    from onnx import ModelProto, TensorProto, helper, numpy_helper
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "ONNX files need one more package: pip install 'farrier[onnx]'."
    ) from error

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # old enough for runtimes of 2022
ML = "ai.onnx.ml"
MAX_BYTES = 2**31 - 2**20  # of one protobuf file
DOUBLE, FLOAT, INT64 = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64
BOOL, STRING = TensorProto.BOOL, TensorProto.STRING
# Element type of labels in ONNX and in NumPy, by the kind of their NumPy type.
LABELS = {
    "b": (BOOL, np.bool_),
    "i": (INT64, np.int64),
    "u": (INT64, np.int64),
    "f": (DOUBLE, np.float64),
    "U": (STRING, object),
    "O": (STRING, object),
}


class Graph:
    """Nodes and constants of a graph under construction.

    Parameters
    ----------
    prefix
        Prefix of all names, so that two graphs can be merged into one.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._named = 0

    def name(self, text: str) -> str:
        """A new, unique name."""
        self._named += 1
        return f"{self.prefix}{text}_{self._named}"

    def input(self, name: str, kind: int, *shape: str | int) -> str:
        """An input of the whole graph."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, kind: int, *shape: str | int) -> None:
        """Make a value an output of the whole graph, with the given name."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        name = self.name("c")
        array = np.asarray(value, dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node with one output."""
        return self.add_many(op, inputs, 1, domain=domain, **attributes)[0]

    def add_many(
        self,
        op: str,
        inputs: tuple[str, ...],
        outputs: int,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Add a node with several outputs."""
        names = [self.name(op.lower()) for _ in range(outputs)]
        node = helper.make_node(
            op, inputs, names, self.name(op), domain=domain, **attributes
        )
        self.nodes.append(node)
        return names

    def cast(self, value: str, kind: int) -> str:
        """The value in another type."""
        return self.add("Cast", value, to=kind)

    def axes(self, *axes: int) -> str:
        """Axes, as a constant."""
        return self.constant(axes, np.int64)

    def mean(self, value: str, count: int) -> str:
        """Mean over the first axis, which has `count` entries."""
        total = self.add("ReduceSum", value, self.axes(0), keepdims=0)
        return self.add("Mul", total, self.constant(1 / count))

    def repeat(
        self,
        times: int,
        state: tuple[str, ...],
        step: Callable[["Graph", tuple[str, ...]], tuple[str, ...]],
    ) -> list[str]:
        """`state` after `times` steps; a step can use all names of this graph."""
        inner = Graph(self.name("loop"))
        number, going = inner.name("i"), inner.name("going")
        before = tuple(inner.name("before") for _ in state)
        after = step(inner, before)
        body = helper.make_graph(
            [*inner.nodes, helper.make_node("Identity", [going], [f"{going}_on"])],
            inner.name("body"),
            [
                helper.make_tensor_value_info(number, INT64, ()),
                helper.make_tensor_value_info(going, BOOL, ()),
                *(helper.make_tensor_value_info(b, FLOAT, None) for b in before),
            ],
            [
                helper.make_tensor_value_info(f"{going}_on", BOOL, ()),
                *(helper.make_tensor_value_info(a, FLOAT, None) for a in after),
            ],
            inner.constants,
        )
        start = (self.constant(times, np.int64), self.constant(1, np.bool_), *state)
        return self.add_many("Loop", start, len(state), body=body)

    def model(
        self, name: str, description: str, metadata: dict[str, str]
    ) -> ModelProto:
        """The graph as a model that has passed the ONNX checker."""
        size = sum(constant.ByteSize() for constant in self.constants)
        if size > MAX_BYTES:
            raise ValueError(
                f"The network takes {size / 2**30:.1f} GiB, and an ONNX file may have "
                "2: export fewer draws with `draws=...`."
            )
        graph = helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, self.constants
        )
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain == ML for node in self.nodes):
            opsets.append(helper.make_opsetid(ML, ML_OPSET))
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            ir_version=IR_VERSION,
            producer_name="farrier",
            producer_version=metadata["version"],
            doc_string=description,
        )
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node, by name."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}
