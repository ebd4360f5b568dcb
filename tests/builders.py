"""Small networks, rows and training runs, with their settings as arguments."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from farrier.core.families import LogNormal, Normal
from farrier.core.priors import Horseshoe
from farrier.core.weights import MeanFieldWeights
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.train.config import TrainConfig
from farrier.train.data import Data
from farrier.train.loop import Job, Run, train

NOISE = 0.1


def tiny_network(
    d_in=1,
    widths=(2,),
    d_out=1,
    *,
    rows=19,
    prior=None,
    posterior=None,
    likelihood=None,
    activation="relu",
    key,
):
    """A network before training; `rows` is the sum of the row weights.

    By default a regression with constant noise under a horseshoe. `d_out` is the number
    of targets or of classes.
    """
    likelihood = GaussianNoise() if likelihood is None else likelihood
    return Network.create(
        d_in,
        widths,
        likelihood.build(d_out, rows=float(rows)),
        Horseshoe() if prior is None else prior,
        posterior,
        activation=activation,
        key=key,
    )


def with_layer(network, number, *, kernel=None, bias=None, sd=None, scale_sd=None):
    """The network with other mean-field weights in one layer, -1 being the output.

    Parameters
    ----------
    kernel, bias
        Functions of the present locations, or None to keep them.
    sd, scale_sd
        Posterior standard deviations of all weights, and of the logarithms of all
        scales; None keeps them.
    """
    layers = [*network.layers, network.output]
    weights = layers[number].weights

    def changed(normal, change):
        loc = normal.loc if change is None else jnp.asarray(change(normal.loc))
        log_scale = normal.log_scale
        if sd is not None:
            log_scale = jnp.full_like(log_scale, np.log(sd))
        return Normal(loc, log_scale)

    scales = layers[number].scales
    if scale_sd is not None:
        fixed = lambda q: LogNormal(q.loc, jnp.full_like(q.log_scale, np.log(scale_sd)))
        scales = {name: replace(s, q=fixed(s.q)) for name, s in scales.items()}
    new = MeanFieldWeights(changed(weights.kernel, kernel), changed(weights.bias, bias))
    layers[number] = replace(layers[number], weights=new, scales=scales)
    return network.with_layers(layers)


def generator_of(key):
    """A NumPy generator seeded by a key."""
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def straight_line(rows=19, *, noise=NOISE, key):
    """A straight line with a little noise: one node can learn it."""
    generator = generator_of(key)
    x = generator.standard_normal((rows, 1))
    return x, x + noise * generator.standard_normal((rows, 1))


def job_of(network, x, y, config, *, weight=None, shrink=None, key):
    """A run before its first step, with all that it is trained with."""
    data = Data.create(x, y, weight, batch_size=config.batch_size)
    return Job(Run.create(network, config), data, config, key, shrink)


def fit(network, x, y, config, *, key, **kwargs):
    """A trained run."""
    return train(job_of(network, x, y, config, key=key), **kwargs)


def quick(steps, batch_size=7, **settings):
    """Settings of a short run that takes its whole budget."""
    settings = {"tolerance": 0.0} | settings
    return TrainConfig(steps=steps, batch_size=batch_size, **settings)


def with_scales(network, change):
    """The network with every scale of its layers changed."""
    layers = [
        replace(layer, scales={name: change(s) for name, s in layer.scales.items()})
        for layer in (*network.layers, network.output)
    ]
    return network.with_layers(layers)
