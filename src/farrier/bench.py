"""Timings, each a ratio inside one run where it can be: the machine is noisy.

Programs that are compared run in turn, again and again; a figure is the median over the
repeats. Compilation is timed apart.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax

from .core.priors import Horseshoe
from .core.random import row_normals
from .estimators import HorseshoeRegressor
from .infer.train import Data, Schedule, TrainConfig, TrainState, adam, run_chunk
from .model.likelihoods import Categorical, GaussianNoise
from .model.network import Network

REPEATS = 7
# Name: inputs, hidden layers, outputs, rows of the table, rows in a step, steps.
SHAPES = {
    "8-50-1": (8, (50,), 1, 927, 927, 400),
    "784-400-400-10": (784, (400, 400), 10, 4096, 512, 16),
    "784-1200-1200-10": (784, (1200, 1200), 10, 4096, 512, 6),
}
NORMALS = 2**24  # in one run of a generator


def interleaved(programs: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """Seconds of the first call of each program, and the median of the later ones."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(REPEATS + 1):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            times[name].append(time.perf_counter() - began)
    return {
        name: {"first": first, "median": statistics.median(later)}
        for name, (first, *later) in times.items()
    }


def step_ratio(shape: str) -> dict[str, float]:
    """Step of the horseshoe network / step of a plain network of the same shape."""
    d_in, widths, d_out, rows, batch_size, steps = SHAPES[shape]
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, d_in))
    if d_out == 1:
        y, likelihood = random.normal(size=(rows, 1)), GaussianNoise()
    else:
        y, likelihood = random.integers(0, d_out, rows), Categorical()
    data = Data.create(x, y, batch_size=batch_size)
    network = Network.create(
        d_in, widths, likelihood.build(d_out, rows=rows), Horseshoe(), key=jr.key(0)
    )
    state = TrainState.create(network)
    schedule = Schedule.create(TrainConfig(steps=2**30))
    plain = plain_steps(data, (d_in, *widths, d_out), steps)
    key = jr.key(1)
    found = interleaved(
        {
            "horseshoe": lambda: run_chunk(state, data, schedule, steps, 1, key=key)[1],
            "plain": lambda: plain(key),
        }
    )
    ours, theirs = found["horseshoe"], found["plain"]
    return {
        "horseshoe_ms": 1e3 * ours["median"] / steps,
        "plain_ms": 1e3 * theirs["median"] / steps,
        "ratio": ours["median"] / theirs["median"],
        "compile_s": ours["first"] - ours["median"],
        "plain_compile_s": theirs["first"] - theirs["median"],
    }


def plain_steps(data: Data, sizes: tuple[int, ...], steps: int) -> Callable:
    """A plain relu network, trained by Adam on random batches: the yardstick."""

    def init(key: jax.Array) -> list:
        keys = jr.split(key, len(sizes) - 1)
        shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
        return [(jr.normal(k, (m, n)) / m**0.5, jnp.zeros(n)) for k, m, n in shapes]

    def loss(params: list, x: jax.Array, y: jax.Array) -> jax.Array:
        for kernel, bias in params[:-1]:
            x = jax.nn.relu(x @ kernel + bias[None])
        kernel, bias = params[-1]
        f = x @ kernel + bias[None]
        if jnp.issubdtype(y.dtype, jnp.floating):
            return ((y - f) ** 2).mean()
        return -jnp.take_along_axis(jax.nn.log_softmax(f), y[:, None], axis=1).mean()

    full = len(data.weight) == data.batch_size

    def step(carry: tuple, i: jax.Array) -> tuple[tuple, jax.Array]:
        params, moments = carry
        x, y = data.x, data.y
        if not full:
            start = (i * data.batch_size) % (len(data.weight) - data.batch_size + 1)
            x = lax.dynamic_slice_in_dim(x, start, data.batch_size)
            y = lax.dynamic_slice_in_dim(y, start, data.batch_size)
        value, grads = jax.value_and_grad(loss)(params, x, y)
        with jax.numpy_dtype_promotion("standard"):
            updates, moments = adam().update(grads, moments)
        params = jax.tree.map(lambda p, u: p - 1e-3 * u, params, updates)
        return (params, moments), value

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        params = init(key)
        _, values = lax.scan(step, (params, adam().init(params)), jnp.arange(steps))
        return values

    return run


def random_numbers() -> dict[str, float]:
    """Millions of normals a second inside a scan, for each generator."""
    rows, columns = 512, 400
    pairs = NORMALS // (2 * rows * columns)

    def ours(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        return row_normals(jnp.arange(rows), jnp.arange(columns), key=key)

    def library(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = jr.split(key)
        return jr.normal(a, (rows, columns)), jr.normal(b, (rows, columns))

    def program(generator: Callable) -> Callable[[], jax.Array]:
        @jax.jit
        def run(key: jax.Array) -> jax.Array:
            def step(total: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
                a, b = generator(jr.fold_in(key, i))
                return total + a * b, None

            return lax.scan(step, jnp.zeros((rows, columns)), jnp.arange(pairs))[0]

        return lambda: run(jr.key(0))

    found = interleaved({"farrier": program(ours), "jax.random": program(library)})
    made = 2 * rows * columns * pairs
    return {name: made / times["median"] / 1e6 for name, times in found.items()}


def fit_and_predict() -> dict[str, float]:
    """A default fit of 1,000 x 8, first compilation included, and its predictions."""
    random = np.random.default_rng(0)
    x = random.normal(size=(1_000, 8))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * random.normal(size=1_000)
    began = time.perf_counter()
    model = HorseshoeRegressor(random_state=0).fit(x, y)
    fit = time.perf_counter() - began
    small = model.compact()
    many = random.normal(size=(20_000, 8))
    found = interleaved(
        {"whole": lambda: model.predict(many), "compact": lambda: small.predict(many)}
    )
    return {
        "fit_s": fit,
        "nodes": len(model.node_scores_[0]),
        "nodes_kept": len(small.node_scores_[0]),
        "rows_per_s": len(many) / found["whole"]["median"],
        "rows_per_s_compact": len(many) / found["compact"]["median"],
    }


def start_up() -> dict[str, float]:
    """Seconds of `farrier --help` and of importing the estimators, in new processes."""
    commands = {
        "help_s": [sys.executable, "-m", "farrier", "--help"],
        "import_s": [sys.executable, "-c", "import farrier"],
        "import_estimators_s": [
            sys.executable,
            "-c",
            "from farrier import HorseshoeRegressor",
        ],
    }
    found = interleaved(
        {
            name: lambda command=command: (
                subprocess.run(
                    command, check=True, stdout=subprocess.DEVNULL
                ).returncode
            )
            for name, command in commands.items()
        }
    )
    return {name: times["median"] for name, times in found.items()}


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    **{f"step {shape}": lambda shape=shape: step_ratio(shape) for shape in SHAPES},
    "random normals (M/s)": random_numbers,
    "fit and predict": fit_and_predict,
    "start-up": start_up,
}


def run(
    folder: Path, report: Callable[[int, str], None]
) -> dict[str, dict[str, float]]:
    """All figures, also written to `bench.json` in `folder`."""
    found = {}
    for done, (name, part) in enumerate(PARTS.items()):
        report(done, name)
        found[name] = part()
    report(len(PARTS), "done")
    versions = {n: version(n) for n in ("farrier", "jax", "jaxlib", "numpy")}
    machine = {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"versions": versions, "machine": machine, "figures": found}, indent=1
    )
    (folder / "bench.json").write_text(text + "\n")
    return found
