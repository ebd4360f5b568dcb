"""A command as one of several processes: started, watched, and ended with a word."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed",
        help="Share the work with the other processes of a launcher: SLURM, Open MPI, "
        "Kubernetes; or with those that the next three options name.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option("--coordinator", help="HOST:PORT of the process of rank 0."),
]
Processes = Annotated[
    int | None, typer.Option("--processes", help="How many there are.")
]
Rank = Annotated[
    int | None, typer.Option("--rank", help="Which of them this is, from 0.")
]


def joined(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which works with others of its kind where it is asked to."""

    @wraps(command)
    def run(**options: Any) -> None:
        place = [options[name] for name in ("coordinator", "processes", "rank")]
        if not options["distributed"]:
            if any(value is not None for value in place):
                raise ValueError(
                    "--coordinator, --processes and --rank go with --distributed."
                )
            return command(**options)
        if options["processes"] != 1 and hasattr(os, "fork"):
            _watch()
        from ..scale.placement import distributed
        from ..scale.processes import together

        distributed(*place)
        with together():
            return command(**options)

    return run


def is_first(*, distributed: bool) -> bool:
    """Whether this process is the one that writes and prints."""
    if not distributed:
        return True
    from ..scale.processes import is_first

    return is_first()


def _watch() -> None:
    """Go on in a child; the parent waits for it, and has a word for how it ended.

    JAX ends a process at once where another one of the run is gone: no program can
    catch that from within.
    """
    alive, kept = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(kept)
        threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
        _own_output()
        return
    os.close(alive)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child has it too
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGTERM:
        raise typer.Exit(128 + signal.SIGTERM)
    if code < 0:
        raise ConnectionError(
            f"This process was ended by {signal.Signals(-code).name}: another one of "
            "the run has gone, or was not there in time. Start all of them again, with "
            "--resume to go on from the last checkpoint."
        )
    raise typer.Exit(code)


def _end_with(alive: int) -> None:
    """End when the parent does, however it does."""
    os.read(alive, 1)
    os._exit(1)


def _own_output() -> None:
    """Standard output is for the command: libraries greet each other on it."""
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(own, "w", buffering=1)
