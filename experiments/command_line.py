"""One command whose errors are one line each, as those of `farrier` are."""

import sys
from typing import Any

import typer
from typer.core import TyperCommand

INTERNAL, INPUT, STOPPED = 1, 2, 130  # exit codes: our fault, the user's, Ctrl-C
# What a wrong file, table or setting raises, or a package that is not installed.
INPUT_ERRORS = (ValueError, OSError, ImportError)


class Command(TyperCommand):
    """A command that reports an error in one line and exits with a code."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run the command, and leave the program with its exit code."""
        settings["standalone_mode"] = False
        try:
            code = super().main(*args, **settings)
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            sys.exit(_report(self._usage(error), INPUT))
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command, and turn its errors into a line and an exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(_report("Stopped.", STOPPED)) from None
        except INPUT_ERRORS as error:
            raise typer.Exit(_report(str(error), INPUT)) from None
        except Exception as error:
            if isinstance(error, typer.Exit) or hasattr(error, "format_message"):
                raise
            text = f"{type(error).__name__}: {error}. This is a bug in the program."
            raise typer.Exit(_report(text, INTERNAL)) from error

    def _usage(self, error: Any) -> str:
        """A message of the parser of arguments, and where to find help."""
        context = getattr(error, "ctx", None)
        path = context.command_path if context else self.name
        return f"{error.format_message()} See `{path} --help`."


def _report(text: str, code: int) -> int:
    typer.echo(f"Error: {' '.join(text.split())}", err=True)
    return code
