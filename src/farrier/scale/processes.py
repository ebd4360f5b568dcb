"""Groups of processes: an error in one process stops all of them, with its message.

Each process runs the same program with the same settings. The processes synchronise in
`agree`: a process that fails reports its error there, and the others raise that error
instead of waiting for it. A process that is killed reports nothing: its connections
break, or its heartbeats stop.
"""

import abc
import atexit
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

HEARTBEAT = 30  # seconds without a heartbeat after which a process counts as lost
WAIT = 3_600  # seconds that processes wait at their end for the last one
NOTE = 1_024  # bytes of an error message that the other processes receive
# Words in what JAX raises when another process does not answer.
NETWORK_ERRORS = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED")
LOST = (
    "Another process of this run has ended unexpectedly, so all processes stop. Start "
    "all of them again; with a checkpoint (`--resume`) they continue from there."
)
# The exceptions that the other processes raise, by the first byte of a note less one.
_RAISED = (RuntimeError, ValueError, KeyboardInterrupt)


class LostProcess(ConnectionError):
    """Another process does not answer any more."""


class AbstractGroup(abc.ABC):
    """The processes that run the same work together; this process is one of them."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of processes."""

    @property
    @abc.abstractmethod
    def rank(self) -> int:
        """Number of this process, from 0."""

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    @abc.abstractmethod
    def agree(self, problem: BaseException | None = None) -> None:
        """Raise here the error of any process; all processes must call this."""

    @abc.abstractmethod
    def together(self) -> AbstractContextManager[None]:
        """A block that fails in all processes if it fails in one."""

    @abc.abstractmethod
    def communicating(self) -> AbstractContextManager[None]:
        """A block that needs the other processes; raises `LostProcess` without them."""

    @abc.abstractmethod
    def separately(self) -> AbstractContextManager[None]:
        """A block of work that each process does by itself, without synchronising."""

    @abc.abstractmethod
    def from_first(self, values: np.ndarray) -> np.ndarray:
        """The values that the first process has; their shape is the same in all."""

    @abc.abstractmethod
    def bytes_of(self, sender: int, data: bytes) -> bytes:
        """The data of the process `sender`."""

    @contextmanager
    def file_of_first(self, path: str | Path | None) -> Iterator[str | Path | None]:
        """A path at which this process can read the first process's file, if any."""
        if path is None or self.count == 1:
            yield path
            return
        path = Path(path)
        exists = self.is_first and path.exists()
        data = self.bytes_of(0, b"+" + path.read_bytes() if exists else b"")
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder, path.name)
            if data:
                copy.write_bytes(data[1:])
            yield path if self.is_first else copy

    def check_same(self, what: str, digest: str) -> None:
        """Refuse to continue if processes have different rows or settings."""
        mine = np.frombuffer(digest.encode(), np.uint8)
        with self.together():
            if not np.array_equal(self.from_first(mine), mine):
                raise ValueError(
                    f"This process has other {what} than the first process. Give the "
                    "same to all processes."
                )


class SingleProcess(AbstractGroup):
    """A group of one process."""

    @property
    def count(self) -> int:
        """One."""
        return 1

    @property
    def rank(self) -> int:
        """Zero."""
        return 0

    def agree(self, problem: BaseException | None = None) -> None:
        """Raise the problem, if there is one."""
        if problem is not None:
            raise problem

    def together(self) -> AbstractContextManager[None]:
        """An ordinary block."""
        return nullcontext()

    def communicating(self) -> AbstractContextManager[None]:
        """An ordinary block."""
        return nullcontext()

    def separately(self) -> AbstractContextManager[None]:
        """An ordinary block."""
        return nullcontext()

    def from_first(self, values: np.ndarray) -> np.ndarray:
        """The same values."""
        return values

    def bytes_of(self, sender: int, data: bytes) -> bytes:
        """The same data."""
        del sender
        return data


