"""Flat settings of a fit, and the arguments of an estimator that they make.

Experiments write all settings of a fit in one dictionary, those of training among them.
An estimator takes the latter as one object, `farrier.Training`.
"""

import dataclasses
from typing import Any

import farrier
from farrier.core.priors import Horseshoe

TRAINING = ("max_iter", "batch_size", "learning_rate", "kl_weight", "kl_annealing")
TRAINING += ("averaging", "early_stopping", "tol")
# Names of these settings as arguments of an estimator without `Training`.
FLAT_NAMES = {"learning_rate": "learning_rate_init", "kl_annealing": "kl_warm_up"}


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with those of a `Training` object at the top level."""
    found = dict(settings)
    if (training := found.pop("training", None)) is not None:
        fields = dataclasses.fields(training)
        found |= {field.name: getattr(training, field.name) for field in fields}
    names = {argument: name for name, argument in FLAT_NAMES.items()}
    return {names.get(name, name): value for name, value in found.items()}


def arguments(*settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator. Later settings replace earlier ones."""
    merged: dict[str, Any] = {}
    for each in settings:
        merged |= flat(each)
    training = getattr(farrier, "Training", None)
    if training is None:
        return recorded(merged)
    chosen = {name: merged.pop(name) for name in TRAINING if name in merged}
    return merged | ({"training": training(**chosen)} if chosen else {})


def recorded(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings under the names by which marks in rows.json know them."""
    return {FLAT_NAMES.get(name, name): value for name, value in settings.items()}


def with_column_scales() -> dict[str, Any]:
    """Settings of the horseshoe prior with a scale for each column of the input."""
    if "columns" in {field.name for field in dataclasses.fields(Horseshoe)}:
        own: dict[str, Any] = {"columns": True}
        return {"prior": Horseshoe(**own)}
    return {"input_horseshoe": True}


def with_slab(scale: float) -> Any:
    """The horseshoe prior with a slab of this scale."""
    if "slab" in {field.name for field in dataclasses.fields(Horseshoe)}:
        own: dict[str, Any] = {"slab": scale}
        return Horseshoe(**own)
    return getattr(farrier, "RegularisedHorseshoe")(slab_scale=scale)  # noqa: B009
