"""`farrier compact`: a smaller model without the inactive nodes."""

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
    """Write a model without the inactive nodes, and report how little changes."""
    check_output(output, force=force)
    from ..estimators.files import load
    from ..tables.model import parts_of

    whole = load(model)
    before, _ = parts_of(whole)
    if not before.model_.is_computed("compaction"):
        raise ValueError(
            f"{str(model)!r} was saved from Python without its compaction, which needs "
            "training rows. Save `estimator.compact()` instead, or fit with `farrier "
            "fit`."
        )
    small = whole.compact()
    small.save(output)
    after, _ = parts_of(small)
    compaction = after.compaction_
    result = {
        "model": str(output),
        "before": before.model_.posterior.widths,
        "after": after.model_.posterior.widths,
        "moved": compaction.moved,
        "log_density_change": compaction.log_density_change,
        "bytes_before": model.stat().st_size,
        "bytes": output.stat().st_size,
    }
    lines = [
        str(compaction),
        f"Written: {output} ({result['bytes'] / 1000:.0f} kB, before "
        f"{result['bytes_before'] / 1000:.0f} kB)",
    ]
    show(result, lines, as_json=as_json)
