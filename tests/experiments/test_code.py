"""Which code counts for the rows of an experiment: what can change a number."""

import shutil
import sys
from pathlib import Path

import pytest

from experiments import _code, _marks, _rows
from experiments._code import Sources
from experiments._harness import Rows, Work, known
from experiments._names import NAMES

FILES = {
    "experiments/__init__.py": '"""Experiments."""\n',
    "experiments/one.py": '''"""What it shows."""

import numpy as np

from lib import Model

from . import tools
from .tools import mean as average

HOURS = "an hour"
FULL = 3
NOTES = "Words."
SCALES = [1.0]
SCALES += [2.0]
GIVEN = {"a": 1}
IN_SETTINGS = ("GIVEN",)


class Base:
    rows: int = 3

    def half(self) -> int:
        return self.rows // 2


class Config(Base):
    steps: int = 5


def parts(config, data):
    return {"a": lambda work: fit(config, GIVEN["a"])}


def fit(config: Config, value: float) -> list:
    """What it returns."""
    from .late import shift

    total: float = np.sum(SCALES) + shift(value)  # a comment
    if total < 0:
        raise ValueError(f"{total} is less than 0.")
    return [Model(total).predict(), tools.double(average([total]))]


def table(rows):
    return NOTES + tools.shown(rows)
''',
    "experiments/tools.py": """import math


def mean(values):
    return math.fsum(values) / len(values)


def double(x):
    table = 2 * x
    return table


def table(x):
    return 0


def shown(rows):
    return f"{len(rows)} rows"
""",
    "experiments/late.py": "def shift(x):\n    return x + 1\n",
    "lib/__init__.py": """from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Model


def __getattr__(name):
    return None
""",
    "lib/model.py": """from .kinds import KINDS
from .views import draw

SETTINGS = {}
SETTINGS["depth"] = 2
register(SETTINGS)


class Model:
    width: int = 3

    def __init__(self, total):
        self.total = total

    def predict(self):
        return KINDS["square"](self.total)

    def plot(self):
        return draw(self)

    def table(self):
        return "words"
""",
    "lib/kinds.py": """def square(x):
    return x * x


KINDS = {"square": square}
""",
    "lib/views.py": "def draw(model):\n    return 1\n",
}


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Whether the hash of `one` is another when a text in a file is replaced."""
    monkeypatch.setattr(_code, "NOT_COUNTED", ("lib.views",))
    settings = {("experiments.one", "Config"), ("experiments.one", "Base")}

    def hash_of(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        sources = Sources([tmp_path / "experiments", tmp_path / "lib"])
        return sources.hash({("experiments.one", "parts")}, settings)

    before = hash_of(FILES)

    def is_changed(file, old, new):
        assert FILES[file].count(old) == 1
        return hash_of(FILES | {file: FILES[file].replace(old, new)}) != before

    return is_changed


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("experiments/one.py", "SCALES += [2.0]", "SCALES += [2.5]"),
        ("experiments/one.py", "+ shift(value)", "- shift(value)"),
        ("experiments/one.py", "total < 0", "total < 1"),
        ("experiments/one.py", "raise ValueError", "raise TypeError"),
        ("experiments/one.py", "self.rows // 2", "self.rows // 3"),
        ("experiments/one.py", '{"a": lambda', '{"b": lambda'),
        ("experiments/one.py", "import numpy as np", "import jax.numpy as np"),
        ("experiments/one.py", "mean as average", "double as average"),
        ("experiments/tools.py", "/ len(values)", "/ (len(values) - 1)"),
        ("experiments/tools.py", "2 * x", "3 * x"),
        ("experiments/late.py", "x + 1", "x + 2"),  # imported in a function
        ("lib/model.py", "width: int = 3", "width: int = 4"),
        ("lib/model.py", '["depth"] = 2', '["depth"] = 3'),
        ("lib/model.py", "register(SETTINGS)", "register({})"),
        ("lib/kinds.py", "x * x", "x + x"),  # reached through a table
    ],
)
def test_a_change_that_may_change_a_number_counts(changed, file, old, new):
    assert changed(file, old, new)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("experiments/one.py", "What it returns.", "Other words."),
        ("experiments/one.py", '    """What it returns."""\n', ""),
        ("experiments/one.py", "What it shows.", "Other words."),
        ("experiments/one.py", "# a comment", "# another"),
        ("experiments/one.py", "total: float =", "total ="),
        ("experiments/one.py", "value: float) -> list", "value) -> tuple"),
        ("experiments/one.py", "is less than 0.", "is negative."),
        ("experiments/one.py", 'HOURS = "an hour"', "HOURS = 'a day'\n\n"),
        ("experiments/one.py", "FULL = 3", "FULL = 4"),
        ("experiments/one.py", "steps: int = 5", "steps: int = 6"),
        ("experiments/one.py", "rows: int = 3", "rows: int = 6"),
        ("experiments/one.py", '"Words."', '"Other words."'),
        ("experiments/one.py", '{"a": 1}', '{"a": 2}'),  # named in IN_SETTINGS
        ("experiments/one.py", "NOTES + tools", "tools"),
        ("experiments/tools.py", "return 0", "return 1"),  # a local has its name
        ("experiments/tools.py", '{len(rows)} rows"', '{len(rows)}"'),
        ("lib/model.py", "width: int", "width: float"),
        ("lib/views.py", "return 1", "return 2"),
        ("lib/model.py", '"words"', '"other words"'),
    ],
)
def test_a_change_that_changes_no_number_does_not_count(changed, file, old, new):
    assert not changed(file, old, new)


GIVEN_MODULE = """LIMIT = 3


