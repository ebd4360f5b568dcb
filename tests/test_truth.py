"""Against the truth: the log evidence, and NUTS on the same joint density.

The joint density of (M1) and (L1) is written here once more, without the auxiliary
variables of the half-Cauchy scales and without a line of farrier; what is compared with
it is the posterior that farrier fitted. Unknowns: beta, ln tau, ln upsilon, ln kappa,
ln gamma.
"""

import math

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.stats import norm
from scipy import integrate, special, stats

from farrier.core.priors import Horseshoe
from farrier.infer import predict
from farrier.model.distributions import NormalMixture
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.model.posterior import VariationalPosterior
from farrier.train.config import TrainConfig
from farrier.train.data import Data
from farrier.train.loop import Job, Run, train

ROWS, NODES = 100, 4
SCALES = NODES + 2  # tau of each node, upsilon, kappa
DRAWS = 20_000
B = {"log_tau": 1.0, "log_upsilon": 1.0, "log_kappa": 5.0}
SHAPE, RATE = 1.0, 0.01  # the default prior of gamma
TOLERANCE = 0.3  # of the predictive standard deviation: docs/math.md


# --- the model, by hand -----------------------------------------------------------


def outputs(theta, x):
    """f(x) of a network with all unknowns given (M1)."""
    scale = jnp.exp(theta["log_tau"] + theta["log_upsilon"])
    u = (x @ theta["kernel"].T + theta["bias"][None]) * scale[None]
    f = jnp.tanh(u) @ theta["out_kernel"].T + theta["out_bias"][None]
    return jnp.exp(theta["log_kappa"]) * f


def log_joint(theta, x, y):
    """ln p(y, theta), as a density of the logarithms of the scales and of gamma."""
    betas = ("kernel", "bias", "out_kernel", "out_bias")
    total = sum(norm.logpdf(theta[name]).sum() for name in betas)
    for name, b in B.items():
        log_s = theta[name]
        log_density = math.log(2 / (math.pi * b)) - jnp.log1p(jnp.exp(2 * log_s) / b**2)
        total += (log_density + log_s).sum()
    gamma = jnp.exp(theta["log_gamma"])
    total += math.log(RATE) - RATE * gamma + theta["log_gamma"]
    return total + norm.logpdf(y, outputs(theta, x), gamma**-0.5).sum()


log_joints = jax.jit(jax.vmap(log_joint, in_axes=(0, None, None)))


def normals(network):
    """The normal factors of q, by the names above."""
    (layer,), output = network.layers, network.output
    return {
        "kernel": layer.weights.kernel,
        "bias": layer.weights.bias,
        "log_tau": layer.scales["tau"].q,
        "log_upsilon": layer.scales["upsilon"].q,
        "out_kernel": output.weights.kernel,
        "out_bias": output.weights.bias,
        "log_kappa": output.scales["kappa"].q,
    }


def log_weights(network, x, y, generator):
    """ln p(y, theta) - ln q(theta) for draws of q."""
    theta, log_q = {}, np.zeros(DRAWS)
    for name, q in normals(network).items():
        loc, sd = np.asarray(q.loc), np.asarray(q.scale)
        theta[name] = loc + sd * generator.standard_normal((DRAWS, *loc.shape))
        density = stats.norm.logpdf(theta[name], loc, sd)
        log_q += density.reshape(DRAWS, -1).sum(1)
    q = network.likelihood.gamma
    law = stats.gamma(float(q.fixed_shape[0]), scale=math.exp(-float(q.log_rate[0])))
    gamma = law.rvs(DRAWS, random_state=generator)
    theta["log_gamma"] = np.log(gamma)
    log_q += law.logpdf(gamma) + np.log(gamma)
    return np.asarray(log_joints(theta, x, y)) - log_q


def importance_sampled(log_w):
    """Estimate of the log evidence, and its standard error by the delta method."""
    w = np.exp(log_w - log_w.max())
    estimate = log_w.max() + math.log(w.mean())
    return estimate, w.std() / w.mean() / math.sqrt(len(w))


# --- what farrier fits ------------------------------------------------------------


def fitted(x, y, weight=None, *, seed):
    """The variational posterior, by the exact bound."""
    key_build, key_train = jr.split(jr.key(seed))
    rows = float(ROWS if weight is None else weight.sum())
    likelihood = GaussianNoise(shape=SHAPE, rate=RATE).build(1, rows=rows)
    network = Network.create(
        1, (NODES,), likelihood, Horseshoe(), activation="tanh", key=key_build
    )
    config = TrainConfig(
        steps=3_000, batch_size=ROWS, learning_rate=0.02, tolerance=0.0
    )
    data = Data.create(x, y, weight, batch_size=ROWS)
    run = Run.create(network, config)
    return train(Job(run, data, config, key_train)).state.network


