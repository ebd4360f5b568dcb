"""Sampling what is left: densities (H1), where chains begin, chains, their mixing."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from farrier.core.posteriors import Tied
from farrier.core.priors import (
    Horseshoe,
    NodeExponential,
    RegularisedHorseshoe,
    ScaleMixture,
)
from farrier.infer.compact import find_nodes
from farrier.infer.sample.chains import (
    FEW_NODES,
    Mclmc,
    Nuts,
    Sampling,
    Target,
    ascended,
    candidates,
    counts_of,
    log_prior_of,
    multiplied,
    refine,
    start_of,
    window_ends,
)
from farrier.infer.sample.moves import mixing
from farrier.model.drawn import DrawnNetwork
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.network import Network
from farrier.train.data import Data

ROWS = 30
QUICK = {"warm_up": 150, "depth": 4}


def table(targets=1):
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 2))
    y = np.tanh(x @ random.normal(size=(2, targets))) + 0.1
    return x, y, random.integers(1, 3, ROWS).astype(float)


def made(prior=None, likelihood=None, posterior=None, *, key, widths=(3,)):
    likelihood = likelihood or GaussianNoise(shape=2.0, rate=0.5).build(1, rows=ROWS)
    args = (2, widths, likelihood, prior or Horseshoe(), posterior)
    network = Network.create(*args, key=key)
    x, y, weight = table(likelihood.d_out)
    if not hasattr(likelihood, "gamma"):
        y = np.arange(ROWS) % likelihood.d_out
    return Target(network, jnp.asarray(x), jnp.asarray(y), jnp.asarray(weight))


def layer_by_hand(layer, point):
    """ln p of one layer by scipy (M1), (M10), (M11), (M12)."""
    total = 0.0
    for name, log_s in point.log_scales.items():
        s, prior = np.exp(np.asarray(log_s)), layer.scales[name].prior
        law = (
            stats.expon(scale=prior.mean)
            if hasattr(prior, "mean")
            else stats.halfcauchy(scale=prior.b)
        )
        total += np.sum(law.logpdf(s) + np.log(s))
    values = np.concatenate([np.ravel(point.kernel), point.bias])
    form = layer.parametrisation
    if hasattr(form, "wide"):
        wide, narrow = (
            stats.norm.pdf(values, scale=s) for s in (form.wide, form.narrow)
        )
        return np.log(form.share * wide + (1 - form.share) * narrow).sum()
    return total + stats.norm.logpdf(values).sum()


@pytest.mark.parametrize(
    "prior",
    [Horseshoe(node_scale=0.7), NodeExponential(node_scale=2.0), ScaleMixture()],
    ids=["horseshoe", "exponential", "mixture"],
)
def test_log_prior_agrees_with_scipy(prior, getkey):
    target = made(prior, key=getkey())
    point = start_of(target.network, key=getkey())
    for layer, each in zip(target.network.named_layers().values(), point, strict=True):
        found = log_prior_of(layer, each)
        np.testing.assert_allclose(found, layer_by_hand(layer, each), rtol=1e-10)


def test_log_density_is_likelihood_and_prior(getkey):
    """(H1), with the network worked out by the draw's own forward pass."""
    target = made(key=getkey(), widths=(3, FEW_NODES + 1))
    one, other = (start_of(target.network, key=getkey()) for _ in range(2))

    def by_hand(point):
        f = np.asarray(target.sampled(point)(target.x))
        error = np.asarray(target.weight) @ (np.asarray(target.y) - f) ** 2
        n = float(target.weight.sum())
        layers = target.network.named_layers().values()
        prior = sum(map(layer_by_hand, layers, point))
        return prior - ((2.0 + n / 2) * np.log(0.5 + error / 2)).sum()

    found = target.log_density(one) - target.log_density(other)
    np.testing.assert_allclose(found, by_hand(one) - by_hand(other), rtol=1e-10)


def test_gradient_of_log_density_by_finite_differences(getkey):
    target = made(likelihood=Categorical().build(3, rows=ROWS), key=getkey())
    flat, unravel = ravel_pytree(start_of(target.network, key=getkey()))
    density = jax.jit(lambda v: target.log_density(unravel(v)))
    gradient = np.asarray(jax.grad(density)(flat))
    for i in range(0, len(flat), 5):
        h = 1e-5 * jnp.eye(len(flat))[i]
        slope = float(density(flat + h) - density(flat - h)) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("form", ["non-centred", "centred", "tied"])
