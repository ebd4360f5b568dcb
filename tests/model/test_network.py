"""Networks: the bound and its gradients, draws of whole networks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from auxiliary_scales import AuxiliaryHalfCauchy
from scipy import special, stats

from farrier.core.families import Conditional
from farrier.core.posteriors import Matrix
from farrier.core.priors import Gaussian, Horseshoe
from farrier.core.scales import HalfCauchy
from farrier.model.likelihoods import (
    Categorical,
    GaussianLikelihood,
    GaussianNoise,
    HeteroscedasticNoise,
)
from farrier.model.network import Network

ROWS, D_IN, TARGETS = 12, 3, 2
NOISE = GaussianNoise(shape=6.0, rate=6.0)  # not the default: its terms are larger
PRIORS = [
    pytest.param(prior(parametrisation=form), id=f"{form}-{prior.name}")
    for prior in (Horseshoe, Gaussian)
    for form in ("non-centred", "centred")
]
LIKELIHOODS = [NOISE, Categorical()]
# Every prior with one of the likelihoods: what compiles is the dear part of a test.
PAIRS = [
    pytest.param(prior.values[0], likelihood, id=f"{prior.id}-{likelihood.name}")
    for prior, likelihood in zip(PRIORS, LIKELIHOODS * 2, strict=True)
]
every_prior = pytest.mark.parametrize("prior", PRIORS)
both_likelihoods = pytest.mark.parametrize(
    "likelihood", LIKELIHOODS, ids=lambda likelihood: likelihood.name
)


def generator_of(key):
    """NumPy's generator: parameters made without compiling anything."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def data(likelihood, *, key, rows=ROWS):
    generator = generator_of(key)
    x = jnp.asarray(generator.standard_normal((rows, D_IN)))
    if likelihood.name == "gaussian":
        return x, jnp.asarray(generator.standard_normal((rows, TARGETS)))
    return x, jnp.asarray(generator.integers(0, TARGETS, rows))


def network_of(prior, *, key, widths=(4,), likelihood=NOISE, activation="tanh", sd=0.3):
    """A network away from where training starts it; `sd` is that of every normal."""
    key_create, key_move = jr.split(key)
    built = likelihood.build(TARGETS, rows=float(ROWS))
    network = Network.create(
        D_IN, widths, built, prior, activation=activation, key=key_create
    )
    generator, moved = generator_of(key_move), []
    for q in every_normal(network):
        loc = q.loc + 0.2 * generator.standard_normal(q.loc.shape)
        scale = sd * generator.uniform(0.5, 1.5, q.loc.shape)
        moved.append(type(q)(loc, jnp.asarray(np.log(np.expm1(scale)))))
    network = eqx.tree_at(every_normal, network, moved)
    if likelihood.name == "gaussian":
        where = lambda net: net.likelihood.gamma.log_rate
        network = eqx.tree_at(where, network, where(network) - 1)
    return network


def every_normal(network):
    """The posteriors of all weights and of the logarithms of all scales."""
    layers = [*network.layers, network.output]
    weights = [layer.weights for layer in layers]
    betas = [q for w in weights for q in (w.kernel, w.bias)]
    return betas + [scale.q for scale in every_scale(network)]


def every_scale(network):
    layers = [*network.layers, network.output]
    return [scale for layer in layers for scale in layer.scales.values()]


def every_scale_prior(network):
    return [scale.prior for scale in every_scale(network)]


def with_auxiliary_variables(network):
    """The same network with q(lam) kept, at some rate that is not the best."""
    new = [
        AuxiliaryHalfCauchy(scale.prior.b, jnp.full_like(scale.q.loc, 3.0))
        for scale in every_scale(network)
    ]
    return eqx.tree_at(every_scale_prior, network, new)


@eqx.filter_jit
def bound_of(network, x, y, weight, key):
    """One draw of the bound, compiled."""
    return network.bound(x, y, weight, key=key)


@eqx.filter_jit
def sample_of(network, key):
    """One drawn network, compiled."""
    return network.sample(key=key)


@eqx.filter_jit
def bounds(network, x, y, weight, keys):
    """The bound, drawn once for each key."""
    return jax.vmap(lambda key: network.bound(x, y, weight, key=key))(keys)


