"""Scores of predictions on held-out rows, shared by the experiments."""

import numpy as np

from farrier import HorseshoeRegressor

COVERAGE = 0.9
BINS = 10


def coverage(
    model: HorseshoeRegressor, X: np.ndarray, y: np.ndarray, method: str
) -> float:
    """Share of the targets within their intervals (P2)."""
    low, high = model.predict_interval(X, level=COVERAGE, method=method)
    return float(np.mean((low <= y) & (y <= high)))


def crps(draws: np.ndarray, y: np.ndarray) -> float:
    """Mean continuous ranked probability score of predictive draws (rows x draws).

    E|Y - y| - 1/2 E|Y - Y'|, the second from the draws in their order.
    """
    draws = np.sort(draws, axis=1)
    n = draws.shape[1]
    order = 2 * np.arange(1, n + 1) - n - 1
    apart = 2 * (draws @ order) / (n * (n - 1))
    return float(np.mean(np.abs(draws - y[:, None]).mean(axis=1) - apart / 2))


def brier(p: np.ndarray, codes: np.ndarray) -> float:
    """Mean squared distance of class probabilities from the label's indicator."""
    return float(((p - np.eye(p.shape[1])[codes]) ** 2).sum(axis=1).mean())


def calibration_error(p: np.ndarray, codes: np.ndarray) -> float:
    """Expected calibration error of the most probable class, in ten equal bins.

    |share of correct rows - mean confidence| of each bin of confidence, averaged over
    the rows.
    """
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == codes
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, correct - confidence, BINS)
    return float(np.abs(gaps).sum() / len(codes))
