"""What commands share: options, warnings, checks of outputs, JSON."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..tables.model import TableModel

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file of `farrier fit`.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object in place of text.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


@contextmanager
def notes(*, quiet: bool = False) -> Iterator[list[str]]:
    """Print each warning once, on standard error, and collect them in a list."""
    collected: list[str] = []

    def show(message: Any, *_: Any, **__: Any) -> None:
        if (text := " ".join(str(message).split())) not in collected:
            collected.append(text)
            if not quiet:
                typer.echo(f"Note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield collected


def check_output(path: Path, *, force: bool) -> None:
    """Raise an error if an output could not be written, or exists already."""
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder, not a file.")
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {str(path.parent)!r}.")
    if path.exists() and not force:
        raise ValueError(
            f"{str(path)!r} exists already. Choose another name, or give --force."
        )
    from ..tables.files import check_writable

    check_writable(path)


def load_table_model(path: Path) -> "TableModel":
    """Load a model that takes tables, from `farrier fit` or from Python."""
    from ..estimators.files import load
    from ..tables.model import TableModel, parts_of

    model: Any = load(path)
    estimator, columns = parts_of(model)
    return TableModel.around(estimator) if columns is None else model


def show(values: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """Print the result of a command, as JSON or as text."""
    typer.echo(json.dumps(plain(values)) if as_json else "\n".join(lines))


def plain(value: Any) -> Any:
    """The value with the types of strict JSON alone: no NaN, no arrays."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    known = value is None or isinstance(value, bool | int | float | str)
    return value if known else str(value)


def scores_line(scores: dict[str, float]) -> str:
    """Scores of held-out rows as text."""
    words = {
        "rmse": ("RMSE {:.4g}", 1),
        "mae": ("mean absolute error {:.4g}", 1),
        "error": ("error {:.2f} %", 100),
        "log_density": ("log density {:.4f} nats per row", 1),
        "brier": ("Brier score {:.4f}", 1),
    }
    used = {name: word for name, word in words.items() if name in scores}
    parts = [text.format(unit * scores[name]) for name, (text, unit) in used.items()]
    coverage = {n: v for n, v in scores.items() if n.startswith("coverage_")}
    if coverage:
        shares = ", ".join(f"{100 * v:.1f}" for v in coverage.values())
        levels = ", ".join(name.removeprefix("coverage_") for name in coverage)
        parts.append(f"coverage {shares} % of the {levels} % intervals")
    return ", ".join(parts)
