"""A hash of the code that makes the rows of an experiment, read off the sources.

Code counts by definition, not by file: a function, class or constant at the top of a
module counts if its name is reached from the experiment's `parts`, through any modules
of this repository and through imports inside functions. Outside packages do not count.

What cannot change a number does not count either:

- docstrings, comments, layout, type annotations, and the texts of raised errors;
- what `parts` does not reach: `table`, `claims`, `render`, `NOTES` and the settings
  `FULL`, whose values are in the mark of each part; methods of those names too;
- fields of the class of the settings, and tables that a module names in `IN_SETTINGS`,
  for the same reason;
- defaults of the package whose values each part gives itself, by the full names that an
  experiment lists in `GIVEN`: constants, and the fields and default arguments of
  classes. So a new default leaves the rows valid that it was chosen by;
- the modules of `NOT_COUNTED`, which show a fit and change nothing in it.
"""

import ast
import hashlib
import symtable
from collections.abc import Iterable, Iterator, Set
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "experiments", ROOT / "benchmarks", ROOT / "src" / "farrier")
# Estimators reach them: descriptions and figures of a fit; progress bars.
NOT_COUNTED = ("farrier.views", "farrier.console")
# A module may list the tables whose values are in the settings of each part.
IN_SETTINGS = "IN_SETTINGS"
SHOWN_BY = {"table", "claims", "cells", "render"}  # methods that only show rows
RUN_AT_IMPORT = ""  # the name of statements that define nothing

Symbol = tuple[str, str]  # a module, and a name that is defined at its top


class _Bare(ast.NodeTransformer):
    """Removes from code what cannot change a number."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", None) == []:
            node.body = [ast.Pass()]  # type: ignore[attr-defined]
        return node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        constant = node.value.value if isinstance(node.value, ast.Constant) else None
        return None if isinstance(constant, str) else self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [e for e in node.body if getattr(e, "name", None) not in SHOWN_BY]
        for each in node.body:
            if isinstance(each, ast.AnnAssign):
                each.annotation = ast.Constant(...)  # a field, of whatever type
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if isinstance(node.annotation, ast.Constant) and node.annotation.value is ...:
            return self.generic_visit(node)  # marked by `visit_ClassDef`
        if node.value is None:
            return None
        assign = ast.Assign([node.target], node.value, lineno=node.lineno)
        return self.generic_visit(assign)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        return self.generic_visit(node)


@dataclass(frozen=True)
class _Module:
    """Statements at the top of a module by the names that they define, and imports."""

    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)  # full names, by local ones


class Sources:
    """The modules in some folders, each the folder of a package."""

    def __init__(self, folders: Iterable[Path] = FOLDERS) -> None:
        self.files = {
            ".".join([folder.name, *_inner_name(file.relative_to(folder))]): file
            for folder in folders
            for file in folder.rglob("*.py")
        }
        self.module = cache(self._module)
        self.uses = cache(self._uses)

    def _package(self, module: str) -> str:
        is_package = self.files[module].name == "__init__.py"
        return module if is_package else module.rpartition(".")[0]

    def _module(self, name: str) -> _Module:
        tree = ast.parse(self.files[name].read_text(encoding="utf-8"))
        module = _Module()
        for statement in _Bare().visit(tree).body:
            if isinstance(statement, ast.Pass):
                continue  # what is left of a file that is a docstring
            inner = _outside_functions(statement)
            module.imports.update(_imports(inner, self._package(name)))
            for defined in _defined(statement, {*module.statements}):
                module.statements.setdefault(defined, []).append(statement)
        for statement in module.statements.pop(IN_SETTINGS, []):
            for held in ast.literal_eval(statement.value):  # type: ignore[attr-defined]
                module.statements[held] = []
        return module

    def resolve(self, name: str) -> set[Symbol]:
        """The definitions behind a full name; none if it is of an outside package.

        They are all of a module if the name is its own, or one that it does not define.
        """
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module not in self.files:
                continue
            known, rest = self.module(module), parts[length:]
            if rest and rest[0] in known.statements:
                return {(module, rest[0])}
            if rest and rest[0] in known.imports:
                return self.resolve(".".join([known.imports[rest[0]], *rest[1:]]))
            return {(module, each) for each in known.statements}
        return set()

    def _statements(self, symbol: Symbol, *, fields: bool) -> list[ast.stmt]:
        statements = self.module(symbol[0]).statements[symbol[1]]
        return statements if fields else [*map(_without_fields, statements)]

    def _is_class(self, symbol: Symbol) -> bool:
        statements = self.module(symbol[0]).statements[symbol[1]]
        return all(isinstance(each, ast.ClassDef) for each in statements)

    def _uses(self, symbol: Symbol, *, fields: bool) -> dict[str, set[Symbol] | str]:
        """What the names in a definition stand for: definitions, or outside names."""
        name = symbol[0]
        module, package = self.module(name), self._package(name)
        used: dict[str, set[Symbol] | str] = {}
        for statement in self._statements(symbol, fields=fields):
            inner = dict(_imports(ast.walk(statement), package))
            known = module.imports | inner
            names = _global_names(statement) | {*inner}
            for first, *rest in _dotted_names(statement):
                if first in names and (first in known or first in module.statements):
                    full = ".".join([known.get(first, f"{name}.{first}"), *rest])
                    used[".".join([first, *rest])] = self.resolve(full) or full
        return used

    def reached(
        self,
        starts: Iterable[Symbol],
        settings: Set[Symbol] = frozenset(),
        given: Set[Symbol] = frozenset(),
    ) -> set[Symbol]:
        """All definitions that some reach by name, directly or not, and themselves.

        Of classes of settings, the fields are left out; and all of what is given.
        """
        seen: set[Symbol] = set()
        waiting = {*starts, *settings}
        while waiting:
            symbol = waiting.pop()
            if symbol in seen | given or _is_in(symbol[0], NOT_COUNTED):
                continue
            seen.add(symbol)
            waiting |= self._run_before(symbol[0])
            for target in self.uses(symbol, fields=symbol not in settings).values():
                waiting |= target if isinstance(target, set) else set()
        return seen

    def _run_before(self, module: str) -> set[Symbol]:
        """Statements that run when a module is imported, and define nothing."""
        parts = module.split(".")
        around = (".".join(parts[: n + 1]) for n in range(len(parts)))
        return {
            (each, RUN_AT_IMPORT)
            for each in around
            if each in self.files and RUN_AT_IMPORT in self.module(each).statements
        }

    def hash(
        self,
        starts: Iterable[Symbol],
        settings: Set[Symbol] = frozenset(),
        given: Iterable[str] = (),
    ) -> str:
        """sha256 of all that `reached` returns.

        Parameters
        ----------
        given
            Full names of definitions whose values do not count.
        """
        digest = hashlib.sha256()
        values = {symbol for name in given for symbol in self.resolve(name)}
        classes = {symbol for symbol in values if self._is_class(symbol)}
        settings = settings | classes
        for symbol in sorted(self.reached(starts, settings, values - classes)):
            fields = symbol not in settings
            code = _dump(self._statements(symbol, fields=fields))
            digest.update(f"{'.'.join(symbol)}: {code}\n".encode())
            for name, target in sorted(self.uses(symbol, fields=fields).items()):
                text = target if isinstance(target, str) else sorted(target)
                digest.update(f"{name} is {text}\n".encode())
        return digest.hexdigest()


def _inner_name(file: Path) -> tuple[str, ...]:
    parts = file.with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _is_in(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    """A statement and those within it that run with it."""
    yield statement
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for inner in ast.iter_child_nodes(statement):
            yield from _outside_functions(inner)


def _imports(nodes: Iterable[ast.AST], package: str) -> Iterator[tuple[str, str]]:
    """Names that are imported, each with its full name."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                yield alias.asname or alias.name, f"{origin}.{alias.name}"


