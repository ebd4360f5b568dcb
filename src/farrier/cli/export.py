"""`farrier export`: a file that runs without farrier."""

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
            help="A .onnx file, or .npz for NumPy alone.",
        ),
    ],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            help="draws: a fixed set of posterior draws. moments: means and variances "
            "from layer to layer.",
        ),
    ] = "draws",
    draws: Annotated[
        int | None, typer.Option("--draws", help="How many; by default those of fit.")
    ] = None,
    quantile: Annotated[
        list[float] | None,
        typer.Option(
            "--quantile",
            help="Of a regression, in ONNX; may be repeated. By default 0.05, 0.95.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the compacted network, with all that is done to a table before it."""
    check_output(output, force=force)
    if output.suffix not in ENDINGS:
        raise ValueError(
            f"The name of the output must end in {' or '.join(ENDINGS)}, got "
            f"{str(output)!r}."
        )
    if method not in ("draws", "moments"):
        raise ValueError(f"--method must be 'draws' or 'moments', got {method!r}.")
    if method == "moments" and draws is not None:
        raise ValueError("--draws goes with --method draws, not with moments.")
    if output.suffix == ".npz" and quantile:
        raise ValueError("--quantile goes with .onnx; from a .npz ask for any later.")
    from ..estimators import load
    from ..export import Draws, Moments, to_numpy

    chosen = Moments() if method == "moments" else Draws(count=draws)
    fitted = load(model)
    if output.suffix == ".npz":
        to_numpy(fitted, output, method=chosen)
    else:
        from ..export import to_onnx

        levels = tuple(quantile) if quantile else (0.05, 0.95)
        to_onnx(fitted, output, method=chosen, quantiles=levels)
    found = {"output": str(output), "bytes": output.stat().st_size}
    line = f"Written: {output} ({found['bytes'] / 1000:.0f} kB)"
    show(found, [line], as_json=as_json)
