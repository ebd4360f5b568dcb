"""`farrier report`: one page about a model and a table with its targets."""

from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, ModelFile, check_output, load_table_model, notes

MOST_ROWS = 20_000  # of a table that is too large to be taken into memory


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
    """Write one HTML page that needs no network: nodes, inputs, calibration, rows.

    Of a folder of Parquet files, or of a large one, it tests with a sample of rows.
    """
    check_output(output, force=force)
    from ..scale.parquet import is_large, sampled
    from ..tables import read_table
    from ..views.report import write_report

    fitted = load_table_model(model)
    with notes():
        frame = sampled(data, MOST_ROWS) if is_large(data) else read_table(data)
        write_report(fitted, frame, output)
    typer.echo(f"Written: {output}")