def assert_same_mean(a, b):
    """The means of two samples agree within five standard errors."""
    error = np.sqrt(a.var() / a.size + b.var() / b.size)
    assert abs(a.mean() - b.mean()) < 5 * error


# --- the bound --------------------------------------------------------------------


@pytest.mark.parametrize(("prior", "likelihood"), PAIRS[::3])
def test_bound_is_the_sum_of_its_named_terms(getkey, prior, likelihood):
    """Log likelihood less all divergences, each under its name, none negative (B1)."""
    network = network_of(prior, key=getkey(), widths=(4, 4), likelihood=likelihood)
    x, y = data(likelihood, key=getkey())
    bound = bound_of(network, x, y, jnp.ones(ROWS), getkey())
    terms = bound.terms()
    scales = {"horseshoe": ["tau", "upsilon"], "gaussian": ["kappa"]}[prior.name]
    expected = [f"layer_{i}/{part}" for i in (1, 2) for part in ["beta", *scales]]
    expected += ["output/beta", "output/kappa"]
    expected += ["noise/gamma"] if likelihood.name == "gaussian" else []
    assert network.term_names() == ("log_likelihood", *expected)
    likelihood_term, *divergences = (terms.pop(name) for name in network.term_names())
    assert not terms
    np.testing.assert_allclose(bound.total, likelihood_term - sum(divergences))
    assert min(divergences) > 0


@every_prior
def test_bound_is_the_expectation_of_the_log_joint_over_q(getkey, prior):
    """ln p(y, w, scales, lam, gamma) - ln q, drawn, with densities of scipy.stats (B1).

    One hidden layer. Nothing of farrier but the parameters enters, constants included.
    """
    draws = 20_000
    network = network_of(prior, key=getkey(), sd=0.2)
    x, y = (np.asarray(v) for v in data(NOISE, key=getkey()))
    generator = generator_of(getkey())
    log_ratio, a = np.zeros(draws), x
    for layer in network.named_layers().values():
        log_scale = 0.0
        for scale in layer.scales.values():
            log_tau, part = draw_scale(scale, draws, generator)
            log_scale = log_scale + log_tau
            log_ratio += part
        w = []
        for q in (layer.weights.kernel, layer.weights.bias):
            loc, sd = np.asarray(q.loc), np.asarray(q.scale)
            z = generator.standard_normal((draws, *loc.shape))
            w.append(loc + sd * z)
            log_ratio -= stats.norm.logpdf(w[-1], loc, sd).reshape(draws, -1).sum(1)
        scale = np.exp(log_scale).reshape(draws, -1)
        non_centred = prior.parametrisation == "non-centred"
        prior_sd = np.ones_like(scale) if non_centred else scale
        multiplier = scale if non_centred else np.ones_like(scale)
        kernel, bias = w
        log_ratio += stats.norm.logpdf(kernel, 0, prior_sd[..., None]).sum((1, 2))
        log_ratio += stats.norm.logpdf(bias, 0, prior_sd).sum(1)
        kernel = (multiplier[..., None] * kernel).swapaxes(1, 2)
        a = a @ kernel + (multiplier * bias)[:, None]
        a = np.tanh(a) if layer is not network.output else a
    q = network.likelihood.gamma
    law = stats.gamma(np.asarray(q.shape), scale=np.exp(-np.asarray(q.log_rate)))
    gamma = law.rvs((draws, TARGETS), random_state=generator)
    log_ratio += (stats.gamma(6, scale=1 / 6).logpdf(gamma) - law.logpdf(gamma)).sum(1)
    log_ratio += stats.norm.logpdf(y, a, gamma[:, None] ** -0.5).sum((1, 2))
    keys = jr.split(getkey(), 4_000)
    weight = jnp.ones(ROWS)
    bound = bounds(network, jnp.asarray(x), jnp.asarray(y), weight, keys)
    assert_same_mean(log_ratio, np.asarray(bound.total))


