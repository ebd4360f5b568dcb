"""`farrier demo`: the two small problems of Ghosh & Doshi-Velez (2017)."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for figures and rows.")
    ] = Path("demo"),
) -> None:
    """Fit the two small problems of Ghosh & Doshi-Velez (2017); write figures."""
    from .. import demo as demonstration
    from ..console import progress, table

    if output.exists() and not output.is_dir():
        raise typer.BadParameter(f"{str(output)!r} is a file; a folder is needed.")
    config = demonstration.FULL
    with progress("demo", config.fits) as report:
        rows = demonstration.run(output, config, report)
    table(
        "Horseshoe and Gaussian prior on test data; log density in nats per row",
        [
            *("data", "prior", "nodes", "active", "weights"),
            *("RMSE", "error", "density", "s"),
        ],
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
        "active: nodes with a share of over 1 % in the output. weights: nodes whose "
        "expected weights have a norm over 5 % of the largest."
    )
    typer.echo(f"Figures: {output / 'cubic.png'}, {output / 'structure.png'}")
