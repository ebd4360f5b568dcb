"""What the page says: plain tables and texts, worked out from a model and its rows."""

import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np

from ...estimators import HorseshoeClassifier, HorseshoeRegressor
from ...tables.model import TableModel
from ...tables.table import as_frame
from ..displays import coverage

LEVELS = (0.5, 0.8, 0.9, 0.95)
ROUNDING = 1e-9  # of sums of probabilities
WORST = 10
SHOWN_COLUMNS = 8  # of the worst rows: the inputs that matter most
MOST_COLUMNS = 200
MOST_CLASSES = 12  # of a confusion matrix
VERSIONS = ("farrier", "jax", "numpy", "scikit-learn")
KINDS = {"regression": HorseshoeRegressor, "classification": HorseshoeClassifier}


@dataclass(frozen=True)
class Table:
    """A table of texts. The first column stands to the left, the others to the right.

    `marks` may hold, for each cell, a number from 0 to 1 that shades it.
    """

    head: list[str]
    rows: list[list[str]]
    marks: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Input:
    """One input as its user knows it: a column of a table, or of an array."""

    name: str
    kind: str
    values: np.ndarray  # as they stand in the table
    features: list[int]  # the numbers of the features that it became


@dataclass(frozen=True)
class Case:
    """A fitted estimator and the rows that it is tested with."""

    model: Any  # HorseshoeRegressor or HorseshoeClassifier
    X: Any  # as the estimator takes it
    y: np.ndarray
    inputs: list[Input]
    target: str
    about: dict[str, Any]

    @property
    def task(self) -> str:
        """What is predicted: "regression" or "classification"."""
        return next(k for k, c in KINDS.items() if isinstance(self.model, c))


def case_of(model: Any, data: Any) -> Case:
    """The case of a TableModel with a frame, or of an estimator with (X, y)."""
    if isinstance(model, TableModel):
        return _case_of_table(model, data)
    if not isinstance(model, tuple(KINDS.values())):
        raise TypeError(
            "A report is about a fitted HorseshoeRegressor, HorseshoeClassifier or "
            f"TableModel, got {type(model).__name__}."
        )
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(
            "The report of an estimator needs its rows as a pair `(X, y)`, got "
            f"{type(data).__name__}."
        )
    X, y = data
    y = np.asarray(y)
    if y.ndim > 1 and y.shape[1] > 1:
        raise ValueError(
            f"A report is about one target, but `y` has {y.shape[1]} columns. Fit one "
            "model for each, or look at them with `plot_calibration` and `plot_band`."
        )
    names = model._input_names()
    columns = _columns_of(X)
    inputs = [
        Input(name, "number", values, [index])
        for index, (name, values) in enumerate(zip(names, columns, strict=True))
    ]
    return Case(model, X, y.reshape(-1), inputs, "y", {})


def _case_of_table(model: TableModel, data: Any) -> Case:
    frame = as_frame(data)
    y = model.known_targets(frame)
    inputs, first = [], 0
    for column in model.columns.columns:
        count = len(column.feature_names)
        own = [*range(first, first + count)]
        values = frame[column.name].to_numpy(object)
        inputs.append(Input(column.name, column.kind, values, own))
        first += count
    features = model.columns.features(frame)
    target = model.columns.target or "y"
    return Case(model.estimator, features, y, inputs, target, model.about)


def _columns_of(X: Any) -> list[np.ndarray]:
    if hasattr(X, "columns"):
        return [np.asarray(X[name]) for name in X.columns]
    return [*np.asarray(X).T]


# -- the data --------------------------------------------------------------------------


def data_table(case: Case) -> Table:
    """One row for each column: kind, missing and distinct values, what is typical."""
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
        except ValueError:  # numbers that are written in words
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
    """Nodes built and on in each hidden layer."""
    layers = zip(
        model._built_widths,
        model.widths_,
        model.width_interval(0.9),
        model.network_.widths,
        strict=True,
    )
    rows = [
        [f"{index}", str(built), str(on), f"{low} to {high}", str(now)]
        for index, (built, on, (low, high), now) in enumerate(layers, start=1)
    ]
    head = ["hidden layer", "built", "on", "90 % interval", "in this model"]
    if model.input_horseshoe:
        rows.insert(0, _columns_row(model))
    return Table(head, rows)


def _columns_row(model: Any) -> list[str]:
    """The columns of the table as the layer before the first."""
    report = model._nodes.with_columns
    low, high = report.width_interval(0.9)[0]
    built = now = model.n_features_in_
    if hasattr(model, "compaction_"):
        now = model.compaction_.columns.sum()
    return ["inputs", str(built), str(report.widths[0]), f"{low} to {high}", str(now)]


def inputs_table(case: Case, shares: np.ndarray) -> Table:
    """Scores of all inputs, largest first."""
    low, middle, high = np.quantile(shares, [0.05, 0.5, 0.95], axis=0)
    order = np.argsort(-middle, kind="stable")
    rows = [
        [case.inputs[i].name, *(f"{100 * v[i]:.1f} %" for v in (middle, low, high))]
        for i in order
    ]
    head = ["input", "share", "5 %", "95 %"]
    if case.model.input_horseshoe:
        head.append("on")
        for row, i in zip(rows, order, strict=True):
            features = case.inputs[i].features
            row.append("yes" if case.model.features_on_[features].any() else "no")
    return Table(head, rows)


def settings_table(model: Any) -> Table:
    """The arguments of the estimator."""
    params = model.get_params(deep=False).items()
    return Table(["setting", "value"], [[name, repr(value)] for name, value in params])


