"""Our recipe for the best predictions, beside both published columns.

`farrier.presets.refined`. Up to 2000 rows: two layers of 16 nodes, eight variational
fits of 3,000 steps under a regularised horseshoe with a slab of 2 and heteroscedastic
noise, then MCLMC on weights and scales, a chain from each fit. From 2000 rows on: an
ensemble of three fits of the default, under the horseshoe of the paper, with 50 nodes
(100 for `protein` and `year`).
"""

from ._harness import Row
from ._recipes import (
    PLAN,
    Config,
    cells,
    claims,
    data_files,
    parts,
    render,
    runs_text,
    scores_table,
    settings_of,
)

__all__ = ["PLAN", "cells", "claims", "data_files", "parts", "render", "settings_of"]

HOURS = "about 2 hours on 2 cores"
FULL = Config(recipe="refined")
SMOKE = Config(recipe="trial", sets=("yacht",), width=4, most_splits=1, max_iter=2)


def table(rows: list[Row]) -> str:
    """Ours beside both published columns, and how often the table has been run."""
    return scores_table(rows) + runs_text("refined")
