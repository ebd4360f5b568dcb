"""Signs of whether the package is as simple as it should be.

    python -m benchmarks.house            # all signs; fits and loads a small model
    python -m benchmarks.house --static   # those that are read off the sources alone

Each sign has a limit. They are signs to look at, not numbers to optimise, so going over
a limit is reported and is not an error.
"""

import argparse
import ast
import importlib
import pkgutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from experiments.settings import arguments

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "farrier"
USERS = ("experiments", "benchmarks")  # folders that use the package from outside
METHODS, FILE_LINES, FUNCTION_LINES = 20, 450, 60
ISINSTANCE, FIT_FILES, LOAD_FILES, PACKAGE_LINES = 20, 14, 8, 14_000
ROWS, COLUMNS = 40, 3  # of the table of the traced fit
SETTINGS: dict[str, Any] = {}  # of the traced fit; none of them is a default
SHOWN = 5  # places that are listed for each sign

Tree = dict[Path, ast.Module]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Sign:
    """A number, the most it should be, and where it comes from."""

    name: str
    value: int
    limit: int
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "OK" if self.value <= self.limit else "over"
        text = f"{verdict:4}  {self.value:6}  at most {self.limit:6}  {self.name}"
        more = len(self.places) - SHOWN
        lines = [text, *(f"          {place}" for place in self.places[:SHOWN])]
        return "\n".join(lines + [f"          and {more} more"] * (more > 0))


def tree_of(source: Path) -> Tree:
    """The parsed files of a package, by their paths inside it."""
    return {
        file.relative_to(source): ast.parse(file.read_text(encoding="utf-8"))
        for file in sorted(source.rglob("*.py"))
    }


def static_signs(source: Path, root: Path | None = None) -> list[Sign]:
    """Signs that are read off the sources, and off those of `USERS` in a folder."""
    tree = tree_of(source)
    users = {
        Path(folder, path): module
        for folder in USERS
        if root is not None
        for path, module in tree_of(root / folder).items()
    }
    lines = {
        path: len((source / path).read_text(encoding="utf-8").splitlines())
        for path in tree
    }
    by_size = sorted(lines, key=lambda path: -lines[path])
    long_files = [path for path in by_size if lines[path] > FILE_LINES]
    classes = methods(tree)
    asked = [*attribute_probes(tree)]
    private = [*private_uses(tree), *private_uses_outside(tree, users)]
    checks = [*own_isinstance(tree)]
    functions = [*long_functions(tree)]
    return [
        Sign(
            "methods of the largest class",
            max((count for count, _ in classes), default=0),
            METHODS,
            tuple(f"{place}: {count}" for count, place in classes if count > METHODS),
        ),
        Sign(
            f"files over {FILE_LINES} lines",
            len(long_files),
            0,
            tuple(f"{path.as_posix()}: {lines[path]}" for path in long_files),
        ),
        Sign("hasattr on ourselves, and in estimators", len(asked), 0, tuple(asked)),
        Sign("private names outside their module", len(private), 0, tuple(private)),
        Sign("isinstance on our own classes", len(checks), ISINSTANCE, tuple(checks)),
        Sign(
            f"functions over {FUNCTION_LINES} lines",
            len(functions),
            0,
            tuple(functions),
        ),
        Sign("lines of the package", sum(lines.values()), PACKAGE_LINES),
    ]


def methods(tree: Tree) -> list[tuple[int, str]]:
    """Methods of each class, and its place; the largest class first."""
    found = [
        (sum(isinstance(inner, FUNCTIONS) for inner in node.body), at(path, node))
        for path, node in nodes(tree)
        if isinstance(node, ast.ClassDef)
    ]
    return sorted(found, key=lambda pair: -pair[0])


def attribute_probes(tree: Tree) -> Iterator[str]:
    """Calls of hasattr on `self` anywhere, and on anything in estimators."""
    for path, node in nodes(tree):
        if called(node) == "hasattr":
            first = ast.unparse(node.args[0]) if node.args else ""
            if first == "self" or path.parts[0] == "estimators":
                yield at(path, node)


def private_uses(tree: Tree) -> Iterator[str]:
    """Names with a leading underscore that another module defines."""
    defined_in = {path: {*definitions(module)} for path, module in tree.items()}
    anywhere = set().union(*defined_in.values())
    for path, module in tree.items():
        elsewhere = anywhere - defined_in[path]
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if is_private(alias.name):
                        yield f"{at(path, node)}: {alias.name}"
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and node.attr in elsewhere:
                    yield f"{at(path, node)}: {owner}.{node.attr}"


