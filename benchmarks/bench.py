"""Timings, each a ratio inside one run where it can be: the machine is noisy.

Programs that are compared run in turn, again and again; a figure is the median over the
repeats. Compilation is timed apart.
"""

import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax

from experiments import datasets
from experiments.settings import arguments
from farrier import (
    Horseshoe,
    HorseshoeRegressor,
    ParquetRows,
    Training,
    TrainingWarning,
    fit_many,
    presets,
)
from farrier.core.posteriors import POSTERIORS
from farrier.core.priors import PRIORS
from farrier.core.random import box_muller, fold_in, normals, threefry
from farrier.infer.predict import summarise
from farrier.model.distributions import ClassProbabilities
from farrier.model.likelihoods import NOISES, Categorical, GaussianNoise
from farrier.model.network import Network
from farrier.model.posterior import VariationalPosterior
from farrier.scale.placement import AbstractPlacement, Meshed
from farrier.scale.processes import AbstractGroup
from farrier.scale.rows import ArrayRows, ConvertedRows
from farrier.scale.stream import BLOCK_VALUES, Stream
from farrier.tables.files import imported, writing
from farrier.train.config import COMPILER_OPTIONS, TrainConfig
from farrier.train.data import RECORDS_PER_CHUNK, Data, run_chunk
from farrier.train.loop import CHUNKS, Job, Run, TrainingRows, train
from farrier.train.schedule import Schedule
from farrier.train.shrink import Shrinking, weight_count
from farrier.train.step import TrainState, adam

ROOT = Path(__file__).parents[1]
REPEATS = 7
# Name: inputs, hidden layers, outputs, rows of the table, rows in a step, steps.
SHAPES = {
    "8-50-1": (8, (50,), 1, 927, 927, 400),
    "784-400-400-10": (784, (400, 400), 10, 4096, 512, 16),
    "784-1200-1200-10": (784, (1200, 1200), 10, 4096, 512, 6),
}
NORMALS = 2**24  # in one run of a generator
ALMOST_ONE = 1 - 2**-24
FITS = 20
EPOCHS = 60
DIGITS, MIDDLE, WIDE = "784-400-400-10", (400, 400), (1_200, 1_200)
STREAMED_ROWS, ROWS_IN_MEMORY = 20_000_000, 2_000_000  # of a table on the disk
COLUMNS, GROUP = 20, 2**17  # of it, and rows of its row groups
TWO_BATCHES = (512, 1_024, 2_048)  # rows in a step of two processes
ROUNDS = 3  # repeats with them
SUMS = 20  # of gradients, and agreements, in one run
MOST_SECONDS = 1_800  # of processes that are timed
# Part and figure: at most this.
TARGETS = {
    ("step 8-50-1", "ratio"): 4.0,
    ("step 784-400-400-10", "ratio"): 2.4,
    ("step 784-1200-1200-10", "ratio"): 2.4,
    ("many fits", "ratio"): 10.0,
    ("shrinking", "ratio"): 0.5,
    ("two processes", "ratio_1024"): 0.625,  # 1.6 times the rows a second
    ("start-up", "help_s"): 0.7,
    ("load and predict", "load_s"): 2.0,
    ("load and predict", "predict_s"): 2.0,
    ("memory", "fit_GB"): 1.5,
    ("streamed memory", "fit_GB"): 1.5,
    ("streamed pass", "ratio"): 1.3,
    ("fits to concrete", "default_s"): 20.0,
    ("fits to concrete", "refined_s"): 60.0,
}


def interleaved(
    programs: dict[str, Callable[[], Any]], repeats: int | None = None
) -> dict[str, dict[str, float]]:
    """Seconds of the first call of each program, and the median of the later ones."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range((REPEATS if repeats is None else repeats) + 1):
        for name, program in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program())
            times[name].append(time.perf_counter() - began)
    return {
        name: {"first": first, "median": statistics.median(later)}
        for name, (first, *later) in times.items()
    }


def random_table(shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of noise: what a step costs does not depend on what it learns."""
    d_in, _, d_out, rows, *_ = SHAPES[shape]
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, d_in)).astype(np.float32)
    if d_out == 1:
        return x, random.normal(size=(rows, 1)).astype(np.float32)
    return x, random.integers(0, d_out, rows)