def draw_scale(scale, draws, generator):
    """Draws of ln tau, and ln p(tau^2 | lam) p(lam) - ln q(tau^2) q(lam) (M2), (M5)."""
    loc, sd, b = np.asarray(scale.q.loc), np.asarray(scale.q.scale), scale.prior.b
    log_tau = loc + sd * generator.standard_normal((draws, *loc.shape))
    rate = np.exp(-2 * loc + 2 * sd**2) + b**-2
    lam = 1 / generator.gamma(1.0, 1 / rate, (draws, *loc.shape))
    tau_sq = np.exp(2 * log_tau)
    part = stats.invgamma(0.5, scale=1 / lam).logpdf(tau_sq)
    part += stats.invgamma(0.5, scale=b**-2).logpdf(lam)
    part -= stats.lognorm(2 * sd, scale=np.exp(2 * loc)).logpdf(tau_sq)
    part -= stats.invgamma(1, scale=rate).logpdf(lam)
    return log_tau.reshape(draws, -1), part.reshape(draws, -1).sum(1)


@pytest.mark.parametrize(("prior", "likelihood"), PAIRS[:2])
def test_expected_log_likelihood_agrees_with_draws_of_networks(
    getkey, prior, likelihood
):
    """The plain log density of whole drawn networks (L1), (L2), (L3), (M6)."""
    draws = 10_000
    network = network_of(prior, key=getkey(), widths=(4, 4), likelihood=likelihood)
    x, y = data(likelihood, key=getkey())
    weight = jnp.linspace(0.5, 2.0, ROWS)

    sampled = jax.jit(jax.vmap(lambda key: network.sample(key=key)(x)))
    f = np.asarray(sampled(jr.split(getkey(), draws)))
    if likelihood.name == "gaussian":
        q = network.likelihood.gamma
        law = stats.gamma(np.asarray(q.shape), scale=np.exp(-np.asarray(q.log_rate)))
        gamma = law.rvs((draws, TARGETS), random_state=generator_of(getkey()))
        sd = gamma[:, None] ** -0.5
        log_density = stats.norm.logpdf(np.asarray(y), f, sd).sum(2)
    else:
        log_probability = special.log_softmax(f, axis=2)
        log_density = log_probability[:, np.arange(ROWS), np.asarray(y)]
    bound = bounds(network, x, y, weight, jr.split(getkey(), draws))
    values = log_density @ np.asarray(weight)
    assert_same_mean(values, np.asarray(bound.log_likelihood))


@both_likelihoods
def test_average_of_the_minibatch_bounds_is_the_full_bound(getkey, likelihood):
    """Five batches, the last one short and padded; a row stands for five (L3), (B1).

    Nearly no posterior spread, so that the noise does not hide a wrong weight.
    """
    network = network_of(Horseshoe(), key=getkey(), likelihood=likelihood, sd=1e-12)
    x, y = data(likelihood, key=getkey(), rows=14)
    full = bound_of(network, x, y, jnp.ones(14), getkey()).total
    totals = []
    for first in range(0, 15, 3):
        rows = np.arange(first, first + 3)
        weight = jnp.asarray(np.where(rows < 14, 5.0, 0.0))
        x_batch, y_batch = (np.asarray(v)[np.minimum(rows, 13)] for v in (x, y))
        batch = jnp.asarray(x_batch), jnp.asarray(y_batch), weight
        totals.append(bound_of(network, *batch, getkey()).total)
    np.testing.assert_allclose(np.mean(totals), full, rtol=1e-9)
    assert np.std(totals) > 1


@both_likelihoods
def test_a_row_has_the_noise_of_its_number_in_the_batch(getkey, likelihood):
    """The bounds of two parts of a batch add up to its own, to the draw (B1)."""
    network = network_of(Horseshoe(), key=getkey(), likelihood=likelihood, sd=0.3)
    x, y = data(likelihood, key=getkey(), rows=14)
    weight, key = jnp.arange(1.0, 15.0), getkey()
    whole = network.bound(x, y, weight, key=key)
    parts = [
        network.bound(x[rows], y[rows], weight[rows], key=key, first=rows.start).cut(2)
        for rows in (slice(0, 7), slice(7, 14))
    ]
    for name, term in whole.terms().items():
        total = parts[0].terms()[name] + parts[1].terms()[name]
        np.testing.assert_allclose(total, term, rtol=1e-9)
    again = network.bound(x[7:], y[7:], weight[7:], key=key).log_likelihood
    assert abs(again - parts[1].log_likelihood) > 1e-6


