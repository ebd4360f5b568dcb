"""Flat settings of a fit, and the arguments of an estimator that they make.

Experiments write all settings of a fit in one dictionary, those of training among them.
An estimator takes the latter as one object, `farrier.Training`.
"""

import dataclasses
from typing import Any

from farrier import Training

TRAINING = tuple(field.name for field in dataclasses.fields(Training))


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with those of a `Training` object at the top level.

    None stands for `Training()`, as it does in an estimator.
    """
    if "training" not in settings:
        return settings
    others = {name: value for name, value in settings.items() if name != "training"}
    return others | (settings["training"] or Training()).get_params()


def arguments(*settings: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator. Later settings replace earlier ones."""
    merged: dict[str, Any] = {}
    for each in settings:
        merged |= flat(each)
    chosen = {name: merged.pop(name) for name in TRAINING if name in merged}
    return merged | ({"training": Training(**chosen)} if chosen else {})
