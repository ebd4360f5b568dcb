"""Our recipe for the best predictions, beside both published columns.

`farrier.presets.refined`. Up to 2000 rows: two layers of 16 nodes, eight variational
fits of 3,000 steps under a regularised horseshoe with a slab of 2, four of them with
noise by the row, then MCLMC on weights and scales, a chain from each fit; the two noise
models are weighed by rows that are left out. From 2000 rows on: a mixture of three fits
of the default, under the horseshoe of the paper, with 50 units (100 for `protein` and
`year`).
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
