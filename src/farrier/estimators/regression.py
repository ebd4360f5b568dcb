"""Predictions of a regression model, for rows in the units of its network.

Results are in the units of the target, with one column for each target, unless a
docstring says otherwise.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..fitted import FittedModel
from ..infer import intervals
from ..infer.predict import sample_targets, summarise
from ..units import Standardiser

INTERVALS = ("calibrated", "posterior")

Ends = tuple[np.ndarray, np.ndarray]  # lower and upper


def target_units(model: FittedModel) -> Standardiser:
    """Units of the targets."""
    assert model.units.y is not None
    return model.units.y


def moments(model: FittedModel, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    """Predictive means; variances of noise and of the model in standard units."""
    mean, noise, epistemic = summarise("moments", model.predictor, rows)
    return target_units(model).undo(np.asarray(mean, float)), noise, epistemic


def depths_of(model: FittedModel, method: str) -> np.ndarray:
    """Depth of the interval of each level in the predictive distribution (P4)."""
    if method not in INTERVALS:
        raise ValueError(f"`method` must be one of {INTERVALS}, got {method!r}.")
    if method == "posterior":
        return intervals.LEVELS
    assert model.depths is not None
    return model.depths


def interval_ends(
    model: FittedModel, rows: np.ndarray, level: float, method: str = "calibrated"
) -> Ends:
    """Ends of the central interval of each target."""
    tail = 0.5 - intervals.depth_at(level, depths_of(model, method)) / 2
    levels = jnp.asarray([tail, 1 - tail], float)
    ends = summarise("quantiles", model.predictor, rows, args=(levels,))
    ends = np.asarray(ends, float)
    low, high = (target_units(model).undo(ends[..., i]) for i in range(2))
    return low, high


def bands(
    model: FittedModel, rows: np.ndarray, levels: list[float]
) -> dict[str, tuple[np.ndarray, list[Ends]]]:
    """For each target its mean, and the ends of the interval of each level."""
    mean, *_ = moments(model, rows)
    ends = [interval_ends(model, rows, level) for level in levels]
    return {
        f"target {column}": (
            mean[:, column],
            [(low[:, column], high[:, column]) for low, high in ends],
        )
        for column in range(mean.shape[1])
    }


def log_densities(model: FittedModel, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Joint log density of the targets of each row, in nats."""
    units = target_units(model)
    density = summarise("log_density", model.predictor, rows, units(y))
    return np.asarray(density, float) - np.log(units.scale).sum()


def positions(
    model: FittedModel, rows: np.ndarray, y: np.ndarray, method: str
) -> np.ndarray:
    """The cdf at each target, from 0 to 1 (P2)."""
    depths = depths_of(model, method)
    y = target_units(model)(y)
    position = summarise("cdf", model.predictor, rows, y)
    return intervals.calibrated(np.asarray(position, float), depths)


def samples(
    model: FittedModel, rows: np.ndarray, draws: int, *, key: Any
) -> np.ndarray:
    """Samples of the targets: rows x targets x draws."""
    drawn = sample_targets(model.posterior, rows, draws, key=key)
    units = target_units(model)
    return np.asarray(drawn, float) * units.scale[:, None] + units.mean[:, None]
