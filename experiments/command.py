"""`python -m experiments`: make the figures and tables of the results again."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .command_line import STOPPED, Command

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class WithHours(Command):
    """A command whose help lists how long each experiment takes."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, and the hours below it."""
        from ._names import hours

        lines = [f"{name}: {text}" for name, text in hours().items()]
        self.epilog = "\n\n".join(["At full settings:", *lines])
        super().format_help(ctx, formatter)


@app.command(cls=WithHours)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of an experiment (listed below), `all`, `list` or `status`."
        ),
    ],
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Tiny settings, to check that it runs.")
    ] = False,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="With uci: default or refined (our settings)."),
    ] = None,
    short: Annotated[
        bool,
        typer.Option("--short", help="Fewer epochs where the full run takes days."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder of the results. Default: results, or results-smoke.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            help="Only parts whose names contain this; may be repeated.",
        ),
    ] = None,
    stale: Annotated[
        bool,
        typer.Option("--stale", help="Also run parts again that earlier code made."),
    ] = False,
    render: Annotated[
        bool,
        typer.Option(
            "--render", help="Only write figures and tables again, from the rows."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder of the data sets. Default: FARRIER_DATA, or the user's cache, "
            "to which the UCI sets are downloaded.",
        ),
    ] = None,
) -> None:
    """Make figures and tables again, with our numbers beside the published ones.

    A stopped run resumes where it stopped; finished parts are not computed again.
    `status` counts the parts that are finished, stale (made by earlier code) and
    waiting.
    """
    from ._names import NAMES, RECIPES, hours

    if name == "list":
        for each, text in hours().items():
            typer.echo(f"{each}: {text}")
        return
    if recipe is not None:
        if name != "uci" or recipe not in RECIPES:
            raise typer.BadParameter(
                f"--recipe needs uci and one of {[*RECIPES]}, got {recipe!r}."
            )
        name = f"uci-{recipe}"
    if name not in (*NAMES, "all", "status"):
        raise typer.BadParameter(
            f"There is no experiment {name!r}. There are {', '.join(NAMES)}, and `all`."
        )
    if smoke and short:
        raise typer.BadParameter("Give --smoke or --short, not both.")
    if only and name == "all":
        raise typer.BadParameter("--only needs the name of one experiment, not `all`.")
    if render and (stale or only):
        raise typer.BadParameter("--render runs no part: leave out --stale and --only.")
    kind = "smoke" if smoke else "short" if short else "full"
    output = output or Path("results-smoke" if smoke else "results")
    if output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{str(output)!r} is a file; a folder is needed.")
    names = NAMES if name == "all" else (name,)
    if name == "status":
        _show_status(output)
    elif render:
        _render(names, output)
    else:
        for each in names:
            _reproduce_one(each, kind, output, data, only or [], stale)


def _show_status(output: Path) -> None:
    from ._results import status

    typer.echo(status(output))


def _render(names: tuple[str, ...], output: Path) -> None:
    from ._harness import Refused
    from ._results import render_into

    try:
        for each in render_into(output, names):
            typer.echo(f"Written: {output / each}")
    except Refused as error:
        raise typer.BadParameter(str(error)) from None


def _reproduce_one(
    name: str, kind: str, output: Path, data: Path | None, only: list[str], stale: bool
) -> None:
    from farrier.console import progress

    from ._harness import PERCENT, Refused
    from ._results import reproduce_into

    asked: dict[str, Any] = {"only": only, "stale": stale}
    try:
        with progress(name, PERCENT) as report:
            table = reproduce_into(output, name, kind, data, report, **asked)
    except KeyboardInterrupt:
        typer.echo("Stopped. The same command resumes from here.", err=True)
        raise typer.Exit(STOPPED) from None
    except Refused as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(table)
    typer.echo(f"Written: {output / name}")
