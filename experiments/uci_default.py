"""farrier's defaults on the regression tables, beside both published columns.

Nothing is set but the starting width, 50 units (100 for `protein` and `year`). So units
are smooth (gelu), noise depends on the row and node scales have b = 0.01 (M1), where
the published columns have relu, one noise for all rows and b = 1.
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

HOURS = "about 40 minutes on 2 cores"
FULL = Config(recipe="default")
SMOKE = Config(recipe="default", sets=("yacht",), width=4, most_splits=1, max_iter=2)
