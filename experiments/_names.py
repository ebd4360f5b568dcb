"""Which experiments there are, and how long each takes; found without importing any."""

import ast
from importlib import import_module
from pathlib import Path
from types import ModuleType

NAMES = ("cubic", "structure", "ablation", "uci", "gestures", "mnist")
NAMES += (
    "choose",
    "choose-classes",
    "noise",
    "uci-default",
    "uci-before",
    "uci-refined",
    "covtype",
    "uci-peers",
    "frontier",
    "pruned",
    "selection",
)  # ours, beyond the paper

RECIPES = ("default", "refined")  # on the tables of `uci`: uci-default, uci-refined


def module_name(name: str) -> str:
    """The file of an experiment, without its ending."""
    return name.replace("-", "_")


def known(name: str) -> ModuleType:
    """The experiment of this name, which is imported."""
    if name not in NAMES:
        raise ValueError(
            f"There is no experiment {name!r}. There are {', '.join(NAMES)}, and `all`."
        )
    return import_module(f"{__package__}.{module_name(name)}")


def hours() -> dict[str, str]:
    """The text HOURS of each experiment, read off its source: JAX is not started."""
    found = {}
    for name in NAMES:
        source = (
            Path(__file__)
            .with_name(f"{module_name(name)}.py")
            .read_text(encoding="utf-8")
        )
        for node in ast.parse(source).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HOURS":
                found[name] = str(ast.literal_eval(node.value))
    return found
