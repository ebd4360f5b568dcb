"""What the estimators share: their settings, and how they fit.

`fit` checks its input, calls `farrier.fit`, and assigns `model_` last, so that a fit
that fails leaves the estimator as it was. All learned attributes read `model_`.
"""

import abc
import copy
import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeAlias

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import files, persist
from ..checkpoint import numbered, read_seed
from ..console import progress
from ..core.posteriors import POSTERIORS, AbstractWeightPosterior
from ..core.priors import PRIORS, AbstractPrior
from ..fit import (
    FitRows,
    FittedModel,
    Plan,
    Recipe,
    Sample,
    Units,
    Watch,
    best_first,
    checkpoint_writer,
    complete,
    key_for,
    plan_fit,
    train_plan,
    with_total,
)
from ..infer.sample.settings import REFINEMENTS, AbstractRefinement
from ..model.likelihoods import AbstractLikelihood
from ..model.network import ACTIVATIONS
from ..model.posterior import VariationalPosterior
from ..scale.placement import ONE_DEVICE, AbstractPlacement, OneDevice
from ..scale.rows import ArrayRows, RowSource, Statistics, as_source
from ..scale.stream import LANES, Stream
from ..tables.files import check_writable
from ..train.config import TrainConfig, Training
from ..train.data import Data, run_chunk
from ..train.history import History, Status
from ..train.loop import Job, Run
from ..units import Standardiser, identity_units, merge_rows
from .attributes import FittedAttributes
from .callbacks import CallbackSupportMixin, watcher, with_callbacks
from .checks import (
    Unchecked,
    checked_choice,
    checked_count,
    checked_positive,
    numbers_only,
)
from .warnings import warn_of_fit

PARTIAL_ANNEALING = 1_000  # steps of partial_fit over which the KL weight rises
LEARNED = ("n_features_in_", "feature_names_in_", "classes_", "n_targets_")
ENDLESS = 2**30  # steps of partial_fit, which never knows its last one

Callback: TypeAlias = Callable[[float, History], None]


