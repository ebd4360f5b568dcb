"""Commands that run in several processes: options, start and supervision."""

import inspect
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
        help="Divide the work between the processes of a launcher (SLURM, Open MPI, "
        "Kubernetes), or between those that the next three options describe.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option("--coordinator", help="HOST:PORT of the process of rank 0."),
]
Processes = Annotated[
    int | None, typer.Option("--processes", help="Number of processes.")
]
Rank = Annotated[
    int | None, typer.Option("--rank", help="Number of this process, from 0.")
]


def joined(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its parameter `placement` made from its options.

    Without --distributed, `placement` is None.
    """

    @wraps(command)
    def run(**options: Any) -> None:
        address = [options[name] for name in ("coordinator", "processes", "rank")]
        if not options["distributed"]:
            if any(value is not None for value in address):
                raise ValueError(
                    "--coordinator, --processes and --rank go with --distributed."
                )
            return command(**options, placement=None)
        if options["processes"] != 1 and hasattr(os, "fork"):
            _watch()
        from ..scale.placement import distributed

        placement = distributed(*address)
        with placement.group.together():
            return command(**options, placement=placement)

    signature = inspect.signature(command)
    shown = [p for p in signature.parameters.values() if p.name != "placement"]
    run.__dict__["__signature__"] = signature.replace(parameters=shown)
    return run


def _watch() -> None:
    """Continue in a child process; the parent waits for it and reports how it ended.

    JAX ends a process at once when another process of the run is gone, and a program
    cannot catch that itself.
    """
    alive, kept = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(kept)
        threading.Thread(target=_end_with, args=(alive,), daemon=True).start()
        _own_output()
        return
    os.close(alive)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child receives it too
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGTERM:
        raise typer.Exit(128 + signal.SIGTERM)
    if code < 0:
        raise ConnectionError(
            f"This process was ended by {signal.Signals(-code).name}: another process "
            "of the run has ended, or did not start in time. Start all of them again, "
            "with --resume to continue from the last checkpoint."
        )
    raise typer.Exit(code)


def _end_with(alive: int) -> None:
    """End this process when the parent ends, for whatever reason."""
    os.read(alive, 1)
    os._exit(1)


def _own_output() -> None:
    """Keep what libraries print out of the standard output of the command."""
    own = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    sys.stdout = os.fdopen(own, "w", buffering=1)
