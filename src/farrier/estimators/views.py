"""What a user looks at after a fit: figures, inputs that matter, a summary."""

import abc
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ..infer.compact import Nodes
from ..infer.freeze import is_normal
from ..infer.psis import log_weights, pareto_k
from ..infer.relevance import input_shares
from ..model.drawn import DrawnNetwork
from ..model.network import Network
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
from .summary import Summary, summarise

POINTS = 120  # of a band

Curves = dict[str, tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]]


class ViewedEstimator(NetworkEstimator):
    """An estimator that shows what it learned."""

    @property
    def n_rows_(self) -> float:
        """Rows of the fit: the sum of their weights."""
        check_is_fitted(self)
        return float(self._rows_seen)

    # -- in words -----------------------------------------------------------------

    def summary(
        self, X: Unchecked = None, y: Unchecked = None, sample_weight: Unchecked = None
    ) -> Summary:
        """What was fitted, how wide it is, how the training ended: a table of text.

        Parameters
        ----------
        X, y, sample_weight
            The rows of the fit. With them there is a word on how far the variational
            posterior is from the exact one: the shape k of the tail of importance
            weights of whole networks (K2).
        """
        check_is_fitted(self)
        drawn = isinstance(self.network_, DrawnNetwork)  # then q has no density
        k = None if X is None or drawn else self._pareto_k(X, y, sample_weight)
        return summarise(self, k)

    def _pareto_k(self, X: Unchecked, y: Unchecked, sample_weight: Unchecked) -> float:
        x, y, weight = self._check_again(X, y, sample_weight)
        if not np.isclose(weight.sum(), self._rows_seen):
            raise ValueError(
                f"`summary` needs the {self._rows_seen:g} rows of the fit, with their "
                f"weights, to say how far the posterior is from the exact one; got "
                f"{weight.sum():g}. Give those rows, or none."
            )
        network = self._compacted().network
        assert isinstance(network, Network)
        if not is_normal(network):
            raise ValueError(
                "How far the posterior is from the exact one is not known for "
                '`posterior="matrix"`. Call `summary()` without rows.'
            )
        x, y = self._x_standard(x), self._targets(y)
        return pareto_k(log_weights(network, x, y, weight, key=self._key("nodes")))

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._widths_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._widths_html()
        return bundle

    def _widths_html(self) -> str:
        """One line below scikit-learn's own view of an estimator."""
        if not hasattr(self, "network_"):
            return ""
        pairs = zip(self.widths_, self._built_widths, strict=True)
        on = ", ".join(f"{on} of {built}" for on, built in pairs)
        if self.input_horseshoe:
            on += f". Columns on: {self.features_on_.sum()} of {self.n_features_in_}"
        return f"<p>Nodes on: {on}. <code>summary()</code> says more.</p>"

    def __dir__(self) -> list[str]:
        # scikit-learn lists only what `hasattr` finds, and so works out every property
        # that is listed: scores of inputs that nobody asked for yet are left out.
        unknown = "_input_report" not in vars(self)
        hidden = ("_input_shares", "feature_scores_", "feature_importances_") * unknown
        listed = (name for name in object.__dir__(self) if name not in hidden)
        return [name for name in listed if hasattr(self, name)]

    @abc.abstractmethod
    def _check_again(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Checked rows, targets as in a fit, and weights, of a fitted estimator."""

    # -- figures ------------------------------------------------------------------

    def plot_nodes(self, *, ax: Any = None) -> Any:
        """Sorted node scores of each hidden layer; see `NodesDisplay`."""
        check_is_fitted(self)
        return NodesDisplay.from_estimator(self, ax=ax).ax_

    def plot_history(self, *, terms: Iterable[str] = (), ax: Any = None) -> Any:
        """The bound over the steps; see `HistoryDisplay`.

        Parameters
        ----------
        terms
            Terms to draw beside the bound: `model.history_.terms` for all of them.
        """
        check_is_fitted(self)
        return HistoryDisplay.from_estimator(self, terms=terms, ax=ax).ax_

    def plot_calibration(self, X: Unchecked, y: Unchecked, *, ax: Any = None) -> Any:
        """Whether predicted probabilities hold on given rows; see `CalibrationDisplay`.

        A regression has two panels: the place of each target in its predictive law,
        and the coverage of intervals.
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
        """The prediction over the range of one input, the others at their medians.

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
        return grid, self._curves(self._x_standard(rows), levels), name

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

    # -- inputs that matter -------------------------------------------------------

    def feature_shares(
        self, X: Unchecked, groups: Sequence[Sequence[int]] | None = None
    ) -> np.ndarray:
        """What shuffling an input does to each posterior draw (I1): draws x inputs.

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
        return self._feature_shares(self._checked_rows(X), groups)

    def _feature_shares(
        self, rows: np.ndarray, groups: Sequence[Sequence[int]] | None = None
    ) -> np.ndarray:
        if groups is None:
            groups = [[index] for index in range(self.n_features_in_)]
        network = self._compacted().network
        key = self._key("nodes")
        return input_shares(network, rows, groups, self.n_draws, key=key)

    @property
    def _input_shares(self) -> np.ndarray:
        check_is_fitted(self)
        if not hasattr(self, "_input_report"):
            if not hasattr(self, "_check_rows"):
                raise AttributeError(
                    "This model comes from a file without scores of its inputs. Call "
                    "`feature_shares(X)` with some rows."
                )
            self._input_report = self._feature_shares(self._check_rows[0])
        return self._input_report

    @property
    def feature_scores_(self) -> np.ndarray:
        """Share of the target's variance that each input carries: median over draws."""
        return np.median(self._input_shares, axis=0)

    @property
    def feature_importances_(self) -> np.ndarray:
        """`feature_scores_`, under the name that scikit-learn's tools look for."""
        return self.feature_scores_

    @property
    def features_on_(self) -> np.ndarray:
        """Whether each column is on (I4), with `input_horseshoe`."""
        return self._features.on[0]

    @property
    def feature_probabilities_(self) -> np.ndarray:
        """Posterior probability that each column is on, with `input_horseshoe`."""
        return self._features.probability_on[0]

    @property
    def _features(self) -> Nodes:
        """What the posterior says of the columns, as if they were one layer."""
        if self._nodes.columns is None:
            raise AttributeError(
                "Columns are switched on and off only where they have scales of their "
                "own. Fit with `input_horseshoe=True`."
            )
        return Nodes((self._nodes.columns,))

    def feature_interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central posterior interval of each feature score."""
        tail = 0.5 - checked_level(level) / 2
        low, high = np.quantile(self._input_shares, [tail, 1 - tail], axis=0)
        return low, high

    # -- draws --------------------------------------------------------------------

    def to_arviz(self, X: Unchecked = None) -> Any:
        """Posterior draws as an object of ArviZ, one chain of `n_draws`.

        The group `posterior` has the scales of each layer and, for a regression,
        `noise_sd` in the units of `y`. With rows there is a group
        `posterior_predictive`: draws of `y`, or of the probabilities `p` of classes.
        """
        check_is_fitted(self)
        scale, key = self._target_scale(), self._key("predict")
        posterior = posterior_draws(self.network_, self.n_draws, scale, key=key)
        groups = {"posterior": posterior}
        if X is not None:
            groups["posterior_predictive"] = self._predictive_draws(X)
        return to_arviz(groups)

    @abc.abstractmethod
    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        """Draws for given rows by name: chain x draws x rows, and more."""

    # -- files --------------------------------------------------------------------

    def _to_file(self) -> tuple[dict, dict[str, np.ndarray]]:
        header, arrays = super()._to_file()
        return header, arrays | {"inputs.shares": self._input_shares}

    @classmethod
    def _from_file(cls, header: dict, arrays: dict[str, np.ndarray]) -> Self:
        model = super()._from_file(header, arrays)
        if "inputs.shares" in arrays:
            model._input_report = arrays["inputs.shares"]
        return model
