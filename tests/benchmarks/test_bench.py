"""The benchmark measures what it says; how fast the machine is, no test asks."""

import json
import socket
import subprocess
import sys
import time

import jax.random as jr
import numpy as np
import pytest

from benchmarks import bench
from farrier import ParquetRows
from farrier.train.data import Data


def test_interleaved_takes_turns_and_keeps_the_first_call_apart(monkeypatch):
    monkeypatch.setattr(bench, "REPEATS", 3)
    calls = []

    def program(name, first, later):
        def run():
            seconds = later if name in calls else first
            calls.append(name)
            time.sleep(seconds)
            return np.zeros(1)

        return run

    found = bench.interleaved(
        {"slow": program("slow", 0.06, 0.02), "fast": program("fast", 0.03, 0.005)}
    )
    assert calls == ["slow", "fast"] * 4
    assert found["slow"]["first"] > found["slow"]["median"] >= 0.02
    assert found["slow"]["median"] > found["fast"]["median"]


def test_the_plain_network_learns():
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 3))
    data = Data.create(x, x[:, :1] - x[:, 1:2], batch_size=64)
    losses = bench.plain_steps(data, (3, 16, 1), 600)(jr.key(0))
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("d_out", [1, 3])
def test_step_ratio_is_the_quotient_of_its_two_times(monkeypatch, d_out):
    shapes = {"tiny": (2, (4,), d_out, 40, 16, 2)}
    monkeypatch.setattr(bench, "SHAPES", shapes)
    monkeypatch.setattr(bench, "REPEATS", 2)
    found = bench.step_ratio("tiny")
    quotient = found["horseshoe_ms"] / found["plain_ms"]
    assert found["ratio"] == pytest.approx(quotient)
    assert found["compile_s"] > 0


def test_each_target_is_that_of_a_figure_that_is_measured(tmp_path):
    assert {part for part, _ in bench.TARGETS} <= bench.parts(tmp_path).keys()


def test_many_fits_are_timed_against_one(monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", {"8-50-1": (8, (3,), 1, 20, 20, 5)})
    monkeypatch.setattr(bench, "REPEATS", 1)
    monkeypatch.setattr(bench, "FITS", 2)
    found = bench.many_fits()
    assert found["ratio"] == pytest.approx(found["2_fits_s"] / found["one_s"])


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_a_streamed_pass_is_timed_against_one_in_memory(monkeypatch):
    monkeypatch.setattr(bench, "GROUP", 128)
    monkeypatch.setattr(bench, "COLUMNS", 3)
    monkeypatch.setattr(bench, "ROWS_IN_MEMORY", 1_400)
    monkeypatch.setattr(bench, "REPEATS", 1)
    found = bench.streamed_pass()
    assert found["ratio"] == pytest.approx(found["streamed_s"] / found["in_memory_s"])


def test_the_large_table_has_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "GROUP", 100)
    bench.write_rows(tmp_path, 1_150)
    source = ParquetRows(tmp_path, "y")
    assert (source.rows, len(source.names)) == (1_150, bench.COLUMNS)
    assert [len(group) for group in np.split(np.arange(1_150), source.pieces[1:])] == [
        *[100] * 11,
        50,
    ]


def run_once(monkeypatch, *, seconds):
    """What each program will have made, when all are said to take so long."""
    made = {}

    def run(programs):
        made.update({name: np.asarray(program()) for name, program in programs.items()})
        return {name: {"median": seconds} for name in programs}

    monkeypatch.setattr(bench, "interleaved", run)
    return made


def test_every_generator_makes_normals(monkeypatch):
    """As many as it says; their product has mean 0 and variance 1."""
    monkeypatch.setattr(bench, "NORMALS", 2**19)
    monkeypatch.setattr(bench, "REPEATS", 1)
    totals = run_once(monkeypatch, seconds=2.0)
    rates = bench.random_numbers()
    assert rates.keys() == totals.keys()
    for name, total in totals.items():
        assert rates[name] == pytest.approx(2 * total.size / 2.0 / 1e6)
        assert abs(total.mean()) < 5 / np.sqrt(total.size), name
        assert abs(total.var() - 1) < 5 * np.sqrt(8 / total.size), name


def test_the_parts_of_a_step_are_timed_one_by_one(monkeypatch):
    monkeypatch.setattr(bench, "SHAPES", {"8-50-1": (2, (3,), 1, 20, 20, 2)})
    monkeypatch.setattr(bench, "on_one_core", lambda figure: 5_000.0)
    monkeypatch.setattr(bench.os, "cpu_count", lambda: 2)
    totals = run_once(monkeypatch, seconds=4.0)
    found = bench.where_a_step_goes()
    assert found.pop("whole_step_one_core_us") == 5e6
    assert found.pop("least_many_fits") == pytest.approx(20 / 2 * 5 / 2)
    assert found.keys() == totals.keys()
    assert set(found.values()) == {1e6 * 4.0 / 2}
    assert all(np.isfinite(total).all() for total in totals.values())
    assert totals["noise_us"] != 0


def test_a_figure_of_a_new_process_has_one_core():
    assert bench.on_one_core("len(os.sched_getaffinity(0))") == 1


def test_one_process_is_timed_against_two_on_the_same_batches():
    """The second one waits while the first works by itself."""
    program = (
        "import json, sys\n"
        "import farrier\n"
        "placement = farrier.distributed(sys.argv[1], 2, int(sys.argv[2]))\n"
        "from benchmarks import bench\n"
        "bench.SHAPES = {'tiny': (3, (4,), 2, 64, 16, 2)}\n"
        "bench.TWO_BATCHES, bench.BLOCK_VALUES = (16,), 96\n"
        "bench.ROUNDS = bench.SUMS = 1\n"
        "print(json.dumps(bench.one_and_two(placement, 'tiny')))\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    pair = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, address, str(rank)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        texts = [process.communicate(timeout=300)[0] for process in pair]
    finally:
        for process in pair:
            process.kill()
    first, second = (json.loads(text.splitlines()[-1]) for text in texts)
    assert first.keys() == {
        *("one_8_ms", "one_16_ms", "two_16_ms"),
        *("sum_ms", "agreement_ms"),
    }
    assert min(first.values()) > 0
    assert second["one_16_ms"] < 0.1 * first["one_16_ms"], "The second one worked."
