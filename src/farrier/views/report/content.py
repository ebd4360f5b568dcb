"""The tables of the page, computed from a model and rows with their targets."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from ...tables.model import TableModel, parts_of
from ...tables.table import as_frame
from ..describe import Description, Width, describe_estimator
from ..displays import coverage
from . import figures

LEVELS = (0.5, 0.8, 0.9, 0.95)
ROUNDING = 1e-9  # of sums of probabilities
WORST = 10
SHOWN_COLUMNS = 8  # most important inputs, shown for the worst rows
MOST_COLUMNS = 200
MOST_CLASSES = 12  # of a confusion matrix
VERSIONS = ("farrier", "jax", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Table:
    """A table of strings; the first column is left-aligned, the others right-aligned.

    `marks` may contain a number from 0 to 1 for each cell, which shades it.
    """

    head: list[str]
    rows: list[list[str]]
    marks: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Input:
    """One column of a table or of an array.

    Parameters
    ----------
    values
        As they are in the table.
    features
        Numbers of the features that encode it.
    """

    name: str
    kind: str
    values: np.ndarray
    features: list[int]


@dataclass(frozen=True)
class Case:
    """A fitted estimator and the rows that test it.

    Parameters
    ----------
    model
        A fitted HorseshoeRegressor or HorseshoeClassifier.
    X
        The rows, as the estimator takes them.
    about
        What is known of the training table.
    """

    model: Any
    X: Any
    y: np.ndarray
    inputs: list[Input]
    target: str
    about: dict[str, Any]
    task: str

    @property
    def description(self) -> Description:
        """The description of the model."""
        return describe_estimator(self.model)


def case_of(model: Any, data: Any) -> Case:
    """The case of a TableModel with a frame, or of an estimator with (X, y)."""
    estimator, columns = parts_of(model)
    if columns is not None:
        return _case_of_table(model, data)
    if not estimator.__sklearn_is_fitted__():
        raise TypeError(
            f"A report is about a fitted estimator, got {type(model).__name__}() "
            "before its `fit`."
        )
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(
            "The report of an estimator requires its rows as a pair `(X, y)`, got "
            f"{type(data).__name__}."
        )
    X, y = data
    y = np.asarray(y)
    if y.ndim > 1 and y.shape[1] > 1:
        raise ValueError(
            f"A report is about one target, but `y` has {y.shape[1]} columns. Fit one "
            "model for each, or use `plot_calibration` and `plot_band`."
        )
    description = describe_estimator(model)
    columns = zip(description.input_names, _columns_of(X), strict=True)
    inputs = [
        Input(name, "number", values, [index])
        for index, (name, values) in enumerate(columns)
    ]
    return Case(model, X, y.reshape(-1), inputs, "y", {}, estimator.model_.task)


def _case_of_table(model: TableModel, data: Any) -> Case:
    frame = as_frame(data)
    y = model.known_targets(frame)
    inputs, first = [], 0
    for column in model.columns.columns:
        count = len(column.feature_names)
        numbers = [*range(first, first + count)]
        values = frame[column.name].to_numpy(object)
        inputs.append(Input(column.name, column.kind, values, numbers))
        first += count
    features = model.columns.features(frame)
    target = model.columns.target or "y"
    estimator, about = model.estimator, model.about
    return Case(estimator, features, y, inputs, target, about, model.task)


def _columns_of(X: Any) -> list[np.ndarray]:
    if hasattr(X, "columns"):
        return [np.asarray(X[name]) for name in X.columns]
    return [*np.asarray(X).T]


# -- the data --------------------------------------------------------------------------


def data_table(case: Case) -> Table:
    """One row for each column: kind, missing, distinct and typical values."""
    rows = [_described(entry) for entry in case.inputs[:MOST_COLUMNS]]
    kind = "number" if case.task == "regression" else "category"
    rows.append(_described(Input(case.target, kind, case.y, [])))
    rows[-1][0] += " (target)"
    return Table(["column", "kind", "missing", "distinct", "values"], rows)


def _described(entry: Input) -> list[str]:
    missing = np.array([_is_missing(value) for value in entry.values])
    known = entry.values[~missing]
    distinct, counts = np.unique(known.astype(str), return_counts=True)
    typical = "none"
    if entry.kind == "number" and len(known):
        try:
            low, middle, high = np.quantile(known.astype(float), [0, 0.5, 1])
            typical = f"{number(low)} … {number(middle)} … {number(high)}"
        except ValueError:  # numbers that are written as words
            typical = f"from {distinct[0]}"
    elif entry.kind == "date" and len(known):
        typical = f"{distinct[0]} … {distinct[-1]}"
    elif len(known):
        often = np.argsort(-counts, kind="stable")[:3]
        shares = 100 * counts[often] / counts.sum()
        parts = zip(distinct[often], shares, strict=True)
        typical = ", ".join(f"{text} {share:.0f} %" for text, share in parts)
    count = str(int(missing.sum()))
    return [entry.name, entry.kind, count, str(len(distinct)), typical]


def _is_missing(value: Any) -> bool:
    # NaN and pandas' NaT are the values that differ from themselves; NA is neither.
    same = value == value if value is not None else False
    return not isinstance(same, bool | np.bool_) or not same


# -- the model -------------------------------------------------------------------------


def nodes_table(model: Any) -> Table:
    """Nodes of each hidden layer and, where columns have scales, the inputs."""
    description = describe_estimator(model)
    layers = enumerate(description.layers, start=1)
    rows = [_width_row(str(index), width) for index, width in layers]
    if description.columns is not None:
        rows.insert(0, _width_row("inputs", description.columns))
    head = ["hidden layer", "built", "active", "90 % interval", "in this model"]
    return Table(head, rows)


def _width_row(name: str, width: Width) -> list[str]:
    counts = [str(n) for n in (width.built, width.active, width.stored)]
    return [name, *counts[:2], width.interval_text, counts[2]]


def inputs_table(case: Case, shares: np.ndarray) -> Table:
    """Scores of all inputs, largest first."""
    low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=0)
    order = np.argsort(-middle, kind="stable")
    rows = [
        [case.inputs[i].name, *(f"{100 * v[i]:.1f} %" for v in (middle, low, high))]
        for i in order
    ]
    head = ["input", "share", "5 %", "95 %"]
    if (nodes := case.model.model_.nodes.of_columns) is not None:
        head.append("active")
        for row, i in zip(rows, order, strict=True):
            features = case.inputs[i].features
            row.append("yes" if nodes.active[0][features].any() else "no")
    return Table(head, rows)


def settings_table(model: Any) -> Table:
    """The arguments of the estimator."""
    params = model.get_params(deep=False).items()
    return Table(["setting", "value"], [[name, repr(value)] for name, value in params])


def versions_table() -> Table:
    """Versions of Python and of the packages that matter."""
    rows = [[name, version(name)] for name in VERSIONS]
    return Table(["package", "version"], [["Python", platform.python_version()], *rows])


# -- predictions -----------------------------------------------------------------------


@dataclass(frozen=True)
class Regression:
    """Predictions of a regression for the rows of a case."""

    mean: np.ndarray
    std: np.ndarray
    pit: np.ndarray
    density: np.ndarray

    @classmethod
    def of(cls, case: Case) -> "Regression":
        """Predict the rows of a case."""
        mean, std = case.model.predict(case.X, return_std=True)
        y = case.y.astype(float)
        pit, density = case.model.pit(case.X, y), case.model.log_density(case.X, y)
        return cls(np.ravel(mean), np.ravel(std), np.ravel(pit), density)

    def scores(self, case: Case) -> Table:
        """Scores with standard errors, and the spread of the target to compare with."""
        error = self.mean - case.y
        square, width = error**2, np.abs(error)
        rmse = math.sqrt(square.mean())
        of_square = _error(square) / (2 * rmse) if rmse else 0.0
        rows = [
            ["root mean square error", number(rmse), number(of_square)],
            ["mean absolute error", number(width.mean()), number(_error(width))],
            [
                "log density, nats per row",
                f"{self.density.mean():.3f}",
                f"{_error(self.density):.3f}",
            ],
            ["standard deviation of the target", number(np.std(case.y)), ""],
        ]
        return Table(["", "value", "standard error"], rows)

    def coverage(self, case: Case) -> Table:
        """Coverage of central intervals."""
        rows, shares = [], coverage(self.pit, LEVELS)
        for level, share in zip(LEVELS, shares, strict=True):
            low, high = case.model.predict_interval(case.X, level)
            error = math.sqrt(level * (1 - level) / len(case.y))
            rows.append(
                [
                    f"{100 * level:g} %",
                    f"{100 * share:.1f} %",
                    f"± {200 * error:.1f} %",
                    number(float(np.mean(high - low))),
                ]
            )
        head = ["interval", "coverage", "± 2 standard errors", "mean width"]
        return Table(head, rows)

    def figures(self, case: Case) -> dict[str, list[str]]:
        """Observed against predicted values, and the calibration."""
        y = case.y.astype(float)
        return {
            "observed": figures.observed(self.mean, y, case.target),
            "calibration": figures.calibration_of_pit(self.pit),
        }

    def worst(self, case: Case, order: np.ndarray) -> Table:
        """The rows with the lowest log density."""
        rows = np.argsort(self.density, kind="stable")[:WORST]
        cells = [
            [number(case.y[i]), number(self.mean[i]), number(self.std[i])] for i in rows
        ]
        head = [f"observed {case.target}", "predicted", "± sd"]
        return _worst(case, rows, order, head, cells, self.density)


@dataclass(frozen=True)
class Classification:
    """Predictions of a classification for the rows of a case."""

    probability: np.ndarray
    codes: np.ndarray  # of the true labels
    density: np.ndarray

    @classmethod
    def of(cls, case: Case) -> "Classification":
        """Predict the rows of a case."""
        probability = case.model.predict_proba(case.X)
        density = case.model.log_density(case.X, case.y)
        return cls(probability, np.searchsorted(case.model.classes_, case.y), density)

    @property
    def best(self) -> np.ndarray:
        """Codes of the predicted labels."""
        return self.probability.argmax(1)

    def scores(self, case: Case) -> Table:
        """Scores with standard errors, and the error rate of the largest class."""
        wrong = (self.best != self.codes).astype(float)
        truth = np.eye(len(case.model.classes_))[self.codes]
        brier = ((self.probability - truth) ** 2).sum(1)
        most = np.bincount(self.codes).max() / len(self.codes)
        rows = [
            [
                "error rate",
                f"{100 * wrong.mean():.2f} %",
                f"{100 * _error(wrong):.2f} %",
            ],
            [
                "log density, nats per row",
                f"{self.density.mean():.3f}",
                f"{_error(self.density):.3f}",
            ],
            ["Brier score", f"{brier.mean():.3f}", f"{_error(brier):.3f}"],
            ["error rate of the most frequent class", _percent(1 - most), ""],
        ]
        return Table(["", "value", "standard error"], rows)

    def confusion(self, case: Case) -> Table:
        """Rows counted by observed and predicted label, for the most frequent ones."""
        classes = case.model.classes_
        counts = np.zeros((len(classes), len(classes)), int)
        np.add.at(counts, (self.codes, self.best), 1)
        shown = np.argsort(-counts.sum(1), kind="stable")[:MOST_CLASSES]
        shown.sort()
        part = counts[np.ix_(shown, shown)]
        marks = part / np.maximum(counts[shown].sum(1, keepdims=True), 1)
        rows = [
            [str(classes[index]), *(f"{count:,}" for count in line)]
            for index, line in zip(shown, part, strict=True)
        ]
        head = ["observed ↓ predicted →", *(str(classes[index]) for index in shown)]
        return Table(head, rows, [[0.0, *line] for line in marks.tolist()])

    def coverage(self, case: Case) -> Table:
        """Coverage of the smallest sets of classes that reach a given probability."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        ordered = np.take_along_axis(self.probability, order, axis=1)
        before = ordered.cumsum(1) - ordered  # of all that are more probable
        rank = (order == self.codes[:, None]).argmax(1)
        rows = []
        for level in LEVELS:
            size = np.maximum((before < level - ROUNDING).sum(1), 1)
            rows.append(
                [
                    f"{100 * level:g} %",
                    f"{100 * (rank < size).mean():.1f} %",
                    f"{size.mean():.2f}",
                ]
            )
        return Table(["set of classes", "coverage", "mean size"], rows)

    def figures(self, case: Case) -> dict[str, list[str]]:
        """The calibration."""
        draw = figures.calibration_of_classes
        return {"calibration": draw(self.probability, case.y, case.model.classes_)}

    def worst(self, case: Case, order: np.ndarray) -> Table:
        """The rows whose label had the lowest probability."""
        rows = np.argsort(self.density, kind="stable")[:WORST]
        classes, observed = case.model.classes_, np.exp(self.density)
        cells = [
            [str(case.y[i]), str(classes[self.best[i]]), f"{100 * observed[i]:.2g} %"]
            for i in rows
        ]
        head = [f"observed {case.target}", "predicted", "P(observed)"]
        return _worst(case, rows, order, head, cells, self.density)


