"""The runs of a fit with several restarts: keys and networks that differ."""

from itertools import combinations

import equinox as eqx
import jax.random as jr
import numpy as np
from builders import straight_line

from farrier import Training
from farrier.core.posteriors import MeanField
from farrier.core.priors import Horseshoe
from farrier.fit import FitRows, Recipe, plan_fit, train_plan
from farrier.fitted import KEY_USES, Sample, Units, key_for
from farrier.model.likelihoods import GaussianNoise
from farrier.train.data import Data
from farrier.train.loop import Job, Run, train
from farrier.units import identity_units

ROWS, RESTARTS = 19, 3


def plan_of(*, seed=0, restarts=RESTARTS, weight=1.0, key):
    """The plan of a fit of a straight line by one hidden layer of two nodes."""
    x, y = straight_line(ROWS, key=key)
    weights = np.full(ROWS, weight)
    data = Data.create(x, y, weights, batch_size=7)
    rows = FitRows(data, Sample.of(x, y, weights), float(weights.sum()))
    recipe = Recipe(
        widths=(2,),
        activation="relu",
        prior=Horseshoe(),
        weights=MeanField(),
        likelihood=lambda total: GaussianNoise().build(1, rows=total),
        training=Training(max_iter=10, batch_size=7, early_stopping=False),
        kl_annealing=0.8,
        restarts=restarts,
        refinement=None,
        draws=10,
    )
    units = Units(identity_units(1), identity_units(1))
    return plan_fit(rows, units, recipe, seed=seed)


def test_every_use_and_every_restart_has_a_key_of_its_own():
    keys = [
        jr.key_data(key_for(seed, use, restart)).tolist()
        for seed in (0, 1)
        for use in KEY_USES
        for restart in range(5)
    ]
    assert len({tuple(key) for key in keys}) == len(keys) == 50


def test_restarts_differ_in_their_start_their_noise_and_their_order(getkey):
    plan = plan_of(key=getkey())
    assert len(plan.jobs) == RESTARTS
    for one, other in combinations(plan.jobs, 2):
        start = [
            job.run.state.network.output.weights.kernel.loc for job in (one, other)
        ]
        assert not (start[0] == start[1]).any()
        # From the same network, the two keys lead to different networks.
        same = Job(one.run, one.data, one.config, other.key)
        ends = [train(job).state.network.output for job in (one, same)]
        assert not (ends[0].weights.kernel.loc == ends[1].weights.kernel.loc).any()


def test_a_restart_is_the_same_however_many_there_are(getkey):
    """Its key depends on the seed and its number; the first is that of a single fit."""
    key = getkey()
    many, single = plan_of(key=key), plan_of(restarts=1, key=key)
    assert eqx.tree_equal(many.jobs[0].run.state, single.jobs[0].run.state)
    assert (jr.key_data(many.jobs[0].key) == jr.key_data(single.jobs[0].key)).all()
    other = plan_of(seed=1, restarts=1, key=key).jobs[0]
    assert (jr.key_data(other.key) != jr.key_data(single.jobs[0].key)).any()


def test_the_shape_of_the_noise_counts_weights_and_not_rows(getkey):
    """q(gamma) = Gamma(a + n / 2, .), n the sum of the weights (M8)."""
    (job,) = plan_of(restarts=1, weight=2.5, key=getkey()).jobs
    shape = job.run.state.network.likelihood.gamma.fixed_shape
    np.testing.assert_allclose(shape, 1 + 2.5 * ROWS / 2, rtol=1e-12)


def test_all_runs_of_a_plan_are_trained_and_watched(getkey):
    plan, seen = plan_of(key=getkey()), []
    watch = [lambda number, run: seen.append((number, type(run)))]
    runs = train_plan(plan, watch)
    for job, run in zip(plan.jobs, runs, strict=True):
        expected = train(job)
        assert run.history.step[-1] == job.config.steps == 30
        np.testing.assert_allclose(run.history.elbo, expected.history.elbo, rtol=1e-7)
    assert set(seen) == {(number, Run) for number in range(RESTARTS)}
