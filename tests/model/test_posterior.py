"""Arrays that say what the network says: the same draws, and closed moments."""

import dataclasses

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from farrier.core.posteriors import Factorised, Matrix, Node, Tied
from farrier.core.priors import Horseshoe
from farrier.export.portable import Predictor
from farrier.infer.freeze import (
    MOST_VALUES,
    Draws,
    Moments,
    can_fix,
    fixed,
    form_of_fixed,
)
from farrier.infer.predict import mixture, noise_sds, probabilities
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.network import Network

DRAWS = 16


def network(likelihood, *, activation="tanh", prior=None, widths=(5, 4), sd=0.3, key):
    """A network with as much spread as a posterior has."""
    net = Network.create(
        3, widths, likelihood, prior or Horseshoe(), activation=activation, key=key
    )
    layers = (*net.layers, net.output)
    wider = [v.weights.kernel.log_scale * 0 + np.log(sd) for v in layers]
    return eqx.tree_at(
        lambda n: [v.weights.kernel.log_scale for v in (*n.layers, n.output)],
        net,
        wider,
    )


def predictor(net, method, task, *, key):
    header = {
        "task": task,
        "method": method.name,
        "activation": net.activation,
        "layers": len(net.layers),
        "columns": None,
        "targets": net.output.weights.nodes,
    }
    units = {
        f"{v}.{p}": np.full(3 if v == "x" else 1, p == "scale", float)
        for v in "xy"
        for p in ("mean", "scale")
    }
    return Predictor(header, method.freeze(net, DRAWS, key=key) | units)


