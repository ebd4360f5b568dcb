"""Networks refined by sampling, on the regression tables, beside published columns.

`farrier.presets.refined`: variational fits of 50 units (100 for `protein` and `year`)
under a regularised horseshoe with a slab of 1, then NUTS on weights and scales, with a
chain from each fit: 4 of them, and from 2000 rows on 2 that are shorter.
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

HOURS = "about 2 hours on 2 cores"
FULL = Config(recipe="refined")
SMOKE = Config(recipe="trial", sets=("yacht",), width=4, most_splits=1, max_iter=2)
