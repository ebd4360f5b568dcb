"""Intervals that hold: their levels are learned from rows that are left out.

    r_is = 1 / p(y_i | x_i, theta_s),  at most the mean of r_i times sqrt(S)
    u_i = sum_s r_is F_s(y_i) / sum_s r_is                                          (P3)

u_i is where y_i lies in the predictive law of all the other rows: importance weights
take row i out of each draw, and none may outweigh the rest. Where variational fits are
mixed (W1), each is a posterior of its own: u_i is the mean of theirs, by their weights.
A share `level` of the rows then lies within depth g(level) of the middle of that law,

    g(level) = the quantile of |2 u_i - 1| over the rows, at level (n + 1) / n      (P4)

and the central interval of probability g(level) is what is given for that level. g is
the identity where the predictive law is calibrated.
"""

import numpy as np
from jaxtyping import Float

LEVELS = np.linspace(0, 1, 101)
DEEPEST = 1 - 1e-6  # of a row: one may lie at 1 by rounding, where no interval ends


def depths(
    place: Float[np.ndarray, "rows targets"], weight: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " levels"]:
    """g at the `LEVELS` (P4); a row of weight 2 is one that is there twice.

    Straight lines join the rows, from 0 at level 0 to 1 at level 1.
    """
    depth = np.minimum(np.abs(2 * np.asarray(place, float) - 1), DEEPEST)
    share = np.repeat(np.asarray(weight, float), depth.shape[1])
    depth = depth.ravel()
    order = np.argsort(depth)
    depth, share = depth[order], share[order]
    level = np.cumsum(share) / (share.sum() + 1)
    return np.interp(LEVELS, [0, *level, 1], [0, *depth, 1])


def are_depths(found: np.ndarray) -> bool:
    """Whether an array may be what `depths` gives."""
    ends = np.array_equal(found[[0, -1]], [0, 1]) if found.ndim == 1 else False
    return ends and found.shape == LEVELS.shape and bool((np.diff(found) >= 0).all())


def held(level: float, depth: Float[np.ndarray, " levels"]) -> float:
    """g(level): the probability of the interval that holds that share of rows (P4)."""
    return float(np.interp(level, LEVELS, depth))


def place_held(
    place: Float[np.ndarray, "..."], depth: Float[np.ndarray, " levels"]
) -> Float[np.ndarray, "..."]:
    """A place in the predictive law as one in the law whose intervals are those of g.

    It lies within the interval of a level exactly where |2 u - 1| is at most that.
    """
    side = 2 * np.asarray(place, float) - 1
    return 0.5 + 0.5 * np.sign(side) * np.interp(np.abs(side), depth, LEVELS)
