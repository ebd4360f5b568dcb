"""The documentation is true: its Python runs, its commands have such options."""

import importlib
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import typer.main

import farrier
from benchmarks import command as benchmarks_command
from experiments import command as experiments_command
from experiments._names import NAMES
from farrier import Training
from farrier.cli.app import app

ROOT = Path(__file__).parents[1]
BUILT = {"_build", "gallery"}  # folders that `make docs` fills
DOCS = [p for p in sorted(ROOT.glob("docs/**/*.md")) if not BUILT & {*p.parts}]
PAGES = [ROOT / "README.md", *DOCS]
SHELL = ("", "bash", "sh", "shell", "console")
STEPS = 100  # of each fit that sets no budget of its own ...
README_STEPS = 1_000  # ... and of that in the README, whose predictions are looked at


def blocks(page: Path, *languages: str) -> list[str]:
    """Fenced blocks of a page in one of the languages."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [block for language, block in found if language in languages]


def each(pages: list[Path], *languages: str) -> pytest.MarkDecorator:
    """A test for each page that holds such blocks."""
    chosen = [page for page in pages if blocks(page, *languages)]
    names = [page.relative_to(ROOT).as_posix() for page in chosen]
    return pytest.mark.parametrize("page", chosen, ids=names)


def shorten(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cap the budget of every fit whose `max_iter` is "auto"."""
    whole = Training.config

    def config(self: Training, rows: int, **settings: Any) -> Any:
        given = whole(self, rows, **settings)
        return given if self.max_iter != "auto" else replace(given, steps=steps)

    monkeypatch.setattr(Training, "config", config)


def run(page: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """All blocks of a page, one after the other; the names that they define."""
    matplotlib.use("agg")
    shorten(steps, monkeypatch)
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)
    return names


@each([page for page in DOCS if page.name != "extending.md"], "python")
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, STEPS, monkeypatch)


@pytest.mark.parametrize(
    "example", sorted(ROOT.glob("docs/examples/*.py")), ids=lambda path: path.stem
)
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_examples_of_the_gallery_run(example, monkeypatch):
    matplotlib.use("agg")
    shorten(STEPS, monkeypatch)
    exec(compile(example.read_text("utf-8"), example.name, "exec"), {})
    matplotlib.pyplot.close("all")


# -- the public names ------------------------------------------------------------------


@pytest.mark.parametrize("name", farrier.__all__)
def test_a_public_name_is_imported_and_described(name):
    value = getattr(farrier, name)
    assert (value.__doc__ or "").strip()
    assert name in dir(farrier)
    if isinstance(value, type):
        # A dataclass without a docstring gets its signature as one.
        assert not value.__doc__.startswith(f"{name}(")


def test_public_names_are_sorted_and_all_on_the_page():
    names = farrier.__all__
    assert [*names] == sorted(names)
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    module = {"datasets", "export", "portable", "presets"}
    for name in {*names} - module:
        assert re.search(rf"^\.\. auto\w+:: {name}$", page, re.MULTILINE), name
    for name in module:
        assert importlib.import_module(getattr(farrier, name).__name__)
        assert re.search(rf"module:: farrier\.(export\.)?{name}$", page, re.MULTILINE)


def test_names_on_the_page_exist():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    home = farrier
    directive = r"^\.\. (currentmodule|automodule|auto\w+):: (\S+)$"
    for kind, name in re.findall(directive, page, re.MULTILINE):
        if kind in ("currentmodule", "automodule"):
            home = importlib.import_module(name)
        else:
            assert hasattr(home, name), name


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="KlRelease"):
        farrier.KlRelease  # noqa: B018


def test_import_farrier_does_not_import_jax():
    code = "import sys, farrier; print(sorted({'jax', 'sklearn'} & {*sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_the_readme_predicts_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(ROOT / "README.md", README_STEPS, monkeypatch)
    y, mean, low, high = (names[n] for n in ("y_test", "mean", "low", "high"))
    assert np.sqrt(np.mean((mean - y) ** 2)) < np.std(y)
    assert 0.8 < np.mean((low < y) & (y < high)) < 0.98
    assert (names["model"].predict(names["X_test"]) == mean).all()
    assert "nodes kept" in capsys.readouterr().out