def private_uses_outside(tree: Tree, users: Tree) -> Iterator[str]:
    """Names of the package with a leading underscore that other code uses."""
    package = {name for module in tree.values() for name in definitions(module)}
    for path, module in users.items():
        hidden = package - {*definitions(module)}
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom):
                if (node.module or "").partition(".")[0] == SOURCE.name:
                    names = f"{node.module}.{node.names[0].name}".split(".")
                    names += [alias.name for alias in node.names[1:]]
                    for name in filter(is_private, names):
                        yield f"{at(path, node)}: {name}"
            elif isinstance(node, ast.Attribute) and is_private(node.attr):
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and node.attr in hidden:
                    yield f"{at(path, node)}: {owner}.{node.attr}"


def definitions(module: ast.Module) -> Iterator[str]:
    """Names that a module defines, attributes of `self` among them."""
    for node in ast.walk(module):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == "self":
                yield node.attr


def own_isinstance(tree: Tree) -> Iterator[str]:
    """Calls of isinstance with a class that the package defines."""
    own = {node.name for _, node in nodes(tree) if isinstance(node, ast.ClassDef)}
    for path, node in nodes(tree):
        if called(node) == "isinstance" and len(node.args) > 1:
            named = [n for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)]
            dotted = [n for n in ast.walk(node.args[1]) if isinstance(n, ast.Attribute)]
            names = {n.id for n in named} | {n.attr for n in dotted}
            if names & own:
                yield f"{at(path, node)}: {', '.join(sorted(names & own))}"


def long_functions(tree: Tree) -> Iterator[str]:
    """Functions of too many lines, docstrings included."""
    for path, node in nodes(tree):
        if isinstance(node, FUNCTIONS):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{at(path, node)}: {length}"


def nodes(tree: Tree) -> Iterator[tuple[Path, Any]]:
    """Every node of all files."""
    for path, module in tree.items():
        for node in ast.walk(module):
            yield path, node


def called(node: Any) -> str:
    """The name of the function that a node calls, or nothing."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def is_private(name: str) -> bool:
    """Whether a name has one leading underscore."""
    return name.startswith("_") and not name.startswith("__") and name != "_"


def at(path: Path, node: Any) -> str:
    """File and line of a node, and its name where it has one."""
    name = getattr(node, "name", "")
    return f"{path.as_posix()}:{node.lineno}" + f" {name}" * bool(name)


def touched(action: Callable[[], Any], source: Path) -> list[str]:
    """Files of a package of which a function is called by `action`."""
    prefix, found = f"{source}/", set()

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        del argument
        file = frame.f_code.co_filename
        # The body of a module runs when it is imported, which is no use of it.
        if event == "call" and frame.f_code.co_name != "<module>":
            if file.startswith(prefix):
                found.add(file.removeprefix(prefix))

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        action()
    finally:
        sys.setprofile(before)
    return sorted(found)


def traced_signs(source: Path = SOURCE) -> list[Sign]:
    """Files that a default fit and `load` use, compilation included."""
    import jax

    import farrier

    import_all(farrier)
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, COLUMNS))
    model = farrier.HorseshoeRegressor(random_state=0, **arguments(SETTINGS))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", farrier.TrainingWarning)
        fit = touched(lambda: model.fit(X, X[:, 0]), source)
        path = Path(folder) / "model.safetensors"
        model.save(path)
        jax.clear_caches()
        load = touched(lambda: farrier.load(path), source)
    return [
        Sign("files that a default fit uses", len(fit), FIT_FILES, (" ".join(fit),)),
        Sign("files that `load` uses", len(load), LOAD_FILES, (" ".join(load),)),
    ]


def import_all(package: Any) -> None:
    """Import every module of a package whose extra is installed."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except (ImportError, SystemExit):
                continue


def main(words: list[str] | None = None) -> None:
    """Print all signs."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.house", description=(__doc__ or "").splitlines()[0]
    )
    text = "Only the signs that are read off the sources."
    parser.add_argument("--static", action="store_true", help=text)
    only_static = parser.parse_args(words).static
    for sign in static_signs(SOURCE, ROOT):
        print(sign)
    if not only_static:
        for sign in traced_signs():
            print(sign)


if __name__ == "__main__":
    main()
