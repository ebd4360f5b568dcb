"""Other libraries, each in an environment of its own, asked by a script.

A peer is a folder with `requirements.txt`, which pip installs with all that it asks
for, perhaps `requirements-nodeps.txt`, which pip installs alone, and `peer.py`, which
answers with lines of JSON. A script that stands alone, beside the folders, runs in our
own environment.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SCRIPTS = Path(__file__).parent / "peers"
ENVIRONMENTS = Path(".peers")  # kept from run to run
INSTALL_SECONDS = 1_800
ERROR_LINES = 5  # of what a process said last
FIT_KEYS = {"seconds", "rmse", "log_density", "crps", "coverage", "note", "versions"}


class PeerError(Exception):
    """A peer could not be installed, or gave no answer; says why.

    `printed` is what it had printed until then.
    """

    def __init__(self, text: str, printed: str = "") -> None:
        super().__init__(text)
        self.printed = printed


def door(scripts: Path, name: str, environments: Path) -> tuple[Path, Path]:
    """The Python and the script of a peer."""
    alone = scripts / f"{name}.py"
    if alone.is_file():
        return Path(sys.executable), alone
    peer = scripts / name
    return environment(peer, environments / name), peer / "peer.py"


def environment(peer: Path, home: Path) -> Path:
    """The Python of a peer's environment, built anew when its requirements change."""
    files = {
        file: options
        for name, options in (
            ("requirements.txt", []),
            ("requirements-nodeps.txt", ["--no-deps"]),
        )
        if (file := peer / name).is_file()
    }
    if not files:
        raise PeerError(f"There is no {peer.name} in benchmarks/peers of a checkout.")
    text = "".join(f"{file.name}\n{file.read_text()}" for file in files)
    asked = hashlib.sha256((platform.python_version() + text).encode()).hexdigest()
    installed, python = home / "installed.sha256", home / "bin" / "python"
    if installed.is_file() and installed.read_text() == asked:
        return python
    process([sys.executable, "-m", "venv", "--clear", str(home)], INSTALL_SECONDS)
    for file, options in files.items():
        pip = [str(python), "-m", "pip", "install", "--quiet", *options]
        process([*pip, "-r", str(file)], INSTALL_SECONDS)
    installed.write_text(asked)
    return python


def write_splits(
    file: Path,
    x: np.ndarray,
    y: np.ndarray,
    splits: Mapping[int, tuple[np.ndarray, np.ndarray]],
) -> None:
    """A table and some of its splits, by their numbers, as `score_fit` reads them."""
    named: dict[str, Any] = {
        f"{part}_{number}": rows
        for number, pair in splits.items()
        for part, rows in zip(("train", "test"), pair, strict=True)
    }
    np.savez(file, x=x, y=y, **named)


def answer_of(
    python: Path, script: Path, arguments: list[str], seconds: float, keys: set[str]
) -> dict[str, Any]:
    """The record that a script printed as its last line; it must hold `keys`."""
    printed = printed_by(python, script, arguments, seconds)
    return _record(printed.strip().rpartition("\n")[2], keys)


def answers_of(
    python: Path, script: Path, arguments: list[str], seconds: float, keys: set[str]
) -> tuple[list[dict[str, Any]], PeerError | None]:
    """The records that a script printed, and what went wrong after them."""
    try:
        printed, error = printed_by(python, script, arguments, seconds), None
    except PeerError as found:
        printed, error = found.printed, found
    records = []
    for line in printed.splitlines():
        if line.startswith("{"):
            try:
                records.append(_record(line, keys))
            except PeerError as found:
                error = error or found
    return records, error


def printed_by(python: Path, script: Path, arguments: list[str], seconds: float) -> str:
    """What a script printed.

    It finds the modules that peers share beside the folder of each peer.
    """
    shared = script.parent if script.name != "peer.py" else script.parents[1]
    command = [str(python), str(script), *arguments]
    return process(command, seconds, PYTHONPATH=str(shared))


def _record(line: str, keys: set[str]) -> dict[str, Any]:
    """A line of an answer; it must hold `keys`."""
    try:
        answer = json.loads(line)
    except json.JSONDecodeError as error:
        raise PeerError(f"Its last line is not JSON: {line[:200]!r}.") from error
    if not isinstance(answer, dict):
        raise PeerError(f"Its last line is no JSON object: {line[:200]!r}.")
    if "error" in answer:
        raise PeerError(str(answer["error"]))
    if absent := keys - answer.keys():
        raise PeerError(f"Its answer lacks {sorted(absent)}: {line[:200]!r}.")
    return answer


def process(command: list[str], seconds: float, **variables: str) -> str:
    """What a command printed, given `seconds` and more environment variables."""
    name = " ".join(Path(word).name for word in command[:4])
    try:
        done = subprocess.run(
            command,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or ""  # bytes, whatever `text` says
        printed = printed if isinstance(printed, str) else printed.decode()
        text = f"`{name}` took more than {seconds:g} s."
        raise PeerError(text, printed) from error
    except OSError as error:
        raise PeerError(f"`{name}` did not start: {error}") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()[-ERROR_LINES:]
        raise PeerError(
            f"`{name}` ended with status {done.returncode}: " + "\n".join(lines),
            done.stdout,
        )
    return done.stdout
