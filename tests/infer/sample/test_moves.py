"""How chains move: known distributions, and step sizes that keep the energy."""

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from blackjax.mcmc.integrators import partially_refresh_momentum
from jax import lax

from farrier.infer.sample.moves import (
    Chain,
    MclmcMoves,
    NutsMoves,
    StepSize,
    Trace,
    mixing,
    relaxed,
    turned,
)

SD = np.geomspace(0.05, 5, 20)
ADAPTING = jnp.ones((), bool)


def normal(v):
    """ln p of independent normals of very different scales, up to a constant."""
    return -0.5 * ((v / jnp.asarray(SD)) ** 2).sum()


@eqx.filter_jit
def run(moves, chain, density, adapting, length, *, key) -> tuple[Chain, Trace]:
    one = lambda chain, _: moves.after(chain, density, adapting, key=key)
    return lax.scan(one, chain, length=length)


def warmed(moves, key):
    chain = moves.first(jnp.zeros(len(SD)), normal, key=key)
    for length in (50, 50, 100):
        chain, _ = run(moves, chain, normal, ADAPTING, length, key=key)
        chain = moves.with_masses(chain)
    return run(moves, chain, normal, ADAPTING, 50, key=key)[0]


@pytest.mark.parametrize(
    "moves", [MclmcMoves(20, 5e-4), NutsMoves(5)], ids=lambda v: type(v).__name__
)
def test_draws_have_the_moments_of_a_normal(moves, getkey):
    """(H4) keeps the distribution: means within 5 standard errors, sds within 3 %."""
    key = getkey()
    chain, trace = run(moves, warmed(moves, key), normal, ~ADAPTING, 4_000, key=key)
    points = np.asarray(trace.point) / SD
    parts = points.reshape(20, 200, -1).mean(1)
    error = parts.std(0, ddof=1) / np.sqrt(20)
    assert (np.abs(points.mean(0)) < 5 * error).all()
    assert abs(points.std(0).mean() - 1) < 0.03
    assert int(chain.seen) == 4_250
    assert not np.asarray(trace.diverged).any()


def test_directions_are_forgotten_over_the_length_l(getkey):
    """(H4) where nothing pulls: E[u(t) . u(0)] = exp(-(d - 1) t / (d L))."""
    flat, d, lag = (lambda v: 0.0 * v.sum()), 4, 100
    moves = MclmcMoves(1, 0.01)
    chain = moves.first(jnp.zeros(d), flat, key=getkey())
    chain, trace = run(moves, chain, flat, ~ADAPTING, 200_000, key=getkey())
    size = float(chain.step.size)
    u = np.diff(np.asarray(trace.point), axis=0) / size
    np.testing.assert_allclose(np.linalg.norm(u, axis=1), 1, rtol=1e-6)
    cosine = (u[lag:] * u[:-lag]).sum(1)
    parts = cosine[: len(cosine) // 20 * 20].reshape(20, -1).mean(1)
    expected = np.exp(-(d - 1) * lag * size / (d * d**0.5))
    error = parts.std(ddof=1) / np.sqrt(20)
    assert abs(parts.mean() - expected) < 5 * error


def test_directions_turn_as_those_of_blackjax(getkey):
    """(H6), which halves a step: with its noise, and with none."""
    key, u = getkey(), np.random.default_rng(0).normal(size=7)
    u, noise = jnp.asarray(u / np.linalg.norm(u)), jr.normal(key, (7,))
    with relaxed():
        expected = partially_refresh_momentum(u, key, 0.4, jnp.sqrt(7.0))
    ours = turned(u, noise, jnp.asarray(0.8))
    np.testing.assert_allclose(ours, expected, rtol=1e-10)
    np.testing.assert_allclose(turned(u, noise, jnp.zeros(())), u, rtol=1e-10)


@pytest.mark.parametrize("energy", [0.01, 5e-4])
def test_adapted_steps_change_the_energy_by_the_set_amount(energy, getkey):
    """(H5), measured over steps of BlackJAX's kernel after the warm-up."""
    key = getkey()
    chain = warmed(MclmcMoves(20, energy), key)
    kernel, d = blackjax.mclmc.build_kernel(), len(SD)

    def one(state, key_step):
        size = chain.step.size
        return kernel(key_step, state, normal, chain.inverse_mass, d**0.5, size)

    with relaxed():
        keys = jr.split(getkey(), 20_000)
        _, info = jax.jit(lambda state: lax.scan(one, state, keys))(chain.state)
    ours = np.mean(np.asarray(info.energy_change) ** 2) / d
    assert energy / 2 < ours < 2 * energy


def test_step_sizes_agree_with_loops():
    """(H5) by NumPy, with a step that was not finite."""
    random = np.random.default_rng(0)
    excess = np.exp(random.normal(size=300))
    fine = np.arange(300) != 100
    step = StepSize.create(jnp.asarray(0.3))
    sizes, used = [], [0.3]
    for e, ok in zip(excess, fine, strict=True):
        step = step.after(jnp.asarray(e), jnp.asarray(ok))
        used.append(float(step.size))
        sizes.append(used[-1])
    longest = np.inf
    for n in range(300):
        longest = longest if fine[n] else min(longest, 0.8 * used[n])
        past = np.arange(n + 1)
        counted = np.where(fine[past], excess[past], 0) + 1e-8
        w = np.exp(-0.5 * (np.log(counted) / 9) ** 2) * (149 / 151) ** (n - past)
        size = ((w * counted / np.array(used)[past] ** 6).sum() / w.sum()) ** (-1 / 6)
        assert sizes[n] == pytest.approx(min(size, longest), rel=1e-9)
    assert (sizes[-1] < longest < np.inf) or sizes[-1] == pytest.approx(longest)


def test_a_step_that_is_not_finite_is_taken_back_and_counted(getkey):
    """Beyond 1 there is no density: the chain stays below, its steps shrink."""
    density = lambda v: jnp.where(v.max() < 1, -0.5 * (v**2).sum(), jnp.nan)
    moves = MclmcMoves(10, 0.01)
    chain = moves.first(jnp.zeros(4), density, key=getkey())
    chain, trace = run(moves, chain, density, ADAPTING, 50, key=getkey())
    assert np.asarray(trace.diverged).any()
    assert np.isfinite(trace.point).all()
    assert np.asarray(trace.point).max() < 1
    assert float(chain.step.longest) < np.inf
    assert (np.asarray(trace.gradients) == 20).all()


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
