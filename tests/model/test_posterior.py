"""Posteriors as numbered draws: stored draws, their order, what is taken from them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from networks import generator_of, random_draws, tiny_network
from scipy import special, stats

from farrier.core.posteriors import Matrix
from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import Categorical, GaussianNoise, HeteroscedasticNoise
from farrier.model.network import Network
from farrier.model.posterior import (
    MAX_STORED,
    SampledPosterior,
    VariationalPosterior,
)

D_IN, TARGETS = 3, 2
ROWS, DRAWS = 4, 4_000
SHAPE = 6.0  # of q(gamma): as from few rows, so that the noise is uncertain
CASES = {
    "one target": (GaussianNoise().build(1, rows=30.0), None),
    "two targets": (GaussianNoise().build(2, rows=30.0), None),
    "heteroscedastic": (HeteroscedasticNoise().build(2, rows=30.0), None),
    "classes": (Categorical().build(3, rows=30.0), None),
    "centred": (
        HeteroscedasticNoise().build(1, rows=30.0),
        Horseshoe(parametrisation="centred"),
    ),
    "columns": (HeteroscedasticNoise().build(2, rows=30.0), Horseshoe(columns=True)),
    "slab": (Categorical().build(3, rows=30.0), Horseshoe(slab=2.0)),
}
every_case = pytest.mark.parametrize("case", CASES)
three_cases = pytest.mark.parametrize("case", ["heteroscedastic", "classes", "columns"])
predict = eqx.filter_jit(lambda posterior, x: posterior.predictive(x))
sample = eqx.filter_jit(lambda posterior, x, number: posterior.sample(number)(x))
outputs = eqx.filter_jit(lambda posterior, x, number: posterior.outputs(x, number))
draw_outputs = eqx.filter_jit(lambda posterior, x: posterior.drawn_outputs(x))


def variational(case="two targets", *, draws=16, widths=(5, 4), key):
    likelihood, prior = CASES[case]
    key_network, key_draws = jr.split(key)
    network = tiny_network(D_IN, widths, likelihood, prior, key=key_network)
    return VariationalPosterior.create(network, draws, key=key_draws)


def uncertain(likelihood=None, *, draws=DRAWS, key):
    """A posterior of one hidden layer, with an uncertain noise."""
    likelihood = likelihood or GaussianNoise(shape=1.0).build(TARGETS, rows=10.0)
    key_network, key_draws = jr.split(key)
    network = tiny_network(D_IN, (4,), likelihood, key=key_network)
    return VariationalPosterior.create(network, draws, key=key_draws)


def assert_same(one, other, **tolerances):
    for ours, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerances)


# --- draws of a variational posterior ---------------------------------------------


@three_cases
def test_a_draw_is_the_same_at_each_use(case, getkey):
    """Whatever else is computed with it, and in which order (P1)."""
    posterior, x = variational(case, key=getkey()), jr.normal(getkey(), (5, D_IN))
    f = np.asarray(draw_outputs(posterior, x))
    for number in (9, 2):
        ours = sample(posterior, x, jnp.asarray(number))
        np.testing.assert_allclose(ours, f[number], rtol=1e-9, atol=1e-12)
    whole = jax.tree.leaves(predict(posterior, x))[0]
    loc, _, _ = outputs(posterior, x, jnp.asarray(9))
    loc = special.softmax(loc, axis=1) if case == "classes" else loc[:, :TARGETS]
    np.testing.assert_allclose(whole[9], loc, rtol=1e-9, atol=1e-12)
    assert np.abs(f[9] - f[2]).min() > 0
    assert_same(predict(posterior, x), predict(posterior, x), rtol=0)


@three_cases
def test_the_prediction_of_a_row_does_not_depend_on_other_rows(case, getkey):
    """Their number and order do not matter (P1)."""
    posterior, x = variational(case, key=getkey()), jr.normal(getkey(), (7, D_IN))
    whole = predict(posterior, x)
    chosen = np.array([4, 1, 6])
    part = predict(posterior, x[chosen])
    for ours, theirs in zip(jax.tree.leaves(part), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs[:, chosen], rtol=1e-9, atol=1e-12)


def test_another_key_gives_other_draws(getkey):
    posterior, x = variational(key=getkey()), jr.normal(getkey(), (5, D_IN))
    key = getkey()
    more = posterior.resampled(20, key=key)
    assert (more.draws, posterior.draws) == (20, 16)
    assert_same(predict(more, x), predict(posterior.resampled(20, key=key), x), rtol=0)
    first, other = (np.asarray(draw_outputs(p, x))[0] for p in (more, posterior))
    assert np.abs(first - other).min() > 0
    np.testing.assert_array_equal(more.noise.shape, (20, TARGETS))


def test_noise_has_each_quantile_of_q_gamma_once(getkey):
    """In an order that differs between the targets (P1)."""
    posterior = uncertain(draws=50, key=getkey())
    gamma, noise_sd = posterior.likelihood.gamma, np.asarray(posterior.noise)
    q = stats.gamma(
        np.asarray(gamma.fixed_shape), scale=np.exp(-np.asarray(gamma.log_rate))
    )
    levels = (np.arange(50)[:, None] + 0.5) / 50
    np.testing.assert_allclose(
        np.sort(noise_sd, 0)[::-1], q.ppf(levels) ** -0.5, rtol=1e-9
    )
    ranks = noise_sd.argsort(0).argsort(0)
    assert (ranks[:, 0] != ranks[:, 1]).mean() > 0.5
    assert (np.diff(ranks, axis=0) != 1).mean() > 0.5


@pytest.mark.parametrize("draws", [50, 200])
def test_noise_variance_is_near_its_expectation(getkey, draws):
    """E[1/gamma] = rate / (shape - 1); plain draws are 7 % off at 50 (P1), (M8)."""
    posterior = uncertain(draws=draws, key=getkey())
    gamma = posterior.likelihood.gamma
    shape, rate = np.asarray(gamma.fixed_shape), np.exp(np.asarray(gamma.log_rate))
    np.testing.assert_allclose(shape, SHAPE)
    mean = np.mean(np.asarray(posterior.noise) ** 2, axis=0)
    np.testing.assert_allclose(mean, rate / (shape - 1), rtol=1 / draws)
    np.testing.assert_allclose(posterior.mean_noise(), rate / shape, rtol=1e-12)


def test_predictive_has_the_moments_of_whole_drawn_networks(getkey):
    """Output weights integrated against output weights drawn (P1), (M6)."""
    posterior, x = uncertain(key=getkey()), jr.normal(getkey(), (ROWS, D_IN))
    mix = predict(posterior, x)
    other = posterior.resampled(DRAWS, key=getkey())
    f = np.asarray(draw_outputs(other, x))
    loc, variance = np.asarray(mix.loc), np.asarray(mix.weight_variance)
    error = np.sqrt((loc.var(0) + f.var(0)) / DRAWS)
    assert (np.abs(loc.mean(0) - f.mean(0)) < 5 * error).all()
    square, square_f = (loc - loc.mean(0)) ** 2 + variance, (f - f.mean(0)) ** 2
    error = np.sqrt((square.var(0) + square_f.var(0)) / DRAWS)
    assert (np.abs(square.mean(0) - square_f.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(mix.model_variance(), square.mean(0), rtol=1e-9)
    assert variance.mean() > 0.1 * f.var(0).mean()


def test_heteroscedastic_noise_is_that_of_drawn_weights(getkey):
    """Mean and sd of exp(-g) / gamma over draws of whole networks (P1), (L4)."""
    likelihood = HeteroscedasticNoise(shape=1.0).build(TARGETS, rows=10.0)
    posterior, x = uncertain(likelihood, key=getkey()), jr.normal(getkey(), (4, D_IN))
    mix = predict(posterior, x)
    other = posterior.resampled(DRAWS, key=getkey())
    f, gamma = np.asarray(draw_outputs(other, x)), np.asarray(other.noise) ** -2
    pairs = [
        (2 * np.log(mix.noise_sd), -f[..., TARGETS:] - np.log(gamma)[:, None]),
        (np.asarray(mix.loc), f[..., :TARGETS]),
    ]
    for ours, expected in pairs:
        error = np.hypot(ours.std(0), expected.std(0)) / np.sqrt(DRAWS)
        assert (abs(ours.mean(0) - expected.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(pairs[0][0].std(0), pairs[0][1].std(0), rtol=0.1)
    assert np.ptp(mix.noise_variance(), axis=0).min() > 0.05


def test_probabilities_are_the_mean_softmax_of_drawn_networks(getkey):
    """Not the softmax of the mean (P1), (L2)."""
    posterior = variational("classes", draws=40, key=getkey())
    x = jr.normal(getkey(), (9, D_IN))
    p = np.asarray(predict(posterior, x).mean())
    f = np.asarray(draw_outputs(posterior, x))
    np.testing.assert_allclose(p, special.softmax(f, axis=2).mean(0), rtol=1e-9)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    assert np.abs(p - special.softmax(f.mean(0), axis=1)).max() > 0.001


def test_draws_of_scales_are_log_normal(getkey):
    """By name, with a Kolmogorov-Smirnov test of one of them (M3)."""
    posterior = variational("columns", draws=2_000, key=getkey())
    key = getkey()
    scales = posterior.scale_draws(key=key)
    network = posterior.network
    assert set(scales) == set(network.named_scales())
    assert scales["layer_2_tau"].shape == (2_000, 4)
    assert scales["inputs_tau"].shape == (2_000, D_IN)
    q = network.layers[1].scales["tau"].q
    law = stats.norm(float(q.loc[2]), float(q.scale[2]))
    assert stats.kstest(np.log(scales["layer_2_tau"][:, 2]), law.cdf).pvalue > 1e-6
    again = posterior.scale_draws(key=key)["layer_2_tau"]
    np.testing.assert_array_equal(again, scales["layer_2_tau"])


# --- stored draws -----------------------------------------------------------------


@every_case
def test_stored_draws_predict_the_same(case, getkey):
    """The same numbers, not numbers from the same distribution (P1)."""
    posterior, x = variational(case, key=getkey()), jr.normal(getkey(), (7, D_IN))
    once = posterior.stored()
    assert isinstance(once, SampledPosterior)
    assert (once.widths, once.d_in) == (posterior.widths, D_IN)
    expected = predict(posterior, x)
    assert_same(predict(once, x), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(once.noise, posterior.noise)
    for values in jax.tree.leaves(expected):
        assert np.ptp(values, axis=0).max() > 1e-3  # the draws differ


def test_stored_draws_keep_the_variance_of_the_output_layer(getkey):
    """V_s of (P1) for what is integrated; 0 for outputs that describe the noise."""
    x = jr.normal(getkey(), (7, D_IN))
    by_rows = variational("heteroscedastic", key=getkey()).as_sampled()
    assert by_rows.output_variance is not None
    kernel, bias = by_rows.output_variance
    assert (np.asarray(kernel)[..., :TARGETS] > 0).all()
    assert not np.asarray(kernel)[..., TARGETS:].any()
    assert not np.asarray(bias)[:, TARGETS:].any()
    _, variance, _ = by_rows.outputs(x, jnp.asarray(0))
    last = np.asarray(by_rows.sample(jnp.asarray(0)).hidden(x)[-1])
    expected = last**2 @ np.asarray(kernel)[0] + np.asarray(bias)[0]
    np.testing.assert_allclose(variance, expected, rtol=1e-9)
    assert variational("classes", key=getkey()).as_sampled().output_variance is None


def test_few_weights_are_stored_and_many_are_not(getkey):
    weights = 5 * (D_IN + 1) + 1 * (5 + 1)
    of = lambda draws: variational("one target", draws=draws, widths=(5,), key=getkey())
    assert of(MAX_STORED // weights).can_store
    large = of(MAX_STORED // weights + 1)
    assert not large.can_store
    assert large.stored() is large
    small = of(3).stored()
    assert small.stored() is small
    assert small.as_sampled() is small


def test_draws_of_correlated_weights_are_not_stored(getkey):
    likelihood = GaussianNoise().build(1, rows=9.0)
    network = Network.create(3, (4,), likelihood, Horseshoe(), Matrix(), key=getkey())
    posterior = VariationalPosterior.create(network, 3, key=getkey())
    assert posterior.stored() is posterior


# --- posterior samples ------------------------------------------------------------


def test_nodes_are_taken_by_mask_or_in_a_new_order(getkey):
    """A reordered network predicts the same; a mask keeps order and scales."""
    posterior, x = random_draws((3, 5, 4, 2), key=getkey()), jr.normal(getkey(), (6, 3))
    order = (np.array([4, 2, 0, 1, 3]), np.array([1, 3, 0, 2]))
    other = posterior.take(order)
    f = draw_outputs(posterior, x)
    np.testing.assert_allclose(draw_outputs(other, x), f, rtol=1e-9)
    tau = lambda p: np.asarray(p.scales["layer_2"]["tau"])
    np.testing.assert_array_equal(tau(other), tau(posterior)[:, order[1]])
    masks = (np.array([1, 0, 1, 1, 0], bool), np.array([0, 1, 1, 0], bool))
    small = posterior.take(masks)
    assert small.widths == (3, 2)
    np.testing.assert_array_equal(
        small.kernels[1], np.asarray(posterior.kernels[1])[:, masks[0]][..., masks[1]]
    )
    np.testing.assert_array_equal(tau(small), tau(posterior)[:, masks[1]])
    shared = lambda p: np.asarray(p.scales["layer_2"]["upsilon"])
    np.testing.assert_array_equal(shared(small), shared(posterior))
    # What is not taken is not changed.
    assert posterior.widths == (5, 4)


def test_integrated_output_weights_are_taken_with_their_nodes(getkey):
    """(P1) after nodes are taken: the variances belong to the same nodes."""
    posterior, x = integrated(key=getkey()), jr.normal(getkey(), (6, 3))
    order = (np.array([4, 2, 0, 1, 3]),)
    expected = predict(posterior, x)
    ours = predict(posterior.take(order), x)
    assert_same(ours, expected, rtol=1e-9, atol=1e-12)
    ours = predict(posterior.padded((7,)), x)
    assert_same(ours, expected, rtol=1e-9, atol=1e-12)
    # Silenced nodes add a constant, and the variance of its weight.
    mean = posterior.map(lambda n: posterior.sample(n).hidden(x)[0].mean(0))
    keep = (np.array([1, 0, 1, 1, 0], bool),)
    silent = posterior.silenced(keep, (mean,))
    _, variance, _ = outputs(silent, x, jnp.asarray(2))
    a = np.array(posterior.sample(jnp.asarray(2)).hidden(x)[0])
    a[:, ~keep[0]] = a[:, ~keep[0]].mean(0)
    assert posterior.output_variance is not None
    kernel, bias = (np.asarray(v)[2] for v in posterior.output_variance)
    np.testing.assert_allclose(variance, a**2 @ kernel + bias, rtol=1e-9)
    assert_same(
        predict(silent.take(keep), x), predict(silent, x), rtol=1e-9, atol=1e-12
    )


def integrated(*, key):
    """Random draws whose output layer has variances of its own."""
    posterior, generator = random_draws((3, 5, 2), key=key), generator_of(key)
    variance = tuple(
        jnp.asarray(generator.uniform(0.1, 1, size=size))
        for size in ((6, 5, 2), (6, 2))
    )
    return dataclasses.replace(posterior, output_variance=variance)


def test_padded_nodes_change_no_prediction(getkey):
    posterior, x = random_draws((3, 5, 4, 2), key=getkey()), jr.normal(getkey(), (6, 3))
    wide = posterior.padded((5, 7))
    assert wide.widths == (5, 7)
    f = draw_outputs(posterior, x)
    np.testing.assert_allclose(draw_outputs(wide, x), f, rtol=1e-12)
    tau = np.asarray(wide.scales["layer_2"]["tau"])
    assert not tau[:, 4:].any()
    assert (tau[:, :4] > 0).all()
    first = tuple(np.arange(width) for width in posterior.widths)
    assert_same(wide.take(first), posterior, rtol=0)


def test_silenced_nodes_become_constants(getkey):
    """Each draw has its own mean activation in the next bias (C1)."""
    posterior = random_draws((3, 5, 2), key=getkey())
    x = jr.normal(getkey(), (6, 3))
    keep = (np.array([1, 0, 1, 1, 0], bool),)
    means = posterior.map(lambda n: posterior.sample(n).hidden(x)[0].mean(0))
    silent = posterior.silenced(keep, (means,))
    assert silent.widths == (5,)
    for number in range(posterior.draws):
        drawn = posterior.sample(jnp.asarray(number))
        a = np.array(drawn.hidden(x)[0])
        a[:, ~keep[0]] = a[:, ~keep[0]].mean(0)
        expected = a @ np.asarray(drawn.kernels[1]) + np.asarray(drawn.biases[1])
        ours = silent.sample(jnp.asarray(number))(x)
        np.testing.assert_allclose(ours, expected, rtol=1e-9)
    small = silent.take(keep)
    np.testing.assert_allclose(
        draw_outputs(small, x), draw_outputs(silent, x), rtol=1e-9
    )


def test_inputs_can_be_silenced_too(getkey):
    """With a mask of the columns in front: their means go into the first bias (C1)."""
    posterior = random_draws((3, 5, 2), columns=True, key=getkey())
    x = np.array(jr.normal(getkey(), (6, 3)))
    keep = (np.array([1, 0, 1], bool), np.ones(5, bool))
    inputs = jnp.tile(jnp.asarray(x.mean(0)), (posterior.draws, 1))
    silent = posterior.silenced(keep, (inputs, jnp.zeros((posterior.draws, 5))))
    constant = x.copy()
    constant[:, 1] = x[:, 1].mean()
    expected = draw_outputs(posterior, jnp.asarray(constant))
    np.testing.assert_allclose(draw_outputs(silent, jnp.asarray(x)), expected)
    assert posterior.scales_columns
    assert not random_draws((3, 5, 2), key=getkey()).scales_columns


def test_draws_are_concatenated_and_taken(getkey):
    parts = [random_draws((3, 5, 2), draws=n, key=getkey()) for n in (4, 5)]
    x = jr.normal(getkey(), (6, 3))
    both = SampledPosterior.concatenated(parts)
    assert both.draws == 9
    assert eqx.tree_equal(both.likelihood, parts[0].likelihood)
    expected = np.concatenate([draw_outputs(part, x) for part in parts])
    np.testing.assert_allclose(draw_outputs(both, x), expected, rtol=1e-12)
    for numbers, part in (
        ([7, 0], both.take_draws([7, 0])),
        ([0, 3, 6], both.resampled(3, key=getkey())),
        ([0, 2, 4, 6], both.resampled(4, key=getkey())),
    ):
        np.testing.assert_allclose(draw_outputs(part, x), expected[numbers])
        np.testing.assert_array_equal(part.noise, np.asarray(both.noise)[numbers])
        tau = np.asarray(both.scales["layer_1"]["tau"])[numbers]
        np.testing.assert_array_equal(part.scales["layer_1"]["tau"], tau)
    assert both.resampled(9, key=getkey()) is both


def test_summaries_of_posterior_samples_are_means_over_the_draws(getkey):
    """Kernels, norms and noise; scales have the names of those of a network."""
    posterior = random_draws((3, 5, 2), key=getkey())
    kernel = np.asarray(posterior.kernels[0])
    np.testing.assert_allclose(posterior.expected_kernel(), kernel.mean(0))
    mean_bias = np.asarray(posterior.biases[0]).mean(0)
    expected = np.sqrt((kernel.mean(0) ** 2).sum(0) + mean_bias**2)
    np.testing.assert_allclose(posterior.expected_norms()[0], expected)
    noise = (np.asarray(posterior.noise) ** 2).mean(0)
    np.testing.assert_allclose(posterior.mean_noise(), noise)
    scales = posterior.scale_draws(key=getkey())
    assert set(scales) == {"layer_1_tau", "layer_1_upsilon", "output_kappa"}
    tau = posterior.scales["layer_1"]["tau"]
    np.testing.assert_array_equal(scales["layer_1_tau"], tau)


def test_posterior_samples_predict_by_their_drawn_outputs(getkey):
    """A mixture of N(f_s(x), noise_s^2), by hand (P1)."""
    posterior, x = random_draws((3, 5, 2), key=getkey()), jr.normal(getkey(), (6, 3))
    y = generator_of(getkey()).standard_normal((6, 2))
    f = np.asarray(draw_outputs(posterior, x))
    sd = np.asarray(posterior.noise)[:, None]
    joint = stats.norm(f, sd).logpdf(y).sum(2)
    expected = special.logsumexp(joint, axis=0) - np.log(posterior.draws)
    mix = predict(posterior, x)
    np.testing.assert_allclose(mix.log_density(jnp.asarray(y)), expected, rtol=1e-9)
    np.testing.assert_allclose(mix.mean(), f.mean(0), rtol=1e-9)
