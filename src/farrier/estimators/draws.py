"""Posterior draws of scales, noise and predictions, as ArviZ takes them."""

from importlib.metadata import version
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..infer.predict import noise_sds
from ..model.drawn import AnyNetwork, DrawnNetwork


def posterior_draws(
    network: AnyNetwork, draws: int, target_scale: np.ndarray, *, key: PRNGKeyArray
) -> dict[str, np.ndarray]:
    """Draws of each scale, `layer_1_tau` and so on, and of the noise sd of a target.

    One chain: chain x draws, and nodes or targets last. The noise is in the units of
    the target, and gamma^(-1/2) where it depends on the row (L4); scales are those of
    standardised inputs and targets.
    """
    found = {}
    if isinstance(network, DrawnNetwork):
        chosen = np.asarray(network.draw_keys(draws, key=key))
        found = {n: np.asarray(v)[chosen][None] for n, v in network.scales.items()}
        if network.noise_sd.size:
            found["noise_sd"] = (np.asarray(network.noise_sd)[chosen] * target_scale)[
                None
            ]
        return found
    generator = np.random.default_rng(np.asarray(jr.key_data(key)))
    for name, scale in network.named_scales().items():
        loc, sd = np.asarray(scale.q.loc, float), np.asarray(scale.q.scale, float)
        noise = generator.standard_normal((1, draws, *loc.shape))
        found[name] = np.exp(loc + sd * noise)
    if network.likelihood.targets:
        noise_sd = np.asarray(noise_sds(network, draws, key=key), float)
        found["noise_sd"] = (noise_sd * target_scale)[None]
    return found


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