def test_noise_of_rows_waits_until_it_has_a_share(getkey):
    """At share 0 the bound is that of equal noise, and g learns nothing (T6), (L1)."""
    noise = HeteroscedasticNoise()
    network = network_of(Horseshoe(), key=getkey(), likelihood=noise, sd=0.3)
    x, y = data(NOISE, key=getkey())
    weight, key = jnp.linspace(0.5, 2.0, ROWS), getkey()

    def gradient(share):
        loss = lambda n: n.bound(x, y, weight, key=key, noise_share=share).total
        output = eqx.filter_grad(loss)(network).output
        kernel, kappa = output.weights.kernel, output.scales["kappa"].q
        leaves = (kernel.loc, kernel.log_scale, output.weights.bias.loc, kappa.loc)
        sizes = [np.abs(np.asarray(v)).reshape(2 * TARGETS, -1).max(1) for v in leaves]
        return np.stack(sizes)

    *_, f = network.conditionals(x, jnp.arange(ROWS), key=key)
    gamma = network.likelihood.gamma
    equal = GaussianLikelihood(gamma, 1.0, 0.01)
    means = Conditional(
        *(v[:TARGETS] for v in (f.factor, f.loc, f.base_variance, f.noise))
    )
    expected = weight @ equal.expected_log_density(y, means)
    waiting = network.bound(x, y, weight, key=key, noise_share=0.0)
    np.testing.assert_allclose(waiting.log_likelihood, expected, rtol=1e-9)
    assert (gradient(0.0)[:, :TARGETS] > 0).all()
    np.testing.assert_array_equal(gradient(0.0)[:, TARGETS:], 0)
    assert (gradient(0.5) > 0).all()
    whole, half = (
        network.bound(x, y, weight, key=key, noise_share=share) for share in (1.0, 0.5)
    )
    again = network.bound(x, y, weight, key=key)
    np.testing.assert_array_equal(whole.total, again.total)
    assert len({float(v.log_likelihood) for v in (whole, half, waiting)}) == 3
    np.testing.assert_array_equal(
        whole.total - whole.log_likelihood, waiting.total - waiting.log_likelihood
    )


@pytest.mark.parametrize("targets", [1, 2])
def test_waiting_outputs_leave_gradients_of_what_all_outputs_share(getkey, targets):
    """With 2 outputs, noise levels of the pairs look like a row for each (T6), (V3)."""
    built = HeteroscedasticNoise().build(targets, rows=float(ROWS))
    network = Network.create(
        D_IN, (4,), built, Horseshoe(), Matrix(pairs=3), key=getkey()
    )
    x, key = data(NOISE, key=getkey())[0], getkey()
    y = jnp.zeros((ROWS, targets))

    def gradients(share):
        def kl(net):
            bound = net.bound(x, y, jnp.ones(ROWS), key=key, noise_share=share)
            return sum(bound.kl.values())

        return eqx.filter_grad(kl)(network).output.weights

    waiting, whole = gradients(0.0), gradients(1.0)
    assert (whole.raw_noise != 0).all()
    for name in ("raw_noise", "log_row"):
        np.testing.assert_array_equal(getattr(waiting, name), getattr(whole, name))
    for name in ("loc", "log_column"):
        found, expected = getattr(waiting, name), getattr(whole, name)
        np.testing.assert_array_equal(found[:targets], expected[:targets])
        np.testing.assert_array_equal(found[targets:], 0 * expected[targets:])


