"""Dataclasses as JSON values, and back with every annotation checked.

`to_json` gives what `json.dumps` takes. `from_json` builds the dataclass again and
raises a ValueError that names the field if anything is missing, unknown or of another
type, so that a damaged file fails where it is read. Supported annotations: bool, int,
float, str, None, unions, `Literal`, enumerations, `tuple`, `list`, `dict` with text
keys, dataclasses, `TypedDict` and `Any`.
"""

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import (
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)


def to_json(value: Any) -> Any:
    """The value as dicts, lists, strings, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_json(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {name: to_json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(entry) for entry in value]
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form: {value!r:.80}")


def from_json(annotation: Any, value: Any, name: str = "") -> Any:
    """The object of the annotated type that `to_json` turned into `value`.

    Parameters
    ----------
    annotation
        A dataclass, or any other supported annotation.
    value
        What `json.loads` gave.
    name
        Name of the value in error messages, such as `columns[0].kind`.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return value
    if origin in (Union, types.UnionType):
        return _member_of_union(arguments, value, name)
    if origin is Literal:
        matches = [c for c in arguments if type(c) is type(value) and c == value]
        return value if matches else _refuse(f"one of {[*arguments]}", value, name)
    if origin in (tuple, list):
        return origin(_entries(origin, arguments, value, name))
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(n, str) for n in value):
            _refuse("an object", value, name)
        return {n: from_json(arguments[1], v, _join(name, n)) for n, v in value.items()}
    if is_typeddict(annotation):
        hints = get_type_hints(annotation)
        required = [field for field in hints if field in annotation.__required_keys__]
        return _fields(annotation, hints, required, value, name)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _dataclass(annotation, value, name)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        members = {to_json(member): member for member in annotation}
        if not isinstance(value, str | int) or value not in members:
            _refuse(f"one of {[*members]}", value, name)
        return members[value]
    return _plain(annotation, value, name)


def _plain(annotation: Any, value: Any, name: str) -> Any:
    """A boolean, number, string or None; a whole number is also a float."""
    if annotation in (None, types.NoneType):
        return None if value is None else _refuse("null", value, name)
    if annotation is float and type(value) is int:
        return float(value)
    words = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if annotation not in words:
        raise TypeError(f"from_json does not support the annotation {annotation!r}.")
    if type(value) is not annotation:
        _refuse(words[annotation], value, name)
    return value


def _member_of_union(members: tuple[Any, ...], value: Any, name: str) -> Any:
    """The first member of a union that the value fits."""
    problems = []
    for member in members:
        try:
            return from_json(member, value, name)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(" Or: ".join(dict.fromkeys(problems)))


def _entries(
    origin: type, arguments: tuple[Any, ...], value: Any, name: str
) -> list[Any]:
    if not isinstance(value, list):
        _refuse("a list", value, name)
    types = [arguments[0]] * len(value)
    if origin is tuple and arguments[1:] != (...,):
        types = [*arguments]
    if len(types) != len(value):
        _refuse(f"a list of {len(types)} entries", value, name)
    pairs = enumerate(zip(types, value, strict=True))
    return [from_json(kind, entry, f"{name}[{i}]") for i, (kind, entry) in pairs]


def _dataclass(cls: type, value: Any, name: str) -> Any:
    hints = {f.name: get_type_hints(cls)[f.name] for f in dataclasses.fields(cls)}
    fields = _fields(cls, hints, hints.keys(), value, name)
    try:
        return cls(**fields)
    except ValueError as error:  # of the checks that the class makes itself
        raise ValueError(f"`{name or cls.__name__}`: {error}") from error


def _fields(
    cls: type, hints: Mapping[str, Any], required: Any, value: Any, name: str
) -> dict[str, Any]:
    """The fields of a class by name, each checked."""
    if not isinstance(value, dict):
        _refuse(f"an object with the fields of {cls.__name__}", value, name)
    for field in [*required, *value]:
        if field not in value:
            raise ValueError(f"`{_join(name, field)}` of {cls.__name__} is missing.")
        if field not in hints:
            raise ValueError(f"`{_join(name, field)}` is no field of {cls.__name__}.")
    return {f: from_json(hints[f], entry, _join(name, f)) for f, entry in value.items()}


def _join(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _refuse(needed: str, value: Any, name: str) -> Any:
    raise ValueError(f"`{name or 'value'}` must be {needed}, got {value!r:.80}.")
