"""Checkpoints: a training run between two chunks, in one file."""

from pathlib import Path

import numpy as np

from . import persist
from .infer.shrink import without
from .infer.train import History, Run, Status

KIND = "checkpoint"


def write_checkpoint(path: str | Path, run: Run, *, mark: str, seed: int) -> None:
    """Write a run; `mark` says which rows and settings it belongs to."""
    history = run.history
    header = {"mark": mark, "seed": seed, "history": history.summary()}
    arrays = persist.flatten((run.state, run.schedule), "run")
    arrays["history.step"] = history.step
    arrays |= {f"history.terms.{name}": v for name, v in history.terms.items()}
    persist.write(path, KIND, header, arrays)


def read_seed(path: str | Path, *, mark: str) -> int | None:
    """The seed of the run in the file, or None where there is no file yet."""
    if not Path(path).exists():
        return None
    header, _ = persist.read(path, KIND)
    if header["mark"] != mark:
        raise ValueError(
            f"The checkpoint {str(path)!r} belongs to other rows or other settings. "
            "Give another file, or delete it to start anew."
        )
    return header["seed"]


def resume(path: str | Path, fresh: Run) -> Run:
    """The run in the file, or `fresh` where there is none yet."""
    if not Path(path).exists():
        return fresh
    header, arrays = persist.read(path, KIND)
    terms = {n: arrays[f"history.terms.{n}"] for n in fresh.history.terms}
    history = History.restored(arrays["history.step"], terms, header["history"])
    if history.status is Status.INTERRUPTED:
        history.status = Status.RUNNING
    skeleton = without(fresh.state, _kept(fresh, history))
    state, schedule = persist.fill((skeleton, fresh.schedule), "run", arrays)
    return Run(state, schedule, history)


def _kept(fresh: Run, history: History) -> tuple[np.ndarray, ...]:
    """For each hidden layer, which nodes have not left."""
    keep = []
    for number, layer in enumerate(fresh.state.network.layers, start=1):
        gone = [r.nodes for r in history.removed if r.layer == number]
        keep.append(~np.isin(layer.nodes, [node for nodes in gone for node in nodes]))
    return tuple(keep)