def test_draws_are_those_of_a_prediction(getkey):
    net = network(GaussianNoise().build(2, rows=30.0), key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    mix = mixture(net, x, noise_sds(net, DRAWS, key=key), key=key)
    frozen = predictor(net, Draws(), "regression", key=key)
    loc, variance = frozen._mixture(np.asarray(x))
    np.testing.assert_allclose(loc, mix.loc, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(variance, mix.sd**2, rtol=1e-5)


@pytest.mark.parametrize(
    "posterior",
    [Factorised(), Node(), Tied()],
    ids=["factorised", "node", "tied"],
)
def test_draws_of_a_noise_by_the_row_are_those_of_a_prediction(posterior, getkey):
    """The second half of the outputs, drawn (L4)."""
    likelihood = HeteroscedasticNoise().build(2, rows=30.0)
    net = correlated(posterior, likelihood, (4,), key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    mix = mixture(net, x, noise_sds(net, DRAWS, key=key), key=key)
    loc, variance = predictor(net, Draws(), "regression", key=key)._mixture(
        np.asarray(x)
    )
    np.testing.assert_allclose(loc, mix.loc, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance, mix.sd**2, rtol=1e-4)
    assert np.ptp(mix.noise_sd, axis=1).min() > 0.01


def test_moments_of_a_noise_by_the_row_are_those_of_a_log_normal(getkey):
    """E[1 / gamma] E exp(-g), g ~ N(m_g, v_g), by scipy (E4)."""
    likelihood = HeteroscedasticNoise().build(1, rows=30.0)
    net = network(likelihood, key=getkey())
    x = np.asarray(jr.normal(getkey(), (5, 3)))
    frozen = predictor(net, Moments(), "regression", key=getkey())
    mean, variance = frozen._moments(x)
    loc, total = frozen._mixture(x)
    law = stats.lognorm(np.sqrt(variance[:, 1]), scale=np.exp(-mean[:, 1]))
    expected = variance[:, 0] + frozen.arrays["noise"] * law.mean()
    np.testing.assert_allclose(total[0, :, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(loc[0, :, 0], mean[:, 0])


def correlated(posterior, likelihood, widths, *, key):
    """Fixed scales, and covariances as large as variances."""
    net = Network.create(3, widths, likelihood, Horseshoe(), posterior, key=key)
    weights = lambda n: [v.weights for v in (*n.layers, n.output)]
    moved = [
        jax.tree.map(lambda v, k=key: v + 0.03 * jr.normal(k, v.shape), w)
        for w in weights(net)
    ]
    net = eqx.tree_at(weights, net, moved)
    scales = lambda n: [s.q.log_scale for v in n.layers for s in v.scales.values()]
    return eqx.tree_at(scales, net, [v * 0 - 20.0 for v in scales(net)])


def test_draws_of_correlated_weights_are_those_of_a_prediction(getkey):
    """The output layer with its covariances, for two targets (N1)."""
    likelihood = GaussianNoise().build(2, rows=30.0)
    net = correlated(Node(), likelihood, (4,), key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    mix = mixture(net, x, noise_sds(net, DRAWS, key=key), key=key)
    frozen = predictor(net, Draws(), "regression", key=key)
    loc, variance = frozen._mixture(np.asarray(x))
    np.testing.assert_allclose(loc, mix.loc, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(variance, mix.sd**2, rtol=1e-4)
    assert (mix.own_variance > 0.01 * mix.sd**2).any()


@pytest.mark.parametrize("noise", [GaussianNoise(), HeteroscedasticNoise()])
@pytest.mark.parametrize("posterior", [Factorised(), Node(), Tied()])
def test_draws_made_once_give_the_predictions_of_the_network(noise, posterior, getkey):
    net = correlated(posterior, noise.build(2, rows=30.0), (4,), key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    once = fixed(net, DRAWS, key=key)
    mix = mixture(net, x, noise_sds(net, DRAWS, key=key), key=key)
    same = mixture(once, x, once.noise_sd, key=getkey())
    for part in ("loc", "own_variance", "noise_sd"):
        ours, theirs = getattr(same, part), getattr(mix, part)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (mix.own_variance > 0).all()
    shapes = lambda tree: jax.tree.map(
        lambda v: v.shape if eqx.is_array(v) else v, tree
    )
    assert eqx.tree_equal(shapes(form_of_fixed(net, DRAWS)), shapes(once))


def test_draws_made_once_give_the_probabilities_of_the_network(getkey):
    net = network(Categorical().build(3, rows=30.0), key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    once = fixed(net, DRAWS, key=key)
    same = probabilities(once, x, DRAWS, key=getkey())
    expected = probabilities(net, x, DRAWS, key=key)
    np.testing.assert_allclose(same, expected, rtol=1e-5)


def test_moments_of_weights_that_move_with_their_scale_are_refused(getkey):
    likelihood = GaussianNoise().build(1, rows=30.0)
    net = correlated(Tied(), likelihood, (4,), key=getkey())
    with pytest.raises(ValueError, match=r'posterior="tied"\. Export draws'):
        Moments().freeze(net, DRAWS, key=getkey())


def test_draws_of_few_weights_are_kept(getkey):
    net = network(GaussianNoise().build(1, rows=30.0), widths=(5,), key=getkey())
    weights = 5 * (3 + 1) + 1 * (5 + 1)
    assert can_fix(net, MOST_VALUES // weights)
    assert not can_fix(net, MOST_VALUES // weights + 1)
    assert not can_fix(fixed(net, DRAWS, key=getkey()), DRAWS)


def test_moments_of_correlated_weights_agree_with_draws(getkey):
    """One hidden layer and fixed scales: nodes are independent and normal (N6)."""
    likelihood = GaussianNoise().build(1, rows=30.0)
    net = correlated(Node(rank=2), likelihood, (4,), key=getkey())
    kappa = lambda n: n.output.scales["kappa"].q.log_scale
    net = eqx.tree_at(kappa, net, kappa(net) * 0 - 20.0)
    x, draws = jr.normal(getkey(), (3, 3)), 5_000
    frozen = predictor(
        dataclasses.replace(net, activation="relu"),
        Moments(),
        "regression",
        key=getkey(),
    )
    mean, variance = frozen._moments(np.asarray(x))
    sample = eqx.filter_jit(eqx.filter_vmap(lambda k: net.sample(key=k)(x)[:, 0]))
    f = np.asarray(sample(jr.split(getkey(), draws)))
    error = f.std(0) / np.sqrt(draws)
    assert (abs(f.mean(0) - mean[:, 0]) < 5 * error).all()
    squares = (f - mean[:, 0]) ** 2
    error = squares.std(0) / np.sqrt(draws)
    assert (abs(squares.mean(0) - variance[:, 0]) < 5 * error).all()


def test_draws_of_classes_are_those_of_a_prediction(getkey):
    prior = Horseshoe(parametrisation="centred")
    net = network(Categorical().build(3, rows=30.0), prior=prior, key=getkey())
    key, x = getkey(), jr.normal(getkey(), (7, 3))
    p = probabilities(net, x, DRAWS, key=key)
    frozen = predictor(net, Draws(), "classification", key=key)
    np.testing.assert_allclose(frozen.predict_proba(x), p, atol=1e-6)
    few = Draws(count=4).freeze(net, DRAWS, key=key)
    for name, values in few.items():  # fewer draws are the first of them
        np.testing.assert_array_equal(values, frozen.arrays[name][:4])


def test_one_draw_is_refused():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        Draws(count=1)


def test_moments_are_exact_where_their_assumptions_hold(getkey):
    """One hidden layer and fixed scales: nodes are independent and normal (E1, E2)."""
    net = network(
        GaussianNoise().build(1, rows=30.0),
        activation="relu",
        widths=(4,),
        key=getkey(),
    )
    scales = lambda n: [s.q.log_scale for v in n.layers for s in v.scales.values()]
    net = eqx.tree_at(scales, net, [v * 0 - 20.0 for v in scales(net)])
    x = jr.normal(getkey(), (3, 3))
    frozen = predictor(net, Moments(), "regression", key=getkey())
    mean, variance = frozen._moments(np.asarray(x))
    draws = 5_000
    sample = eqx.filter_jit(eqx.filter_vmap(lambda k: net.sample(key=k)(x)[:, 0]))
    f = sample(jr.split(getkey(), draws))
    error = f.std(0) / np.sqrt(draws)
    assert (abs(f.mean(0) - mean[:, 0]) < 5 * error).all()
    squares = (f - f.mean(0)[None]) ** 2
    error = squares.std(0) / np.sqrt(draws)
    assert (abs(squares.mean(0) - variance[:, 0]) < 5 * error).all()


def test_the_noise_of_moments_is_its_expectation(getkey):
    """E[1 / gamma] = rate / (shape - 1), that of many draws of q(gamma)."""
    net = network(GaussianNoise().build(1, rows=6.0), key=getkey())
    noise = Moments().freeze(net, DRAWS, key=getkey())["noise"]
    many = noise_sds(net, 20_000, key=getkey())
    assert noise == pytest.approx(float((many**2).mean()), rel=0.01)


def test_a_matrix_posterior_is_refused(getkey):
    likelihood = GaussianNoise().build(1, rows=9.0)
    net = Network.create(3, (4,), likelihood, Horseshoe(), Matrix(), key=getkey())
    with pytest.raises(ValueError, match="MatrixWeights"):
        Draws().freeze(net, DRAWS, key=getkey())
