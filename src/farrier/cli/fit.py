"""`farrier fit`: a table in a file becomes a model in a file."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._processes import Coordinator, Distributed, Processes, Rank, joined
from ._shared import Force, Json, check_output, notes, sampling_of, scores_line, show

if TYPE_CHECKING:
    from ..estimators import TableModel
    from ..tables import Columns
    from ..tables.files import Frame

TESTED = 2**17  # held-out rows that are scored at once
ENDINGS = {
    "converged": "converged",
    "budget": "used its whole budget; more may be gained with a larger --max-iter",
    "interrupted": "interrupted",
    "not finite": "stopped, for the bound was no longer finite",
}


@joined
def fit(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table: CSV (or .csv.gz), Parquet; "
            "or a folder of Parquet files, which may be larger than memory.",
        ),
    ],
    target: Annotated[str, typer.Option("--target", help="The column to predict.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the model.")
    ] = Path("model.safetensors"),
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="regression or classification; by default found from the target.",
        ),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(
            "--missing",
            help="error: missing values are refused. impute: they are filled in, and "
            "one more feature tells where.",
        ),
    ] = "error",
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="A column to leave out; may be repeated."),
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(
            "--holdout", help="Share of the rows that are kept apart, to test with."
        ),
    ] = 0.0,
    hidden: Annotated[
        str | None,
        typer.Option(
            "--hidden", help="Nodes of each hidden layer, such as 100 or 100,50."
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(
            "--prior", help="By default narrow-horseshoe; of classes horseshoe."
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            "--likelihood",
            help="gaussian: the same noise for all rows. By default heteroscedastic: "
            "it depends on the row. For regression alone; of "
            "gaussian,heteroscedastic, --restarts mixes both.",
        ),
    ] = None,
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts", help="Mix so many fits, each from a seed of its own."
        ),
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine", help="nuts or mclmc: sample the posterior after the fit."
        ),
    ] = None,
    input_horseshoe: Annotated[
        bool,
        typer.Option(
            "--input-horseshoe", help="Switch off features that are not needed, too."
        ),
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="Settings with a name: paper, or refined."),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(
            "--max-iter",
            help="Most passes over the rows; by default what suits their number.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Equal seeds give equal models.")
    ] = 0,
    stream: Annotated[
        bool,
        typer.Option(
            "--stream",
            help="Read Parquet piece by piece in each pass; so it is for a folder, and "
            "for a file of more than 1 GiB (as numbers of 8 bytes).",
        ),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was stopped.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    rank: Rank = None,
    placement: Any = None,
) -> None:
    """Fit a network to a table; it chooses its own width.

    Ctrl-C keeps what was learned; the same command with --resume then goes on.
    """
    del distributed, coordinator, processes, rank  # `joined` has used them
    checkpoint = output.parent / f"{output.name}.checkpoint"
    first = placement is None or placement.group.is_first
    if first:
        _check_files(output, checkpoint, resume=resume, force=force)
    silent = as_json or not first
    say: Callable[[str], None] = (lambda text: None) if silent else typer.echo
    from ..scale.parquet import is_large

    read = _streamed if stream or is_large(data) else _in_memory
    if read is _streamed and (refine is not None or preset == "refined"):
        option = "--refine" if refine is not None else "--preset refined"
        raise ValueError(
            f"{option} needs all rows in memory: leave it out, or give a table "
            "that fits there."
        )
    table = read(data, target, drop or [], task, missing, holdout, seed)
    columns = table.columns
    chosen = {
        "prior": prior,
        "likelihood": _several(likelihood),
        "n_restarts": restarts,
        "input_horseshoe": input_horseshoe,
        "refine": refine,
        "max_iter": max_iter,
    }
    estimator = _estimator(columns.task, table.rows, hidden, preset, chosen, seed)
    about = {"file": data.name, "rows": table.rows, "why": table.why}
    about["columns"] = table.described
    for line in _table_lines(columns, about, table.tested):
        say(line)
    with notes(quiet=not first) as said:
        model = _fitted(table, estimator, checkpoint, about, placement, quiet=not first)
        interrupted = model.estimator.history_.status == "interrupted"
        if interrupted and not len(model.estimator.history_.step):
            raise KeyboardInterrupt
        if not first:
            if interrupted:
                raise typer.Exit(130)
            return
        if table.tested and not interrupted:
            about["holdout"] = {"rows": table.tested} | _scores(model, table.test())
        model.save(output)
    if not interrupted:
        _remove(checkpoint)
    found = _found(model, output) | {"notes": said}
    show(found, _fit_lines(found), as_json=as_json)
    if interrupted:
        typer.echo(
            f"Stopped. {str(output)!r} holds the model so far; the same command with "
            "--resume goes on from here.",
            err=True,
        )
        raise typer.Exit(130)


def _check_files(output: Path, checkpoint: Path, *, resume: bool, force: bool) -> None:
    check_output(output, force=force or resume)
    if resume and force:
        raise ValueError("Give --resume or --force, not both.")
    if resume and output.exists() and not checkpoint.exists():
        raise ValueError(
            f"There is nothing to go on with: no {str(checkpoint)!r}. Give --force to "
            "fit anew."
        )
    if force:
        _remove(checkpoint)
    if checkpoint.exists() and not resume:
        raise ValueError(
            f"{str(checkpoint)!r} is of a fit that was stopped. Give --resume to go on "
            "with it, or --force to start anew."
        )


def _remove(checkpoint: Path) -> None:
    """Delete a checkpoint; several fits have numbered ones, one after the other."""
    from ..checkpoint import numbered

    number = 0
    while (file := numbered(checkpoint, number)).exists():
        file.unlink()
        number += 1


@dataclass(frozen=True)
class _Table:
    """A table to fit, wherever its rows are."""

    columns: "Columns"
    why: str  # the task is what it is
    rows: int  # to train on
    described: list[dict[str, Any]]
    train: tuple[Any, ...]  # the rows as `fit` takes them
    tested: int
    test: Callable[[], Iterable["Frame"]]  # held-out rows, piece by piece


def _in_memory(
    data: Path,
    target: str,
    drop: list[str],
    task: str | None,
    missing: str,
    holdout: float,
    seed: int,
) -> _Table:
    from ..tables import find_task, learn, read_table
    from ..tables.table import column_of

    frame = _without(read_table(data), drop, target)
    found_task, why = find_task(column_of(frame, target))
    task, why = (task, "--task says so.") if task else (found_task, why)
    train, test = _split(frame, target, task, holdout, seed)
    learned = learn([train], target, missing=missing, task=task, sample_rows=None)
    columns = learned.columns
    return _Table(
        columns,
        why,
        len(train),
        learned.described,
        (columns.features(train), columns.targets(train)),
        len(test),
        lambda: [test],
    )


def _streamed(
    data: Path,
    target: str,
    drop: list[str],
    task: str | None,
    missing: str,
    holdout: float,
    seed: int,
) -> _Table:
    from ..scale.rows import Lottery, ParquetRows

    _check_share(holdout)
    _without(ParquetRows(data).frame(0, 1), drop, target)
    lottery = Lottery(holdout, seed, drawn=False) if holdout else None
    train = ParquetRows(
        data, target, missing=missing, task=task, drop=drop, lottery=lottery
    )
    columns, why = train.columns, "--task says so." if task else train.learned.why
    test = train.others() if lottery else None
    tested = test.rows if test else 0

    def frames() -> Iterator["Frame"]:
        assert test is not None
        for first in range(0, test.rows, TESTED):
            yield test.frame(first, min(first + TESTED, test.rows))

    return _Table(
        columns, why, train.rows, train.learned.described, (train,), tested, frames
    )


def _scores(model: "TableModel", frames: Iterable["Frame"]) -> dict[str, float]:
    """Scores of rows that come piece by piece."""
    found = [(len(frame), model.scores(frame)) for frame in frames if len(frame)]
    if len(found) == 1:
        return found[0][1]
    rows, parts = zip(*found, strict=True)
    power = {"rmse": 2}

    def mean(name: str) -> float:
        p = power.get(name, 1)
        total = sum(n * part[name] ** p for n, part in zip(rows, parts, strict=True))
        return (total / sum(rows)) ** (1 / p)

    return {name: mean(name) for name in parts[0]}


def _check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError(f"--holdout is a share from 0 to less than 1, got {share}.")


def _without(frame: "Frame", drop: list[str], target: str) -> "Frame":
    from ..tables.table import column_of

    for name in drop:
        column_of(frame, name)
    if target in drop:
        raise ValueError(f"--drop names the target, {target!r}.")
    return frame.drop(columns=drop)


def _split(
    frame: "Frame", target: str, task: str, share: float, seed: int
) -> tuple["Frame", "Frame"]:
    """Rows to train on and rows to test with; every label has a row in the first."""
    import numpy as np

    _check_share(share)
    order = np.random.default_rng(seed).permutation(len(frame))
    free = order
    if task == "classification":
        free = order[frame[target].iloc[order].duplicated().to_numpy()]
    count = round(share * len(frame))
    if count > len(free) or len(frame) - count < 2:
        raise ValueError(
            f"--holdout {share} of {len(frame)} rows leaves too few to train on."
        )
    test = np.zeros(len(frame), bool)
    test[free[:count]] = True
    return frame[~test], frame[test]


def _estimator(
    task: str,
    rows: int,
    hidden: str | None,
    preset: str | None,
    chosen: dict[str, Any],
    seed: int,
) -> Any:
    from .. import presets
    from ..tables.model import CLASSES

    known: dict[str, Callable[[], dict[str, Any]]] = {
        "paper": presets.paper,
        "refined": lambda: presets.refined(rows),
    }
    if preset is not None and preset not in known:
        raise ValueError(f"--preset must be one of {[*known]}, got {preset!r}.")
    settings = known[preset]() if preset else {}
    if task == "classification":
        settings.pop("likelihood", None)
    if hidden is not None:
        settings["hidden_layer_sizes"] = _widths(hidden)
    settings |= {name: value for name, value in chosen.items() if value is not None}
    return CLASSES[task](**settings, random_state=seed)


def _several(text: str | None) -> str | tuple[str, ...] | None:
    """A name, or several with commas between them."""
    return tuple(text.split(",")) if text and "," in text else text


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--hidden must be whole numbers such as 100 or 100,50, got {text!r}."
        ) from None


def _fitted(
    table: _Table,
    estimator: Any,
    checkpoint: Path,
    about: dict,
    placement: Any,
    *,
    quiet: bool,
) -> "TableModel":
    from ..console import progress
    from ..estimators import TableModel
    from ..scale.placement import ONE_DEVICE

    with nullcontext(lambda *_: None) if quiet else progress("fit", 100) as report:

        def tell(share: float, history: Any) -> None:
            left = sum(len(removal.nodes) for removal in history.removed)
            note = f"bound {history.bound[-1] / table.rows:.3f} nats a row"
            if left:
                note += f", {left} nodes have left"
            report(round(100 * share), note)

        estimator.fit(
            *table.train,
            checkpoint=checkpoint,
            callback=tell,
            placement=placement or ONE_DEVICE,
        )
    return TableModel(table.columns, estimator, about)


def _table_lines(columns: "Columns", about: dict[str, Any], tested: int) -> list[str]:
    kinds = [column["kind"] for column in about["columns"]]
    plurals = {
        "number": "numbers",
        "category": "categories",
        "boolean": "booleans",
        "date": "dates",
    }
    counts = [f"{kinds.count(k)} {v}" for k, v in plurals.items() if k in kinds]
    lines = [
        f"Task: {columns.task}. {about['why']}",
        f"Rows: {about['rows']} to train on" + f", {tested} held out" * bool(tested),
        f"Columns: {', '.join(counts)}; {len(columns.feature_names)} features",
    ]
    some = [f"{c['name']} ({c['missing']})" for c in about["columns"] if c["missing"]]
    constant = [c["name"] for c in about["columns"] if c["distinct"] < 2]
    if some:
        lines.append(f"Missing values, filled in: {', '.join(some)}")
    if constant:
        lines.append(f"Constant, of no use: {', '.join(constant)}")
    return lines


def _found(model: "TableModel", output: Path) -> dict[str, Any]:
    from ..estimators.summary import inputs_line

    estimator, history = model.estimator, model.estimator.history_
    return {
        "model": str(output),
        "bytes": output.stat().st_size,
        "task": model.task,
        "target": model.columns.target,
        **model.about,
        "features": len(model.columns.feature_names),
        "widths": estimator.widths_,
        "of": estimator._built_widths,
        "bound_per_row": history.bound[-1] / model.about["rows"],
        "status": str(history.status),
        "steps": int(history.step[-1]),
        "passes": estimator.n_iter_,
        "seconds": history.seconds,
        "sampling": sampling_of(estimator),
        "inputs": inputs_line(estimator) if estimator.input_horseshoe else None,
    }


def _fit_lines(found: dict[str, Any]) -> list[str]:
    pairs = zip(found["widths"], found["of"], strict=True)
    on = ", then ".join(f"{on} of {of}" for on, of in pairs)
    lines = [
        f"Nodes on: {on}",
        f"Bound: {found['bound_per_row']:.4f} nats a row; {ENDINGS[found['status']]} "
        f"({found['passes']} passes, {found['seconds']:.0f} s)",
    ]
    if found["inputs"]:
        lines.append(f"Inputs: {found['inputs']}")
    if found["sampling"]:
        lines.append(f"Sampled: {found['sampling']['text']}")
    if "holdout" in found:
        lines.append(f"Held out: {scores_line(found['holdout'])}")
    return [*lines, f"Written: {found['model']} ({found['bytes'] / 1000:.0f} kB)"]
