"""A `Predictor` written as a graph: the same numbers as `portable.py`, node by node.

Units are taken off and put back in double precision, the network is in single.
"""

import math
from statistics import NormalDist

import numpy as np

from .graph import DOUBLE, FLOAT, LABELS, Graph
from .portable import Predictor, quadrature

BISECTIONS = 24  # each halves a bracket of a few standard deviations
MOST_GAP = 80.0  # between two outputs: exp of it is finite in single precision


def regression(
    graph: Graph, predictor: Predictor, x: str, levels: tuple[float, ...]
) -> tuple[str, str, str | None]:
    """Mean, standard deviation and quantiles (P1), in double precision.

    `x` is rows x features, in double precision and its own units.
    """
    loc, variance, parts = _mixture(graph, predictor, _standard(graph, predictor, x))
    mean = graph.mean(loc, parts)
    spread = graph.add("Sub", loc, mean)
    spread = graph.add("Add", graph.add("Mul", spread, spread), variance)
    sd = graph.add("Sqrt", graph.mean(spread, parts))
    scale = graph.constant(predictor.arrays["y.scale"], np.float64)
    results = [
        _own_units(graph, predictor, mean),
        graph.add("Mul", graph.cast(sd, DOUBLE), scale),
    ]
    quantiles = None
    levels = tuple(predictor.held(level) for level in levels)
    if levels:
        if parts == 1:
            q = _normal_quantiles(graph, mean, sd, levels)
        else:
            q = _mixture_quantiles(graph, mean, sd, loc, variance, parts, levels)
        # Levels last: the targets' units belong to the axis before it.
        turned = graph.add("Transpose", q, perm=[0, 2, 1])
        q = _own_units(graph, predictor, turned)
        quantiles = graph.add("Transpose", q, perm=[0, 2, 1])
    return results[0], results[1], quantiles


def classification(graph: Graph, predictor: Predictor, x: str) -> tuple[str, str]:
    """Label and probabilities (P1)."""
    x = _standard(graph, predictor, x)
    if predictor.header["method"] == "draws":
        hidden, parts = _hidden(graph, predictor, x)
        f = _affine(graph, predictor, hidden, "output")
        p = graph.mean(graph.add("Softmax", f, axis=-1), parts)
    else:
        p = _expected_softmax(graph, *_moments(graph, predictor, x))
    total = graph.add("ReduceSum", p, graph.axes(1), keepdims=1)
    p = graph.add("Div", p, total)
    best = graph.add("ArgMax", p, axis=1, keepdims=0)
    kind = np.dtype(predictor.header["label_type"]).kind
    labels = graph.constant(predictor.header["classes"], LABELS[kind][1])
    return graph.add("Gather", labels, best, axis=0), p


def _standard(graph: Graph, predictor: Predictor, x: str) -> str:
    mean, scale = (
        graph.constant(predictor.arrays[name], np.float64)
        for name in ("x.mean", "x.scale")
    )
    x = graph.add("Div", graph.add("Sub", x, mean), scale)
    return graph.cast(x, FLOAT)


def _own_units(graph: Graph, predictor: Predictor, value: str) -> str:
    mean, scale = (
        graph.constant(predictor.arrays[name], np.float64)
        for name in ("y.mean", "y.scale")
    )
    value = graph.add("Mul", graph.cast(value, DOUBLE), scale)
    return graph.add("Add", value, mean)


def _array(graph: Graph, predictor: Predictor, name: str) -> str:
    value = predictor.arrays[name]
    # Biases of draws have a place for the rows: draws x 1 x nodes.
    return graph.constant(
        value[:, None] if "bias" in name and value.ndim > 1 else value
    )


def _affine(
    graph: Graph, predictor: Predictor, a: str, layer: str, what: str = ""
) -> str:
    """a @ kernel + bias, or with `what` "_variance" the same of the variances."""
    kernel, bias = (
        _array(graph, predictor, f"{layer}.{part}{what}") for part in ("kernel", "bias")
    )
    return graph.add("Add", graph.add("MatMul", a, kernel), bias)


def _hidden(graph: Graph, predictor: Predictor, x: str) -> tuple[str, int]:
    """Activations of the last hidden layer, draws x rows x nodes; how many draws."""
    for layer in range(predictor.header["layers"]):
        x = _affine(graph, predictor, x, f"hidden.{layer}")
        x = _activation(graph, predictor.header["activation"], x)
    return x, len(predictor.arrays["output.kernel"])


