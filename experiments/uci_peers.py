"""Other libraries on the regression tables, on the same splits as our own recipes.

NGBoost (boosted trees, a normal for each row) and bde (an ensemble of networks, sampled
from where Adam left them), each in the environment that `python -m benchmarks --peers`
builds for it. Scores are those of our recipes (`uci-default`, `uci-refined`), and so
are the columns of the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import (
    ENVIRONMENTS,
    FIT_KEYS,
    SCRIPTS,
    PeerError,
    answers_of,
    door,
    write_splits,
)

from . import datasets
from ._cells import Cell
from ._harness import (
    Claim,
    Row,
    Work,
    markdown,
    mean_and_error,
    settings_without,
    verdict,
    where,
)
from ._recipes import (
    COLUMNS,
    blocks,
    coverage_claim,
    printed,
    printed_text,
    scores_figure,
)
from .plots import Figure
from .uci import (
    LARGE,
    SCORES,
    counted,
    differences,
    files_of,
    grouped,
    lower,
    mean,
    paired_cell,
    with_error,
)

HOURS = "about 5 hours, two thirds of them for bde"
PEERS = {  # name of its folder or script: label, colour
    "ngboost": ("NGBoost", "#b8860b"),
    "bde": ("bde", "#5b8c3a"),
    "straight_line": ("least squares", "#555555"),
}
TREES, NETWORKS = "ngboost", "bde"
ALL_SCORES = SCORES | {"crps": "CRPS"}
SWAMPED = 1.0  # nats between mean and median over splits: few of them decide
KEPT = ("split", *sorted(FIT_KEYS - {"versions"}))  # of an answer
NOTES = """\
RMSE and CRPS in the target's units, log density in nats, means over test rows and then
over splits; SE as if splits were independent. Printed numbers as in the tables of our
recipes. Seconds: fitting and predicting one split, compilation included, with whatever
else the machine did at the time.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    seconds, large_seconds
        Time that one part, up to five splits, may take; of the large tables.
    """

    peers: tuple[str, ...] = (TREES, NETWORKS)
    sets: tuple[str, ...] = tuple(datasets.UCI)
    most_splits: int = 20
    seconds: int = 3_600
    large_seconds: int = 7_200


FULL = Config()
SMOKE = Config(peers=("straight_line",), sets=("yacht", "boston"), most_splits=2)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """A few splits of one set by one peer each: `bde/yacht/0-4`."""
    return {
        f"{peer}/{title}": partial(fit, config, data, peer, name, numbers)
        for peer in config.peers
        for name in config.sets
        for title, numbers in blocks(name, config.most_splits).items()
    }


def settings_of(config: Config, part: str) -> dict[str, Any]:
    """Those of one part, what the peer is asked for among them: its files."""
    peer, name, _ = part.split("/")
    files = [SCRIPTS / f"{peer}.py", *sorted((SCRIPTS / peer).glob("*.*"))]
    asked = {file.name: file.read_text() for file in files if file.is_file()}
    plan = ("peers", "sets", "most_splits", "seconds", "large_seconds")
    return settings_without(config, *plan) | {
        "asked": asked,
        "seconds": seconds_of(config, name),
    }


def seconds_of(config: Config, name: str) -> int:
    """Time that a part of a set may take."""
    return config.large_seconds if name in LARGE else config.seconds


def data_files(config: Config) -> tuple[str, ...]:
    """The tables and their splits."""
    return files_of(config.sets)


def fit(
    config: Config, data: Path, peer: str, name: str, numbers: range, work: Work
) -> list[Row]:
    """Some splits of one set: a row for each, or one that says what went wrong."""
    x, y, splits = datasets.uci(name, data)
    file = work.folder / "rows.npz"
    write_splits(file, x, y, {number: splits[number] for number in numbers})
    work.note("environment")
    try:
        python, script = door(SCRIPTS, peer, ENVIRONMENTS.resolve())
    except PeerError as error:  # no result: it will be tried again
        raise FileNotFoundError(
            f"{peer} could not be installed: {brief(error)}"
        ) from error
    work.note(f"{len(numbers)} splits")
    limit = seconds_of(config, name)
    answers, error = answers_of(python, script, [str(file)], limit, FIT_KEYS)
    about = {"peer": peer, "set": name}
    rows = [about | {key: answer[key] for key in KEPT} for answer in answers]
    for row, answer in zip(rows, answers, strict=True):
        row["version"] = next(iter(answer["versions"].values()))
    missing = len(numbers) - len(rows)
    if error or missing:
        why = brief(error) if error else "it ended before its last split."
        rows.append(about | {"missing": missing, "error": why})
    return rows


def brief(error: PeerError) -> str:
    """What went wrong, without the lines and paths of a traceback."""
    first, _, rest = str(error).partition(": ")
    last = rest.strip().rpartition("\n")[2]
    paths = "/" in last or "\\" in last
    return first if not last or paths else f"{first}: {last}"


# -- what is made of the rows ------------------------------------------------------


def scored(rows: list[Row]) -> list[Row]:
    """Rows of splits that have scores."""
    return [row for row in rows if "error" not in row]


def peers_in(rows: list[Row]) -> list[str]:
    """Which peers have scores, in their order."""
    return list(dict.fromkeys(row["peer"] for row in scored(rows)))


def table(rows: list[Row]) -> str:
    """Peers beside each other, set by set, with the columns of our recipes."""
    columns = ["set", "peer", "splits"]
    for score in SCORES.values():
        columns += [f"{score} ± SE", *(f"{column} ± SE" for column in COLUMNS)]
    columns += ["CRPS ± SE", "90 % intervals hold", "s"]
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for peer in peers_in(rows):
            found = where(scored(rows), set=name, peer=peer)
            if not found:
                continue
            line: list[Any] = [name, PEERS[peer][0], len(found)]
            for score in SCORES:
                line += [score_text(found, score)]
                line += [printed_text(printed(name)[c], score) for c in COLUMNS]
            line += [score_text(found, "crps"), f"{mean(found, 'coverage'):.1%}"]
            lines.append([*line, f"{mean(found, 'seconds'):.3g}"])
    text = NOTES + "\n" + markdown(columns, lines)
    for peer in peers_in(rows):
        first = where(scored(rows), peer=peer)[0]
        text += f"\n{PEERS[peer][0]} {first['version']}: {first['note']}.\n"
    text += swamped(rows)
    failed = [row for row in rows if "error" in row]
    if failed:
        text += "\nSplits without a result:\n\n"
    for row in failed:
        label, told = PEERS[row["peer"]][0], row["error"]
        text += f"- {label}, {row['part'].partition('/')[2]}: "
        text += f"{row['missing']} of the splits. {told}\n"
    return text


def score_text(rows: list[Row], score: str) -> str:
    """A mean with its standard error."""
    value, two_errors = mean_and_error(row[score] for row in rows)
    return with_error(value, two_errors / 2)


def swamped(rows: list[Row]) -> str:
    """Where the mean log density is that of a few splits: median and worst."""
    lines = ""
    for name in dict.fromkeys(row["set"] for row in rows):
        for peer in peers_in(rows):
            found = where(scored(rows), set=name, peer=peer)
            values = np.array([row["log_density"] for row in found])
            if found and abs(values.mean() - np.median(values)) > SWAMPED:
                lines += f"- {PEERS[peer][0]} on {name}: the median is "
                lines += f"{np.median(values):.3g}, the worst {values.min():.3g}.\n"
    if lines:
        lines = "\nLog densities whose mean is that of a few splits:\n\n" + lines
    return lines


def claims(rows: list[Row]) -> list[Claim]:
    """What there is to say of each peer, and of one against the other."""
    found = []
    for peer in peers_in(rows):
        of_peer = where(scored(rows), peer=peer)
        found.append(coverage_claim(PEERS[peer][0], of_peer))
    if {TREES, NETWORKS} <= {*peers_in(rows)}:
        found.append(against_claim(scored(rows)))
    return found


def against(ours: list[Row], theirs: list[Row]) -> list[Cell]:
    """Ours beside theirs on each set by each score, over the splits that both have."""
    return [
        paired_cell(f"{name}, {label}", score, of_set, others)
        for name in dict.fromkeys(row["set"] for row in ours)
        for of_set, others in [(where(ours, set=name), where(theirs, set=name))]
        for score, label in ALL_SCORES.items()
        if len(differences(of_set, others, score)) > 0
    ]


def against_claim(rows: list[Row]) -> Claim:
    """Holds when the networks are better in every cell, partly when in most."""
    networks, trees = (where(rows, peer=peer) for peer in (NETWORKS, TREES))
    found = against(networks, trees)
    better = sum(each.verdict == "better" for each in found)
    return Claim(
        "bde, a sampled ensemble of networks, predicts better than NGBoost.",
        f"bde minus NGBoost over the same splits. {verdicts_text(found)}",
        verdict(holds=0 < better == len(found), partly=2 * better > len(found)),
    )


def verdicts_text(found: list[Cell]) -> str:
    """The three counts, and the cells that are not better."""
    return f"{counted(found)}{grouped(found, 'level')}{grouped(found, 'worse')}."


def beside(rows: list[Row], recipes: dict[str, list[Row]]) -> str:
    """For README: our recipes against each peer, over the splits that both have."""
    lines = [
        f"- {recipe}, against {PEERS[peer][0]}: "
        f"{lower(verdicts_text(against(ours, where(scored(rows), peer=peer))))}\n"
        for recipe, ours in recipes.items()
        for peer in peers_in(rows)
    ]
    return "".join(lines) + swamped(rows)


def gaps_table(rows: list[Row], ours: list[Row]) -> str:
    """For docs/how-to/compare-honestly.md: ours minus each peer, with errors."""
    peers = {peer: against(ours, where(scored(rows), peer=peer)) for peer in PEERS}
    columns = ["set"]
    for peer, found in peers.items():
        if found:
            name = PEERS[peer][0]
            columns += [f"{label}, minus {name}" for label in ALL_SCORES.values()]
    lines = []
    for name in dict.fromkeys(row["set"] for row in ours):
        line = [name]
        for found in peers.values():
            line += [
                f"{each.ours:+.2g} ± {each.our_error:.1g}, {each.verdict}"
                for each in found
                if each.name.startswith(f"{name},")
            ]
        lines.append(line)
    return markdown(columns, lines)


def render(rows: list[Row]) -> dict[str, Figure]:
    """Peers against both published columns, set by set."""
    series = {
        PEERS[peer][0]: (PEERS[peer][1], where(scored(rows), peer=peer))
        for peer in peers_in(rows)
    }
    return {"peers": scores_figure(series)} if series else {}