@eqx.filter_jit
def log_likelihoods(network, x, y, keys):
    weight = jnp.ones(ROWS)
    return jax.vmap(lambda key: network.bound(x, y, weight, key=key).log_likelihood)(
        keys
    )


def bound_of(network, x, y, *, key):
    """The bound and its standard error: its divergences are exact (B1)."""
    draws = log_likelihoods(network, x, y, jr.split(key, 4_000))
    kl = sum(float(value) for value in network.kl(key=key).values())
    return float(draws.mean()) - kl, float(draws.std()) / math.sqrt(len(draws))


@pytest.fixture(scope="module")
def table():
    """A step that four nodes can make, with noise; in standard units."""
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (ROWS, 1))
    y = np.tanh(2 * x) + 0.3 * generator.standard_normal((ROWS, 1))
    return tuple((v - v.mean()) / v.std() for v in (x, y))


@pytest.fixture(scope="module")
def network(table):
    return fitted(*table, seed=0)


# --- evidence ---------------------------------------------------------------------


def test_joint_density_is_that_of_scipy(table):
    """Its oracle, so that the other tests stand on something (M1), (L1)."""
    x, y = table
    generator = np.random.default_rng(1)
    shapes = {"kernel": (4, 1), "bias": (4,), "log_tau": (4,), "log_upsilon": ()}
    shapes |= {"out_kernel": (1, 4), "out_bias": (1,), "log_kappa": (), "log_gamma": ()}
    theta = {name: generator.standard_normal(shape) for name, shape in shapes.items()}
    expected = 0.0
    for name, value in theta.items():
        if name in B:
            law = stats.halfcauchy(scale=B[name])
            expected += (law.logpdf(np.exp(value)) + value).sum()
        elif name == "log_gamma":
            law = stats.gamma(SHAPE, scale=1 / RATE)
            expected += law.logpdf(np.exp(value)) + value
        else:
            expected += stats.norm.logpdf(value).sum()
    scale = np.exp(theta["log_tau"] + theta["log_upsilon"])
    a = np.tanh(x @ (scale * theta["kernel"].T) + scale * theta["bias"])
    kappa = np.exp(theta["log_kappa"])
    f = a @ (kappa * theta["out_kernel"].T) + kappa * theta["out_bias"]
    expected += stats.norm.logpdf(y, f, np.exp(-theta["log_gamma"] / 2)).sum()
    actual = log_joint(jax.tree.map(jnp.asarray, theta), x, y)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_bound_is_not_above_the_log_evidence(table, network, getkey):
    """bound <= E ln w <= ln mean w, each within its error; the first gap is known.

    It is the Jensen gap of the scales, ln E[r] - E[ln r] with r = 1/tau^2 + 1/b^2 (M5).
    """
    x, y = table
    bound, bound_error = bound_of(network, *map(jnp.asarray, table), key=getkey())
    log_w = log_weights(network, x, y, np.random.default_rng(2))
    mean, error = log_w.mean(), log_w.std() / math.sqrt(DRAWS)
    estimate, estimate_error = importance_sampled(log_w)
    gap = sum(
        jensen_gap(float(loc), float(sd), b)
        for name, b in B.items()
        for q in [normals(network)[name]]
        for loc, sd in zip(np.ravel(q.loc), np.ravel(q.scale), strict=True)
    )
    assert 0.1 < gap < SCALES
    assert abs(mean - bound - gap) < 5 * math.hypot(bound_error, error)
    assert bound < estimate + 5 * math.hypot(bound_error, estimate_error)
    assert mean < estimate + 5 * math.hypot(error, estimate_error)


def jensen_gap(loc, sd, b):
    """What the auxiliary variable of one scale costs, by quadrature (M5), (M3)."""
    log_r = lambda z: np.logaddexp(-2 * (loc + sd * z), -2 * math.log(b))
    expected, _ = integrate.quad(lambda z: stats.norm.pdf(z) * log_r(z), -12, 12)
    return np.logaddexp(-2 * loc + 2 * sd**2, -2 * math.log(b)) - expected