# --- parts ------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [False, True])
def test_a_part_of_a_network_has_the_draws_of_its_nodes(getkey, columns):
    """With zero weights at what is removed, the outputs are the same (R1), (C1)."""
    built = NOISE.build(TARGETS, rows=float(ROWS))
    prior = Horseshoe(columns=columns)
    network = Network.create(D_IN, (4, 3), built, prior, key=getkey())
    keep = np.array([1, 0, 1, 1], bool), np.array([1, 1, 0], bool)
    columns_kept = np.array([1, 0, 1], bool)
    silent = network
    where = lambda n: (n.layers[1].weights.kernel, n.output.weights.kernel)
    pairs = list(zip(where(network), keep, strict=True))
    if columns:
        where = lambda n: tuple(v.weights.kernel for v in (*n.layers, n.output))
        pairs.insert(0, (network.layers[0].weights.kernel, columns_kept))
    mute = lambda q, kept: type(q)(
        jnp.where(kept[None], q.loc, 0), jnp.where(kept[None], q.log_scale, -jnp.inf)
    )
    silent = eqx.tree_at(where, network, tuple(mute(*pair) for pair in pairs))
    part = silent.take(keep, columns_kept if columns else None)
    assert part.widths == (3, 2)
    x, key = data(NOISE, key=getkey())[0], getkey()
    np.testing.assert_allclose(part.sample(key=key)(x), silent.sample(key=key)(x))
    rows = jnp.arange(ROWS)
    whole, few = (n.conditionals(x, rows, key=key)[-1] for n in (silent, part))
    np.testing.assert_allclose(few.draw(), whole.draw(), rtol=1e-9)
    if columns:
        again = part.take(tuple(np.ones(n, bool) for n in (3, 2)), columns_kept)
        assert eqx.tree_equal(again, part)  # a mask over the columns of the table
        np.testing.assert_array_equal(part.inputs.columns, [0, 2])


def test_other_layers_take_the_place_of_all(getkey):
    """The output layer is the last; all else stays."""
    network = network_of(Horseshoe(), key=getkey(), widths=(4, 4))
    layers = [*network.layers, network.output]
    assert eqx.tree_equal(network.with_layers(layers), network)
    other = network_of(Horseshoe(), key=getkey(), widths=(4, 4))
    changed = network.with_layers([*other.layers, network.output])
    assert eqx.tree_equal(changed.layers, other.layers)
    assert eqx.tree_equal(changed.output, network.output)
    assert eqx.tree_equal(changed.likelihood, network.likelihood)


# --- the output layer -------------------------------------------------------------


@pytest.mark.parametrize("kappa", [0.2, 3.0])
def test_output_layer_scales_its_mean(getkey, kappa):
    """E f = kappa mu.[a, 1] and Var f = kappa^2 sigma^2.[a, 1]^2 (M6), (L3)."""
    network = network_of(Horseshoe(), key=getkey(), sd=1e-12)
    where = lambda net: [
        net.output.scales["kappa"].q.loc,
        net.output.weights.kernel.log_scale,
        net.output.weights.bias.log_scale,
    ]
    values = [jnp.array(np.log(kappa)), jnp.zeros((TARGETS, 4)), jnp.zeros(TARGETS)]
    network = eqx.tree_at(where, network, values)
    x, y = data(NOISE, key=getkey())
    actual = bound_of(network, x, y, jnp.ones(ROWS), getkey()).log_likelihood
    # With no spread in the hidden layer, any draw has its activations.
    a, y = np.asarray(sample_of(network, getkey()).hidden(x)[-1]), np.asarray(y)
    kernel, bias = network.output.weights.kernel, network.output.weights.bias
    mean = a @ np.asarray(kernel.loc).T + np.asarray(bias.loc)
    variance = a**2 @ np.asarray(kernel.scale).T ** 2 + np.asarray(bias.scale) ** 2
    q = network.likelihood.gamma
    gamma, log_gamma = np.asarray(q.mean()), np.asarray(q.expected_log())

    def expected(scale_of_mean):
        error = (y - scale_of_mean * mean) ** 2 + kappa**2 * variance
        return (0.5 * (log_gamma - np.log(2 * np.pi)) - 0.5 * gamma * error).sum()

    np.testing.assert_allclose(actual, expected(kappa), rtol=1e-9)
    # A public code scales the noise alone.
    assert abs(expected(1.0) - actual) > 1


@every_prior
def test_kappa_of_the_output_layer_is_half_cauchy_with_scale_5(getkey, prior):
    """And its divergence is (M5) with b = 5, by hand; a public code takes 1 (M1)."""
    network = network_of(prior, key=getkey())
    (kappa,) = network.output.scales.values()
    assert isinstance(kappa.prior, HalfCauchy)
    loc, scale = float(kappa.q.loc), float(kappa.q.scale)

    def by_hand(b):
        rate = np.exp(-2 * loc + 2 * scale**2) + b**-2
        entropy = 0.5 * np.log(8 * np.pi * np.e * scale**2)
        return np.log(np.pi * b) + np.log(rate) + loc - entropy

    np.testing.assert_allclose(
        network.kl(key=getkey())["output/kappa"], by_hand(5), rtol=1e-12
    )
    assert abs(by_hand(1) - by_hand(5)) > 0.1


