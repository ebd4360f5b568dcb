"""`farrier compact`: the nodes that are on, and no others."""

from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, Json, ModelFile, check_output, show


def compact(
    model: ModelFile,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for the small model.")
    ],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Leave out the nodes that are off, and say what that changed."""
    check_output(output, force=force)
    from ..estimators import TableModel, load

    whole = load(model)
    small = whole.compact()
    small.save(output)
    before, after = (
        m.estimator if isinstance(m, TableModel) else m for m in (whole, small)
    )
    found = {
        "model": str(output),
        "before": before.network_.widths,
        "after": after.network_.widths,
        "moved": after.compaction_.moved,
        "log_density_change": after.compaction_.log_density_change,
        "bytes_before": model.stat().st_size,
        "bytes": output.stat().st_size,
    }
    lines = [
        f"{after.compaction_}",
        f"Written: {output} ({found['bytes'] / 1000:.0f} kB, before "
        f"{found['bytes_before'] / 1000:.0f} kB)",
    ]
    show(found, lines, as_json=as_json)
