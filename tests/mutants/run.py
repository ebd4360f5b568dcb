"""Mutation test: do the tests notice one-line mistakes?

    python tests/mutants/run.py                       # all mutants: about an hour
    python tests/mutants/run.py core                  # those of one folder
    python tests/mutants/run.py --name "same noise"   # those whose name contains a text
    python tests/mutants/run.py --list                # names, and nothing is run
    python tests/mutants/run.py --output out.json

Each mutant changes one line of a temporary copy of the sources and runs the tests that
are named beside it in changes.py, until one fails. The checkout is not touched. The
same tests are first run on the unchanged copy, since a test that fails anyway catches
nothing. Exit code 1: some mutants were not caught.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.changes import MUTANTS, Mutant  # noqa: E402

SOURCE = ROOT / "src" / "farrier"
TIMEOUT = 900  # seconds for the tests of one mutant
PASSED, FAILED = 0, 1  # exit codes of pytest


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    name: str
    file: str
    verdict: str  # caught, survived, timeout or error
    seconds: float
    detail: str = ""


def mutated(text: str, mutant: Mutant) -> str:
    """The text of a file with the change, or a ValueError if it does not fit."""
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(f"{mutant.file} has the old text {count} times, not once.")
    return text.replace(mutant.old, mutant.new)


def run_tests(copy: Path, tests: tuple[str, ...]) -> tuple[int | None, str]:
    """Exit code of pytest, None after a timeout, and the first test that failed."""
    path = os.pathsep.join([str(copy), str(ROOT)])
    options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--tb=no", "-rfE"]
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    lines = ended.stdout.splitlines()
    first = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return ended.returncode, (first or lines[-1:] or [""])[0][:200]


def verdict_of(mutant: Mutant, baseline: dict[str, str]) -> Result:
    """Run the tests of one mutant on a copy of the sources."""
    began = time.monotonic()

    def result(verdict: str, detail: str = "") -> Result:
        seconds = round(time.monotonic() - began, 1)
        return Result(mutant.name, mutant.file, verdict, seconds, detail)

    broken = [baseline[test] for test in mutant.tests if baseline[test]]
    if broken:
        return result("error", f"the tests fail without it: {broken[0]}")
    try:
        text = (SOURCE / mutant.file).read_text(encoding="utf-8")
        changed = mutated(text, mutant)
    except (OSError, ValueError) as error:
        return result("error", str(error))
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(folder)
        (copy / "farrier" / mutant.file).write_text(changed, encoding="utf-8")
        code, detail = run_tests(copy, mutant.tests)
    if code is None:
        return result("timeout")
    if code not in (PASSED, FAILED):
        return result("error", f"pytest ended with {code}: {detail}")
    return result("caught" if code == FAILED else "survived", detail)


def copied(folder: str) -> Path:
    """A copy of the sources, to be put before the installed package."""
    copy = Path(folder) / "src"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, copy / "farrier", ignore=ignore)
    return copy


def baseline_of(chosen: list[Mutant]) -> dict[str, str]:
    """For each test file, what fails without any mutant: nothing, as a rule."""
    failures = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(folder)
        for test in sorted({test for mutant in chosen for test in mutant.tests}):
            code, detail = run_tests(copy, (test,))
            failures[test] = "" if code == PASSED else f"{test}: {detail}"
            print(f"{'ok' if code == PASSED else 'FAILS':8}  unchanged  {test}")
    return failures


def results(chosen: list[Mutant]) -> Iterator[Result]:
    """Verdicts, one after the other."""
    baseline = baseline_of(chosen)
    for mutant in chosen:
        yield verdict_of(mutant, baseline)


def main(words: list[str] | None = None) -> int:
    """Run the mutants of the command line and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", default="", help="core, model, ...")
    parser.add_argument("--name", default="", help="Only names with this text.")
    parser.add_argument("--list", action="store_true", help="Print the names.")
    parser.add_argument("--output", type=Path, help="A JSON file for the results.")
    given = parser.parse_args(words)
    chosen = [
        mutant
        for mutant in MUTANTS
        if mutant.file.startswith(given.folder) and given.name in mutant.name
    ]
    if given.list:
        for mutant in chosen:
            print(f"{mutant.file:32}  {mutant.name}")
        return 0
    every = []
    for result in results(chosen):
        every.append(result)
        row = f"{result.verdict:8}  {result.seconds:6.1f} s  {result.file:28}"
        print(f"{row}  {result.name}", flush=True)
        if result.detail and result.verdict != "survived":
            print(f"          {result.detail}", flush=True)
        if given.output:
            text = json.dumps([asdict(each) for each in every], indent=1)
            given.output.write_text(text + "\n", encoding="utf-8")
    counts = Counter(result.verdict for result in every)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(counts["caught"] < len(every))


if __name__ == "__main__":
    sys.exit(main())
