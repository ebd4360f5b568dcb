"""A straight line with normal noise, by least squares: the least that answers."""

import numpy as np
from protocol import Normals, score_fit

NOTE = "least squares; to see whether it runs at all"


def fit(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray) -> Normals:
    """A normal for each row, with the spread of the residuals."""
    with_ones = lambda x: np.column_stack([x, np.ones(len(x))])
    weights, *_ = np.linalg.lstsq(with_ones(x_train), y_train)
    sd = (y_train - with_ones(x_train) @ weights).std()
    mean = with_ones(x_test) @ weights
    return Normals(mean[None], np.full_like(mean, sd)[None])


score_fit(fit, packages=("numpy",), note=NOTE)
