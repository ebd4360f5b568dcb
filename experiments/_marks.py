"""What a part of a result is finished for: its settings, and the code that it ran."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from ._code import Sources
from ._names import known, module_name
from ._rows import Row, stored_kind, stored_parts

KINDS = ("smoke", "short", "full", "other")  # none is replaced by one before it
STORED_BY = "plain"  # the function that each row goes through


def settings_named(experiment: ModuleType, kind: str) -> Any:
    """The settings "full", "short" or "smoke"; the full ones if there are no such."""
    return getattr(experiment, kind.upper(), experiment.FULL)


def settings_without(config: Any, *fields: str) -> dict[str, Any]:
    """The settings as plain values, without some."""
    settings = dataclasses.asdict(config)
    return {key: value for key, value in settings.items() if key not in fields}


def kind_of(experiment: ModuleType, config: Any) -> str:
    """The name of the settings."""
    named = ("full", "short", "smoke")
    same = (k for k in named if settings_named(experiment, k) == config)
    return next(same, "other")


def mark_of(experiment: ModuleType, config: Any, part: str) -> str:
    """sha256 of the settings of a part."""
    if hasattr(experiment, "settings_of"):
        settings = experiment.settings_of(config, part)
    else:
        settings = settings_without(config, *getattr(experiment, "PLAN", ()))
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


@cache
def sources() -> Sources:
    """The sources as they were when first needed: those that this process runs."""
    return Sources()


def code_of(name: str, config: Any) -> str:
    """sha256 of the code that makes the rows of an experiment (`_code`)."""
    code = sources()
    starts = code.resolve(f"{__package__}.{module_name(name)}.parts")
    starts |= code.resolve(f"{__package__}._rows.{STORED_BY}")
    classes = ((each.__module__, each.__qualname__) for each in type(config).__mro__)
    settings = {symbol for symbol in classes if symbol[0] in code.files}
    return code.hash(starts, settings, getattr(known(name), "GIVEN", ()))


@dataclass(frozen=True)
class Standing:
    """The parts of an experiment, by what is stored of them."""

    code: str  # of today
    usable: dict[str, Row]  # made with these settings
    earlier: dict[str, Row]  # made with earlier settings
    former: dict[str, Row]  # no longer offered
    missing: list[str]

    @property
    def finished(self) -> list[str]:
        """Parts made with these settings by this code."""
        return [p for p, made in self.usable.items() if made.get("code") == self.code]

    @property
    def stale(self) -> dict[str, Row]:
        """Parts made with these settings by earlier code."""
        fresh = {*self.finished}
        return {p: made for p, made in self.usable.items() if p not in fresh}

    @property
    def waiting(self) -> list[str]:
        """Parts that have no rows of these settings."""
        return [*self.earlier, *self.missing]

    def seconds(self) -> float:
        """How long the parts took that are not finished, where they were run before."""
        again = self.stale | self.earlier
        return sum(made["seconds"] for made in again.values())


def standing(stored: dict[str, Row], marks: dict[str, str], code: str) -> Standing:
    """Stored parts beside those offered, which have the marks of their settings."""
    offered = {part: stored[part] for part in marks if part in stored}
    usable = {p: made for p, made in offered.items() if made["settings"] == marks[p]}
    return Standing(
        code,
        usable,
        earlier={p: made for p, made in offered.items() if p not in usable},
        former={p: made for p, made in stored.items() if p not in marks},
        missing=[part for part in marks if part not in stored],
    )


def stored_standing(name: str, folder: Path) -> Standing:
    """How the parts in a folder stand to the settings that it has rows of."""
    experiment, path = known(name), folder / "rows.json"
    config = settings_named(experiment, stored_kind(path) or "full")
    parts = experiment.parts(config, Path())
    marks = {part: mark_of(experiment, config, part) for part in parts}
    return standing(stored_parts(path), marks, code_of(name, config))
