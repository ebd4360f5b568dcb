"""Networks refined by sampling, on the regression tables, beside published columns.

A variational fit of 50 units (100 for `protein` and `year`), then NUTS on its weights
and scales: `refine="nuts"`, and from 2000 rows on `refine="nuts-short"`.
"""

from ._recipes import (
    PLAN,
    Config,
    claims,
    data_files,
    parts,
    render,
    settings_of,
    table,
)

__all__ = ["PLAN", "claims", "data_files", "parts", "render", "settings_of", "table"]

HOURS = "about 3 hours on 2 cores"
FULL = Config(recipe="refined")
SMOKE = Config(recipe="trial", sets=("yacht",), width=4, most_splits=1, max_iter=2)
