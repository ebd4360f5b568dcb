"""What the estimators share: settings, training, node reports, files."""

import abc
import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from .. import persist
from ..checkpoint import (
    history_arrays,
    numbered,
    read_history,
    read_seed,
    resume,
    write_checkpoint,
)
from ..console import progress
from ..core.posteriors import POSTERIORS, AbstractPosterior, Tied
from ..core.priors import PRIORS, AbstractPrior
from ..infer.compact import NEARLY_ALL, Compaction, Nodes, compact, drop, find_nodes
from ..infer.ensemble import WEIGHTS, Restart, Restarts, mixed
from ..infer.freeze import can_fix, fixed, form_of_fixed
from ..infer.sample.chains import (
    REFINEMENTS,
    AbstractRefinement,
    Fit,
    Sampling,
    Start,
    each_of,
    kinds_of,
    refine,
    samples_all,
)
from ..infer.shrink import can_shrink, could_pay, shrunk
from ..model.drawn import AnyNetwork, DrawnNetwork
from ..model.inputs import InputScales
from ..model.likelihoods import NOISES, AbstractLikelihood, Categorical
from ..model.network import ACTIVATIONS, Network
from ..scale.placement import ONE_DEVICE, AbstractPlacement, OneDevice
from ..scale.processes import AbstractGroup
from ..scale.rows import ArrayRows, ConvertedRows, RowSource, Statistics, as_source
from ..scale.stream import LANES, Stream
from ..tables.files import check_writable
from ..train.config import KlRelease, TrainConfig
from ..train.data import Data, run_chunk
from ..train.history import History, Status
from ..train.loop import Job, Run, TrainingRows, train
from ..train.parallel import train_many
from ..train.step import converted
from ..train.stopping import rise_at_the_end
from ..units import Standardiser, identity_units, merge_rows
from .callbacks import CallbackSupportMixin, watcher, with_callbacks
from .checks import (
    Unchecked,
    all_or_nothing,
    checked_choice,
    checked_count,
    checked_level,
    checked_number,
    checked_positive,
    numbers_only,
    warn,
)

SMALL = 1_024  # up to so many rows a step sees all of them
BATCH = 512
STEPS = 6_000  # budget of a small table
FEW_ROWS = 256  # with so few rows, wide networks need longer to leave the constant ...
STEPS_FEW_ROWS = 10_000  # ... and steps are cheap
STEPS_A_ROW = 4  # budget of a large table, which has more to learn ...
MOST_STEPS = 160_000  # ... but never more than this
CHECK_ROWS = 10_000  # training rows kept for the self-check of compaction
SCORE_ROWS = 1_000  # training rows from which node scores are worked out
RISING = 0.02  # nats a row; a bound that rises by more at the end is not there yet
AGREE = 1.1  # an R-hat over this says that chains have not met
# What a fit before has left behind.
OUTDATED = ("_compaction", "compaction_", "_node_report", "_input_report")
OUTDATED += ("sampling_", "restarts_", "_start", "_interval_depths")
ENDED = (Status.CONVERGED, Status.BUDGET)
PARTIAL_WARM_UP = 1_000  # steps of partial_fit over which the KL weight rises


Callback: TypeAlias = Callable[[float, History], None]


Method = TypeVar("Method", bound=Callable)


def passes_of(steps: int, rows: int) -> int:
    """Passes over so many rows, in batches of the default, with so many steps or more.

    Or none yet: settings may be made before there are rows.
    """
    batches = 1 if rows <= SMALL else math.ceil(rows / BATCH)
    return math.ceil(steps / batches)


def by_pieces(method: Method) -> Method:
    """A prediction that also takes a source of rows, which it reads piece by piece."""

    @wraps(method)
    def predict(self: Any, X: Unchecked, *more: Any, **settings: Any) -> Any:
        if not isinstance(X, RowSource):
            return method(self, X, *more, **settings)
        found = [method(self, piece, *more, **settings) for piece in X.inputs()]
        if isinstance(found[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*found, strict=True))
        return np.concatenate(found)

    return cast(Method, predict)


