"""`farrier predict`: a table with no target becomes a table of predictions."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, Json, ModelFile, check_output, load_table_model, notes, show


def predict(
    model: ModelFile,
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A table with the same columns.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="A .csv or .parquet file.")
    ],
    level: Annotated[
        float, typer.Option("--level", help="Probability of the intervals.")
    ] = 0.9,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict for each row: mean, std, low and high; or label and probabilities.

    Rows are read, predicted and written a few thousand at a time.
    """
    check_output(output, force=force)
    from ..tables import read_chunks, writing
    from ..tables.files import imported

    pandas, _ = imported()
    chunks = read_chunks(data)
    first = next(chunks)  # before anything that takes its time
    fitted = load_table_model(model)
    rows, names, extra = 0, [], []
    with notes() as said, writing(output) as add:
        for frame in chain([first], chunks):
            if not rows:
                fitted.columns.check(frame)
                extra = fitted.columns.extra(frame)
            if not len(frame):
                raise ValueError(f"{str(data)!r} has no rows, only names of columns.")
            found = pandas.DataFrame(fitted.prediction(frame, level))
            add(found)
            rows, names = rows + len(found), [*found.columns]
    if extra:
        said.append(f"Columns that the model does not know: {', '.join(extra)}")
        typer.echo(f"Note: {said[-1]}", err=True)
    summary = {"output": str(output), "rows": rows, "columns": names, "notes": said}
    show(summary, [f"Written: {output} ({rows} rows)"], as_json=as_json)
