"""Small fitted models, each fitted once for all files of this folder."""

import warnings

import numpy as np
import pandas as pd
import pytest

from farrier import (
    Horseshoe,
    HorseshoeClassifier,
    HorseshoeRegressor,
    Nuts,
    TableModel,
    Training,
    TrainingWarning,
)
from farrier.tables import learn

ROWS = 60
SETTINGS = {"training": Training(max_iter=60), "n_draws": 16, "random_state": 0}
SHORT_CHAIN = Nuts(chains=1, warm_up=150, draws=16, depth=2)


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y)


def quick(model, X, y):
    return fitted(model, X, y).compact()  # so that all tests compare with one network


@pytest.fixture(scope="session")
def rows():
    """Inputs far from standard units."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 3)) * [1, 100, 1e-3] + [0, 1e6, 5]


@pytest.fixture(scope="session")
def target(rows):
    return 1e6 + 50 * np.tanh(rows[:, 0]) + rows[:, 1] - 1e6


@pytest.fixture(scope="session")
def regressor(rows, target):
    """One target with homoscedastic noise."""
    model = HorseshoeRegressor((6,), likelihood="gaussian", **SETTINGS)
    return quick(model, rows, target)


@pytest.fixture(scope="session")
def whole(rows, target):
    """A model that is not compact."""
    return fitted(HorseshoeRegressor((6,), **SETTINGS), rows, target)


@pytest.fixture
def matrix(rows, target):
    """A model whose posterior has dependent weights."""
    settings = SETTINGS | {"training": Training(max_iter=2)}
    model = HorseshoeRegressor((4,), posterior="matrix", **settings)
    return fitted(model, rows, target)


@pytest.fixture(scope="session")
def sampled(rows, target):
    """Draws of a Markov chain, with heteroscedastic noise."""
    model = HorseshoeRegressor((4,), "relu", refine=SHORT_CHAIN, **SETTINGS)
    return quick(model, rows, target)


@pytest.fixture(scope="session")
def sampled_classifier(rows):
    """Draws of a Markov chain for two classes."""
    model = HorseshoeClassifier((4,), refine=SHORT_CHAIN, **SETTINGS)
    return quick(model, rows, rows[:, 0] > 0)


@pytest.fixture(scope="session")
def with_columns(rows, target):
    """A scale for each column of the input."""
    model = HorseshoeRegressor((6,), prior=Horseshoe(columns=True), **SETTINGS)
    return quick(model, rows, target)


@pytest.fixture(scope="session")
def noisy(rows):
    """Two targets with heteroscedastic noise."""
    z = np.random.default_rng(2).normal(size=(len(rows), 2))
    y = np.column_stack([rows[:, 0], rows[:, 1]]) + [0.1, 10] * np.exp(rows[:, :1]) * z
    model = HorseshoeRegressor((6,), likelihood="heteroscedastic", **SETTINGS)
    return quick(model, rows, y)


@pytest.fixture(scope="session")
def classifier(rows):
    y = np.array(["ash", "elm", "oak"])[np.digitize(rows[:, 0], [-0.5, 0.5])]
    model = HorseshoeClassifier((5, 4), "gelu", **SETTINGS)
    return quick(model, rows, y)


@pytest.fixture(scope="session")
def frame():
    """All kinds of columns, each with values missing."""
    rng = np.random.default_rng(1)
    days = pd.Timestamp("1967-11-20") + pd.to_timedelta(
        rng.uniform(0, 20_000, ROWS), unit="D"
    )
    found = pd.DataFrame(
        {
            "size": rng.normal(3, 2, ROWS),
            "wood": rng.choice(["ash", "elm", "oak"], ROWS),
            "old": rng.choice(["no", "Yes"], ROWS),
            "seen": days,
        }
    )
    found["price"] = found["size"] * 10 + 5 * (found["wood"] == "elm")
    for number, name in enumerate(["size", "wood", "old", "seen"]):
        found.loc[number::9, name] = None
    return found


@pytest.fixture(scope="session")
def table_model(frame):
    columns = learn([frame], "price", missing="impute").columns
    model = HorseshoeRegressor((5,), "tanh", **SETTINGS)
    quick(model, columns.features(frame), columns.targets(frame))
    return TableModel(columns, model.compact())


@pytest.fixture(scope="session")
def number_model(rows, regressor):
    """A model of a table whose columns are all numbers."""
    frame = pd.DataFrame(rows, columns=[*"abc"]).assign(y=regressor.predict(rows))
    return TableModel(learn([frame], "y").columns, regressor)
