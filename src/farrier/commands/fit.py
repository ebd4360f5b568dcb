"""`farrier fit`: a table in a file becomes a model in a file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._shared import Force, Json, check_output, notes, scores_line, show

if TYPE_CHECKING:
    from ..estimators import TableModel
    from ..tables import Columns
    from ..tables.files import Frame

ENDINGS = {
    "converged": "converged",
    "budget": "used its whole budget; more may be gained with a larger --max-iter",
    "interrupted": "interrupted",
    "not finite": "stopped, for the bound was no longer finite",
}


def fit(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A table: CSV (or .csv.gz), Parquet.")
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
        str | None, typer.Option("--prior", help="By default horseshoe.")
    ] = None,
    refine: Annotated[
        str | None,
        typer.Option(
            "--refine", help="nuts: sample the exact posterior after the fit."
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
        typer.Option("--preset", help="Settings with a name: paper."),
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
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a fit that was stopped.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Fit a network to a table; it chooses its own width.

    Ctrl-C keeps what was learned; the same command with --resume then goes on.
    """
    checkpoint = output.parent / f"{output.name}.checkpoint"
    _check_files(output, checkpoint, resume=resume, force=force)
    say: Callable[[str], None] = (lambda text: None) if as_json else typer.echo
    from ..tables import Columns, find_task, read_table
    from ..tables.table import column_of

    frame = _without(read_table(data), drop or [], target)
    found_task, why = find_task(column_of(frame, target))
    task, why = (task, "--task says so.") if task else (found_task, why)
    train, test = _split(frame, target, task, holdout, seed)
    columns = Columns.learn(train, target, missing=missing, task=task)
    estimator = _estimator(task, hidden, prior, refine, preset, max_iter, seed)
    estimator.set_params(input_horseshoe=input_horseshoe)
    about = _about(data, columns, train, why)
    for line in _table_lines(columns, about, len(test)):
        say(line)
    with notes() as said:
        model = _fitted(columns, estimator, train, checkpoint, about)
        interrupted = model.estimator.history_.status == "interrupted"
        if interrupted and not len(model.estimator.history_.step):
            raise KeyboardInterrupt
        if len(test) and not interrupted:
            about["holdout"] = {"rows": len(test)} | model.scores(test)
        model.save(output)
    if not interrupted:
        checkpoint.unlink(missing_ok=True)
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
        checkpoint.unlink(missing_ok=True)
    if checkpoint.exists() and not resume:
        raise ValueError(
            f"{str(checkpoint)!r} is of a fit that was stopped. Give --resume to go on "
            "with it, or --force to start anew."
        )


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

    if not 0 <= share < 1:
        raise ValueError(f"--holdout is a share from 0 to less than 1, got {share}.")
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
    hidden: str | None,
    prior: str | None,
    refine: str | None,
    preset: str | None,
    max_iter: int | None,
    seed: int,
) -> Any:
    from .. import presets
    from ..estimators.tabular import CLASSES

    known: dict[str, Callable[[], dict[str, Any]]] = {"paper": presets.paper}
    if preset is not None and preset not in known:
        raise ValueError(f"--preset must be one of {[*known]}, got {preset!r}.")
    settings = known[preset]() if preset else {}
    if task == "classification":
        settings.pop("likelihood", None)
    if hidden is not None:
        settings["hidden_layer_sizes"] = _widths(hidden)
    chosen = {"prior": prior, "refine": refine, "max_iter": max_iter}
    settings |= {name: value for name, value in chosen.items() if value is not None}
    return CLASSES[task](**settings, random_state=seed)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--hidden must be whole numbers such as 100 or 100,50, got {text!r}."
        ) from None


def _about(data: Path, columns: "Columns", train: "Frame", why: str) -> dict[str, Any]:
    from ..tables import describe

    return {
        "file": data.name,
        "rows": len(train),
        "why": why,
        "columns": describe(columns, train),
    }


def _fitted(
    columns: "Columns", estimator: Any, train: "Frame", checkpoint: Path, about: dict
) -> "TableModel":
    from ..console import progress
    from ..estimators import TableModel

    X, y = columns.features(train), columns.targets(train)
    with progress("fit", 100) as report:

        def tell(share: float, history: Any) -> None:
            left = sum(len(removal.nodes) for removal in history.removed)
            note = f"bound {history.bound[-1] / len(X):.3f} nats a row"
            if left:
                note += f", {left} nodes have left"
            report(round(100 * share), note)

        estimator.fit(X, y, checkpoint=checkpoint, callback=tell)
    return TableModel(columns, estimator, about)


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
        "sampling": str(getattr(estimator, "sampling_", "")) or None,
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
        lines.append(f"Sampled: {found['sampling']}")
    if "holdout" in found:
        lines.append(f"Held out: {scores_line(found['holdout'])}")
    return [*lines, f"Written: {found['model']} ({found['bytes'] / 1000:.0f} kB)"]
