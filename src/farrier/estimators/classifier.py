"""Classification."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..fitted import Units
from ..infer.predict import summarise
from ..model.distributions import ClassProbabilities
from ..model.likelihoods import AbstractLikelihood
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import ConvertedRows, RowSource
from .checks import Unchecked, by_pieces, checked_weight, learned_by, numbers_only
from .progress import Callback
from .rows import CheckedRows, CheckedSource, Learned, source_names, source_units
from .settings import checked_classes
from .views import Curves, ViewedEstimator


class HorseshoeClassifier(ClassifierMixin, ViewedEstimator):
    """Classification by a Bayesian neural network that chooses its own width.

    See `HorseshoeRegressor` for the parameters and attributes that both have.

    Parameters
    ----------
    likelihood : None or object, default=None
        None: classes by softmax.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, in the order of the columns of `predict_proba`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from farrier import HorseshoeClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HorseshoeClassifier((20,), random_state=0).fit(X, y)
    >>> model.predict_proba(X).shape
    (150, 3)
    """

    classes_: np.ndarray
    _default_annealing: float = 0.6

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="relu",
        *,
        prior="horseshoe",
        posterior="mean-field",
        likelihood=None,
        class_weight=None,
        n_restarts=1,
        refine=None,
        training=None,
        standardise=True,
        n_draws=200,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            hidden_layer_sizes,
            activation,
            prior=prior,
            posterior=posterior,
            likelihood=likelihood,
            n_restarts=n_restarts,
            refine=refine,
            training=training,
            standardise=standardise,
            n_draws=n_draws,
            warm_start=warm_start,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(
        self,
        X: Unchecked,
        y: Unchecked = None,
        sample_weight: Unchecked = None,
        *,
        checkpoint: str | Path | None = None,
        callback: Callback | None = None,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> Self:
        """Fit the network; see `HorseshoeRegressor.fit`."""
        return self._fit(X, y, sample_weight, checkpoint, callback, placement)

    def partial_fit(
        self,
        X: Unchecked,
        y: Unchecked,
        classes: Unchecked = None,
        sample_weight: Unchecked = None,
        *,
        n_rows: int | None = None,
    ) -> Self:
        """One epoch over some rows; see `HorseshoeRegressor.partial_fit`.

        Parameters
        ----------
        classes : array-like, default=None
            All labels that will ever come; needed in the first call, unless it comes
            after a `fit`.
        """
        first = not self._is_fitted()
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"`class_weight={self.class_weight!r}` needs all rows at once: "
                "give `partial_fit` a dict of weights."
            )
        (x, y), learned = learned_by(self, _validated, X, y, reset=first)
        known = _checked_classes(classes) if first else self.classes_
        learned["classes_"] = known
        weight = self._weights(sample_weight, y)
        rows = CheckedRows(x, codes_of(y, known), weight, learned)
        return self._partial_fit(rows, n_rows)

    # -- checks --------------------------------------------------------------------

    def _check_rows(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked, *, reset: bool
    ) -> CheckedRows:
        (x, y), learned = learned_by(self, _validated, X, y, reset=reset)
        weight = self._weights(sample_weight, y)
        classes = np.unique(y) if reset else self.classes_
        learned["classes_"] = classes
        used = np.unique(y[weight > 0]).tolist()
        if len(used) < 2:
            raise ValueError(
                f"`y` holds one class only ({used[0]!r}) where the weights are not "
                "0. A classifier needs rows of at least two classes."
            )
        return CheckedRows(x, codes_of(y, classes), weight, learned)

    def _check_source(self, source: RowSource) -> CheckedSource:
        statistics, start = source.statistics(), self._start()
        if not statistics.labels:
            raise ValueError(
                "A classification needs one target of at most a thousand labels. If "
                "`ParquetRows` took yours for numbers, give it "
                '`task="classification"`.'
            )
        labels = np.array(sorted(statistics.labels))
        classes = labels if start is None else self.classes_
        weights = class_weights(statistics.labels, classes)
        multiplier = self._class_multiplier(weights, classes)
        x, y = statistics.sample
        expected = None if start is None else self.n_features_in_
        learned = source_names(source, x.shape[1], expected) | {"classes_": classes}
        of_x = source_units(statistics, standardise=self.standardise)
        units = Units(of_x) if start is None else start.units

        def convert(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple:
            codes = codes_of(y, classes)
            return units.x(x), codes, weight * multiplier[codes]

        sample = convert(x, y, np.ones(len(x)))
        rows = ConvertedRows(source, convert)
        total = float(weights @ multiplier)
        return CheckedSource(rows, sample, units, total, learned, source.mark())

    def _class_multiplier(self, weights: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """Multipliers of the row weights by class, whose sums are `weights`."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            mean = weights.sum() / len(weights)
            return mean / np.where(weights > 0, weights, np.inf)
        return compute_class_weight(self.class_weight, classes=classes, y=classes)

    def _weights(self, sample_weight: Unchecked, y: np.ndarray) -> np.ndarray:
        """Weights of the rows times those of their classes."""
        of_classes = compute_sample_weight(self.class_weight, y)
        weight = checked_weight(sample_weight, len(y)) * of_classes
        if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
            raise ValueError(
                "`class_weight` must hold finite numbers from 0 and leave some row a "
                f"weight over 0, got {self.class_weight!r}."
            )
        return weight

    def _target_units(self, y: np.ndarray, weight: np.ndarray) -> None:
        return None  # class numbers have no units

    def _likelihood_of(self, learned: Learned) -> Callable[[float], AbstractLikelihood]:
        given = checked_classes(self.likelihood)
        classes = len(learned["classes_"])
        return lambda rows: given.build(classes, rows=rows)

    # -- predictions ---------------------------------------------------------------

    @by_pieces
    def predict_proba(self, X: Unchecked) -> np.ndarray:
        """Probability of each class, in the order of `classes_`.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
        """
        return self._probabilities(self._in_units(X))

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        """The same for rows that are in standard units already."""
        p = summarise(ClassProbabilities.mean, self._fitted.predictor, rows)
        p = np.asarray(p, float)
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Unchecked) -> np.ndarray:
        """Logarithm of the probability of each class."""
        return _log(self.predict_proba(X))

    def predict(self, X: Unchecked) -> np.ndarray:
        """The most probable class.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def log_density(self, X: Unchecked, y: Unchecked) -> np.ndarray:
        """Log probability of the label of each row, in nats.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        check_is_fitted(self)
        (x, y), _ = learned_by(self, _validated, X, y, reset=False)
        p = self._probabilities(self._fitted.units.x(x))
        return _log(p[np.arange(len(x)), codes_of(y, self.classes_)])

    def _curves(self, rows: np.ndarray, levels: list[float]) -> Curves:
        mean = self._probabilities(rows)
        tails = [0.5 + sign * level / 2 for level in levels for sign in (-1, 1)]
        quantiles = ClassProbabilities.quantiles
        args = (jnp.asarray(tails, float),)
        ends = summarise(quantiles, self._fitted.predictor, rows, args=args)
        # Of two classes, one curve is enough.
        shown = [1] if len(self.classes_) == 2 else range(len(self.classes_))
        return {
            str(self.classes_[c]): (
                mean[:, c],
                [
                    (ends[:, c, 2 * i], ends[:, c, 2 * i + 1])
                    for i in range(len(levels))
                ],
            )
            for c in shown
        }

    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        rows = self._in_units(X)
        drawn = summarise(ClassProbabilities.draws, self._fitted.predictor, rows)
        return {"p": np.moveaxis(np.asarray(drawn, float), -1, 0)[None]}


