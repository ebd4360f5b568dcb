"""Dataclasses to JSON and back: annotations are checked, errors name the field."""

import enum
import json
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest

from farrier.jsonable import from_json, to_json


class Status(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Note(TypedDict, total=False):
    text: str
    line: int


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None

    def __post_init__(self):
        if self.size is not None and self.size < 0:
            raise ValueError(f"size {self.size} is negative")


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b", 1]
    rate: float
    on: bool
    inner: tuple[Inner, ...]
    pair: tuple[int, str]
    names: list[str]
    scores: dict[str, float]
    fill: float | str | None
    status: Status
    note: Note
    more: Any


OUTER = Outer(
    kind="a",
    rate=0.5,
    on=True,
    inner=(Inner("x", 3), Inner("y")),
    pair=(2, "z"),
    names=["u"],
    scores={"rmse": 1.5},
    fill=None,
    status=Status.BAD,
    note={"line": 3},
    more=[1, {"two": None}],
)


def test_an_object_comes_back():
    text = json.dumps(to_json(OUTER))
    again = from_json(Outer, json.loads(text))
    assert again == OUTER
    assert again.status is Status.BAD
    assert type(again.inner[1]) is Inner


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "c"}, r"`kind` must be one of \['a', 'b', 1\], got 'c'"),
        ({"kind": True}, "`kind` must be one of"),  # although True == 1
        ({"rate": "0.5"}, "`rate` must be a number, got '0.5'"),
        ({"rate": True}, "`rate` must be a number, got True"),
        ({"on": 1}, "`on` must be a boolean, got 1"),
        ({"inner": {}}, "`inner` must be a list"),
        ({"inner": [{"name": 3, "size": None}]}, r"`inner\[0\].name` must be a string"),
        ({"inner": [{"name": "x"}]}, r"`inner\[0\].size` of Inner is missing"),
        ({"inner": [{"name": "x", "size": -1}]}, r"`inner\[0\]`: size -1 is negative"),
        (
            {"inner": [{"name": "x", "size": 1.5}]},
            r"`inner\[0\].size` must be an int",
        ),
        ({"inner": ["x"]}, r"`inner\[0\]` must be an object with the fields of Inner"),
        ({"pair": [1, "z", 2]}, "`pair` must be a list of 2 entries"),
        ({"pair": ["z", 1]}, r"`pair\[0\]` must be an integer"),
        ({"names": ["u", 1]}, r"`names\[1\]` must be a string"),
        ({"scores": {"rmse": None}}, "`scores.rmse` must be a number"),
        ({"scores": []}, "`scores` must be an object"),
        ({"fill": []}, "`fill` must be a number.* Or: `fill` must be a string.* Or:"),
        ({"status": "worse"}, r"`status` must be one of \['good', 'bad'\]"),
        ({"status": []}, "`status` must be one of"),
        ({"note": {"page": 1}}, "`note.page` is no field of Note"),
        ({"extra": 1}, "`extra` is no field of Outer"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_field(change, reason):
    with pytest.raises(ValueError, match=reason):
        from_json(Outer, json.loads(json.dumps(to_json(OUTER))) | change)


def test_every_field_is_required():
    whole = to_json(OUTER)
    for name in whole:
        part = {key: value for key, value in whole.items() if key != name}
        with pytest.raises(ValueError, match=f"`{name}` of Outer is missing"):
            from_json(Outer, part)
    with pytest.raises(ValueError, match=r"must be an object .* got \[1\]"):
        from_json(Outer, [1])


def test_a_whole_number_is_also_a_float():
    found = from_json(float, 3)
    assert (found, type(found)) == (3.0, float)
    assert type(from_json(int | float, 3)) is int


def test_what_has_no_json_form_is_refused():
    with pytest.raises(TypeError, match="set has no JSON form"):
        to_json({"a": {1, 2}})
    with pytest.raises(TypeError, match=r"does not support the annotation .*set"):
        from_json(set, [])
