"""`farrier export`: a file that predicts without farrier."""

from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, Json, ModelFile, check_output, show

ENDINGS = (".onnx", ".npz")


def export(
    model: ModelFile,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="A .onnx file, or a .npz file for NumPy alone (numeric columns only).",
        ),
    ],
    draws: Annotated[
        int | None,
        typer.Option(
            "--draws",
            help="Number of posterior samples. Default: those the model predicts with.",
        ),
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option(
            "--quantile",
            help="Quantile of a regression in the ONNX file; may be repeated. "
            "Default: 0.05 and 0.95.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the compacted network and the encoding of a table's columns."""
    check_output(output, force=force)
    if output.suffix not in ENDINGS:
        raise ValueError(
            f"The name of the output must end in {' or '.join(ENDINGS)}, got "
            f"{str(output)!r}."
        )
    if output.suffix == ".npz" and quantile:
        raise ValueError(
            "--quantile is for .onnx files; a .npz file can predict any quantile."
        )
    from ..estimators.files import load
    from ..export import to_numpy

    fitted = load(model)
    if output.suffix == ".npz":
        to_numpy(fitted, output, draws=draws)
    else:
        from ..export import to_onnx

        levels = tuple(quantile) if quantile else (0.05, 0.95)
        to_onnx(fitted, output, draws=draws, quantiles=levels)
    result = {"output": str(output), "bytes": output.stat().st_size}
    line = f"Written: {output} ({result['bytes'] / 1000:.0f} kB)"
    show(result, [line], as_json=as_json)
