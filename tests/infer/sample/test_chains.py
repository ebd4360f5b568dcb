"""Markov chains: their draws, when they end, and the nodes that are sampled."""

import jax
import jax.random as jr
import numpy as np
import pytest
from networks import tiny_network
from sample_targets import ROWS, data_of, small_target
from scipy import stats

from farrier.core.posteriors import Matrix
from farrier.core.priors import Horseshoe
from farrier.infer.nodes import Nodes, find_nodes
from farrier.infer.sample import chains
from farrier.infer.sample.chains import (
    best_nodes,
    for_each,
    node_counts,
    refine,
    samples_all,
    starts_of,
    window_ends,
    with_best_nodes,
)
from farrier.infer.sample.settings import Mclmc, Nuts, Sampling
from farrier.model.likelihoods import Categorical
from farrier.model.posterior import SampledPosterior, VariationalPosterior

QUICK = {"warm_up": 150, "depth": 4}


def refined(target, method, *, weight=None, key, after_chunk=lambda done: None):
    """Draws and summary of chains that are not interrupted."""
    fits = [(target.network, None)]
    result = refine(fits, data_of(target, weight), method, after_chunk, key=key)
    assert result is not None
    return result


def nodes_of(network, x, *, key):
    return find_nodes(VariationalPosterior.create(network, 50, key=key), x)


# --- draws ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        Nuts(chains=2, draws=600, kept=120, warm_up=300, depth=6),
        Mclmc(chains=2, draws=600, kept=120, warm_up=300, energy=5e-4, effective=10**6),
    ],
    ids=lambda method: method.name,
)
def test_without_rows_the_posterior_is_the_prior(method, getkey):
    """Draws of the scales pass a Kolmogorov-Smirnov test against C+(0, b) (M12)."""
    prior = Horseshoe(node_scale=0.5, layer_scale=2.0)
    target = small_target(prior, key=getkey(), widths=(2,))
    nothing = np.zeros(ROWS)
    posterior, sampling = refined(target, method, weight=nothing, key=getkey())
    assert sampling.divergences < 60
    assert posterior.draws == 120
    scales = posterior.scale_draws(key=getkey())
    for name, b in {
        "layer_1_tau": 0.5,
        "layer_1_upsilon": 2.0,
        "output_kappa": 5.0,
    }.items():
        values = scales[name].reshape(posterior.draws, -1)[:, 0]
        assert stats.kstest(values, stats.halfcauchy(scale=b).cdf).pvalue > 1e-4
    # The noise too: 1 / sd^2 ~ Gamma(2, 0.5) (H2).
    gamma = np.asarray(posterior.noise)[:, 0] ** -2
    assert stats.kstest(gamma, stats.gamma(2.0, scale=2.0).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("method", "most"),
    [
        (Nuts(chains=2, draws=30, kept=7, **QUICK), 2 * 200 * (2**4 - 1)),
        (Mclmc(chains=2, draws=30, kept=7, warm_up=150, steps=5), 2 * 200 * 10),
    ],
    ids=["nuts", "mclmc"],
)
def test_equal_keys_give_equal_bits_and_progress_is_reported(method, most, getkey):
    target = small_target(key=getkey())
    key, progress = getkey(), []
    both = [
        refined(target, method, key=key, after_chunk=progress.append) for _ in range(2)
    ]
    (one, sampling), (other, _) = both
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.draws == 7
    assert sampling.draws == 50  # whole chunks
    assert progress == 2 * [*range(25, 201, 25)]
    assert 0 < sampling.gradients <= most


def test_scales_of_columns_are_sampled_with_the_weights(getkey):
    """Each draw has its own, and predictions with them (I2)."""
    target = small_target(Horseshoe(columns=True), key=getkey())
    method = Nuts(chains=1, draws=25, kept=10, **QUICK)
    posterior, _ = refined(target, method, key=getkey())
    assert posterior.scales_columns
    tau = np.asarray(posterior.scales["inputs"]["tau"])
    assert tau.shape == (10, 2)
    assert (np.unique(tau[:, 0]).size > 3) & (tau > 0).all()
    mean = posterior.drawn_outputs(target.x).mean(0)
    assert np.corrcoef(mean[:, 0], target.y[:, 0])[0, 1] > 0.8


def test_classes_are_sampled_without_noise(getkey):
    likelihood = Categorical().build(3, rows=ROWS)
    target = small_target(likelihood=likelihood, key=getkey())
    method = Nuts(chains=1, draws=25, kept=10, **QUICK)
    posterior, _ = refined(target, method, key=getkey())
    assert posterior.noise.shape == (10, 0)
    np.testing.assert_allclose(posterior.predictive(target.x).mean().sum(1), 1)


# --- when they end ----------------------------------------------------------------