# --- gradients --------------------------------------------------------------------

PARAMETERS = {
    "kernel loc": lambda net: net.layers[0].weights.kernel.loc,
    "kernel log_scale": lambda net: net.layers[0].weights.kernel.log_scale,
    "bias loc": lambda net: net.layers[0].weights.bias.loc,
    "bias log_scale": lambda net: net.layers[0].weights.bias.log_scale,
    "tau loc": lambda net: net.layers[0].scales["tau"].q.loc,
    "tau log_scale": lambda net: net.layers[0].scales["tau"].q.log_scale,
    "upsilon loc": lambda net: net.layers[0].scales["upsilon"].q.loc,
    "upsilon log_scale": lambda net: net.layers[0].scales["upsilon"].q.log_scale,
    "output kernel loc": lambda net: net.output.weights.kernel.loc,
    "output kernel log_scale": lambda net: net.output.weights.kernel.log_scale,
    "kappa loc": lambda net: net.output.scales["kappa"].q.loc,
    "kappa log_scale": lambda net: net.output.scales["kappa"].q.log_scale,
    "gamma log_rate": lambda net: net.likelihood.gamma.log_rate,
}


@pytest.mark.parametrize(("prior", "likelihood"), PAIRS[:2])
def test_gradient_of_the_bound_agrees_with_finite_differences(
    getkey, prior, likelihood
):
    """The first entry of every kind of parameter, with the same key (B1), (M6)."""
    network = network_of(prior, key=getkey(), likelihood=likelihood)
    x, y = data(likelihood, key=getkey())
    key, step = getkey(), 1e-5
    bound = eqx.filter_jit(lambda net: net.bound(x, y, jnp.ones(ROWS), key=key).total)
    grads = eqx.filter_jit(eqx.filter_grad(bound))(network)
    for name, where in PARAMETERS.items():
        if name == "gamma log_rate" and likelihood.name == "categorical":
            continue
        first = jnp.zeros(where(network).size).at[0].set(step)
        shift = first.reshape(where(network).shape)
        up = bound(eqx.tree_at(where, network, where(network) + shift))
        down = bound(eqx.tree_at(where, network, where(network) - shift))
        difference = (up - down) / (2 * step)
        gradient = np.ravel(where(grads))[0]
        np.testing.assert_allclose(
            gradient, difference, rtol=1e-6, atol=1e-6, err_msg=name
        )
        assert abs(gradient) > 1e-4, name


@pytest.mark.parametrize("prior", PRIORS[:2])
def test_both_forms_of_the_scales_have_the_same_gradient(getkey, prior):
    """Collapsed (M5) against coordinate ascent (M9): update, then hold (M4)."""
    collapsed = network_of(prior, key=getkey())
    stale = with_auxiliary_variables(collapsed)
    best = [s.prior.updated(s.q) for s in every_scale(stale)]
    explicit = eqx.tree_at(every_scale_prior, stale, best)
    x, y = data(NOISE, key=getkey())
    key = getkey()

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def bound(network):
        return network.bound(x, y, jnp.ones(ROWS), key=key).total

    value, grads = bound(collapsed)
    other_value, other_grads = bound(explicit)
    np.testing.assert_allclose(other_value, value, rtol=1e-12)
    parameters = lambda net: (every_normal(net), net.likelihood.gamma.log_rate)
    pairs = zip(
        *map(jax.tree.leaves, map(parameters, (grads, other_grads))), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9)
    assert all((p.rate == 0).all() for p in every_scale_prior(other_grads))
    assert bound(stale)[0] < value


# --- draws of networks ------------------------------------------------------------


