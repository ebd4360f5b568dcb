"""Predictions of a fitted network by NumPy alone.

`farrier.export.to_numpy` writes a network to one `.npz` file, `Predictor.load` reads
it. This file imports nothing but NumPy and the standard library: copy it to where the
predictions are made, and neither JAX nor scikit-learn nor farrier is needed there.

    p(y | x) = 1/S sum_s N(y; loc_s(x), variance_s(x))              regression
    p(y = c | x) = 1/S sum_s softmax(f_s(x))_c                      classification  (P1)

Draws are S parts of a mixture. Moments are carried from layer to layer (E1), by what a
normal u becomes behind an activation (E2), and are a mixture of one part.
"""

import json
import math
import os
import uuid
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

# 2 may have a noise that depends on the row, and 3 has levels of its intervals.
FORMATS = (1, 2, 3)
_DEPTHS = "intervals.depths"
CHUNK_VALUES = 2**22  # draws x rows x widest layer
BISECTIONS = 32
NODES = 32  # points of the quadrature behind an activation
_HEADER = "farrier"
_MISSING = {"", "None", "nan", "NaT", "<NA>"}
_REACH, _STEPS = 9.0, 4_096  # of the table of the normal distribution
_UNIX_EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday is 0


def relu(u: np.ndarray) -> np.ndarray:
    """max(u, 0)."""
    return np.maximum(u, 0)


def gelu(u: np.ndarray) -> np.ndarray:
    """The form with a tanh, as `jax.nn.gelu` has it."""
    return 0.5 * u * (1 + np.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": relu,
    "tanh": np.tanh,
    "gelu": gelu,
}


def softmax(f: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    e = np.exp(f - f.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def normal_density(z: np.ndarray) -> np.ndarray:
    """Density of the standard normal law."""
    return np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)


def normal_cdf(z: np.ndarray) -> np.ndarray:
    """Distribution function of the standard normal law, within 1e-12.

    NumPy has none. Between the points of a table, a cubic with the right values and
    slopes at both ends.
    """
    grid, value, slope = _normal_table()
    step = grid[1] - grid[0]
    z = np.clip(z, -_REACH, _REACH)
    index = np.minimum(((z + _REACH) / step).astype(np.intp), _STEPS - 1)
    t = (z - grid[index]) / step
    rise = value[index + 1] - value[index]
    left, right = step * slope[index] - rise, rise - step * slope[index + 1]
    bend = left * (1 - t) + right * t
    return value[index] + t * rise + t * (1 - t) * bend


@cache
def _normal_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    grid = np.linspace(-_REACH, _REACH, _STEPS + 1)
    value = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in grid])
    return grid, value, normal_density(grid)


