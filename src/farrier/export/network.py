"""A `Predictor` as an ONNX graph: the same numbers as `portable.py`, node by node.

Standardisation is done in double precision, the network itself in single precision.
"""

import math

import numpy as np

from .graph import DOUBLE, FLOAT, LABELS, Graph
from .portable import Predictor

BISECTIONS = 24  # each halves a bracket of a few standard deviations


def regression(
    graph: Graph, predictor: Predictor, x: str, levels: tuple[float, ...]
) -> tuple[str, str, str | None]:
    """Mean, standard deviation and quantiles (P1), in double precision.

    `x` is rows x features, in double precision and in the user's units.
    """
    loc, variance = _mixture(graph, predictor, _standardised(graph, predictor, x))
    draws = len(predictor.arrays["output.kernel"])
    mean = graph.mean(loc, draws)
    deviation = graph.add("Sub", loc, mean)
    square = graph.add("Mul", deviation, deviation)
    sd = graph.add("Sqrt", graph.mean(graph.add("Add", square, variance), draws))
    scale = graph.constant(predictor.arrays["y.scale"], np.float64)
    scaled_mean = _unstandardised(graph, predictor, mean)
    scaled_sd = graph.add("Mul", graph.cast(sd, DOUBLE), scale)
    if not levels:
        return scaled_mean, scaled_sd, None
    calibrated = tuple(predictor.calibrated_level(level) for level in levels)
    q = _mixture_quantiles(graph, mean, sd, loc, variance, draws, calibrated)
    # The units belong to the axis of the targets, which has to be the last one.
    q = _unstandardised(graph, predictor, graph.add("Transpose", q, perm=[0, 2, 1]))
    return scaled_mean, scaled_sd, graph.add("Transpose", q, perm=[0, 2, 1])


def classification(graph: Graph, predictor: Predictor, x: str) -> tuple[str, str]:
    """Label and probabilities (P1)."""
    hidden = _last_hidden(graph, predictor, _standardised(graph, predictor, x))
    f = _affine(graph, predictor, hidden, "output")
    draws = len(predictor.arrays["output.kernel"])
    p = graph.mean(graph.add("Softmax", f, axis=-1), draws)
    total = graph.add("ReduceSum", p, graph.axes(1), keepdims=1)
    p = graph.add("Div", p, total)
    best = graph.add("ArgMax", p, axis=1, keepdims=0)
    kind = np.dtype(predictor.header["label_type"]).kind
    labels = graph.constant(predictor.header["classes"], LABELS[kind][1])
    return graph.add("Gather", labels, best, axis=0), p


def _standardised(graph: Graph, predictor: Predictor, x: str) -> str:
    mean, scale = (
        graph.constant(predictor.arrays[name], np.float64)
        for name in ("x.mean", "x.scale")
    )
    x = graph.add("Div", graph.add("Sub", x, mean), scale)
    return graph.cast(x, FLOAT)


def _unstandardised(graph: Graph, predictor: Predictor, value: str) -> str:
    mean, scale = (
        graph.constant(predictor.arrays[name], np.float64)
        for name in ("y.mean", "y.scale")
    )
    value = graph.add("Mul", graph.cast(value, DOUBLE), scale)
    return graph.add("Add", value, mean)


def _affine(
    graph: Graph, predictor: Predictor, a: str, layer: str, suffix: str = ""
) -> str:
    """a @ kernel + bias; with `suffix="_variance"`, the same with the variances."""
    kernel = predictor.arrays[f"{layer}.kernel{suffix}"]
    bias = predictor.arrays[f"{layer}.bias{suffix}"][:, None]  # draws x 1 x nodes
    product = graph.add("MatMul", a, graph.constant(kernel))
    return graph.add("Add", product, graph.constant(bias))


def _last_hidden(graph: Graph, predictor: Predictor, x: str) -> str:
    """Activations of the last hidden layer: draws x rows x nodes."""
    for layer in range(predictor.header["layers"]):
        x = _affine(graph, predictor, x, f"hidden.{layer}")
        x = _activation(graph, predictor.header["activation"], x)
    return x


