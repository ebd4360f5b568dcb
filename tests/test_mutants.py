"""Mutants fit the sources of today. To run them: `python tests/mutants/run.py`."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from mutants import run
from mutants.changes import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_one_place_and_names_tests_that_exist(mutant):
    text = (run.SOURCE / mutant.file).read_text(encoding="utf-8")
    changed = run.mutated(text, mutant)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text(encoding="utf-8")


def test_every_folder_of_the_method_has_mutants():
    counts = Counter(mutant.file.split("/")[0] for mutant in MUTANTS)
    assert min(counts[folder] for folder in ("core", "model", "train", "infer")) >= 10
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_that_does_not_fit_is_an_error():
    twice = Mutant("twice", "core/random.py", "return", "raise", ())
    with pytest.raises(ValueError, match=r"the old text \d+ times, not once"):
        run.mutated("return 1\nreturn 2\n", twice)
    assert run.verdict_of(twice, {}).verdict == "error"
    failing = Mutant("failing", "core/random.py", "a", "b", ("t.py",))
    result = run.verdict_of(failing, {"t.py": "t.py: FAILED"})
    assert (result.verdict, "fail without it" in result.detail) == ("error", True)
