"""Predictions of a fitted network with NumPy alone.

`farrier.export.to_numpy` writes a network to one `.npz` file, and `Predictor.load`
reads it. This file imports nothing but NumPy and the standard library: copy it to
where the predictions are made, and neither JAX nor scikit-learn nor farrier is needed
there.

    p(y | x) = 1/S sum_s N(y; loc_s(x), variance_s(x))              regression
    p(y = c | x) = 1/S sum_s softmax(f_s(x))_c                      classification  (P1)

The S components of the mixture are posterior samples (draws) of the network.
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
from typing import Any

import numpy as np

FORMAT = 1
CHUNK_VALUES = 2**22  # draws x rows x widest layer
BISECTIONS = 32
_DEPTHS = "intervals.depths"
_HEADER = "farrier"
_REACH, _STEPS = 9.0, 4_096  # of the table of the normal distribution


def relu(u: np.ndarray) -> np.ndarray:
    """max(u, 0)."""
    return np.maximum(u, 0)


def gelu(u: np.ndarray) -> np.ndarray:
    """The tanh approximation of GELU, which is the default of `jax.nn.gelu`."""
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


def normal_cdf(z: np.ndarray) -> np.ndarray:
    """Distribution function of the standard normal, within 1e-12.

    NumPy has none. Between the points of a table, this is the cubic that has the
    right values and slopes at both ends.
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
    """Grid, distribution function and density of the standard normal."""
    grid = np.linspace(-_REACH, _REACH, _STEPS + 1)
    value = np.array([0.5 * math.erfc(-z / math.sqrt(2)) for z in grid])
    return grid, value, np.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Predictor:
    """A fitted network that predicts with NumPy alone.

    Parameters
    ----------
    header : dict
        Everything that is not an array: `task`, `activation`, `layers`, `features`
        (names of the inputs, or None), `targets`, `classes`, and the `version` of
        farrier that made it.
    arrays : dict of ndarray
        Weights of all draws, and the units of inputs and targets, by name.

    Examples
    --------
    >>> predictor = Predictor.load("small.npz")  # doctest: +SKIP
    >>> low, high = predictor.predict_interval(X, level=0.9)  # doctest: +SKIP
    """

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    # -- files ----------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one `.npz` file.

        The file gets its name only when it is complete.

        Parameters
        ----------
        path : str or Path
            Where to write it.
        """
        path = Path(path)
        text = json.dumps({"format": FORMAT, **self.header}).encode()
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
        """Read a file that `farrier.export.to_numpy` wrote.

        Parameters
        ----------
        path : str or Path
            The `.npz` file.

        Returns
        -------
        Predictor
            A predictor with the same predictions.
        """
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays.pop(_HEADER).tobytes())
            number = header.pop("format")
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{str(path)!r} is damaged or is not a file that farrier wrote."
            ) from error
        if number != FORMAT:
            raise ValueError(
                f"{str(path)!r} has format {number}, and this file reads format "
                f"{FORMAT}. Use the portable.py of farrier {header.get('version')}."
            )
        return cls(header, arrays)

    # -- predictions ----------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Predictive mean of each row, or its most probable class.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), data frame or dict of columns
            Numeric features. Columns of a data frame or a dict are found by their
            names where the model was fitted to named features; otherwise X is an
            array whose columns are in the order of the fit.
        return_std : bool, default=False
            Also return the predictive standard deviation (regression only).

        Returns
        -------
        mean or label : ndarray of shape (n_rows,) or (n_rows, n_targets)
            Predictive mean, or class label.
        std : ndarray of the same shape
            Predictive standard deviation. Only with `return_std=True`.
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
        """Central predictive interval of each row.

        Parameters
        ----------
        X : see `predict`
            Numeric features.
        level : float, default=0.9
            Probability that the interval covers the target, between 0 and 1.

        Returns
        -------
        low, high : ndarray of shape (n_rows,) or (n_rows, n_targets)
            Ends of the interval.
        """
        if not 0 < level < 1:
            raise ValueError(f"`level` must lie between 0 and 1, got {level}.")
        low, high = (self.predict_quantile(X, 0.5 + s * level / 2) for s in (-1, 1))
        return low, high

    def predict_quantile(self, X: Any, level: float) -> np.ndarray:
        """Predictive quantile of each row.

        Parameters
        ----------
        X : see `predict`
            Numeric features.
        level : float
            Probability that the target is below the quantile, between 0 and 1.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_targets)
            The quantile.
        """
        self._require("regression", "predict_quantile")
        level = self.calibrated_level(level)
        parts = [_quantile(*self._mixture(x), level) for x in self._chunks(X)]
        value = np.concatenate(parts) * self.arrays["y.scale"] + self.arrays["y.mean"]
        return self._shaped(value)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of each row.

        Parameters
        ----------
        X : see `predict`
            Numeric features.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of `header["classes"]`.
        """
        self._require("classification", "predict_proba")
        return np.concatenate([self._probabilities(x) for x in self._chunks(X)])

    def calibrated_level(self, level: float) -> float:
        """Level of the mixture's quantile that is returned for `level` (P4)."""
        depth = self.arrays.get(_DEPTHS, np.linspace(0, 1, 2))
        side = 2 * level - 1
        within = np.interp(abs(side), np.linspace(0, 1, len(depth)), depth)
        return 0.5 + 0.5 * math.copysign(float(within), side)

    def _require(self, task: str, method: str) -> None:
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
        """Mean and variance of each component: draws x rows x targets, standardised."""
        a = self._last_hidden(x)
        variance = a**2 @ self.arrays["output.kernel_variance"]
        variance = variance + self.arrays["output.bias_variance"][:, None]
        return self._with_noise(self._affine(a, "output"), variance)

    def _with_noise(
        self, loc: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mixture components with their noise, homoscedastic or not (L4).

        Homoscedastic noise may also be part of the variance of the output's biases.
        """
        noise = self.arrays.get("noise", 0.0)
        if "noise.limit" not in self.arrays:
            return loc, variance + noise
        (loc, g), (variance, g_variance) = (np.split(v, 2, -1) for v in (loc, variance))
        limit = self.arrays["noise.limit"]
        factor = np.exp(np.clip(g_variance / 2 - g, -limit, limit))
        return loc, variance + noise * factor

    def _probabilities(self, x: np.ndarray) -> np.ndarray:
        p = softmax(self._affine(self._last_hidden(x), "output")).mean(0)
        return p / p.sum(axis=1, keepdims=True)

    def _last_hidden(self, x: np.ndarray) -> np.ndarray:
        """Activations of the last hidden layer: draws x rows x nodes."""
        for layer in range(self.header["layers"]):
            x = self._affine(x, f"hidden.{layer}")
            x = ACTIVATIONS[self.header["activation"]](x)
        return x

    def _affine(self, a: np.ndarray, layer: str) -> np.ndarray:
        kernel, bias = self.arrays[f"{layer}.kernel"], self.arrays[f"{layer}.bias"]
        return a @ kernel + bias[:, None, :]

    # -- rows -----------------------------------------------------------------------

    def _chunks(self, X: Any) -> Iterator[np.ndarray]:
        """Standardised rows, as many at a time as fit into memory."""
        x = (self._checked(X) - self.arrays["x.mean"]) / self.arrays["x.scale"]
        x = x.astype(self.arrays["output.kernel"].dtype)
        kernels = [v for name, v in self.arrays.items() if name.endswith(".kernel")]
        widest = max(k.size // k.shape[-2] for k in kernels)
        size = max(1, CHUNK_VALUES // widest)
        for first in range(0, max(1, len(x)), size):
            yield x[first : first + size]

    def _checked(self, X: Any) -> np.ndarray:
        """The rows as finite numbers, columns in the order of the fit."""
        names = self.header["features"]
        if names is not None and (isinstance(X, dict) or hasattr(X, "columns")):
            absent = [name for name in names if name not in X]
            if absent:
                raise ValueError(
                    f"`X` has no column {', '.join(map(repr, absent))}. It needs "
                    f"{', '.join(map(repr, names))}."
                )
            X = np.column_stack([np.asarray(X[name], float) for name in names])
        x = np.asarray(X, float)
        width = len(self.arrays["x.mean"])
        if x.ndim != 2 or x.shape[1] != width or not len(x):
            raise ValueError(
                f"`X` must have one or more rows of {width} features, got an array of "
                f"shape {x.shape}."
            )
        if not np.isfinite(x).all():
            raise ValueError("`X` has NaN or infinite values.")
        return x


def _quantile(loc: np.ndarray, variance: np.ndarray, level: float) -> np.ndarray:
    """Quantile of the mixture, by bisection of its distribution function (P1).

    It lies between the bounds that Cantelli's inequality gives from the mean and the
    standard deviation.
    """
    mean, sd = loc.mean(0), np.sqrt(loc.var(0) + variance.mean(0))
    low = mean - sd * math.sqrt((1 - level) / level)
    high = mean + sd * math.sqrt(level / (1 - level))
    component_sd = np.sqrt(variance)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = normal_cdf((middle - loc) / component_sd).mean(0) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)
