"""`python -m benchmarks`: timings of farrier and of other libraries."""

from pathlib import Path
from typing import Annotated

import typer

from experiments.command_line import Command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(cls=Command)
def bench(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for bench.json.")
    ] = Path("benchmarks/results"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Only parts whose names contain this; may be repeated.",
        ),
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", help="Folder of the data sets.")
    ] = Path("../shared/data"),
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other libraries beside farrier.")
    ] = False,
    scaling: Annotated[
        bool,
        typer.Option(
            "--scaling",
            help="One epoch against rows, columns, width, batch.",
        ),
    ] = False,
) -> None:
    """Time steps, fits, random numbers, predictions, start-up and memory."""
    from farrier.console import progress, table

    from . import bench as timings

    if peers:
        _bench_peers(output, data, only or [])
        return
    if scaling:
        _bench_scaling(output)
        return
    parts = timings.parts(data)
    chosen = {
        name: part
        for name, part in parts.items()
        if only is None or any(text in name for text in only)
    }
    if not chosen:
        names = ", ".join(repr(name) for name in parts)
        raise typer.BadParameter(f"No part contains {only}. The parts are {names}.")
    if not data.is_dir():
        needs = ("fits to concrete", "memory", "shedding, 400-400", "shrinking")
        for name in [name for name in needs if name in chosen]:
            del chosen[name]
            text = f"Skipped {name!r}: there are no data sets in {str(data)!r}."
            typer.echo(text, err=True)
    with progress("bench", len(chosen)) as report:
        found = timings.run(output, report, chosen)
    rows = [
        [part, name, f"{value:.3g}"]
        for part, figures in found.items()
        for name, value in figures.items()
    ]
    table("Timings (medians of runs in turn)", ["part", "figure", "value"], rows)
    typer.echo(f"Written: {output / 'bench.json'} and bench.md")


def _bench_peers(output: Path, data: Path, only: list[str]) -> None:
    from farrier.console import progress

    from . import other_libraries as peers
    from .environments import ENVIRONMENTS

    count = len(peers.tasks(only))
    if not count:
        names = ", ".join(repr(" ".join(task)) for task in peers.tasks())
        raise typer.BadParameter(f"No task contains {only}. The tasks are {names}.")
    with progress("peers", count) as report:
        found = peers.run_peers(output, ENVIRONMENTS, report, data=data, only=only)

    typer.echo(peers.page(found))
    typer.echo(f"Written: {output / 'peers.json'} and peers.md")


def _bench_scaling(output: Path) -> None:
    from farrier.console import progress

    from . import scaling

    with progress("scaling", len(scaling.points())) as report:
        scaling.run(output, report)
    typer.echo((output / "scaling.md").read_text())
    typer.echo(f"Written: {output / 'scaling.json'}, scaling.md and scaling.png")