def codes_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Class numbers of labels that must be known."""
    unknown = np.setdiff1d(y, classes)
    if len(unknown):
        raise ValueError(
            f"`y` holds labels that were not in the fit: {unknown[:5].tolist()}; "
            f"known are {classes[:5].tolist()}."
        )
    return np.searchsorted(classes, y)


def class_weights(labels: Mapping[Any, float], classes: np.ndarray) -> np.ndarray:
    """Sum of the row weights of each class, which at least two classes have."""
    weights = np.zeros(len(classes))
    for label, weight in labels.items():
        weights[codes_of(np.array([label]), classes)] += weight
    if (weights > 0).sum() < 2:
        raise ValueError(
            "`y` holds one class only where the weights are not 0. A classifier "
            "needs rows of at least two classes."
        )
    return weights


def _checked_classes(classes: Unchecked) -> np.ndarray:
    if classes is None or len(np.unique(np.asarray(classes))) < 2:
        raise ValueError(
            "The first call of `partial_fit` needs `classes`, all labels that will "
            f"ever come and at least two of them, got {classes!r}."
        )
    return np.unique(np.asarray(classes))


def _validated(
    estimator: Any, X: Any, y: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray]:
    least = 2 if reset else 1
    with numbers_only("X"):
        x, y = validate_data(
            estimator, X, y, reset=reset, dtype=np.float64, ensure_min_samples=least
        )
    y = column_or_1d(y, warn=True)
    check_classification_targets(y)
    return np.asarray(x), y


def _log(p: np.ndarray) -> np.ndarray:
    """ln p, finite where p has rounded to 0."""
    return np.log(np.maximum(p, np.finfo(float).tiny))
