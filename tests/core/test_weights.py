"""Weight posteriors and the two parametrisations: divergences, moments, draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from farrier.core.families import LogNormal, Normal
from farrier.core.scales import HalfCauchy, Scale
from farrier.core.weights import (
    Centred,
    Fold,
    MeanFieldWeights,
    Mixed,
    NonCentred,
    Regularised,
    kl_to_scaled_normal,
)

D_IN, NODES, DRAWS = 3, 4, 40_000


def random_normal(shape, *, key):
    key_loc, key_scale = jr.split(key)
    scale = jr.uniform(key_scale, shape, minval=0.3, maxval=1.5)
    return Normal(jr.normal(key_loc, shape), jnp.log(scale))


def random_weights(*, key):
    key_kernel, key_bias = jr.split(key)
    kernel = random_normal((NODES, D_IN), key=key_kernel)
    return MeanFieldWeights(kernel, random_normal((NODES,), key=key_bias))


def random_scales(*, key):
    """Node scales and a layer scale, away from where they start."""
    key_tau, key_upsilon = jr.split(key)
    tau = Scale.create(HalfCauchy(1.0), (NODES,), start=0.8, sd=0.3)
    upsilon = Scale.create(HalfCauchy(1.0), (), start=1.7, sd=0.2)
    where = lambda scale: scale.q.loc
    return [
        eqx.tree_at(where, tau, 0.5 * jr.normal(key_tau, (NODES,))),
        eqx.tree_at(where, upsilon, 0.5 * jr.normal(key_upsilon)),
    ]


@eqx.filter_jit
def sample(weights, inputs, nodes, keys):
    return jax.vmap(lambda key: weights.sample(inputs, nodes, key=key))(keys)


def draw_all(weights, *, key):
    """Many draws of kernel and bias, as NumPy arrays."""
    numbers = jnp.arange(D_IN), jnp.arange(NODES)
    return [np.asarray(w) for w in sample(weights, *numbers, jr.split(key, DRAWS))]


def log_densities(weights, kernel, bias):
    """ln q(w) of each draw, by scipy.stats."""
    total = 0.0
    for q, w in [(weights.kernel, kernel), (weights.bias, bias)]:
        each = stats.norm(np.asarray(q.loc), np.asarray(q.scale)).logpdf(w)
        total = total + each.reshape(len(w), -1).sum(1)
    return total


def prior_log_densities(kernel, bias, sd):
    """ln N(w; 0, sd^2) of each draw, by scipy.stats; one `sd` for each node."""
    kernel_part = stats.norm.logpdf(kernel, scale=sd[..., None]).sum((1, 2))
    return kernel_part + stats.norm.logpdf(bias, scale=sd).sum(1)


def normal_kl(q, sd):
    """KL(N(loc, scale^2) || N(0, sd^2)), the textbook formula."""
    loc, scale = np.asarray(q.loc), np.asarray(q.scale)
    return np.log(sd / scale) + (scale**2 + loc**2) / (2 * sd**2) - 0.5


def assert_mean(values, expected):
    error = np.abs(values.mean(0) - np.asarray(expected))
    assert (error < 5 * values.std(0) / np.sqrt(len(values))).all()


def test_non_centred_kl_is_that_of_standard_normals(getkey):
    """Entry by entry, and from draws; the scales do not enter (M7)."""
    weights = random_weights(key=getkey())
    kl = NonCentred().weight_kl(weights, random_scales(key=getkey()), key=getkey())
    by_hand = normal_kl(weights.kernel, 1.0).sum() + normal_kl(weights.bias, 1.0).sum()
    np.testing.assert_allclose(kl, by_hand, rtol=1e-12)
    kernel, bias = draw_all(weights, key=getkey())
    prior = prior_log_densities(kernel, bias, np.ones(NODES))
    assert_mean(log_densities(weights, kernel, bias) - prior, kl)


def test_centred_kl_agrees_with_quadrature_over_the_scales(getkey):
    """Textbook KL for each scale, averaged by Gauss-Hermite over q(ln s) (M7)."""
    weights, scales = random_weights(key=getkey()), random_scales(key=getkey())
    tau, upsilon = (scale.q for scale in scales)
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    masses = masses / masses.sum()
    expected = 0.0
    for z_tau, mass_tau in zip(nodes, masses, strict=True):
        for z_upsilon, mass_upsilon in zip(nodes, masses, strict=True):
            log_sd = tau.loc + tau.scale * z_tau
            log_sd = log_sd + upsilon.loc + upsilon.scale * z_upsilon
            sd = np.exp(np.asarray(log_sd))
            kl = normal_kl(weights.kernel, sd[:, None]).sum()
            kl += normal_kl(weights.bias, sd).sum()
            expected += mass_tau * mass_upsilon * kl
    actual = Centred().weight_kl(weights, scales, key=getkey())
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_centred_kl_agrees_with_draws(getkey):
    """Of the weights and of the scales, with densities of scipy.stats (M7)."""
    weights, scales = random_weights(key=getkey()), random_scales(key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    log_sd = np.zeros((DRAWS, NODES))
    for scale in scales:
        noise = jr.normal(getkey(), (DRAWS, *scale.q.loc.shape))
        log_s = np.asarray(scale.q.loc) + np.asarray(scale.q.scale) * np.asarray(noise)
        log_sd += log_s.reshape(DRAWS, -1)
    prior = prior_log_densities(kernel, bias, np.exp(log_sd))
    values = log_densities(weights, kernel, bias) - prior
    assert_mean(values, Centred().weight_kl(weights, scales, key=getkey()))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(0, 2**31 - 1), st.floats(-5, 5), st.floats(0, 3))
def test_kl_is_never_negative_for_a_possible_scale(seed, loc, spread):
    """E[1/s^2] >= exp(-2 E[ln s]) for any law of s; then (M7) is never negative."""
    weights = random_weights(key=jr.key(seed))
    inverse_variance = jnp.array([np.exp(-2 * loc + 2 * spread**2)])
    assert kl_to_scaled_normal(weights, inverse_variance, jnp.array([loc])) >= 0


@pytest.mark.parametrize("sd", [0.1, 1.0, 7.0])
def test_kl_is_zero_where_q_equals_the_prior(sd):
    """N(0, sd^2) against a scale known to be sd (M7)."""
    q = lambda *shape: Normal(jnp.zeros(shape), jnp.log(jnp.full(shape, sd)))
    weights = MeanFieldWeights(q(NODES, D_IN), q(NODES))
    kl = kl_to_scaled_normal(weights, jnp.array([sd**-2]), jnp.log(jnp.array([sd])))
    np.testing.assert_allclose(kl, 0, atol=1e-12)


def test_squared_norm_and_entropy_agree_with_draws_and_scipy(getkey):
    """Of all weights into a node, its bias included (F1), (F2)."""
    weights = random_weights(key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    assert_mean((kernel**2).sum(2) + bias**2, weights.squared_norm())
    entropy = lambda q: stats.norm(scale=np.asarray(q.scale)).entropy()
    expected = entropy(weights.kernel).sum(1) + entropy(weights.bias)
    np.testing.assert_allclose(weights.entropy(), expected, rtol=1e-12)


def test_moments_of_the_pre_activations_agree_with_draws(getkey):
    """Mean and variance of w_k . [x, 1], bias included (M6, unit scale)."""
    weights = random_weights(key=getkey())
    x = np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 0.0]])
    mean, variance = weights.moments(jnp.asarray(x.T), key=getkey())
    kernel, bias = draw_all(weights, key=getkey())
    u = np.einsum("ri,dki->drk", x, kernel) + bias[:, None]
    assert_mean(u, mean.T)
    assert_mean((u - np.asarray(mean.T)) ** 2, variance.T)


def test_draws_have_the_law_of_each_weight_and_go_by_the_numbers(getkey):
    """Standardised draws are normal; a part keeps the draw of the whole (R1)."""
    weights = random_weights(key=getkey())
    draws = draw_all(weights, key=getkey())
    for q, w in zip((weights.kernel, weights.bias), draws, strict=True):
        z = (w - np.asarray(q.loc)) / np.asarray(q.scale)
        assert stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    inputs, nodes = jnp.array([2, 0]), jnp.array([1, 3])
    part = jax.tree.map(lambda leaf: leaf[nodes], weights)
    columns = lambda q: jax.tree.map(lambda leaf: leaf[:, inputs], q)
    part = eqx.tree_at(lambda w: w.kernel, part, replace_fn=columns)
    key = jr.split(getkey(), 1)
    kernel, bias = sample(weights, jnp.arange(D_IN), jnp.arange(NODES), key)
    kernel_part, bias_part = sample(part, inputs, nodes, key)
    expected = kernel[:, nodes][:, :, inputs]
    np.testing.assert_allclose(kernel_part, expected, rtol=1e-12)
    np.testing.assert_allclose(bias_part, bias[:, nodes], rtol=1e-12)


def test_created_weights_have_the_spread_and_the_sd_asked_for(getkey):
    """Locations N(0, start_sd^2), one sd for all, bias counted in the fan-in."""
    weights = MeanFieldWeights.create(50, 200, sd=0.02, start_sd=0.3, key=getkey())
    assert (weights.fan_in, weights.nodes) == (51, 200)
    for q in (weights.kernel, weights.bias):
        assert stats.kstest(np.ravel(q.loc), stats.norm(0, 0.3).cdf).pvalue > 1e-6
        np.testing.assert_allclose(q.scale, np.full(q.loc.shape, 0.02), rtol=1e-12)


def test_what_multiplies_a_draw():
    """The scale where the posterior stands on beta, 1 where it stands on w (M1)."""
    log_scale = jnp.log(jnp.array([[0.5, 2.0]]))
    np.testing.assert_allclose(NonCentred().multiplier(log_scale), [[0.5, 2.0]])
    np.testing.assert_array_equal(Centred().multiplier(log_scale), [[1.0, 1.0]])


def mixture_density(w, share, wide, narrow):
    parts = stats.norm.pdf(w, scale=wide), stats.norm.pdf(w, scale=narrow)
    return share * parts[0] + (1 - share) * parts[1]


def test_mixture_density_agrees_with_scipy_and_integrates_to_one():
    """A wide and a narrow normal (M10)."""
    prior = Mixed(0.3, 1.2, 0.05)
    w = np.linspace(-4, 4, 41)
    expected = np.log(mixture_density(w, 0.3, 1.2, 0.05))
    np.testing.assert_allclose(prior.log_density(jnp.asarray(w)), expected, rtol=1e-9)
    mass, _ = integrate.quad(
        lambda v: np.exp(float(prior.log_density(jnp.asarray(v)))), -9, 9, points=[0]
    )
    np.testing.assert_allclose(mass, 1, rtol=1e-6)


def test_mixture_kl_has_the_mean_that_quadrature_gives(getkey):
    """The draws of -H - ln p(w) are unbiased (M10)."""
    weights, prior = random_weights(key=getkey()), Mixed(0.3, 1.2, 0.05)

    def kl_of(loc, sd):
        q = stats.norm(loc, sd)
        return integrate.quad(
            lambda w: (
                q.pdf(w) * (q.logpdf(w) - np.log(mixture_density(w, 0.3, 1.2, 0.05)))
            ),
            loc - 12 * sd,
            loc + 12 * sd,
            points=[0, loc],
            limit=400,
        )[0]

    expected = sum(
        kl_of(loc, sd)
        for part in (weights.kernel, weights.bias)
        for loc, sd in zip(np.ravel(part.loc), np.ravel(part.scale), strict=True)
    )
    keys = jr.split(getkey(), DRAWS)
    draws = jax.jit(jax.vmap(lambda key: prior.weight_kl(weights, (), key=key)))(keys)
    assert_mean(np.asarray(draws), expected)


def test_mixture_of_two_equal_normals_is_one_normal(getkey):
    """Then the mean of the draws is the closed form (M7), (M10)."""
    weights = random_weights(key=getkey())
    keys = jr.split(getkey(), DRAWS)
    mixed = Mixed(0.5, 1.0, 1.0)
    draws = jax.jit(jax.vmap(lambda key: mixed.weight_kl(weights, (), key=key)))(keys)
    assert_mean(np.asarray(draws), NonCentred().weight_kl(weights, (), key=getkey()))


def made_scale(loc, sd):
    q = LogNormal(jnp.asarray(loc), jnp.log(jnp.full_like(jnp.asarray(loc), sd)))
    return Scale(q, HalfCauchy(1.0))


def test_a_slab_limits_large_scales_and_leaves_small_ones():
    """1 / s~^2 = 1 / s^2 + 1 / c^2 (G3), without overflow."""
    s = np.array([1e-6, 0.5, 3.0, 1e30])
    found = Regularised(2.0).multiplier(jnp.log(s))
    np.testing.assert_allclose(1 / found**2, 1 / s**2 + 1 / 4, rtol=1e-10)


@pytest.mark.parametrize("power", [1, 2])
def test_moments_of_regularised_scales(power):
    """(G4) against draws, against quadrature, and against (M3) for a far slab."""
    scales = [made_scale([0.5, -1.0], 0.6), made_scale(0.2, 0.3)]
    found = Regularised(1.5).moment(scales, 2, power)
    loc, sd = np.array([0.7, -0.8]), np.hypot(0.6, 0.3)
    s = np.exp(loc + sd * np.random.default_rng(0).normal(size=(DRAWS, 2)))
    draws = (s * 1.5 / np.sqrt(1.5**2 + s**2)) ** power
    error = draws.std(0) / np.sqrt(DRAWS)
    assert (abs(draws.mean(0) - found) < 5 * error).all()

    def integrand(z, middle):
        s = np.exp(middle + sd * z)
        return stats.norm.pdf(z) * (1 / s**2 + 1 / 1.5**2) ** (-power / 2)

    exact = [integrate.quad(integrand, -12, 12, args=(m,))[0] for m in loc]
    np.testing.assert_allclose(found, exact, rtol=1e-7)
    far = Regularised(1e6).moment(scales, 2, power)
    np.testing.assert_allclose(far, NonCentred().moment(scales, 2, power), rtol=1e-6)


def test_regularised_weights_pay_what_non_centred_ones_pay(getkey):
    """The slab is a function of the scales: the divergence is that of beta (M7)."""
    weights, key = random_weights(key=getkey()), getkey()
    kls = [form.weight_kl(weights, (), key=key) for form in (NonCentred(), SLAB)]
    assert kls[0] == kls[1]


SLAB = Regularised(2.0)


def random_fold(*, key):
    """Two of the three inputs are removed: one random, one constant."""
    keys = jr.split(key, 3)
    gone = jnp.array([True, False, True])
    slopes = jnp.zeros((D_IN, D_IN)).at[1].set(jr.normal(keys[0], (D_IN,)))
    at_gone = lambda v: jnp.where(gone, v, 0)
    return Fold(
        gone,
        at_gone(jr.normal(keys[1], (D_IN,))),
        slopes.at[1, 1].set(0),
        at_gone(jr.normal(keys[2], (D_IN,))),
        jnp.array([0.7, 0.0, 0.0]),
    )


def folded_by_hand(weights, fold):
    """(C1) with one loop over the nodes and the inputs, in NumPy."""
    loc, sd = np.array(weights.kernel.loc), np.array(weights.kernel.scale)
    bias, bias_variance = np.array(weights.bias.loc), np.array(weights.bias.scale) ** 2
    new_loc, variance = loc.copy(), sd**2
    for j in range(NODES):
        for k in np.flatnonzero(fold.gone):
            bias[j] += float(fold.constant[k]) * loc[j, k]
            square = float(fold.variance[k]) + float(fold.mean[k]) ** 2  # E[a_k^2]
            bias_variance[j] += square * sd[j, k] ** 2
            bias_variance[j] += float(fold.variance[k]) * loc[j, k] ** 2
            for i in np.flatnonzero(~np.asarray(fold.gone)):
                new_loc[j, i] += float(fold.slopes[i, k]) * loc[j, k]
            new_loc[j, k] = variance[j, k] = 0
    return new_loc, variance, bias, bias_variance


def test_folded_weights_agree_with_numpy(getkey):
    """Locations and variances, of the kernel and of the bias (C1)."""
    weights, fold = random_weights(key=getkey()), random_fold(key=getkey())
    assert weights.can_fold
    folded = weights.folded(fold)
    loc, variance, bias, bias_variance = folded_by_hand(weights, fold)
    np.testing.assert_allclose(folded.kernel.loc, loc, rtol=1e-12)
    np.testing.assert_allclose(folded.kernel.scale**2, variance, rtol=1e-12)
    np.testing.assert_allclose(folded.bias.loc, bias, rtol=1e-12)
    np.testing.assert_allclose(folded.bias.scale**2, bias_variance, rtol=1e-12)


def test_folded_weights_have_the_moments_of_the_inputs_they_replace(getkey):
    """Over draws of weights and of a removed input a = c + d a_1 + noise (C1).

    The mean of the pre-activation is that of the whole layer for each value of the
    input that stays: with a constant that forgets the slopes it would not be.
    """
    weights = random_weights(key=getkey())
    generator = np.random.default_rng(0)
    kernel, bias = draw_all(weights, key=getkey())
    stays = 0.3
    constant, slope, sd = 0.8, -1.5, 0.6
    removed = constant + slope * stays + sd * generator.normal(size=DRAWS)
    u = kernel[:, :, 1] * stays + kernel[:, :, 0] * removed[:, None] + bias
    gone = jnp.array([True, False, False])
    at_gone = lambda v: jnp.zeros(D_IN).at[0].set(v)
    slopes = jnp.zeros((D_IN, D_IN)).at[1, 0].set(slope)
    mean = constant + slope * stays
    fold = Fold(gone, at_gone(constant), slopes, at_gone(mean), at_gone(sd**2))
    x = jnp.array([[9.0], [stays], [0.0]])  # the removed input has no weight
    f_mean, f_variance = weights.folded(fold).moments(x, key=getkey())
    assert_mean(u, f_mean[:, 0])
    assert_mean((u - np.asarray(f_mean)[:, 0]) ** 2, f_variance[:, 0])


def test_a_fold_of_nothing_changes_nothing(getkey):
    """(C1) with no input to remove."""
    weights, none = random_weights(key=getkey()), jnp.zeros(D_IN)
    fold = Fold(none > 0, none, jnp.zeros((D_IN, D_IN)), none, none)
    for new, old in zip(
        jax.tree.leaves(weights.folded(fold)), jax.tree.leaves(weights), strict=True
    ):
        np.testing.assert_allclose(new, old, rtol=1e-12)


def test_a_part_of_the_weights_is_that_of_both_axes(getkey):
    """By masks; also of NumPy arrays, which stay NumPy arrays."""
    weights = random_weights(key=getkey())
    nodes, inputs = np.array([1, 0, 1, 1], bool), np.array([0, 1, 1], bool)
    host = jax.tree.map(np.asarray, weights)
    for each in (weights, host):
        part = each.take(nodes=nodes, inputs=inputs)
        assert (part.nodes, part.fan_in) == (3, 3)
        for q, whole in ((part.kernel, host.kernel), (part.bias, host.bias)):
            for field in ("loc", "log_scale"):
                expected = getattr(whole, field)[nodes]
                expected = expected[:, inputs] if expected.ndim > 1 else expected
                np.testing.assert_array_equal(getattr(q, field), expected)
                assert type(getattr(q, field)) is type(getattr(each.bias, field))
    assert eqx.tree_equal(weights.take(), weights)
    assert weights.take(inputs=inputs).nodes == NODES


FORMS = [NonCentred(), Centred(), Regularised(0.8), Mixed(0.3, 1.2, 0.05)]
each_form = pytest.mark.parametrize("form", FORMS, ids=lambda f: type(f).__name__)


@each_form
def test_what_mcmc_samples_gives_the_weights_of_the_draw_of_q(getkey, form):
    """beta in all forms with a scale, w under the mixture (M1), (G3), (M10), (H1)."""
    log_scale = jr.normal(getkey(), (NODES,))
    kernel, bias = jr.normal(getkey(), (NODES, D_IN)), jr.normal(getkey(), (NODES,))
    factor = form.sampling_multiplier(log_scale)
    s = np.exp(log_scale)
    expected = {
        "Regularised": s * 0.8 / np.hypot(s, 0.8),
        "Mixed": np.ones(NODES),
    }.get(type(form).__name__, s)
    np.testing.assert_allclose(factor, expected, rtol=1e-12)
    beta, beta_bias = form.standardised(kernel, bias, factor)
    by_q = form.multiplier(log_scale)
    np.testing.assert_allclose(
        factor[:, None] * beta, by_q[:, None] * kernel, rtol=1e-12
    )
    np.testing.assert_allclose(factor * beta_bias, by_q * bias, rtol=1e-12)


@each_form
def test_log_prior_of_what_mcmc_samples(getkey, form):
    """N(0, 1) for beta, the mixture for w, by scipy.stats (M1), (M10)."""
    kernel, bias = jr.normal(getkey(), (NODES, D_IN)), jr.normal(getkey(), (NODES,))
    w = np.append(np.ravel(kernel), bias)
    density = stats.norm.pdf(w)
    if isinstance(form, Mixed):
        density = mixture_density(w, 0.3, 1.2, 0.05)
    expected = np.log(density).sum()
    np.testing.assert_allclose(form.log_prior(kernel, bias), expected, rtol=1e-9)
