"""A fit, from rows in the units of the network to a fitted model.

`plan_fit` builds a network and a training run for each restart; the runs are trained;
`complete` samples by MCMC or combines several fits, and returns a `FittedModel`.
`fit_model` does all three. The estimators check their input and call these functions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from .checkpoint import numbered, resume, write_checkpoint
from .core.posteriors import AbstractWeightPosterior
from .core.priors import AbstractPrior
from .infer import intervals
from .infer.compact import Compaction, compact
from .infer.ensemble import FitSummary, draw_groups, ensemble
from .infer.nodes import Nodes, find_nodes
from .infer.predict import summarise
from .infer.relevance import input_shares
from .infer.sample.chains import Fit, for_each, refine, samples_all
from .infer.sample.settings import AbstractRefinement, Sampling
from .model.likelihoods import AbstractLikelihood
from .model.network import Network
from .model.posterior import AbstractPosterior, VariationalPosterior, stored
from .scale.placement import ONE_DEVICE, AbstractPlacement
from .train.config import TrainConfig, Training
from .train.data import Data
from .train.history import History, Status
from .train.loop import Job, Run, TrainingRows, train
from .train.parallel import train_many
from .train.shrink import Shrinking, can_shrink
from .train.step import converted
from .units import Standardiser

CHECK_ROWS = 10_000  # training rows kept for the self-check of compaction
SCORE_ROWS = 1_000  # training rows from which node scores are computed
ENDED = (Status.CONVERGED, Status.BUDGET)
KEY_USES = ("build", "train", "nodes", "predict", "refine")

Watch = Callable[[int, Run], None]  # called with the number of a fit and its run


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
class FitRows:
    """The rows that a network is trained on.

    Parameters
    ----------
    data
        In the units of the network.
    total
        Sum of the row weights.
    epoch_batches
        Steps in one epoch, where `data` is streamed; None for rows in memory.
    """

    data: TrainingRows
    sample: Sample
    total: float
    epoch_batches: int | None = None


@dataclass(frozen=True)
class Recipe:
    """What is fitted, and how: the settings of an estimator, checked."""

    widths: tuple[int, ...]
    activation: str
    prior: AbstractPrior
    weights: AbstractWeightPosterior
    likelihood: Callable[[float], AbstractLikelihood]  # of the sum of row weights
    training: Training
    kl_annealing: float  # what "auto" stands for
    restarts: int
    refinement: AbstractRefinement | None
    draws: int

    def build(self, d_in: int, widths: tuple[int, ...], total: float, key) -> Network:
        """A network before training."""
        return Network.create(
            d_in,
            widths,
            self.likelihood(total),
            self.prior,
            self.weights,
            activation=self.activation,
            key=key,
        )


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

    @cached_property
    def predictor(self) -> AbstractPosterior:
        """The posterior with `draws` draws; those of a small network are stored."""
        key = key_for(self.seed, "predict")
        return stored(self.posterior.resampled(self.draws, key=key))

    @cached_property
    def nodes(self) -> Nodes:
        """What the posterior says about each node."""
        return nodes_of(self.posterior, self.known_sample, self.seed, self.draws)

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
        cdf, args = "leave_one_out_cdf", (group,)
        position = summarise(cdf, self.predictor, rows.x, rows.y, args=args)
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
        small = replace(
            self, posterior=compaction.posterior, network=None, is_compact=True
        )
        if isinstance(compaction.posterior, VariationalPosterior):
            small = replace(small, network=compaction.posterior.network)
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
    if isinstance(value, Run | Compaction):
        fields = {n: _converted(v, convert) for n, v in vars(value).items()}
        return replace(value, **fields)
    return value


def key_for(seed: int, use: str, restart: int = 0) -> PRNGKeyArray:
    """The key of one use of a seed, in one of several fits."""
    key = jr.key(seed)
    key = jr.fold_in(key, len(KEY_USES) + restart) if restart else key
    return jr.fold_in(key, KEY_USES.index(use))


def nodes_of(
    posterior: AbstractPosterior, sample: Sample, seed: int, draws: int
) -> Nodes:
    """Node scores of a posterior, on some training rows."""
    key = key_for(seed, "nodes")
    return find_nodes(posterior.resampled(draws, key=key), sample.few)


# -- a fit in three parts --------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The training runs of a fit, before or after they are trained."""

    jobs: list[Job]
    rows: FitRows
    units: Units
    recipe: Recipe
    seed: int
    built_widths: tuple[int, ...]


