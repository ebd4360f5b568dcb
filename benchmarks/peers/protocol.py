"""What a peer is told on its command line, and the lines of JSON it answers with.

    peer.py DATA.npz SHAPE BATCH STEPS REPEATS     for a step: seconds of each repeat
    peer.py DATA.npz                               for whole fits: seconds and scores

In the first case one line answers all; in the second each split of the table (`x`, `y`,
`train_0`, `test_0`, ...) has a line of its own.

Needs NumPy and the standard library alone, since every peer has an environment of its
own. The folder of this file is on the path of a peer (`PYTHONPATH`).
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from math import erf as erf_of_one
from math import pi
from typing import Protocol

import numpy as np

COVERAGE = 0.9  # of the central intervals
ROWS = 256  # looked at together: a mixture may have thousands of components
erf = np.vectorize(erf_of_one, otypes=[float])


@dataclass(frozen=True)
class Task:
    """Steps to time: rows of a table, sizes of the layers, rows and number of steps."""

    x: np.ndarray
    y: np.ndarray
    sizes: tuple[int, ...]
    batch: int
    steps: int

    @property
    def regression(self) -> bool:
        """One target with Gaussian noise; otherwise `y` holds classes."""
        return self.y.dtype.kind == "f"

    @property
    def starts(self) -> list[int]:
        """The first row of the batch of each step."""
        last = len(self.x) - self.batch
        return [(i * self.batch) % (last + 1) for i in range(self.steps)]


def answer(packages: tuple[str, ...], **figures: object) -> None:
    """Print the answer: figures, and the versions they belong to."""
    versions = {name: version(name) for name in packages}
    versions["python"] = platform.python_version()
    print(json.dumps({**figures, "versions": versions}), flush=True)


def time_steps(
    build: Callable[[Task], Callable[[], object]],
    *,
    packages: tuple[str, ...],
    note: str,
    set_threads: Callable[[int], None] | None = None,
) -> None:
    """Time what `build` makes: a function that does all steps and waits for them.

    It runs once before the clock starts, so that compiling is not part of a step. With
    `set_threads`, one thread and one a core are tried and the faster is timed: threads
    that wait for each other lose much where steps are small or the machine is busy.
    """
    file, shape, batch, steps, repeats = sys.argv[1:]
    data = np.load(file)
    sizes = tuple(int(size) for size in shape.split("-"))
    task = Task(data["x"], data["y"], sizes, int(batch), int(steps))
    run = build(task)

    def seconds() -> float:
        began = time.perf_counter()
        run()
        return (time.perf_counter() - began) / task.steps

    if set_threads:
        trials = {}
        for threads in (1, os.cpu_count() or 1):
            set_threads(threads)
            seconds()
            trials[threads] = seconds()
        threads = min(trials, key=trials.__getitem__)
        set_threads(threads)
        note += f"; threads: {threads}, the faster choice"
    seconds()
    answer(packages, step_s=[seconds() for _ in range(int(repeats))], note=note)


class Predictive(Protocol):
    """The predictive distribution of the test rows, in the units of `y`."""

    @property
    def point(self) -> np.ndarray:
        """Predictive mean of each row."""
        ...

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of each row, in nats."""
        ...

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score of each row; lower is better."""
        ...

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Probability of no more than `y`, row by row."""
        ...


@dataclass(frozen=True)
class Normals:
    """An even mixture of normals: means and standard deviations, components x rows."""

    mean: np.ndarray
    sd: np.ndarray

    @property
    def point(self) -> np.ndarray:
        """Predictive mean of each row."""
        return self.mean.mean(axis=0)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of each row, in nats."""

        def of(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
            terms = -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * pi)
            return np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))

        return self._by_rows(of, y)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Closed form for one normal; for more, from a draw of each component."""
        if len(self.mean) == 1:
            return normal_crps(self.mean[0], self.sd[0], y)
        random = np.random.default_rng(0)

        def of(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
            return sample_crps(mean + sd * random.normal(size=mean.shape), y)

        return self._by_rows(of, y)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Mean over the components of Phi((y - mean) / sd)."""

        def of(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
            return (0.5 + 0.5 * erf((y - mean) / sd / 2**0.5)).mean(axis=0)

        return self._by_rows(of, y)

    def _by_rows(self, of: Callable[..., np.ndarray], y: np.ndarray) -> np.ndarray:
        """A function of means, deviations and targets, some rows at a time."""
        parts = [slice(i, i + ROWS) for i in range(0, len(y), ROWS)]
        return np.concatenate([of(self.mean[:, p], self.sd[:, p], y[p]) for p in parts])


def normal_crps(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
    """CRPS of a normal: sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))."""
    z = (y - mean) / sd
    inside = erf(z / 2**0.5)
    density = np.exp(-0.5 * z**2) / (2 * pi) ** 0.5
    return sd * (z * inside + 2 * density - pi**-0.5)


def sample_crps(draws: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Unbiased CRPS from draws x rows: E|Y - y| - E|Y - Y'| / 2, Y' another draw."""
    n = len(draws)
    weights = 2 * np.arange(1, n + 1) - n - 1
    spread = (weights[:, None] * np.sort(draws, axis=0)).sum(axis=0) / (n * (n - 1))
    return np.abs(draws - y).mean(axis=0) - spread


def score_fit(
    fit: Callable[[np.ndarray, np.ndarray, np.ndarray], Predictive],
    *,
    packages: tuple[str, ...],
    note: str,
) -> None:
    """Time `fit(x_train, y_train, x_test)`, which fits and predicts, and score it.

    Once for each split, in order. Compiling is part of the time, as it is for a user;
    imports are not.
    """
    data = np.load(sys.argv[1])
    x, y = data["x"], data["y"]
    numbers = [name.removeprefix("train_") for name in data.files if "train_" in name]
    for number in numbers:
        train, test = data[f"train_{number}"], data[f"test_{number}"]
        began = time.perf_counter()
        predictive = fit(x[train], y[train], x[test])
        seconds = time.perf_counter() - began
        figures = scores(predictive, y[test])
        answer(packages, split=int(number), seconds=seconds, **figures, note=note)


def scores(predictive: Predictive, y: np.ndarray) -> dict[str, float]:
    """Means over the test rows; a central interval holds y where its cdf is inside."""
    outside = 2 * np.abs(predictive.cdf(y) - 0.5)
    return {
        "rmse": float(np.sqrt(((predictive.point - y) ** 2).mean())),
        "log_density": float(predictive.log_density(y).mean()),
        "crps": float(predictive.crps(y).mean()),
        "coverage": float((outside <= COVERAGE).mean()),
    }
