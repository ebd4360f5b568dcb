"""Checks of input. Messages state what was needed, what came and what to do."""

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from sklearn.utils import check_array

from ..scale.rows import RowSource

# What a user passes: an array, a data frame, or a mistake that needs a clear message.
Unchecked: TypeAlias = Any
Choice = TypeVar("Choice")
Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable)


class TrainingWarning(UserWarning):
    """Something about a fit that users should know."""


def learned_by(
    estimator: Any, check: Callable[..., Result], *args: Any, **settings: Any
) -> tuple[Result, dict[str, Any]]:
    """`check(copy of the estimator, ...)`, and the attributes that it set.

    scikit-learn's checks store what they learn on the estimator, also if the fit fails
    later; this keeps it apart until the fit has ended.
    """
    scratch = copy.copy(estimator)
    known = ("n_features_in_", "feature_names_in_")
    result = check(scratch, *args, **settings)
    return result, {k: v for k, v in vars(scratch).items() if k in known}


def by_pieces(method: Method) -> Method:
    """A prediction that also takes a source of rows, which it reads piece by piece."""

    @wraps(method)
    def predict(self: Any, X: Unchecked, *args: Any, **settings: Any) -> Any:
        if not isinstance(X, RowSource):
            return method(self, X, *args, **settings)
        pieces = [method(self, piece, *args, **settings) for piece in X.inputs()]
        if isinstance(pieces[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*pieces, strict=True))
        return np.concatenate(pieces)

    return cast(Method, predict)


@contextmanager
def numbers_only(what: str) -> Iterator[None]:
    """A block that explains strings where numbers are needed."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(
            f"{what} must hold numbers only, but a string came ({error}). Encode "
            "string columns first, for example with scikit-learn's OneHotEncoder."
        ) from error


def checked_weight(sample_weight: Unchecked, rows: int) -> np.ndarray:
    """Weights from 0, one for each row."""
    if sample_weight is None:
        return np.ones(rows)
    name = "sample_weight"
    with numbers_only(f"`{name}`"):
        weight = check_array(
            sample_weight, ensure_2d=False, dtype="float64", input_name=name
        )
    if weight.shape != (rows,):
        raise ValueError(
            f"`sample_weight` must have one entry for each of the {rows} rows, got "
            f"shape {weight.shape}."
        )
    if (weight < 0).any():
        raise ValueError(
            "`sample_weight` must not be negative, but the smallest is "
            f"{weight.min():.3g}. Give rows that should not count the weight 0."
        )
    if not weight.any():
        raise ValueError(
            "`sample_weight` is zero for all rows: there is nothing to fit."
        )
    return weight


def checked_number(
    name: str, value: Unchecked, fits: Callable[[Any], bool], needed: str
) -> float:
    """A real number that fits; `needed` says in words which do."""
    if not isinstance(value, Real) or not fits(value):
        raise ValueError(f"`{name}` must be {needed}, got {value!r}.")
    return float(value)


def checked_choice(
    name: str, value: Unchecked, known: dict[str, Choice], kind: type[Choice]
) -> Choice:
    """The object that a name stands for, or the object itself."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, str) or value not in known:
        example = type(next(iter(known.values()))).__name__
        raise ValueError(
            f"`{name}` must be one of {[*known]} or an object such as {example}(...), "
            f"got {value!r}."
        )
    return known[value]


def checked_level(level: Unchecked) -> float:
    """A probability, ends excluded."""
    return checked_number(
        "level", level, lambda v: 0 < v < 1, "a number between 0 and 1"
    )


def checked_positive(name: str, value: Unchecked) -> float:
    """A positive number that is not infinite."""
    return checked_number(
        name, value, lambda v: 0 < v < math.inf, "a positive, finite number"
    )


def checked_count(name: str, value: Unchecked, *, least: int) -> int:
    """A whole number that is at least `least`."""
    if not isinstance(value, Integral) or value < least:
        raise ValueError(
            f"`{name}` must be a whole number from {least}, got {value!r}."
        )
    return int(value)


def warn(text: str) -> None:
    """A warning that points to the line outside farrier that asked for the work."""
    frame, level = sys._getframe(1), 1
    inside = ("farrier", "sklearn", "contextlib")
    while frame.f_back and frame.f_globals["__name__"].split(".")[0] in inside:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, TrainingWarning, stacklevel=level)
