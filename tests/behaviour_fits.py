"""Fits of the claims in test_behaviour.py, in float32 and in a process of their own.

`python behaviour_fits.py JOB ...` prints one JSON document.
"""

import json
import sys
import warnings

import numpy as np

from farrier import (
    HorseshoeClassifier,
    HorseshoeRegressor,
    TrainingWarning,
    fit_many,
)
from farrier.datasets import cubic, two_two_one

SEEDS = range(6)
CUBIC_SEEDS = range(4)
COLUMN_SEEDS = range(2)


def fit_to_each(models: list, tables: list) -> None:
    """Each model to a table of its own, all at once."""
    x, y = (np.concatenate(part) for part in zip(*tables, strict=True))
    ends = np.cumsum([len(table[1]) for table in tables])
    rows = np.split(np.arange(len(y)), ends[:-1])
    fit_many(models, x, y, rows=rows)


def structure(width: int) -> list[dict]:
    """Horseshoe fits to the 2-2-1 labels: nodes on, and what compaction does."""
    rows = []
    models = [HorseshoeClassifier((width,), random_state=seed) for seed in SEEDS]
    fit_to_each(models, [two_two_one(seed=seed) for seed in SEEDS])
    for seed, model in zip(SEEDS, models, strict=True):
        x_test, y_test = two_two_one(seed=1000 + seed)
        row = {"on": model.widths_[0]}
        if seed < 3:
            small = model.compact()
            row["kept"] = small.model_.posterior.widths[0]
            row["accuracy"] = model.score(x_test, y_test)
            row["accuracy_small"] = small.score(x_test, y_test)
        rows.append(row)
    return rows


def gaussian_weights(width: int) -> float:
    """Gaussian fit to the 2-2-1 labels: smallest norm / largest norm of the weights."""
    x, y = two_two_one(seed=0)
    model = HorseshoeClassifier((width,), prior="gaussian", random_state=0).fit(x, y)
    norms = model.weight_norms_[0]
    return float(norms.min() / norms.max())


def cubic_density(prior: str, width: int) -> float:
    """Mean test log density over four data sets of the cubic."""
    densities = []
    models = [
        HorseshoeRegressor((width,), prior=prior, random_state=s) for s in CUBIC_SEEDS
    ]
    fit_to_each(models, [cubic(seed=seed) for seed in CUBIC_SEEDS])
    for seed, model in zip(CUBIC_SEEDS, models, strict=True):
        x_test, y_test = cubic(200, seed=1000 + seed)
        densities.append(model.log_density(x_test, y_test).mean())
    return float(np.mean(densities))


def five_of_85(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A function of five columns, noise of sd 0.3, and 80 columns of noise."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (rows, 85))
    f = np.sin(3 * x[:, 0]) + np.exp(x[:, 1]) + 2 * x[:, 2] * x[:, 3] + x[:, 4]
    return x, f + 0.3 * random.normal(size=rows)


def columns() -> list[dict]:
    """Fits with and without scales of the inputs: columns on, and test errors."""
    rows = []
    for seed in COLUMN_SEEDS:
        x, y = five_of_85(500, seed)
        x_test, y_test = five_of_85(2000, 100 + seed)
        scaled, plain = (
            HorseshoeRegressor((20,), prior=prior, random_state=seed)
            for prior in ("column-horseshoe", "narrow-horseshoe")
        )
        fit_many([scaled, plain], x, y)
        rmse = [
            float(np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2)))
            for model in (scaled, plain)
        ]
        on = np.flatnonzero(scaled.features_on_).tolist()
        rows.append({"on": on, "rmse": rmse})
    return rows


JOBS = {
    "columns": columns,
    "structure": lambda width: structure(int(width)),
    "gaussian_weights": lambda width: gaussian_weights(int(width)),
    "cubic": lambda prior, width: cubic_density(prior, int(width)),
}

if __name__ == "__main__":
    # Networks that predict a constant warn of it, and some of them do here on purpose.
    warnings.simplefilter("ignore", TrainingWarning)
    job, *arguments = sys.argv[1:]
    json.dump(JOBS[job](*arguments), sys.stdout)