def _activation(graph: Graph, name: str, u: str) -> str:
    if name != "gelu":
        return graph.add({"relu": "Relu", "tanh": "Tanh"}[name], u)
    # Written out: the operator of that name is younger than this opset.
    cube = graph.add("Mul", u, graph.add("Mul", u, u))
    inner = graph.add("Add", u, graph.add("Mul", cube, graph.constant(0.044715)))
    inner = graph.add("Mul", inner, graph.constant(math.sqrt(2 / math.pi)))
    share = graph.add("Add", graph.add("Tanh", inner), graph.constant(1.0))
    return graph.add("Mul", graph.add("Mul", u, graph.constant(0.5)), share)


def _mixture(graph: Graph, predictor: Predictor, x: str) -> tuple[str, str, int]:
    """Mean and variance of each part, parts x rows x targets; how many parts."""
    if predictor.header["method"] == "moments":
        first = graph.axes(0)
        mean, variance = (
            graph.add("Unsqueeze", part, first)
            for part in _moments(graph, predictor, x)
        )
        return *_with_noise(graph, predictor, mean, variance), 1
    a, draws = _hidden(graph, predictor, x)
    loc = _affine(graph, predictor, a, "output")
    square = graph.add("Mul", a, a)
    variance = _affine(graph, predictor, square, "output", "_variance")
    variance = _with_correlated(graph, predictor, a, "output", variance)
    return *_with_noise(graph, predictor, loc, variance), draws


def _with_noise(
    graph: Graph, predictor: Predictor, loc: str, variance: str
) -> tuple[str, str]:
    """The parts with their noise, which may depend on the row (L4, E4)."""
    if "noise" not in predictor.arrays:
        return loc, variance
    noise = _array(graph, predictor, "noise")
    if "noise.limit" in predictor.arrays:
        limit = predictor.arrays["noise.limit"]
        ends = graph.constant(-limit), graph.constant(limit)
        loc, g = graph.add_many("Split", (loc,), 2, axis=-1)
        variance, spread = graph.add_many("Split", (variance,), 2, axis=-1)
        half = graph.add("Mul", spread, graph.constant(0.5))
        ratio = graph.add("Clip", graph.add("Sub", half, g), *ends)
        noise = graph.add("Mul", noise, graph.add("Exp", ratio))
    return loc, graph.add("Add", variance, noise)


def _with_correlated(
    graph: Graph, predictor: Predictor, a: str, layer: str, variance: str
) -> str:
    """The variance with what correlated weights add to it: |R' [a, 1]|^2 (N1)."""
    if f"{layer}.root.kernel" not in predictor.arrays:
        return variance
    bias = predictor.arrays[f"{layer}.bias"]
    u = _affine(graph, predictor, a, f"{layer}.root")
    # The columns of each node, an axis of their own; 0 stands for an axis as it is.
    shape = graph.axes(*[0] * bias.ndim, bias.shape[-1], -1)
    squares = graph.add("Reshape", graph.add("Mul", u, u), shape)
    squares = graph.add("ReduceSum", squares, graph.axes(-1), keepdims=0)
    return graph.add("Add", variance, squares)


def _moments(graph: Graph, predictor: Predictor, x: str) -> tuple[str, str]:
    """Mean and variance of the outputs, from layer to layer (E1, N6)."""
    mean, variance = x, None
    layers = [f"hidden.{i}" for i in range(predictor.header["layers"])]
    for layer in [*layers, "output"]:
        if variance is not None:
            mean, variance = _activation_moments(
                graph, predictor.header["activation"], mean, variance
            )
        square = graph.add("Mul", mean, mean)
        if variance is not None:
            square = graph.add("Add", square, variance)
        spread = _affine(graph, predictor, square, layer, "_variance")
        spread = _with_correlated(graph, predictor, mean, layer, spread)
        if variance is not None:
            kernel = _array(graph, predictor, f"{layer}.kernel_square")
            more = graph.add("MatMul", variance, kernel)
            spread = graph.add("Add", spread, more)
        mean = _affine(graph, predictor, mean, layer)
        factor = _array(graph, predictor, f"{layer}.scale_spread")
        by_scale = graph.add("Mul", graph.add("Mul", mean, mean), factor)
        variance = graph.add("Add", spread, by_scale)
    assert variance is not None
    return mean, variance


def _activation_moments(
    graph: Graph, name: str, mean: str, variance: str
) -> tuple[str, str]:
    """Mean and variance of h(u) for a normal u (E2)."""
    sd = graph.add("Sqrt", variance)
    if name == "relu":
        return _relu_moments(graph, mean, variance, sd)
    points, weights = (np.reshape(v, (-1, 1, 1)) for v in quadrature())
    u = graph.add("Add", mean, graph.add("Mul", sd, graph.constant(points)))
    value, weight = _activation(graph, name, u), graph.constant(weights)

    def average(values: str) -> str:
        weighted = graph.add("Mul", values, weight)
        return graph.add("ReduceSum", weighted, graph.axes(0), keepdims=0)

    first = average(value)
    away = graph.add("Sub", value, first)
    return first, average(graph.add("Mul", away, away))


