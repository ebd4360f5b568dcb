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

    SHORT               settings between the two, for those who cannot wait for FULL
    PLAN                fields of the settings that only say which parts there are
    settings_of(config, part)
                        what one part depends on; else all settings but those of PLAN

A part takes a `Work`, which has the rows of the parts that are finished, and returns
plain rows. `render`, `table` and `claims` see rows alone, each with the name of its
part and the warnings of it, and are also called when some parts are still to come.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import os
import platform
import re
import shutil
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from farrier import TrainingWarning

from . import datasets
from ._names import NAMES, module_name

Row = dict[str, Any]
Report = Callable[[int, str], None]
Part = Callable[["Work"], list[Row]]

KINDS = ("smoke", "short", "full", "other")  # none is replaced by one before it
PERCENT = 100  # in which `reproduce` reports its progress
DIGITS = 4  # significant digits of the numbers in rows.json
DPI = 150
VERDICTS = ("holds", "holds partly", "does not hold", "waits for results")
# Marks of rows whose settings had another spelling, and what they are now.
RENAMED = Path(__file__).with_name("renamed_settings.json")
PACKAGES = ("farrier", "jax", "jaxlib", "equinox", "optax", "numpy", "scikit-learn")
BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
README = f"""# Results

Written by `make reproduce`; each folder has its rows, figures, a table and a
manifest. The table below is made from the rows by a rule stated in each experiment.

{BEGIN}
{END}
"""


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


@dataclass(frozen=True)
class Work:
    """What a part is given: a folder for its checkpoints, and whom to tell."""

    folder: Path  # deleted when the part is finished
    report: Callable[[float, str], None]  # share of the part that is done, and a text
    rows: Sequence[Row] = ()  # of the parts that are finished

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


def known(name: str) -> ModuleType:
    """The experiment of this name."""
    if name not in NAMES:
        raise ValueError(
            f"There is no experiment {name!r}. There are {', '.join(NAMES)}, and `all`."
        )
    return import_module(f"{__package__}.{module_name(name)}")


def settings_named(experiment: ModuleType, kind: str) -> Any:
    """The settings "full", "short" or "smoke"; short is full where it is quick."""
    return getattr(experiment, kind.upper(), experiment.FULL)


def settings_without(config: Any, *fields: str) -> dict[str, Any]:
    """The settings as plain values, without some."""
    settings = dataclasses.asdict(config)
    return {key: value for key, value in settings.items() if key not in fields}


def reproduce_into(
    results: Path,
    name: str,
    kind: str,
    data: Path | None,
    report: Report,
    *,
    only: Sequence[str] = (),
) -> str:
    """`reproduce` into `results/NAME`, at settings of that kind; then the claims.

    Without a folder of data there is that of `datasets.provide`.
    """
    config = settings_named(known(name), kind)
    if data is None:
        files = known(name).data_files(config)
        data = datasets.provide(files) if files else Path()
    table = reproduce(name, results / name, config, data, report, only=only)
    write_claims(results)
    return table


