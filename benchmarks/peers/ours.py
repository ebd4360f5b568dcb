"""A whole fit by farrier, as the peers are asked for it: its defaults, or refined."""

import sys
import warnings
from dataclasses import dataclass

import numpy as np
from protocol import sample_crps, score_fit

from farrier import HorseshoeRegressor, presets

DRAWS = 4_000  # for the CRPS


@dataclass(frozen=True)
class Fitted:
    """The predictive mixture of a fitted estimator for the test rows."""

    model: HorseshoeRegressor
    x: np.ndarray
    point: np.ndarray

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of each row, in nats."""
        return self.model.log_density(self.x, y)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Continuous ranked probability score of each row, from draws."""
        return sample_crps(self.model.sample_y(self.x, n_samples=DRAWS).T, y)

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Probability of no more than `y`, row by row."""
        return self.model.pit(self.x, y)


def fit(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray) -> Fitted:
    """The default fit, or that of the refined recipe."""
    warnings.simplefilter("ignore")
    recipe = presets.refined(len(x_train)) if RECIPE == "refined" else {}
    model = HorseshoeRegressor(random_state=0, **recipe)
    model.fit(x_train, y_train)
    return Fitted(model, x_test, model.predict(x_test))


RECIPE = sys.argv[2]
NOTE = "presets.refined" if RECIPE == "refined" else "its defaults"
score_fit(fit, packages=("farrier", "jax", "numpy"), note=NOTE)