def commands(page: Path, program: str = "farrier") -> list[list[str]]:
    """The calls of a program in a page's shell blocks, as lists of words."""
    text = "\n".join(blocks(page, *SHELL))
    lines = [line.removeprefix("$ ") for line in text.replace("\\\n", " ").split("\n")]
    calls = [line.partition("#")[0] for line in lines]
    calls = [call for call in calls if f"{call} ".startswith(f"{program} ")]
    return [shlex.split(call.removeprefix(program)) for call in calls]


def check_program(module: Any, words: list[str]) -> None:
    """Whether `python -m experiments` or `python -m benchmarks` takes these words."""
    command: Any = typer.main.get_command(module.app)
    if "--help" in words:
        return
    with command.make_context(module.__package__, [*words]) as context:
        if module is experiments_command:
            assert context.params["name"] in (*NAMES, "all", "list", "status")


def check_make(words: list[str]) -> None:
    """Whether the Makefile has these targets and variables, and they go together."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)
    variables = re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    chosen = [word for word in words if "=" not in word]
    assert {*chosen} <= {*targets}, f"The Makefile has no target {chosen}."
    assert {*given} <= {*variables}, f"The Makefile has no variable {[*given]}."
    arguments = shlex.split(given.get("ARGS", ""))
    if "reproduce" in chosen:
        check_program(experiments_command, [given.get("NAME", "list"), *arguments])
    if "bench" in chosen:
        check_program(benchmarks_command, arguments)


@each(PAGES, *SHELL)
def test_commands_have_the_options_they_use(page):
    group: Any = typer.main.get_command(app)
    for words in commands(page):
        if words[0].startswith("--"):
            assert words[0] in ("--help", "--version")
            continue
        command = group.commands[words[0]]
        if "--help" not in words:
            command.make_context(words[0], [*words[1:]]).close()
    for words in commands(page, "python -m experiments"):
        check_program(experiments_command, words)
    for words in commands(page, "python -m benchmarks"):
        check_program(benchmarks_command, words)
    for words in commands(page, "make"):
        check_make(words)


def test_a_wrong_option_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\nfarrier demo --no-such-option\n```\n", encoding="utf-8")
    assert commands(page) == [["demo", "--no-such-option"]]
    with pytest.raises(Exception, match="no-such-option"):
        test_commands_have_the_options_they_use(page)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("make reproduce NAME=uci ARGS='--onyl x'", "onyl"),
        ("make reproduce NAME=ucis", "ucis"),
        ("make repoduce NAME=uci", "repoduce"),
        ("make bench ARG=--peers", "ARG"),
        ("make bench ARGS=--pears", "pears"),
        ("python -m experiments uci --fast", "fast"),
        ("$ python -m benchmarks --only", "only"),
    ],
)
def test_wrong_calls_of_make_and_modules_are_seen(tmp_path, command, problem):
    page = tmp_path / "page.md"
    page.write_text(f"```bash\n{command}\n```\n", encoding="utf-8")
    with pytest.raises(Exception, match=problem):
        test_commands_have_the_options_they_use(page)


def test_pages_have_calls_of_each_program():
    for program in ("farrier", "make", "python -m experiments", "python -m benchmarks"):
        assert any(commands(page, program) for page in PAGES), program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_figures_exist(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_files_to_copy_are_well_formed():
    yaml = pytest.importorskip("yaml")
    folder = ROOT / "docs" / "scale"
    subprocess.run(["bash", "-n", folder / "slurm.sh"], check=True)
    service, job = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    (command,) = pod["containers"][0]["args"]
    assert f"--processes {job['spec']['completions']} " in command
    group: Any = typer.main.get_command(app)
    words = shlex.split(command.replace("$JOB_COMPLETION_INDEX", "3"))
    group.commands["fit"].make_context("fit", words[2:]).close()
