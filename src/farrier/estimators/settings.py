"""The settings of an estimator, checked and turned into a `Recipe`."""

import hashlib
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator

from ..core.posteriors import POSTERIORS, AbstractWeightPosterior
from ..core.priors import PRIORS, AbstractPrior
from ..fit import Recipe
from ..infer.sample.settings import REFINEMENTS, AbstractRefinement
from ..model.likelihoods import NOISES, AbstractLikelihood, Categorical
from ..model.network import ACTIVATIONS
from ..train.config import Training
from .checks import Unchecked, checked_choice, checked_count


@runtime_checkable
class LikelihoodSettings(Protocol):
    """Settings of a likelihood, such as `GaussianNoise`: they build it."""

    def build(self, d_out: int, /, *, rows: float) -> AbstractLikelihood:
        """The likelihood of so many targets or classes, for this sum of row weights."""
        ...


def checked_recipe(
    estimator: Any,
    likelihood: Callable[[float], AbstractLikelihood],
    *,
    kl_annealing: float,
) -> Recipe:
    """The settings of an estimator, checked.

    Parameters
    ----------
    likelihood
        The likelihood as a function of the sum of the row weights.
    kl_annealing
        What "auto" stands for.
    """
    refinement = estimator.refine
    if refinement is not None:
        refinement = checked_choice(
            "refine", refinement, REFINEMENTS, AbstractRefinement
        )
    return Recipe(
        widths=_checked_widths(estimator.hidden_layer_sizes),
        activation=_checked_activation(estimator.activation),
        prior=checked_choice("prior", estimator.prior, PRIORS, AbstractPrior),
        weights=checked_choice(
            "posterior", estimator.posterior, POSTERIORS, AbstractWeightPosterior
        ),
        likelihood=likelihood,
        training=_checked_training(estimator.training),
        kl_annealing=kl_annealing,
        restarts=checked_restarts(estimator),
        refinement=refinement,
        draws=checked_count("n_draws", estimator.n_draws, least=2),
    )


def _checked_widths(sizes: Unchecked) -> tuple[int, ...]:
    """Nodes of each hidden layer."""
    widths = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    if not widths or not all(isinstance(w, Integral) and int(w) >= 1 for w in widths):
        raise ValueError(
            "`hidden_layer_sizes` must be one or more whole numbers from 1, got "
            f"{sizes!r}."
        )
    return tuple(int(width) for width in widths)


def _checked_activation(name: Unchecked) -> str:
    if name not in [*ACTIVATIONS]:
        raise ValueError(f"`activation` must be one of {[*ACTIVATIONS]}, got {name!r}.")
    return name


def _checked_training(training: Unchecked) -> Training:
    """The settings of the training; None stands for the defaults."""
    if training is None:
        return Training()
    if not isinstance(training, Training):
        raise ValueError(
            "`training` must be a Training object, such as "
            f"Training(max_iter=200), got {training!r}."
        )
    return training


def checked_restarts(estimator: Any) -> int:
    """Number of independent fits; one, where training goes on from another fit."""
    count = checked_count("n_restarts", estimator.n_restarts, least=1)
    if count > 1 and estimator.warm_start:
        raise ValueError(
            "`warm_start` goes on from one posterior, and `n_restarts` asks for "
            f"{count}. Leave one of the two out."
        )
    return count


def checked_noise(likelihood: Unchecked) -> LikelihoodSettings:
    """The settings of a regression's likelihood, from its name or the object itself."""
    known: dict[str, LikelihoodSettings] = {**NOISES}
    kind: Any = LikelihoodSettings  # also an object of the user's own
    return checked_choice("likelihood", likelihood, known, kind)


def checked_classes(likelihood: Unchecked) -> LikelihoodSettings:
    """The settings of a classification's likelihood; None stands for softmax."""
    given = Categorical() if likelihood is None else likelihood
    if not isinstance(given, LikelihoodSettings):
        raise ValueError(
            "`likelihood` must be None or an object such as Categorical(), got "
            f"{given!r}."
        )
    return given


def fingerprint(estimator: BaseEstimator, *rows: np.ndarray | bytes) -> str:
    """What a checkpoint and all processes must agree on: rows, settings, precision."""
    digest = hashlib.sha256()
    for values in rows:
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values)
        digest.update(data if isinstance(data, bytes) else data.tobytes())
    params = estimator.get_params(deep=False)
    state = params.pop("random_state")
    settings = {n: repr(value) for n, value in params.items() if n != "verbose"}
    # A RandomState is recognised by its type alone: its repr is an address in memory.
    is_seed = isinstance(state, Integral | None)
    settings["random_state"] = repr(state if is_seed else type(state))
    settings["precision"] = str(jnp.result_type(float))
    digest.update(repr(sorted(settings.items())).encode())
    return digest.hexdigest()
