"""`farrier fit`: a table in a file becomes a model in a file."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._processes import Coordinator, Distributed, Processes, Rank, joined
from ._reading import Choices, Rows, in_memory, scores, streamed
from ._shared import Force, Json, check_output, notes, scores_line, show

if TYPE_CHECKING:
    from ..tables.model import TableModel


Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A table: CSV (or .csv.gz), Parquet, or a folder of Parquet files, which "
        "may be larger than memory.",
    ),
]
Target = Annotated[str, typer.Option("--target", help="The column to predict.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="File for the model.")]
Task = Annotated[
    str | None,
    typer.Option(
        "--task", help="regression or classification. Default: chosen from the target."
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        "--missing",
        help="error: missing values are an error. impute: they are filled in, and an "
        "indicator feature marks them.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="A column to leave out; may be repeated."),
]
Holdout = Annotated[
    float,
    typer.Option("--holdout", help="Share of the rows that are held out for a test."),
]
Hidden = Annotated[
    str | None,
    typer.Option("--hidden", help="Nodes of each hidden layer, such as 100 or 100,50."),
]
Prior = Annotated[
    str | None,
    typer.Option(
        "--prior",
        help="Prior of the weights, such as horseshoe or gaussian. Default: "
        "column-horseshoe for regression, horseshoe for classification.",
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="Noise of a regression: heteroscedastic (it depends on the inputs) or "
        "gaussian (constant). Default: heteroscedastic.",
    ),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        "--restarts",
        help="Number of fits from different random seeds that are combined.",
    ),
]
Refine = Annotated[
    str | None,
    typer.Option(
        "--refine", help="nuts or mclmc: sample the posterior by MCMC after the fit."
    ),
]
Preset = Annotated[
    str | None, typer.Option("--preset", help="Named settings: paper or refined.")
]
MaxIter = Annotated[
    int | None,
    typer.Option(
        "--max-iter",
        help="Maximum number of epochs. Default: chosen from the number of rows.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", help="Random seed. Equal seeds give equal models.")
]
Streaming = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Stream the Parquet file from disk instead of loading it. Always on for "
        "folders and for files over 1 GiB in memory.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume a fit that was stopped.")
]


@joined
def fit(
    data: Data,
    target: Target,
    output: Output = Path("model.safetensors"),
    task: Task = None,
    missing: Missing = "error",
    drop: Drop = None,
    holdout: Holdout = 0.0,
    hidden: Hidden = None,
    prior: Prior = None,
    likelihood: Likelihood = None,
    restarts: Restarts = None,
    refine: Refine = None,
    preset: Preset = None,
    max_iter: MaxIter = None,
    seed: Seed = 0,
    stream: Streaming = False,
    resume: Resume = False,
    force: Force = False,
    as_json: Json = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    processes: Processes = None,
    rank: Rank = None,
    placement: Any = None,
) -> None:
    """Fit a network to a table.

    Ctrl-C saves the model so far; the same command with --resume continues the fit.
    """
    del distributed, coordinator, processes, rank  # `joined` has used them
    first = placement is None or placement.group.is_first
    checkpoint = output.parent / f"{output.name}.checkpoint"
    if first:
        _check_files(output, checkpoint, resume=resume, force=force)
    choices = Choices(target, drop or [], task, missing, holdout, seed)
    table = _table(data, choices, stream=stream, refine=refine, preset=preset)
    settings = {
        "hidden_layer_sizes": None if hidden is None else _widths(hidden),
        "prior": prior,
        "likelihood": likelihood,
        "n_restarts": restarts,
        "refine": refine,
        "random_state": seed,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    settings = _preset(preset, table.columns.task, table.rows) | given
    estimator = _estimator(table.columns.task, settings, max_iter)
    if first and not as_json:
        typer.echo("\n".join(table.lines()))
    files = {"data": data, "output": output, "checkpoint": checkpoint}
    _fit_and_save(table, estimator, placement, **files, as_json=as_json)


def _table(
    data: Path,
    choices: Choices,
    *,
    stream: bool,
    refine: str | None,
    preset: str | None,
) -> Rows:
    """The table in memory, or streamed from its files."""
    from ..scale.parquet import is_large

    if not (stream or is_large(data)):
        return in_memory(data, choices)
    if refine is not None or preset == "refined":
        option = "--refine" if refine is not None else "--preset refined"
        raise ValueError(
            f"{option} requires all rows in memory: leave it out, or give a table "
            "that fits there."
        )
    return streamed(data, choices)


def _fit_and_save(
    table: Rows,
    estimator: Any,
    placement: Any,
    *,
    data: Path,
    output: Path,
    checkpoint: Path,
    as_json: bool,
) -> None:
    """Train; then the first process writes the model and shows what it is."""
    first = placement is None or placement.group.is_first
    with notes(quiet=not first) as warned:
        _train(table, estimator, checkpoint, placement, quiet=not first)
        history = estimator.history_
        interrupted = history.status == "interrupted"
        if interrupted and not len(history.step):
            raise KeyboardInterrupt
        if not first:
            if interrupted:
                raise typer.Exit(130)
            return
        model = _finished(table, estimator, data.name, tested=not interrupted)
        model.save(output)
    if not interrupted:
        _remove(checkpoint)
    _show_result(model, output, warned, as_json=as_json)
    if interrupted:
        typer.echo(
            f"Stopped. {str(output)!r} holds the model so far; the same command with "
            "--resume continues the fit.",
            err=True,
        )
        raise typer.Exit(130)


def _check_files(output: Path, checkpoint: Path, *, resume: bool, force: bool) -> None:
    check_output(output, force=force or resume)
    if resume and force:
        raise ValueError("Give --resume or --force, not both.")
    if resume and output.exists() and not checkpoint.exists():
        raise ValueError(
            f"There is nothing to resume: no {str(checkpoint)!r}. Give --force to "
            "start a new fit."
        )
    if force:
        _remove(checkpoint)
    if checkpoint.exists() and not resume:
        raise ValueError(
            f"{str(checkpoint)!r} belongs to a fit that was stopped. Give --resume to "
            "continue it, or --force to start a new fit."
        )


def _remove(checkpoint: Path) -> None:
    """Delete a checkpoint; with restarts, one numbered file for each fit."""
    from ..checkpoint import numbered

    number = 0
    while (file := numbered(checkpoint, number)).exists():
        file.unlink()
        number += 1


def _preset(name: str | None, task: str, rows: int) -> dict[str, Any]:
    """The settings of a preset, for a table of `rows` rows."""
    if name is None:
        return {}
    from .. import presets

    known: dict[str, Callable[[], dict[str, Any]]] = {
        "paper": presets.paper,
        "refined": lambda: presets.refined(rows),
    }
    if name not in known:
        raise ValueError(f"--preset must be one of {[*known]}, got {name!r}.")
    settings = known[name]()
    if task == "classification":  # which has no noise
        settings.pop("likelihood", None)
    return settings


def _estimator(task: str, settings: dict[str, Any], max_iter: int | None) -> Any:
    """An estimator with these settings, before the fit."""
    from ..tables.model import ESTIMATORS

    estimator = ESTIMATORS[task](**settings)
    if max_iter is not None:
        estimator.set_params(training__max_iter=max_iter)
    return estimator


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"--hidden must be whole numbers such as 100 or 100,50, got {text!r}."
        ) from None


def _train(
    table: Rows,
    estimator: Any,
    checkpoint: Path,
    placement: Any,
    *,
    quiet: bool,
) -> None:
    """Fit the estimator, with a progress bar."""
    from ..console import progress
    from ..scale.placement import ONE_DEVICE

    with nullcontext(lambda *_: None) if quiet else progress("fit", 100) as report:

        def callback(share: float, history: Any) -> None:
            pruned = sum(len(removal.nodes) for removal in history.removed)
            note = f"ELBO {history.elbo[-1] / table.rows:.3f} nats per row"
            note += f", {pruned} nodes pruned" * bool(pruned)
            report(round(100 * share), note)

        estimator.fit(
            *table.train,
            checkpoint=checkpoint,
            callback=callback,
            placement=placement or ONE_DEVICE,
        )


def _finished(table: Rows, estimator: Any, file: str, *, tested: bool) -> "TableModel":
    """The model to save, with all that needs training rows: files hold none."""
    from ..tables.model import TableModel

    fitted = estimator.model_
    fitted.computed(compaction=fitted.compaction)
    if fitted.nodes.columns is not None:
        fitted.computed(column_shares=fitted.column_shares)
    model = TableModel(table.columns, estimator, {"file": file} | table.about)
    if tested and table.test_rows:
        held_out = scores(model, table.test())
        model.about["holdout"] = {"rows": table.test_rows} | held_out
    return model


def _show_result(
    model: "TableModel", output: Path, warned: list[str], *, as_json: bool
) -> None:
    from ..views.describe import describe_estimator

    description = describe_estimator(model.estimator, model.columns.feature_names)
    size = output.stat().st_size
    values = {
        "model": str(output),
        "bytes": size,
        "target": model.columns.target,
        **description.to_json(),
        **model.about,
        "notes": warned,
    }
    lines = description.closing_lines()
    if "holdout" in model.about:
        lines.append(f"Held out: {scores_line(model.about['holdout'])}")
    lines.append(f"Written: {output} ({size / 1000:.0f} kB)")
    show(values, lines, as_json=as_json)