class NetworkEstimator(CallbackSupportMixin, BaseEstimator):
    """What regression and classification share."""

    n_features_in_: int
    feature_names_in_: np.ndarray
    compaction_: Compaction
    network_: AnyNetwork
    _fixed: dict[int, DrawnNetwork]  # draws that predictions are made with
    sampling_: Sampling
    restarts_: tuple[Restart, ...]

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="gelu",
        *,
        prior="narrow-horseshoe",
        posterior="factorised",
        likelihood: Any = "heteroscedastic",
        kl_weight=1.0,
        kl_warm_up=0.8,
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
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.posterior = posterior
        self.likelihood = likelihood
        self.kl_weight = kl_weight
        self.kl_warm_up = kl_warm_up
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.averaging = averaging
        self.n_restarts = n_restarts
        self.refine = refine
        self.input_horseshoe = input_horseshoe
        self.early_stopping = early_stopping
        self.tol = tol
        self.standardise = standardise
        self.shrink = shrink
        self.n_draws = n_draws
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # -- what a user asks of a fitted network -------------------------------------

    def width_interval(self, level: float = 0.9) -> tuple[tuple[int, int], ...]:
        """Central interval of the number of nodes on, one pair for each hidden layer.

        The number is counted in each posterior draw; `widths_` counts the nodes that
        are on with a probability over one half.
        """
        check_is_fitted(self)
        return self._nodes.width_interval(checked_level(level))

    def compact(self) -> Self:
        """A smaller estimator that predicts the same; `compaction_` states the cost.

        Nodes that are off are folded into the rest. The result is checked on the
        training inputs: its predictive means move by less than 1 % of their standard
        deviation (root mean square), or more nodes are kept.
        """
        check_is_fitted(self)
        if hasattr(self, "compaction_"):
            return copy.copy(self)
        self._settle()
        small = copy.copy(self)
        small._compaction = small.compaction_ = self._compacted()
        small.network_ = small.compaction_.network
        small.__dict__.pop("_run", None)
        small._fixed = {}
        kept = small.compaction_.keep
        small._node_report = Nodes(
            tuple(s[:, k] for s, k in zip(self._nodes.shares, kept, strict=True)),
            self._nodes.columns,
        )
        return small

    def _settle(self) -> None:
        """Work out, before a copy is made smaller, what it is to have unchanged."""

    def _predictive(self, draws: int) -> tuple[AnyNetwork, jax.Array]:
        """The posterior that predictions see, and the key of its draws.

        Draws of a small network are made once: there is nothing random left.
        """
        network = self.network_
        if not isinstance(network, Network) or not can_fix(network, draws):
            return network, self._key("predict")
        if draws not in self._fixed:
            self._fixed[draws] = fixed(network, draws, key=self._key("predict"))
        return self._fixed[draws], no_key()

    def _compacted(self) -> Compaction:
        if not hasattr(self, "_compaction"):
            x, y, _ = self._check_rows
            key = self._key("predict")
            self._compaction = compact(
                self.network_, self._nodes, x, y, self.n_draws, key=key
            )
        return self._compaction

    # -- training -----------------------------------------------------------------

    @abc.abstractmethod
    def _prepare(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Checked rows, targets as the network needs them, and weights."""

    @with_callbacks
    def _fit(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked,
        checkpoint: str | Path | None,
        callback: Callback | None,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> Self:
        """Train, and store what was learned; all of it, or nothing if it fails."""
        group = placement.group
        with all_or_nothing(self), ExitStack() as stack:
            with group.together():
                source = as_source(X, y, sample_weight)
                rows = self._prepare(X, y, sample_weight) if source is None else ()
                if checkpoint is not None and group.is_first:
                    check_writable(Path(checkpoint))
            seen = checkpoint
            if group.count > 1:
                marks = rows if source is None else (source.mark().encode(),)
                digest = self._fingerprint(*marks)
                group.check_same("rows or other settings", digest)
                seen = stack.enter_context(group.file_of_first(checkpoint))
            if source is None:
                jobs = self._jobs(*rows, checkpoint=seen, placement=placement)
            else:
                jobs = [self._streamed_job(source, seen, placement)]
            after_chunk, at_end = watcher(self, jobs, X, y)
            runs = self._train(jobs, checkpoint, callback, after_chunk, group)
            self._finish(jobs, runs, callback)
            at_end()
        return self

    def _jobs(
        self,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        checkpoint: str | Path | None = None,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> list[Job]:
        """The training that checked rows and the settings ask for, fit by fit."""
        count = self._checked_restarts().count
        self._checked_widths()
        self._checked_refine()
        x, y, weight = merge_rows(x, y, weight)
        config = self._config(len(x))
        if not self._goes_on:
            self._standardise(x, y, weight)
        x, y = self._x_standard(x), self._targets(y)
        group = placement.group
        self._draw_seed(checkpoint, count, lambda: (x, y, weight), group)
        data = self._rows(x, y, weight, config.batch_size, placement)
        self._keep_check_rows(x, y, weight)
        return self._jobs_on(data, config, x.shape[1], weight.sum(), count, checkpoint)

    def _streamed_job(
        self,
        source: RowSource,
        checkpoint: str | Path | None = None,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> Job:
        """The training that a source of rows and the settings ask for."""
        if self._checked_refine() is not None:
            raise ValueError(
                "`refine` samples with all rows in memory: fit with `refine=None`, or "
                "give arrays of as many rows as fit there."
            )
        if self._checked_restarts().count > 1:
            raise ValueError(
                "`n_restarts` mixes fits of rows in memory: fit with `n_restarts=1`, "
                "or give arrays of as many rows as fit there."
            )
        self._checked_widths()
        group = placement.group
        with group.together():
            found = source.statistics()
        total = self._learn(source, found)
        rows = ConvertedRows(source, self._in_units)
        config = self._config(rows.rows)
        self._draw_seed(checkpoint, 1, lambda: (source.mark().encode(),), group)
        data = self._stream(rows, config.batch_size, placement)
        config = self._config(rows.rows, steps=self._steps(rows.rows, data.batches))
        sample = self._in_units(*found.sample, np.ones(len(found.sample[0])))
        self._keep_check_rows(*sample)
        d_in = sample[0].shape[1]
        (job,) = self._jobs_on(data, config, d_in, total, 1, checkpoint)
        return job

    def _learn(self, source: RowSource, found: Statistics) -> float:
        """Keep what all rows of a source say; returns the sum of their weights."""
        d_in = len(found.x.mean)
        if self._goes_on and d_in != self.n_features_in_:
            raise ValueError(
                f"X has {d_in} columns; the fit before had {self.n_features_in_}."
            )
        self.n_features_in_ = d_in
        self.__dict__.pop("feature_names_in_", None)
        if source.names is not None:
            self.feature_names_in_ = np.asarray(source.names, object)
        if not self._goes_on:
            found_x = found.x.standardiser()
            self._x_standard = found_x if self.standardise else identity_units(d_in)
        return found.x.weight

    @abc.abstractmethod
    def _in_units(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of a source in the units of the network."""

    def _draw_seed(
        self,
        checkpoint: str | Path | None,
        count: int,
        rows: Callable[[], tuple],
        group: AbstractGroup,
    ) -> None:
        """The seed of fits: that of their checkpoints, where there are some already."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        seed = int(group.from_first(np.asarray(seed, np.int32)))
        if checkpoint is not None:
            self._mark = self._fingerprint(*rows())
            files = [numbered(checkpoint, number) for number in range(count)]
            stored = [read_seed(file, mark=self._mark) for file in files]
            seed = next((s for s in stored if s is not None), seed)
        self._seed = seed

    def _jobs_on(
        self,
        data: TrainingRows,
        config: TrainConfig,
        d_in: int,
        total: float,
        count: int,
        checkpoint: str | Path | None,
    ) -> list[Job]:
        """Trainings on rows in the units of the network; `total` is their weight."""
        going_on, widths = self._goes_on, self._checked_widths()
        self.__dict__.pop("_run", None)
        if going_on and widths == self._built_widths:
            widths = self._variational().widths  # some may have left since
        else:
            self._built_widths = widths
        self._rows_seen = total
        jobs = []
        for number in range(count):
            likelihood = self._likelihood_for(total, number)
            network = self._build(d_in, widths, likelihood, number)
            if going_on:
                old = self._variational()
                network = _with_rows(old, _with_columns_of(old, network))
            run = Run.create(network, config)
            if checkpoint is not None:
                run = resume(numbered(checkpoint, number), run)
            job = Job(run, data, config, self._key("train", number))
            if self.shrink and can_shrink(job) and could_pay(job):
                job.shrink = shrunk
            jobs.append(job)
        return jobs

    def _rows(
        self,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        batch_size: int,
        placement: AbstractPlacement,
    ) -> TrainingRows:
        """The rows where they are trained on: on one device, or over all of a run."""
        if isinstance(placement, OneDevice):
            return Data.create(x, y, weight, batch_size=batch_size)
        if self.refine is not None or self._checked_restarts().count > 1:
            raise ValueError(
                "`refine` and `n_restarts` work on one device and cannot be used with "
                "a `placement` from `farrier.distributed`. Leave them out."
            )
        even = -(-batch_size // LANES) * LANES
        return self._stream(ArrayRows(x, y, weight), even, placement)

    def _stream(
        self, source: RowSource, batch_size: int, placement: AbstractPlacement
    ) -> Stream:
        """The rows of a source, where they are trained on."""
        key = jr.fold_in(self._key("train"), 2**32 - 1)
        return Stream(source, batch_size=batch_size, key=key, placement=placement)

    def _train(
        self,
        jobs: list[Job],
        checkpoint: str | Path | None,
        callback: Callback | None,
        watch: Callable[[Run], None],
        group: AbstractGroup,
    ) -> list[Run]:
        """The training loop with its progress and its checkpoints."""
        watchers: list[Callable[[int, Run], None]] = [lambda number, run: watch(run)]
        if checkpoint is not None and group.is_first:
            watchers.append(
                lambda number, run: write_checkpoint(
                    numbered(checkpoint, number), run, mark=self._mark, seed=self._seed
                )
            )
        budgets = [job.config.steps for job in jobs]
        if callback is not None:
            done = steps_counter(budgets)
            steps = sum(budgets) * (1 if self.refine is None else 2)
            watchers.append(lambda n, run: callback(done(n, run) / steps, run.history))
        with ExitStack() as stack:
            if self.verbose and group.is_first:
                show = stack.enter_context(progress(_title(jobs), sum(budgets)))
                rows, shown = int(jobs[0].data.rows), steps_counter(budgets)
                watchers.append(lambda n, run: show(shown(n, run), _note(run, rows)))

            def after_chunk(number: int, run: Run) -> None:
                with group.together():
                    for watch in watchers:
                        watch(number, run)

            if len(jobs) == 1:
                return [train(jobs[0], partial(after_chunk, 0))]
            runs = dict(train_many(jobs, after_chunk))
            return [runs[number] for number in range(len(jobs))]

    def _finish(
        self, jobs: list[Job], runs: list[Run], callback: Callback | None = None
    ) -> Self:
        """Keep what a fit learned, and warn of what its user should know."""
        data, kept = jobs[0].data, _best_first(runs)
        self._store(kept[0], int(data.batches))
        if len(runs) > 1:
            self._warn_of_restarts(runs, kept)
        method = self._checked_refine()
        if method is None or self.history_.status not in ENDED:
            if len(runs) > 1:
                self._mix(data, kept)
            self._warn_of_widths()
            return self
        networks = [run.state.result for run in kept]
        fits: list[Start] = [(network, None) for network in networks]
        if not samples_all(method, networks):
            fits = [*self._fits_of(kept)]
            self._warn_of_widths()
        per_chain = self._sample(data, method, fits, callback)
        if per_chain is None:
            if len(runs) > 1:
                self._mix(data, kept)
        elif len(runs) > 1:  # each fit has the share of the chains that began at it
            begun = np.arange(method.chains) % len(fits)
            shares = np.bincount(begun, per_chain, minlength=len(fits))
            self._tell_restarts(kept, fits, shares)
        else:
            self._start = fits[0][0]
        return self

    def _fits_of(self, runs: list[Run]) -> list[Fit]:
        """The posterior of each run, and what it says of its nodes."""
        networks = [run.state.result for run in runs]
        find = lambda n: self._nodes_of(networks[n]) if n else self._nodes
        nodes = each_of(find, kinds_of(networks), compiles=True)
        return [*zip(networks, nodes, strict=True)]

    def _mix(self, data: TrainingRows, runs: list[Run]) -> None:
        """Put a mixture of all fits in the place of the best one (W1)."""
        assert isinstance(data, Data)
        fits = self._fits_of(runs)
        networks = [network for network, _ in fits]
        method, key = self._checked_restarts(), self._key("predict")
        weigh = WEIGHTS[method.weights].of_fits
        weights = weigh(networks, data, self.n_draws, key=key)
        few = data.x[: int(data.rows) : -(-int(data.rows) // SCORE_ROWS)]
        self.network_ = self._with_all_outputs(
            mixed(fits, weights, few, self.n_draws, key=key)
        )
        self._tell_restarts(runs, fits, weights)
        self.__dict__.pop("_node_report", None)

    def _tell_restarts(
        self, runs: list[Run], fits: Sequence[Start], weights: np.ndarray
    ) -> None:
        """Keep what there is to say of each of several fits."""
        self.restarts_ = tuple(
            Restart(
                _last_bound(run),
                float(weight),
                nodes.widths if nodes else (),
                fit.likelihood.name,
            )
            for run, weight, (fit, nodes) in zip(runs, weights, fits, strict=True)
        )

    def _sample(
        self,
        data: TrainingRows,
        method: AbstractRefinement,
        fits: list[Start],
        callback: Callback | None,
    ) -> np.ndarray | None:
        """Put draws of the exact posterior in the place of the variational one.

        Returns the share of each chain in them; None where there are none.
        """
        assert isinstance(data, Data)
        with ExitStack() as stack:
            show = lambda done, text: None
            if self.verbose:
                show = stack.enter_context(progress("sampling", method.iterations))

            def after_chunk(done: int) -> None:
                show(done, f"{method.chains} chains")
                if callback is not None:
                    callback(0.5 + 0.5 * done / method.iterations, self.history_)

            key = self._key("refine")
            weigh = WEIGHTS[self._checked_restarts().weights].of_kinds
            found = refine(fits, data, method, after_chunk, weigh, key=key)
        per_chain = None
        if found is not None:
            drawn, self.sampling_, per_chain = found
            self.network_ = self._with_all_outputs(drawn)
            self.__dict__.pop("_node_report", None)
        if found is None or not found[1].is_whole(method):
            self.history_.status = Status.INTERRUPTED
        self._warn_of_sampling(method)
        return per_chain

    def _variational(self) -> Network:
        """The posterior that training goes on from."""
        network = getattr(self, "_start", self.network_)
        if isinstance(network, Network):
            return network
        raise ValueError(
            "This model was refined and comes from a file, or mixes several fits: it "
            "holds draws and not the posterior that training could go on from. Call "
            "`fit` on a new one."
        )

    def _checked_restarts(self) -> Restarts:
        found: Any = self.n_restarts
        if not isinstance(found, Restarts):
            found = Restarts(count=checked_count("n_restarts", found, least=1))
        if found.count > 1 and self.warm_start:
            raise ValueError(
                "`warm_start` goes on from one posterior, and `n_restarts` asks for "
                f"{found.count}. Leave one of the two out."
            )
        return found

    def _checked_refine(self) -> AbstractRefinement | None:
        if self.refine is None:
            return None
        return checked_choice("refine", self.refine, REFINEMENTS, AbstractRefinement)

    def _store(self, run: Run, batches: int) -> None:
        """Keep what a run learned."""
        self.network_ = run.state.result
        self.history_ = run.history
        self.n_iter_ = math.ceil(int(run.state.step) / batches)
        for outdated in OUTDATED:
            self.__dict__.pop(outdated, None)
        self._fixed = {}
        self._warn_of_run(run.schedule.settled)

    def _keep_check_rows(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> None:
        """Keep some rows: for node scores, intervals, the self-check of compaction."""
        every = -(-len(x) // CHECK_ROWS)
        x, y, weight = (values[::every] for values in (x, y, weight))
        self._check_rows = (x.astype(np.float32), _narrow(y), weight)

    @property
    def _nodes(self) -> Nodes:
        """What the posterior says of each node, worked out when first asked for."""
        check_is_fitted(self)
        if not hasattr(self, "_node_report"):
            self._node_report = self._nodes_of(self.network_)
        return self._node_report

    def _nodes_of(self, network: AnyNetwork) -> Nodes:
        x, *_ = self._check_rows
        few = jnp.asarray(x[:: -(-len(x) // SCORE_ROWS)], float)
        return find_nodes(network, few, self.n_draws, key=self._key("nodes"))

    @property
    def widths_(self) -> tuple[int, ...]:
        """Nodes on, one number for each hidden layer."""
        return self._nodes.widths

    @property
    def node_scores_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, each node's share in what it feeds."""
        return self._nodes.scores

    @property
    def node_probabilities_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, the posterior probability that each node is on."""
        return self._nodes.probability_on

    @property
    def weight_norms_(self) -> tuple[np.ndarray, ...]:
        """For each hidden layer, the norm of the expected weights into each node."""
        check_is_fitted(self)
        return tuple(np.asarray(norms) for norms in self.network_.expected_norms())

    def _warn_of_run(self, settled: int) -> None:
        history, rate = self.history_, self.learning_rate_init
        if history.status is Status.NOT_FINITE:
            warn(
                f"The bound stopped being finite at step {history.bad_step}, first in "
                f"`{history.bad_term}`; {history.skipped} steps were skipped and the "
                f"training stopped at step {history.step[-1]}. Try a lower "
                f"`learning_rate_init` (now {rate:.3g}), or look for extreme values."
            )
        elif history.skipped:
            warn(
                f"{history.skipped} steps were not finite and were skipped, the first "
                f"at step {history.bad_step} in `{history.bad_term}`. If there are "
                f"many, try a lower `learning_rate_init` (now {rate:.3g})."
            )
        if history.status is Status.INTERRUPTED:
            done = history.step[-1] if len(history.step) else 0
            warn(
                f"Training was interrupted; the model is that of step {done}. Fit "
                "again, or go on from a checkpoint: `fit(X, y, checkpoint=...)`."
            )
        rise = rise_at_the_end(history, settled) / self._rows_seen
        if history.status is Status.BUDGET and self.early_stopping and rise > RISING:
            warn(
                f"Training has not converged: its budget of {self.n_iter_} passes is "
                f"used up, and at the end of it the bound still rose by {rise:.2g} "
                "nats a row. Try a larger `max_iter`."
            )

    def _warn_of_restarts(self, runs: list[Run], kept: list[Run]) -> None:
        if len(kept) < len(runs):
            warn(
                f"The model mixes {len(kept)} of {len(runs)} fits. They ended so: "
                f"{', '.join(run.history.status for run in runs)}."
            )
        if any(run.history.status is Status.INTERRUPTED for run in runs):
            self.history_.status = Status.INTERRUPTED

    def _warn_of_sampling(self, method: AbstractRefinement) -> None:
        if self.history_.status is Status.INTERRUPTED:
            got = self.sampling_.draws if hasattr(self, "sampling_") else 0
            warn(
                f"Sampling was interrupted after {got} draws of each chain; the model "
                f"is {'made of those' if got else 'the variational one'}."
            )
        elif self.sampling_.r_hat > AGREE:
            warn(
                f"The chains have not mixed: R-hat of the predictions is "
                f"{self.sampling_.r_hat:.2f} and they are worth "
                f"{self.sampling_.effective_draws:.0f} independent draws. Predictions "
                "may be good all the same. For more, try "
                f"`refine={type(method).__name__}(draws=...)` with more than "
                f"{self.sampling_.draws} draws."
            )

    def _warn_of_widths(self) -> None:
        if self.history_.status is Status.NOT_FINITE:
            return
        for index, (on, of) in enumerate(
            zip(self.widths_, self._built_widths, strict=True), start=1
        ):
            if on == 0:
                warn(
                    f"All {of} nodes of hidden layer {index} are off: the model "
                    "predicts a constant. Either the inputs do not tell of the target, "
                    "or the training was too short: try a larger `max_iter`."
                )
            elif on > NEARLY_ALL * of:
                warn(
                    f"{on} of {of} nodes of hidden layer {index} are on: the network "
                    "may be too narrow. Try a larger `hidden_layer_sizes`."
                )

    def _partial_fit(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, n_rows
    ) -> Self:
        """One pass over the given rows, at a constant learning rate."""
        if (count := self._checked_restarts().count) > 1:
            raise ValueError(
                "`partial_fit` goes on from one posterior, and `n_restarts` asks for "
                f"{count}. Set `n_restarts` to 1, or call `fit`."
            )
        if not hasattr(self, "network_"):
            widths = self._checked_widths()
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._standardise(x, y, weight)
            self._rows_seen = 0.0
            self._built_widths = widths
            likelihood = self._likelihood_for(weight.sum(), 0)
            network = self._build(x.shape[1], widths, likelihood)
            endless = self._endless(len(x), warm_up=PARTIAL_WARM_UP)
            self._run = Run.create(network, endless)
        elif not hasattr(self, "_run"):  # goes on from a `fit`
            endless = self._endless(len(x), warm_up=0)
            self._run = Run.create(self._variational(), endless)
        self._rows_seen += weight.sum()
        total = (
            self._rows_seen if n_rows is None else checked_positive("n_rows", n_rows)
        )
        x, y = self._x_standard(x), self._targets(y)
        # Each row stands for as many as there are of them in the whole data set.
        config = self._config(len(x))
        data = Data.create(
            x, y, weight * total / weight.sum(), batch_size=config.batch_size
        )
        run = self._run
        network = _with_total(run.state.network, self._likelihood_for(total, 0))
        state = dataclasses.replace(run.state, network=network)
        history = run.history
        for _ in range(int(data.batches)):
            state, means = run_chunk(
                state, data, run.schedule, 1, 1, key=self._key("train")
            )
            terms = dict(zip(history.terms, np.asarray(means, float).T, strict=True))
            history = history.extended(np.array([int(state.step)]), terms)
        history.skipped = int(state.skipped)
        self._run = Run(state, run.schedule, history)
        self._keep_check_rows(x, y, weight)
        self._store(self._run, int(data.batches))
        return self

    # -- checks and settings ------------------------------------------------------

    def _config(
        self, rows: int, steps: int | None = None, warm_up: int | None = None
    ) -> TrainConfig:
        """Settings of the training for so many rows."""
        batch_size: Any = self.batch_size
        if batch_size == "auto":
            batch_size = rows if rows <= SMALL else BATCH
        elif not isinstance(batch_size, Integral) or batch_size < 1:
            raise ValueError(
                "`batch_size` must be 'auto' or a whole number from 1, got "
                f"{batch_size!r}."
            )
        batch_size = int(batch_size)
        passes = math.ceil(rows / batch_size)
        if steps is None:
            steps = self._steps(rows, passes)
        share = checked_number(
            "kl_warm_up",
            self.kl_warm_up,
            lambda v: 0 <= v <= 1,
            "a share of the steps, from 0 to 1",
        )
        if warm_up is not None:
            share = warm_up / steps
        if self._goes_on:
            share = 0.0  # the posterior is not to be forgotten first
        return TrainConfig(
            steps=steps,
            batch_size=batch_size,
            learning_rate=checked_positive(
                "learning_rate_init", self.learning_rate_init
            ),
            kl_weight=self._checked_kl_weight(knows_its_end=warm_up is None),
            kl_warm_up=share,
            averaging=checked_number(
                "averaging",
                self.averaging,
                lambda v: 0 <= v < 1,
                "a share, from 0 to less than 1",
            ),
            tolerance=self._checked_tolerance(),
        )

    def _checked_kl_weight(self, *, knows_its_end: bool) -> float | KlRelease:
        """A number or a release; only a fresh run that knows its end is released."""
        if not isinstance(self.kl_weight, KlRelease):
            return checked_positive("kl_weight", self.kl_weight)
        fresh = knows_its_end and not self._goes_on
        return self.kl_weight if fresh else self.kl_weight.final

    def _endless(self, rows: int, *, warm_up: int) -> TrainConfig:
        """Settings of `partial_fit`, which never knows its last step."""
        config = self._config(rows, steps=2**30, warm_up=warm_up)
        return dataclasses.replace(config, averaging=0.0)

    @property
    def _goes_on(self) -> bool:
        """Whether `fit` starts from the posterior of the `fit` before it."""
        return bool(self.warm_start) and hasattr(self, "network_")

    def _checked_tolerance(self) -> float:
        tolerance = checked_number(
            "tol", self.tol, lambda v: v >= 0, "a number of nats a row from 0"
        )
        return tolerance if self.early_stopping else 0.0

    def _steps(self, rows: int, batches: int) -> int:
        passes: Any = self.max_iter
        if passes == "auto":
            least = STEPS_FEW_ROWS if rows <= FEW_ROWS else STEPS
            return int(np.clip(STEPS_A_ROW * rows, least, MOST_STEPS))
        if not isinstance(passes, Integral) or passes < 1:
            raise ValueError(
                "`max_iter` must be 'auto' or a whole number of passes from 1, got "
                f"{passes!r}."
            )
        return int(passes) * batches

    def _checked_widths(self) -> tuple[int, ...]:
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
        checked_count("n_draws", self.n_draws, least=2)
        return tuple(int(size) for size in sizes)

    def _build(
        self,
        d_in: int,
        widths: tuple[int, ...],
        likelihood: AbstractLikelihood,
        restart: int = 0,
    ) -> Network:
        prior = checked_choice("prior", self.prior, PRIORS, AbstractPrior)
        posterior = checked_choice(
            "posterior", self.posterior, POSTERIORS, AbstractPosterior
        )
        if isinstance(posterior, Tied) and not prior.can_tie:
            raise ValueError(
                "`posterior` ties weights to the scale of their node. That needs a "
                "non-centred prior with a scale for each node, such as "
                f'prior="horseshoe", got {prior!r}.'
            )
        return Network.create(
            d_in,
            widths,
            likelihood,
            prior,
            posterior,
            activation=self.activation,
            inputs=InputScales.create(d_in) if self.input_horseshoe else None,
            key=self._key("build", restart),
        )

    def _key(self, purpose: str, restart: int = 0) -> jax.Array:
        """The key of one use of the seed; the first of several fits has the seed's."""
        uses = ("build", "train", "nodes", "predict", "refine")
        key = jr.key(self._seed)
        key = jr.fold_in(key, len(uses) + restart) if restart else key
        return jr.fold_in(key, uses.index(purpose))

    @abc.abstractmethod
    def _likelihood_for(self, rows: float, fit: int) -> AbstractLikelihood:
        """The likelihood of so many rows in one of several fits."""

    def _likelihood_of_all(self) -> AbstractLikelihood:
        """That of the posterior that mixes all fits: the one with the most outputs."""
        fits = range(self._checked_restarts().count)
        every = [self._likelihood_for(1.0, fit) for fit in fits]
        return max(every, key=lambda likelihood: likelihood.d_out)

    def _with_all_outputs(self, network: DrawnNetwork) -> DrawnNetwork:
        """The draws as a file has them, also where the fits with most were lost."""
        widest = self._likelihood_of_all()
        lacking = network.likelihood.d_out < widest.d_out
        return network.under(widest) if lacking else network

    @abc.abstractmethod
    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets in the units of the network."""

    @abc.abstractmethod
    def _target_scale(self) -> np.ndarray:
        """What one unit of the network is in the units of each target."""

    @abc.abstractmethod
    def _own_from_file(self, header: dict, arrays: dict[str, np.ndarray]) -> None:
        """Take from a file what only this estimator has."""

    def _standardise(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
        del y
        if self.standardise:
            self._x_standard = Standardiser.create(x, weight)
        else:
            self._x_standard = identity_units(x.shape[1])

    def _checked_rows(self, X: Unchecked) -> np.ndarray:
        """Rows to predict for, in standard units."""
        check_is_fitted(self)
        with numbers_only("X"):
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._x_standard(X)

    def _fingerprint(self, *rows: np.ndarray | bytes) -> str:
        """What a checkpoint must agree on: rows, settings, precision."""
        digest = hashlib.sha256()
        for values in rows:
            digest.update(np.ascontiguousarray(values).tobytes())
        params = self.get_params(deep=False).items()
        settings = {k: _encode(v) for k, v in params if k != "verbose"}
        settings["precision"] = str(jnp.result_type(float))
        digest.update(repr(sorted(settings.items())).encode())
        return digest.hexdigest()

    # -- pickling, for joblib -----------------------------------------------------

    def __getstate__(self) -> dict:
        """JAX arrays as NumPy arrays: a worker process gets no device buffers."""
        state = {n: _converted(v, np.asarray) for n, v in vars(self).items()}
        if "_fixed" in state:
            state["_fixed"] = {}  # what can be made again
        return state

    def __setstate__(self, state: dict) -> None:
        """Networks get their JAX arrays back."""
        state = {name: _converted(value, jnp.asarray) for name, value in state.items()}
        super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there is a network."""
        return hasattr(self, "network_")

    # -- files --------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one `.safetensors` file; see `farrier.load`."""
        check_is_fitted(self)
        header, arrays = self._to_file()
        persist.write(path, "model", header, arrays)

    def _to_file(self) -> tuple[dict, dict[str, np.ndarray]]:
        """Header and arrays of the file; subclasses add what is theirs."""
        compacted, history = self._compacted(), self.history_
        header = {
            "class": type(self).__name__,
            "version": version("farrier"),
            "params": {k: _encode(v) for k, v in self.get_params(deep=False).items()},
            "seed": self._seed,
            "n_features_in": self.n_features_in_,
            "feature_names_in": _listed(getattr(self, "feature_names_in_", None)),
            "n_iter": self.n_iter_,
            "rows": float(self._rows_seen),
            "widths": self.network_.widths,
            "built_widths": self._built_widths,
            "compaction": {
                "moved": compacted.moved,
                "log_density_change": compacted.log_density_change,
                "done": hasattr(self, "compaction_"),
            },
            "history": history.summary(),
            "sampling": vars(self.sampling_) if hasattr(self, "sampling_") else None,
            "restarts": [vars(restart) for restart in getattr(self, "restarts_", ())],
        }
        arrays = persist.flatten(self.network_, "network")
        posterior, _ = self._predictive(self.n_draws)
        if posterior is not self.network_:
            arrays |= persist.flatten(posterior, "fixed")
        arrays |= persist.flatten(compacted.network, "compact")
        for layer, (share, keep) in enumerate(
            zip(self._nodes.shares, compacted.keep, strict=True)
        ):
            arrays[f"nodes[{layer}].shares"] = share
            arrays[f"nodes[{layer}].keep"] = keep
        if compacted.columns is not None and self._nodes.columns is not None:
            arrays["columns.shares"] = self._nodes.columns
            arrays["columns.keep"] = compacted.columns
        arrays["x.mean"], arrays["x.scale"] = (
            self._x_standard.mean,
            self._x_standard.scale,
        )
        arrays |= history_arrays(history)
        return header, arrays

    @classmethod
    def _from_file(cls, header: dict, arrays: dict[str, np.ndarray]) -> Self:
        """The estimator that `_to_file` wrote."""
        model = cls(
            **{name: _decode(value) for name, value in header["params"].items()}
        )
        model._seed = header["seed"]
        model.n_features_in_ = header["n_features_in"]
        if header["feature_names_in"] is not None:
            model.feature_names_in_ = np.asarray(header["feature_names_in"], object)
        model.n_iter_ = header["n_iter"]
        model._rows_seen = header["rows"]
        model._built_widths = tuple(header["built_widths"])
        model._x_standard = Standardiser(arrays["x.mean"], arrays["x.scale"])
        model._own_from_file(header, arrays)
        layers = range(len(header["widths"]))
        keep = tuple(arrays[f"nodes[{layer}].keep"] for layer in layers)
        done = header["compaction"].pop("done")
        whole = tuple(np.ones_like(kept) for kept in keep)
        sampled, several = header.get("sampling"), header.get("restarts")
        drawn = sampled is not None or bool(several)
        read = partial(model._read_network, arrays=arrays, drawn=drawn)
        columns = arrays.get("columns.keep")
        model.network_ = (
            read(keep, columns, "network") if done else read(whole, None, "network")
        )
        compacted = read(keep, columns, "compact")
        model._compaction = Compaction(
            compacted, keep, **header["compaction"], columns=columns
        )
        if done:
            model.compaction_ = model._compaction
        model._fixed = model._read_fixed(arrays)
        ones = tuple(1 for _ in layers)
        form = eqx.filter_eval_shape(
            lambda: model._build(1, ones, model._likelihood_of_all())
        )
        names = form.term_names()
        model.history_ = read_history(names, arrays, header["history"])
        if sampled is not None:
            model.sampling_ = Sampling(**sampled)
        if several:
            fields = [r | {"widths": tuple(r["widths"])} for r in several]
            model.restarts_ = tuple(Restart(**each) for each in fields)
        model._node_report = Nodes(
            tuple(arrays[f"nodes[{layer}].shares"] for layer in layers),
            arrays.get("columns.shares"),
        )
        return model

    def _read_fixed(self, arrays: dict[str, np.ndarray]) -> dict[int, DrawnNetwork]:
        """The draws that the file has for predictions, by their number."""
        if "fixed.noise_sd" not in arrays:
            return {}
        assert isinstance(self.network_, Network)
        draws = len(arrays["fixed.noise_sd"])
        form = eqx.filter_eval_shape(form_of_fixed, self.network_, draws)
        return {draws: persist.fill(form, "fixed", arrays)}

    def _read_network(
        self,
        keep: tuple[np.ndarray, ...],
        columns: np.ndarray | None,
        prefix: str,
        arrays: dict,
        *,
        drawn: bool,
    ) -> AnyNetwork:
        """The network of a file, which has the kept nodes of the one that was built."""
        widths = tuple(len(kept) for kept in keep)

        def skeleton() -> AnyNetwork:
            likelihood = self._likelihood_of_all()
            network = self._build(self.n_features_in_, widths, likelihood)
            if not drawn:
                return drop(network, keep, columns)
            # Draws have all columns, those that were taken out with weights of 0.
            draws = len(arrays[f"{prefix}.noise_sd"])
            return DrawnNetwork.like(drop(network, keep), draws)

        # Nothing but shapes: no array is made that the file does not have.
        return persist.fill(eqx.filter_eval_shape(skeleton), prefix, arrays)


def no_key() -> jax.Array:
    """Where a key is asked for and nothing is random: made without compiling."""
    return jr.wrap_key_data(jnp.asarray(np.zeros(2, np.uint32)))


def _narrow(y: np.ndarray) -> np.ndarray:
    return y.astype(np.float32) if y.dtype.kind == "f" else y


def _converted(value: Any, convert: Callable) -> Any:
    """The value, with the arrays of all networks that it holds converted."""
    if isinstance(value, eqx.Module):
        return converted(value, convert)
    if isinstance(value, Run | Compaction):
        fields = {n: _converted(v, convert) for n, v in vars(value).items()}
        return dataclasses.replace(value, **fields)
    return value


def _with_total(network: Network, likelihood: AbstractLikelihood) -> Network:
    """The network with the shape of q(gamma) that the number of rows asks for (M8)."""
    return dataclasses.replace(
        network, likelihood=network.likelihood.with_rows_of(likelihood)
    )


def _with_columns_of(old: Network, new: Network) -> Network:
    """A new network without the columns that compaction has taken from the old one."""
    if old.inputs is None or new.inputs is None:
        return new
    kept = np.isin(np.arange(new.inputs.total), old.inputs.columns)
    return drop(new, tuple(np.ones(width, bool) for width in new.widths), kept)


def _with_rows(old: Network, new: Network) -> Network:
    """The posterior of an earlier fit, for the number of rows of a new one."""

    def form(network: Network) -> Network:
        return jax.tree.map(lambda v: v.shape if eqx.is_array(v) else v, network)

    if not eqx.tree_equal(form(old), form(new)):
        raise ValueError(
            f"`warm_start` goes on from a network of widths {old.widths}, but the "
            f"settings ask for another one, of widths {new.widths}. Take back the "
            "change of widths, activation, prior or likelihood, or set `warm_start` to "
            "False."
        )
    return _with_total(old, new.likelihood)


def _title(jobs: list[Job]) -> str:
    return "fit" if len(jobs) == 1 else f"{len(jobs)} fits"


def _note(run: Run, rows: int) -> str:
    return f"bound {run.history.bound[-1] / rows:.3f} nats a row"


def steps_counter(budgets: list[int]) -> Callable[[int, Run], int]:
    """What counts the steps of all fits; one that ended early has done all its steps.

    It is called with the number of a fit and its run.
    """
    done = [0] * len(budgets)

    def count(number: int, run: Run) -> int:
        ended = run.history.status is not Status.RUNNING
        done[number] = budgets[number] if ended else int(run.state.step)
        return sum(done)

    return count


def _last_bound(run: Run) -> float:
    bound = run.history.bound
    return float(bound[-1]) if len(bound) and np.isfinite(bound[-1]) else -math.inf


def _best_first(runs: list[Run]) -> list[Run]:
    """Fits that have ended, or else those under way, by their bounds."""
    ended = [run for run in runs if run.history.status in ENDED]
    stopped = [run for run in runs if run.history.status is Status.INTERRUPTED]
    under_way = [run for run in stopped if math.isfinite(_last_bound(run))]
    return sorted(ended or under_way or runs[:1], key=_last_bound, reverse=True)


_CHOICES = (*PRIORS.values(), *POSTERIORS.values(), *REFINEMENTS.values())
_CHOICES += (*NOISES.values(), Categorical(), Restarts(), KlRelease())
_OBJECTS = {type(choice).__name__: type(choice) for choice in _CHOICES}


def _encode(value: Any) -> Any:
    """A constructor argument as JSON."""
    if type(value).__name__ in _OBJECTS:
        return {"object": type(value).__name__, "fields": dataclasses.asdict(value)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.random.RandomState):
        return None  # its state was used up by the fit, whose seed is kept apart
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[_encode(k), _encode(v)] for k, v in value.items()]}
    if isinstance(value, tuple | list | np.ndarray):
        return [_encode(entry) for entry in value]
    return value


def _decode(value: Any) -> Any:
    """A constructor argument from JSON."""
    if isinstance(value, dict) and "object" in value:
        return _OBJECTS[value["object"]](**value["fields"])
    if isinstance(value, dict):
        return {k: v for k, v in value["pairs"]}
    return tuple(map(_decode, value)) if isinstance(value, list) else value


def _listed(values: np.ndarray | None) -> list | None:
    return None if values is None else values.tolist()
