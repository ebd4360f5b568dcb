"""Data sets: generated ones of the paper, and readers of public files."""

import gzip
from pathlib import Path

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


def mnist(folder: Path, part: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Digits as rows of 784 pixels over 126, as in the paper, and their labels.

    Parameters
    ----------
    part
        "train" (60,000 rows) or "t10k" (10,000 rows).
    """

    def content(name: str, header: int) -> np.ndarray:
        data = gzip.decompress((folder / "mnist" / name).read_bytes())
        return np.frombuffer(data, np.uint8, offset=header)

    pixels = content(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = content(f"{part}-labels-idx1-ubyte.gz", 8)
    return pixels.astype(np.float32) / 126, labels.astype(np.int64)


def covtype(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Forest cover: 581,012 rows of 54 columns, and their classes from 1 to 7."""
    path = folder / "covtype" / "covtype.csv.gz"
    table = np.loadtxt(path, np.float32, delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1].astype(np.int64)
