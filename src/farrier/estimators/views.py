"""Summary, figures, feature scores and posterior draws of a fitted estimator."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ..views.displays import (
    LEVELS,
    BandDisplay,
    CalibrationDisplay,
    HistoryDisplay,
    NodesDisplay,
)
from .base import NetworkEstimator
from .checks import Unchecked, checked_level, numbers_only
from .draws import posterior_draws, to_arviz
from .summary import Summary, summarise, widths_text

POINTS = 120  # of a band

Curves = dict[str, tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]]


class ViewedEstimator(NetworkEstimator):
    """An estimator with a summary, figures, feature scores and posterior draws."""

    # -- summary ------------------------------------------------------------------

    def summary(self) -> Summary:
        """Settings, active nodes, ELBO and course of the training, as a text table."""
        check_is_fitted(self)
        return summarise(self)

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._widths_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._widths_html()
        return bundle

    def _widths_html(self) -> str:
        """One line below scikit-learn's own view of an estimator."""
        if not self._is_fitted():
            return ""
        text = f"Active nodes: {widths_text(self.model_)}"
        if (columns := self.model_.nodes.of_columns) is not None:
            text += f". Active columns: {columns.widths[0]} of {self.n_features_in_}"
        return f"<p>{text}. See <code>summary()</code>.</p>"

    # -- figures ------------------------------------------------------------------

    def plot_nodes(self, *, ax: Any = None) -> Any:
        """Sorted node scores of each hidden layer; see `NodesDisplay`."""
        check_is_fitted(self)
        return NodesDisplay.from_estimator(self, ax=ax).ax_

    def plot_history(self, *, terms: Iterable[str] = (), ax: Any = None) -> Any:
        """The ELBO over the steps; see `HistoryDisplay`.

        Parameters
        ----------
        terms
            Terms to draw beside the ELBO: `model.history_.terms` for all of them.
        """
        check_is_fitted(self)
        return HistoryDisplay.from_estimator(self, terms=terms, ax=ax).ax_

    def plot_calibration(self, X: Unchecked, y: Unchecked, *, ax: Any = None) -> Any:
        """Calibration of the predicted probabilities; see `CalibrationDisplay`.

        A regression has two panels: the position of each target in its predictive
        distribution, and the coverage of intervals.
        """
        check_is_fitted(self)
        return CalibrationDisplay.from_estimator(self, X, y, ax=ax).ax_

    def plot_band(
        self,
        X: Unchecked,
        feature: int | str,
        *,
        levels: Sequence[float] = LEVELS,
        ax: Any = None,
    ) -> Any:
        """The prediction over one input, others at their medians; see `BandDisplay`."""
        check_is_fitted(self)
        show = BandDisplay.from_estimator
        return show(self, X, feature, levels=levels, ax=ax).ax_

    def predict_band(
        self, X: Unchecked, feature: int | str, levels: Sequence[float] = LEVELS
    ) -> tuple[np.ndarray, Curves, str]:
        """Predictions over the range of one input, with the others at their medians.

        Returns
        -------
        grid, curves, name
            Values of the input; for each target or class its mean and for each level
            the ends of a band; the name of the input. A band is the central interval
            of the target, or of the probability of the class over posterior draws.
        """
        check_is_fitted(self)
        with numbers_only("X"):
            X = validate_data(self, X, reset=False, dtype=np.float64)
        column, name = self._checked_feature(feature)
        grid = np.linspace(X[:, column].min(), X[:, column].max(), POINTS)
        rows = np.tile(np.median(X, axis=0), (POINTS, 1))
        rows[:, column] = grid
        levels = [checked_level(level) for level in levels]
        return grid, self._curves(self._fitted.units.x(rows), levels), name

    @abc.abstractmethod
    def _curves(self, rows: np.ndarray, levels: list[float]) -> Curves:
        """Mean and bands for rows in standard units."""

    def _checked_feature(self, feature: int | str) -> tuple[int, str]:
        """Number and name of an input."""
        names = self._input_names()
        if isinstance(feature, str):
            if feature not in names:
                raise ValueError(
                    f"`feature` must be the name or the number of an input, got "
                    f"{feature!r}; the first names are {names[:10]}."
                )
            return names.index(feature), feature
        if not 0 <= feature < len(names):
            raise ValueError(
                f"`feature` must be from 0 to {len(names) - 1}, got {feature}."
            )
        return int(feature), names[feature]

    def _input_names(self) -> list[str]:
        known = getattr(self, "feature_names_in_", None)
        if known is None:
            return [f"x{index}" for index in range(self.n_features_in_)]
        return [str(name) for name in known]

    # -- feature scores -----------------------------------------------------------

    def feature_shares(
        self, X: Unchecked, groups: Sequence[Sequence[int]] | None = None
    ) -> np.ndarray:
        """Effect of shuffling an input on each posterior draw (I1): draws x inputs.

        Half the mean square change of the output, as a share of the variance of the
        target: near 0 for an input that does nothing.

        Parameters
        ----------
        X
            Rows to shuffle.
        groups
            Columns that are shuffled together, such as those of one category; by
            default each column on its own.
        """
        if groups is None:
            groups = [[index] for index in range(self.n_features_in_)]
        return self._fitted.shares_of(self._in_units(X), groups)

    @property
    def feature_scores_(self) -> np.ndarray:
        """Share of the target's variance that each input carries: median over draws."""
        return np.median(self._fitted.column_shares, axis=0)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`feature_scores_`, by the name that scikit-learn's tools use."""
        return self.feature_scores_

    def feature_interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central posterior interval of each feature score."""
        tail = 0.5 - checked_level(level) / 2
        low, high = np.quantile(self._fitted.column_shares, [tail, 1 - tail], axis=0)
        return low, high

    # -- draws --------------------------------------------------------------------

    def to_arviz(self, X: Unchecked = None) -> Any:
        """Posterior draws as an object of ArviZ, one chain of `n_draws`.

        The group `posterior` has the scales of each layer and, for a regression,
        `noise_sd` in the units of `y`. With rows there is a group
        `posterior_predictive`: draws of `y`, or of the probabilities `p` of classes.
        """
        groups = {"posterior": posterior_draws(self._fitted)}
        if X is not None:
            groups["posterior_predictive"] = self._predictive_draws(X)
        return to_arviz(groups)

    @abc.abstractmethod
    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        """Draws for given rows by name: chain x draws x rows, and more."""
