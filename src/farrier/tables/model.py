"""A fitted network together with the table that it was fitted to."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias, TypedDict, cast

import numpy as np

from .. import persist
from ..estimators.base import NetworkEstimator
from ..estimators.classifier import HorseshoeClassifier
from ..estimators.regressor import HorseshoeRegressor
from ..jsonable import from_json, to_json
from .columns import Column
from .files import Frame, TableError, imported
from .table import CLASSIFICATION, REGRESSION, Columns, checked_task

Estimator: TypeAlias = HorseshoeRegressor | HorseshoeClassifier
LEVELS = (0.5, 0.8, 0.9, 0.95)
ESTIMATORS: dict[str, type[Estimator]] = {
    REGRESSION: HorseshoeRegressor,
    CLASSIFICATION: HorseshoeClassifier,
}


class ColumnDescription(TypedDict):
    """One input column of the training table."""

    name: str
    kind: str
    missing: int
    distinct: int


class TrainingTable(TypedDict, total=False):
    """What is known of the table that a model was fitted to; each entry is optional."""

    file: str
    rows: int
    why: str  # the reason for the choice of the task
    columns: list[ColumnDescription]
    holdout: dict[str, int | float]  # scores on held-out rows


@dataclass(frozen=True)
class TableModel:
    """A fitted estimator that takes the raw columns of a table.

    `farrier fit` on the command line makes such models, and `farrier.load` reads them.
    The methods take pandas or polars data frames with the columns of the training
    table, in any order; other columns are ignored.

    Parameters
    ----------
    columns : Columns
        The encoding of the table's columns as features, its target and its task.
    estimator : HorseshoeRegressor or HorseshoeClassifier
        Fitted to those features.
    about : dict, optional
        What is known of the training table: `file`, `rows`, `why` (the reason for the
        choice of the task), `columns` and `holdout` (scores on held-out rows).

    Attributes
    ----------
    task : {"regression", "classification"}
        What is predicted.

    See Also
    --------
    load : Read a model from its file.

    Examples
    --------
    >>> import farrier
    >>> model = farrier.load("model.safetensors")  # doctest: +SKIP
    >>> model.predict_interval(frame, level=0.9)  # doctest: +SKIP
    """

    columns: Columns
    estimator: Estimator
    about: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns, estimator = self.columns, self.estimator
        needed = ESTIMATORS[columns.task]
        if needed is not type(estimator):
            raise ValueError(
                f"A table for {columns.task} needs a {needed.__name__}, got a "
                f"{type(estimator).__name__}."
            )
        count = len(columns.feature_names)
        if count != estimator.n_features_in_:
            raise ValueError(
                f"The table has {count} features, and the estimator was fitted to "
                f"{estimator.n_features_in_}."
            )
        classes = self._classes
        if classes is not None and columns.target is not None:
            if (classes.dtype.kind in "iu") != (columns.labels == "number"):
                raise ValueError(
                    f"The labels of the table are of type {columns.labels!r}, those of "
                    f"the estimator are {classes[:3].tolist()}."
                )
        from_json(TrainingTable, self.about, "about")

    @property
    def task(self) -> str:
        """What is predicted: "regression" or "classification"."""
        return self.columns.task

    # -- predictions ----------------------------------------------------------------

    def predict(self, frame: Frame) -> np.ndarray:
        """Predictive mean of each row, or its most probable label.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows to predict.

        Returns
        -------
        ndarray of shape (n_rows,)
            Means or labels.
        """
        return self.estimator.predict(self._features(frame))

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Class probabilities of each row. Only for classifications.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows to predict.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of `estimator.classes_`.
        """
        otherwise = "The model predicts numbers; it has no classes."
        classifier = self._required(CLASSIFICATION, otherwise)
        return classifier.predict_proba(self._features(frame))

    def predict_interval(
        self, frame: Frame, level: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """Central predictive interval of each row. Only for regressions.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows to predict.
        level : float, default=0.9
            Probability that the interval covers the target.

        Returns
        -------
        low, high : ndarray of shape (n_rows,)
            Ends of the interval.
        """
        otherwise = "The model predicts classes; it has no intervals."
        regressor = self._required(REGRESSION, otherwise)
        return regressor.predict_interval(self._features(frame), level)

    def prediction(self, frame: Frame, level: float = 0.9) -> dict[str, np.ndarray]:
        """The complete prediction, as the columns of a table.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows to predict.
        level : float, default=0.9
            Probability that the interval of a regression covers the target.

        Returns
        -------
        dict of str to ndarray of shape (n_rows,)
            `mean`, `std`, `low` and `high` for a regression; `label` and one
            probability for each class, `P(class)`, for a classification.
        """
        X, estimator = self._features(frame), cast(Any, self.estimator)
        if (classes := self._classes) is None:
            mean, std = estimator.predict(X, return_std=True)
            low, high = estimator.predict_interval(X, level)
            return {"mean": mean, "std": std, "low": low, "high": high}
        p = estimator.predict_proba(X)
        parts = {f"P({label})": p[:, k] for k, label in enumerate(classes)}
        return {"label": classes[p.argmax(axis=1)]} | parts

    # -- tables with targets ----------------------------------------------------------

    def log_density(self, frame: Frame) -> np.ndarray:
        """Log predictive density of the target of each row, in nats.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows with their targets.

        Returns
        -------
        ndarray of shape (n_rows,)
            Log density in the units of the target.
        """
        y = self.known_targets(frame)
        return self.estimator.log_density(self._features(frame), y)

    def scores(self, frame: Frame) -> dict[str, float]:
        """Scores of the predictions for rows with known targets.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows with their targets.

        Returns
        -------
        dict of str to float
            For a regression `rmse`, `mae`, `log_density` (mean, in nats), and the share
            of targets that the intervals cover, `coverage_50`, `coverage_80`,
            `coverage_90` and `coverage_95`. For a classification `error`,
            `log_density`, and `brier`, the Brier score summed over classes.
        """
        X, y = self._features(frame), self.known_targets(frame)
        estimator = cast(Any, self.estimator)
        density = float(estimator.log_density(X, y).mean())
        if (classes := self._classes) is None:
            error = estimator.predict(X) - y
            scores = {
                "rmse": math.sqrt(np.mean(error**2)),
                "mae": float(np.mean(np.abs(error))),
                "log_density": density,
            }
            for level in LEVELS:
                low, high = estimator.predict_interval(X, level)
                covered = float(np.mean((low <= y) & (y <= high)))
                scores[f"coverage_{round(100 * level)}"] = covered
            return scores
        p = estimator.predict_proba(X)
        truth = y[:, None] == classes[None]
        wrong = classes[p.argmax(axis=1)] != y
        return {
            "error": float(np.mean(wrong)),
            "log_density": density,
            "brier": float(np.mean(((p - truth) ** 2).sum(axis=1))),
        }

    def known_targets(self, frame: Frame) -> np.ndarray:
        """Targets of a table; an error if a label was not in the training rows.

        Parameters
        ----------
        frame : pandas or polars data frame
            Rows with their targets.

        Returns
        -------
        ndarray of shape (n_rows,)
            Numbers or labels.
        """
        y = self.columns.targets(frame)
        classes = self._classes
        if classes is not None and len(new := np.setdiff1d(y, classes)):
            raise TableError(
                f"The target {self.columns.target!r} holds labels that were not in the "
                f"training rows: {new[:5].tolist()}; known are {classes[:5].tolist()}."
            )
        return y

    # -- other models and files --------------------------------------------------------

    def compact(self) -> Self:
        """A smaller model with the same predictions.

        Returns
        -------
        TableModel
            A model of the compacted estimator; see `HorseshoeRegressor.compact`.
        """
        return dataclasses.replace(self, estimator=self.estimator.compact())

    def save(self, path: str | Path) -> None:
        """Write the model to one `.safetensors` file; `farrier.load` reads it.

        Parameters
        ----------
        path : str or Path
            Where to write it.
        """
        header, arrays = self.estimator.to_file()
        table = {"columns": self.columns.to_json(), "about": to_json(self.about)}
        persist.write(path, "model", header | {"table": table}, arrays)

    @classmethod
    def from_header(cls, header: Any, estimator: Estimator) -> Self:
        """Undo `save`: the table in the header of a file, and its estimator.

        Parameters
        ----------
        header : dict
            What `save` wrote next to the estimator; a ValueError if it is damaged.
        estimator : HorseshoeRegressor or HorseshoeClassifier
            The estimator in the same file.

        Returns
        -------
        TableModel
            The model that was saved.
        """
        about = from_json(TrainingTable, header["about"], "about")
        return cls(Columns.from_json(header["columns"]), estimator, about)

    @classmethod
    def around(cls, estimator: Estimator) -> Self:
        """A model of an estimator that was fitted to a data frame of numbers.

        Parameters
        ----------
        estimator : HorseshoeRegressor or HorseshoeClassifier
            Fitted to a data frame with a single target.

        Returns
        -------
        TableModel
            A model without a target column: it predicts, but has no scores.
        """
        names = getattr(estimator, "feature_names_in_", None)
        if names is None:
            raise TableError(
                "The model was fitted in Python to an array, whose columns have no "
                "names. Fit it to a pandas frame, or use it in Python: "
                "`farrier.load(...).predict(X)`."
            )
        if getattr(estimator, "n_targets_", None) is not None:
            raise TableError(
                "The model was fitted to a target with several columns. Use it in "
                "Python: `farrier.load(...).predict(X)`."
            )
        columns = tuple(Column(str(name), "number") for name in names)
        return cls(
            Columns(columns, None, checked_task(estimator.model_.task)), estimator
        )

    def _features(self, frame: Frame) -> Any:
        """Rows x features; with names, if the estimator was fitted to names."""
        X = self.columns.features(frame)
        names = getattr(self.estimator, "feature_names_in_", None)
        return X if names is None else imported()[0].DataFrame(X, columns=names)

    @property
    def _classes(self) -> np.ndarray | None:
        """The labels of a classification; None for a regression."""
        return getattr(self.estimator, "classes_", None)

    def _required(self, task: str, otherwise: str) -> Any:
        """The estimator, which must be for this task."""
        if self.task != task:
            raise TableError(otherwise)
        return self.estimator


def parts_of(model: Any) -> tuple[Any, Columns | None]:
    """The estimator of a model, and the columns of the table that it was fitted to."""
    if isinstance(model, TableModel):
        return model.estimator, model.columns
    if isinstance(model, NetworkEstimator):
        return model, None
    raise TypeError(
        "`model` must be a HorseshoeRegressor, a HorseshoeClassifier or a TableModel, "
        f"got {type(model).__name__}. Of a scikit-learn pipeline give the last step; "
        "`farrier.export.pipelines` exports a whole one."
    )
