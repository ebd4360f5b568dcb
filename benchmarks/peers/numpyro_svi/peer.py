"""A training step of a horseshoe network by NumPyro's SVI."""

from collections.abc import Callable
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro.handlers import scale
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from protocol import Task, time_steps

NOTE = (
    "the same model, node and layer scales non-centred, AutoNormal guide; weights and "
    "scales drawn once a batch; all steps in one compiled scan"
)
RATE = 1e-3
OUTPUT_SCALE = 5.0  # of the half-Cauchy of the output layer
NOISE = (1.0, 0.01)  # shape and rate of the Gamma prior of the noise precision


def network(x: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Outputs for one draw of all weights; each bias shares the scale of its node."""
    last = len(sizes) - 2
    for i, (d_in, d_out) in enumerate(pairwise(sizes)):
        shape = (d_in + 1, d_out)
        beta = numpyro.sample(f"beta_{i}", dist.Normal().expand(shape).to_event())
        if i == last:
            size = numpyro.sample("kappa", dist.HalfCauchy(OUTPUT_SCALE))
        else:
            nodes = dist.HalfCauchy().expand((d_out,)).to_event()
            upsilon = numpyro.sample(f"upsilon_{i}", dist.HalfCauchy())
            size = numpyro.sample(f"tau_{i}", nodes) * upsilon
        weights = size * beta
        x = x @ weights[:-1] + weights[-1]
        x = x if i == last else jax.nn.relu(x)
    return x


def build(task: Task) -> Callable[[], object]:
    """`SVI.update` with the default bound, one draw a step."""

    def model(x: jax.Array, y: jax.Array) -> None:
        f = network(x, task.sizes)
        if task.regression:
            precision = numpyro.sample("gamma", dist.Gamma(*NOISE))
            target = dist.Normal(f, precision**-0.5).to_event(1)
        else:
            target = dist.Categorical(logits=f)
        with scale(scale=len(task.x) / task.batch), numpyro.plate("rows", task.batch):
            numpyro.sample("y", target, obs=y)

    x, y = jnp.asarray(task.x), jnp.asarray(task.y)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(RATE), Trace_ELBO())
    state = svi.init(jax.random.key(0), x[: task.batch], y[: task.batch])

    @jax.jit
    def run(state):
        def step(state, start):
            rows = lax.dynamic_slice_in_dim(x, start, task.batch)
            targets = lax.dynamic_slice_in_dim(y, start, task.batch)
            return svi.update(state, rows, targets)

        return lax.scan(step, state, jnp.asarray(task.starts))

    return lambda: jax.block_until_ready(run(state))


time_steps(build, packages=("numpyro", "jax", "jaxlib", "numpy"), note=NOTE)
