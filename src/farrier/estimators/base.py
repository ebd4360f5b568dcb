"""What the estimators share: settings, training, node reports, files."""

import abc
import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any, Self, TypeAlias

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
    read_history,
    read_seed,
    resume,
    write_checkpoint,
)
from ..console import progress
from ..core.posteriors import POSTERIORS, AbstractPosterior
from ..core.priors import PRIORS, AbstractPrior
from ..infer.compact import (
    NEARLY_ALL,
    Compaction,
    Nodes,
    compact,
    drop,
    find_nodes,
)
from ..infer.refine import REFINEMENTS, Nuts, Sampling, refine
from ..infer.shrink import can_shrink, could_pay, shrunk
from ..infer.train import (
    Data,
    History,
    Job,
    Run,
    Status,
    TrainConfig,
    converted,
    rise_at_the_end,
    run_chunk,
    train,
)
from ..model.drawn import AnyNetwork, DrawnNetwork
from ..model.inputs import InputScales
from ..model.likelihoods import (
    AbstractLikelihood,
    Categorical,
    GaussianLikelihood,
    GaussianNoise,
)
from ..model.network import ACTIVATIONS, Network
from ..prepare import Standardiser, merge_rows
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
STEPS = 6_000  # budget where a pass is short
FEW_ROWS = 256  # with so few rows, wide networks need longer to leave the constant ...
STEPS_FEW_ROWS = 10_000  # ... and steps are cheap
PASSES = 40  # budget where a pass is long ...
MOST_STEPS = 20_000  # ... but never more than this
CHECK_ROWS = 10_000  # training rows kept for the self-check of compaction
SCORE_ROWS = 1_000  # training rows from which node scores are worked out
RISING = 0.02  # nats a row; a bound that rises by more at the end is not there yet
AGREE = 1.1  # an R-hat over this says that chains have not met
# What a fit before has left behind.
OUTDATED = ("_compaction", "compaction_", "_node_report", "_input_report")
OUTDATED += ("sampling_", "_start")
PARTIAL_WARM_UP = 1_000  # steps of partial_fit over which the KL weight rises


Callback: TypeAlias = Callable[[float, History], None]