def test_without_data_the_bound_is_what_the_scales_cost(table):
    """The evidence of no data is 1: ln 1 = 0, less 1/2 ln pi for each scale (M5).

    All rows have weight 0. Weights and noise then go back to their priors at no cost.
    """
    x, y = table
    kl = fitted(x, y, np.zeros(ROWS), seed=3).kl(key=jr.key(0))
    floor = 0.5 * math.log(math.pi)
    np.testing.assert_allclose(kl.pop("layer_1/tau"), NODES * floor, rtol=1e-3)
    np.testing.assert_allclose(kl.pop("layer_1/upsilon"), floor, rtol=1e-3)
    np.testing.assert_allclose(kl.pop("output/kappa"), floor, rtol=1e-3)
    np.testing.assert_allclose([*kl.values()], 0, atol=1e-3)


def test_bound_is_under_an_evidence_that_is_known(getkey):
    """All inputs are equal: f is one number, and its prior is easily drawn (M1), (L1).

    Given f, gamma is integrated in closed form; the evidence is then a mean over draws
    of f from the prior.
    """
    generator, draws = np.random.default_rng(0), 1_000_000
    x, y = np.zeros((ROWS, 1)), generator.normal(0, 0.5, (ROWS, 1))
    half_cauchy = lambda b, *size: np.abs(b * generator.standard_cauchy(size))
    scale = half_cauchy(1.0, draws, NODES) * half_cauchy(1.0, draws, 1)
    a = np.tanh(scale * generator.standard_normal((draws, NODES)))
    out = generator.standard_normal((draws, NODES + 1))
    f = half_cauchy(5.0, draws) * ((a * out[:, 1:]).sum(1) + out[:, 0])
    shape = SHAPE + ROWS / 2
    rate = RATE + 0.5 * (ROWS * y.var() + ROWS * (y.mean() - f) ** 2)
    constant = special.gammaln(shape) - special.gammaln(SHAPE) + SHAPE * math.log(RATE)
    log_p = constant - 0.5 * ROWS * math.log(2 * math.pi) - shape * np.log(rate)
    evidence, error = importance_sampled(log_p)
    assert error < 0.02
    network = fitted(x, y, seed=0)
    bound, bound_error = bound_of(network, jnp.asarray(x), jnp.asarray(y), key=getkey())
    log_w = log_weights(network, x, y, generator)
    estimate, estimate_error = importance_sampled(log_w)
    assert bound < evidence + 5 * math.hypot(error, bound_error)
    assert estimate < evidence + 5 * math.hypot(error, estimate_error)
    # Of the 5.5 nats between them (seen with this seed and three others: 5.3 to 6.8)
    # six scales take 3.4 for (M5), and what is left is that q is a product.
    assert bound > evidence - 3 * SCALES * 0.5 * math.log(math.pi)


# --- predictions ------------------------------------------------------------------


@jax.jit
def nuts(x, y, start, key):
    """400 draws after 300 steps of adaptation."""
    density = lambda theta: log_joint(theta, x, y)
    key_adapt, key_run = jr.split(key)
    adaptation = blackjax.window_adaptation(
        blackjax.nuts, density, target_acceptance_rate=0.9, max_num_doublings=9
    )
    (state, settings), _ = adaptation.run(key_adapt, start, 300)
    kernel = blackjax.nuts(density, **settings)

    def step(state, key):
        state, _ = kernel.step(key, state)
        return state, state.position

    return jax.lax.scan(step, state, jr.split(key_run, 800))[1]


def test_predictive_means_agree_with_nuts(table, network, getkey):
    """On a grid, in standard deviations of the predictive that NUTS gives (P1)."""
    x, y = (jnp.asarray(v) for v in table)
    start = {name: q.loc for name, q in normals(network).items()}
    start["log_gamma"] = jnp.log(network.likelihood.gamma.mean())[0]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theta = nuts(x, y, start, getkey())
    grid = np.linspace(x.min(), x.max(), 50)[:, None]
    f = np.asarray(jax.vmap(outputs, in_axes=(0, None))(theta, grid))[:, :, 0]
    noise = np.exp(-np.asarray(theta["log_gamma"])).mean()
    sd = np.sqrt(f.var(0) + noise)
    rms = lambda difference: math.sqrt(np.mean((difference / sd) ** 2))
    # The reference agrees with itself far better than is asked for.
    assert rms(f[:400].mean(0) - f[400:].mean(0)) < TOLERANCE / 2
    posterior = VariationalPosterior.create(network, 400, key=getkey())
    mean, our_noise, _ = predict.summarise(NormalMixture.moments, posterior, grid)
    assert rms(mean[:, 0] - f.mean(0)) < TOLERANCE
    # And it is not the width of the tolerance that makes them agree.
    assert rms(np.asarray(y).mean() - f.mean(0)) > 5 * TOLERANCE
    np.testing.assert_allclose(our_noise, noise, rtol=0.25)