def _defined(statement: ast.stmt, before: set[str]) -> set[str]:
    """Names that a statement defines, or to whose values it assigns."""
    names: set[str] = set()
    imports = False
    for node in _outside_functions(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript):
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                names |= {node.value.id} & before
        imports |= isinstance(node, ast.Import | ast.ImportFrom)
    return names or (set() if imports else {RUN_AT_IMPORT})


def _global_names(statement: ast.stmt) -> set[str]:
    """Names in a statement that are not local to a function or class in it."""

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        at_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (at_top or symbol.is_global()):
                yield symbol.get_name()
        for inner in table.get_children():
            yield from names(inner)

    text = ast.unparse(ast.fix_missing_locations(statement))
    return {*names(symtable.symtable(text, "source", "exec"))}


def _dotted_names(node: ast.AST) -> Iterator[list[str]]:
    """Names in some code with the attributes that follow: `np`, `sum` of `np.sum`."""
    attributes, inner = [], node
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        yield [inner.id, *reversed(attributes)]
        return
    for child in ast.iter_child_nodes(node):
        yield from _dotted_names(child)


def _without_fields(statement: ast.stmt) -> ast.stmt:
    if not isinstance(statement, ast.ClassDef):
        return statement
    methods = [each for each in statement.body if not isinstance(each, ast.AnnAssign)]
    shorter = copy(statement)
    shorter.body = [*map(_without_defaults, methods)] or [ast.Pass()]
    return shorter


def _without_defaults(method: ast.stmt) -> ast.stmt:
    """A constructor whose default arguments are all None; else the same."""
    if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
        return method
    shorter = copy(method)
    shorter.args = copy(method.args)
    none = ast.Constant(None)
    shorter.args.defaults = [none for _ in method.args.defaults]
    shorter.args.kw_defaults = [d and none for d in method.args.kw_defaults]
    return shorter


def _dump(value: object) -> str:
    """Code as text, the same for all versions of Python."""
    if isinstance(value, list):
        return f"[{', '.join(map(_dump, value))}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    parts = [
        f"{name}={_dump(inner)}"
        for name, inner in ast.iter_fields(value)
        if name not in ("ctx", "kind") and inner is not None and inner != []
    ]
    return f"{type(value).__name__}({', '.join(parts)})"
