"""`python -m benchmarks`."""

import typer

from .command import bench

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(bench)

if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
