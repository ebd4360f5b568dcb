"""The README is true: its Python runs, and its figure is there."""

import re
from pathlib import Path

import numpy as np

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), names)
    y, mean, low, high = (names[n] for n in ("y_test", "mean", "low", "high"))
    assert np.sqrt(np.mean((mean - y) ** 2)) < np.std(y)
    assert 0.8 < np.mean((low < y) & (y < high)) < 0.98
    assert (names["model"].predict(names["X_test"]) == mean).all()
    assert "nodes kept" in capsys.readouterr().out


def test_links_and_figures_exist():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert (Path(__file__).parents[1] / target).exists(), target
