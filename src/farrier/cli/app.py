"""The command line. Each command imports what it needs when it runs."""

import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError as error:
    raise SystemExit(
        "The command line requires more packages: pip install 'farrier[cli]'."
    ) from error

from .compact import compact
from .demo import demo
from .export import export
from .fit import fit
from .inspect import inspect
from .predict import predict
from .report import report

INTERNAL, INPUT, STOPPED = 1, 2, 130
# Raised by a wrong file, table or setting, or a missing package.
INPUT_ERRORS = (ValueError, OSError, ImportError)


class Commands(TyperGroup):
    """Commands whose errors are one line on standard error, and an exit code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command, and exit with its code."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            sys.exit(_print_error(_usage(error), INPUT))
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments of the program; without any, its help is shown."""
        if not args:
            typer.echo(ctx.get_help())
            raise typer.Exit(INPUT)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command, and turn an error into one line and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_print_error("Stopped.", STOPPED)) from None
        except Exception as error:
            if isinstance(error, typer.Exit) or hasattr(error, "format_message"):
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            if isinstance(error, INPUT_ERRORS):
                raise typer.Exit(_print_error(str(error), INPUT)) from None
            text = f"{type(error).__name__}: {error}. This is a bug in farrier; "
            text += "`farrier --debug ...` prints the traceback."
            raise typer.Exit(_print_error(text, INTERNAL)) from None


def _print_error(text: str, code: int) -> int:
    typer.echo(f"Error: {' '.join(text.split())}", err=True)
    return code


def _usage(error: Any) -> str:
    """A message of the argument parser, with the command that shows help."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "farrier"
    return f"{error.format_message()} See `{path} --help`."


app = typer.Typer(
    cls=Commands,
    help="Bayesian neural networks that choose their own width.",
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
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
) -> None:
    del show_version, debug


for command in (fit, predict, inspect, compact, report, export, demo):
    app.command()(command)


def main() -> None:
    """Entry point of the `farrier` command."""
    app()
