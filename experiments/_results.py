"""The folder `results`: its experiments, run or only rendered, and `README.md`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from . import _cells, datasets
from ._cells import Cell
from ._harness import VERDICTS, Claim, Refused, Report, render, reproduce
from ._harness import markdown as table_of
from ._marks import Standing, settings_named, stored_standing
from ._names import NAMES, known
from ._provenance import commit_text
from ._rows import read_rows, write_text

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
README = f"""# Results

Written by `make reproduce`; each folder has its rows, figures, a table and a
manifest. Counts and verdicts are made from the rows by a rule stated in each
experiment.

{BEGIN}
{END}
"""
PLURALS = ("hold", "hold partly", "do not hold", "wait for results")  # of `VERDICTS`


def reproduce_into(
    results: Path,
    name: str,
    kind: str,
    data: Path | None,
    report: Report,
    *,
    only: Sequence[str] = (),
    stale: bool = False,
) -> str:
    """`reproduce` into `results/NAME`, at settings of that kind; then `README.md`.

    Without a folder of data there is that of `datasets.provide`.
    """
    config = settings_named(known(name), kind)
    if data is None:
        files = known(name).data_files(config)
        data = datasets.provide(files) if files else Path()
    folder = results / name
    table = reproduce(name, folder, config, data, report, only=only, stale=stale)
    write_claims(results)
    return table


def render_into(results: Path, names: Iterable[str]) -> list[str]:
    """Write all that is made from rows again, and run nothing. Returns the rendered.

    That is figures and tables of some experiments, and `README.md`.
    """
    present = [name for name in names if (results / name / "rows.json").is_file()]
    if not present:
        raise Refused(f"{str(results)!r} has no rows of {', '.join(names)}.")
    for name in present:
        render(name, results / name)
    write_claims(results)
    return present


def status(results: Path) -> str:
    """Parts of each experiment: finished, stale, waiting; and seconds of a rerun."""
    lines = [["", "finished", "stale", "waiting", "never run", "seconds to run again"]]
    total = 0.0
    for name in NAMES:
        state = stored_standing(name, results / name)
        total += state.seconds()
        counts = (state.finished, state.stale, state.waiting, state.missing)
        sizes = [str(len(parts)) for parts in counts]
        lines.append([name, *sizes, f"{state.seconds():,.0f}"])
    lines.append(["all", "", "", "", "", f"{total:,.0f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [
        "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip()
        for first, *rest in lines
    ]
    return "\n".join(rows)


def write_claims(results: Path) -> None:
    """Renew counts and verdicts in `results/README.md` from all rows that are there."""
    claims: dict[str, list[Claim]] = {}
    cells: dict[str, list[Cell]] = {}
    states: dict[str, Standing] = {}
    for name in NAMES:
        path = results / name / "rows.json"
        if not path.is_file() or not (rows := read_rows(path)):
            continue
        experiment = known(name)
        claims[name] = experiment.claims(rows)
        if hasattr(experiment, "cells"):
            cells[name] = experiment.cells(rows)
        states[name] = stored_standing(name, path.parent)
    blocks = [
        "",
        *_counts(claims, cells, states),
        *_cell_tables(cells),
        *_stale_parts(states),
        _claims_table(claims, states),
    ]
    _write_between(results / "README.md", "\n".join(blocks))


def _counts(
    claims: dict[str, list[Claim]],
    cells: dict[str, list[Cell]],
    states: dict[str, Standing],
) -> list[str]:
    """One line each for claims, cells and parts."""
    every = [claim for found in claims.values() for claim in found]
    verdicts = Counter(claim.verdict for claim in every)
    words = zip(VERDICTS, PLURALS, strict=True)
    told = ", ".join(f"{verdicts[verdict]} {word}" for verdict, word in words)
    lines = [f"- Claims: {told}."]
    if every_cell := [cell for found in cells.values() for cell in found]:
        verdicts = Counter(cell.verdict for cell in every_cell)
        told = ", ".join(f"{verdicts[v]} {v}" for v in _cells.VERDICTS)
        lines.append(f"- Our numbers beside published ones: {told}.")
    finished = sum(len(state.finished) for state in states.values())
    stale = sum(len(state.stale) for state in states.values())
    waiting = sum(len(state.waiting) for state in states.values())
    former = sum(len(state.former) for state in states.values())
    lines.append(
        f"- Parts of the results: {finished} finished, {stale} stale (made by earlier "
        f"code), {waiting} waiting; {former} no longer offered, whose rows are kept."
    )
    if absent := [name for name in NAMES if name not in states]:
        lines.append(f"- Without results: {', '.join(absent)}.")
    return [*lines, ""]


def _cell_tables(cells: dict[str, list[Cell]]) -> list[str]:
    """Counts of each experiment, and the cells in which we are worse."""
    if not cells:
        return []
    counts = [
        (_link(name), *(sum(c.verdict == v for c in found) for v in _cells.VERDICTS))
        for name, found in cells.items()
    ]
    worse = [
        (_link(name), cell.name, *_with_errors(cell))
        for name, found in cells.items()
        for cell in found
        if cell.verdict == "worse"
    ]
    blocks = [
        "A number is level with a published one within one standard error of the "
        "difference, or if both are printed alike.\n",
        table_of(["beside published numbers", *_cells.VERDICTS], counts),
    ]
    if worse:
        columns = ["worse in", "number", "ours ± SE", "published ± SE"]
        blocks.append(table_of(columns, worse))
    return blocks


def _with_errors(cell: Cell) -> tuple[str, str]:
    """Ours with one more digit than the published number, each with its error."""

    def text(value: float, error: float, decimals: int) -> str:
        shown = f"{value:.{decimals}f}"
        return shown if np.isnan(error) else f"{shown} ± {error:.{decimals}f}"

    digits = cell.decimals
    ours = text(cell.ours, cell.our_error, digits + 1)
    return ours, text(cell.theirs, cell.their_error, digits)


def _stale_parts(states: dict[str, Standing]) -> list[str]:
    """For each experiment with stale parts, the commits that these were made at."""
    lines = []
    for name, state in states.items():
        if state.stale:
            commits = Counter(commit_text(m["commit"]) for m in state.stale.values())
            listed = "; ".join(f"{text} ({n})" for text, n in commits.items())
            lines.append(
                f"- {_link(name)}: {len(state.stale)} of {len(state.usable)} parts "
                f"made by earlier code, {listed}"
            )
    if not lines:
        return []
    return [
        "Made by earlier code; `python -m experiments NAME --stale` runs them again:\n",
        *lines,
        "",
    ]


def _claims_table(claims: dict[str, list[Claim]], states: dict[str, Standing]) -> str:
    """All claims; those are marked that rest on stale rows, or on none of today's."""
    lines = [
        "| experiment | claim | our evidence | verdict |",
        "| --- | --- | --- | --- |",
    ]
    for name, found in claims.items():
        state = states[name]
        mark = " (stale)" if state.stale else "" if state.usable else " (waiting)"
        lines += [
            f"| {_link(name)}{mark} | {c.text} | {c.evidence} | {c.verdict} |"
            for c in found
        ]
    return "\n".join([*lines, ""])


def _link(name: str) -> str:
    return f"[{name}]({name}/table.md)"


def _write_between(page: Path, claims: str) -> None:
    """Put text between the two marks of a page, in place of what is there."""
    text = page.read_text(encoding="utf-8") if page.is_file() else README
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(
            f"{page.name} must have a line {BEGIN!r} and a line {END!r}, between which "
            "counts and claims are written. Put them back, or remove the file."
        )
    write_text(page, before + begin + claims + end + after)