def smooth_table(rows: int, d_in: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a curved surface with a little noise."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, d_in))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * random.normal(size=rows)
    return x, y


def our_network(shape: str, posterior: str = "mean-field") -> Network:
    """A horseshoe network before training, with a posterior of that name."""
    d_in, widths, d_out, rows, *_ = SHAPES[shape]
    noise = GaussianNoise() if d_out == 1 else Categorical()
    likelihood = noise.build(d_out, rows=rows)
    weights = POSTERIORS[posterior]
    return Network.create(d_in, widths, likelihood, Horseshoe(), weights, key=jr.key(0))


def our_steps(
    shape: str, data: Data, posterior: str = "mean-field"
) -> Callable[[], jax.Array]:
    """A horseshoe network that is trained on by so many steps with each call."""
    *_, steps = SHAPES[shape]
    state = TrainState.create(our_network(shape, posterior), TrainConfig())
    schedule = Schedule.create(TrainConfig(steps=2**30))

    def run() -> jax.Array:
        nonlocal state
        state, means = run_chunk(state, data, schedule, steps, 1, key=jr.key(1))
        return means

    return run


def step_ratio(shape: str) -> dict[str, float]:
    """Step of the horseshoe network / step of a plain network of the same shape."""
    d_in, widths, d_out, _, batch_size, steps = SHAPES[shape]
    data = Data.create(*random_table(shape), batch_size=batch_size)
    plain = plain_steps(data, (d_in, *widths, d_out), steps)
    found = interleaved(
        {
            "horseshoe": our_steps(shape, data),
            "low rank": our_steps(shape, data, "low-rank"),
            "plain": lambda: plain(jr.key(1)),
        }
    )
    ours, theirs = found["horseshoe"], found["plain"]
    low_rank = found["low rank"]["median"]
    return {
        "horseshoe_ms": 1e3 * ours["median"] / steps,
        "low_rank_ms": 1e3 * low_rank / steps,
        "plain_ms": 1e3 * theirs["median"] / steps,
        "ratio": ours["median"] / theirs["median"],
        "low_rank_ratio": low_rank / theirs["median"],
        "compile_s": ours["first"] - ours["median"],
        "plain_compile_s": theirs["first"] - theirs["median"],
    }


def where_a_step_goes() -> dict[str, float]:
    """Microseconds of what an 8-50-1 step is made of, each by itself inside a scan."""
    shape = "8-50-1"
    _, widths, *_, batch_size, steps = SHAPES[shape]
    data = Data.create(*random_table(shape), batch_size=batch_size)
    params, fixed = eqx.partition(our_network(shape), eqx.is_inexact_array)

    def noise(key: jax.Array) -> jax.Array:
        numbers = jnp.arange(widths[0]), jnp.arange(len(data.weight))
        return jnp.add(*(z[0, 0] for z in normals(*numbers, key=key)))

    def bound(key: jax.Array, params: Network = params) -> jax.Array:
        whole = eqx.combine(params, fixed)
        return whole.bound(data.x, data.y, data.weight, key=key).total

    def gradient(key: jax.Array) -> jax.Array:
        grads = jax.grad(lambda params: bound(key, params))(params)
        return jnp.stack([g.ravel()[0] for g in jax.tree.leaves(grads)]).sum()

    def program(part: Callable[[jax.Array], jax.Array]) -> Callable[[], jax.Array]:
        return scanned(lambda key, i: part(fold_in(key, i)), (), steps, jr.key(0))

    found = interleaved(
        {
            "noise_us": program(noise),
            "bound_us": program(bound),
            "bound_and_gradient_us": program(gradient),
            "whole_step_us": our_steps(shape, data),
        }
    )
    parts = {name: 1e6 * times["median"] / steps for name, times in found.items()}
    one_core = 1e3 * on_one_core("bench.step_ratio('8-50-1')['horseshoe_ms']")
    # What `many fits` could be at best: each core has half of the fits to itself.
    limit = FITS / (os.cpu_count() or 1) * one_core / parts["whole_step_us"]
    return parts | {"whole_step_one_core_us": one_core, "least_many_fits": limit}


def on_one_core(figure: str) -> float:
    """A figure of this file, from a new process that has one core."""
    return printed(
        "import os\n"
        "if hasattr(os, 'sched_setaffinity'):\n"
        "    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from benchmarks import bench\n"
        f"print({figure})\n"
    )


def scanned(
    part: Callable[[jax.Array, jax.Array], jax.Array],
    shape: tuple[int, ...],
    steps: int,
    key: jax.Array,
) -> Callable[[], jax.Array]:
    """A program that adds up what `part` makes of the key and of each step."""

    @partial(jax.jit, compiler_options=COMPILER_OPTIONS)
    def run(key: jax.Array) -> jax.Array:
        def step(total: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            return total + part(key, i), None

        return lax.scan(step, jnp.zeros(shape), jnp.arange(steps))[0]

    return lambda: run(key)


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
    """Millions of normals a second inside a scan, for each generator tried."""
    rows, columns = 512, 400
    pairs = NORMALS // (2 * rows * columns)
    grid = [lax.broadcasted_iota(jnp.uint32, (rows, columns), axis) for axis in (0, 1)]

    def bits(key: jax.Array, rounds: int) -> tuple[jax.Array, jax.Array]:
        words = jr.key_data(key)
        return threefry(words[0], words[1], grid[0], grid[1], rounds)

    def inverse_error_function(word: jax.Array) -> jax.Array:
        uniform = lax.bitcast_convert_type(word, jnp.int32).astype(float) * 2.0**-31
        return math.sqrt(2) * lax.erf_inv(jnp.clip(uniform, -ALMOST_ONE, ALMOST_ONE))

    def library(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = jr.split(key)
        return jr.normal(a, (rows, columns)), jr.normal(b, (rows, columns))

    def program(
        generator: Callable, kind: str = "threefry2x32"
    ) -> Callable[[], jax.Array]:
        def product(key: jax.Array, i: jax.Array) -> jax.Array:
            a, b = generator(jr.fold_in(key, i))
            return a * b

        return scanned(product, (rows, columns), pairs, jr.key(0, impl=kind))

    columns_and_rows = jnp.arange(rows), jnp.arange(columns)
    found = interleaved(
        {
            "farrier": program(lambda key: normals(*columns_and_rows, key=key)),
            "threefry-13, Box-Muller": program(lambda k: box_muller(*bits(k, 13))),
            "threefry-20, Box-Muller": program(lambda k: box_muller(*bits(k, 20))),
            "threefry-13, inverse error function": program(
                lambda key: tuple(map(inverse_error_function, bits(key, 13)))
            ),
            "jax.random": program(library),
            "jax.random, rbg": program(library, "rbg"),
        }
    )
    made = 2 * rows * columns * pairs
    return {name: made / times["median"] / 1e6 for name, times in found.items()}


def many_fits() -> dict[str, float]:
    """20 fits as one piece of work / one fit, for 8-50-1."""
    d_in, widths, _, rows, _, steps = SHAPES["8-50-1"]
    x, y = smooth_table(rows + 100, d_in)
    random = np.random.default_rng(0)
    splits = [random.permutation(len(x))[:rows] for _ in range(FITS)]

    def fresh() -> HorseshoeRegressor:
        chosen = {"max_iter": 5 * steps, "early_stopping": False, "random_state": 0}
        return HorseshoeRegressor(widths, **arguments(presets.PLAIN, chosen))

    def one() -> None:
        fresh().fit(x[splits[0]], y[splits[0]])

    def many() -> None:
        fit_many(fresh(), x, y, rows=splits)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)  # so few steps are no fit
        found = interleaved({"one": one, "many": many})
    one_s, many_s = found["one"]["median"], found["many"]["median"]
    return {
        "one_s": one_s,
        f"{FITS}_fits_s": many_s,
        "steps": FITS * 5 * steps,
        "ratio": many_s / one_s,
    }


def fit_and_predict() -> dict[str, float]:
    """A default fit of 1,000 x 8, and predictions with 100 draws before and after."""
    x, y = smooth_table(1_000, 8)
    began = time.perf_counter()
    model = HorseshoeRegressor(n_draws=100, random_state=0).fit(x, y)
    fit = time.perf_counter() - began
    small = model.compact()
    many, _ = smooth_table(20_000, 8)
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


def printed(program: str, *arguments: str, **variables: str) -> float:
    """The number that a program prints in a process of its own."""
    return float(output_of(program, *arguments, **variables))


def output_of(program: str, *arguments: str, **variables: str) -> str:
    """What a program prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env=surroundings() | variables,
    )
    return done.stdout


def surroundings() -> dict[str, str]:
    """Variables of a process that imports `benchmarks` and `experiments`."""
    folders = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def compile_time() -> dict[str, float]:
    """Seconds of a fit of one step in a new process: cold, then with JAX's cache."""
    program = (
        "import time, numpy as np\n"
        "from experiments.settings import arguments\n"
        "from farrier import HorseshoeRegressor\n"
        "x = np.random.default_rng(0).normal(size=(927, 8))\n"
        "began = time.perf_counter()\n"
        "HorseshoeRegressor((50,), **arguments({'max_iter': 1})).fit(x, x[:, 0])\n"
        "print(time.perf_counter() - began)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = [printed(program, **cache_in(folder)) for _ in range(2)]
    return {"cold_s": found[0], "cached_s": found[1], "ratio": found[1] / found[0]}


def cache_in(folder: str) -> dict[str, str]:
    """Variables by which JAX keeps there what it has compiled."""
    return {
        "JAX_COMPILATION_CACHE_DIR": folder,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def load_and_predict() -> dict[str, float]:
    """Seconds to read a default model of 1,000 x 8, and to predict 10,000 rows then.

    In a new process, after farrier is imported; intervals and all.
    """
    program = (
        "import sys, time, numpy as np\n"
        "from farrier import load\n"
        "x = np.load(sys.argv[2])\n"
        "began = time.perf_counter()\n"
        "model = load(sys.argv[1])\n"
        "read = time.perf_counter()\n"
        "model.predict(x, return_std=True), model.predict_interval(x)\n"
        "ended = time.perf_counter()\n"
        "print(read - began if sys.argv[3] == 'load' else ended - read)\n"
    )
    x, y = smooth_table(1_000, 8)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("model.safetensors", "x.npy")]
        HorseshoeRegressor(random_state=0).fit(x, y).save(paths[0])
        np.save(paths[1], smooth_table(10_000, 8)[0])
        return {
            f"{what}_s": statistics.median(
                printed(program, *paths, what) for _ in range(REPEATS)
            )
            for what in ("load", "predict")
        }


def concrete(data: Path) -> dict[str, float]:
    """Seconds of a fit to one split of concrete, each in a new process.

    Compilation is in it; the import of farrier is not. The last is once more the
    refined one, which finds what the one before it has compiled in JAX's cache.
    """
    program = (
        "import sys, time, warnings\n"
        "from pathlib import Path\n"
        "from experiments import datasets\n"
        "from farrier import HorseshoeRegressor, presets\n"
        "warnings.simplefilter('ignore')\n"
        "X, y, splits = datasets.uci('concrete', Path(sys.argv[1]))\n"
        "rows = splits[0][0]\n"
        "recipe = {'hidden_layer_sizes': (50,)}\n"
        "if sys.argv[2] == 'refined':\n"
        "    recipe = presets.refined(len(rows))\n"
        "model = HorseshoeRegressor(random_state=0, **recipe)\n"
        "began = time.perf_counter()\n"
        "model.fit(X[rows], y[rows])\n"
        "print(time.perf_counter() - began)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        kept = cache_in(folder)
        return {
            "default_s": printed(program, str(data), "default"),
            "refined_s": printed(program, str(data), "refined", **kept),
            "cached_s": printed(program, str(data), "refined", **kept),
        }


def memory(data: Path) -> dict[str, float]:
    """Peak resident size of one pass over covtype, against the size of the table."""
    program = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from experiments.settings import arguments\n"
        "from farrier import HorseshoeClassifier\n"
        "x, y = np.load(sys.argv[1]), np.load(sys.argv[2])\n"
        "if sys.argv[3] == 'fit':\n"
        "    once = arguments({'max_iter': 1, 'random_state': 0})\n"
        "    HorseshoeClassifier(**once).fit(x, y)\n"
        # The peak of this program alone: `ru_maxrss` is inherited from its parent.
        "status = Path('/proc/self/status').read_text()\n"
        "print(1024 * int(status.split('VmHWM:')[1].split()[0]))\n"
    )
    x, y = datasets.covtype(data)
    x = x.astype(np.float64)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("x.npy", "y.npy")]
        for path, values in zip(paths, (x, y), strict=True):
            np.save(path, values)
        peak = {what: printed(program, *paths, what) for what in ("load", "fit")}
    return {
        "data_GB": x.nbytes / 1e9,
        "only_loaded_GB": peak["load"] / 1e9,
        "fit_GB": peak["fit"] / 1e9,
        "ratio": peak["fit"] / x.nbytes,
    }


def write_rows(
    folder: Path, rows: int, columns: int = COLUMNS
) -> Callable[[], Iterator[np.ndarray]]:
    """A table of inputs and a target y, float32, in files of ten groups.

    Returns what makes the same rows again, group by group, the target last.
    """
    pandas, _ = imported()
    names = [*(f"x{i}" for i in range(columns)), "y"]

    def group(first: int) -> np.ndarray:
        random = np.random.default_rng(first)
        count = min(GROUP, rows - first)
        x = random.normal(size=(count, columns)).astype(np.float32)
        noise = 0.1 * random.normal(size=count)
        y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + noise
        return np.column_stack([x, y.astype(np.float32)])

    for number, begin in enumerate(range(0, rows, 10 * GROUP)):
        with writing(folder / f"{number:04}.parquet") as add:
            for first in range(begin, min(begin + 10 * GROUP, rows), GROUP):
                add(pandas.DataFrame(group(first), columns=names))
    return lambda: map(group, range(0, rows, GROUP))


def streamed_memory() -> dict[str, float]:
    """Peak resident size and seconds of one pass over a table that stays on the disk.

    In a new process; the pass in which columns are learned comes before it.
    """
    program = (
        "import json, sys, time\n"
        "from pathlib import Path\n"
        "from experiments.settings import arguments\n"
        "from farrier import HorseshoeRegressor, ParquetRows\n"
        "began = time.perf_counter()\n"
        "rows = ParquetRows(sys.argv[1], 'y')\n"
        "rows.columns\n"
        "learned = time.perf_counter() - began\n"
        "once = arguments({'max_iter': 1, 'early_stopping': False})\n"
        "model = HorseshoeRegressor(random_state=0, **once)\n"
        "model.fit(rows)\n"
        "status = Path('/proc/self/status').read_text()\n"
        "peak = 1024 * int(status.split('VmHWM:')[1].split()[0])\n"
        "print(json.dumps([peak / 1e9, learned, model.history_.seconds]))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), STREAMED_ROWS)
        data = sum(file.stat().st_size for file in Path(folder).iterdir())
        peak, learned, seconds = json.loads(output_of(program, folder))
    return {
        "rows": STREAMED_ROWS,
        "data_GB": data / 1e9,
        "fit_GB": peak,
        "columns_learned_s": learned,
        "pass_s": seconds,
    }


def streamed_pass() -> dict[str, float]:
    """One pass over a table on the disk / one over the same rows in memory.

    Both are the first of a fit of 40 passes, between two looks at its progress.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), ROWS_IN_MEMORY)
        rows = standardised(ParquetRows(folder, "y"))
        x, y, weight = rows.read(0, rows.rows)
        assert y is not None
        size = Training().resolved_batch_size(rows.rows)
        both: dict[str, TrainingRows] = {
            "streamed": Stream(rows, batch_size=size, key=jr.key(2)),
            "in memory": Data.create(x, y, weight, batch_size=size),
        }
        jobs = {name: default_job(data, x.shape[1]) for name, data in both.items()}
        found = interleaved(
            {
                name: lambda job=job: job.data.advance(
                    job.run.state, job.run.schedule, job.steps_per_record, key=job.key
                )[1]
                for name, job in jobs.items()
            }
        )
    streamed, in_memory = (found[name]["median"] for name in both)
    return {
        "rows": ROWS_IN_MEMORY,
        "streamed_s": streamed,
        "in_memory_s": in_memory,
        "ratio": streamed / in_memory,
    }


def standardised(source: ParquetRows) -> ConvertedRows:
    """The rows of a regression in the units of the network."""
    statistics = source.statistics()
    assert statistics.y is not None
    of_x, of_y = statistics.x.standardiser(), statistics.y.standardiser()

    def convert(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple:
        return of_x(x), of_y(y.reshape(len(y), 1)), weight

    return ConvertedRows(source, convert)


def default_job(data: TrainingRows, d_in: int) -> Job:
    """The first of 40 passes of a default fit, which is one chunk of its steps."""
    default = HorseshoeRegressor()
    likelihood = NOISES[default.likelihood].build(1, rows=float(data.rows))
    network = Network.create(
        d_in,
        default.hidden_layer_sizes,
        likelihood,
        PRIORS[default.prior],
        activation=default.activation,
        key=jr.key(0),
    )
    config = TrainConfig(steps=CHUNKS * int(data.batches), tolerance=0.0)
    return Job(Run.create(network, config), data, config, jr.key(1))


def shrinking(data: Path) -> dict[str, float]:
    """MNIST, 1200-1200, 60 epochs: with nodes leaving while it trains / without."""
    found: dict[str, float] = {}
    for name, shrink in (("shrinking", Shrinking()), ("whole", None)):
        figures = train_digits(data, WIDE, shrink)
        found |= {f"{name}_{key}": value for key, value in figures.items()}
    found["ratio"] = found["shrinking_s"] / found["whole_s"]
    return found


def shedding(data: Path) -> dict[str, float]:
    """MNIST, 400-400, 60 epochs: how much of the products is left, chunk by chunk.

    `work_done`: the mean over the run of the weights that were there, as a share of
    those at the start. `work_needed`: the same, if each node had left, at no cost, as
    soon as it was off. `half_gone_at`: share of the run after which that is under half.
    """
    done, needed, shrinking = [], [], Shrinking()

    def watched(job: Job, run: Run) -> Run:
        network, whole = run.state.network, weight_count(our_network(DIGITS), MIDDLE)
        done.append(weight_count(network, network.widths) / whole)
        keep, _ = shrinking.kept(job, run)
        active = np.array([kept.sum() for kept in keep])
        needed.append(weight_count(network, active) / whole)
        return shrinking(job, run)

    found = train_digits(data, MIDDLE, watched)
    least = np.minimum.accumulate(needed)
    return found | {
        "work_done": float(np.mean(done)),
        "work_needed": float(least.mean()),
        "half_gone_at": float((least > 0.5).mean()),
    }


def train_digits(
    data: Path, widths: tuple[int, ...], shrink: Callable[[Job, Run], Run] | None
) -> dict[str, float]:
    """60 epochs of MNIST: seconds, test error, ELBO, nodes that are left.

    With the paper's pixels (over 126) and settings, and our warm-up.
    """
    x, y = datasets.mnist(data)
    x_test, y_test = datasets.mnist(data, "t10k")
    table = Data.create(x, y, batch_size=512)
    config = TrainConfig(
        steps=EPOCHS * int(table.batches), learning_rate=0.005, tolerance=0.0
    )
    likelihood = Categorical().build(10, rows=len(x))
    network = Network.create(784, widths, likelihood, Horseshoe(), key=jr.key(0))
    run = train(Job(Run.create(network, config), table, config, jr.key(1), shrink))
    network, history = run.state.network, run.history
    posterior = VariationalPosterior.create(network, 100, key=jr.key(2))
    p = summarise(ClassProbabilities.mean, posterior, x_test)
    return {
        "s": history.seconds,
        "steps": config.steps,
        "error_percent": 100 * float((p.argmax(1) != y_test).mean()),
        "elbo": float(history.elbo[-1]),
        **{f"nodes_{n}": width for n, width in enumerate(network.widths, start=1)},
    }


def two_processes() -> dict[str, float]:
    """Two processes, of one core each, against one: the same batches, in turn.

    The first process works by itself while the second waits, then both work together,
    at each size of a batch; and what a step of theirs costs besides: the sum of the
    gradients, and the agreement before each block of steps.
    """
    program = (
        "import json, os, sys\n"
        "rank = int(sys.argv[1])\n"
        "cores = sorted(os.sched_getaffinity(0))\n"
        "os.sched_setaffinity(0, {cores[rank % len(cores)]})\n"
        "import farrier\n"
        "placement = farrier.distributed(sys.argv[2], 2, rank)\n"
        "from benchmarks import bench\n"
        "print(json.dumps(bench.one_and_two(placement)))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), address],
            stdout=subprocess.PIPE,
            text=True,
            env=surroundings() | flags,
        )
        for rank in range(2)
    ]
    try:
        texts = [process.communicate(timeout=MOST_SECONDS)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    found = json.loads(texts[0].splitlines()[-1])
    for size in TWO_BATCHES:
        found[f"ratio_{size}"] = found[f"two_{size}_ms"] / found[f"one_{size}_ms"]
    return found


def one_and_two(both: AbstractPlacement, shape: str = DIGITS) -> dict[str, float]:
    """Milliseconds of a step of this process by itself and of two, and of its parts."""
    here, group = Meshed.over(jax.local_devices()), both.group
    params = eqx.filter(our_network(shape), eqx.is_inexact_array)
    length = sum(leaf.size for leaf in jax.tree.leaves(params))
    half = TWO_BATCHES[0] // 2
    parts = {
        f"one_{half}_ms": streamed_steps(shape, half, here, group),
        "sum_ms": (added_up(length, both), SUMS),
        "agreement_ms": (agreements(group), SUMS),
    }
    found = milliseconds(parts, group)
    for size in TWO_BATCHES:
        found |= milliseconds(
            {
                f"one_{size}_ms": streamed_steps(shape, size, here, group),
                f"two_{size}_ms": streamed_steps(shape, size, both, group),
            },
            group,
        )
    return found


def milliseconds(
    runs: dict[str, tuple[Callable[[], Any], int]], group: AbstractGroup
) -> dict[str, float]:
    """Of one of so many steps of each run; what one process does, the first does."""
    idle = not group.is_first  # a second one waits for the first in what both do next
    programs: dict[str, Callable[[], Any]] = {
        name: (lambda: None) if idle and name.startswith("one_") else program
        for name, (program, _) in runs.items()
    }
    found = interleaved(programs, repeats=ROUNDS)
    return {n: 1e3 * times["median"] / runs[n][1] for n, times in found.items()}


def streamed_steps(
    shape: str, batch_size: int, placement: AbstractPlacement, group: AbstractGroup
) -> tuple[Callable[[], jax.Array], int]:
    """A network that is trained on with each call, and the steps of a call.

    Records have as many steps as a block at least, as those of a long run.
    """
    d_in, *_ = SHAPES[shape]
    x, y = random_table(shape)
    dtype = np.dtype(jnp.result_type(float))
    rows = ArrayRows(x.astype(dtype), y if y.ndim == 1 else y.astype(dtype))
    data = Stream(rows, batch_size=batch_size, key=jr.key(2), placement=placement)
    state = TrainState.create(our_network(shape), TrainConfig())
    schedule = Schedule.create(TrainConfig(steps=2**30))
    each = max(1, BLOCK_VALUES // (batch_size * d_in))
    together = placement.group is group
    by_itself = nullcontext if together else group.separately

    def run() -> jax.Array:
        nonlocal state
        with by_itself():
            state, means = data.advance(state, schedule, each, key=jr.key(1))
            return jax.block_until_ready(means)

    return run, RECORDS_PER_CHUNK * each


def added_up(length: int, placement: AbstractPlacement) -> Callable[[], jax.Array]:
    """Sums, one after the other, of a vector of so many values over all parts."""

    def sums(rows: tuple[()], start: jax.Array) -> jax.Array:
        del rows
        one = lambda values, _: (shard.added(values) / shard.parts, None)
        return lax.scan(one, start, length=SUMS)[0]

    shard = placement.shard
    run = jax.jit(placement.by_parts(sums))
    start = placement.put_on_devices(jnp.ones(length))
    return lambda: run((), start)


def agreements(group: AbstractGroup) -> Callable[[], None]:
    """Agreements of all processes that nothing has gone wrong, one after the other."""

    def run() -> None:
        for _ in range(SUMS):
            with group.together():
                pass

    return run


def parts(data: Path) -> dict[str, Callable[[], dict[str, float]]]:
    """What can be timed, by name; the last takes a quarter of an hour."""
    return {
        **{f"step {shape}": partial(step_ratio, shape) for shape in SHAPES},
        "where an 8-50-1 step goes": where_a_step_goes,
        "many fits": many_fits,
        "random normals (M/s)": random_numbers,
        "fit and predict": fit_and_predict,
        "start-up": start_up,
        "compile": compile_time,
        "two processes": two_processes,
        "load and predict": load_and_predict,
        "fits to concrete": partial(concrete, data),
        "memory": partial(memory, data),
        "streamed pass": streamed_pass,
        "streamed memory": streamed_memory,
        "shedding, 400-400": partial(shedding, data),
        "shrinking": partial(shrinking, data),
    }


def machine() -> dict[str, Any]:
    """What a figure was measured with."""
    return {
        "versions": {n: version(n) for n in ("farrier", "jax", "jaxlib", "numpy")},
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


def run(
    folder: Path,
    report: Callable[[int, str], None],
    chosen: dict[str, Callable[[], dict[str, float]]],
) -> dict[str, dict[str, float]]:
    """The chosen figures; each part is written to `bench.json` as it comes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bench.json"
    known = json.loads(path.read_text())["figures"] if path.exists() else {}
    found = {}
    for done, (name, part) in enumerate(chosen.items()):
        report(done, name)
        found[name] = part()
        known[name] = {"machine": machine(), **found[name]}
        path.write_text(json.dumps({"figures": known}, indent=1) + "\n")
        path.with_suffix(".md").write_text(page(known))
    report(len(chosen), "done")
    return found


def page(figures: dict[str, dict[str, Any]]) -> str:
    """All figures as a table in Markdown, beside their targets."""
    lines = ["| part | figure | value | at most |", "| --- | --- | ---: | ---: |"]
    for part, values in figures.items():
        for name, value in values.items():
            if name != "machine":
                target = TARGETS.get((part, name), "")
                lines.append(f"| {part} | {name} | {value:.4g} | {target} |")
    return "\n".join(lines) + "\n"
