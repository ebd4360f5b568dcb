"""`farrier demo`: the two small problems of the paper."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures and rows.")
    ] = Path("demo"),
) -> None:
    """Fit the two small problems of the paper: a table here, figures in a folder."""
    from .. import demo as demonstration
    from ..console import progress, table

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
