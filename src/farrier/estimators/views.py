"""What a user looks at after a fit: a summary, figures, inputs that matter, draws."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..views.describe import Summary, describe_estimator
from ..views.displays import (
    LEVELS,
    BandDisplay,
    CalibrationDisplay,
    HistoryDisplay,
    NodesDisplay,
)
from .base import NetworkEstimator
from .checks import Unchecked, checked_level
from .draws import posterior_draws, to_arviz

POINTS = 120  # of a band

Curves = dict[str, tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]]


class ViewedEstimator(NetworkEstimator):
    """An estimator that shows what it learned."""

    # -- in words -----------------------------------------------------------------

    def summary(self) -> Summary:
        """What was fitted, how wide it is, and how the training ended.

        Returns
        -------
        Summary
            A table of labels and texts. `print` shows it as plain text, a notebook as
            HTML, and `summary()["ELBO"]` is one of its texts.
        """
        check_is_fitted(self)
        return describe_estimator(self).summary()

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._html_line()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._html_line()
        return bundle

    def _html_line(self) -> str:
        """One line below scikit-learn's own view of an estimator."""
        return describe_estimator(self).html_line() if self._is_fitted() else ""

    # -- figures ------------------------------------------------------------------

    def plot_nodes(self, *, ax: Any = None) -> Any:
        """Draw the sorted node scores of each hidden layer; see `NodesDisplay`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        return NodesDisplay.from_estimator(self, ax=ax).ax_

    def plot_history(self, *, terms: Iterable[str] = (), ax: Any = None) -> Any:
        """Draw the ELBO over the training steps; see `HistoryDisplay`.

        Parameters
        ----------
        terms : iterable of str, default=()
            Terms of the ELBO to draw too: `model.history_.terms` for all of them.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        return HistoryDisplay.from_estimator(self, terms=terms, ax=ax).ax_

    def plot_calibration(self, X: Unchecked, y: Unchecked, *, ax: Any = None) -> Any:
        """Draw the calibration of the predictions; see `CalibrationDisplay`.

        A regression has two panels: the histogram of the probability integral
        transform, and the coverage of intervals.

        Parameters
        ----------
        X, y : array-like
            Rows that were not used in the fit, and their targets.
        ax : matplotlib Axes or two of them, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes, or ndarray of two
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
        """Draw the prediction over one input; see `BandDisplay` and `predict_band`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows that give the range of the input and the medians of the others.
        feature : int or str
            Number or name of the input.
        levels : sequence of float, default=(0.5, 0.9)
            Levels of the bands.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.

        Returns
        -------
        matplotlib Axes
        """
        check_is_fitted(self)
        show = BandDisplay.from_estimator
        return show(self, X, feature, levels=levels, ax=ax).ax_

    def predict_band(
        self, X: Unchecked, feature: int | str, levels: Sequence[float] = LEVELS
    ) -> tuple[np.ndarray, Curves, str]:
        """Predict over the range of one input, with the others at their medians.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows that give the range of the input and the medians of the others.
        feature : int or str
            Number or name of the input.
        levels : sequence of float, default=(0.5, 0.9)
            Levels of the bands.

        Returns
        -------
        grid : ndarray of shape (120,)
            Values of the input.
        curves : dict of str to (ndarray, list of pairs of ndarray)
            For each target or class its mean, and for each level the ends of a band:
            the central interval of the target, or of the probability of the class over
            posterior draws.
        name : str
            Name of the input.
        """
        X = self._checked_inputs(X)
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
        known = getattr(self, "feature_names_in_", None)
        count = self.n_features_in_
        names = [f"x{i}" for i in range(count)] if known is None else [*map(str, known)]
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

    # -- inputs that matter -------------------------------------------------------

    def feature_shares(
        self, X: Unchecked, groups: Sequence[Sequence[int]] | None = None
    ) -> np.ndarray:
        """Effect of shuffling an input, for each posterior draw (I1).

        It is half the mean square change of the output, as a share of the variance of
        the target: near 0 for an input that has no effect.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows to shuffle.
        groups : sequence of sequences of int, default=None
            Columns that are shuffled together, such as those of one category; None
            shuffles each column on its own.

        Returns
        -------
        ndarray of shape (n_draws, n_groups)
        """
        if groups is None:
            groups = [[index] for index in range(self.n_features_in_)]
        return self._fitted.shares_of(self._in_units(X), groups)

    @property
    def feature_scores_(self) -> np.ndarray:
        """Share of the target's variance due to each input: median over the draws."""
        return np.median(self._fitted.column_shares, axis=0)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`feature_scores_`, under the name that scikit-learn's tools use."""
        return self.feature_scores_

    def feature_interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Central posterior interval of each feature score.

        Parameters
        ----------
        level : float, default=0.9
            Probability of the interval.

        Returns
        -------
        low, high : ndarray of shape (n_features,)
        """
        tail = 0.5 - checked_level(level) / 2
        low, high = np.quantile(self._fitted.column_shares, [tail, 1 - tail], axis=0)
        return low, high

    # -- draws --------------------------------------------------------------------

    def to_arviz(self, X: Unchecked = None) -> Any:
        """Posterior draws for ArviZ, as one chain of `n_draws` draws.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), default=None
            Rows to predict.

        Returns
        -------
        arviz.InferenceData, or xarray.DataTree with arviz 1.0 and later
            The group `posterior` has the scales of each layer and, for a regression,
            `noise_sd` in the units of `y`. With `X`, the group `posterior_predictive`
            has draws of `y`, or of the probabilities `p` of the classes.
        """
        groups = {"posterior": posterior_draws(self._fitted)}
        if X is not None:
            groups["posterior_predictive"] = self._predictive_draws(X)
        return to_arviz(groups)

    @abc.abstractmethod
    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        """Draws for given rows by name: chain x draws x rows, and more."""
