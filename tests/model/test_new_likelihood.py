"""A likelihood of one's own: counts, from the base class and its defaults."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jax.scipy.special import gammaln, logsumexp
from networks import generator_of
from scipy import stats

from farrier.core.priors import Gaussian, Horseshoe
from farrier.infer.compact import compact
from farrier.infer.nodes import find_nodes
from farrier.infer.predict import summarise
from farrier.model.distributions import AbstractDistribution
from farrier.model.likelihoods import AbstractLikelihood
from farrier.model.network import Network
from farrier.model.posterior import VariationalPosterior


class PoissonMixture(AbstractDistribution):
    """Counts of one mean for each draw and row."""

    rate: jax.Array  # draws x rows

    def log_density(self, y):
        """Log probability of the count of each row."""
        each = poisson_log_density(y[None, :, 0], jnp.log(self.rate))
        return logsumexp(each, axis=0) - jnp.log(len(each))

    def mean(self):
        """Expected count of each row."""
        return self.rate.mean(0)

    def check_values(self, y):
        """Expected counts; the sd of the counts; the log density."""
        variance = self.rate.mean(0) + self.rate.var(0)
        return self.mean()[:, None], jnp.sqrt(variance), self.log_density(y)


def poisson_log_density(y, log_rate):
    """ln p(y) of counts with the mean exp(log_rate)."""
    return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1)


class PoissonLikelihood(AbstractLikelihood):
    """Counts with the mean exp(f), one count for each row."""

    name: ClassVar[str] = "poisson"

    @property
    def d_out(self):
        """One output: the logarithm of the mean."""
        return 1

    def expected_log_density(self, y, f):
        """One sample for each row, at the drawn output."""
        return poisson_log_density(y[:, 0], f.draw()[0])

    def log_marginal(self, y, f, weight):
        """Weighted sum of the log densities of all rows."""
        return weight @ poisson_log_density(y[:, 0], f[:, 0])

    def predictive(self, outputs, noise):
        """A mixture of Poisson distributions, one for each draw."""
        return PoissonMixture(jnp.exp(outputs.drawn[..., 0]))

    def residual_variance(self, noise, f):
        """1 / mean count: the variance of ln y around f, for large counts."""
        return 1 / jnp.exp(f).mean(0)


LIKELIHOOD = PoissonLikelihood()
ROWS = 80


def table(key):
    """Counts whose logarithm of the mean depends on the first of two columns."""
    generator = generator_of(key)
    x = generator.standard_normal((ROWS, 2))
    rate = np.exp(1.0 + 0.8 * np.tanh(2 * x[:, 0]))
    return x, generator.poisson(rate)[:, None].astype(float), rate


def trained(x, y, *, steps=300, key):
    """A small network after steps of Adam up its ELBO, and the ELBO at each step."""
    network = Network.create(2, (4,), LIKELIHOOD, Horseshoe(), key=key)
    params, static = eqx.partition(network, eqx.is_inexact_array)
    optimiser, weight = optax.adam(0.02), jnp.ones(ROWS)

    def negative_elbo(params, key):
        network = eqx.combine(params, static)
        return -network.bound(jnp.asarray(x), jnp.asarray(y), weight, key=key).total

    def step(carry, key):
        params, state = carry
        loss, gradient = jax.value_and_grad(negative_elbo)(params, key)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), -loss

    start = params, optimiser.init(params)
    run = jax.jit(lambda start, keys: jax.lax.scan(step, start, keys))
    (params, _), elbo = run(start, jr.split(key, steps))
    return eqx.combine(params, static), np.asarray(elbo)


def test_a_new_likelihood_is_trained_and_predicts(getkey):
    """The whole way: ELBO, predictive distribution, node scores, compaction."""
    x, y, rate = table(getkey())
    network, elbo = trained(x, y, key=getkey())
    assert elbo[-50:].mean() > elbo[:10].mean() + 20
    posterior = VariationalPosterior.create(network, 30, key=getkey()).stored()
    mean, _, log_density = summarise(PoissonMixture.check_values, posterior, x, y)
    assert np.corrcoef(mean[:, 0], rate)[0, 1] > 0.9
    constant = stats.poisson(y.mean()).logpmf(y[:, 0]).mean()
    assert log_density.mean() > constant + 0.1
    posterior = VariationalPosterior.create(network, 30, key=getkey())
    nodes = find_nodes(posterior, jnp.asarray(x))
    assert 1 <= nodes.widths[0] <= 4
    small = compact(posterior, nodes, x, y)
    assert small.moved <= 0.01
    assert small.posterior.widths == (small.keep[0].sum(),)


def test_its_predictive_distribution_is_a_mixture(getkey):
    """By scipy, over the draws of the posterior (P1)."""
    network = Network.create(2, (4,), LIKELIHOOD, Horseshoe(), key=getkey())
    posterior = VariationalPosterior.create(network, 30, key=getkey())
    x, y, _ = table(getkey())
    x, y = jnp.asarray(x[:5]), jnp.asarray(y[:5])
    rate = np.exp(np.asarray(posterior.drawn_outputs(x))[..., 0])
    assert rate.std(0).min() > 1e-3
    p = stats.poisson(rate).pmf(np.asarray(y)[:, 0]).mean(0)
    ours = posterior.predictive(x).log_density(y)
    np.testing.assert_allclose(ours, np.log(p), rtol=1e-9)


def test_defaults_of_a_likelihood_without_unknowns(getkey):
    """No KL, no noise, outputs as they are, the prior of an output layer."""
    f = jr.normal(getkey(), (3, 1))
    assert LIKELIHOOD.kl() == {}
    assert not LIKELIHOOD.integrates_output
    assert LIKELIHOOD.noise_outputs.tolist() == [False]
    assert LIKELIHOOD.resumed(PoissonLikelihood()) is LIKELIHOOD
    np.testing.assert_array_equal(LIKELIHOOD.identified(f), f)
    assert isinstance(LIKELIHOOD.output_prior(Horseshoe()), Gaussian)
    assert LIKELIHOOD.mean_noise().shape == (0,)
    assert LIKELIHOOD.noise_draws(4, key=getkey()).shape == (4, 0)
    given = LIKELIHOOD.noise_given(jnp.zeros((3, 1)), f, jnp.ones(3))
    noise = LIKELIHOOD.sample_noise(given, 5, generator_of(getkey()))
    assert noise.shape == (5, 0)
    with pytest.raises(NotImplementedError, match="PoissonLikelihood cannot sample"):
        LIKELIHOOD.sample_targets(f[None], noise[:1], jnp.arange(3), key=getkey())


def test_a_likelihood_must_say_five_things():
    """The abstract methods, and no more than these."""
    assert AbstractLikelihood.__abstractmethods__ == {
        "d_out",
        "expected_log_density",
        "log_marginal",
        "predictive",
        "residual_variance",
    }
