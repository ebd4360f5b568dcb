"""Checks at the boundary: what was needed, what came, what to do."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array


class TrainingWarning(UserWarning):
    """Something about a fit that its user should know."""


def numbers(check: Callable, estimator: Any, *args: Any, **kwargs: Any) -> Any:
    """`check` with a clear word on columns that are not numbers."""
    try:
        return check(estimator, *args, **kwargs)
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(
            f"X must hold numbers only, but a text was found ({error}). Encode text "
            "columns first, for example with scikit-learn's OneHotEncoder."
        ) from error


def checked_weight(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(rows)
    weight = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if weight.shape != (rows,):
        raise ValueError(
            f"`sample_weight` must have one entry for each of the {rows} rows, got shape "
            f"{weight.shape}."
        )
    if (weight < 0).any():
        raise ValueError("`sample_weight` must not be negative.")
    if not weight.any():
        raise ValueError(
            "`sample_weight` is zero for all rows: there is nothing to fit."
        )
    return weight


def checked_level(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"`level` must lie between 0 and 1, got {level!r}.")
    return float(level)


def warn(text: str) -> None:
    warnings.warn(text, TrainingWarning, stacklevel=6)