def test_chains_begin_at_draws_of_the_variational_posterior(form, getkey):
    """Weights with their scales multiplied in have the mean E[w] (M1), (M3), (J3)."""
    if form == "tied":
        network = made(posterior=Tied(), key=getkey()).network
        pull = lambda net: net.layers[0].weights.pull
        network = eqx.tree_at(pull, network, 0.1 * jr.normal(getkey(), (3, 3)))
    else:
        network = made(Horseshoe(parametrisation=form), key=getkey()).network
    layer = network.layers[0]

    def kernel(key):
        return multiplied(layer, start_of(network, key=key)[0])[0]

    drawn = np.asarray(jax.vmap(kernel)(jr.split(getkey(), 20_000)))
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert (abs(drawn.mean(0) - np.asarray(layer.expected_weights())) < 5 * error).all()


def test_ascent_goes_up(getkey):
    target = made(key=getkey())
    flat, unravel = ravel_pytree(start_of(target.network, key=getkey()))
    higher, value, gradient = ascended(target, flat)
    density = lambda v: target.log_density(unravel(v))
    assert value > density(flat) + 10
    np.testing.assert_allclose(value, density(higher), rtol=1e-10)
    np.testing.assert_allclose(gradient, jax.grad(density)(higher), atol=1e-8)


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
    target = made(prior, key=getkey(), widths=(2,))
    x, y = np.asarray(target.x), np.asarray(target.y)
    data = Data.create(x, y, np.zeros(ROWS), batch_size=ROWS)
    nodes = find_nodes(target.network, target.x, 4, key=getkey())
    found = refine([(target.network, nodes)], data, method, key=getkey())
    assert found is not None
    drawn, sampling, shares = found
    np.testing.assert_allclose(shares, np.full(method.chains, 1 / method.chains))
    assert sampling.divergences < 60
    for name, b in {
        "layer_1_tau": 0.5,
        "layer_1_upsilon": 2.0,
        "output_kappa": 5.0,
    }.items():
        values = np.asarray(drawn.scales[name]).reshape(drawn.draws, -1)[:, 0]
        assert stats.kstest(values, stats.halfcauchy(scale=b).cdf).pvalue > 1e-4
    # The noise too: 1 / sd^2 ~ Gamma(2, 0.5) (H2).
    gamma = np.asarray(drawn.noise_sd)[:, 0] ** -2
    assert stats.kstest(gamma, stats.gamma(2.0, scale=2.0).cdf).pvalue > 1e-4


@pytest.mark.parametrize(
    ("method", "most"),
    [
        (Nuts(chains=2, draws=30, kept=7, **QUICK), 2 * 200 * (2**4 - 1)),
        (Mclmc(chains=2, draws=30, kept=7, warm_up=150, steps=5), 2 * 200 * 10),
    ],
    ids=["nuts", "mclmc"],
)
def test_equal_keys_give_equal_bits_and_progress_is_told(method, most, getkey):
    target = made(key=getkey())
    data = Data.create(*(np.asarray(v) for v in (target.x, target.y)), batch_size=ROWS)
    nodes = find_nodes(target.network, target.x, 4, key=getkey())
    key, told, found = getkey(), [], []
    for _ in range(2):
        found.append(
            refine([(target.network, nodes)], data, method, told.append, key=key)
        )
    (one, sampling, _), (other, *_) = found
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.draws == 7
    assert sampling.draws == 50  # whole chunks
    assert told == 2 * [*range(25, 201, 25)]
    assert 0 < sampling.gradients <= most


def test_chains_end_once_predictions_have_enough_effective_draws(getkey, monkeypatch):
    """Their draws are the first of those of chains that go on."""
    import farrier.infer.sample.chains as module

    target = made(key=getkey())
    data = Data.create(*(np.asarray(v) for v in (target.x, target.y)), batch_size=ROWS)
    nodes = find_nodes(target.network, target.x, 4, key=getkey())
    key, looks = getkey(), []
    kept = dict(chains=1, draws=300, kept=10_000, **QUICK)
    monkeypatch.setattr(module, "mixing", lambda v: looks.append(v.shape[1]) or (1, 7))

    def refined(effective: int) -> tuple[DrawnNetwork, Sampling]:
        method = Nuts(effective=effective, **kept)
        found = refine([(target.network, nodes)], data, method, key=key)
        assert found is not None
        return found[:2]

    few, short = refined(7)
    assert looks == [100, 100]  # one look, and one for the report
    looks.clear()
    many, long = refined(8)
    assert looks == [100, 200, 300]
    assert (short.draws, long.draws) == (few.draws, many.draws) == (100, 300)
    np.testing.assert_array_equal(few.kernels[0], many.kernels[0][:100])
    assert short.is_whole(Nuts(effective=7, **kept))
    assert not short.is_whole(Nuts(effective=8, **kept))
    assert long.is_whole(Nuts(effective=8, **kept))


