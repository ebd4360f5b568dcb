"""farrier's defaults on the regression tables, beside both published columns.

Nothing is set but the starting width, 50 nodes (100 for `protein` and `year`). So the
activation is gelu, the noise is heteroscedastic, node scales have b = 0.01 (M1), and
columns have scales too (I2); the published columns have relu, homoscedastic noise,
b = 1 and no scales of columns.
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

HOURS = "about 20 minutes on 2 cores"
FULL = Config(recipe="default")
SMOKE = Config(recipe="default", sets=("yacht",), width=4, most_splits=1, max_iter=2)


def table(rows: list[Row]) -> str:
    """Ours beside both published columns, and how often the table has been run."""
    return scores_table(rows) + runs_text("default")