def _worst(
    case: Case,
    rows: np.ndarray,
    order: Sequence[int] | np.ndarray,
    head: list[str],
    cells: list[list[str]],
    density: np.ndarray,
) -> Table:
    """The worst rows with the values of the most important inputs."""
    shown = [case.inputs[index] for index in order[:SHOWN_COLUMNS]]
    lines = [
        [
            str(row + 1),
            *of_row,
            f"{density[row]:.2f}",
            *(value(entry.values[row]) for entry in shown),
        ]
        for row, of_row in zip(rows, cells, strict=True)
    ]
    names = [entry.name for entry in shown]
    return Table(["row", *head, "log density", *names], lines)


# -- numbers as text -------------------------------------------------------------------


def number(entry: Any) -> str:
    """A number with four digits, and with an exponent only where it needs one."""
    size = abs(float(entry))
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{entry:.3g}"
    return f"{entry:,.0f}" if size >= 1e4 else f"{entry:.4g}"


def value(entry: Any) -> str:
    """An entry of a table as a string."""
    if _is_missing(entry):
        return "missing"
    return number(entry) if isinstance(entry, float | np.floating) else str(entry)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _error(values: np.ndarray) -> float:
    """Standard error of a mean."""
    return float(np.std(values) / math.sqrt(len(values)))


PREDICTIONS: dict[str, Callable[[Case], Any]] = {
    "regression": Regression.of,
    "classification": Classification.of,
}
