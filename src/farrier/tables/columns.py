"""Columns of a table as the numbers that a network takes.

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

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from .files import TableError, imported

# One column of a frame.
Series: TypeAlias = Any

ERROR, IMPUTE = "error", "impute"
BOOLEANS = ({"false", "true"}, {"no", "yes"}, {"f", "t"}, {"n", "y"})
MOST_LEVELS = 200  # of a text column: each is one feature
IDENTIFIERS = 20  # over so many texts, more than half as many as rows name the rows
ISO_DATE = r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?)?"  #


class TableWarning(UserWarning):
    """Something about a table that its user should know."""


# -- one column --------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """How one column becomes features; see the top of this file.

    Parameters
    ----------
    kind
        "number", "boolean", "category" or "date".
    levels
        Of a boolean, its two values as text; of a category, the known ones. A value
        that is none of them is an error for a boolean, and zeros for a category.
    fill
        What takes the place of a missing value: a number, a level, or days since
        1970-01-01. None: a missing value is an error.
    indicator
        Whether there is one more feature, that tells of missing values.
    """

    name: str
    kind: str
    levels: tuple[str, ...] = ()
    fill: float | str | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> list[str]:
        """One name for each feature."""
        names = [self.name + ending for ending in KINDS[self.kind].endings(self)]
        return names + [f"{self.name} missing"] * self.indicator

    def features(self, values: Series) -> np.ndarray:
        """Rows x features."""
        missing = values.isna().to_numpy(bool)
        if missing.any() and self.fill is None:
            raise TableError(
                f"Column {self.name!r} has no value in {row_of(values, missing)} and "
                f"{missing.sum()} rows in all, and the model was fitted without "
                "missing values. Fill them in, or fit with `--missing impute`."
            )
        parts = KINDS[self.kind].encode(self, values, missing)
        return np.column_stack([*parts, missing] if self.indicator else [*parts])

    @classmethod
    def learn(cls, values: Series, *, missing: str) -> Self:
        """The kind, levels and fill that suit a column of training data."""
        name, known = str(values.name), values.dropna()
        if not len(known):
            raise TableError(
                f"Column {name!r} has no values at all: leave it out with "
                f"`--drop {name}`."
            )
        kind = kind_of(known)
        column = cls(name, kind, KINDS[kind].levels(known))
        if missing == ERROR:
            return column
        fill = KINDS[kind].typical(column, known)
        return dataclasses.replace(
            column, fill=fill, indicator=len(known) < len(values)
        )


def kind_of(known: Series) -> str:
    """What the values of a column are, none of which is missing."""
    types = imported()[0].api.types
    if types.is_bool_dtype(known.dtype):
        return "boolean"
    if types.is_numeric_dtype(known.dtype):
        return "number"
    if types.is_datetime64_any_dtype(known.dtype):
        return "date"
    text = texts(known)
    if {value.casefold() for value in text.unique()} in BOOLEANS:
        return "boolean"
    if not _parsed_numbers(text).isna().any():
        return "number"
    return "date" if text.str.fullmatch(ISO_DATE).all() else "category"


def texts(values: Series) -> Series:
    """Values as text, without spaces around them."""
    return values.map(str).astype(object).str.strip()


def row_of(values: Series, chosen: np.ndarray) -> str:
    """The first chosen row in words: its number in the file, counted from 1."""
    first = int(np.flatnonzero(chosen)[0])
    label = values.index[first]
    return f"row {(label if isinstance(label, int | np.integer) else first) + 1}"


def _parsed_numbers(text: Series) -> Series:
    return imported()[0].to_numeric(text, errors="coerce")


def numbers(values: Series) -> np.ndarray:
    """Finite numbers, and NaN for missing values."""
    pandas, _ = imported()
    missing = values.isna().to_numpy(bool)
    if pandas.api.types.is_numeric_dtype(values.dtype):
        found = values.to_numpy(np.float64, na_value=np.nan)
    else:
        found = _parsed_numbers(texts(values))
        found = found.to_numpy(np.float64)
    for bad, what in (
        (np.isnan(found) & ~missing, "which is not a number"),
        (np.isinf(found), "where a finite number is needed"),
    ):
        refuse(values, bad, what)
    return np.where(missing, np.nan, found)


def days(values: Series) -> np.ndarray:
    """Days since 1970-01-01, with fractions, and NaN for missing values."""
    pandas, _ = imported()
    missing = values.isna().to_numpy(bool)
    stamps = values
    if not pandas.api.types.is_datetime64_any_dtype(values.dtype):
        stamps = texts(values)
        bad = ~stamps.str.fullmatch(ISO_DATE).to_numpy(bool) & ~missing
        refuse(values, bad, "where a date such as 2024-03-31 is needed")
    stamps = pandas.to_datetime(stamps, format="ISO8601", utc=True, errors="coerce")
    bad = stamps.isna().to_numpy(bool) & ~missing
    refuse(values, bad, "which is not a date")
    since = stamps - pandas.Timestamp(0, tz="UTC")
    return np.where(missing, np.nan, since / pandas.Timedelta(days=1))


def refuse(values: Series, bad: np.ndarray, why: str) -> None:
    """An error that names the first bad row, if there is any."""
    if bad.any():
        value = str(values.iloc[int(np.flatnonzero(bad)[0])])[:40]
        raise TableError(
            f"Column {str(values.name)!r} holds {value!r} in {row_of(values, bad)}, "
            f"{why}."
        )


def checked_levels(name: str, found: list[str], rows: int) -> tuple[str, ...]:
    """The texts that so many rows hold, in their order; an error if they are many."""
    names_rows = len(found) > max(IDENTIFIERS, rows / 2)
    if names_rows or len(found) > MOST_LEVELS:
        more = " They seem to name the rows." if names_rows else ""
        raise TableError(
            f"Column {name!r} has {len(found)} different texts in {rows} rows, such as "
            f"{min(found)[:40]!r}; at most {MOST_LEVELS} can become features.{more} "
            f"Leave it out with `--drop {name}`."
        )
    return tuple(sorted(found))


# -- the kinds ---------------------------------------------------------------------


class Number:
    """One number."""

    @staticmethod
    def levels(known: Series) -> tuple[str, ...]:
        """None."""
        numbers(known)
        return ()

    @staticmethod
    def typical(column: Column, known: Series) -> float | str:
        """The median."""
        del column
        return float(np.median(numbers(known)))

    @staticmethod
    def endings(column: Column) -> list[str]:
        """The name alone."""
        del column
        return [""]

    @staticmethod
    def encode(
        column: Column, values: Series, missing: np.ndarray
    ) -> Iterator[np.ndarray]:
        """The number."""
        yield np.where(missing, _as_number(column.fill), numbers(values))


class Date:
    """Days, and where in the year and in the week."""

    @staticmethod
    def levels(known: Series) -> tuple[str, ...]:
        """None."""
        days(known)
        return ()

    @staticmethod
    def typical(column: Column, known: Series) -> float | str:
        """The median day."""
        del column
        return float(np.median(days(known)))

    @staticmethod
    def endings(column: Column) -> list[str]:
        """Days, then the two circles."""
        del column
        circles = [f" {wave} {circle}" for circle in ("year", "week") for wave in WAVES]
        return [" days", *circles]

    @staticmethod
    def encode(
        column: Column, values: Series, missing: np.ndarray
    ) -> Iterator[np.ndarray]:
        """Days, then sine and cosine in the year and in the week."""
        found = np.where(missing, _as_number(column.fill), days(values))
        yield found
        whole = np.floor(found)
        day = whole.astype("datetime64[D]")
        of_year = (day - day.astype("datetime64[Y]")).astype(float) + 1
        weekday = (whole + 3) % 7  # 1970-01-01 was a Thursday
        for angle in (of_year / 365.25, weekday / 7):
            yield np.sin(2 * math.pi * angle)
            yield np.cos(2 * math.pi * angle)


WAVES = ("sin", "cos")


class Category:
    """One of some texts."""

    @staticmethod
    def levels(known: Series) -> tuple[str, ...]:
        """The texts, in their order."""
        return checked_levels(str(known.name), [*texts(known).unique()], len(known))

    @staticmethod
    def typical(column: Column, known: Series) -> float | str:
        """The most frequent level."""
        del column
        return str(texts(known).value_counts(sort=True).index[0])

    @staticmethod
    def endings(column: Column) -> list[str]:
        """The levels."""
        return [f"={level}" for level in column.levels]

    @staticmethod
    def encode(
        column: Column, values: Series, missing: np.ndarray
    ) -> Iterator[np.ndarray]:
        """One feature for each level."""
        pandas, _ = imported()
        # Each text is looked at once, however many rows hold it.
        number, found = pandas.factorize(values.astype(object))
        text = texts(pandas.Series([*found, column.fill], dtype=object)).tolist()
        unseen = [value for value in text[:-1] if value not in column.levels]
        if unseen:
            first = [*dict.fromkeys(unseen)][:3]
            new = ", ".join(repr(value[:40]) for value in first)
            warnings.warn(
                f"Column {column.name!r} holds values that were not in the training "
                f"rows ({new}); they count as none of the known ones.",
                TableWarning,
                stacklevel=2,
            )
        for level in column.levels:
            yield np.array([value == level for value in text], float)[number]


class Boolean:
    """One of two texts."""

    @staticmethod
    def levels(known: Series) -> tuple[str, ...]:
        """False, no, f, n first; then the other."""
        found = {text.casefold(): text for text in reversed(texts(known).unique())}
        if len(found) == 1:  # of a column of booleans that are all alike
            return ("False", "True")
        return tuple(found[folded] for folded in sorted(found))

    @staticmethod
    def typical(column: Column, known: Series) -> float | str:
        """The more frequent level."""
        share = np.mean([*Boolean.encode(column, known, np.zeros(len(known), bool))])
        return column.levels[int(share > 0.5)]

    @staticmethod
    def endings(column: Column) -> list[str]:
        """The level that is 1."""
        return [f"={column.levels[1]}"]

    @staticmethod
    def encode(
        column: Column, values: Series, missing: np.ndarray
    ) -> Iterator[np.ndarray]:
        """1 for the second level."""
        text = texts(values.astype(object).where(~missing, column.fill)).str.casefold()
        no, yes = (level.casefold() for level in column.levels)
        needed = f"where {column.levels[0]!r} or {column.levels[1]!r} is needed"
        refuse(values, ~text.isin([no, yes]).to_numpy(bool), needed)
        yield (text == yes).to_numpy(np.float64)


KINDS: dict[str, Any] = {
    "number": Number,
    "boolean": Boolean,
    "category": Category,
    "date": Date,
}


def _as_number(fill: float | str | None) -> float:
    return fill if isinstance(fill, float | int) else math.nan


# -- from the header of a file -----------------------------------------------------

_IS_RIGHT: dict[str, Callable[[Any], bool]] = {
    "name": lambda v: isinstance(v, str),
    "kind": lambda v: isinstance(v, str) and v in KINDS,
    "levels": lambda v: (
        isinstance(v, list)
        and all(isinstance(level, str) for level in v)
        and len(set(v)) == len(v)
    ),
    "fill": lambda v: v is None or isinstance(v, str) or _is_finite(v),
    "indicator": lambda v: isinstance(v, bool),
}


def _is_finite(value: Any) -> bool:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and math.isfinite(value)


def checked_fields(
    cls: type, found: Any, is_right: dict[str, Callable[[Any], bool]]
) -> dict[str, Any]:
    """The fields of a dataclass from JSON, each checked; a ValueError if not right."""
    names = [field.name for field in dataclasses.fields(cls)]
    if not isinstance(found, dict) or sorted(found) != sorted(names):
        raise ValueError(f"A {cls.__name__} must have {names}, got {found!r:.100}.")
    for name, value in found.items():
        if not is_right[name](value):
            raise ValueError(f"`{name}` of a {cls.__name__} is {value!r:.100}.")
    return dict(found)


def column_from_json(found: Any) -> Column:
    """A column from the header of a file; a ValueError if that is broken."""
    fields = checked_fields(Column, found, _IS_RIGHT)
    levels, fill = tuple(fields.pop("levels")), fields["fill"]
    column = Column(levels=levels, **fields)
    fits = {
        "number": not levels and not isinstance(fill, str),
        "date": not levels and not isinstance(fill, str),
        "category": bool(levels) and (fill is None or fill in levels),
        "boolean": len(levels) == 2 and (fill is None or fill in levels),
    }
    if not fits[column.kind]:
        raise ValueError(f"The column {column!r:.200} is broken.")
    return column
