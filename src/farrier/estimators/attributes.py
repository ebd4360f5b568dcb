"""Learned attributes of the estimators: properties that read the fitted model."""

import inspect
from collections.abc import Callable
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

SLOW = {"feature_scores_", "feature_importances_"}  # attributes that take seconds
_COLUMNS = "`prior=Horseshoe(columns=True)`"


def _nodes_of_columns(model: FittedModel) -> Nodes | None:
    return model.nodes.of_columns if model.posterior.scales_columns else None


# Attributes that not every fit has: what they read, and what a fit needs to have them.
OPTIONAL: dict[str, tuple[Callable[[FittedModel], Any], str]] = {
    "sampling_": (lambda model: model.sampling, "`refine`"),
    "restarts_": (lambda model: model.fits or None, "`n_restarts` over 1"),
    "compaction_": (
        lambda model: model.compaction if model.is_compact else None,
        "a call of `compact`",
    ),
    "features_on_": (_nodes_of_columns, _COLUMNS),
    "feature_probabilities_": (_nodes_of_columns, _COLUMNS),
}


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
        return self._optional("sampling_")

    @property
    def restarts_(self) -> tuple[FitSummary, ...]:
        """ELBO, weight and widths of each of several fits, best ELBO first."""
        return self._optional("restarts_")

    @property
    def compaction_(self) -> Compaction:
        """What a compacted model kept, and the cost."""
        return self._optional("compaction_")

    def width_interval(self, level: float = 0.9) -> tuple[tuple[int, int], ...]:
        """Central interval of the number of active nodes, a pair for each hidden layer.

        The number is counted in each posterior draw; `widths_` counts the nodes that
        are active with a probability over one half.
        """
        return self._fitted.nodes.width_interval(checked_level(level))

    @property
    def features_on_(self) -> np.ndarray:
        """Whether each column is active (I4), with `Horseshoe(columns=True)`."""
        return self._optional("features_on_").active[0]

    @property
    def feature_probabilities_(self) -> np.ndarray:
        """Posterior probability that each column is active."""
        return self._optional("feature_probabilities_").probabilities[0]

    def _optional(self, name: str) -> Any:
        """What a name of `OPTIONAL` reads, or an AttributeError if there is nothing."""
        read, needed = OPTIONAL[name]
        value = read(self._fitted)
        if value is None:
            raise AttributeError(f"`{name}` exists only after a fit with {needed}.")
        return value

    def __dir__(self) -> list[str]:
        """Names of the attributes that exist, and slow ones once they are computed.

        scikit-learn's view in notebooks reads all of them.
        """
        if self._is_fitted():
            model = self.model_
            absent = {
                name for name, (read, _) in OPTIONAL.items() if read(model) is None
            }
            absent |= set() if model.is_computed("column_shares") else SLOW
        else:
            members = inspect.getmembers_static(type(self))
            absent = {n for n, v in members if isinstance(v, property) and n[0] != "_"}
        return [name for name in object.__dir__(self) if name not in absent]
