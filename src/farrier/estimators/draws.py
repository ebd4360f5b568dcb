"""Posterior draws of scales, noise and predictions, as ArviZ takes them."""

from importlib.metadata import version
from typing import Any

import numpy as np

from ..fitted import FittedModel, key_for


def posterior_draws(model: FittedModel) -> dict[str, np.ndarray]:
    """Draws of each scale, `layer_1_tau` and so on, and of the noise sd of a target.

    One chain: chain x draws, and nodes or targets last. The noise is in the units of
    the target, and gamma^(-1/2) where it is heteroscedastic (L4); scales are those of
    standardised inputs and targets.
    """
    key = key_for(model.seed, "predict")
    posterior = model.posterior.resampled(model.draws, key=key)
    drawn = {n: v[None] for n, v in posterior.scale_draws(key=key).items()}
    if model.units.y is not None:
        noise = np.asarray(posterior.noise, float)
        drawn["noise_sd"] = (noise * model.units.y.scale)[None]
    return drawn


def to_arviz(groups: dict[str, dict[str, np.ndarray]]) -> Any:
    """ArviZ's own object: InferenceData before its version 1, a DataTree from then."""
    try:
        from arviz import from_dict  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "Draws for ArviZ need arviz. Install it with `pip install "
            "'farrier[arviz]'`."
        ) from error
    make: Any = from_dict
    if int(version("arviz").split(".")[0]) < 1:
        return make(**groups)
    return make(groups)
