"""The signs of the house: all are printed, and planted violations are seen."""

import importlib
import sys

import pytest

from benchmarks import house


def plant(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {sign.name: sign for sign in house.static_signs(folder)}


METHODS = "methods of the largest class"
FILES = "files over 450 lines"
PROBES = "hasattr on ourselves, and in estimators"
PRIVATE = "private names outside their module"
CHECKS = "isinstance on our own classes"
FUNCTIONS = "functions over 60 lines"
LINES = "lines of the package"


def large_class(methods):
    body = "".join(f"    def m{i}(self): ...\n" for i in range(methods))
    return f"class Large:\n{body}"


def long_function(lines):
    return "def long():\n" + "    pass\n" * (lines - 1)


def test_a_tree_within_the_limits_is_ok(tmp_path):
    signs = plant(
        tmp_path,
        {
            "a.py": large_class(20) + long_function(60),
            "b.py": "x = 1\n" * 450,
            "c.py": "class C:\n"
            "    def f(self): return self._x, C()._y, hasattr(1, 'a')\n"
            "    def _y(self): return isinstance(1, int)\n",
        },
    )
    over = [sign for sign in signs.values() if sign.value > sign.limit]
    assert not over
    assert all(str(sign).startswith("OK") for sign in signs.values())
    assert signs[METHODS].value == 20
    assert signs[LINES].value == 21 + 60 + 450 + 3


@pytest.mark.parametrize(
    ("name", "files", "place"),
    [
        (METHODS, {"a.py": large_class(21)}, "a.py:1 Large: 21"),
        (FILES, {"deep/a.py": "x = 1\n" * 451}, "deep/a.py: 451"),
        (PROBES, {"a.py": "def f(self): return hasattr(self, 'x_')\n"}, "a.py:1"),
        (PROBES, {"estimators/a.py": "hasattr(model, 'x_')\n"}, "estimators/a.py:1"),
        (PRIVATE, {"a.py": "from .b import _hidden\n"}, "a.py:1: _hidden"),
        (
            PRIVATE,
            {"a.py": "os._exit(1)\nb._hidden()\n", "b.py": "def _hidden(): ...\n"},
            "a.py:2: b._hidden",
        ),
        (FUNCTIONS, {"a.py": long_function(61)}, "a.py:1 long: 61"),
    ],
)
def test_a_planted_violation_is_seen(tmp_path, name, files, place):
    signs = plant(tmp_path, files)
    over = [sign.name for sign in signs.values() if sign.value > sign.limit]
    assert over == [name]
    assert signs[name].places == (place,)
    assert str(signs[name]).startswith("over")
    assert place in str(signs[name])


def test_private_names_that_experiments_use_are_seen(tmp_path):
    source = tmp_path / "src" / "farrier"
    plant(source, {"a.py": "class A:\n    def _hidden(self): ...\n"})
    plant(
        tmp_path,
        {
            "experiments/b.py": "from farrier.a import A\nA()._hidden()\n",
            "experiments/c.py": "from . import _own\n_own._mine()\n",
            "benchmarks/d.py": "from farrier.a import _helper\n",
            "benchmarks/e.py": "from farrier._folder import A\n",
        },
    )
    signs = {sign.name: sign for sign in house.static_signs(source, tmp_path)}
    assert signs[PRIVATE].places == (
        "experiments/b.py:2: A()._hidden",
        "benchmarks/d.py:1: _helper",
        "benchmarks/e.py:1: _folder",
    )


def test_isinstance_counts_our_own_classes_alone(tmp_path):
    text = "class A: ...\nclass B: ...\n"
    text += "isinstance(x, A)\nisinstance(x, (int, mod.B))\nisinstance(x, int)\n"
    signs = plant(tmp_path, {"a.py": text})
    assert signs[CHECKS].places == ("a.py:3: A", "a.py:4: B")
    signs = plant(tmp_path, {"a.py": text + "isinstance(x, A)\n" * 19})
    assert signs[CHECKS].value == 21
    assert str(signs[CHECKS]).startswith("over")
    assert "and 16 more" in str(signs[CHECKS])


def test_files_are_touched_by_calls_not_by_imports(tmp_path, monkeypatch):
    package = tmp_path / "planted"
    plant(
        package,
        {
            "__init__.py": "",
            "used.py": "def f(): return 1\n",
            "imported.py": "def g(): return 1\n",
        },
    )
    monkeypatch.syspath_prepend(tmp_path)

    def action():
        importlib.import_module("planted.imported")
        importlib.import_module("planted.used").f()

    assert house.touched(action, package) == ["used.py"]
    assert sys.getprofile() is None


def test_all_signs_of_the_package_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(house, "SETTINGS", {"max_iter": 3, "n_draws": 4})
    house.main([])
    printed = capsys.readouterr().out
    traced = "files that a default fit uses", "files that `load` uses"
    names = METHODS, FILES, PROBES, PRIVATE, CHECKS, FUNCTIONS, LINES, *traced
    lines = [line for line in printed.splitlines() if "at most" in line]
    assert [line.split("  ")[-1] for line in lines] == [*names]
    assert all(line.split()[0] in ("OK", "over") for line in lines)
    assert "estimators/regressor.py" in printed or "estimators/base.py" in printed
    (fitted,) = (line for line in lines if traced[0] in line)
    assert int(fitted.split()[1]) > 5
