"""A small target of Markov chains, for the tests of sampling."""

import jax.numpy as jnp
import numpy as np

from farrier.core.priors import Horseshoe
from farrier.infer.sample.target import Target
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.train.data import Data

ROWS = 30


def table(targets=1):
    """Inputs, targets and weights of a few rows."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 2))
    y = np.tanh(x @ random.normal(size=(2, targets))) + 0.1
    return x, y, random.integers(1, 3, ROWS).astype(float)


def small_target(prior=None, likelihood=None, posterior=None, *, key, widths=(3,)):
    """The posterior of a network before training, given a few rows."""
    likelihood = likelihood or GaussianNoise(shape=2.0, rate=0.5).build(1, rows=ROWS)
    args = (2, widths, likelihood, prior or Horseshoe(), posterior)
    network = Network.create(*args, key=key)
    if likelihood.name == "categorical":
        x, _, weight = table()
        y = np.arange(ROWS) % likelihood.d_out
    else:
        x, y, weight = table(likelihood.targets)
    return Target(network, jnp.asarray(x), jnp.asarray(y), jnp.asarray(weight))


def data_of(target, weight=None):
    """The rows of a target as training data."""
    x, y = np.asarray(target.x), np.asarray(target.y)
    return Data.create(x, y, weight, batch_size=ROWS)
