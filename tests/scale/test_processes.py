"""Several devices and processes: the same run, and an error in one stops all."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from farrier.scale.placement import ONE_DEVICE, Meshed

RUNS = Path(__file__).with_name("mesh_runs.py")
LIMIT = 600  # seconds, for any process
EIGHT = " --xla_force_host_platform_device_count=8"


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def start(*command: object, flags: str = "", cwd: Path | None = None):
    """A program of its own, on this farrier."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    variables = {"PYTHONPATH": path, "XLA_FLAGS": os.environ["XLA_FLAGS"] + flags}
    if cwd is not None:  # what one program has compiled, those after it do not
        variables["JAX_COMPILATION_CACHE_DIR"] = str(cwd / "compiled")
        variables["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | variables,
    )


def ended(*programs: subprocess.Popen) -> list[tuple[int, str, str]]:
    """Codes and texts of programs; all are killed where one takes too long."""
    try:
        texts = [program.communicate(timeout=LIMIT) for program in programs]
    finally:
        for program in programs:
            program.kill()
    return [(p.returncode, *text) for p, text in zip(programs, texts, strict=True)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """What all runs of `mesh_runs.py` end with."""
    folder, port = tmp_path_factory.mktemp("runs"), free_port()
    pair = [start(RUNS, "processes", folder, rank, port) for rank in (0, 1)]
    for code, _, text in ended(*pair, start(RUNS, "devices", folder, flags=EIGHT)):
        assert code == 0, text[-3_000:]
    return folder


def messages(runs: Path) -> list[dict]:
    """What each of the two processes reported."""
    names = [f"messages_{rank}.json" for rank in (0, 1)]
    return [json.loads((runs / name).read_text()) for name in names]


@pytest.mark.parametrize("name", ["eight", "process_0", "process_1"])
def test_a_run_is_the_same_on_any_devices(runs, name):
    one, other = np.load(runs / "one.npz"), np.load(runs / f"{name}.npz")
    assert len(one["elbo"]) == 200
    np.testing.assert_allclose(other["elbo"], one["elbo"], rtol=1e-4)
    np.testing.assert_array_equal(other["nodes"], one["nodes"])
    assert len(one["nodes"]) < 16, "No node was removed: nothing was decided."


def test_processes_have_the_same_bits(runs):
    first, second = (np.load(runs / f"process_{rank}.npz") for rank in (0, 1))
    for name in ("elbo", "kernel"):
        np.testing.assert_array_equal(first[name], second[name])


def test_a_step_adds_up_once(runs):
    """Between processes each sum waits for the network."""
    sums = re.findall(r"(\S+) all-reduce\(", (runs / "program.txt").read_text())
    assert len(sums) == 1
    assert re.fullmatch(r"f(32|64)\[\d+\]\{0\}", sums[0]), "It is not one vector."


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux alone has it.")
def test_threads_do_not_interrupt_each_other(runs):
    for each in messages(runs):
        assert os.SCHED_BATCH in each["policies"]


def test_an_error_in_one_process_stops_all(runs):
    first, second = (
        json.loads((runs / f"messages_{r}.json").read_text()) for r in (0, 1)
    )
    assert first["broken"] == "ValueError: Process 1: row group 7 is damaged"
    assert second["broken"] == "ValueError: row group 7 is damaged"
    assert "x.checkpoint' could not be written: No such file" in first["folder"]
    assert second["folder"].startswith("ValueError: Process 0: ")
    assert "x.checkpoint' could not be written: No such file" in second["folder"]
    assert first["rows"].startswith("ValueError: Process 1: This process has other")
    assert "RuntimeError: The processes of this run are connected" in first["twice"]
    assert first["twice"] == second["twice"]
    assert "Process 1: Input X contains NaN" in first["bad values"]


def test_many_fits_are_shared_and_all_get_all(runs):
    first, second = (
        json.loads((runs / f"messages_{r}.json").read_text()) for r in (0, 1)
    )
    assert first["many"] == second["many"]
    assert len({tuple(row) for row in first["many"]}) == 3


def test_an_interrupt_of_one_process_ends_all_with_the_same_model(runs):
    first, second = (
        json.loads((runs / f"messages_{r}.json").read_text()) for r in (0, 1)
    )
    assert first["interrupted"][0] == "interrupted"
    assert first["interrupted"] == second["interrupted"]


def test_one_device_reads_the_whole_batch():
    mesh = Meshed.over(jax.devices()[:1])
    assert mesh.local_rows(64) == ONE_DEVICE.local_rows(64) == slice(0, 64)
    with pytest.raises(ValueError, match=r"`nodes` must divide .* 1; got 2"):
        Meshed.over(jax.devices()[:1], nodes=2)


class Fits:
    """Two processes of `farrier fit` in a folder, started again and again."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps
        rng = np.random.default_rng(0)
        x = rng.normal(size=(400, 2))
        lines = [f"{a},{b},{np.sin(2 * a) + b}" for a, b in x]
        (folder / "t.csv").write_text("\n".join(["a,b,y", *lines]))

    def start(self, name: str, *options: str) -> list[subprocess.Popen]:
        port = free_port()
        fit = ["-m", "farrier", "fit", "t.csv", "--target", "y", "-o", name, *options]
        fit += ["--hidden", "6", "--max-iter", str(self.steps), "--distributed"]
        fit += ["--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--rank"]
        return [start(*fit, rank, cwd=self.folder) for rank in range(2)]

    def wait_for(self, name: str, pair: list[subprocess.Popen]) -> None:
        """Wait until a checkpoint is written anew, or a process has ended."""
        file = self.folder / f"{name}.checkpoint"
        before = file.stat().st_mtime_ns if file.exists() else 0
        limit = time.monotonic() + LIMIT
        while all(program.poll() is None for program in pair):
            if file.exists() and file.stat().st_mtime_ns != before:
                return
            assert time.monotonic() < limit
            time.sleep(0.01)

    def predictions(self, name: str) -> np.ndarray:
        from farrier import load

        x = np.random.default_rng(1).normal(size=(20, 2))
        double = False  # the precision of the processes that fitted it
        with jax.enable_x64(double):
            return load(self.folder / name).estimator.predict(x)


def killed_again_and_again(folder: Path, kills: int, steps: int) -> None:
    """A fit of two processes of which one is killed, so many times; and one never."""
    fits, random = Fits(folder, steps), np.random.default_rng(0)
    results = ended(*fits.start("whole.safetensors"))
    for number in range(kills):
        pair = fits.start("killed.safetensors", *(["--resume"] if number else []))
        fits.wait_for("killed.safetensors", pair)
        time.sleep(random.uniform(0, 0.2))
        victim = int(random.integers(2)) if number else 0
        pair[victim].send_signal(signal.SIGKILL)
        began = time.monotonic()
        both = ended(*pair)
        assert time.monotonic() - began < 60
        code, _, text = both[1 - victim]
        if both[victim][0] == 0:  # it had ended before
            break
        assert code > 0
        assert "Error: " in text
        assert "--resume" in text, text[-3_000:]
    results += ended(*fits.start("killed.safetensors", "--resume"))
    for code, _, text in results:
        assert code == 0, text[-3_000:]
    np.testing.assert_array_equal(
        fits.predictions("killed.safetensors"), fits.predictions("whole.safetensors")
    )


def test_a_fit_goes_on_after_a_process_is_killed(tmp_path):
    killed_again_and_again(tmp_path, kills=1, steps=120)


@pytest.mark.slow
def test_a_fit_goes_on_after_twenty_kills(tmp_path):
    killed_again_and_again(tmp_path, kills=20, steps=20_000)