def test_ctrl_c_keeps_the_draws_so_far(getkey, monkeypatch):
    target = made(key=getkey())
    data = Data.create(*(np.asarray(v) for v in (target.x, target.y)), batch_size=ROWS)
    nodes = find_nodes(target.network, target.x, 4, key=getkey())
    import farrier.infer.sample.chains as module

    whole, calls = module.advance, []

    def advance(*args, **kwargs):
        calls.append(1)
        if len(calls) > last:
            raise KeyboardInterrupt
        return whole(*args, **kwargs)

    monkeypatch.setattr(module, "advance", advance)
    method = Nuts(chains=1, draws=100, **QUICK)
    last = 8  # six chunks of warm-up, two of draws
    found = refine([(target.network, nodes)], data, method, key=getkey())
    assert found is not None
    assert found[1].draws == 50
    calls.clear()
    last = 3
    assert refine([(target.network, nodes)], data, method, key=getkey()) is None


def test_a_slab_limits_the_scales_that_are_sampled(getkey):
    """Weights of a point are those of a layer with a slab (G3)."""
    target = made(RegularisedHorseshoe(slab_scale=0.5), key=getkey())
    layer, point = target.network.layers[0], start_of(target.network, key=getkey())[0]
    s = np.exp(sum(np.asarray(v) for v in point.log_scales.values()))
    kernel, _ = multiplied(layer, point)
    expected = (s**-2 + 0.5**-2) ** -0.5
    np.testing.assert_allclose(kernel / point.kernel, expected[:, None] * np.ones(2))


def test_candidates_are_the_best_nodes_and_all_that_are_on(getkey):
    target = made(key=getkey(), widths=(6,))
    nodes = find_nodes(target.network, target.x, 50, key=getkey())
    counts = counts_of([(target.network, nodes)], 1)
    assert counts[0] == max(1, nodes.widths[0])
    few = candidates(target.network, nodes, counts, target.x, key=getkey())
    assert few.widths[0] == min(6, counts[0])
    same = candidates(target.network, nodes, (6,), target.x, key=getkey())
    assert same is target.network
    on = np.argsort(-nodes.scores[0])[: few.widths[0]]
    np.testing.assert_array_equal(np.sort(few.layers[0].nodes), np.sort(on))


def test_mixing_of_chains_that_agree_and_of_chains_that_do_not():
    random = np.random.default_rng(1)
    outputs = random.normal(size=(4, 500, 20))
    r_hat, effective = mixing(outputs)
    assert r_hat == pytest.approx(1, abs=0.01)
    assert effective == pytest.approx(2000, rel=0.2)
    r_hat, effective = mixing(outputs + np.arange(4)[:, None, None])
    assert r_hat > 1.3
    assert effective < 20
    drifting = outputs[:1] + np.linspace(0, 5, 500)[None, :, None]
    assert mixing(drifting)[0] > 1.3  # one chain that does not agree with itself


def test_masses_are_set_at_the_ends_of_growing_windows():
    assert window_ends(400) == {50, 100, 200, 350}
    assert window_ends(150) == {50, 100}
    assert window_ends(1000) == {50, 100, 200, 400, 950}


@pytest.mark.parametrize(
    "field", ["candidates", "chains", "warm_up", "draws", "effective", "depth"]
)
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(ValueError, match=f"`{field}` must be .*, got 0"):
        Nuts(**{field: 0})


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_energies_that_make_no_sense_are_refused(value):
    with pytest.raises(ValueError, match="`energy` must be a number over 0, got"):
        Mclmc(energy=value)
    with pytest.raises(ValueError, match="`steps` must be a whole number from 1"):
        Mclmc(steps=0)
