"""What all experiments need: parts that are run once, files, progress, the claims.

An experiment is a module of this folder. It has

    FULL, SMOKE         two settings, frozen dataclasses of plain values
    HOURS               how long FULL takes, in words
    parts(config, data) named units of work, in order: {"yacht/horseshoe": function}
    data_files(config)  the files under the data folder that it reads
    render(rows)        {"bands": Figure}, written as bands.png
    table(rows)         Markdown: the published number, ours, the difference
    claims(rows)        what the paper says, and whether our rows bear it out

It may have

    cells(rows)         our numbers beside published ones: better, level or worse
    SHORT               settings between the two, for those who cannot wait for FULL
    PLAN                fields of the settings that only say which parts there are
    settings_of(config, part)
                        what one part depends on; else all settings but those of PLAN
    IN_SETTINGS         names of tables whose values `settings_of` has for each part
    GIVEN               full names of defaults that no part uses: `settings_of` has
                        the values that stand in their place

A part takes a `Work`, which has the rows of the parts before it, and returns plain
rows. `render`, `table`, `claims` and `cells` see rows alone, each with the name
of its part and the warnings of it, and are also called when some parts are still to
come. What these functions do does not count as code of the rows (`_code`).
"""

import dataclasses
import hashlib
import itertools
import json
import math
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from farrier import TrainingWarning

from ._cells import Cell
from ._marks import (
    KINDS,
    Standing,
    code_of,
    kind_of,
    mark_of,
    settings_without,
    standing,
    stored_standing,
)
from ._names import known
from ._provenance import PACKAGES, commit_text, is_lost, provenance
from ._rows import (
    Row,
    plain,
    read_rows,
    rows_of,
    rows_text,
    stored_kind,
    stored_parts,
    write_text,
)

__all__ = [
    "Cell",
    "Claim",
    "Part",
    "Refused",
    "Report",
    "Row",
    "Work",
    "known",
    "markdown",
    "mean_and_error",
    "plain",
    "read_rows",
    "render",
    "reproduce",
    "settings_without",
    "verdict",
    "where",
    "write_text",
]

Report = Callable[[int, str], None]
Part = Callable[["Work"], list[Row]]

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65,530; each compiled program has hundreds
SHOWN = 5  # parts that an error names
PERCENT = 100  # in which `reproduce` reports its progress
DPI = 150
VERDICTS = ("holds", "holds partly", "does not hold", "waits for results")


class Refused(ValueError):
    """What was asked for is not there, or would spoil results that are."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, what our rows say to it, and the verdict."""

    text: str
    evidence: str
    verdict: str

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(
                f"`verdict` must be one of {[*VERDICTS]}, got {self.verdict!r}."
            )


def verdict(*, holds: bool, partly: bool) -> str:
    """The verdict on a claim, from the two rules that it is put to."""
    if holds:
        return "holds"
    return "holds partly" if partly else "does not hold"


