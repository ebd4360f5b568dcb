"""`partial_fit`: one epoch over some rows, at a constant learning rate."""

import dataclasses

import numpy as np

from ..fit import Recipe, with_total
from ..fitted import FittedModel, Sample, Units, key_for
from ..model.network import Network
from ..model.posterior import VariationalPosterior
from ..train.config import TrainConfig
from ..train.data import Data, run_chunk
from ..train.loop import Run
from .rows import CheckedRows

PARTIAL_ANNEALING = 1_000  # steps of partial_fit over which the KL weight rises
ENDLESS = 2**30  # steps of partial_fit, which never knows its last one


def new_model(
    rows: CheckedRows, units: Units, recipe: Recipe, seed: int
) -> FittedModel:
    """A model before its first step."""
    key = key_for(seed, "build")
    total = rows.weight.sum()
    network = recipe.build(rows.x.shape[1], recipe.widths, total, key)
    run = Run.create(network, _endless(recipe, len(rows.x), PARTIAL_ANNEALING))
    return _model(run, recipe, units, 0.0, seed, recipe.widths)


def further(
    model: FittedModel, rows: CheckedRows, recipe: Recipe, total: float | None
) -> FittedModel:
    """The model after one epoch over some rows.

    Parameters
    ----------
    total
        Rows of the whole data set; None where every row counts as a new one.
    """
    rows = rows.in_units(model.units)
    new = rows.weight.sum()
    seen = float(model.total + new)
    whole = float(seen if total is None else total)
    run = model.run
    if run is None:  # goes on from a `fit`
        run = Run.create(model.variational(), _endless(recipe, len(rows.x), 0))
    # Each row stands for as many as there are of it in the whole data set.
    size = recipe.training.resolved_batch_size(len(rows.x))
    weight = rows.weight * whole / new
    data = Data.create(rows.x, rows.y, weight, batch_size=size)
    network = with_total(run.state.network, recipe.likelihood(whole))
    run = _epoch(run, network, data, model.seed)
    after = _model(run, recipe, model.units, seen, model.seed, model.built_widths)
    epochs = -(-int(run.state.step) // int(data.batches))
    sample = Sample.of(rows.x, rows.y, rows.weight)
    return dataclasses.replace(after, epochs=epochs, sample=sample)


def _epoch(run: Run, network: Network, data: Data, seed: int) -> Run:
    """The run after one epoch, step by step."""
    state = dataclasses.replace(run.state, network=network)
    history, key = run.history, key_for(seed, "train")
    for _ in range(int(data.batches)):
        state, means = run_chunk(state, data, run.schedule, 1, 1, key=key)
        terms = dict(zip(history.terms, np.asarray(means, float).T, strict=True))
        history = history.extended(np.array([int(state.step)]), terms)
    history.skipped = int(state.skipped)
    return Run(state, run.schedule, history)


def _model(
    run: Run,
    recipe: Recipe,
    units: Units,
    total: float,
    seed: int,
    built: tuple[int, ...],
) -> FittedModel:
    network, key = run.state.result, key_for(seed, "predict")
    return FittedModel(
        posterior=VariationalPosterior.create(network, recipe.draws, key=key),
        network=network,
        units=units,
        history=run.history,
        built_widths=built,
        total=total,
        epochs=0,
        seed=seed,
        draws=recipe.draws,
        run=run,
    )


def _endless(recipe: Recipe, rows: int, annealing: int) -> TrainConfig:
    """Settings of a training run that has no last step."""
    config = recipe.training.config(rows, kl_annealing=recipe.kl_annealing)
    return dataclasses.replace(
        config, steps=ENDLESS, kl_annealing=annealing / ENDLESS, averaging=0.0
    )