def activation_moments(
    name: str, mean: np.ndarray, variance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of h(u) for a normal u (E2).

    In closed form for relu; for others by quadrature.
    """
    sd = np.sqrt(variance)
    if name == "relu":
        z = mean / np.maximum(sd, np.finfo(float).tiny)
        on, off, density = normal_cdf(z), normal_cdf(-z), sd * normal_density(z)
        spread = mean**2 * on * off + variance * on
        spread = spread + mean * density * (off - on) - density**2
        return mean * on + density, np.maximum(spread, 0)
    points, weights = quadrature()
    value = ACTIVATIONS[name](mean + sd * points[:, None, None])
    first = np.tensordot(weights, value, 1)
    return first, np.tensordot(weights, (value - first) ** 2, 1)


def quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for the mean of a function of a standard normal number."""
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return points, weights / weights.sum()


@dataclass(frozen=True)
class Predictor:
    """A fitted network that predicts by NumPy alone.

    Parameters
    ----------
    header
        What is no array: task, method, activation, classes, columns of the table.
    arrays
        Weights, and the units of inputs and targets.
    """

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    # -- files ----------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one `.npz` file, in one piece."""
        path = Path(path)
        number = FORMATS[2 if _DEPTHS in self.arrays else "noise.limit" in self.arrays]
        text = json.dumps({"format": number, **self.header}).encode()
        arrays: dict[str, Any] = {_HEADER: np.frombuffer(text, np.uint8), **self.arrays}
        temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("xb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | Path) -> "Predictor":
        """The predictor that `farrier.export.to_numpy` wrote."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays.pop(_HEADER).tobytes())
            found = header.pop("format")
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{str(path)!r} is damaged or is not a file that farrier wrote."
            ) from error
        if found not in FORMATS:
            raise ValueError(
                f"{str(path)!r} has format {found}; this file reads {FORMATS[-1]} and "
                "less. "
                f"Use the portable.py of farrier {header.get('version')}."
            )
        return cls(header, arrays)

    # -- predictions ----------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Predictive mean, with `return_std` its standard deviation too; or a label.

        Parameters
        ----------
        X
            Rows x features; or, if the model was trained on a table, its raw columns by
            name: a dict of arrays, or a data frame.
        """
        if self.header["task"] == "classification":
            labels = np.asarray(self.header["classes"], self.header["label_type"])
            return labels[self.predict_proba(X).argmax(axis=1)]
        parts = [self._mean_and_sd(x) for x in self._chunks(X)]
        mean, sd = (np.concatenate(part) for part in zip(*parts, strict=True))
        mean = self._shaped(mean * self.arrays["y.scale"] + self.arrays["y.mean"])
        if not return_std:
            return mean
        return mean, self._shaped(sd * self.arrays["y.scale"])

    def predict_interval(
        self, X: Any, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that holds `y` with probability `level`."""
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1, got {level}.")
        low, high = (self.predict_quantile(X, 0.5 + s * level / 2) for s in (-1, 1))
        return low, high

    def held(self, level: float) -> float:
        """The level of the mixture's quantile that is given for one of `level` (P4)."""
        depth = self.arrays.get(_DEPTHS, np.linspace(0, 1, 2))
        side = 2 * level - 1
        within = np.interp(abs(side), np.linspace(0, 1, len(depth)), depth)
        return 0.5 + 0.5 * math.copysign(float(within), side)

    def predict_quantile(self, X: Any, level: float) -> np.ndarray:
        """The value under which `y` lies with probability `level`."""
        self._need("regression", "predict_quantile")
        level = self.held(level)
        found = [_quantile(*self._mixture(x), level) for x in self._chunks(X)]
        value = np.concatenate(found) * self.arrays["y.scale"] + self.arrays["y.mean"]
        return self._shaped(value)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class, in the order of `header["classes"]`."""
        self._need("classification", "predict_proba")
        return np.concatenate([self._probabilities(x) for x in self._chunks(X)])

    def _need(self, task: str, method: str) -> None:
        if self.header["task"] != task:
            raise AttributeError(
                f"`{method}` is for {task}; this is a model for {self.header['task']}."
            )

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self.header["targets"] is None else values

    def _mean_and_sd(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        loc, variance = self._mixture(x)
        return loc.mean(0), np.sqrt(loc.var(0) + variance.mean(0))

    def _mixture(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each part: parts x rows x targets, standard units."""
        if self.header["method"] == "moments":
            mean, variance = self._moments(x)
            return self._with_noise(mean[None], variance[None])
        a = self._hidden(x)
        variance = a**2 @ self.arrays["output.kernel_variance"]
        variance = variance + self.arrays["output.bias_variance"][:, None]
        variance = variance + self._correlated(a, "output")
        return self._with_noise(self._affine(a, "output"), variance)

    def _with_noise(
        self, loc: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The parts with their noise, which may depend on the row (L4, E4).

        Draws of a noise that does not have it in the variance of their biases.
        """
        noise = self.arrays.get("noise", 0.0)
        if "noise.limit" not in self.arrays:
            return loc, variance + noise
        (loc, g), (variance, spread) = (np.split(v, 2, -1) for v in (loc, variance))
        limit = self.arrays["noise.limit"]
        return loc, variance + noise * np.exp(np.clip(spread / 2 - g, -limit, limit))

    def _probabilities(self, x: np.ndarray) -> np.ndarray:
        if self.header["method"] == "draws":
            p = softmax(self._affine(self._hidden(x), "output")).mean(0)
            return p / p.sum(axis=1, keepdims=True)
        return expected_softmax(*self._moments(x))

    def _hidden(self, x: np.ndarray) -> np.ndarray:
        """Activations of the last hidden layer: draws x rows x nodes."""
        for layer in self._layers()[:-1]:
            x = ACTIVATIONS[self.header["activation"]](self._affine(x, layer))
        return x

    def _affine(self, a: np.ndarray, layer: str) -> np.ndarray:
        kernel, bias = self.arrays[f"{layer}.kernel"], self.arrays[f"{layer}.bias"]
        return a @ kernel + bias[..., None, :]

    def _correlated(self, a: np.ndarray, layer: str) -> np.ndarray | float:
        """What correlated weights add to the variance: |R' [a, 1]|^2 (N1)."""
        if f"{layer}.root.kernel" not in self.arrays:
            return 0.0
        squares = self._affine(a, f"{layer}.root") ** 2
        nodes = self.arrays[f"{layer}.bias"].shape[-1]
        return squares.reshape(*squares.shape[:-1], nodes, -1).sum(-1)

    def _moments(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the outputs, from layer to layer (E1, N6)."""
        mean, variance = x, np.zeros_like(x)
        for layer in self._layers():
            if layer != "hidden.0":
                mean, variance = activation_moments(
                    self.header["activation"], mean, variance
                )
            part = {
                name: self.arrays[f"{layer}.{name}"]
                for name in (
                    "kernel_variance",
                    "bias_variance",
                    "kernel_square",
                    "scale_spread",
                )
            }
            spread = (mean**2 + variance) @ part["kernel_variance"]
            spread = spread + variance @ part["kernel_square"] + part["bias_variance"]
            spread = spread + self._correlated(mean, layer)
            mean = self._affine(mean, layer)
            variance = spread + part["scale_spread"] * mean**2
        return mean, variance

    def _layers(self) -> list[str]:
        hidden = [f"hidden.{i}" for i in range(self.header["layers"])]
        return [*hidden, "output"]

    # -- rows -----------------------------------------------------------------------

    def _chunks(self, X: Any) -> Iterator[np.ndarray]:
        """Rows in standard units, as many at a time as memory should hold."""
        columns = self.header["columns"]
        x = self._checked(X) if columns is None else features(columns, X)
        x = (x - self.arrays["x.mean"]) / self.arrays["x.scale"]
        if self.header["method"] == "draws":
            x = x.astype(self.arrays["output.kernel"].dtype)
        kernels = [v for name, v in self.arrays.items() if name.endswith(".kernel")]
        widest = max(k.size // k.shape[-2] for k in kernels)
        widest = NODES * widest if self.header["method"] == "moments" else widest
        size = max(1, CHUNK_VALUES // widest)
        for first in range(0, max(1, len(x)), size):
            yield x[first : first + size]

    def _checked(self, X: Any) -> np.ndarray:
        x = np.asarray(X, float)
        width = len(self.arrays["x.mean"])
        if x.ndim != 2 or x.shape[1] != width or not len(x):
            raise ValueError(
                f"`X` must have one or more rows of {width} features, got an array of "
                f"shape {x.shape}."
            )
        if not np.isfinite(x).all():
            raise ValueError("`X` holds NaN or infinite values.")
        return x


def _quantile(loc: np.ndarray, variance: np.ndarray, level: float) -> np.ndarray:
    """Root of the mixture's distribution function, by bisection (P1).

    One part is a normal law. Otherwise the root lies between the bounds that Cantelli's
    inequality sets by the mean and the standard deviation.
    """
    mean, sd = loc.mean(0), np.sqrt(loc.var(0) + variance.mean(0))
    if len(loc) == 1:
        return mean + NormalDist().inv_cdf(level) * sd
    low = mean - sd * math.sqrt((1 - level) / level)
    high = mean + sd * math.sqrt(level / (1 - level))
    part_sd = np.sqrt(variance)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        under = normal_cdf((middle - loc) / part_sd).mean(0) < level
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    return 0.5 * (low + high)


def expected_softmax(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E softmax(f) for independent normal outputs, by pairs of classes (E3)."""
    gap = mean[:, None, :] - mean[:, :, None]
    width = np.sqrt(1 + math.pi / 8 * (variance[:, None, :] + variance[:, :, None]))
    gap = np.minimum(gap / width, 500)
    p = 1 / np.exp(gap).sum(-1)
    return p / p.sum(axis=1, keepdims=True)


# -- raw tables ---------------------------------------------------------------------


def features(columns: dict[str, Any], table: Any) -> np.ndarray:
    """Rows x features of a raw table, a dict of arrays or a data frame.

    A missing value is None, NaN or an empty text. Dates are `datetime64`, ISO texts
    without a time zone, or days since 1970-01-01.
    """
    absent = [c["name"] for c in columns["columns"] if c["name"] not in table]
    if absent:
        raise ValueError(
            f"The table has no column {', '.join(map(repr, absent))}. It needs "
            f"{', '.join(repr(c['name']) for c in columns['columns'])}."
        )
    parts = [_encode(c, np.asarray(table[c["name"]])) for c in columns["columns"]]
    rows = {len(part) for part in parts}
    if len(rows) > 1 or not rows.pop():
        raise ValueError("All columns of a table must have the same number of rows.")
    return np.concatenate(parts, axis=1)


def _encode(column: dict[str, Any], values: np.ndarray) -> np.ndarray:
    """The features of one column."""
    values = values.astype(object) if values.dtype.kind in "US" else values
    missing = _missing(values)
    if missing.any() and column["fill"] is None:
        raise ValueError(
            f"Column {column['name']!r} has no value in {missing.sum()} rows, and the "
            "model was fitted without missing values."
        )
    try:
        parts = _KINDS[column["kind"]](column, values, missing)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Column {column['name']!r} holds what is no {column['kind']}: {error}."
        ) from error
    return np.column_stack([*parts, missing] if column["indicator"] else [*parts])


def _missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "fM":
        return values != values
    # By their names: a comparison with the NA of pandas has no truth value.
    return np.array([str(value) in _MISSING for value in values], bool)


def _numbers(
    column: dict[str, Any], values: np.ndarray, missing: np.ndarray
) -> list[np.ndarray]:
    found = np.where(missing, column["fill"] or 0, values).astype(float)
    if not np.isfinite(found).all():
        raise ValueError("a value is not finite")
    return [found]


def _dates(
    column: dict[str, Any], values: np.ndarray, missing: np.ndarray
) -> list[np.ndarray]:
    if values.dtype.kind not in "fiuM":
        values = np.where(missing, "1970-01-01", values).astype("datetime64[us]")
    if values.dtype.kind == "M":
        values = values.astype("datetime64[us]").astype(float) / 86_400e6
    days = np.where(missing, column["fill"] or 0, values)
    whole = np.floor(days)
    day = whole.astype("datetime64[D]")
    of_year = (day - day.astype("datetime64[Y]")).astype(float) + 1
    weekday = (whole + _UNIX_EPOCH_WEEKDAY) % 7
    angles = [2 * math.pi * of_year / 365.25, 2 * math.pi * weekday / 7]
    return [days, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))]


def _texts(
    column: dict[str, Any], values: np.ndarray, missing: np.ndarray
) -> np.ndarray:
    pairs = zip(values.tolist(), missing, strict=True)
    return np.array([column["fill"] if gone else str(v).strip() for v, gone in pairs])


def _levels(
    column: dict[str, Any], values: np.ndarray, missing: np.ndarray
) -> list[np.ndarray]:
    text = _texts(column, values, missing)
    return [text == level for level in column["levels"]]


def _booleans(
    column: dict[str, Any], values: np.ndarray, missing: np.ndarray
) -> list[np.ndarray]:
    folded = [value.casefold() for value in _texts(column, values, missing).tolist()]
    no, yes = (level.casefold() for level in column["levels"])
    strange = sorted({*folded} - {no, yes})
    if strange:
        raise ValueError(f"{strange[0]!r} where {no!r} or {yes!r} is needed")
    return [np.array([value == yes for value in folded])]


_KINDS: dict[str, Callable[..., list[np.ndarray]]] = {
    "number": _numbers,
    "boolean": _booleans,
    "category": _levels,
    "date": _dates,
}
