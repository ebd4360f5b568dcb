"""Small generated data sets, for examples and the demonstration."""

import numpy as np


def cubic(n: int = 20, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One input: y = x^3 + N(0, 9), x uniform on [-4, 4]."""
    random = np.random.default_rng(seed)
    x = random.uniform(-4, 4, n)
    return x[:, None], x**3 + 3 * random.normal(size=n)


def two_two_one(n: int = 1_000, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from a network with 2 inputs, 2 hidden relu nodes and 1 output.

    x is uniform on [-1, 1]^2; ln odds of a 1 = 10 relu(x_1 + x_2) - 10 relu(x_1 - x_2).
    The two nodes pull in opposite directions, so that neither can do the other's work.
    """
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (n, 2))
    hidden = np.maximum(x @ np.array([[1.0, 1.0], [1.0, -1.0]]), 0)
    odds = 10 * (hidden[:, 0] - hidden[:, 1])
    return x, (random.uniform(size=n) < 1 / (1 + np.exp(-odds))).astype(int)
