"""The architecture as a test: imports, equation labels, what the code never does."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "farrier"
FILES = sorted(SOURCE.rglob("*.py"))
MATH = ROOT / "docs" / "math.md"

# A part may import parts of lower rank. Nobody imports the public face, `farrier`.
RANKS = {
    "core": 0,
    "datasets": 0,
    "prepare": 0,
    "portable": 0,
    "environments": 0,
    "model": 1,
    "infer": 2,
    "persist": 2,
    "console": 2,
    "tables": 2,
    "sources": 3,
    "checkpoint": 3,
    "displays": 3,
    "estimators": 4,
    "presets": 5,
    "plots": 5,
    "export": 5,
    "report": 6,
    "demo": 6,
    "bench": 6,
    "peers": 7,
    "scaling": 7,
    "experiments": 7,
    "commands": 8,
    "cli": 9,
    "__main__": 10,
    "farrier": 11,
}
COMMANDS = (
    "_processes",
    "_shared",
    "fit",
    "predict",
    "inspect",
    "compact",
    "report",
    "export",
    "demo",
    "bench",
    "reproduce",
)
# Within a folder, a file may import those before it.
ORDER = {
    "core": (
        "random",
        "families",
        "scales",
        "weights",
        "matrix",
        "node",
        "tied",
        "posteriors",
        "priors",
        "bound",
    ),
    "model": ("likelihoods", "inputs", "layers", "network", "drawn"),
    "infer": (
        "train",
        "processes",
        "placement",
        "stream",
        "parallel",
        "predict",
        "calibrate",
        "freeze",
        "compact",
        "relevance",
        "psis",
        "shrink",
        "moves",
        "refine",
        "restarts",
    ),
    "tables": ("files", "parquet", "columns", "table", "learn"),
    "report": ("figures", "content", "page"),
    "commands": COMMANDS,
    "estimators": (
        "checks",
        "headers",
        "callbacks",
        "base",
        "draws",
        "summary",
        "views",
        "regressor",
        "classifier",
        "tabular",
        "files",
        "many",
    ),
    "export": ("predictor", "graph", "network", "table", "onnx_file", "pipelines"),
    "experiments": (
        "_names",
        "_harness",
        "published",
        "_models",
        "cubic",
        "structure",
        "ablation",
        "uci",
        "gestures",
        "mnist",
        "choose",
        "noise",
        "_recipes",
        "uci_default",
        "uci_refined",
        "covtype",
        "uci_peers",
        "frontier",
        "pruned",
    ),
}
# Outside packages, and the only files that may import them.
DOORS = {
    "optax": {"infer/train.py"},
    "blackjax": {"infer/moves.py"},
    "safetensors": {"persist.py"},
    "sklearn": {
        "estimators/checks.py",
        "estimators/callbacks.py",
        "estimators/base.py",
        "estimators/views.py",
        "estimators/many.py",
        "estimators/regressor.py",
        "estimators/classifier.py",
        "experiments/covtype.py",
    },
    "rich": {"console.py"},
    "typer": {"cli.py", *(f"commands/{name}.py" for name in COMMANDS)},
    "matplotlib": {"plots.py", "displays.py", "report/figures.py"},
    "arviz": {"estimators/draws.py"},
    "jinja2": {"report/page.py"},
    "pooch": {"datasets.py"},
    "onnx": {"export/graph.py"},
    "skl2onnx": {"export/pipelines.py"},
    "pandas": {"tables/files.py"},
    "pyarrow": {"tables/files.py"},
}
MAY_PRINT = {"cli.py", "console.py", "demo.py"}
NEVER_IMPORTED = {"__future__", "pickle", "cloudpickle", "dill"}
# Programs of their own, whose tables say what was warned of.
MAY_FILTER = {"_harness.py", "_shared.py", "bench.py", "demo.py"}
NEVER_CALLED = {
    "config.update",
    "jax.config.update",
    "warnings.catch_warnings",
    "warnings.filterwarnings",
    "warnings.simplefilter",
}

each_file = pytest.mark.parametrize(
    "file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix()
)


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def module_name(file: Path) -> str:
    """`farrier.core.scales` for core/scales.py, `farrier.core` for core/__init__.py."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file) for file in FILES}


def imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Full names of all modules that a file of `package` imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                inner = f"{name}.{alias.name}"
                yield inner if inner in MODULES else name


