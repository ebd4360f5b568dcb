"""Classification."""

from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..infer import predict
from ..model.likelihoods import Categorical, CategoricalLikelihood
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import RowSource, Statistics
from .base import Callback, by_pieces
from .checks import Unchecked, all_or_nothing, checked_weight, numbers_only
from .headers import labels_from
from .views import Curves, ViewedEstimator


class HorseshoeClassifier(ClassifierMixin, ViewedEstimator):
    """Classification by a Bayesian network that chooses its own width.

    See `HorseshoeRegressor` for the parameters and attributes that they share.

    Parameters
    ----------
    likelihood
        None: classes by softmax.
    class_weight
        A dict of weights, "balanced", or None.

    Attributes
    ----------
    classes_
        The labels, in the order of the columns of `predict_proba`.
    """

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="relu",
        *,
        prior="horseshoe",
        posterior="factorised",
        likelihood=None,
        class_weight=None,
        kl_weight=1.0,
        kl_warm_up=0.6,
        learning_rate_init=0.01,
        batch_size="auto",
        max_iter="auto",
        averaging=0.0,
        n_restarts=1,
        refine=None,
        input_horseshoe=False,
        early_stopping=True,
        tol=1e-3,
        standardise=True,
        shrink=True,
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
            kl_weight=kl_weight,
            kl_warm_up=kl_warm_up,
            learning_rate_init=learning_rate_init,
            batch_size=batch_size,
            max_iter=max_iter,
            averaging=averaging,
            n_restarts=n_restarts,
            refine=refine,
            input_horseshoe=input_horseshoe,
            early_stopping=early_stopping,
            tol=tol,
            standardise=standardise,
            shrink=shrink,
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

    def _prepare(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = self._checked_xy(X, y, reset=not self._goes_on)
        weight = self._checked_weight(sample_weight, y)
        if not self._goes_on:
            self.classes_ = np.unique(y)
        used = np.unique(y[weight > 0]).tolist()
        if len(used) < 2:
            raise ValueError(
                f"`y` holds one class only ({used[0]!r}) where the weights are not "
                "0. A classifier needs rows of at least two classes."
            )
        return X, self._codes(y), weight

    def _learn(self, source: RowSource, found: Statistics) -> float:
        if not found.labels:
            raise ValueError(
                "A classification needs one target of at most a thousand labels. If "
                "`ParquetRows` took yours for numbers, give it "
                '`task="classification"`.'
            )
        if not self._goes_on:
            self.classes_ = np.array(sorted(found.labels))
        weights = np.zeros(len(self.classes_))
        for label, weight in found.labels.items():
            weights[self._codes(np.array([label]))] += weight
        if (weights > 0).sum() < 2:
            raise ValueError(
                "`y` holds one class only where the weights are not 0. A classifier "
                "needs rows of at least two classes."
            )
        self._class_weights = self._weights_of(weights)
        super()._learn(source, found)
        return float(weights @ self._class_weights)

    def _weights_of(self, weights: np.ndarray) -> np.ndarray:
        """What multiplies the weights of each class, which add up to `weights`."""
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            mean = weights.sum() / len(weights)
            return mean / np.where(weights > 0, weights, np.inf)
        return compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_
        )

    def _in_units(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes = self._codes(y)
        return self._x_standard(x), codes, weight * self._class_weights[codes]

    def _check_again(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = self._checked_xy(X, y, reset=False)
        return X, self._codes(y), self._checked_weight(sample_weight, y)

    def partial_fit(
        self,
        X: Unchecked,
        y: Unchecked,
        classes: Unchecked = None,
        sample_weight: Unchecked = None,
        *,
        n_rows: int | None = None,
    ) -> Self:
        """One pass over some rows; see `HorseshoeRegressor.partial_fit`.

        Parameters
        ----------
        classes
            All labels that will ever come; needed in the first call, unless it comes
            after a `fit`.
        """
        first = not hasattr(self, "network_")
        with all_or_nothing(self):
            X, y = self._checked_xy(X, y, reset=first)
            if first:
                self.classes_ = self._checked_classes(classes)
            if isinstance(self.class_weight, str):
                raise ValueError(
                    f"`class_weight={self.class_weight!r}` needs all rows at once: "
                    "give `partial_fit` a dict of weights."
                )
            weight = self._checked_weight(sample_weight, y)
            return self._partial_fit(X, self._codes(y), weight, n_rows)

    def _checked_weight(self, sample_weight: Unchecked, y: np.ndarray) -> np.ndarray:
        """Weights of the rows times those of their classes."""
        of_classes = compute_sample_weight(self.class_weight, y)
        weight = checked_weight(sample_weight, len(y)) * of_classes
        if not (np.isfinite(weight) & (weight >= 0)).all() or not weight.any():
            raise ValueError(
                "`class_weight` must hold finite numbers from 0 and leave some row a "
                f"weight over 0, got {self.class_weight!r}."
            )
        return weight

    def _checked_classes(self, classes: Unchecked) -> np.ndarray:
        if classes is None or len(np.unique(np.asarray(classes))) < 2:
            raise ValueError(
                "The first call of `partial_fit` needs `classes`, all labels that will "
                f"ever come and at least two of them, got {classes!r}."
            )
        return np.unique(np.asarray(classes))

    def _checked_xy(
        self, X: Any, y: Any, *, reset: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        least = 2 if reset else 1
        with numbers_only("X"):
            X, y = validate_data(
                self, X, y, reset=reset, dtype=np.float64, ensure_min_samples=least
            )
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return X, y

    def _codes(self, y: np.ndarray) -> np.ndarray:
        """Class numbers of labels that must be known."""
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(
                f"`y` holds labels that were not in the fit: {unknown[:5].tolist()}; "
                f"known are {self.classes_[:5].tolist()}."
            )
        return np.searchsorted(self.classes_, y)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return y  # class numbers have no units

    def _target_scale(self) -> np.ndarray:
        return np.ones(1)

    def _likelihood_for(self, rows: float, fit: int) -> CategoricalLikelihood:
        del fit
        if not isinstance(self.likelihood, Categorical | None):
            raise ValueError(f"`likelihood` must be None, got {self.likelihood!r}.")
        return Categorical().build(len(self.classes_), rows=rows)

    @by_pieces
    def predict_proba(self, X: Unchecked) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        return self._probabilities(self._checked_rows(X))

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        """The same for rows that are in standard units already."""
        network, key = self._predictive(self.n_draws)
        p = predict.by_chunks(
            predict.probabilities, network, (rows,), self.n_draws, key=key
        )
        p = np.asarray(p, float)
        return p / p.sum(axis=1, keepdims=True)

    def predict_log_proba(self, X: Unchecked) -> np.ndarray:
        """Logarithm of the probability of each class."""
        return _log(self.predict_proba(X))

    def predict(self, X: Unchecked) -> np.ndarray:
        """The most probable class."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def log_density(self, X: Unchecked, y: Unchecked) -> np.ndarray:
        """Log probability of the label of each row, in nats."""
        check_is_fitted(self)
        X, y = self._checked_xy(X, y, reset=False)
        p = self._probabilities(self._x_standard(X))
        return _log(p[np.arange(len(X)), self._codes(y)])

    def _curves(self, rows: np.ndarray, levels: list[float]) -> Curves:
        mean = self._probabilities(rows)
        tails = [0.5 + sign * level / 2 for level in levels for sign in (-1, 1)]
        ends = predict.by_chunks(
            predict.probability_quantiles,
            self.network_,
            (rows,),
            self.n_draws,
            jnp.asarray(tails, float),
            key=self._key("predict"),
        )
        # Of two classes, one says it all.
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
        drawn = predict.by_chunks(
            predict.probability_draws,
            self.network_,
            (self._checked_rows(X),),
            self.n_draws,
            key=self._key("predict"),
        )
        return {"p": np.moveaxis(np.asarray(drawn, float), -1, 0)[None]}

    def _to_file(self) -> tuple[dict, dict[str, np.ndarray]]:
        header, arrays = super()._to_file()
        labels = {"dtype": self.classes_.dtype.str, "values": self.classes_.tolist()}
        return header | {"classes": labels}, arrays

    def _own_from_file(self, header: dict, arrays: dict[str, np.ndarray]) -> None:
        del arrays
        self.classes_ = labels_from(header["classes"])


def _log(p: np.ndarray) -> np.ndarray:
    """ln p, finite where p has rounded to 0."""
    return np.log(np.maximum(p, np.finfo(float).tiny))
