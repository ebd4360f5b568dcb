"""What the estimators share: their settings, and how they fit.

`fit` checks its input, calls `farrier.fit`, and assigns `model_` last, so that a fit
that fails leaves the estimator as it was. All learned attributes read `model_`.
"""

import abc
import copy
import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import files, persist
from ..checkpoint import numbered, read_seed
from ..fit import Plan, Recipe, checkpoint_writer, complete, plan_fit, train_plan
from ..fitted import FittedModel, Units
from ..model.likelihoods import AbstractLikelihood
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import RowSource, as_source
from ..tables.files import check_writable
from ..train.config import Training
from ..train.loop import Run
from ..units import Standardiser
from .attributes import FittedAttributes
from .callbacks import CallbackSupportMixin, watcher, with_callbacks
from .checks import Unchecked, checked_positive, numbers_only
from .partial import further, new_model
from .progress import Callback, progress_of, reporters, sampling_progress
from .rows import CheckedRows, CheckedSource, Learned, input_units
from .settings import checked_recipe, checked_restarts, fingerprint
from .storable import storable, storable_attribute
from .warnings import warn_of_fit

LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "n_targets_")


@dataclass(frozen=True)
class Fitting:
    """A fit that is planned: all that is needed to train and to complete it."""

    plan: Plan
    learned: Learned
    mark: str = ""


class NetworkEstimator(FittedAttributes, CallbackSupportMixin, BaseEstimator):
    """What regression and classification share."""

    n_features_in_: int
    feature_names_in_: np.ndarray
    _default_annealing: float

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="gelu",
        *,
        prior="column-horseshoe",
        posterior="mean-field",
        likelihood: Any = "heteroscedastic",
        n_restarts=1,
        refine=None,
        training=None,
        standardise=True,
        n_draws=200,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.posterior = posterior
        self.likelihood = likelihood
        self.n_restarts = n_restarts
        self.refine = refine
        self.training = training
        self.standardise = standardise
        self.n_draws = n_draws
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def set_params(self, **params: Any) -> Self:
        """Set parameters; `training__learning_rate` sets a field of `training`."""
        fields = {
            name.removeprefix("training__"): params.pop(name)
            for name in [*params]
            if name.startswith("training__")
        }
        super().set_params(**params)
        if fields:
            known = [f.name for f in dataclasses.fields(Training)]
            unknown = [name for name in fields if name not in known]
            if unknown:
                raise ValueError(
                    f"`training` has no parameter {unknown[0]!r}; it has {known}."
                )
            self.training = dataclasses.replace(self.training or Training(), **fields)
        return self

    # -- what differs between regression and classification ------------------------

    @abc.abstractmethod
    def _check_rows(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked, *, reset: bool
    ) -> CheckedRows:
        """Checked rows; with `reset`, those of a first fit."""

    @abc.abstractmethod
    def _check_source(self, source: RowSource) -> CheckedSource:
        """A source of rows, after one pass over it."""

    @abc.abstractmethod
    def _target_units(self, y: np.ndarray, weight: np.ndarray) -> Standardiser | None:
        """Units of the targets; None for classes."""

    @abc.abstractmethod
    def _likelihood_of(self, learned: Learned) -> Callable[[float], AbstractLikelihood]:
        """The likelihood as a function of the sum of the row weights."""

    # -- fit -----------------------------------------------------------------------

    @with_callbacks
    def _fit(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked,
        checkpoint: str | Path | None,
        callback: Callback | None,
        placement: AbstractPlacement,
    ) -> Self:
        with ExitStack() as stack:
            file = None if checkpoint is None else Path(checkpoint)
            fitting = planned(self, X, y, sample_weight, file, placement, stack)
            plan = fitting.plan
            after_chunk, at_end = watcher(self, plan, fitting.learned, X, y)
            shown = bool(self.verbose) and placement.group.is_first
            watch = [
                lambda number, run: after_chunk(run),
                *checkpoint_writer(file, fitting.mark, plan.seed, placement),
                *reporters(plan, callback),
                *stack.enter_context(progress_of(plan, shown=shown)),
            ]
            runs = train_plan(plan, watch, placement)
        complete_fit(self, fitting, runs, callback)
        at_end()
        return self

    def _checked(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked,
        placement: AbstractPlacement,
    ) -> CheckedRows | CheckedSource:
        """Rows in memory, equal ones merged, or a source that was read once."""
        source = as_source(X, y, sample_weight)
        several = self.refine is not None or checked_restarts(self) > 1
        if several and (source is not None or placement is not ONE_DEVICE):
            raise ValueError(
                "`refine` and `n_restarts` need all rows in memory and one device: "
                "leave them out, or give arrays and no `placement`."
            )
        if source is not None:
            return self._check_source(source)
        reset = self._start() is None
        return self._check_rows(X, y, sample_weight, reset=reset).merged()

    def _units(self, rows: CheckedRows) -> Units:
        """The units of rows in memory."""
        of_x = input_units(rows.x, rows.weight, standardise=self.standardise)
        return Units(of_x, self._target_units(rows.y, rows.weight))

    def _partial_fit(self, rows: CheckedRows, n_rows: int | None) -> Self:
        """One epoch over the given rows, at a constant learning rate."""
        if checked_restarts(self) > 1:
            raise ValueError(
                "`partial_fit` goes on from one posterior, and `n_restarts` asks for "
                f"{self.n_restarts}. Set `n_restarts` to 1, or call `fit`."
            )
        recipe = recipe_of(self, rows.learned)
        total = None if n_rows is None else checked_positive("n_rows", n_rows)
        if self._is_fitted():
            model = self.model_
        else:
            seed = new_seed(self.random_state)
            model = new_model(rows, self._units(rows), recipe, seed)
        model = further(model, rows, recipe, total)
        assert model.run is not None
        assign(self, model, rows.learned)
        warn_of_fit(model, [model.run], recipe.training, None)
        return self

    def _start(self) -> FittedModel | None:
        """The model that `fit` goes on from, with `warm_start`."""
        return self.model_ if self.warm_start and self._is_fitted() else None

    # -- a fitted estimator --------------------------------------------------------

    def compact(self) -> Self:
        """A smaller estimator that predicts the same; `compaction_` states the cost.

        Inactive nodes are folded into the rest. The result is checked on the training
        inputs: its predictive means move by less than 1 % of their standard deviation
        (root mean square), or more nodes are kept.

        Returns
        -------
        estimator
            A copy with fewer nodes; the estimator itself stays as it is.
        """
        check_is_fitted(self)
        small = copy.copy(self)
        if not self.model_.is_compact:
            small.model_ = self.model_.compacted()
        return small

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one `.safetensors` file; see `farrier.load`.

        A file contains no training rows. What needs them can be used after loading if
        it was computed before saving: call `compact` first for a model that can be
        compacted, and read `feature_scores_` for one that has these.

        Parameters
        ----------
        path : path
            Where to write it. An existing file is replaced.
        """
        header, arrays = self.to_file()
        persist.write(path, "model", header, arrays)

    def to_file(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Header and arrays of the file of the fitted estimator."""
        model = self._fitted
        params = self.get_params(deep=False).items()
        more = {
            "class": type(self).__name__,
            "params": {name: storable(value) for name, value in params},
            "learned": {n: storable_attribute(vars(self).get(n)) for n in LEARNED},
        }
        structure, arrays = files.to_file(model, more)
        return {"version": version("farrier"), "structure": structure}, arrays

    def _checked_inputs(self, X: Unchecked) -> np.ndarray:
        """Rows to predict for."""
        check_is_fitted(self)
        with numbers_only("X"):
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))

    def _in_units(self, X: Unchecked) -> np.ndarray:
        """Rows to predict for, in the units of the network."""
        return self._fitted.units.x(self._checked_inputs(X))