def test_chains_end_once_predictions_have_enough_effective_draws(getkey, monkeypatch):
    """Their draws are the first draws of chains that go on."""
    target = small_target(key=getkey())
    key, checked = getkey(), []
    kept = {"chains": 1, "draws": 300, "kept": 10_000, **QUICK}
    of = lambda v: checked.append(v.shape[1]) or (1, 7)
    monkeypatch.setattr(chains, "mixing", of)

    def until(effective: int) -> tuple[SampledPosterior, Sampling]:
        return refined(target, Nuts(effective=effective, **kept), key=key)

    few, short = until(7)
    assert checked == [100, 100]  # one check, and one for the report
    checked.clear()
    many, long = until(8)
    assert checked == [100, 200, 300]
    assert (short.draws, long.draws) == (few.draws, many.draws) == (100, 300)
    np.testing.assert_array_equal(few.kernels[0], many.kernels[0][:100])
    assert short.is_whole(Nuts(effective=7, **kept))
    assert not short.is_whole(Nuts(effective=8, **kept))
    assert long.is_whole(Nuts(effective=8, **kept))


def test_ctrl_c_keeps_the_draws_so_far(getkey, monkeypatch):
    target = small_target(key=getkey())
    data, fits = data_of(target), [(target.network, None)]
    whole, calls = chains.advance, []

    def advance(*args, **kwargs):
        calls.append(1)
        if len(calls) > last:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(chains, "advance", advance)
    method = Nuts(chains=1, draws=100, **QUICK)
    last = 8  # six chunks of warm-up, two of draws
    result = refine(fits, data, method, key=getkey())
    assert result is not None
    assert result[1].draws == 50
    calls.clear()
    last = 3
    assert refine(fits, data, method, key=getkey()) is None


def test_masses_are_set_at_the_ends_of_growing_windows():
    assert window_ends(400) == {50, 100, 200, 350}
    assert window_ends(150) == {50, 100}
    assert window_ends(1000) == {50, 100, 200, 400, 950}


def test_work_is_done_once_for_each_number():
    done = []
    results = for_each(lambda n: done.append(n) or n**2, 5, compiles=True)
    assert results == [0, 1, 4, 9, 16]
    assert done[0] == 0  # alone, while it compiles
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert for_each(lambda n: n, 0, compiles=True) == []


# --- which nodes are sampled ------------------------------------------------------


def test_the_best_nodes_and_all_active_ones_are_sampled(getkey):
    target = small_target(key=getkey(), widths=(6,))
    nodes = nodes_of(target.network, target.x, key=getkey())
    counts = node_counts([(target.network, nodes)], 1)
    assert counts[0] == max(1, nodes.widths[0])
    few = with_best_nodes(target.network, nodes, (2,), target.x, key=getkey())
    assert few.widths == (2,)
    best = np.argsort(-nodes.scores[0])[:2]
    np.testing.assert_array_equal(np.sort(few.layers[0].nodes), np.sort(best))
    (kept,) = best_nodes(nodes, (2,))
    np.testing.assert_array_equal(np.flatnonzero(kept), np.sort(best))
    same = with_best_nodes(target.network, nodes, (6,), target.x, key=getkey())
    assert same is target.network


def test_nodes_that_are_not_sampled_are_folded_into_the_others(getkey):
    """Their mean activation goes into the bias of the output (C1)."""
    network = tiny_network(2, (4,), key=getkey())
    x, key = jr.normal(getkey(), (ROWS, 2)), getkey()
    shares = np.tile([0.5, 0.4, 0.3, 0.0], (8, 1))
    small = with_best_nodes(network, Nodes((shares,)), (3,), x, key=key)
    assert small.widths == (3,)
    before, after = (net.output.weights.bias for net in (network, small))
    assert (after.scale > before.scale).all()
    assert (np.abs(after.loc - before.loc) > 1e-6).any()


def test_all_nodes_are_sampled_where_they_cannot_be_folded(getkey):
    """Or where they have no scores."""
    target = small_target(posterior=Matrix(), key=getkey(), widths=(6,))
    nodes = Nodes((np.tile([0.5, 0, 0, 0, 0, 0], (8, 1)),))
    assert node_counts([(target.network, nodes)], 2) == (6,)
    network = tiny_network(2, (6,), key=getkey())
    assert node_counts([(network, nodes)], 2) == (2,)
    assert node_counts([(network, None)], 2) == (6,)
    assert node_counts([(network, nodes), (network, None)], 2) == (6,)


def test_samples_all_asks_for_equal_widths_within_the_candidates(getkey):
    networks = [tiny_network(2, (width,), key=getkey()) for width in (4, 4, 5)]
    method = Nuts(candidates=4)
    assert samples_all(method, networks[:2])
    assert not samples_all(method, networks)
    assert not samples_all(method, networks[2:])
    assert samples_all(Nuts(candidates=5), networks[2:])


def test_chains_start_at_the_fits_in_turn(getkey):
    """With as many nodes as the narrowest fit has, best first (S1)."""
    x = jr.normal(getkey(), (ROWS, 2))
    networks = [tiny_network(2, (width,), key=getkey()) for width in (4, 3)]
    fits = [(network, nodes_of(network, x, key=getkey())) for network in networks]
    starts = starts_of(fits, Nuts(candidates=4, chains=5), x, key=getkey())
    assert [start.widths for start in starts] == [(3,)] * 5
    locs = [np.asarray(start.layers[0].weights.kernel.loc) for start in starts]
    for number in (2, 3, 4):
        np.testing.assert_array_equal(locs[number], locs[number % 2])
    assert np.abs(locs[0] - locs[1]).min() > 0
    np.testing.assert_array_equal(locs[1], networks[1].layers[0].weights.kernel.loc)