class NetworkEstimator(CallbackSupportMixin, BaseEstimator):
    """What regression and classification share."""

    n_features_in_: int
    feature_names_in_: np.ndarray
    compaction_: Compaction
    network_: AnyNetwork
    sampling_: Sampling

    def __init__(
        self,
        hidden_layer_sizes=(100,),
        activation="relu",
        *,
        prior="horseshoe",
        posterior="factorised",
        likelihood=None,
        kl_weight=1.0,
        kl_warm_up=0.6,
        learning_rate_init=0.01,
        batch_size="auto",
        max_iter="auto",
        averaging=0.0,
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
        small = copy.copy(self)
        if hasattr(self, "compaction_"):
            return small
        small._compaction = small.compaction_ = self._compacted()
        small.network_ = small.compaction_.network
        small.__dict__.pop("_run", None)
        kept = small.compaction_.keep
        small._node_report = Nodes(
            tuple(s[:, k] for s, k in zip(self._nodes.shares, kept, strict=True)),
            self._nodes.columns,
        )
        return small

    def _compacted(self) -> Compaction:
        if not hasattr(self, "_compaction"):
            x, y = self._check_rows
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
    ) -> Self:
        """Train, and store what was learned; all of it, or nothing if it fails."""
        with all_or_nothing(self):
            rows = self._prepare(X, y, sample_weight)
            job = self._job(*rows, checkpoint)
            after_chunk, at_end = watcher(self, job, X, y)
            run = self._train(job, checkpoint, callback, after_chunk)
            self._finish(job, run, callback)
            at_end()
        return self

    def _job(
        self,
        x: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray,
        checkpoint: str | Path | None = None,
    ) -> Job:
        """The training that checked rows and the settings ask for."""
        going_on = self._goes_on
        self.__dict__.pop("_run", None)
        widths = self._checked_widths()
        self._checked_refine()
        x, y, weight = merge_rows(x, y, weight)
        config = self._config(len(x))
        state = check_random_state(self.random_state)
        seed = int(state.randint(2**31 - 1))
        if not going_on:
            self._standardise(x, y, weight)
        x, y = self._x_standard(x), self._targets(y)
        if checkpoint is not None:
            self._mark = self._fingerprint(x, y, weight)
            stored = read_seed(checkpoint, mark=self._mark)
            seed = seed if stored is None else stored
        self._seed = seed
        data = Data.create(x, y, weight, batch_size=config.batch_size)
        if going_on and widths == self._built_widths:
            widths = self._variational().widths  # some may have left since
        else:
            self._built_widths = widths
        network = self._build(x.shape[1], widths, weight.sum())
        if going_on:
            old = self._variational()
            network = _with_rows(old, _with_columns_of(old, network))
        self._rows_seen = weight.sum()
        run = Run.create(network, config)
        if checkpoint is not None:
            run = resume(checkpoint, run)
        self._keep_check_rows(x, y)
        job = Job(run, data, config, self._key("train"))
        if self.shrink and can_shrink(job) and could_pay(job):
            job.shrink = shrunk
        return job

    def _train(
        self,
        job: Job,
        checkpoint: str | Path | None,
        callback: Callback | None,
        watch: Callable[[Run], None],
    ) -> Run:
        """The training loop with its progress and its checkpoints."""
        watchers = [watch]
        if checkpoint is not None:
            watchers.append(
                lambda run: write_checkpoint(
                    checkpoint, run, mark=self._mark, seed=self._seed
                )
            )
        if callback is not None:
            steps = job.config.steps * (1 if self.refine is None else 2)
            watchers.append(
                lambda run: callback(int(run.state.step) / steps, run.history)
            )
        with ExitStack() as stack:
            if self.verbose:
                show = stack.enter_context(progress("fit", job.config.steps))
                rows = int(job.data.rows)
                watchers.append(lambda run: show(*_progress_note(run, rows)))

            def after_chunk(run: Run) -> None:
                for watch in watchers:
                    watch(run)

            return train(job, after_chunk)

    def _finish(self, job: Job, run: Run, callback: Callback | None = None) -> Self:
        """Keep what a fit learned, and warn of what its user should know."""
        self._store(run, int(job.data.batches))
        self._warn_of_widths()
        method = self._checked_refine()
        ended = (Status.CONVERGED, Status.BUDGET)
        if method is not None and self.history_.status in ended:
            self._sample(job.data, method, callback)
        return self

    def _sample(self, data: Data, method: Nuts, callback: Callback | None) -> None:
        """Put draws of the exact posterior in the place of the variational one."""
        start = self.network_
        assert isinstance(start, Network)
        with ExitStack() as stack:
            show = lambda done, text: None
            if self.verbose:
                show = stack.enter_context(progress("sampling", method.iterations))

            def after_chunk(done: int) -> None:
                show(done, f"{method.chains} chains")
                if callback is not None:
                    callback(0.5 + 0.5 * done / method.iterations, self.history_)

            key = self._key("refine")
            found = refine(start, self._nodes, data, method, after_chunk, key=key)
        if found is not None:
            self.network_, self.sampling_ = found
            self._start = start
            self.__dict__.pop("_node_report", None)
        if found is None or found[1].draws < method.draws:
            self.history_.status = Status.INTERRUPTED
        self._warn_of_sampling()

    def _variational(self) -> Network:
        """The posterior that training goes on from."""
        network = getattr(self, "_start", self.network_)
        if isinstance(network, Network):
            return network
        raise ValueError(
            "This model was refined and comes from a file, which holds draws and not "
            "the posterior that training could go on from. Call `fit` on a new one."
        )

    def _checked_refine(self) -> Nuts | None:
        if self.refine is None:
            return None
        return checked_choice("refine", self.refine, REFINEMENTS, Nuts)

    def _store(self, run: Run, batches: int) -> None:
        """Keep what a run learned."""
        self.network_ = run.state.result
        self.history_ = run.history
        self.n_iter_ = math.ceil(int(run.state.step) / batches)
        for outdated in OUTDATED:
            self.__dict__.pop(outdated, None)
        self._warn_of_run()

    def _keep_check_rows(self, x: np.ndarray, y: np.ndarray) -> None:
        """Keep some rows, for node scores and for the self-check of compaction."""
        every = -(-len(x) // CHECK_ROWS)
        self._check_rows = (x[::every].astype(np.float32), _narrow(y[::every]))

    @property
    def _nodes(self) -> Nodes:
        """What the posterior says of each node, worked out when first asked for."""
        check_is_fitted(self)
        if not hasattr(self, "_node_report"):
            x, _ = self._check_rows
            few = jnp.asarray(x[:: -(-len(x) // SCORE_ROWS)], float)
            self._node_report = find_nodes(
                self.network_, few, self.n_draws, key=self._key("nodes")
            )
        return self._node_report

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

    def _warn_of_run(self) -> None:
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
        rise = rise_at_the_end(history) / self._rows_seen
        if history.status is Status.BUDGET and self.early_stopping and rise > RISING:
            warn(
                f"Training has not converged: its budget of {self.n_iter_} passes is "
                f"used up, and over the last fifth of it the bound still rose by "
                f"{rise:.2g} nats a row. Try a larger `max_iter`."
            )

    def _warn_of_sampling(self) -> None:
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
                "may be good all the same. For more, try `refine=Nuts(draws=...)` with "
                f"more than {self.sampling_.draws} draws."
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
        if not hasattr(self, "network_"):
            widths = self._checked_widths()
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self._standardise(x, y, weight)
            self._rows_seen = 0.0
            self._built_widths = widths
            network = self._build(x.shape[1], widths, weight.sum())
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
        network = _with_total(run.state.network, self._likelihood_for(total))
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
        self._keep_check_rows(x, y)
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
            kl_weight=checked_positive("kl_weight", self.kl_weight),
            kl_warm_up=share,
            averaging=checked_number(
                "averaging",
                self.averaging,
                lambda v: 0 <= v < 1,
                "a share, from 0 to less than 1",
            ),
            tolerance=self._checked_tolerance(),
        )

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
            return int(np.clip(PASSES * batches, least, MOST_STEPS))
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

    def _build(self, d_in: int, widths: tuple[int, ...], rows: float) -> Network:
        return Network.create(
            d_in,
            widths,
            self._likelihood_for(rows),
            checked_choice("prior", self.prior, PRIORS, AbstractPrior),
            checked_choice("posterior", self.posterior, POSTERIORS, AbstractPosterior),
            activation=self.activation,
            inputs=InputScales.create(d_in) if self.input_horseshoe else None,
            key=self._key("build"),
        )

    def _key(self, purpose: str) -> jax.Array:
        """The key of one use of the seed."""
        uses = ("build", "train", "nodes", "predict", "refine")
        return jr.fold_in(jr.key(self._seed), uses.index(purpose))

    @abc.abstractmethod
    def _likelihood_for(self, rows: float) -> AbstractLikelihood:
        """The likelihood of so many rows."""

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
            self._x_standard = Standardiser(np.zeros(x.shape[1]), np.ones(x.shape[1]))

    def _checked_rows(self, X: Unchecked) -> np.ndarray:
        """Rows to predict for, in standard units."""
        check_is_fitted(self)
        with numbers_only("X"):
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._x_standard(X)

    def _fingerprint(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> str:
        """What a checkpoint must agree on: rows, settings, precision."""
        digest = hashlib.sha256()
        for values in (x, y, weight):
            digest.update(np.ascontiguousarray(values).tobytes())
        params = self.get_params(deep=False).items()
        settings = {k: _encode(v) for k, v in params if k != "verbose"}
        settings["precision"] = str(jnp.result_type(float))
        digest.update(repr(sorted(settings.items())).encode())
        return digest.hexdigest()

    # -- pickling, for joblib -----------------------------------------------------

    def __getstate__(self) -> dict:
        """JAX arrays as NumPy arrays: a worker process gets no device buffers."""
        state = vars(self).items()
        return {name: _converted(value, np.asarray) for name, value in state}

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
        }
        arrays = persist.flatten(self.network_, "network")
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
        sampled = header.get("sampling") is not None
        read = partial(model._read_network, arrays=arrays, sampled=sampled)
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
        ones = tuple(1 for _ in layers)
        form = eqx.filter_eval_shape(lambda: model._build(1, ones, 1.0))
        names = form.term_names()
        model.history_ = read_history(names, arrays, header["history"])
        if sampled:
            model.sampling_ = Sampling(**header["sampling"])
        model._node_report = Nodes(
            tuple(arrays[f"nodes[{layer}].shares"] for layer in layers),
            arrays.get("columns.shares"),
        )
        return model

    def _read_network(
        self,
        keep: tuple[np.ndarray, ...],
        columns: np.ndarray | None,
        prefix: str,
        arrays: dict,
        *,
        sampled: bool,
    ) -> AnyNetwork:
        """The network of a file, which has the kept nodes of the one that was built."""
        widths = tuple(len(kept) for kept in keep)

        def skeleton() -> AnyNetwork:
            network = self._build(self.n_features_in_, widths, 1.0)
            if not sampled:
                return drop(network, keep, columns)
            # Draws have all columns, those that were taken out with weights of 0.
            draws = len(arrays[f"{prefix}.noise_sd"])
            return DrawnNetwork.like(drop(network, keep), draws)

        # Nothing but shapes: no array is made that the file does not have.
        return persist.fill(eqx.filter_eval_shape(skeleton), prefix, arrays)


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
    before = network.likelihood
    if not isinstance(before, GaussianLikelihood):
        return network
    assert isinstance(likelihood, GaussianLikelihood)
    old = before.gamma
    rescaled = dataclasses.replace(
        likelihood.gamma,
        log_rate=old.log_rate + jnp.log(likelihood.gamma.fixed_shape / old.fixed_shape),
    )
    return dataclasses.replace(
        network, likelihood=dataclasses.replace(likelihood, gamma=rescaled)
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


def _progress_note(run: Run, rows: int) -> tuple[int, str]:
    last = run.history.bound[-1] / rows
    return int(run.state.step), f"bound {last:.3f} nats a row"


_CHOICES = (*PRIORS.values(), *POSTERIORS.values(), *REFINEMENTS.values())
_CHOICES += (GaussianNoise(), Categorical())
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
    return tuple(value) if isinstance(value, list) else value


def _listed(values: np.ndarray | None) -> list | None:
    return None if values is None else values.tolist()
