"""Reference outputs of default fits, compared bit by bit during the restructuring.

`python tests/golden/fits.py write` stores them in reference.npz; `... check` fits
again and names each array that is no longer bit-identical.
"""

import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_iris

from farrier import (
    Horseshoe,
    HorseshoeClassifier,
    HorseshoeRegressor,
    Training,
    TrainingWarning,
    load,
)

REFERENCE = Path(__file__).with_name("reference.npz")


def regression(model, x, y):
    model.fit(x, y)
    small = model.compact()
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.safetensors"))
        loaded = load(Path(folder, "model.safetensors"))
    mean, sd = model.predict(x, return_std=True)
    low, high = model.predict_interval(x, level=0.9)
    return {
        "mean": mean,
        "sd": sd,
        "low": low,
        "high": high,
        "widths": np.array(model.widths_),
        "scores": np.concatenate(model.node_scores_),
        "log_density": model.log_density(x, y),
        "bound": model.history_.elbo,
        "sample_y": model.sample_y(x[:5], 3, random_state=1),
        "moved": np.array(small.compaction_.moved),
        "compact_mean": small.predict(x),
        "loaded_mean": loaded.predict(x),
    }


def diabetes():
    x, y = load_diabetes(return_X_y=True)
    return regression(HorseshoeRegressor(random_state=0), x[:200], y[:200])


def two_targets():
    x, y = load_diabetes(return_X_y=True)
    y = np.column_stack([y, x[:, 2] * 100])[:300]
    model = HorseshoeRegressor((30,), random_state=1)
    return regression(model, x[:300, [0, 3, 4, 8, 9]], y)


def classes():
    x, y = load_iris(return_X_y=True)
    model = HorseshoeClassifier(random_state=2).fit(x, y)
    small = model.compact()
    return {
        "proba": model.predict_proba(x),
        "widths": np.array(model.widths_),
        "scores": np.concatenate(model.node_scores_),
        "log_density": model.log_density(x, y),
        "bound": model.history_.elbo,
        "moved": np.array(small.compaction_.moved),
        "compact_proba": small.predict_proba(x),
    }


def chains():
    x, y = load_diabetes(return_X_y=True)
    model = HorseshoeRegressor(
        (8, 8),
        refine="mclmc",
        training=Training(max_iter=1000),
        n_restarts=2,
        random_state=3,
    )
    return regression(model, x[:150], y[:150])


def ensemble():
    x, y = load_diabetes(return_X_y=True)
    model = HorseshoeRegressor(
        (20,), n_restarts=3, training=Training(max_iter=1500), random_state=4
    )
    return regression(model, x[:150], y[:150])


def columns():
    x, y = load_diabetes(return_X_y=True)
    model = HorseshoeRegressor(
        (20,), prior=Horseshoe(node_scale=0.01, columns=True), random_state=5
    )
    found = regression(model, x[:150], y[:150])
    return found | {"features_on": model.features_on_}


FITS = [diabetes, two_targets, classes, chains, ensemble, columns]


def outputs(names):
    warnings.simplefilter("ignore", TrainingWarning)
    return {
        f"{fit.__name__}/{name}": np.asarray(value)
        for fit in FITS
        if not names or fit.__name__ in names
        for name, value in fit().items()
    }


if __name__ == "__main__":
    command, *names = sys.argv[1:]
    found = outputs(names)
    if command == "write":
        np.savez_compressed(REFERENCE, **found)
    else:
        known = np.load(REFERENCE)
        wrong = [n for n, v in found.items() if not np.array_equal(v, known[n])]
        for name in wrong:
            gap = np.abs(found[name].astype(float) - known[name]).max()
            print(f"{name}: differs, by at most {gap:.3g}")
        print(f"{len(found) - len(wrong)} of {len(found)} arrays are bit-identical")
        sys.exit(bool(wrong))
