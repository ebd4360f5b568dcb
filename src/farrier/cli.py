"""The command line. Each command imports what it needs when it runs."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

try:
    import typer
except ModuleNotFoundError as error:
    raise SystemExit(
        "The command line needs more packages: pip install 'farrier[cli]'."
    ) from error

app = typer.Typer(
    help="Bayesian neural networks that choose their own width.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> bool:
    if value:
        typer.echo(f"farrier {version('farrier')}")
        raise typer.Exit
    return value


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    del show_version


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures and rows.")
    ] = Path("demo"),
) -> None:
    """Fit the two small problems of the paper: a table here, figures in a folder."""
    from . import demo as demonstration
    from .console import progress, table

    if output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{str(output)!r} is a file; a folder is needed.")
    with progress("demo", demonstration.FITS) as report:
        rows = demonstration.run(output, report)
    table(
        "Horseshoe beside Gaussian, on test data; log density in nats a point",
        ["data", "prior", "units", "on", "weights", "RMSE", "error", "density", "s"],
        [
            [
                row["data"],
                row["prior"],
                str(row["width"]),
                str(row["nodes_on"]),
                str(row["weights_on"]),
                f"{row['rmse']:.2f}" if "rmse" in row else "",
                f"{100 * row['error_rate']:.1f} %" if "error_rate" in row else "",
                f"{row['log_density']:.2f}",
                f"{row['seconds']:.1f}",
            ]
            for row in rows
        ],
    )
    typer.echo(
        "on: nodes that matter to what they feed. weights: nodes whose expected "
        "weights are over 5 % of the largest."
    )
    typer.echo(f"Figures: {output / 'cubic.png'}, {output / 'structure.png'}")


@app.command()
def bench(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for bench.json.")
    ] = Path("benchmarks/results"),
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Parts whose names hold this; may be repeated."),
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", help="Folder of the data sets.")
    ] = Path("../shared/data"),
    peers: Annotated[
        bool, typer.Option("--peers", help="Time other libraries beside ours.")
    ] = False,
) -> None:
    """Time steps, fits, random numbers, predictions, start-up, memory; or peers."""
    from . import bench as timings
    from .console import progress, table

    if peers:
        _bench_peers(output, data)
        return
    parts = timings.parts(data)
    chosen = {
        name: part
        for name, part in parts.items()
        if only is None or any(text in name for text in only)
    }
    if not chosen:
        names = ", ".join(repr(name) for name in parts)
        raise typer.BadParameter(f"No part holds {only}. There are {names}.")
    if not data.is_dir():
        for name in [name for name in ("memory", "shrinking") if name in chosen]:
            del chosen[name]
            typer.echo(f"Without {name!r}: no data sets in {str(data)!r}.", err=True)
    with progress("bench", len(chosen)) as report:
        found = timings.run(output, report, chosen)
    rows = [
        [part, name, f"{value:.3g}"]
        for part, figures in found.items()
        for name, value in figures.items()
    ]
    table("Timings (medians of runs in turn)", ["part", "figure", "value"], rows)
    typer.echo(f"Written: {output / 'bench.json'} and bench.md")


def _bench_peers(output: Path, data: Path) -> None:
    from . import peers
    from .console import progress

    with progress("peers", peers.TASKS) as report:
        found = peers.run_peers(output, Path(".peers"), report, data=data)

    typer.echo(peers.page(found))
    typer.echo(f"Written: {output / 'peers.json'} and peers.md")


def main() -> None:
    """Entry point of the `farrier` command."""
    app()
