"""When training may stop, and whether it ended too early (T3, T4)."""

import math

import numpy as np

from .history import History

PLATEAU_RECORDS = 40  # a tenth of the budget
LEAST_RECORDS = 10  # fewest records that have a slope at the end


def gain_left(history: History, since: int, until: int) -> float:
    """Upper limit, in nats, on what the ELBO will still gain by step `until` (T3).

    A straight line through the last records after step `since`: two standard errors
    above its slope, carried on to the end. Infinite while there are too few records.
    """
    recent = (history.step > since) & np.isfinite(history.elbo)
    step = history.step[recent][-PLATEAU_RECORDS:]
    bound = history.elbo[recent][-PLATEAU_RECORDS:]
    if len(step) < PLATEAU_RECORDS:
        return math.inf
    slope, error = _line(step, bound)
    return float((slope + 2 * error) * (until - step[-1]))


def rise_at_the_end(history: History, settled: int = 0) -> float:
    """Lower limit, in nats, on the gain of the ELBO at the end of a run (T4).

    A straight line through the last fifth of its records, or the last half of those
    after the step `settled`, when the annealing has ended, if these are fewer: two
    standard errors below its slope, times its length. Zero if that is negative or if
    there are too few records.
    """
    finite = np.isfinite(history.elbo)
    step, bound = history.step[finite], history.elbo[finite]
    last = min(len(step) // 5, int((step > settled).sum()) // 2)
    if last < LEAST_RECORDS:
        return 0.0
    step, bound = step[-last:], bound[-last:]
    slope, error = _line(step, bound)
    return max(0.0, float((slope - 2 * error) * (step[-1] - step[0])))


def _line(step: np.ndarray, bound: np.ndarray) -> tuple[float, float]:
    """Slope of a straight line through records, and its standard error."""
    centred = step - step.mean()
    squares = (centred**2).sum()
    slope = (centred * bound).sum() / squares
    residual = bound - bound.mean() - slope * centred
    return slope, math.sqrt((residual**2).sum() / (len(step) - 2) / squares)