def fit_model(
    rows: FitRows,
    units: Units,
    recipe: Recipe,
    *,
    seed: int,
    start: FittedModel | None = None,
    checkpoint: str | Path | None = None,
    mark: str = "",
    watch: Sequence[Watch] = (),
    on_sampling: Callable[[int], None] = lambda done: None,
    placement: AbstractPlacement = ONE_DEVICE,
) -> FittedModel:
    """Train, then sample by MCMC or combine several fits.

    Parameters
    ----------
    start
        A model whose posterior training goes on from.
    checkpoint, mark
        A file that is written after each chunk of steps, and a text that says which
        rows and settings it belongs to.
    watch
        Called after each chunk with the number of a fit and its run.
    on_sampling
        Called with the MCMC iterations that are done.
    placement
        The devices and processes that train.
    """
    plan = plan_fit(rows, units, recipe, seed=seed, start=start, checkpoint=checkpoint)
    watch = [*watch, *checkpoint_writer(checkpoint, mark, seed, placement)]
    runs = train_plan(plan, watch, placement)
    return complete(plan, runs, on_sampling)


def plan_fit(
    rows: FitRows,
    units: Units,
    recipe: Recipe,
    *,
    seed: int,
    start: FittedModel | None = None,
    checkpoint: str | Path | None = None,
) -> Plan:
    """A network and a training run for each restart."""
    config = recipe.training.config(
        int(rows.data.rows),
        kl_annealing=recipe.kl_annealing,
        batches=rows.epoch_batches,
    )
    widths = built = recipe.widths
    if start is not None:
        config = replace(config, kl_annealing=0.0)  # keep what was learned
        if widths == start.built_widths:
            widths = start.variational().widths  # nodes may have been removed since
    d_in = rows.sample.x.shape[1]
    jobs = []
    for number in range(recipe.restarts):
        key = key_for(seed, "build", number)
        network = recipe.build(d_in, widths, rows.total, key)
        if start is not None:
            network = continued(start.variational(), network)
        jobs.append(_job(network, rows.data, config, seed, number, checkpoint))
    return Plan(jobs, rows, units, recipe, seed, built)


def _job(
    network: Network,
    data: TrainingRows,
    config: TrainConfig,
    seed: int,
    number: int,
    checkpoint: str | Path | None,
) -> Job:
    run = Run.create(network, config)
    if checkpoint is not None:
        run = resume(numbered(checkpoint, number), run)
    job = Job(run, data, config, key_for(seed, "train", number))
    shrinking = Shrinking()
    if can_shrink(job) and shrinking.could_pay(job):
        job.shrink = shrinking
    return job


def checkpoint_writer(
    checkpoint: str | Path | None, mark: str, seed: int, placement: AbstractPlacement
) -> list[Watch]:
    """Writes the run of each fit to its own file, on the first process."""
    if checkpoint is None or not placement.group.is_first:
        return []

    def write(number: int, run: Run) -> None:
        write_checkpoint(numbered(checkpoint, number), run, mark=mark, seed=seed)

    return [write]


def train_plan(
    plan: Plan, watch: Sequence[Watch], placement: AbstractPlacement = ONE_DEVICE
) -> list[Run]:
    """All runs of a fit, trained."""

    def after_chunk(number: int, run: Run) -> None:
        with placement.group.together():
            for each in watch:
                each(number, run)

    if len(plan.jobs) == 1:
        return [train(plan.jobs[0], partial(after_chunk, 0))]
    runs = dict(train_many(plan.jobs, after_chunk))
    return [runs[number] for number in range(len(runs))]


def complete(
    plan: Plan,
    runs: list[Run],
    on_sampling: Callable[[int], None] = lambda done: None,
) -> FittedModel:
    """The fitted model of trained runs: refined, combined, or the one fit."""
    kept = best_first(runs)
    history = kept[0].history
    if any(run.history.status is Status.INTERRUPTED for run in runs):
        history = replace(history, status=Status.INTERRUPTED)
    model = replace(model_so_far(plan, kept[0]), history=history)
    method = plan.recipe.refinement
    if method is not None and history.status in ENDED:
        model = _refined(plan, model, kept, method, on_sampling)
    elif len(runs) > 1:
        model = _combined(plan, model, kept)
    # Computed here, so that saving computes nothing.
    model.computed(nodes=model.nodes, depths=model.depths)
    return model


def model_so_far(plan: Plan, run: Run) -> FittedModel:
    """The variational model of one run, before or after its end."""
    # Between two chunks of several fits, their arrays are those of NumPy.
    network, recipe = converted(run.state.result, jnp.asarray), plan.recipe
    return FittedModel(
        posterior=VariationalPosterior.create(
            network, recipe.draws, key=key_for(plan.seed, "predict")
        ),
        network=network,
        units=plan.units,
        history=run.history,
        built_widths=plan.built_widths,
        total=plan.rows.total,
        epochs=math.ceil(int(run.state.step) / int(plan.rows.data.batches)),
        seed=plan.seed,
        draws=recipe.draws,
        sample=plan.rows.sample,
    )


