"""Every experiment runs from end to end, at its smallest."""

import json

import pytest

from experiments._harness import known, read_rows
from experiments._names import NAMES
from experiments._results import reproduce_into

MOST_SECONDS = 300  # for all of them together on a quiet machine
LONG = ("ablation", "gestures", "mnist", "frontier", "pruned")
RUNS = [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NAMES]


@pytest.mark.parametrize("name", RUNS)
def test_smoke(name, shared_data, tmp_path):
    told = []

    def report(percent, text):
        told.append(percent)

    table = reproduce_into(tmp_path, name, "smoke", shared_data, report)
    experiment = known(name)
    folder = tmp_path / name
    rows = read_rows(folder / "rows.json")
    parts = experiment.parts(experiment.SMOKE, shared_data)
    manifest = json.loads((folder / "manifest.json").read_text())
    ran = {row["part"] for row in rows}
    assert ran | manifest["skipped"].keys() == set(parts)
    assert ran
    assert table == (folder / "table.md").read_text()
    figures = experiment.render(rows)
    assert {file.stem for file in folder.glob("*.png")} == set(figures)
    claims = experiment.claims(rows)
    page = (tmp_path / "README.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith(f"| [{name}](")]
    cells = [f"| {claim.text} |" for claim in claims]
    assert cells
    assert all(sum(cell in line for line in lines) == 1 for cell in cells)
    assert told == sorted(told)
    assert told[-1] == 100
    assert manifest["kind"] == "smoke"
    assert None not in manifest["data_sha256"].values() or manifest["skipped"]
    assert manifest["seconds"] < MOST_SECONDS
