"""More than one process: what one of them meets stops all, and all stop alike.

Each process runs the same program on the same settings, and they meet in `agree`. A
process that fails says so there; the others raise what it met in place of waiting for
it. One that is killed says nothing: its connections break, or its heartbeats stop.
"""

import atexit
import functools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

HEARTBEAT = 30  # seconds without a sign of life after which a process is given up
WAIT = 3_600  # seconds that processes wait for the last one at their end
NOTE = 1_024  # bytes of what a process says of its failure
# In what JAX raises where another process does not answer.
OF_A_NETWORK = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED")
LOST = (
    "Another process of this run has gone, so all of them stop. Start all of them "
    "again; with a checkpoint (`--resume`) they go on from there."
)
_KINDS = (RuntimeError, ValueError, KeyboardInterrupt)  # how the others raise it


class LostProcess(ConnectionError):
    """Another process does not answer any more."""


class _Here:
    """What has happened to this process."""

    joined = False
    alone = False
    interrupted = False
    lost = False


def start(coordinator: str | None, processes: int | None, number: int | None) -> None:
    """Meet the other processes; what is None is asked of the launcher."""
    be_patient()
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            number,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=WAIT,
        )
    except ValueError as error:
        raise ValueError(
            f"The processes of this run were not found ({error}) Start them by a "
            "launcher that JAX knows (SLURM, Open MPI, Kubernetes), or name a "
            "coordinator, the number of processes and the rank of each."
        ) from None
    _Here.joined = True
    atexit.register(_leave)
    signal.signal(signal.SIGINT, _interrupt)


def be_patient() -> None:
    """From here on, no new thread of this process interrupts another (Linux).

    Where all threads of a process share a core, the one that receives for a sum takes
    it for milliseconds at a time from the one that sends: it seems to ask in a loop
    whether it is its turn. Threads of a batch job wait until the core is free. A system
    may refuse to have them so: sums are then slower, and no different.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _interrupt(number: int, frame: Any) -> None:
    """All processes stop at the same step; a second `Ctrl-C` stops this one at once."""
    del number, frame
    _Here.interrupted = True
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave() -> None:
    """Where one process is lost, do not wait for it at the end of the program."""
    if _Here.lost:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def count() -> int:
    """Processes that work together."""
    return jax.process_count() if _Here.joined and not _Here.alone else 1


def rank() -> int:
    """The number of this one."""
    return jax.process_index() if _Here.joined and not _Here.alone else 0


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return rank() == 0


@contextmanager
def alone() -> Iterator[None]:
    """Work that this process does by itself."""
    _Here.alone = True
    try:
        yield
    finally:
        _Here.alone = False


def is_alone() -> bool:
    """Whether this process does work by itself just now."""
    return _Here.alone


def agree(problem: BaseException | None = None) -> None:
    """Raise here what any process has met; all processes must come here."""
    if _Here.interrupted and problem is None:
        _Here.interrupted = False
        problem = KeyboardInterrupt()
    if count() > 1:
        problem = _of_all(problem)
    if problem is not None:
        problem.__dict__["agreed"] = True
        raise problem


def _of_all(problem: BaseException | None) -> BaseException | None:
    """The problem of this process, or else that of the first one that has any."""
    for number, note in enumerate(_gathered(_note(problem))):
        if note[0] and problem is None:
            text = bytes(note[1:]).rstrip(b"\0").decode(errors="ignore")
            problem = _KINDS[note[0] - 1](f"Process {number}: {text}")
    return problem


@contextmanager
def together() -> Iterator[None]:
    """What fails in here on one process fails on all."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, LostProcess) or "agreed" in vars(error):
            raise
        agree(error)
    agree()


@contextmanager
def peers() -> Iterator[None]:
    """Work in which other processes have a part; raises `LostProcess` without them."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if count() == 1 or not any(n in str(error) for n in OF_A_NETWORK):
            raise
        _Here.lost = True
        raise LostProcess(LOST) from error


def from_first(values: np.ndarray) -> np.ndarray:
    """The values that the first process has, of the same shape on all."""
    if count() == 1:
        return values
    with peers():
        return np.asarray(multihost_utils.broadcast_one_to_all(values))


def bytes_of(sender: int, data: bytes) -> bytes:
    """What one of the processes has."""
    if count() == 1:
        return data
    mine = rank() == sender
    with peers():
        send = multihost_utils.broadcast_one_to_all
        size = int(send(np.int32(len(data)), is_source=mine))
        buffer = np.zeros(size, np.uint8)
        if mine:
            buffer[:] = np.frombuffer(data, np.uint8)
        return np.asarray(send(buffer, is_source=mine)).tobytes()


@contextmanager
def file_of_first(path: str | Path | None) -> Iterator[str | Path | None]:
    """A file as the first process has it: a path where it can be read, if it exists."""
    if path is None or count() == 1:
        yield path
        return
    path = Path(path)
    exists = is_first() and path.exists()
    data = bytes_of(0, b"+" + path.read_bytes() if exists else b"")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        if data:
            copy.write_bytes(data[1:])
        yield path if is_first() else copy


def check_same(what: str, digest: str) -> None:
    """Refuse to go on where processes have different rows or settings."""
    mine = np.frombuffer(digest.encode(), np.uint8)
    with together():
        if not np.array_equal(from_first(mine), mine):
            raise ValueError(
                f"This process has other {what} than the first. Give all the same."
            )


def _note(problem: BaseException | None) -> np.ndarray:
    """A failure as bytes of a fixed number; the first is 0 where there is none."""
    note = np.zeros(NOTE, np.uint8)
    if problem is not None:
        input_errors = (ValueError, OSError, ImportError)
        is_input = isinstance(problem, input_errors)
        stopped = isinstance(problem, KeyboardInterrupt)
        text = str(problem) if is_input else f"{type(problem).__name__}: {problem}"
        data = text.encode()[: NOTE - 1]
        note[0] = 3 if stopped else 2 if is_input else 1
        note[1 : 1 + len(data)] = np.frombuffer(data, np.uint8)
    return note


def _gathered(values: np.ndarray) -> np.ndarray:
    """Values of all processes."""
    cut, whole = _gathering()
    with peers():
        found = jax.make_array_from_process_local_data(cut, values[None])
        return np.asarray(whole(found).addressable_data(0))


@functools.cache
def _gathering() -> tuple[NamedSharding, Callable[[Array], Array]]:
    """How values lie before they are gathered, and the program that does it.

    That of `multihost_utils.process_allgather`, which builds it anew in each call: they
    agree before each block of steps.
    """
    devices = np.asarray(jax.devices()).reshape(jax.process_count(), -1)
    mesh = Mesh(devices, ("processes", "devices"))
    alike = NamedSharding(mesh, PartitionSpec())
    cut = NamedSharding(mesh, PartitionSpec("processes"))
    return cut, jax.jit(lambda values: values, out_shardings=alike)
