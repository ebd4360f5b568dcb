"""A whole fit by bde: an ensemble of networks, sampled from where Adam left them."""

import os

# Its examples ask for one device a core, before JAX is imported.
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={os.cpu_count()}"

import jax
import numpy as np
from bde import BdeRegressor
from bde.loss import GaussianNLL
from protocol import Normals, score_fit
from sklearn.preprocessing import StandardScaler

NOTE = (
    "settings of the regression example in its README (8 members, 16-16 nodes, 2000 "
    "samples each): its defaults (2 members, 4-4 nodes, 20 epochs, 10 samples) are "
    "for trying it out; noise depends on the inputs"
)
SETTINGS = {
    "hidden_layers": [16, 16],
    "n_members": 8,
    "seed": 0,
    "epochs": 200,
    "validation_split": 0.15,
    "lr": 1e-3,
    "weight_decay": 1e-4,
    "warmup_steps": 5000,
    "n_samples": 2000,
    "n_thinning": 2,
    "patience": 10,
}


def fit(x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray) -> Normals:
    """Standardised rows, as in its example; all draws of all members in the mixture."""
    scaler = StandardScaler().fit(x_train)  # leaves constant columns at 0
    y_mean, y_sd = y_train.mean(), y_train.std()
    model = BdeRegressor(loss=GaussianNLL(), **SETTINGS)
    model.fit(x=scaler.transform(x_train), y=(y_train - y_mean) / y_sd)
    raw = model.predict(scaler.transform(x_test), raw=True)
    mean, raw_sd = np.moveaxis(np.asarray(raw, float).reshape(-1, len(x_test), 2), 2, 0)
    sd = np.asarray(jax.nn.softplus(raw_sd))
    return Normals(y_mean + y_sd * mean, y_sd * sd)


score_fit(fit, packages=("sklearn-contrib-bde", "jax", "blackjax", "numpy"), note=NOTE)
