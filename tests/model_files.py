"""Make the model files of tests/files: `python tests/model_files.py FOLDER`.

Tests load them, damage their headers, and check their predictions.
"""

import json
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from farrier import Horseshoe, HorseshoeClassifier, HorseshoeRegressor, Training
from farrier.tables import learn
from farrier.tables.model import TableModel

ROWS = 60
SETTINGS = {"training": Training(max_iter=60, learning_rate=0.05), "n_draws": 20}


def rows() -> np.ndarray:
    """Three inputs."""
    return np.random.default_rng(0).normal(size=(ROWS, 3))


def table() -> pd.DataFrame:
    """A column of each kind, some with missing values."""
    generator = np.random.default_rng(1)
    size, colour = (
        generator.normal(10, 3, ROWS).round(3),
        generator.integers(0, 3, ROWS),
    )
    days = np.datetime64("2024-01-01") + generator.integers(0, 700, ROWS)
    ready = generator.random(ROWS) < 0.5
    price = 5 + np.abs(size - 10) + 2 * colour + ready + generator.normal(0, 0.1, ROWS)
    frame = pd.DataFrame(
        {
            "size": [f"{v}" if i % 7 else None for i, v in enumerate(size)],
            "colour": np.array(["blue", "green", "red"])[colour],
            "day": days.astype(str),
            "ready": np.where(ready, "yes", "no"),
            "price": price.round(3).astype(str),
        }
    )
    return frame.astype(object).where(frame.notna(), None)


def main(folder: Path) -> None:
    """Write four models and, in one JSON file, what they predict."""
    X = rows()
    numbers = 3 + X[:, 0] ** 2 - X[:, 1]
    labels = np.array(["high", "low", "middle"])[
        np.digitize(numbers, np.quantile(numbers, [0.3, 0.7]))
    ]
    prior = Horseshoe(layer_scale=0.5)
    regressor = HorseshoeRegressor((8,), prior=prior, random_state=0, **SETTINGS)
    regressor.fit(X, numbers).save(folder / "regressor.safetensors")
    classifier = HorseshoeClassifier((6, 4), "tanh", random_state=1, **SETTINGS)
    classifier.fit(X, labels).save(folder / "classifier.safetensors")
    frame = table()
    learned = learn([frame], "price", missing="impute")
    columns = learned.columns
    estimator = HorseshoeRegressor((8,), random_state=2, **SETTINGS)
    estimator.fit(columns.features(frame), columns.targets(frame))
    about = {"file": "prices.csv", "rows": ROWS, "why": "It has numbers."}
    about |= {"columns": learned.described, "holdout": {"rows": 3, "rmse": 0.5}}
    model = TableModel(columns, estimator, about)
    model.save(folder / "table.safetensors")
    # Two fits, as draws, whose columns have scales; compacted.
    settings = SETTINGS | {"prior": Horseshoe(columns=True), "n_restarts": 2}
    sampled = HorseshoeRegressor((5,), random_state=3, **settings).fit(X, numbers)
    sampled = sampled.compact()
    sampled.save(folder / "sampled.safetensors")
    expected = {
        "sampled": [v.tolist() for v in sampled.predict(X, return_std=True)],
        "regressor": [v.tolist() for v in regressor.predict(X, return_std=True)],
        "classifier": classifier.predict_proba(X).tolist(),
        "table": [model.predict(frame).tolist()]
        + [end.tolist() for end in model.predict_interval(frame, 0.8)],
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", val=True)
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
