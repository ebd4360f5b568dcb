"""A fitted network together with the table that it takes."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np

from .. import persist
from ..estimators.classifier import HorseshoeClassifier
from ..estimators.headers import is_number, is_text, list_of, record, whole
from ..estimators.regressor import HorseshoeRegressor
from . import Column, Columns, TableError
from .files import Frame, imported
from .table import CLASSIFICATION, REGRESSION

Estimator: TypeAlias = HorseshoeRegressor | HorseshoeClassifier
LEVELS = (0.5, 0.8, 0.9, 0.95)
CLASSES = {REGRESSION: HorseshoeRegressor, CLASSIFICATION: HorseshoeClassifier}


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator that takes tables as they stand in a file.

    Parameters
    ----------
    columns
        How a table becomes features.
    estimator
        Fitted to those features.
    about
        Plain values that say what it was fitted to.
    """

    columns: Columns
    estimator: Estimator
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> str:
        """What is predicted: "regression" or "classification"."""
        return self.columns.task

    def predict(self, frame: Frame) -> np.ndarray:
        """Predictive means, or the most probable labels."""
        return self.estimator.predict(self._features(frame))

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Probability of each class, in the order of `estimator.classes_`."""
        return self._classifier.predict_proba(self._features(frame))

    def predict_interval(
        self, frame: Frame, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that holds the target with this probability."""
        return self._regressor.predict_interval(self._features(frame), level)

    def log_density(self, frame: Frame) -> np.ndarray:
        """Log density of the target of each row, in nats, in its own units."""
        y = self.known_targets(frame)
        return self.estimator.log_density(self._features(frame), y)

    def known_targets(self, frame: Frame) -> np.ndarray:
        """Targets, none of which is a label that the training rows did not have."""
        y = self.columns.targets(frame)
        if isinstance(self.estimator, HorseshoeClassifier):
            new = np.setdiff1d(y, self.estimator.classes_)
            if len(new):
                raise TableError(
                    f"The target {self.columns.target!r} holds labels that were not in "
                    f"the training rows: {new[:5].tolist()}; known are "
                    f"{self.estimator.classes_[:5].tolist()}."
                )
        return y

    def prediction(self, frame: Frame, level: float = 0.9) -> dict[str, np.ndarray]:
        """All that a prediction says, by the name of a column.

        Of a regression `mean`, `std`, `low` and `high`; of a classification `label` and
        one probability for each class.
        """
        X = self._features(frame)
        if isinstance(self.estimator, HorseshoeRegressor):
            mean, std = self.estimator.predict(X, return_std=True)
            low, high = self.estimator.predict_interval(X, level)
            return {"mean": mean, "std": std, "low": low, "high": high}
        p, classes = self._classifier.predict_proba(X), self._classifier.classes_
        parts = {f"P({label})": p[:, k] for k, label in enumerate(classes)}
        return {"label": classes[p.argmax(axis=1)]} | parts

    def scores(self, frame: Frame) -> dict[str, float]:
        """How good the predictions for a table with targets are; densities in nats.

        Of a regression also the share of targets within the intervals of 50, 80, 90
        and 95 %; of a classification the Brier score, summed over classes.
        """
        X, y = self._features(frame), self.known_targets(frame)
        density = float(self.estimator.log_density(X, y).mean())
        if isinstance(self.estimator, HorseshoeRegressor):
            error = self.estimator.predict(X) - y
            found = {
                "rmse": math.sqrt(np.mean(error**2)),
                "mae": float(np.mean(np.abs(error))),
                "log_density": density,
            }
            for level in LEVELS:
                low, high = self.estimator.predict_interval(X, level)
                inside = float(np.mean((low <= y) & (y <= high)))
                found[f"coverage_{round(100 * level)}"] = inside
            return found
        p, classes = self._classifier.predict_proba(X), self._classifier.classes_
        truth = y[:, None] == classes[None]
        wrong = classes[p.argmax(axis=1)] != y
        return {
            "error": float(np.mean(wrong)),
            "log_density": density,
            "brier": float(np.mean(((p - truth) ** 2).sum(axis=1))),
        }

    def compact(self) -> Self:
        """A smaller model that predicts the same; see `HorseshoeRegressor.compact`."""
        return dataclasses.replace(self, estimator=self.estimator.compact())

    def save(self, path: str | Path) -> None:
        """Write the model to one `.safetensors` file; see `farrier.load`."""
        header, arrays = self.estimator._to_file()
        table = {"columns": self.columns.to_json(), "about": self.about}
        persist.write(path, "model", header | {"table": table}, arrays)

    @classmethod
    def from_header(cls, found: Any, estimator: Estimator) -> Self:
        """What `save` put beside the estimator; a ValueError if that is broken."""
        columns, about = Columns.from_json(found["columns"]), found["about"]
        if CLASSES[columns.task] is not type(estimator):
            raise ValueError(f"its table asks for a {columns.task}")
        if len(columns.feature_names) != estimator.n_features_in_:
            raise ValueError(
                f"its table has {len(columns.feature_names)} features, its network "
                f"{estimator.n_features_in_}"
            )
        if isinstance(estimator, HorseshoeClassifier):
            is_number = estimator.classes_.dtype.kind in "iu"
            if is_number != (columns.labels == "number"):
                raise ValueError(f"its labels are not of kind {columns.labels!r}")
        _check_about(about)
        return cls(columns, estimator, about)

    @classmethod
    def around(cls, estimator: Estimator) -> Self:
        """An estimator that was fitted to a frame of numbers, without a table."""
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            raise TableError(
                "The model was fitted in Python to an array, whose columns have no "
                "names. Fit it to a pandas frame, or use it in Python: "
                "`farrier.load(...).predict(X)`."
            )
        task = CLASSIFICATION
        if isinstance(estimator, HorseshoeRegressor):
            task = REGRESSION
            if estimator._columns is not None:
                raise TableError(
                    "The model predicts several targets at once. Use it in Python: "
                    "`farrier.load(...).predict(X)`."
                )
        columns = tuple(Column(str(name), "number") for name in names)
        return cls(Columns(columns, None, task), estimator)

    def _features(self, frame: Frame) -> Any:
        """Rows x features; with names, if the estimator was fitted to names."""
        X = self.columns.features(frame)
        if not hasattr(self.estimator, "feature_names_in_"):
            return X
        pandas, _ = imported()
        return pandas.DataFrame(X, columns=self.estimator.feature_names_in_)

    @property
    def _classifier(self) -> HorseshoeClassifier:
        if not isinstance(self.estimator, HorseshoeClassifier):
            raise TableError("The model predicts numbers; it has no classes.")
        return self.estimator

    @property
    def _regressor(self) -> HorseshoeRegressor:
        if not isinstance(self.estimator, HorseshoeRegressor):
            raise TableError("The model predicts classes; it has no intervals.")
        return self.estimator


_COLUMN = record(name=is_text, kind=is_text, missing=whole(0), distinct=whole(0))
_ABOUT = {
    "file": is_text,
    "rows": whole(1),
    "why": is_text,
    "columns": list_of(_COLUMN),
    "holdout": lambda v: isinstance(v, dict) and all(map(is_number, v.values())),
}


def _check_about(about: Any) -> None:
    if not isinstance(about, dict):
        raise ValueError(f"`about` is {about!r:.80}")
    for name, value in about.items():
        if name in _ABOUT and not _ABOUT[name](value):
            raise ValueError(f"`{name}` of `about` is {value!r:.80}")
