"""Which experiments there are, and how long each takes; found without importing any."""

import ast
from pathlib import Path

NAMES = ("cubic", "structure", "ablation", "uci", "gestures", "mnist")
NAMES += (
    "choose",
    "noise",
    "uci-default",
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
