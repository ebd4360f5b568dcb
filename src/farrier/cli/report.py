"""`farrier report`: an HTML report about a model and rows with their targets."""

from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, ModelFile, check_output, load_table_model, notes

MAX_ROWS = 20_000  # sampled from a table that is too large for memory


def report(
    model: ModelFile,
    data: Annotated[
        Path, typer.Option("--data", help="A table of test rows with the target.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The HTML file.")
    ] = Path("report.html"),
    force: Force = False,
) -> None:
    """Write an HTML report: scores, calibration, inputs, nodes, worst rows.

    From a folder of Parquet files, or a large file, it uses a sample of the rows.
    """
    check_output(output, force=force)
    from ..scale.parquet import is_large, sampled
    from ..tables import read_table
    from ..views.report import write_report

    fitted = load_table_model(model)
    with notes():
        frame = sampled(data, MAX_ROWS) if is_large(data) else read_table(data)
        write_report(fitted, frame, output)
    typer.echo(f"Written: {output}")