def _with_nodes(plan: Plan, runs: list[Run]) -> list[tuple[Network, Nodes]]:
    """The network of each run and its node scores."""
    networks = [run.state.result for run in runs]
    draws, sample = plan.recipe.draws, plan.rows.sample
    key = key_for(plan.seed, "nodes")

    def scores(number: int) -> Nodes:
        posterior = VariationalPosterior.create(networks[number], draws, key=key)
        return find_nodes(posterior, sample.few)

    nodes = for_each(scores, len(networks), compiles=True)
    return [*zip(networks, nodes, strict=True)]


def _combined(plan: Plan, model: FittedModel, runs: list[Run]) -> FittedModel:
    """An ensemble of all fits in place of the best one (W1)."""
    fits = _with_nodes(plan, runs)
    data = plan.rows.data
    assert isinstance(data, Data)
    few = data.x[: int(data.rows) : -(-int(data.rows) // SCORE_ROWS)]
    key, draws = key_for(plan.seed, "predict"), plan.recipe.draws
    posterior = ensemble(fits, few, draws, key=key)
    summaries = _summaries(runs, fits, np.full(len(runs), 1 / len(runs)))
    return replace(model, posterior=posterior, network=None, fits=summaries)


def _refined(
    plan: Plan,
    model: FittedModel,
    runs: list[Run],
    method: AbstractRefinement,
    on_sampling: Callable[[int], None],
) -> FittedModel:
    """Posterior samples by MCMC in place of the fit, where there are some."""
    networks = [run.state.result for run in runs]
    fits: list[Fit] = [(network, None) for network in networks]
    if not samples_all(method, networks):
        fits = [*_with_nodes(plan, runs)]
    data = plan.rows.data
    assert isinstance(data, Data)
    key = key_for(plan.seed, "refine")
    result = refine(fits, data, method, on_sampling, key=key)
    if result is None or not result[1].is_whole(method):
        interrupted = replace(model.history, status=Status.INTERRUPTED)
        model = replace(model, history=interrupted)
    if result is None:
        return model if len(runs) == 1 else _combined(plan, model, runs)
    posterior, sampling = result
    summaries: tuple[FitSummary, ...] = ()
    if len(runs) > 1:  # each fit has the share of the chains that started at it
        started = np.arange(method.chains) % len(fits)
        shares = np.bincount(started, minlength=len(fits)) / method.chains
        summaries = _summaries(runs, fits, shares)
    network = networks[0] if len(runs) == 1 else None
    return replace(
        model, posterior=posterior, network=network, fits=summaries, sampling=sampling
    )


def _summaries(
    runs: list[Run], fits: Sequence[Fit], weights: np.ndarray
) -> tuple[FitSummary, ...]:
    return tuple(
        FitSummary(run.history.last_elbo, float(weight), nodes.widths if nodes else ())
        for run, weight, (_, nodes) in zip(runs, weights, fits, strict=True)
    )


def best_first(runs: list[Run]) -> list[Run]:
    """Fits that have ended, or else those under way, by their ELBO."""
    ended = [run for run in runs if run.history.status in ENDED]
    stopped = [run for run in runs if run.history.status is Status.INTERRUPTED]
    under_way = [run for run in stopped if math.isfinite(run.history.last_elbo)]
    chosen = ended or under_way or runs[:1]
    return sorted(chosen, key=lambda run: run.history.last_elbo, reverse=True)


def continued(old: Network, new: Network) -> Network:
    """The posterior of an earlier fit, for the rows of a new one."""
    if old.inputs is not None and new.inputs is not None:
        # Columns that compaction has removed stay removed.
        kept = np.isin(np.arange(new.inputs.total), old.inputs.columns)
        new = new.take(tuple(np.ones(width, bool) for width in new.widths), kept)

    def form(network: Network) -> Network:
        return jax.tree.map(lambda v: v.shape if eqx.is_array(v) else v, network)

    if not eqx.tree_equal(form(old), form(new)):
        raise ValueError(
            f"`warm_start` goes on from a network of widths {old.widths}, but the "
            f"settings ask for another one, of widths {new.widths}. Take back the "
            "change of widths, activation, prior or likelihood, or set `warm_start` to "
            "False."
        )
    return with_total(old, new.likelihood)


def with_total(network: Network, likelihood: AbstractLikelihood) -> Network:
    """The network with the shape of q(gamma) that the number of rows asks for (M8)."""
    return replace(network, likelihood=network.likelihood.resumed(likelihood))