def versions_table() -> Table:
    """What the page was made with."""
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
        """Predict."""
        mean, std = case.model.predict(case.X, return_std=True)
        y = case.y.astype(float)
        place, density = case.model.pit(case.X, y), case.model.log_density(case.X, y)
        return cls(np.ravel(mean), np.ravel(std), np.ravel(place), density)

    def scores(self, case: Case) -> Table:
        """Errors with their standard errors, beside those of the mean of the rows."""
        error = self.mean - case.y
        square, width = error**2, np.abs(error)
        rmse = math.sqrt(square.mean())
        of_square = _error(square) / (2 * rmse) if rmse else 0.0
        rows = [
            ["root mean square error", number(rmse), number(of_square)],
            ["mean absolute error", number(width.mean()), number(_error(width))],
            [
                "log density, nats a row",
                f"{self.density.mean():.3f}",
                f"{_error(self.density):.3f}",
            ],
            ["standard deviation of the target", number(np.std(case.y)), ""],
        ]
        return Table(["", "value", "standard error"], rows)

    def coverage(self, case: Case) -> Table:
        """Targets within central intervals."""
        found, rows = coverage(self.pit, LEVELS), []
        for level, share in zip(LEVELS, found, strict=True):
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
        head = ["interval", "targets inside", "allowed by chance", "mean width"]
        return Table(head, rows)

    def worst(self, case: Case, order: np.ndarray) -> Table:
        """The rows with the lowest log density."""
        rows = np.argsort(self.density, kind="stable")[:WORST]
        facts = [
            [number(case.y[i]), number(self.mean[i]), number(self.std[i])] for i in rows
        ]
        head = [f"observed {case.target}", "predicted", "± sd"]
        return _worst(case, rows, order, head, facts, self.density)


@dataclass(frozen=True)
class Classification:
    """Predictions of a classification for the rows of a case."""

    probability: np.ndarray
    codes: np.ndarray  # of the true labels
    density: np.ndarray

    @classmethod
    def of(cls, case: Case) -> "Classification":
        """Predict."""
        probability = case.model.predict_proba(case.X)
        density = case.model.log_density(case.X, case.y)
        return cls(probability, np.searchsorted(case.model.classes_, case.y), density)

    @property
    def best(self) -> np.ndarray:
        """Codes of the predicted labels."""
        return self.probability.argmax(1)

    def scores(self, case: Case) -> Table:
        """Errors with their standard errors."""
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
                "log density, nats a row",
                f"{self.density.mean():.3f}",
                f"{_error(self.density):.3f}",
            ],
            ["Brier score", f"{brier.mean():.3f}", f"{_error(brier):.3f}"],
            ["error rate of the most frequent class", _percent(1 - most), ""],
        ]
        return Table(["", "value", "standard error"], rows)

    def confusion(self, case: Case) -> Table:
        """Rows: what it was. Columns: what was predicted. The most frequent classes."""
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
        """Labels within the smallest sets of classes of a given probability."""
        order = np.argsort(-self.probability, axis=1, kind="stable")
        ordered = np.take_along_axis(self.probability, order, axis=1)
        before = ordered.cumsum(1) - ordered  # of all that are more probable
        place = (order == self.codes[:, None]).argmax(1)
        rows = []
        for level in LEVELS:
            size = np.maximum((before < level - ROUNDING).sum(1), 1)
            rows.append(
                [
                    f"{100 * level:g} %",
                    f"{100 * (place < size).mean():.1f} %",
                    f"{size.mean():.2f}",
                ]
            )
        return Table(["set of classes", "labels inside", "mean size"], rows)

    def worst(self, case: Case, order: np.ndarray) -> Table:
        """The rows whose label had the lowest probability."""
        rows = np.argsort(self.density, kind="stable")[:WORST]
        classes, own = case.model.classes_, np.exp(self.density)
        facts = [
            [str(case.y[i]), str(classes[self.best[i]]), f"{100 * own[i]:.2g} %"]
            for i in rows
        ]
        head = [f"observed {case.target}", "predicted", "P(observed)"]
        return _worst(case, rows, order, head, facts, self.density)


def _worst(
    case: Case,
    rows: np.ndarray,
    order: Sequence[int] | np.ndarray,
    head: list[str],
    facts: list[list[str]],
    density: np.ndarray,
) -> Table:
    shown = [case.inputs[index] for index in order[:SHOWN_COLUMNS]]
    lines = [
        [
            str(row + 1),
            *fact,
            f"{density[row]:.2f}",
            *(value(entry.values[row]) for entry in shown),
        ]
        for row, fact in zip(rows, facts, strict=True)
    ]
    names = [entry.name for entry in shown]
    return Table(["row", *head, "log density", *names], lines)


# -- numbers as text -------------------------------------------------------------------


def number(found: Any) -> str:
    """Four digits, without an exponent where none is needed."""
    size = abs(float(found))
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{found:.3g}"
    return f"{found:,.0f}" if size >= 1e4 else f"{found:.4g}"


def value(found: Any) -> str:
    """An entry of a table."""
    if _is_missing(found):
        return "missing"
    return number(found) if isinstance(found, float | np.floating) else str(found)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _error(values: np.ndarray) -> float:
    """Standard error of a mean."""
    return float(np.std(values) / math.sqrt(len(values)))


PREDICTIONS: dict[str, Callable[[Case], Any]] = {
    "regression": Regression.of,
    "classification": Classification.of,
}
