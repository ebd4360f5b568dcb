"""What a peer is told on its command line, and the one line of JSON it answers with.

    peer.py DATA.npz SHAPE BATCH STEPS REPEATS     for a step: seconds of each repeat
    peer.py DATA.npz                               for a whole fit: seconds and scores

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
from math import erf, pi
from typing import Protocol

import numpy as np


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
        z = (y - self.mean) / self.sd
        terms = -0.5 * z**2 - np.log(self.sd) - 0.5 * np.log(2 * pi)
        return np.logaddexp.reduce(terms, axis=0) - np.log(len(terms))

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Closed form for one normal; for more, from a draw of each component."""
        if len(self.mean) == 1:
            return normal_crps(self.mean[0], self.sd[0], y)
        noise = np.random.default_rng(0).normal(size=self.mean.shape)
        return sample_crps(self.mean + self.sd * noise, y)


def normal_crps(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
    """CRPS of a normal: sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi))."""
    z = (y - mean) / sd
    inside = np.array([erf(value / 2**0.5) for value in z])
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

    Compiling is part of the time, as it is for a user; imports are not.
    """
    data = np.load(sys.argv[1])
    y = data["y_test"]
    began = time.perf_counter()
    predictive = fit(data["x_train"], data["y_train"], data["x_test"])
    seconds = time.perf_counter() - began
    answer(
        packages,
        seconds=seconds,
        rmse=float(np.sqrt(((predictive.point - y) ** 2).mean())),
        log_density=float(predictive.log_density(y).mean()),
        crps=float(predictive.crps(y).mean()),
        note=note,
    )