class Model:
    width: int = 3

    def __init__(self, total=2, *, depth=1, name):
        self.total = total

    def predict(self, scale=1):
        return min(self.total, LIMIT) * scale


def parts():
    return Model()
"""


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("LIMIT = 3", "LIMIT = 4", False),
        ("width: int = 3", "width: int = 4", False),
        ("total=2", "total=3", False),
        ("depth=1", "depth=2", False),
        ("scale=1", "scale=2", True),
        ("self.total = total", "self.total = 2", True),
        ("* scale", "", True),
    ],
)
def test_defaults_that_each_part_gives_do_not_count(tmp_path, old, new, counts):
    folder = tmp_path / "pack"
    folder.mkdir()

    def hash_of(text, given):
        (folder / "a.py").write_text(text)
        return Sources([folder]).hash({("pack.a", "parts")}, given=given)

    given, changed = ("pack.a.LIMIT", "pack.a.Model"), GIVEN_MODULE.replace(old, new)
    assert (hash_of(GIVEN_MODULE, given) != hash_of(changed, given)) == counts
    assert hash_of(GIVEN_MODULE, ()) != hash_of(changed, ())


def test_a_module_whose_name_alone_is_used_counts_whole(tmp_path):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "a.py").write_text("from . import b\n\ndef f(): return vars(b)\n")
    (folder / "b.py").write_text("X = 1\n\ndef g(): return X\n")
    reached = Sources([folder]).reached({("pack.a", "f")})
    assert reached == {("pack.a", "f"), ("pack.b", "X"), ("pack.b", "g")}


def test_the_code_of_an_experiment_is_apart_from_its_words(tmp_path):
    """In a copy of the real files."""
    copy = tmp_path / "experiments"
    shutil.copytree(
        Path(_code.__file__).parent, copy, ignore=lambda *_: ["__pycache__"]
    )
    file = copy / "uci_peers.py"
    text = file.read_text()
    start = ("experiments.uci_peers", "parts")

    def hash_with(old, new):
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
        return Sources([copy]).hash({start})

    same = hash_with("def table(", "def table(")
    assert hash_with('NOTES = """', 'NOTES = """More. ') == same
    assert hash_with("def table(", "def another(") == same
    assert hash_with("def claims(", "def others(") == same
    assert hash_with("KEPT = (", 'KEPT = ("more", ') != same


@pytest.mark.parametrize("name", NAMES)
def test_the_words_of_every_experiment_do_not_count(name):
    code = _marks.sources()
    module = f"experiments.{known(name).__name__.rpartition('.')[2]}"
    reached = code.reached(code.resolve(f"{module}.parts"))
    assert len(reached) > 10
    words = {"table", "claims", "cells", "render", "NOTES", "HOURS", "FULL", "SMOKE"}
    assert not {
        (m, n) for m, n in reached if m.startswith("experiments.") and n in words
    }
    assert not {m for m, _ in reached if m.startswith("farrier.cli")}


@pytest.mark.slow
def test_all_functions_that_run_are_among_those_that_count(tmp_path):
    """The interpreter tells which functions a part calls."""
    name, config = "structure", known("structure").SMOKE
    code = _marks.sources()
    reached = code.reached(code.resolve(f"experiments.{name}.parts"))
    module_of = {str(file): module for module, file in code.files.items()}
    called = set()

    def note(frame, event, argument):
        module = module_of.get(frame.f_code.co_filename)
        first = frame.f_code.co_qualname.partition(".")[0]
        if event == "call" and module and not first.startswith("<"):
            called.add((module, first))

    parts = known(name).parts(config, Path())
    work = Work(tmp_path, lambda share, text: None, Rows())
    sys.setprofile(note)
    try:
        rows = next(iter(parts.values()))(work)
        _rows.plain(rows)
    finally:
        sys.setprofile(None)
    reporting = {"experiments._rows", "experiments._harness"}
    lazy = {("farrier", "__getattr__"), ("farrier.estimators", "__getattr__")}
    expected = {
        symbol
        for symbol in called - lazy
        if symbol[0] not in reporting
        and not symbol[0].startswith(_code.NOT_COUNTED)
        and symbol[0].partition(".")[0] in ("farrier", "experiments")
    }
    assert expected <= reached
    assert len(expected) > 100