def _relu_moments(graph: Graph, mean: str, variance: str, sd: str) -> tuple[str, str]:
    tiny = graph.constant(np.finfo(np.float32).tiny)
    z = graph.add("Div", mean, graph.add("Max", sd, tiny))
    half = graph.add("Mul", graph.add("Mul", z, z), graph.constant(-0.5))
    unit = graph.constant(1 / math.sqrt(2 * math.pi))
    density = graph.add("Mul", graph.add("Exp", half), unit)
    density = graph.add("Mul", sd, density)
    on, off = _normal_cdf(graph, z), _normal_cdf(graph, graph.add("Neg", z))
    first = graph.add("Add", graph.add("Mul", mean, on), density)
    terms = [
        graph.add("Mul", graph.add("Mul", mean, mean), graph.add("Mul", on, off)),
        graph.add("Mul", variance, on),
        graph.add("Mul", graph.add("Mul", mean, density), graph.add("Sub", off, on)),
        graph.add("Neg", graph.add("Mul", density, density)),
    ]
    return first, graph.add("Relu", graph.add("Sum", *terms))


def _normal_cdf(graph: Graph, z: str) -> str:
    e = graph.add("Erf", graph.add("Mul", z, graph.constant(math.sqrt(0.5))))
    return graph.add(
        "Add", graph.add("Mul", e, graph.constant(0.5)), graph.constant(0.5)
    )


def _normal_quantiles(
    graph: Graph, mean: str, sd: str, levels: tuple[float, ...]
) -> str:
    """Of one normal: rows x targets x levels."""
    last = graph.axes(-1)
    z = graph.constant([NormalDist().inv_cdf(level) for level in levels])
    away = graph.add("Mul", graph.add("Unsqueeze", sd, last), z)
    return graph.add("Add", graph.add("Unsqueeze", mean, last), away)


def _mixture_quantiles(
    graph: Graph,
    mean: str,
    sd: str,
    loc: str,
    variance: str,
    parts: int,
    levels: tuple[float, ...],
) -> str:
    """By bisection between Cantelli's bounds: rows x targets x levels.

    With the parts of the mixture as the last axis, over which sums are fast. Of
    Phi(z) = 1/2 + 1/2 erf(z / sqrt(2)) only the sum of the erf is worked out.
    """
    last, place = graph.axes(-1), graph.axes(2)
    mean, sd = (graph.add("Unsqueeze", value, last) for value in (mean, sd))
    q = np.asarray(levels)
    below = graph.add("Mul", sd, graph.constant(np.sqrt((1 - q) / q)))
    above = graph.add("Mul", sd, graph.constant(np.sqrt(q / (1 - q))))
    bracket = graph.add("Sub", mean, below), graph.add("Add", mean, above)
    double = graph.add("Mul", variance, graph.constant(2.0))
    slope = graph.add("Reciprocal", graph.add("Sqrt", double))
    shift = graph.add("Mul", loc, slope)
    slope, shift = (
        graph.add("Unsqueeze", graph.add("Transpose", v, perm=[1, 2, 0]), place)
        for v in (slope, shift)
    )
    half, wanted = graph.constant(0.5), graph.constant(parts * (2 * q - 1))

    def halve(inner: Graph, bracket: tuple[str, ...]) -> tuple[str, ...]:
        low, high = bracket
        middle = inner.add("Mul", inner.add("Add", low, high), half)
        z = inner.add("Mul", inner.add("Unsqueeze", middle, last), slope)
        z = inner.add("Erf", inner.add("Sub", z, shift))
        under = inner.add("Less", inner.add("ReduceSum", z, last, keepdims=0), wanted)
        return (
            inner.add("Where", under, middle, low),
            inner.add("Where", under, high, middle),
        )

    low, high = graph.repeat(BISECTIONS, bracket, halve)
    return graph.add("Mul", graph.add("Add", low, high), half)


def _expected_softmax(graph: Graph, mean: str, variance: str) -> str:
    """Probabilities of independent normal outputs, by pairs of classes (E3)."""

    def pairs(op: str, value: str) -> str:
        row, column = (graph.add("Unsqueeze", value, graph.axes(a)) for a in (1, 2))
        return graph.add(op, row, column)

    spread = graph.add("Mul", pairs("Add", variance), graph.constant(math.pi / 8))
    width = graph.add("Sqrt", graph.add("Add", spread, graph.constant(1.0)))
    gap = graph.add("Div", pairs("Sub", mean), width)
    gap = graph.add("Min", gap, graph.constant(MOST_GAP))
    total = graph.add("ReduceSum", graph.add("Exp", gap), graph.axes(2), keepdims=0)
    return graph.add("Reciprocal", total)
