"""Our recipe for the best predictions, beside both published columns.

`farrier.presets.refined`. Up to 2000 rows: two layers of 16 nodes, eight variational
fits of 3,000 steps under a regularised horseshoe with a slab of 2 and heteroscedastic
noise, then MCLMC on weights and scales, a chain from each fit. From 2000 rows on: an
ensemble of three fits of the default, under the horseshoe of the paper, with 50 units
(100 for `protein` and `year`). Rows with earlier settings: half of the eight fits had
homoscedastic noise, and the two noise models were weighted by leave-one-out scores.
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
