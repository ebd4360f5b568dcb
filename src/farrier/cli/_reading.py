"""Rows to fit and held-out rows, from a table in memory or in Parquet files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tables import Columns
    from ..tables.files import Frame
    from ..tables.model import TableModel

TEST_ROWS = 2**17  # held-out rows that are scored at once


@dataclass(frozen=True)
class Choices:
    """The options of `farrier fit` about the table."""

    target: str
    drop: list[str]
    task: str | None
    missing: str
    holdout: float
    seed: int


@dataclass(frozen=True)
class Rows:
    """A table to fit, in memory or in files.

    Parameters
    ----------
    why
        The reason for the choice of the task.
    rows, test_rows
        Number of training rows, and of held-out rows.
    described
        One entry for each column of the training rows.
    train
        The arguments of `fit` of an estimator.
    test
        Gives the held-out rows in pieces.
    """

    columns: "Columns"
    why: str
    rows: int
    test_rows: int
    described: list[dict[str, Any]]
    train: tuple[Any, ...]
    test: Callable[[], Iterable["Frame"]]

    @property
    def about(self) -> dict[str, Any]:
        """The description of the training table for the model."""
        return {"rows": self.rows, "why": self.why, "columns": self.described}

    def lines(self) -> list[str]:
        """What is shown before a fit."""
        kinds = [column["kind"] for column in self.described]
        plurals = {
            "number": "numbers",
            "category": "categories",
            "boolean": "booleans",
            "date": "dates",
        }
        counted = [(kinds.count(kind), kind) for kind in plurals if kind in kinds]
        counts = [f"{n} {kind if n == 1 else plurals[kind]}" for n, kind in counted]
        held_out = f", {self.test_rows} held out" * bool(self.test_rows)
        lines = [
            f"Task: {self.columns.task}. {self.why}",
            f"Rows: {self.rows} to train on{held_out}",
            f"Columns: {', '.join(counts)}; {len(self.columns.feature_names)} features",
        ]
        missing = [
            f"{c['name']} ({c['missing']})" for c in self.described if c["missing"]
        ]
        constant = [c["name"] for c in self.described if c["distinct"] < 2]
        if missing:
            lines.append(f"Imputed missing values: {', '.join(missing)}")
        if constant:
            lines.append(
                f"Constant columns, which have no effect: {', '.join(constant)}"
            )
        return lines


def in_memory(data: Path, choices: Choices) -> Rows:
    """A table that is loaded whole."""
    from ..tables import find_task, learn, read_table
    from ..tables.table import column_of

    frame = _without(read_table(data), choices)
    target, task = choices.target, choices.task
    why = "--task is given."
    if task is None:
        task, why = find_task(column_of(frame, target))
    train, test = _split(frame, task, choices)
    learned = learn(
        [train], target, missing=choices.missing, task=task, sample_rows=None
    )
    columns = learned.columns
    return Rows(
        columns=columns,
        why=why,
        rows=len(train),
        test_rows=len(test),
        described=learned.described,
        train=(columns.features(train), columns.targets(train)),
        test=lambda: [test],
    )


def streamed(data: Path, choices: Choices) -> Rows:
    """Parquet files that are read in pieces."""
    from ..scale.rows import Lottery, ParquetRows

    share = choices.holdout
    _check_share(share)
    _without(ParquetRows(data).frame(0, 1), choices)
    lottery = Lottery(share, choices.seed, drawn=False) if share else None
    train = ParquetRows(
        data,
        choices.target,
        missing=choices.missing,
        task=choices.task,
        drop=choices.drop,
        lottery=lottery,
    )
    test = train.others() if lottery else None

    def frames() -> Iterator["Frame"]:
        assert test is not None
        for first in range(0, test.rows, TEST_ROWS):
            yield test.frame(first, min(first + TEST_ROWS, test.rows))

    return Rows(
        columns=train.columns,
        why="--task is given." if choices.task else train.learned.why,
        rows=train.rows,
        test_rows=test.rows if test else 0,
        described=train.learned.described,
        train=(train,),
        test=frames,
    )


def scores(model: "TableModel", frames: Iterable["Frame"]) -> dict[str, float]:
    """Scores of held-out rows that come in pieces."""
    parts = [(len(frame), model.scores(frame)) for frame in frames if len(frame)]
    if len(parts) == 1:
        return parts[0][1]
    total = sum(rows for rows, _ in parts)
    power = {"rmse": 2}

    def mean(name: str) -> float:
        p = power.get(name, 1)
        sums = sum(rows * of_part[name] ** p for rows, of_part in parts)
        return (sums / total) ** (1 / p)

    return {name: mean(name) for name in parts[0][1]}


def _check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(
            f"--holdout must be a share from 0 to less than 1, got {share}."
        )


def _without(frame: "Frame", choices: Choices) -> "Frame":
    """The table without the columns to drop, which must be there."""
    from ..tables.table import column_of

    for name in choices.drop:
        column_of(frame, name)
    if choices.target in choices.drop:
        raise ValueError(f"--drop names the target, {choices.target!r}.")
    return frame.drop(columns=choices.drop)


def _split(frame: "Frame", task: str, choices: Choices) -> tuple["Frame", "Frame"]:
    """Training rows and held-out rows; each label has a row among the former."""
    import numpy as np

    share = choices.holdout
    _check_share(share)
    order = np.random.default_rng(choices.seed).permutation(len(frame))
    free = order
    if task == "classification":
        free = order[frame[choices.target].iloc[order].duplicated().to_numpy()]
    count = round(share * len(frame))
    if count > len(free) or len(frame) - count < 2:
        raise ValueError(
            f"--holdout {share} of {len(frame)} rows leaves too few to train on."
        )
    test = np.zeros(len(frame), bool)
    test[free[:count]] = True
    return frame[~test], frame[test]
