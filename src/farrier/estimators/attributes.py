"""Learned attributes of the estimators: properties that read the fitted model."""

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..fitted import FittedModel
from ..infer.compact import Compaction
from ..infer.ensemble import FitSummary
from ..infer.nodes import Nodes
from ..infer.sample.settings import Sampling
from ..train.history import History
from .checks import checked_level


class FittedAttributes:
    """Attributes that exist after `fit`, each read from `model_`."""

    model_: FittedModel

    def _is_fitted(self) -> bool:
        return "model_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a fitted model."""
        return self._is_fitted()

    @property
    def _fitted(self) -> FittedModel:
        check_is_fitted(self)
        return self.model_

    @property
    def widths_(self) -> tuple[int, ...]:
        """Active nodes, one number for each hidden layer."""
        return self._fitted.nodes.widths

    @property
    def built_widths_(self) -> tuple[int, ...]:
        """Nodes of each hidden layer before training."""
        return self._fitted.built_widths

    @property
    def node_scores_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, each node's share in what it feeds."""
        return self._fitted.nodes.scores

    @property
    def node_probabilities_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, the posterior probability that each node is active."""
        return self._fitted.nodes.probabilities

    @property
    def weight_norms_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, the norm of the expected weights into each node."""
        norms = self._fitted.posterior.expected_norms()
        return tuple(np.asarray(norm) for norm in norms)

    @property
    def history_(self) -> History:
        """The ELBO and its terms over the steps."""
        return self._fitted.history

    @property
    def n_iter_(self) -> int:
        """Epochs of the training."""
        return self._fitted.epochs

    @property
    def n_rows_(self) -> float:
        """Rows of the fit: the sum of their weights."""
        return float(self._fitted.total)

    @property
    def sampling_(self) -> Sampling:
        """How MCMC went, after a fit with `refine`."""
        return _existing(self._fitted.sampling, "sampling_", "`refine`")

    @property
    def restarts_(self) -> tuple[FitSummary, ...]:
        """ELBO, weight and widths of each of several fits, best ELBO first."""
        fits = self._fitted.fits or None
        return _existing(fits, "restarts_", "`n_restarts` over 1")

    @property
    def compaction_(self) -> Compaction:
        """What a compacted model kept, and the cost."""
        model = self._fitted
        compaction = model.compaction if model.is_compact else None
        return _existing(compaction, "compaction_", "a call of `compact`")

    def width_interval(self, level: float = 0.9) -> tuple[tuple[int, int], ...]:
        """Central interval of the number of active nodes, a pair for each hidden layer.

        The number is counted in each posterior draw; `widths_` counts the nodes that
        are active with a probability over one half.
        """
        return self._fitted.nodes.width_interval(checked_level(level))

    @property
    def features_on_(self) -> np.ndarray:
        """Whether each column is active (I4), with `Horseshoe(columns=True)`."""
        return self._column_nodes.active[0]

    @property
    def feature_probabilities_(self) -> np.ndarray:
        """Posterior probability that each column is active."""
        return self._column_nodes.probabilities[0]

    @property
    def _column_nodes(self) -> Nodes:
        columns = self._fitted.nodes.of_columns
        needed = "`prior=Horseshoe(columns=True)`"
        return _existing(columns, "features_on_", needed)


def _existing(value: Any, name: str, needed: str) -> Any:
    """The value, or an AttributeError where there is none."""
    if value is None:
        raise AttributeError(f"`{name}` exists only after a fit with {needed}.")
    return value
