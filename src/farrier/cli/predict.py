"""`farrier predict`: predictions for the rows of a table."""

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ._shared import Force, Json, ModelFile, check_output, load_table_model, notes, show


def predict(
    model: ModelFile,
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="A table with the model's columns."),
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
    """Predict each row: mean, std, low and high, or label and probabilities.

    The rows are processed a few thousand at a time.
    """
    check_output(output, force=force)
    from ..tables import read_chunks, writing
    from ..tables.files import imported

    pandas, _ = imported()
    chunks = read_chunks(data)
    first = next(chunks)  # an unreadable table is an error before the model is loaded
    fitted = load_table_model(model)
    rows, names, extra = 0, [], []
    with notes() as warned, writing(output) as write:
        for frame in chain([first], chunks):
            if not rows:
                fitted.columns.check(frame)
                extra = fitted.columns.extra(frame)
            if not len(frame):
                raise ValueError(f"{str(data)!r} has no rows, only column names.")
            predicted = pandas.DataFrame(fitted.prediction(frame, level))
            write(predicted)
            rows, names = rows + len(predicted), [*predicted.columns]
    if extra:
        warned.append(f"Columns that the model does not use: {', '.join(extra)}")
        typer.echo(f"Note: {warned[-1]}", err=True)
    result = {"output": str(output), "rows": rows, "columns": names, "notes": warned}
    show(result, [f"Written: {output} ({rows} rows)"], as_json=as_json)
