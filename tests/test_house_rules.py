"""The architecture as a test: imports, sizes, equation labels, what is never done."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

import pytest

from benchmarks import house

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "farrier"
FILES = sorted(SOURCE.rglob("*.py"))
MATH = ROOT / "docs" / "math.md"
TREE = house.tree_of(SOURCE)

# A module may import those before it; docs/architecture.md shows the same table.
LAYERS = """
atomic jsonable datasets console units
core: random families scales weights forms matrix posteriors priors bound
model: distributions likelihoods.base likelihoods.normal likelihoods.categorical
model: likelihoods inputs layers network posterior
train: config schedule history stopping step data loop parallel shrink
persist checkpoint
infer: predict nodes intervals compact relevance
infer: sample.moves sample.settings sample.target sample.chains ensemble
tables: files columns table learn
scale: processes placement parquet source spool rows stream
fitted fit validity files presets
views: displays describe
estimators: checks callbacks rows progress partial settings storable regression
estimators: warnings attributes base draws views regressor classifier
tables: model
estimators: files many
export: portable predictor graph network table onnx_file pipelines
views: report.figures report.content report.page
demo
cli: _processes _shared _reading fit predict inspect compact report export demo app
__main__
"""
# The method, which must work without any optional folder or package.
METHOD = ("core", "model", "train", "infer", "fitted", "fit")
OPTIONAL = {"tables", "export", "views", "cli"}
OPTIONAL |= {"pandas", "pyarrow", "typer", "rich", "matplotlib", "onnx", "jinja2"}
# Outside packages, and the only files that may import them.
DOORS = {
    "optax": {"train/step.py"},
    "blackjax": {"infer/sample/moves.py"},
    "safetensors": {"persist.py"},
    "sklearn": {
        "export/predictor.py",
        *(
            f"estimators/{name}.py"
            for name in (
                "checks",
                "callbacks",
                "attributes",
                "settings",
                "base",
                "views",
                "many",
                "regressor",
                "classifier",
            )
        ),
    },
    "rich": {"console.py"},
    "typer": {
        f"cli/{name}.py"
        for name in (
            "_processes",
            "_shared",
            "fit",
            "predict",
            "inspect",
            "compact",
            "report",
            "export",
            "demo",
            "app",
        )
    },
    "matplotlib": {"demo.py", "views/displays.py", "views/report/figures.py"},
    "arviz": {"estimators/draws.py"},
    "jinja2": {"views/report/page.py"},
    "onnx": {"export/graph.py"},
    "skl2onnx": {"export/pipelines.py"},
    "pandas": {"tables/files.py"},
    "pyarrow": {"tables/files.py"},
}
# Sizes. What is larger than it should be may shrink and may not grow.
METHODS, LINES, ISINSTANCE = 20, 450, 16
LARGER_CLASSES: dict[str, int] = {}
LONGER_FILES: dict[str, int] = {}
OF_SKLEARN = {"feature_names_in_"}  # it sets this for data frames alone
MAY_PRINT = {"console.py"}
NEVER_IMPORTED = {"__future__", "pickle", "cloudpickle", "dill"}
# Between the processes of one run, and never in a file.
MAY_PICKLE = {"estimators/many.py"}
# Commands, which print warnings in one line each.
MAY_FILTER = {"_shared.py", "demo.py"}
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


FILE_OF = {module_name(file): file for file in FILES}
MODULES = FILE_OF.keys()


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


def positions() -> dict[str, int]:
    """Position of each module in `LAYERS`; a package comes after its last file."""
    order = ["farrier"]
    for line in LAYERS.split("\n"):
        folder, colon, names = line.rpartition(":")
        prefix = f"{folder}." if colon else ""
        order += [f"farrier.{prefix}{name}" for name in names.split()]
    position = {module: number for number, module in enumerate(order)}
    for module in order[1:]:
        package = module.rpartition(".")[0]
        while package not in order:
            position[package] = position[module] + 0.5
            package = package.rpartition(".")[0]
    return position | {"farrier": len(order)}


POSITIONS = positions()


def is_downward(importer: str, imported: str) -> bool:
    inside = importer.startswith(f"{imported}.")  # a package, from its own file
    return POSITIONS[imported] < POSITIONS[importer] and not inside


def reached(start: set[str]) -> set[str]:
    """Modules that these import, directly or not, and outside packages."""
    seen, waiting = set(), set(start)
    while waiting:
        module = waiting.pop()
        seen.add(module)
        if module in MODULES:
            waiting |= {m for m in imports_of(FILE_OF[module]) if m not in seen}
    return seen


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
def test_every_file_has_a_position(file):
    assert module_name(file) in POSITIONS, (
        f"Add {file.name} to LAYERS, here and in docs/architecture.md."
    )


def test_every_position_is_that_of_a_file():
    assert POSITIONS.keys() <= MODULES
    listed = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"```{LAYERS}```" in listed, (
        "docs/architecture.md shows another table of layers."
    )


@each_file
def test_imports_point_downwards(file):
    inside = [m for m in imports_of(file) if m.split(".")[0] == "farrier"]
    upward = [m for m in inside if not is_downward(module_name(file), m)]
    assert not upward, f"{file.name} may not import {upward}: see docs/architecture.md."


def at_import(file: Path) -> ast.Module:
    """The statements that run when a file is imported, its functions left out."""

    def runs(statement: ast.stmt) -> bool:
        is_check = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(
            statement.test
        )
        defines = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        return not (is_check or defines)

    return ast.Module([each for each in tree_of(file).body if runs(each)], [])


def needed(module: str) -> set[str]:
    """Modules that are imported before a module, with the packages around them."""
    package = module_name(FILE_OF[module].with_name("__init__.py"))
    imported = {*imports(at_import(FILE_OF[module]), package)} & MODULES
    around = {name.rsplit(".", n)[0] for name in imported for n in range(4)}
    own = {module.rsplit(".", n)[0] for n in range(4)}
    return ((imported | around) & MODULES) - own


def test_modules_can_be_imported_in_any_order():
    """A cycle works or fails by which of its modules comes first."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " imports ".join([*path, module])
        if module not in done:
            for each in sorted(needed(module)):
                visit(each, (*path, module))
            done.add(module)

    for module in sorted(MODULES):
        visit(module, ())
    assert done == MODULES