@pytest.mark.parametrize(
    ("activation", "widths", "by_hand"),
    [
        ("relu", (4,), lambda u: np.maximum(u, 0)),
        ("tanh", (4, 4), np.tanh),
        ("gelu", (4,), lambda u: u * special.ndtr(u)),
    ],
)
def test_sampled_network_is_matrix_products_by_hand(
    getkey, activation, widths, by_hand
):
    """Several layers, two targets; the same activation in the bound (M1), (M6)."""
    network = network_of(
        Horseshoe(), key=getkey(), widths=widths, activation=activation, sd=1e-12
    )
    assert network.widths == widths
    x, y = data(NOISE, key=getkey())
    sample = sample_of(network, getkey())
    a, hidden = np.asarray(x), []
    for kernel, bias in zip(sample.kernels[:-1], sample.biases[:-1], strict=True):
        a = by_hand(a @ np.asarray(kernel) + np.asarray(bias))
        hidden.append(a)
    f = a @ np.asarray(sample.kernels[-1]) + np.asarray(sample.biases[-1])
    # The usual gelu is a tanh that is within 5e-4 of u Phi(u).
    tolerance = {"rtol": 0, "atol": 5e-3 if activation == "gelu" else 1e-12}
    np.testing.assert_allclose(sample(x), f, **tolerance)
    for ours, theirs in zip(sample.hidden(x), hidden, strict=True):
        np.testing.assert_allclose(ours, theirs, **tolerance)
    # With no spread in q, the bound sees this one network.
    bound = bound_of(network, x, y, jnp.ones(ROWS), getkey())
    q = network.likelihood.gamma
    log_normaliser = 0.5 * (np.asarray(q.expected_log()) - np.log(2 * np.pi))
    squared_error = (np.asarray(y) - np.asarray(sample(x))) ** 2
    expected = (log_normaliser - 0.5 * np.asarray(q.mean()) * squared_error).sum()
    np.testing.assert_allclose(bound.log_likelihood, expected, rtol=1e-8)


# --- reproducibility --------------------------------------------------------------


@both_likelihoods
def test_equal_keys_give_equal_bits_and_others_do_not(getkey, likelihood):
    """Of the bound and of a drawn network (R1), (B1)."""
    network = network_of(Horseshoe(), key=getkey(), likelihood=likelihood)
    x, y = data(likelihood, key=getkey())
    key, other = getkey(), getkey()
    bound = lambda key: bound_of(network, x, y, jnp.ones(ROWS), key)
    sample = lambda key: sample_of(network, key)
    assert eqx.tree_equal(bound(key), bound(key))
    assert bound(key).log_likelihood != bound(other).log_likelihood
    assert eqx.tree_equal(sample(key), sample(key))
    assert not (sample(key)(x) == sample(other)(x)).any()


@both_likelihoods
def test_jit_and_no_jit_agree(getkey, likelihood):
    """Of every term of the bound, up to rounding (B1)."""
    network = network_of(Horseshoe(), key=getkey(), likelihood=likelihood)
    x, y = data(likelihood, key=getkey())
    key = getkey()
    compiled = bound_of(network, x, y, jnp.ones(ROWS), key).terms()
    for name, value in network.bound(x, y, jnp.ones(ROWS), key=key).terms().items():
        np.testing.assert_allclose(compiled[name], value, rtol=1e-12, err_msg=name)


def test_reordering_nodes_changes_nothing(getkey):
    """Neither bound nor draws, when the next layer's inputs move along (B1), (R1)."""
    network = network_of(Horseshoe(), key=getkey())
    order = jnp.array([2, 0, 3, 1])
    first = lambda leaf: leaf[order] if leaf.shape[:1] == (4,) else leaf
    arrays, static = eqx.partition(network.layers[0], eqx.is_array)
    hidden = eqx.combine(jax.tree.map(first, arrays), static)
    output = network.output
    kernel = jax.tree.map(lambda leaf: leaf[:, order], output.weights.kernel)
    output = eqx.tree_at(
        lambda layer: (layer.weights.kernel, layer.inputs),
        output,
        (kernel, output.inputs[order]),
    )
    where = lambda net: (net.layers[0], net.output)
    moved = eqx.tree_at(where, network, (hidden, output))
    x, y = data(NOISE, key=getkey())
    key = getkey()
    terms = bound_of(network, x, y, jnp.ones(ROWS), key).terms()
    for name, value in bound_of(moved, x, y, jnp.ones(ROWS), key).terms().items():
        np.testing.assert_allclose(value, terms[name], rtol=1e-12, err_msg=name)
    outputs = [sample_of(net, key)(x) for net in (network, moved)]
    np.testing.assert_allclose(*outputs, rtol=1e-12)
