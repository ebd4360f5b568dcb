"""`farrier reproduce`: the figures and tables of the paper."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand


class WithHours(TyperCommand):
    """A command whose help says how long each experiment takes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, and the hours below it."""
        from ._names import hours

        lines = [f"{name}: {text}" for name, text in hours().items()]
        self.epilog = "\n\n".join(["At full settings:", *lines])
        super().format_help(ctx, formatter)


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="cubic, structure, ablation, uci, gestures, mnist, choose, covtype, "
            "uci-peers, frontier, pruned; `all` of them; or `list`."
        ),
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny settings: does it run at all?")
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="With uci: farrier's own, default or refined."),
    ] = None,
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
    from ._names import NAMES, RECIPES, hours

    if name == "list":
        for each, text in hours().items():
            typer.echo(f"{each}: {text}")
        return
    if recipe is not None:
        if name != "uci" or recipe not in RECIPES:
            raise typer.BadParameter(
                f"--recipe goes with uci and is one of {[*RECIPES]}, got {recipe!r}."
            )
        name = f"uci-{recipe}"
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
    from farrier.console import progress

    from ._harness import PERCENT, Refused, reproduce_into

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
