"""Columns of a table and their encoding as features, the numeric inputs of a network.

| kind | features, in this order |
| --- | --- |
| number | the number |
| boolean | 1 for the second of two levels, else 0 |
| category | for each known level, 1 where the value is that level, else 0 |
| date | days since 1970-01-01; sin and cos of 2 pi (day of the year) / 365.25; |
|      | sin and cos of 2 pi weekday / 7, where Monday is 0 |

A missing value is first replaced by `fill`. With `indicator`, one more feature follows:
1 where the value was missing, else 0.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from .files import TableError, imported

# A pandas Series.
Series: TypeAlias = Any
Kind: TypeAlias = Literal["number", "boolean", "category", "date"]

ERROR, IMPUTE = "error", "impute"
BOOLEANS = ({"false", "true"}, {"no", "yes"}, {"f", "t"}, {"n", "y"})
ISO_DATE = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?"
EPOCH_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday is 0


class TableWarning(UserWarning):
    """A table has values that a model handles in a way its user should know about."""


# -- one column --------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """Encoding of one column of a table as features.

    Parameters
    ----------
    name : str
        Name of the column.
    kind : {"number", "boolean", "category", "date"}
        Type of its values.
    levels : tuple of str, default=()
        The two values of a boolean, or the known values of a category. Any other
        value is an error in a boolean, and encoded as zeros in a category.
    fill : float or str, optional
        Replacement for missing values: a number, a level, or days since 1970-01-01.
        With None, a missing value is an error.
    indicator : bool, default=False
        Whether one more feature marks the rows in which the value was missing.

    Attributes
    ----------
    feature_names : list of str
        One name for each feature.
    """

    name: str
    kind: Kind
    levels: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        numeric, levels = self.kind in ("number", "date"), self.levels
        wrong_levels = {
            "number": bool(levels),
            "date": bool(levels),
            "boolean": len(levels) != 2,
            "category": not levels,
        }
        if wrong_levels[self.kind] or len(set(levels)) < len(levels):
            raise ValueError(
                f"A {self.kind} cannot have the levels {levels!r:.100} (column "
                f"{self.name!r:.40})."
            )
        fits = isinstance(self.fill, float | int) and math.isfinite(self.fill)
        if self.fill is not None and not (fits if numeric else self.fill in levels):
            raise ValueError(
                f"A {self.kind} cannot be filled with {self.fill!r:.40} (column "
                f"{self.name!r:.40})."
            )

    @property
    def feature_names(self) -> list[str]:
        """One name for each feature."""
        names = [self.name + suffix for suffix in _SUFFIXES[self.kind](self)]
        return names + [f"{self.name} missing"] * self.indicator

    def features(self, values: Series) -> np.ndarray:
        """Encode the values of this column.

        Parameters
        ----------
        values : pandas.Series
            Values of the column.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            The features.
        """
        missing = values.isna().to_numpy(bool)
        if missing.any() and self.fill is None:
            raise TableError(
                f"Column {self.name!r} has no value in {first_row(values, missing)} "
                f"and {missing.sum()} rows in all, and the model was fitted without "
                "missing values. Fill them in, or fit with `--missing impute`."
            )
        parts = _ENCODERS[self.kind](self, values, missing)
        return np.column_stack([*parts, missing] if self.indicator else [*parts])


def kind_of(known: Series) -> Kind:
    """The kind of a column from its values, none of which is missing."""
    types = imported()[0].api.types
    if types.is_bool_dtype(known.dtype):
        return "boolean"
    if types.is_numeric_dtype(known.dtype):
        return "number"
    if types.is_datetime64_any_dtype(known.dtype):
        return "date"
    strings = as_strings(known)
    if {value.casefold() for value in strings.unique()} in BOOLEANS:
        return "boolean"
    if not _parsed_numbers(strings).isna().any():
        return "number"
    return "date" if strings.str.fullmatch(ISO_DATE).all() else "category"


# -- values ------------------------------------------------------------------------


def as_strings(values: Series) -> Series:
    """Values as strings, without spaces around them."""
    return values.map(str).astype(object).str.strip()


def as_numbers(values: Series) -> np.ndarray:
    """Finite numbers, and NaN for missing values."""
    pandas, _ = imported()
    missing = values.isna().to_numpy(bool)
    if pandas.api.types.is_numeric_dtype(values.dtype):
        numbers = values.to_numpy(np.float64, na_value=np.nan)
    else:
        numbers = _parsed_numbers(as_strings(values)).to_numpy(np.float64)
    refuse(values, np.isnan(numbers) & ~missing, "which is not a number")
    refuse(values, np.isinf(numbers), "where a finite number is needed")
    return np.where(missing, np.nan, numbers)


def as_days(values: Series) -> np.ndarray:
    """Days since 1970-01-01, with fractions, and NaN for missing values."""
    pandas, _ = imported()
    missing = values.isna().to_numpy(bool)
    stamps = values
    if not pandas.api.types.is_datetime64_any_dtype(values.dtype):
        stamps = as_strings(values)
        bad = ~stamps.str.fullmatch(ISO_DATE).to_numpy(bool) & ~missing
        refuse(values, bad, "where a date such as 2024-03-31 is needed")
    stamps = pandas.to_datetime(stamps, format="ISO8601", utc=True, errors="coerce")
    bad = stamps.isna().to_numpy(bool) & ~missing
    refuse(values, bad, "which is not a date")
    since = stamps - pandas.Timestamp(0, tz="UTC")
    return np.where(missing, np.nan, since / pandas.Timedelta(days=1))


def refuse(values: Series, bad: np.ndarray, reason: str) -> None:
    """Raise a TableError that names the first bad row, if there is one."""
    if bad.any():
        value = str(values.iloc[int(np.flatnonzero(bad)[0])])[:40]
        raise TableError(
            f"Column {str(values.name)!r} holds {value!r} in "
            f"{first_row(values, bad)}, {reason}."
        )


def first_row(values: Series, mask: np.ndarray) -> str:
    """The first row of a mask in words: its number in the file, counted from 1."""
    return f"row {first_label(values, mask) + 1}"


def first_label(values: Series, mask: np.ndarray) -> int:
    """The label of the first row of a mask if that is a number, else its position."""
    first = int(mask.argmax())
    label = values.index[first]
    return int(label) if isinstance(label, int | np.integer) else first


def _parsed_numbers(strings: Series) -> Series:
    return imported()[0].to_numeric(strings, errors="coerce")


# -- the encoding of each kind -------------------------------------------------------


def _encode_number(
    column: Column, values: Series, missing: np.ndarray
) -> Iterator[np.ndarray]:
    yield np.where(missing, _numeric_fill(column), as_numbers(values))


def _encode_date(
    column: Column, values: Series, missing: np.ndarray
) -> Iterator[np.ndarray]:
    days = np.where(missing, _numeric_fill(column), as_days(values))
    yield days
    whole = np.floor(days)
    date = whole.astype("datetime64[D]")
    day_of_year = (date - date.astype("datetime64[Y]")).astype(float) + 1
    weekday = (whole + EPOCH_WEEKDAY) % 7
    for turns in (day_of_year / 365.25, weekday / 7):
        yield np.sin(2 * math.pi * turns)
        yield np.cos(2 * math.pi * turns)


def _encode_category(
    column: Column, values: Series, missing: np.ndarray
) -> Iterator[np.ndarray]:
    del missing  # factorize gives it the code -1, which selects the fill
    pandas, _ = imported()
    # Each distinct value is compared once, however many rows have it.
    code, distinct = pandas.factorize(values.astype(object))
    filled = pandas.Series([*distinct, column.fill], dtype=object)
    strings = as_strings(filled).tolist()
    unknown = [value for value in strings[:-1] if value not in column.levels]
    if unknown:
        first = [*dict.fromkeys(unknown)][:3]
        shown = ", ".join(repr(value[:40]) for value in first)
        warnings.warn(
            f"Column {column.name!r} holds values that were not in the training "
            f"rows ({shown}); they count as none of the known ones.",
            TableWarning,
            stacklevel=2,
        )
    for level in column.levels:
        yield np.array([value == level for value in strings], float)[code]


def _encode_boolean(
    column: Column, values: Series, missing: np.ndarray
) -> Iterator[np.ndarray]:
    filled = values.astype(object).where(~missing, column.fill)
    strings = as_strings(filled).str.casefold()
    no, yes = (level.casefold() for level in column.levels)
    reason = f"where {column.levels[0]!r} or {column.levels[1]!r} is needed"
    refuse(values, ~strings.isin([no, yes]).to_numpy(bool), reason)
    yield (strings == yes).to_numpy(np.float64)


def _numeric_fill(column: Column) -> float:
    return column.fill if isinstance(column.fill, float | int) else math.nan


_ENCODERS: dict[Kind, Callable[[Column, Series, np.ndarray], Iterator[np.ndarray]]] = {
    "number": _encode_number,
    "boolean": _encode_boolean,
    "category": _encode_category,
    "date": _encode_date,
}

# What follows the name of the column in the names of its features.
_SUFFIXES: dict[Kind, Callable[[Column], list[str]]] = {
    "number": lambda column: [""],
    "boolean": lambda column: [f"={column.levels[1]}"],
    "category": lambda column: [f"={level}" for level in column.levels],
    "date": lambda column: [
        " days",
        " sin year",
        " cos year",
        " sin week",
        " cos week",
    ],
}
