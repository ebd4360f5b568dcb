"""Settings and learned attributes as plain values in a file, and back."""

from typing import Any

import numpy as np


def storable(value: Any) -> Any:
    """A setting as a file stores it."""
    if isinstance(value, np.random.RandomState):
        return None  # its state was used up by the fit, whose seed is stored
    if isinstance(value, np.ndarray):
        return storable(tuple(value.tolist()))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):  # class weights: keys may be any label
        return {"pairs": [[storable(k), storable(v)] for k, v in value.items()]}
    if isinstance(value, tuple | list):
        return type(value)(storable(entry) for entry in value)
    return value


def setting(value: Any) -> Any:
    """Undo `storable`."""
    return dict(value["pairs"]) if isinstance(value, dict) else value


def storable_attribute(value: Any) -> Any:
    """An attribute that a fit learned, as a file stores it: labels have a type."""
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "values": value.tolist()}
    return storable(value)


def names_of(stored: Any) -> np.ndarray:
    """The names of columns."""
    names = stored["values"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"`feature_names_in_` is {stored!r:.80}")
    return np.asarray(names, object)


def labels_of(stored: Any) -> np.ndarray:
    """The labels of a classifier: at least two, all different, in their order."""
    values, dtype = stored["values"], np.dtype(stored["dtype"])
    if not isinstance(values, list) or dtype.kind not in "biufUO" or dtype.shape:
        raise ValueError(f"`classes_` is {stored!r:.80}")
    longest = max((len(v) for v in values if isinstance(v, str)), default=0)
    if dtype.kind == "U" and dtype.itemsize > 4 * max(longest, 1):
        raise ValueError(f"`classes_` is of type {stored['dtype']!r:.40}")
    labels = np.asarray(values, dtype)
    if labels.ndim != 1 or storable_attribute(labels)["values"] != values:
        raise ValueError(f"`classes_` is {stored!r:.80}")
    if len(labels) < 2 or not (labels[1:] > labels[:-1]).all():
        raise ValueError("`classes_` is not at least two labels in their order")
    return labels
