"""Calibrated intervals: their levels are learned by leave-one-out predictions.

    r_is = 1 / p(y_i | x_i, theta_s),  at most the mean of r_i times sqrt(S)
    u_i = sum_s r_is F_s(y_i) / sum_s r_is                                          (P3)

u_i is the cdf at y_i under the posterior of all the other rows: importance weights take
row i out of each draw, and none may outweigh the rest. In an ensemble each fit is a
posterior of its own, and u_i is the mean over the fits. A share `level` of the rows
then lies within depth g(level) of the median of that distribution,

    g(level) = the quantile of |2 u_i - 1|, at level (n + 1) / n                    (P4)

and the central interval of probability g(level) is returned for that level. g is the
identity where the predictive distribution is calibrated.
"""

import numpy as np
from jaxtyping import Float

LEVELS = np.linspace(0, 1, 101)
MAX_DEPTH = 1 - 1e-6  # of a row: rounding may give 1, where no interval ends


def depths(
    position: Float[np.ndarray, "rows targets"], weight: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " levels"]:
    """g at the `LEVELS` (P4); a row of weight 2 is one that is there twice.

    Straight lines join the rows, from 0 at level 0 to 1 at level 1. All targets of a
    row count: they come and go together, so that a new row is one more of each.
    """
    depth = np.minimum(np.abs(2 * np.asarray(position, float) - 1), MAX_DEPTH)
    targets = depth.shape[1]
    share = np.repeat(np.asarray(weight, float), targets)
    depth = depth.ravel()
    order = np.argsort(depth)
    depth, share = depth[order], share[order]
    level = np.cumsum(share) / (share.sum() + targets)
    return np.interp(LEVELS, [0, *level, 1], [0, *depth, 1])


def are_depths(values: np.ndarray) -> bool:
    """Whether an array may be a result of `depths`."""
    ends = np.array_equal(values[[0, -1]], [0, 1]) if values.ndim == 1 else False
    return ends and values.shape == LEVELS.shape and bool((np.diff(values) >= 0).all())


def depth_at(level: float, depths: Float[np.ndarray, " levels"]) -> float:
    """g(level): the probability of the interval that covers that share of rows (P4)."""
    return float(np.interp(level, LEVELS, depths))


def calibrated(
    position: Float[np.ndarray, "..."], depths: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "..."]:
    """A cdf value, for the distribution whose central intervals are those of g.

    It lies within the interval of a level exactly where |2 u - 1| is at most that.
    """
    side = 2 * np.asarray(position, float) - 1
    return 0.5 + 0.5 * np.sign(side) * np.interp(np.abs(side), depths, LEVELS)
