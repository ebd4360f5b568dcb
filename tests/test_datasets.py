"""The generated data of the paper, and readers of public files."""

import gzip

import numpy as np
import pytest
from scipy import stats

from farrier.datasets import covtype, cubic, mnist, two_two_one


@pytest.mark.parametrize("make", [cubic, two_two_one])
def test_a_seed_gives_its_rows(make):
    first, again, other = make(50, seed=0), make(50, seed=0), make(50, seed=1)
    for column, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(column, same)
        assert (column != different).any()


@pytest.mark.parametrize(("make", "rows"), [(cubic, 20), (two_two_one, 1000)])
def test_rows_of_the_paper(make, rows):
    X, y = make(seed=0)
    assert len(X) == len(y) == rows


def test_cubic_is_a_cubic_with_noise_of_sd_3():
    X, y = cubic(5_000, seed=0)
    assert X.shape == (5_000, 1)
    assert stats.kstest(X[:, 0], stats.uniform(-4, 8).cdf).pvalue > 0.001
    assert stats.kstest(y - X[:, 0] ** 3, stats.norm(0, 3).cdf).pvalue > 0.001


def test_two_two_one_has_the_odds_of_its_network():
    X, y = two_two_one(20_000, seed=0)
    assert X.shape == (20_000, 2)
    assert set(y) == {0, 1}
    left, right = np.maximum(X[:, 0] + X[:, 1], 0), np.maximum(X[:, 0] - X[:, 1], 0)
    p = 1 / (1 + np.exp(-10 * (left - right)))
    for low, high in ((0, 0.1), (0.1, 0.4), (0.4, 0.6), (0.6, 0.9), (0.9, 1)):
        inside = (p >= low) & (p <= high)
        standard_error = np.sqrt((p * (1 - p))[inside].sum()) / inside.sum()
        assert abs(y[inside].mean() - p[inside].mean()) < 5 * standard_error


def test_two_two_one_is_a_toss_up_on_a_quarter_of_its_rows():
    # Where both nodes are off nothing can be known: no model has an accuracy there.
    X, y = two_two_one(20_000, seed=1)
    both_off = (X[:, 0] + X[:, 1] <= 0) & (X[:, 0] - X[:, 1] <= 0)
    assert abs(both_off.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / len(X))
    assert abs(y[both_off].mean() - 0.5) < 5 * np.sqrt(0.25 / both_off.sum())


def test_mnist_is_read_from_its_own_format(tmp_path):
    (tmp_path / "mnist").mkdir()
    pixels = np.arange(2 * 784) % 256
    images = bytes(16) + pixels.astype(np.uint8).tobytes()
    for name, content in (
        ("t10k-images-idx3-ubyte.gz", images),
        ("t10k-labels-idx1-ubyte.gz", bytes(8) + bytes([7, 3])),
    ):
        (tmp_path / "mnist" / name).write_bytes(gzip.compress(content))
    x, y = mnist(tmp_path, "t10k")
    np.testing.assert_allclose(x, pixels.reshape(2, 784) / 126, rtol=1e-6)
    assert y.tolist() == [7, 3]


def test_mnist_has_its_rows(shared_data):
    x, y = mnist(shared_data, "t10k")
    assert x.shape == (10_000, 784)
    assert np.bincount(y).tolist()[:3] == [980, 1135, 1032]


def test_covtype_is_read_from_its_table(tmp_path):
    (tmp_path / "covtype").mkdir()
    lines = ["a,b,class", "1,2.5,7", "3,-4,1"]
    path = tmp_path / "covtype" / "covtype.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    x, y = covtype(tmp_path)
    assert x.tolist() == [[1, 2.5], [3, -4]]
    assert y.tolist() == [7, 1]
