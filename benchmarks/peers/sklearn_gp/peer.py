"""A whole fit by scikit-learn's Gaussian process."""

import numpy as np
from protocol import Normals, score_fit
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

NOTE = "constant x RBF with one length for each input, plus white noise; no restarts"


def fit(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray) -> Normals:
    """A normal for each row, noise included."""
    scaler = StandardScaler().fit(x_train)
    lengths = RBF(np.ones(x_train.shape[1]))
    model = GaussianProcessRegressor(
        ConstantKernel() * lengths + WhiteKernel(), normalize_y=True, random_state=0
    )
    model.fit(scaler.transform(x_train), y_train)
    mean, sd = model.predict(scaler.transform(x_test), return_std=True)
    return Normals(mean[None], sd[None])


score_fit(fit, packages=("scikit-learn", "scipy", "numpy"), note=NOTE)