@dataclass(frozen=True)
class CheckedRows:
    """Rows that were checked, and what the estimator learned from them.

    Parameters
    ----------
    x, y, weight
        Inputs, targets (2-dimensional, or class numbers) and weights of the rows.
    learned
        Attributes of the estimator, such as `n_features_in_`, to be set after the fit.
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    learned: dict[str, Any]


@dataclass(frozen=True)
class CheckedSource:
    """A source of rows that was read once, and what the estimator learned from it.

    Parameters
    ----------
    rows
        The source, in the units of the network.
    sample
        Some of the rows, in the units of the network.
    """

    rows: RowSource
    sample: tuple[np.ndarray, np.ndarray, np.ndarray]
    units: Units
    total: float
    learned: dict[str, Any]


@dataclass(frozen=True)
class Fitting:
    """A fit that is planned: all that is needed to train and to complete it."""

    plan: Plan
    learned: dict[str, Any]
    mark: str = ""
    checkpoint: Path | None = None
    callback: Callback | None = None
    watch: list[Watch] = field(default_factory=list)


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
        prior="narrow-horseshoe",
        posterior="mean-field",
        likelihood: Any = "heteroscedastic",
        n_restarts=1,
        refine=None,
        training=Training(),  # noqa: B008
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
            self.training = dataclasses.replace(self.training, **fields)
        return self

    # -- what differs between regression and classification ------------------------

    @abc.abstractmethod
    def _check_rows(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked, *, reset: bool
    ) -> CheckedRows:
        """Checked rows; with `reset`, what they teach is learned anew."""

    @abc.abstractmethod
    def _check_source(self, source: RowSource) -> CheckedSource:
        """A source of rows, after one pass over it."""

    @abc.abstractmethod
    def _target_units(self, y: np.ndarray, weight: np.ndarray) -> Standardiser | None:
        """Units of the targets; None for classes."""

    @abc.abstractmethod
    def _likelihood_of(
        self, learned: dict[str, Any]
    ) -> Callable[[float], AbstractLikelihood]:
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
            fitting = self._plan(X, y, sample_weight, checkpoint, placement, stack)
            fitting = dataclasses.replace(fitting, callback=callback)
            after_chunk, at_end = watcher(self, fitting.plan, X, y)
            show = stack.enter_context(self._shown(fitting.plan, placement))
            watch = [
                lambda number, run: after_chunk(run),
                *checkpoint_writer(
                    checkpoint, fitting.mark, fitting.plan.seed, placement
                ),
                *reporters(fitting),
                *show,
            ]
            runs = train_plan(fitting.plan, watch, placement)
        self._complete(fitting, runs)
        at_end()
        return self

    def _plan(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked,
        checkpoint: str | Path | None = None,
        placement: AbstractPlacement = ONE_DEVICE,
        stack: ExitStack | None = None,
    ) -> Fitting:
        """The training runs that rows and settings ask for."""
        group, start = placement.group, self._start()
        with group.together():
            source = as_source(X, y, sample_weight)
            several = self.refine is not None or self._restarts() > 1
            if several and (source is not None or placement is not ONE_DEVICE):
                raise ValueError(
                    "`refine` and `n_restarts` need all rows in memory and one device: "
                    "leave them out, or give arrays and no `placement`."
                )
            checked = (
                self._check_rows(X, y, sample_weight, reset=start is None)
                if source is None
                else self._check_source(source)
            )
            if checkpoint is not None and group.is_first:
                check_writable(Path(checkpoint))
        if isinstance(checked, CheckedRows):
            marks = (checked.x, checked.y, checked.weight)
        else:
            assert source is not None
            marks = (source.mark().encode(),)
        readable = checkpoint
        if group.count > 1:
            digest = self._fingerprint(*marks)
            group.check_same("rows or other settings", digest)
            if stack is not None:
                readable = stack.enter_context(group.file_of_first(checkpoint))
        recipe = self._recipe(checked.learned)
        count = recipe.restarts
        if isinstance(checked, CheckedRows):
            x, y, weight = merge_rows(checked.x, checked.y, checked.weight)
            units = self._units(x, y, weight) if start is None else start.units
            x, y = units.x(x), y if units.y is None else units.y(y)
            seed, mark = self._seed_of((x, y, weight), readable, count, placement)
            rows = rows_in_memory(x, y, weight, recipe, seed, placement)
        else:
            units = checked.units
            seed, mark = self._seed_of(marks, readable, count, placement)
            rows = rows_streamed(checked, recipe, seed, placement)
        plan = plan_fit(
            rows, units, recipe, seed=seed, start=start, checkpoint=readable
        )
        return Fitting(plan, checked.learned, mark)

    def _complete(self, fitting: Fitting, runs: list[Run]) -> Self:
        """Make the fitted model, and assign it with all that was learned."""
        plan, callback = fitting.plan, fitting.callback
        method = plan.recipe.refinement
        with ExitStack() as stack:
            show = lambda done, text: None
            if self.verbose and method is not None:
                show = stack.enter_context(progress("sampling", method.iterations))

            def on_sampling(done: int) -> None:
                assert method is not None
                show(done, f"{method.chains} chains")
                if callback is not None:
                    history = best_first(runs)[0].history
                    callback(0.5 + 0.5 * done / method.iterations, history)

            model = complete(plan, runs, on_sampling)
        self._assign(model, fitting.learned)
        warn_of_fit(model, runs, self.training, method)
        return self

    def _assign(self, model: FittedModel, learned: dict[str, Any]) -> None:
        """All that a fit learned, at once."""
        for name in ("feature_names_in_",):
            self.__dict__.pop(name, None)
        for name, value in learned.items():
            setattr(self, name, value)
        self.model_ = model

    def _start(self) -> FittedModel | None:
        """The model that `fit` goes on from, with `warm_start`."""
        return self.model_ if self.warm_start and self._is_fitted() else None

    def _is_fitted(self) -> bool:
        return "model_" in vars(self)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a fitted model."""
        return self._is_fitted()

    def _shown(self, plan: Plan, placement: AbstractPlacement) -> Any:
        """A block with a progress bar, if there is to be one."""
        return progress_of(plan, shown=bool(self.verbose) and placement.group.is_first)

    # -- partial_fit ---------------------------------------------------------------

    def _partial_fit(self, rows: CheckedRows, n_rows: int | None) -> Self:
        """One epoch over the given rows, at a constant learning rate."""
        if self._restarts() > 1:
            raise ValueError(
                "`partial_fit` goes on from one posterior, and `n_restarts` asks for "
                f"{self.n_restarts}. Set `n_restarts` to 1, or call `fit`."
            )
        recipe = self._recipe(rows.learned)
        new = rows.weight.sum()
        if not self._is_fitted():
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            units = self._units(rows.x, rows.y, rows.weight)
            key = key_for(seed, "build")
            network = recipe.build(rows.x.shape[1], recipe.widths, new, key)
            run = Run.create(network, self._endless(len(rows.x), PARTIAL_ANNEALING))
            before, built = 0.0, recipe.widths
        else:
            model = self.model_
            seed, units, before = model.seed, model.units, model.total
            built, run = model.built_widths, model.run
            if run is None:  # goes on from a `fit`
                network = model.variational()
                run = Run.create(network, self._endless(len(rows.x), 0))
        seen = before + new
        total = seen if n_rows is None else checked_positive("n_rows", n_rows)
        x = units.x(rows.x)
        y = rows.y if units.y is None else units.y(rows.y)
        # Each row stands for as many as there are of it in the whole data set.
        size = self.training.resolved_batch_size(len(x))
        data = Data.create(x, y, rows.weight * total / new, batch_size=size)
        network = with_total(run.state.network, recipe.likelihood(total))
        state = dataclasses.replace(run.state, network=network)
        history = run.history
        for _ in range(int(data.batches)):
            key = key_for(seed, "train")
            state, means = run_chunk(state, data, run.schedule, 1, 1, key=key)
            terms = dict(zip(history.terms, np.asarray(means, float).T, strict=True))
            history = history.extended(np.array([int(state.step)]), terms)
        history.skipped = int(state.skipped)
        run = Run(state, run.schedule, history)
        key = key_for(seed, "predict")
        network = state.result
        model = FittedModel(
            posterior=VariationalPosterior.create(network, recipe.draws, key=key),
            network=network,
            units=units,
            history=history,
            built_widths=built,
            total=seen,
            epochs=-(-int(state.step) // int(data.batches)),
            seed=seed,
            draws=recipe.draws,
            sample=Sample.of(x, y, rows.weight),
            run=run,
        )
        self._assign(model, rows.learned)
        warn_of_fit(model, [run], self.training, None)
        return self

    def _endless(self, rows: int, annealing: int) -> TrainConfig:
        """Settings of `partial_fit`, which never knows its last step."""
        config = self.training.config(rows, kl_annealing=self._default_annealing)
        return dataclasses.replace(
            config,
            steps=ENDLESS,
            kl_annealing=annealing / ENDLESS,
            averaging=0.0,
        )

    # -- checks of the settings ----------------------------------------------------

    def _recipe(self, learned: dict[str, Any]) -> Recipe:
        """The settings, checked."""
        sizes: Any = self.hidden_layer_sizes
        sizes = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
        if not sizes or not all(isinstance(s, Integral) and int(s) >= 1 for s in sizes):
            raise ValueError(
                "`hidden_layer_sizes` must be one or more whole numbers from 1, got "
                f"{self.hidden_layer_sizes!r}."
            )
        if self.activation not in [*ACTIVATIONS]:
            raise ValueError(
                f"`activation` must be one of {[*ACTIVATIONS]}, got "
                f"{self.activation!r}."
            )
        if not isinstance(self.training, Training):
            raise ValueError(
                "`training` must be a Training object, such as "
                f"Training(max_iter=200), got {self.training!r}."
            )
        refinement = None
        if self.refine is not None:
            refinement = checked_choice(
                "refine", self.refine, REFINEMENTS, AbstractRefinement
            )
        return Recipe(
            widths=tuple(int(size) for size in sizes),
            activation=self.activation,
            prior=checked_choice("prior", self.prior, PRIORS, AbstractPrior),
            weights=checked_choice(
                "posterior", self.posterior, POSTERIORS, AbstractWeightPosterior
            ),
            likelihood=self._likelihood_of(learned),
            training=self.training,
            kl_annealing=self._default_annealing,
            restarts=self._restarts(),
            refinement=refinement,
            draws=checked_count("n_draws", self.n_draws, least=2),
        )

    def _restarts(self) -> int:
        count = checked_count("n_restarts", self.n_restarts, least=1)
        if count > 1 and self.warm_start:
            raise ValueError(
                "`warm_start` goes on from one posterior, and `n_restarts` asks for "
                f"{count}. Leave one of the two out."
            )
        return count

    def _units(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> Units:
        as_is = identity_units(x.shape[1])
        of_x = Standardiser.create(x, weight) if self.standardise else as_is
        return Units(of_x, self._target_units(y, weight))

    def _source_units(self, statistics: Statistics) -> Standardiser:
        """Units of the inputs of a source."""
        of_x = statistics.x
        return of_x.standardiser() if self.standardise else identity_units(len(of_x.sd))

    def _names_of(self, source: RowSource, d_in: int) -> dict[str, Any]:
        """What is learned about the inputs of a source."""
        if self._start() is not None and d_in != self.n_features_in_:
            raise ValueError(
                f"X has {d_in} columns; the fit before had {self.n_features_in_}."
            )
        learned: dict[str, Any] = {"n_features_in_": d_in}
        if source.names is not None:
            learned["feature_names_in_"] = np.asarray(source.names, object)
        return learned

    def _seed_of(
        self,
        marks: tuple[np.ndarray | bytes, ...],
        checkpoint: str | Path | None,
        count: int,
        placement: AbstractPlacement,
    ) -> tuple[int, str]:
        """The seed of a fit, or that of its checkpoint; and the checkpoint's mark."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = int(placement.group.from_first(np.asarray(seed, np.int32)))
        if checkpoint is None:
            return seed, ""
        mark = self._fingerprint(*marks)
        files = [numbered(checkpoint, number) for number in range(count)]
        stored = [read_seed(file, mark=mark) for file in files]
        return next((s for s in stored if s is not None), seed), mark

    def _fingerprint(self, *rows: np.ndarray | bytes) -> str:
        """What a checkpoint must agree on: rows, settings, precision."""
        digest = hashlib.sha256()
        for values in rows:
            data = values if isinstance(values, bytes) else np.ascontiguousarray(values)
            digest.update(data if isinstance(data, bytes) else data.tobytes())
        params = self.get_params(deep=False).items()
        settings = {k: repr(v) for k, v in params if k not in ("verbose",)}
        settings["random_state"] = repr(type(self.random_state))
        if isinstance(self.random_state, Integral | None):
            settings["random_state"] = repr(self.random_state)
        settings["precision"] = str(jnp.result_type(float))
        digest.update(repr(sorted(settings.items())).encode())
        return digest.hexdigest()

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

        Call `compact` first, or ask for `compaction` of `model_`, if the loaded model
        is to be compacted: a file holds no training rows.
        """
        check_is_fitted(self)
        header, arrays = self.to_file()
        persist.write(path, "model", header, arrays)

    def to_file(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Header and arrays of the file of the fitted estimator."""
        learned = {n: v for n, v in vars(self).items() if n in LEARNED}
        more = {
            "class": type(self).__name__,
            "params": {n: _storable(v) for n, v in self.get_params(deep=False).items()},
            "learned": {name: _storable(value) for name, value in learned.items()},
        }
        structure, arrays = files.to_file(self._fitted, more)
        return {"version": version("farrier"), "structure": structure}, arrays

    def _in_units(self, X: Unchecked) -> np.ndarray:
        """Rows to predict for, in the units of the network."""
        return self._fitted.units.x(self._checked_inputs(X))

    def _checked_inputs(self, X: Unchecked) -> np.ndarray:
        check_is_fitted(self)
        with numbers_only("X"):
            return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


def plain_labels(labels: np.ndarray) -> dict[str, Any]:
    """Labels as plain values, with their type."""
    return {"dtype": labels.dtype.str, "values": labels.tolist()}


def _storable(value: Any) -> Any:
    """A setting, or something learned, as a file holds it."""
    if isinstance(value, np.random.RandomState):
        return None  # its state was used up by the fit, whose seed is stored
    if isinstance(value, np.ndarray):
        is_names = value.dtype.kind == "O"
        return value.tolist() if is_names and value.ndim else plain_labels(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[_storable(k), _storable(v)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return type(value)(_storable(entry) for entry in value)
    return value


def rows_in_memory(
    x: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    recipe: Recipe,
    seed: int,
    placement: AbstractPlacement,
) -> FitRows:
    """Rows on one device, or cut over all devices of a placement."""
    size, sample = recipe.training.resolved_batch_size(len(x)), Sample.of(x, y, weight)
    if isinstance(placement, OneDevice):
        data = Data.create(x, y, weight, batch_size=size)
        return FitRows(data, sample, weight.sum())
    even = -(-size // LANES) * LANES
    source = ArrayRows(x, y, weight)
    return FitRows(_stream(source, even, seed, placement), sample, weight.sum())


def rows_streamed(
    source: CheckedSource, recipe: Recipe, seed: int, placement: AbstractPlacement
) -> FitRows:
    """Rows of a source, in the units of the network."""
    size = recipe.training.resolved_batch_size(source.rows.rows)
    stream = _stream(source.rows, size, seed, placement)
    sample = Sample.of(*source.sample)
    return FitRows(stream, sample, source.total, stream.batches)


def _stream(
    source: RowSource, batch_size: int, seed: int, placement: AbstractPlacement
) -> Stream:
    key = jr.fold_in(key_for(seed, "train"), 2**32 - 1)
    return Stream(source, batch_size=batch_size, key=key, placement=placement)


# -- progress ----------------------------------------------------------------------


def steps_counter(budgets: list[int]) -> Callable[[int, Run], int]:
    """A function that counts the steps of all fits.

    It is called with the number of a fit and its run. A fit that ended early counts
    with its whole budget.
    """
    done = [0] * len(budgets)

    def count(number: int, run: Run) -> int:
        ended = run.history.status is not Status.RUNNING
        done[number] = budgets[number] if ended else int(run.state.step)
        return sum(done)

    return count


def budgets_of(jobs: list[Job]) -> list[int]:
    """Steps of each job at most."""
    return [job.config.steps for job in jobs]


def reporters(fitting: Fitting) -> list[Watch]:
    """Calls the user's callback with the share of the budget that is used."""
    callback = fitting.callback
    if callback is None:
        return []
    budgets = budgets_of(fitting.plan.jobs)
    done = steps_counter(budgets)
    refined = fitting.plan.recipe.refinement is not None
    steps = sum(budgets) * (2 if refined else 1)
    return [lambda number, run: callback(done(number, run) / steps, run.history)]


@contextmanager
def progress_of(plan: Plan, *, shown: bool) -> Any:
    """A progress bar over all runs of a fit; yields what to call after each chunk."""
    if not shown:
        yield []
        return
    budgets, rows = budgets_of(plan.jobs), int(plan.rows.data.rows)
    count = steps_counter(budgets)
    title = "fit" if len(budgets) == 1 else f"{len(budgets)} fits"
    with progress(title, sum(budgets)) as show:
        note = lambda run: f"ELBO {run.history.elbo[-1] / rows:.3f} nats per row"
        yield [lambda number, run: show(count(number, run), note(run))]