class Rows(Sequence[Row]):
    """Rows that note whether they were looked at."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._rows = rows
        self.were_read = False

    def __getitem__(self, index: Any) -> Any:
        self.were_read = True
        return self._rows[index]

    def __len__(self) -> int:
        self.were_read = True
        return len(self._rows)


@dataclass(frozen=True)
class Work:
    """What a part is given: a folder for its checkpoints, and whom to tell."""

    folder: Path  # deleted when the part is finished
    report: Callable[[float, str], None]  # share of the part that is done, and a text
    rows: Sequence[Row] = ()  # of the parts before this one that are finished

    def note(self, text: str) -> None:
        """Say what is being done, where no share of it is known."""
        self.report(0.0, text)

    def done(self, k: int, n: int) -> None:
        """Say that k of n equal pieces are done."""
        self.report(k / n, f"{k} of {n}")

    def piece(self, k: int, n: int) -> "Work":
        """The same work for piece k, from 0, of n equal ones: its share is of that."""
        told = lambda share, text: self.report((k + share) / n, text)
        return dataclasses.replace(self, report=told)

    def counter(self, n: int) -> Callable[[int, Any], None]:
        """What tells of each of n fits that ends: an `after_fit` of `fit_many`."""
        count = itertools.count(1)
        return lambda index, model: self.done(next(count), n)


def reproduce(
    name: str,
    folder: Path,
    config: Any,
    data: Path,
    report: Report,
    *,
    only: Sequence[str] = (),
    stale: bool = False,
) -> str:
    """Run what is not yet in `folder`, and write rows, figures, table and manifest.

    A part is finished when rows.json has it under its name, with the same settings and
    made by the same code. One that earlier code made is stale: it is run again only if
    that is asked for. No result is deleted: a part that is stale or has earlier
    settings stays until it has been run again, one that the experiment no longer
    offers stays for good, and the table lists all of them. Rows of smaller settings
    (`KINDS`) are moved to a file of their own. Other processes may write to the same
    folder meanwhile: their parts are kept. Returns the table.

    Parameters
    ----------
    folder
        Folder of this experiment: `results/cubic`.
    data
        Folder of the data sets.
    report
        Called with the percentage of the work that is done, and a short text.
    only
        Run only parts whose names contain one of these.
    stale
        Also run parts again that earlier code has made.
    """
    experiment = known(name)
    parts = experiment.parts(config, data)
    marks = {part: mark_of(experiment, config, part) for part in parts}
    code, kind = code_of(name, config), kind_of(experiment, config)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [p for p in parts if not only or any(text in p for text in only)]
    if not chosen:
        some = ", ".join([*parts][:SHOWN])
        raise Refused(
            f"No part contains {[*only]}. There are {len(parts)} parts, such as {some}."
        )
    path = folder / "rows.json"
    _set_aside(path, marks, kind)
    before = standing(stored_parts(path), marks, code)
    kept = before.usable if not stale else before.finished
    waiting = [part for part in chosen if part not in kept]
    made: dict[str, Row] = {}
    skipped: dict[str, str] = {}

    files = {file: data / file for file in experiment.data_files(config)}
    hashes = {file: _sha256(path) for file, path in files.items()}

    def now() -> Standing:
        return standing(stored_parts(path) | made, marks, code)

    def write() -> str:
        stored = stored_parts(path) | made
        in_order = {part: stored[part] for part in parts if part in stored} | stored
        write_text(path, rows_text(kind, in_order))
        manifest = _manifest(name, config, hashes, kind, in_order, skipped)
        write_text(folder / "manifest.json", json.dumps(manifest, indent=1) + "\n")
        return _write_views(name, folder, kind, now(), skipped)

    table = write() if not waiting else ""
    for number, part in enumerate(waiting):
        show = _share_of(report, number, len(waiting), part)
        show(0.0, "")
        mark = f"{marks[part][:8]}-{code[:8]}"
        private = folder / "unfinished" / f"{_file_name(part)}-{mark}"
        private.mkdir(parents=True, exist_ok=True)
        state, first = now(), {*list(parts)[: list(parts).index(part)]}
        given = Rows(rows_of({p: state.usable[p] for p in state.usable if p in first}))
        try:
            about, rows = _run(parts[part], Work(private, show, given))
            # What is made of stale rows is stale itself.
            is_fresh = not (given.were_read and first & state.stale.keys())
            about |= {"code": code if is_fresh else None}
            made[part] = {"settings": marks[part]} | about | {"rows": rows}
        except FileNotFoundError as error:
            skipped[part] = str(error).replace(str(data), "the data folder")
        table = write()  # before its checkpoints go
        shutil.rmtree(private)
        _forget_programs()
    with suppress(OSError):  # not empty where others are at work
        (folder / "unfinished").rmdir()
    report(PERCENT, "done")
    return table


def render(name: str, folder: Path) -> str:
    """Write figures and table again from the rows that are there; run nothing."""
    kind = stored_kind(folder / "rows.json")
    if kind is None:
        raise Refused(f"{str(folder)!r} has no rows.json to render.")
    manifest = folder / "manifest.json"
    skipped = {}
    if manifest.is_file():
        skipped = json.loads(manifest.read_text(encoding="utf-8"))["skipped"]
    return _write_views(name, folder, kind, stored_standing(name, folder), skipped)


def markdown(columns: list[str], rows: Iterable[Iterable[Any]]) -> str:
    """A table in Markdown; the first column stands to the left."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def where(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have all these values."""
    return [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """The mean, and two standard errors of it; NaN where there are too few values."""
    found = np.asarray(list(values), float)
    n = len(found)
    mean = float(found.mean()) if n else math.nan
    error = 2 * float(found.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return mean, error


# -- the parts of `reproduce` -----------------------------------------------------


def _forget_programs() -> None:
    """Give up compiled programs before they fill the process: each has many maps."""
    if MAPS.exists() and len(MAPS.read_text().splitlines()) > MOST_MAPS:
        jax.clear_caches()


def _set_aside(path: Path, marks: dict[str, str], kind: str) -> None:
    """Copy rows of smaller settings to a file; refuse to replace those of larger ones.

    Parts that are the same at both settings go on.
    """
    if not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    there = json.loads(text)["kind"]
    if KINDS.index(kind) < KINDS.index(there):
        raise Refused(
            f"{str(path)!r} has results of the {there} settings, and those of "
            f"the {kind} ones would take their place. Give another folder."
        )
    if kind != there:
        write_text(path.with_name(f"rows-{there}.json"), text)
        kept = standing(stored_parts(path), marks, code="").usable
        write_text(path, rows_text(kind, kept))


def _commits(parts: dict[str, Row]) -> str:
    """The commits that some parts were made at, with the names of the parts."""
    by_commit: dict[str, list[str]] = {}
    for part, made in parts.items():
        by_commit.setdefault(commit_text(made["commit"]), []).append(part)
    return "".join(f"- {text}: {'; '.join(p)}\n" for text, p in by_commit.items())


def _notes(command: str, state: Standing, skipped: dict[str, str]) -> str:
    """What the table says of parts that have no rows, or rows of another run."""
    missing = [part for part in state.missing if part not in skipped]
    lost = {
        part: made
        for part, made in state.usable.items()
        if part not in state.stale and is_lost(made["commit"])
    }
    text = ""
    if skipped:
        text += "\nNot run:\n\n"
        text += "".join(f"- {part}: {why}\n" for part, why in skipped.items())
    if missing:
        text += f"\nStill to be run: {', '.join(missing)}.\n"
    if state.earlier:
        text += "\nFrom a run with earlier settings, to be replaced by the next run: "
        text += f"{', '.join(state.earlier)}.\n"
    if state.stale:
        text += f"\n{_counted(len(state.stale))} made by earlier code. To run again: "
        text += f"`{command} --stale`.\n\n{_commits(state.stale)}"
    if lost:
        text += f"\nMade by the present code:\n\n{_commits(lost)}"
    if state.former:
        text += "\nNo longer offered, so not run again (the rows are kept): "
        text += f"{', '.join(state.former)}.\n"
    return text


def _counted(parts: int) -> str:
    return "1 part was" if parts == 1 else f"{parts} parts were"


def _command(name: str, kind: str) -> str:
    flag = f" --{kind}" if kind in ("short", "smoke") else ""
    return f"python -m experiments {name}{flag}"


def _share_of(
    report: Report, number: int, of: int, title: str
) -> Callable[[float, str], None]:
    """Progress within one part, told as progress of the whole; it never goes back."""
    furthest = 0.0

    def show(share: float, text: str) -> None:
        nonlocal furthest
        furthest = max(furthest, min(share, 1.0))
        percent = int(PERCENT * (number + furthest) / of)
        report(percent, f"{title} ({text})" if text else title)

    return show


def _run(part: Part, work: Work) -> tuple[Row, list[Row]]:
    """How and from what the rows of a part were made, and the rows."""
    began = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainingWarning)
        # A fit answers Ctrl-C with what it has; here that must not count as a result.
        warnings.filterwarnings("error", "Training was interrupted", TrainingWarning)
        try:
            rows = part(work)
        except TrainingWarning:
            raise KeyboardInterrupt from None
    texts = Counter()
    for warning in caught:
        if issubclass(warning.category, TrainingWarning):
            texts[str(warning.message)] += 1
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    about = {
        "seconds": plain(time.monotonic() - began),
        **provenance(),
        "warnings": [f"{text} ({count} times)" for text, count in texts.items()],
    }
    return about, plain(rows)


def _write_views(
    name: str, folder: Path, kind: str, state: Standing, skipped: dict[str, str]
) -> str:
    """Figures and table, made from rows.json alone."""
    experiment = known(name)
    rows = read_rows(folder / "rows.json")
    text = f"# {name}\n\n{(experiment.__doc__ or '').strip()}\n\n"
    if rows:
        for title, figure in experiment.render(rows).items():
            figure.savefig(folder / f"{title}.png", dpi=DPI)
        text += experiment.table(rows).strip() + "\n"
    text += _notes(_command(name, kind), state, skipped)
    write_text(folder / "table.md", text)
    return text


def _manifest(
    name: str,
    config: Any,
    hashes: dict[str, str | None],
    kind: str,
    parts: dict[str, Row],
    skipped: dict[str, str],
) -> Row:
    """All that is needed to make the same rows again.

    Versions and machines are lists: parts may have been run with several.
    """
    settings = dataclasses.asdict(config)
    about = ("seconds", "commit", "sources_changed", "code")

    def values(key: str) -> list[Any]:
        return sorted({made[key] for made in parts.values() if key in made})

    def versions(package: str) -> list[str]:
        made_with = (made.get("versions", {}) for made in parts.values())
        return sorted({found[package] for found in made_with if package in found})

    return {
        "command": _command(name, kind),
        "kind": kind,
        "settings": settings,
        "seeds": {key: settings[key] for key in settings if "seed" in key},
        **{key: values(key) for key in ("python", "processor", "cores")},
        "versions": {package: versions(package) for package in PACKAGES},
        "data_sha256": hashes,
        "seconds": plain(sum(made["seconds"] for made in parts.values())),
        "parts": {
            part: {key: made.get(key) for key in about} for part, made in parts.items()
        },
        "skipped": skipped,
    }


def _sha256(path: Path) -> str | None:
    """Of a file; None where it is absent."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_name(part: str) -> str:
    return re.sub(r"[^\w.-]+", "-", part)
