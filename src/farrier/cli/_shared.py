"""What commands share: options, notes, outputs that must not be there yet."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..estimators import TableModel

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file that `farrier fit` wrote.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, no text.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Write over a file that is there already.")
]


@contextmanager
def notes(*, quiet: bool = False) -> Iterator[list[str]]:
    """Warnings become lines on standard error, each once, and entries of a list."""
    said: list[str] = []

    def show(message: Any, *_: Any, **__: Any) -> None:
        if (text := " ".join(str(message).split())) not in said:
            said.append(text)
            if not quiet:
                typer.echo(f"Note: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield said


def check_output(path: Path, *, force: bool) -> None:
    """Refuse an output that could not be written, or that would be written over."""
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise ValueError(f"There is no folder {str(path.parent)!r}.")
    if path.exists() and not force:
        raise ValueError(
            f"{str(path)!r} is there already. Name another file, or give --force."
        )
    from ..tables.files import check_writable

    check_writable(path)


def load_table_model(path: Path) -> "TableModel":
    """A model that takes tables, whoever wrote it."""
    from ..estimators import TableModel, load

    model = load(path)
    return model if isinstance(model, TableModel) else TableModel.around(model)


def show(found: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    """What a command found: for machines, or for people."""
    typer.echo(json.dumps(plain(found)) if as_json else "\n".join(lines))


def plain(value: Any) -> Any:
    """The value with nothing but what strict JSON has: no NaN, no arrays."""
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


def sampling_of(estimator: Any) -> dict[str, Any] | None:
    """How the sampling went, where there was any: its figures, and all in one line."""
    sampling = getattr(estimator, "sampling_", None)
    return sampling and asdict(sampling) | {"text": str(sampling)}


def scores_line(scores: dict[str, float]) -> str:
    """Hold-out figures in words."""
    words = {
        "rmse": ("RMSE {:.4g}", 1),
        "mae": ("mean absolute error {:.4g}", 1),
        "error": ("error {:.2f} %", 100),
        "log_density": ("log density {:.4f} nats a row", 1),
        "brier": ("Brier score {:.4f}", 1),
    }
    used = {name: word for name, word in words.items() if name in scores}
    parts = [text.format(unit * scores[name]) for name, (text, unit) in used.items()]
    covered = {n: v for n, v in scores.items() if n.startswith("coverage_")}
    if covered:
        inside = ", ".join(f"{100 * v:.1f}" for v in covered.values())
        levels = ", ".join(name.removeprefix("coverage_") for name in covered)
        parts.append(f"{inside} % within the intervals of {levels} %")
    return ", ".join(parts)
