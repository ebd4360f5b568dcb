"""Posterior draws of scales and noise, and their conversion for ArviZ."""

from importlib.metadata import version
from typing import Any

import numpy as np

from ..fitted import FittedModel, key_for


def posterior_draws(model: FittedModel) -> dict[str, np.ndarray]:
    """Draws of each scale (`layer_1_tau`, ...) and of the noise sd of each target.

    Arrays have the axes chain (of length 1), draws, and nodes or targets. The noise sd
    is in the units of the target; where noise is heteroscedastic it is gamma^(-1/2)
    (L4). Scales belong to standardised inputs and targets.
    """
    key = key_for(model.seed, "predict")
    posterior = model.posterior.resampled(model.draws, key=key)
    drawn = {n: v[None] for n, v in posterior.scale_draws(key=key).items()}
    if model.units.y is not None:
        noise = np.asarray(posterior.noise, float)
        drawn["noise_sd"] = (noise * model.units.y.scale)[None]
    return drawn


def to_arviz(groups: dict[str, dict[str, np.ndarray]]) -> Any:
    """An InferenceData before version 1 of ArviZ, and a DataTree from then on."""
    try:
        from arviz import from_dict  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "Draws for ArviZ require arviz. Install it with `pip install "
            "'farrier[arviz]'`."
        ) from error
    make: Any = from_dict
    if int(version("arviz").split(".")[0]) < 1:
        return make(**groups)
    return make(groups)