def _activation(graph: Graph, name: str, u: str) -> str:
    if name != "gelu":
        return graph.add({"relu": "Relu", "tanh": "Tanh"}[name], u)
    # Written out: ONNX has a Gelu operator only from opset 20 on.
    cube = graph.add("Mul", u, graph.add("Mul", u, u))
    inner = graph.add("Add", u, graph.add("Mul", cube, graph.constant(0.044715)))
    inner = graph.add("Mul", inner, graph.constant(math.sqrt(2 / math.pi)))
    factor = graph.add("Add", graph.add("Tanh", inner), graph.constant(1.0))
    return graph.add("Mul", graph.add("Mul", u, graph.constant(0.5)), factor)


def _mixture(graph: Graph, predictor: Predictor, x: str) -> tuple[str, str]:
    """Mean and variance of each mixture component: draws x rows x targets."""
    a = _last_hidden(graph, predictor, x)
    loc = _affine(graph, predictor, a, "output")
    square = graph.add("Mul", a, a)
    variance = _affine(graph, predictor, square, "output", "_variance")
    return _with_noise(graph, predictor, loc, variance)


def _with_noise(
    graph: Graph, predictor: Predictor, loc: str, variance: str
) -> tuple[str, str]:
    """Mixture components with their noise, homoscedastic or not (L4)."""
    if "noise" not in predictor.arrays:
        return loc, variance
    noise = graph.constant(predictor.arrays["noise"])
    if "noise.limit" in predictor.arrays:
        limit = predictor.arrays["noise.limit"]
        ends = graph.constant(-limit), graph.constant(limit)
        loc, g = graph.add_many("Split", (loc,), 2, axis=-1)
        variance, g_variance = graph.add_many("Split", (variance,), 2, axis=-1)
        half = graph.add("Mul", g_variance, graph.constant(0.5))
        exponent = graph.add("Clip", graph.add("Sub", half, g), *ends)
        noise = graph.add("Mul", noise, graph.add("Exp", exponent))
    return loc, graph.add("Add", variance, noise)


def _mixture_quantiles(
    graph: Graph,
    mean: str,
    sd: str,
    loc: str,
    variance: str,
    draws: int,
    levels: tuple[float, ...],
) -> str:
    """Quantiles by bisection between Cantelli's bounds: rows x targets x levels.

    Mixture components are the last axis inside, over which sums are fast. Of
    Phi(z) = 1/2 + 1/2 erf(z / sqrt(2)), only the sum of the erf is computed.
    """
    last, level_axis = graph.axes(-1), graph.axes(2)
    mean, sd = (graph.add("Unsqueeze", value, last) for value in (mean, sd))
    q = np.asarray(levels)
    below = graph.add("Mul", sd, graph.constant(np.sqrt((1 - q) / q)))
    above = graph.add("Mul", sd, graph.constant(np.sqrt(q / (1 - q))))
    bracket = graph.add("Sub", mean, below), graph.add("Add", mean, above)
    double = graph.add("Mul", variance, graph.constant(2.0))
    slope = graph.add("Reciprocal", graph.add("Sqrt", double))
    shift = graph.add("Mul", loc, slope)
    slope, shift = (
        graph.add("Unsqueeze", graph.add("Transpose", v, perm=[1, 2, 0]), level_axis)
        for v in (slope, shift)
    )
    half, target = graph.constant(0.5), graph.constant(draws * (2 * q - 1))

    def halve(inner: Graph, bracket: tuple[str, ...]) -> tuple[str, ...]:
        low, high = bracket
        middle = inner.add("Mul", inner.add("Add", low, high), half)
        z = inner.add("Mul", inner.add("Unsqueeze", middle, last), slope)
        z = inner.add("Erf", inner.add("Sub", z, shift))
        total = inner.add("ReduceSum", z, last, keepdims=0)
        below = inner.add("Less", total, target)
        return (
            inner.add("Where", below, middle, low),
            inner.add("Where", below, high, middle),
        )

    low, high = graph.repeat(BISECTIONS, bracket, halve)
    return graph.add("Mul", graph.add("Add", low, high), half)
