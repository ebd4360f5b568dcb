"""Settings with a name: `HorseshoeRegressor(**presets.paper())`."""

from typing import Any

from .core.priors import Horseshoe
from .model.likelihoods import GaussianNoise


def paper() -> dict[str, Any]:
    """Settings of Ghosh & Doshi-Velez 2017 for a table: 50 units, Gamma(6, 6) noise.

    The auxiliary variables are updated after each step, the divergences have full
    weight from the first step, and nothing stops the training early.
    """
    return {
        "hidden_layer_sizes": (50,),
        "activation": "relu",
        "prior": Horseshoe(half_cauchy="auxiliary"),
        "likelihood": GaussianNoise(shape=6.0, rate=6.0),
        "kl_warm_up": 0.0,
        "learning_rate_init": 0.005,
        "early_stopping": False,
    }
