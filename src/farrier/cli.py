"""The command line. Each command imports what it needs when it runs."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperCommand
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


class _WithHours(TyperCommand):
    """A command whose help says how long each experiment takes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from .experiments._names import hours

        lines = [f"{name}: {text}" for name, text in hours().items()]
        self.epilog = "\n\n".join(["At full settings:", *lines])
        super().format_help(ctx, formatter)


@app.command(cls=_WithHours)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="cubic, structure, ablation, uci, gestures, mnist; `all` of them; or "
            "`list`."
        ),
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny settings: does it run at all?")
    ] = False,
    short: Annotated[
        bool,
        typer.Option("--short", help="Fewer epochs, where the full ones take days."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the results; by default results, or results-smoke.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Parts whose names hold this; may be repeated."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the data sets; by default that of FARRIER_DATA, or the "
            "user's cache, into which the UCI sets are downloaded.",
        ),
    ] = None,
) -> None:
    """Make the figures and tables of the paper again, with our numbers beside its own.

    A run can be stopped and goes on where it stopped; what is finished is not computed
    again.
    """
    from .experiments._names import NAMES, hours

    if name == "list":
        for each, text in hours().items():
            typer.echo(f"{each}: {text}")
        return
    if name not in (*NAMES, "all"):
        raise typer.BadParameter(
            f"There is no experiment {name!r}. There are {', '.join(NAMES)}, and `all`."
        )
    if smoke and short:
        raise typer.BadParameter("Give --smoke or --short, not both.")
    if only and name == "all":
        raise typer.BadParameter("--only goes with one experiment, not with `all`.")
    kind = "smoke" if smoke else "short" if short else "full"
    output = output or Path("results-smoke" if smoke else "results")
    if output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{str(output)!r} is a file; a folder is needed.")
    for each in NAMES if name == "all" else (name,):
        _reproduce_one(each, kind, output, data, only or [])


def _reproduce_one(
    name: str, kind: str, output: Path, data: Path | None, only: list[str]
) -> None:
    from .console import progress
    from .experiments._harness import PERCENT, Refused, reproduce_into

    try:
        with progress(name, PERCENT) as report:
            table = reproduce_into(output, name, kind, data, report, only=only)
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command goes on from here.", err=True)
        raise typer.Exit(130) from None
    except Refused as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(table)
    typer.echo(f"Written: {output / name}")


def main() -> None:
    """Entry point of the `farrier` command."""
    app()