def reproduce(
    name: str,
    folder: Path,
    config: Any,
    data: Path,
    report: Report,
    *,
    only: Sequence[str] = (),
) -> str:
    """Run what is not yet in `folder`, and write rows, figures, table and manifest.

    A part is finished when rows.json has it under its name and the same settings. No
    result is deleted: a part with earlier settings stays until it has been run again,
    one that the experiment no longer offers stays for good, and the table lists both.
    Rows of smaller settings (`KINDS`) are moved to a file of their own. Other processes
    may write to the same folder meanwhile: their parts are kept. Returns the table.

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
    """
    experiment = known(name)
    parts = experiment.parts(config, data)
    marks = {part: mark_of(experiment, config, part) for part in parts}
    kind = _kind(experiment, config)
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [p for p in parts if not only or any(text in p for text in only)]
    if not chosen:
        raise Refused(f"No part contains {[*only]}. The parts are {', '.join(parts)}.")
    path = folder / "rows.json"
    _set_aside(path, marks, kind)
    stored = _stored(path)
    finished = _current(stored, marks)
    waiting = [part for part in chosen if part not in finished]
    skipped: dict[str, str] = {}

    files = {file: data / file for file in experiment.data_files(config)}
    hashes = {file: _sha256(path) for file, path in files.items()}

    def write() -> str:
        stored.update(_stored(path))
        finished.update(_current(stored, marks) | finished)
        stored.update(finished)
        in_order = {part: stored[part] for part in parts if part in stored}
        in_order |= stored
        write_text(path, _rows_text(kind, in_order))
        manifest = _manifest(name, config, hashes, kind, in_order, skipped)
        write_text(folder / "manifest.json", json.dumps(manifest, indent=1) + "\n")
        notes = _notes(parts, in_order, finished, skipped)
        return _write_views(name, experiment, folder, notes)

    table = write() if not waiting else ""
    for number, part in enumerate(waiting):
        show = _share_of(report, number, len(waiting), part)
        show(0.0, "")
        private = folder / "unfinished" / f"{_file_name(part)}-{marks[part][:8]}"
        private.mkdir(parents=True, exist_ok=True)
        try:
            work = Work(private, show, rows_of(finished))
            finished[part] = _run(parts[part], work, marks[part])
        except FileNotFoundError as error:
            skipped[part] = str(error).replace(str(data), "the data folder")
        table = write()  # before its checkpoints go
        shutil.rmtree(private)
    with suppress(OSError):  # not empty where others are at work
        (folder / "unfinished").rmdir()
    report(PERCENT, "done")
    return table


def read_rows(path: Path) -> list[Row]:
    """The rows of a rows.json, each with the name and the warnings of its part."""
    return rows_of(json.loads(path.read_text(encoding="utf-8"))["parts"])


def rows_of(parts: dict[str, Row]) -> list[Row]:
    """The rows of some parts, each with the name and the warnings of its part."""
    return [
        {"part": name, "warnings": made["warnings"], **row}
        for name, made in parts.items()
        for row in made["rows"]
    ]


def write_claims(results: Path) -> None:
    """Renew the table of claims in `results/README.md` from all rows that are there."""
    lines = [
        "| experiment | claim | our evidence | verdict |",
        "| --- | --- | --- | --- |",
    ]
    for name in NAMES:
        path = results / name / "rows.json"
        if path.is_file() and (rows := read_rows(path)):
            lines += [
                f"| [{name}]({name}/table.md) | {c.text} | {c.evidence} | {c.verdict} |"
                for c in known(name).claims(rows)
            ]
    page = results / "README.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else README
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{page.name} must have a line {BEGIN!r} and a line {END!r}, between which "
            "the table of claims is written. Put them back, or remove the file."
        )
    claims = "\n".join(["", *lines, ""])
    write_text(page, before + begin + claims + end + after)


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


def plain(value: Any) -> Any:
    """The value as JSON can hold it: lists, four digits; None where not finite."""
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if value is None or isinstance(value, str):
        return value
    raise TypeError(
        "A row must hold numbers, texts, lists and dictionaries; this is a "
        f"{type(value).__name__}: {value!r}. Convert it in the part that returns it."
    )


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename: a file is old or new, never half."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


# -- the parts of `reproduce` -----------------------------------------------------


def mark_of(experiment: ModuleType, config: Any, part: str) -> str:
    """sha256 of the settings of a part."""
    if hasattr(experiment, "settings_of"):
        settings = experiment.settings_of(config, part)
    else:
        settings = settings_without(config, *getattr(experiment, "PLAN", ()))
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _kind(experiment: ModuleType, config: Any) -> str:
    named = ("full", "short", "smoke")
    same = (k for k in named if settings_named(experiment, k) == config)
    return next(same, "other")


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
        write_text(path, _rows_text(kind, _current(_stored(path), marks)))


def _stored(path: Path) -> dict[str, Row]:
    """All parts of a rows.json, with the marks that their settings have now."""
    if not path.is_file():
        return {}
    renamed = json.loads(RENAMED.read_text(encoding="utf-8"))
    parts = json.loads(path.read_text(encoding="utf-8"))["parts"]
    return {
        name: made | {"settings": renamed.get(made["settings"], made["settings"])}
        for name, made in parts.items()
    }