def test_the_method_needs_nothing_optional():
    method = {m for m in MODULES if m.split(".")[1:2] in [[part] for part in METHOD]}
    names = {m.removeprefix("farrier.").split(".")[0] for m in reached(method)}
    assert names > {*METHOD, "jax", "optax"}
    assert not names & OPTIONAL


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
        ("farrier.model.network", "from ..train import loop", False),
        ("farrier.infer.compact", "from . import predict", True),
        ("farrier.infer.sample.chains", "from ..compact import silence", True),
        ("farrier.infer.compact", "from .sample.chains import refine", False),
        ("farrier.infer.compact", "from .sample import chains", False),
        ("farrier.persist", "from .train.step import TrainState", True),
        ("farrier.persist", "import farrier.cli", False),
        ("farrier.estimators", "from . import base", True),
        ("farrier.estimators.base", "from . import Regressor", False),
        ("farrier.views.report.content", "from ...tables import model", True),
        ("farrier.fit", "from . import __version__", False),
    ],
)
def test_an_upward_import_is_seen(importer, statement, downward):
    is_package = FILE_OF[importer].name == "__init__.py"
    package = importer if is_package else importer.rpartition(".")[0]
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


# --- sizes ------------------------------------------------------------------------


def test_no_class_has_too_many_methods():
    for count, place in house.methods(TREE):
        most = LARGER_CLASSES.get(place.split()[-1], METHODS)
        assert count <= most, f"{place} has {count} methods; at most {most}."


@each_file
def test_no_file_is_too_long(file):
    most = LONGER_FILES.get(file.relative_to(SOURCE).as_posix(), LINES)
    lines = len(file.read_text(encoding="utf-8").splitlines())
    assert lines <= most, f"{file.name} has {lines} lines; at most {most}."


def test_classes_of_our_own_are_seldom_asked_for():
    checks = [*house.own_isinstance(TREE)]
    assert len(checks) <= ISINSTANCE, "Give the classes a method instead:" + "\n".join(
        checks
    )


def probed(tree: ast.Module) -> set[str]:
    """Attributes of `self` whose absence is expected: hasattr, getattr with default."""
    names, listing = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__dir__":
            listing |= {*ast.walk(node)}  # it lists the attributes that exist
    for node in {*ast.walk(tree)} - listing:
        if isinstance(node, ast.Call) and node.args:
            called, first = ast.unparse(node.func), ast.unparse(node.args[0])
            probes = called == "hasattr" or (called == "getattr" and len(node.args) > 2)
            if probes and first == "self":
                names.add(ast.unparse(node.args[1]).strip("'"))
    return names


@each_file
def test_an_object_knows_its_own_attributes(file):
    assert not probed(tree_of(file)) - OF_SKLEARN


def test_a_probe_is_seen():
    text = "hasattr(self, 'a_'); getattr(self, 'b_', None); getattr(self, name)"
    assert probed(ast.parse(text)) == {"a_", "b_"}
    assert probed(ast.parse("def f(self):\n    hasattr(self, name)")) == {"name"}
    assert not probed(ast.parse("def __dir__(self):\n    hasattr(self, name)"))


def test_private_names_stay_in_their_module():
    used = {
        re.sub(r":\d+: .*?([^. ]+)$", r": \1", use) for use in house.private_uses(TREE)
    }
    assert not used, "Make these public, or do without them."


@pytest.mark.parametrize(
    ("text", "sign", "hits"),
    [
        ("class A:\n    def f(self): ...\n    def g(self): ...", "methods", 1),
        ("class A: ...\nisinstance(x, A)\nisinstance(x, int)", "own_isinstance", 1),
        ("from .b import _name", "private_uses", 1),
        ("class A:\n    def f(self): return self._x", "private_uses", 0),
    ],
)
def test_a_sign_is_seen(text, sign, hits):
    tree = {Path("a.py"): ast.parse(text)}
    assert len([*getattr(house, sign)(tree)]) == hits


# --- equations --------------------------------------------------------------------


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
    assert {"M1", "M2", "M3", "M5", "M6"} <= cited(FILES)


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
    here = file.relative_to(SOURCE).as_posix()
    never = NEVER_IMPORTED - ({"pickle"} if here in MAY_PICKLE else set())
    assert not {module.split(".")[0] for module in imports_of(file)} & never
    if here not in MAY_PRINT:
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
