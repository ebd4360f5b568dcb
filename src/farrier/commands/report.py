"""`farrier report`: one page about a model and a table with its targets."""

from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, ModelFile, check_output, load_table_model, notes


def report(
    model: ModelFile,
    data: Annotated[
        Path, typer.Option("--data", help="A table to test with, with the target.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path(
        "report.html"
    ),
    force: Force = False,
) -> None:
    """Write one HTML page that needs no network: nodes, inputs, calibration, rows."""
    check_output(output, force=force)
    from ..report import write_report
    from ..tables import read_table

    fitted = load_table_model(model)
    with notes():
        write_report(fitted, read_table(data), output)
    typer.echo(f"Written: {output}")