def imports_of(file: Path) -> list[str]:
    package = module_name(file.with_name("__init__.py"))
    return list(imports(tree_of(file), package))


def place(module: str) -> tuple[int, str, int]:
    """Rank, part, and position within the part of a module of farrier."""
    _, *inner = module.split(".")
    part = inner[0] if inner else "farrier"
    order = ORDER.get(part, ())
    position = order.index(inner[1]) if len(inner) > 1 else len(order)
    return RANKS[part], part, position


def is_downward(importer: str, imported: str) -> bool:
    rank, part, position = place(importer)
    other_rank, other_part, other_position = place(imported)
    if part == other_part:
        return other_position < position
    return other_rank < rank


def calls(file: Path) -> Iterator[str]:
    """Dotted names of all that a file calls."""
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def labels(text: str) -> set[str]:
    """Equation labels that a text cites: M1 and M2 in "(M1), (M2, unit scale)"."""
    groups = re.findall(r"(?<!\w)\(([A-Z]\d+\b[^()]*)\)", text)
    return {label for group in groups for label in re.findall(r"\b[A-Z]\d+\b", group)}


def displayed_equations(markdown: str) -> list[str]:
    """Indented blocks, and rows of tables that begin with a label."""
    blocks = re.findall(r"(?m)(?:^ {4}.*\n)+", markdown)
    rows = re.findall(r"(?m)^\| (\([A-Z]\d+\)) \|(.*)$", markdown)
    return blocks + [f"{equation} {label}\n" for label, equation in rows]


def own_label(equation: str) -> str | None:
    """The label that ends a displayed equation."""
    found = re.search(r"\(([A-Z]\d+)\)\n$", equation)
    return found and found[1]


def displayed_labels(markdown: str) -> list[str]:
    """Labels of all lines that end with one, within the displayed equations."""
    equations = "".join(displayed_equations(markdown))
    return re.findall(r"(?m)\(([A-Z]\d+)\)$", equations)


def cited(files: list[Path]) -> set[str]:
    return set().union(*(labels(file.read_text(encoding="utf-8")) for file in files))


@each_file
def test_every_file_has_a_rank(file):
    part, *rest = file.relative_to(SOURCE).with_suffix("").parts
    if rest and rest != ["__init__"]:
        assert rest[0] in ORDER.get(part, ()), f"Give {file} a place in ORDER."
    elif part != "__init__":
        assert part in RANKS, f"Give {part} a rank, here and in docs/architecture.md."


@each_file
def test_imports_point_downwards(file):
    inside = [m for m in imports_of(file) if m.split(".")[0] == "farrier"]
    upward = [m for m in inside if not is_downward(module_name(file), m)]
    assert not upward, f"{file.name} may not import {upward}: see docs/architecture.md."


@pytest.mark.parametrize(
    ("importer", "statement", "downward"),
    [
        ("farrier.core.scales", "from .families import LogNormal", True),
        ("farrier.core.scales", "from .weights import Normal", False),
        (
            "farrier.core.random",
            "def f():\n    from ..model.layers import Layer",
            False,
        ),
        ("farrier.model.network", "from ..core.bound import Bound", True),
        ("farrier.model.network", "from ..infer import train", False),
        ("farrier.infer.compact", "from . import train", True),
        ("farrier.persist", "from .infer.train import TrainState", False),
        ("farrier.persist", "import farrier.cli", False),
        ("farrier.estimators", "from . import __version__", False),
    ],
)
def test_an_upward_import_is_seen(importer, statement, downward):
    package = importer.rpartition(".")[0]
    (imported,) = imports(ast.parse(statement), package)
    assert is_downward(importer, imported) == downward


@each_file
def test_outside_packages_enter_by_their_doors(file):
    here = file.relative_to(SOURCE).as_posix()
    packages = {module.split(".")[0] for module in imports_of(file)}
    strangers = {p for p in packages & DOORS.keys() if here not in DOORS[p]}
    assert not strangers, (
        f"{here} may not import {strangers}: see docs/architecture.md."
    )


@pytest.mark.parametrize("label", sorted(cited(FILES)))
def test_equation_is_documented_and_tested(label):
    assert MATH.is_file(), "docs/math.md, the home of the equations, is missing."
    assert label in displayed_labels(MATH.read_text(encoding="utf-8")), (
        f"The source cites ({label}), which docs/math.md does not display."
    )
    tests = set((ROOT / "tests").rglob("*.py")) - {Path(__file__)}
    assert label in cited(sorted(tests)), f"No test cites ({label})."