class ProcessGroup(AbstractGroup):
    """The processes that `jax.distributed` has connected.

    While it exists, the first `Ctrl-C` in any process stops all processes at the same
    step; the second one interrupts its process at once.
    """

    def __init__(self) -> None:
        self._interrupted = False
        self._lost = False
        atexit.register(self._end)
        _on_interrupt(self._interrupt)

    @classmethod
    def joined(
        cls, coordinator: str | None, processes: int | None, rank: int | None
    ) -> Self:
        """Connect this process; the launcher supplies what is None."""
        if jax.distributed.is_initialized():
            raise RuntimeError(
                "The processes of this run are connected already. Call "
                "`farrier.distributed` once, and use the placement that it returned."
            )
        schedule_as_batch()
        try:
            jax.distributed.initialize(
                coordinator,
                processes,
                rank,
                heartbeat_timeout_seconds=HEARTBEAT,
                shutdown_timeout_seconds=WAIT,
            )
        except ValueError as error:
            raise ValueError(
                f"The processes of this run were not found ({error}) Start them by a "
                "launcher that JAX supports (SLURM, Open MPI, Kubernetes), or give the "
                "coordinator, the number of processes and the rank of each process."
            ) from None
        return cls()

    @property
    def count(self) -> int:
        """Number of processes."""
        return jax.process_count()

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        return jax.process_index()

    def agree(self, problem: BaseException | None = None) -> None:
        """Raise here the error of any process; all processes must call this."""
        if self._interrupted and problem is None:
            self._interrupted = False
            problem = KeyboardInterrupt()
        problem = self._first_problem(problem)
        if problem is not None:
            problem.__dict__["agreed"] = True
            raise problem

    def _first_problem(self, problem: BaseException | None) -> BaseException | None:
        """The problem of this process, or else that of the first process with one."""
        for number, note in enumerate(self._gathered(_note(problem))):
            if note[0] and problem is None:
                text = bytes(note[1:]).rstrip(b"\0").decode(errors="ignore")
                problem = _RAISED[note[0] - 1](f"Process {number}: {text}")
        return problem

    @contextmanager
    def together(self) -> Iterator[None]:
        """A block that fails in all processes if it fails in one."""
        try:
            yield
        except LostProcess:
            raise
        except BaseException as error:
            if "agreed" in vars(error):
                raise
            self.agree(error)
        self.agree()

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """A block that needs the other processes; raises `LostProcess` without them."""
        try:
            yield
        except (ValueError, RuntimeError) as error:
            if not any(name in str(error) for name in NETWORK_ERRORS):
                raise
            self._lost = True
            raise LostProcess(LOST) from error

    @contextmanager
    def separately(self) -> Iterator[None]:
        """A block of work that each process does by itself; `Ctrl-C` stops it at once.

        No process waits in `agree` there, so nobody would look at the interrupt.
        """
        _on_interrupt(signal.default_int_handler)
        try:
            yield
        finally:
            _on_interrupt(self._interrupt)

    def from_first(self, values: np.ndarray) -> np.ndarray:
        """The values that the first process has; their shape is the same in all."""
        with self.communicating():
            return np.asarray(multihost_utils.broadcast_one_to_all(values))

    def bytes_of(self, sender: int, data: bytes) -> bytes:
        """The data of the process `sender`."""
        mine = self.rank == sender
        with self.communicating():
            send = multihost_utils.broadcast_one_to_all
            size = int(send(np.int32(len(data)), is_source=mine))
            buffer = np.zeros(size, np.uint8)
            if mine:
                buffer[:] = np.frombuffer(data, np.uint8)
            return np.asarray(send(buffer, is_source=mine)).tobytes()

    def _gathered(self, values: np.ndarray) -> np.ndarray:
        """Values of all processes."""
        sharded, replicate = self._gathering
        with self.communicating():
            parts = jax.make_array_from_process_local_data(sharded, values[None])
            return np.asarray(replicate(parts).addressable_data(0))

    @cached_property
    def _gathering(self) -> tuple[NamedSharding, Callable[[Array], Array]]:
        """Sharding of values before they are gathered, and the program that does it.

        `multihost_utils.process_allgather` compiles this program anew in each call, and
        the processes agree before each block of steps.
        """
        devices = np.asarray(jax.devices()).reshape(jax.process_count(), -1)
        mesh = Mesh(devices, ("processes", "devices"))
        replicated = NamedSharding(mesh, PartitionSpec())
        sharded = NamedSharding(mesh, PartitionSpec("processes"))
        return sharded, jax.jit(lambda values: values, out_shardings=replicated)

    def _interrupt(self, number: int, frame: Any) -> None:
        """Stop all processes at the same step; a second `Ctrl-C` stops this at once."""
        del number, frame
        self._interrupted = True
        _on_interrupt(signal.default_int_handler)

    def _end(self) -> None:
        """Do not wait for a lost process at the end of the program."""
        if self._lost:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def _on_interrupt(handler: Callable[[int, Any], Any]) -> None:
    """Handle `Ctrl-C` by this function; only the main thread may ask for that."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def schedule_as_batch() -> None:
    """Let no thread started from now on preempt another one of this process (Linux).

    When all threads of a process share a core, the thread that receives a sum polls in
    a loop and takes the core for milliseconds at a time from the thread that sends.
    Threads of a batch job wait until the core is free. A system may refuse this
    scheduling: sums are then slower, with the same results.
    """
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def _note(problem: BaseException | None) -> np.ndarray:
    """An error as a fixed number of bytes; the first is 0 if there is no error."""
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
