"""Checkpoints: a training run between two chunks, in one file."""

from dataclasses import replace
from pathlib import Path

from . import persist
from .infer.train import Run, Status

KIND = "checkpoint"


def write_checkpoint(path: str | Path, run: Run, *, mark: str, seed: int) -> None:
    """Write a run; `mark` says which rows and settings it belongs to."""
    history = run.history
    header = {
        "mark": mark,
        "seed": seed,
        "status": history.status,
        "skipped": history.skipped,
        "bad_step": history.bad_step,
        "bad_term": history.bad_term,
        "seconds": history.seconds,
    }
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
    state, schedule = persist.fill((fresh.state, fresh.schedule), "run", arrays)
    status = Status(header["status"])
    history = replace(
        fresh.history,
        step=arrays["history.step"],
        terms={n: arrays[f"history.terms.{n}"] for n in fresh.history.terms},
        status=Status.RUNNING if status is Status.INTERRUPTED else status,
        **{k: header[k] for k in ("skipped", "bad_step", "bad_term", "seconds")},
    )
    return Run(state, schedule, history)