def planned(
    estimator: NetworkEstimator,
    X: Unchecked,
    y: Unchecked,
    sample_weight: Unchecked,
    checkpoint: Path | None = None,
    placement: AbstractPlacement = ONE_DEVICE,
    stack: ExitStack | None = None,
) -> Fitting:
    """The training runs that rows and settings ask for."""
    start, mark = estimator._start(), ""
    with placement.group.together():
        checked = estimator._checked(X, y, sample_weight, placement)
        if checkpoint is not None and placement.group.is_first:
            check_writable(checkpoint)
    recipe = recipe_of(estimator, checked.learned)
    if checkpoint is not None or placement.group.count > 1:
        mark = fingerprint(estimator, *checked.marks)
    if placement.group.count > 1:
        placement.group.check_same("rows or other settings", mark)
        assert stack is not None
        shared = stack.enter_context(placement.group.file_of_first(checkpoint))
        checkpoint = None if shared is None else Path(shared)
    seed = new_seed(estimator.random_state, placement)
    if checkpoint is not None:
        stored = stored_seed(checkpoint, recipe.restarts, mark)
        seed = seed if stored is None else stored
    units = checked.units_by(estimator._units) if start is None else start.units
    rows = checked.in_units(units).fit_rows(recipe, seed, placement)
    plan = plan_fit(rows, units, recipe, seed=seed, start=start, checkpoint=checkpoint)
    return Fitting(plan, checked.learned, mark)


def complete_fit(
    estimator: NetworkEstimator,
    fitting: Fitting,
    runs: list[Run],
    callback: Callback | None = None,
) -> None:
    """Make the fitted model, and assign it with all that was learned."""
    plan, shown = fitting.plan, bool(estimator.verbose)
    with sampling_progress(plan, runs, callback, shown=shown) as on_sampling:
        model = complete(plan, runs, on_sampling)
    assign(estimator, model, fitting.learned)
    warn_of_fit(model, runs, plan.recipe.training, plan.recipe.refinement)


def recipe_of(estimator: NetworkEstimator, learned: Learned) -> Recipe:
    """The settings of an estimator, checked."""
    annealing = estimator._default_annealing
    likelihood = estimator._likelihood_of(learned)
    return checked_recipe(estimator, likelihood, kl_annealing=annealing)


def assign(estimator: NetworkEstimator, model: FittedModel, learned: Learned) -> None:
    """Give an estimator all that a fit learned, at once."""
    for name in LEARNED:
        estimator.__dict__.pop(name, None)
    vars(estimator).update(learned, model_=model)


def new_seed(random_state: Any, placement: AbstractPlacement = ONE_DEVICE) -> int:
    """A seed from `random_state`: that of the first process, if there are several."""
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    return int(placement.group.from_first(np.asarray(seed, np.int32)))


def stored_seed(checkpoint: Path, count: int, mark: str) -> int | None:
    """The seed in the checkpoints of `count` fits, if there is one already."""
    paths = [numbered(checkpoint, number) for number in range(count)]
    stored = [read_seed(path, mark=mark) for path in paths]
    return next((seed for seed in stored if seed is not None), None)
