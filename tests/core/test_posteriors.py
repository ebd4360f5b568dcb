"""Weight posteriors that a user can name."""

import jax.numpy as jnp
import numpy as np
import pytest

from farrier.core.matrix import MatrixWeights
from farrier.core.node import LowRankWeights, NodeWeights
from farrier.core.posteriors import MOST_FULL, POSTERIORS, RANK, Matrix, Node
from farrier.core.weights import FactorisedWeights


@pytest.mark.parametrize(
    ("name", "form"), [("factorised", FactorisedWeights), ("matrix", MatrixWeights)]
)
def test_a_name_stands_for_its_weights(getkey, name, form):
    """With the spread of the locations and the sd asked for (F1), (V1)."""
    sizes = {"sd": 0.02, "spread": 0.3}
    weights = POSTERIORS[name].weights(200, 50, **sizes, key=getkey())
    assert isinstance(weights, form)
    assert (weights.fan_in, weights.nodes) == (201, 50)
    entropy = 201 * 0.5 * np.log(2 * np.pi * np.e * 0.02**2)
    np.testing.assert_allclose(weights.entropy(), np.full(50, entropy), rtol=1e-9)
    np.testing.assert_allclose(jnp.std(weights.expected()), 0.3, rtol=0.05)


def test_covariances_are_full_where_there_is_room_for_them(getkey):
    """Up to a fan-in of 128; a rank that is asked for holds everywhere (N2), (N3)."""
    sizes = {"sd": 0.02, "spread": 0.3, "key": getkey()}
    full = Node().weights(MOST_FULL - 1, 2, **sizes)
    assert isinstance(full, NodeWeights)
    assert full.lower.shape == (2, MOST_FULL, MOST_FULL)
    low = Node().weights(MOST_FULL, 2, **sizes)
    assert isinstance(low, LowRankWeights)
    assert low.factor.shape == (2, MOST_FULL + 1, RANK)
    asked = Node(rank=3).weights(5, 2, **sizes)
    assert isinstance(asked, LowRankWeights)
    assert asked.factor.shape == (2, 6, 3)


def test_the_matrix_posterior_passes_its_settings_on(getkey):
    """Pairs and the most noise (V2), (V3)."""
    posterior = Matrix(pairs=7, noise=0.2)
    weights = posterior.weights(9, 4, sd=0.1, spread=1.0, key=getkey())
    assert isinstance(weights, MatrixWeights)
    assert weights.pseudo_inputs.shape == (7, 10)
    assert weights.pseudo_outputs.shape == (4, 7)
    np.testing.assert_allclose(weights.noise, [0.2, 0.2], rtol=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": -1}, "`pairs` must not be negative, got -1"),
        ({"noise": 1.0}, "from 0 to less than 1, got 1.0"),
        ({"noise": -0.1}, "from 0 to less than 1, got -0.1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Matrix(**settings)


@pytest.mark.parametrize("rank", [0, -3])
def test_an_impossible_rank_is_refused(rank):
    with pytest.raises(ValueError, match=f"whole number from 1, got {rank!r}"):
        Node(rank=rank)
