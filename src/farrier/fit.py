"""A fit, from rows in the units of the network to a fitted model.

`plan_fit` builds a network and a training run for each restart; the runs are trained;
`complete` samples by MCMC or combines several fits, and returns a `FittedModel`.
`fit_model` does all three. The estimators check their input and call these functions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .checkpoint import numbered, resume, write_checkpoint
from .core.posteriors import AbstractWeightPosterior
from .core.priors import AbstractPrior
from .fitted import SCORE_ROWS, FittedModel, Sample, Units, key_for
from .infer.ensemble import FitSummary, ensemble
from .infer.nodes import Nodes, find_nodes
from .infer.sample.chains import Fit, for_each, refine, samples_all
from .infer.sample.settings import AbstractRefinement
from .model.likelihoods import AbstractLikelihood
from .model.network import Network
from .model.posterior import VariationalPosterior
from .scale.placement import ONE_DEVICE, AbstractPlacement
from .train.config import TrainConfig, Training
from .train.data import Data
from .train.history import Status
from .train.loop import Job, Run, TrainingRows, train
from .train.parallel import train_many
from .train.shrink import Shrinking, can_shrink
from .train.step import converted

ENDED = (Status.CONVERGED, Status.BUDGET)

Watch = Callable[[int, Run], None]  # called with the number of a fit and its run


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

    @property
    def in_memory(self) -> Data:
        """The data of a fit that needs all rows in memory."""
        assert isinstance(self.data, Data)
        return self.data


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
    network, recipe = converted(run.state.result, jnp.asarray), plan.recipe
    return FittedModel(
        posterior=VariationalPosterior.create(
            network, recipe.draws, key=key_for(plan.seed, "predict")
        ),
        network=network,
        units=plan.units,
        history=run.history,
        built_widths=plan.built_widths,
        total=float(plan.rows.total),
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
    fits, data = _with_nodes(plan, runs), plan.rows.in_memory
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
    key = key_for(plan.seed, "refine")
    result = refine(fits, plan.rows.in_memory, method, on_sampling, key=key)
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