def _current(stored: dict[str, Row], marks: dict[str, str]) -> dict[str, Row]:
    """Parts that need not be run again."""
    return {
        name: made
        for name, made in stored.items()
        if made["settings"] == marks.get(name)
    }


def _notes(
    parts: Iterable[str],
    stored: dict[str, Row],
    finished: dict[str, Row],
    skipped: dict[str, str],
) -> str:
    """What the table says of parts that have no rows, or rows of another run."""
    parts = [*parts]
    earlier = [part for part in parts if part in stored and part not in finished]
    former = [part for part in stored if part not in parts]
    missing = [part for part in parts if part not in stored and part not in skipped]
    text = ""
    if skipped:
        text += "\nNot run:\n\n"
        text += "".join(f"- {part}: {why}\n" for part, why in skipped.items())
    if missing:
        text += f"\nStill to be run: {', '.join(missing)}.\n"
    if earlier:
        text += "\nFrom a run with earlier settings, to be replaced by the next run: "
        text += f"{', '.join(earlier)}.\n"
    if former:
        text += "\nNo longer offered, so not run again (the rows are kept): "
        text += f"{', '.join(former)}.\n"
    return text


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


def _run(part: Part, work: Work, mark: str) -> Row:
    """The rows of a part, with how and from what they were made."""
    began = time.monotonic()
    commit, changed = _sources()
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
    return {
        "settings": mark,
        "seconds": plain(time.monotonic() - began),
        "commit": commit,
        "sources_changed": changed,
        "warnings": [f"{text} ({count} times)" for text, count in texts.items()],
        "rows": plain(rows),
    }


def _rows_text(kind: str, parts: dict[str, Row]) -> str:
    """JSON with one row a line."""
    blocks = []
    for name, made in parts.items():
        about = {key: value for key, value in made.items() if key != "rows"}
        rows = ",\n".join(json.dumps(row) for row in made["rows"])
        head = f'{json.dumps(name)}: {json.dumps(about)[:-1]}, "rows": ['
        blocks.append(f"{head}\n{rows}\n]}}")
    inner = ",\n".join(blocks)
    return f'{{"kind": {json.dumps(kind)}, "parts": {{\n{inner}\n}}}}\n'


def _write_views(name: str, experiment: ModuleType, folder: Path, notes: str) -> str:
    """Figures and table, made from rows.json alone."""
    rows = read_rows(folder / "rows.json")
    text = f"# {name}\n\n{(experiment.__doc__ or '').strip()}\n\n"
    if rows:
        for title, figure in experiment.render(rows).items():
            figure.savefig(folder / f"{title}.png", dpi=DPI)
        text += experiment.table(rows).strip() + "\n"
    text += notes
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
    """All that is needed to make the same rows again."""
    settings = dataclasses.asdict(config)
    return {
        "command": f"python -m experiments {name}"
        + f" --{kind}" * (kind in ("short", "smoke")),
        "kind": kind,
        "settings": settings,
        "seeds": {key: settings[key] for key in settings if "seed" in key},
        "versions": {package: version(package) for package in PACKAGES},
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "data_sha256": hashes,
        "seconds": plain(sum(made["seconds"] for made in parts.values())),
        "parts": {
            part: {key: made[key] for key in ("seconds", "commit", "sources_changed")}
            for part, made in parts.items()
        },
        "skipped": skipped,
    }


def _sha256(path: Path) -> str | None:
    """Of a file; None where it is absent."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sources() -> tuple[str | None, bool | None]:
    """The commit of the sources, and whether they differ from it; None if unknown."""
    root = Path(__file__).parents[1]
    sources = [root / name for name in ("src", "experiments", "benchmarks")]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, check=True, text=True
        ).stdout

    try:
        changed = git("status", "--porcelain", "--", *map(str, sources))
        return git("rev-parse", "HEAD").strip(), bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None, None


def _file_name(part: str) -> str:
    return re.sub(r"[^\w.-]+", "-", part)
