"""Checkpoints: a training run between two chunks, in one file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from . import persist
from .train.history import History, Removal, Status
from .train.loop import Run
from .train.shrink import without

KIND = "checkpoint"


def numbered(path: str | Path, number: int) -> Path:
    """The checkpoint of one of several fits: `path`, `path.1`, `path.2`, ..."""
    path = Path(path)
    return path.with_name(f"{path.name}.{number}") if number else path


def write_checkpoint(path: str | Path, run: Run, *, mark: str, seed: int) -> None:
    """Write a run; `mark` identifies the rows and settings that it belongs to."""
    history = run.history
    header = {"mark": mark, "seed": seed, "history": history.summary()}
    arrays = persist.flatten((run.state, run.schedule), "run")
    arrays |= {f"history.terms.{name}": v for name, v in history.terms.items()}
    arrays["history.step"] = history.step
    persist.write(path, KIND, header, arrays)


def read_seed(path: str | Path, *, mark: str) -> int | None:
    """The seed of the run in the file, or None if there is no file yet."""
    if not Path(path).exists():
        return None
    header, _ = persist.read(path, KIND)
    with persist.describing(path, KIND):
        stored, seed = header["mark"], int(header["seed"])
    if stored != mark:
        raise ValueError(
            f"The checkpoint {str(path)!r} belongs to other rows or other settings. "
            "Give another file, or delete it to start again."
        )
    return seed


def resume(path: str | Path, fresh: Run) -> Run:
    """The run in the file, or `fresh` if there is no file yet."""
    if not Path(path).exists():
        return fresh
    header, arrays = persist.read(path, KIND)
    with persist.describing(path, KIND):
        history = read_history(fresh.history.terms, arrays, header["history"])
        if history.status is Status.INTERRUPTED:
            history.status = Status.RUNNING
        skeleton = without(fresh.state, _kept(fresh, history))
        state, schedule = persist.fill((skeleton, fresh.schedule), "run", arrays)
        return Run(state, schedule, history)


def _kept(fresh: Run, history: History) -> tuple[np.ndarray, ...]:
    """For each hidden layer, which nodes have not been removed."""
    keep = []
    for number, layer in enumerate(fresh.state.network.layers, start=1):
        gone = [node for r in history.removed if r.layer == number for node in r.nodes]
        keep.append(~np.isin(layer.nodes, gone))
    return tuple(keep)


def read_history(
    names: Iterable[str], arrays: dict[str, np.ndarray], summary: dict[str, Any]
) -> History:
    """The history in a file, from the records of the terms `names` and a summary."""
    removed = [
        Removal(r["step"], r["layer"], tuple(r["nodes"])) for r in summary["removed"]
    ]
    status = Status(summary["status"])
    terms = {name: arrays[f"history.terms.{name}"] for name in names}
    fields = summary | {"status": status, "removed": tuple(removed)}
    return History(arrays["history.step"], terms, **fields)