def test_the_mathematics_is_labelled():
    text = MATH.read_text(encoding="utf-8")
    bare = [
        equation for equation in displayed_equations(text) if not own_label(equation)
    ]
    assert not bare, "Each displayed equation of docs/math.md ends with a label."
    displayed = displayed_labels(text)
    assert labels(text) <= set(displayed), (
        "docs/math.md cites what it does not display."
    )
    assert len(displayed) == len(set(displayed)), "Two equations share a label."


def test_labels_are_found():
    text = "(M1), (M6, unit scale), f(X1), (R2 and R3)"
    assert labels(text) == {"M1", "M6", "R2", "R3"}
    text = (
        "by (M9)\n\n    a = b\n    c (M2) = d   (M1)\n\n    bare\n\n| (F1) | x | y |\n"
    )
    assert displayed_labels(text) == ["M1", "F1"]
    assert [own_label(equation) for equation in displayed_equations(text)] == [
        "M1",
        None,
        "F1",
    ]
    assert {"M1", "M2", "M3", "M4", "M5", "M6"} <= cited(FILES)


def test_documents_name_tests_that_exist():
    absent = []
    for page in sorted(ROOT.glob("docs/**/*.md")):
        text = page.read_text(encoding="utf-8")
        for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
            path = ROOT / file
            code = path.read_text(encoding="utf-8") if path.is_file() else ""
            if not code or (name and f"def {name}(" not in code):
                absent.append(f"{page.name}: {file}::{name}")
    assert not absent


@each_file
def test_the_library_leaves_the_process_alone(file):
    filters = {name for name in NEVER_CALLED if name.startswith("warnings.")}
    allowed = filters if file.name in MAY_FILTER else set()
    assert not set(calls(file)) & NEVER_CALLED - allowed
    assert not {module.split(".")[0] for module in imports_of(file)} & NEVER_IMPORTED
    if file.relative_to(SOURCE).as_posix() not in MAY_PRINT:
        assert "print" not in calls(file)


def keys_with_defaults(tree: ast.Module) -> list[int]:
    """Lines of the signatures in which a key has a default."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            a = node.args
            positional = [*a.posonlyargs, *a.args]
            defaulted = positional[len(positional) - len(a.defaults) :]
            pairs = zip(a.kwonlyargs, a.kw_defaults, strict=True)
            defaulted += [argument for argument, default in pairs if default]
            if any(re.fullmatch(r"key(_\w+)?", argument.arg) for argument in defaulted):
                lines.append(node.lineno)
    return lines


@each_file
def test_a_key_has_no_default(file):
    assert not keys_with_defaults(tree_of(file))


@pytest.mark.parametrize(
    "signature",
    ["def f(x, key=None): ...", "def f(*, n=1, key=k): ...", "lambda key=k: 0"],
)
def test_a_default_key_is_seen(signature):
    assert keys_with_defaults(ast.parse(signature)) == [1]
    assert keys_with_defaults(ast.parse("def f(x, key, *, n=1, key_noise): ...")) == []


# Built from pieces, so that this file passes its own test.
REGISTRIES = [".".join(host) for host in [("pypi", "org"), ("pythonhosted", "org")]]
REGISTRIES += [".".join(host) for host in [("anaconda", "org"), ("npmjs", "com")]]
FOLDERS = "|".join(["work", "root", "home", "opt", "tmp"])
OF_ONE_MACHINE = re.compile(
    "|".join([*map(re.escape, REGISTRIES), rf"(?<![\w.~-])/(?:{FOLDERS})/"])
)


def test_text_names_no_registry_and_no_path_of_one_machine():
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout, or git is not installed")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    found = []
    for name in names.decode().split("\0")[:-1]:
        file = ROOT / name
        content = file.read_bytes() if file.is_file() else b""
        if b"\0" not in content:
            text = content.decode()
            found += [f"{name}: {hit}" for hit in OF_ONE_MACHINE.findall(text)]
    assert not found


def test_a_registry_and_a_path_of_one_machine_are_seen():
    hits = [
        f"https://{REGISTRIES[0]}/simple",
        *(f"x=/{f}/y" for f in FOLDERS.split("|")),
    ]
    assert all(OF_ONE_MACHINE.search(hit) for hit in hits)
    assert not OF_ONE_MACHINE.search(
        "how-to/work/x, ../shared/data, #!/usr/bin/env bash"
    )
