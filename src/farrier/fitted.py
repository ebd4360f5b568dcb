"""What a fit leaves behind: one value that predictions, reports and files read.

`predictor`, `nodes`, `depths`, `compaction` and `column_shares` are computed once, when
they are first needed. All random keys are derived from one seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .infer import intervals
from .infer.compact import Compaction, compact
from .infer.ensemble import FitSummary, draw_groups
from .infer.nodes import Nodes, find_nodes
from .infer.predict import summarise
from .infer.relevance import input_shares
from .infer.sample.settings import Sampling
from .model.likelihoods import AbstractLikelihood
from .model.network import Network
from .model.posterior import AbstractPosterior
from .train.history import History
from .train.loop import Run
from .train.step import converted
from .units import Standardiser

CHECK_ROWS = 10_000  # training rows kept for the self-check of compaction
SCORE_ROWS = 1_000  # training rows from which node scores are computed
KEY_USES = ("build", "train", "nodes", "predict", "refine")


@dataclass(frozen=True)
class Units:
    """The user's units and those of the network.

    Parameters
    ----------
    x : Standardiser
        Of the inputs.
    y : Standardiser or None
        Of the targets; None for classes.
    """

    x: Standardiser
    y: Standardiser | None = None


@dataclass(frozen=True)
class Sample:
    """Some training rows in the units of the network, for checks after the fit."""

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> "Sample":
        """At most `CHECK_ROWS` of the rows, evenly spaced."""
        every = -(-len(x) // CHECK_ROWS)
        x, y, weight = (values[::every] for values in (x, y, weight))
        y = y.astype(np.float32) if y.dtype.kind == "f" else y
        return cls(x.astype(np.float32), y, weight)

    @property
    def few(self) -> jax.Array:
        """Inputs of at most `SCORE_ROWS` of the rows, on the device."""
        return jnp.asarray(self.x[:: -(-len(self.x) // SCORE_ROWS)], float)


@dataclass(frozen=True)
class FittedModel:
    """What a fit leaves behind: all that predictions, reports and files need.

    Parameters
    ----------
    posterior : AbstractPosterior
        The networks that predict.
    network : Network or None
        The variational posterior that training can go on from.
    units : Units
        The user's units and those of the network.
    history : History
        The ELBO and its terms over the steps.
    built_widths : tuple of int
        Nodes of each hidden layer before training.
    total : float
        Sum of the row weights.
    epochs : int
        Epochs of the training.
    seed : int
        All keys are derived from it.
    draws : int
        Posterior draws that make a prediction.
    sample : Sample or None
        Some training rows; None for a model from a file.
    fits : tuple of FitSummary
        With several restarts: one for each fit, best ELBO first.
    sampling : Sampling or None
        How MCMC went.
    is_compact : bool
        Whether the posterior is that of a compaction.
    run : Run or None
        Where `partial_fit` goes on.
    """

    posterior: AbstractPosterior
    network: Network | None
    units: Units
    history: History
    built_widths: tuple[int, ...]
    total: float
    epochs: int
    seed: int
    draws: int
    sample: Sample | None = None
    fits: tuple[FitSummary, ...] = ()
    sampling: Sampling | None = None
    is_compact: bool = False
    run: Run | None = None

    @property
    def likelihood(self) -> AbstractLikelihood:
        """That of the posterior."""
        return self.posterior.likelihood

    @property
    def task(self) -> str:
        """What is predicted: "regression" or "classification"."""
        return "classification" if self.units.y is None else "regression"

    @cached_property
    def predictor(self) -> AbstractPosterior:
        """The posterior with `draws` draws; those of a small network are stored."""
        key = key_for(self.seed, "predict")
        return self.posterior.resampled(self.draws, key=key).stored()

    @cached_property
    def nodes(self) -> Nodes:
        """What the posterior says about each node."""
        key = key_for(self.seed, "nodes")
        posterior = self.posterior.resampled(self.draws, key=key)
        return find_nodes(posterior, self.known_sample.few)

    @cached_property
    def depths(self) -> np.ndarray | None:
        """Depths of the calibrated intervals (P4); None without numeric targets."""
        if self.units.y is None:
            return None
        rows = self.known_sample
        fits = len(self.fits) if self.fits and self.sampling is None else 1
        of_all = draw_groups(fits, self.posterior.draws)
        every = np.arange(self.draws) * len(of_all) // self.draws
        group = jnp.asarray(of_all[every])
        cdf = "leave_one_out_cdf"
        position = summarise(cdf, self.predictor, rows.x, rows.y, args=(group,))
        return intervals.depths(np.asarray(position, float), rows.weight)

    @cached_property
    def compaction(self) -> Compaction:
        """The smallest posterior that predicts the same."""
        rows = self.known_sample
        key = key_for(self.seed, "predict")
        posterior = self.posterior.resampled(self.draws, key=key)
        return compact(posterior, self.nodes, rows.x, rows.y)

    @cached_property
    def column_shares(self) -> np.ndarray:
        """Shares of the target's variance that each column carries: draws x columns."""
        groups = [[index] for index in range(self.posterior.d_in)]
        return self.shares_of(self.known_sample.x, groups)

    def shares_of(self, x: np.ndarray, groups: Sequence[Sequence[int]]) -> np.ndarray:
        """Shares of groups of columns (I1), by rows in the units of the network."""
        key = key_for(self.seed, "nodes")
        posterior = self.compaction.posterior.resampled(self.draws, key=key)
        return input_shares(posterior, x, groups, key=key)

    @property
    def known_sample(self) -> Sample:
        """The training rows that were kept, or an error that says what to do."""
        if self.sample is None:
            raise ValueError(
                "This model comes from a file, which holds no training rows, and what "
                "was asked for was not computed before it was saved. Compute it "
                "before saving, or fit again."
            )
        return self.sample

    def computed(self, **values: Any) -> "FittedModel":
        """The model with values of its cached properties that are known already."""
        self.__dict__.update(values)
        return self

    def is_computed(self, name: str) -> bool:
        """Whether a cached property has its value already."""
        return name in self.__dict__

    def compacted(self) -> "FittedModel":
        """The model with the posterior of its compaction in place of its own."""
        compaction = self.compaction
        posterior = compaction.posterior
        small = replace(
            self, posterior=posterior, network=posterior.variational, is_compact=True
        )
        nodes = self.nodes.take(compaction.keep)
        return small.computed(compaction=compaction, nodes=nodes, depths=self.depths)

    def __getstate__(self) -> dict[str, Any]:
        """Fields with NumPy arrays; what can be computed again is left out."""
        state = {name: _converted(v, np.asarray) for name, v in vars(self).items()}
        return {name: v for name, v in state.items() if name != "predictor"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Networks get their JAX arrays back."""
        as_jax = {name: _converted(v, jnp.asarray) for name, v in state.items()}
        self.__dict__.update(as_jax)

    def variational(self) -> Network:
        """The posterior that training goes on from."""
        if self.network is None:
            raise ValueError(
                "This model was refined and comes from a file, or combines several "
                "fits: it holds posterior samples and not the variational posterior "
                "that training could go on from. Call `fit` on a new estimator."
            )
        return self.network


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """The value, with the arrays of all networks that it holds converted."""
    if isinstance(value, eqx.Module):
        return converted(value, convert)
    if is_dataclass(value) and not isinstance(value, type):
        fields = {n: _converted(v, convert) for n, v in vars(value).items()}
        return replace(value, **fields)
    return value


def key_for(seed: int, use: str, restart: int = 0) -> PRNGKeyArray:
    """The key of one use of a seed, in one of several fits."""
    key = jr.key(seed)
    key = jr.fold_in(key, len(KEY_USES) + restart) if restart else key
    return jr.fold_in(key, KEY_USES.index(use))
