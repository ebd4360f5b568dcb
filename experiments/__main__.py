"""`python -m experiments NAME`."""

import typer

from .command import WithHours, reproduce

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(cls=WithHours)(reproduce)

if __name__ == "__main__":
    app(prog_name="python -m experiments")
