"""Weight posteriors that a user can name."""

import jax.numpy as jnp
import numpy as np
import pytest

from farrier.core.matrix import MatrixWeights
from farrier.core.posteriors import POSTERIORS, Matrix
from farrier.core.weights import MeanFieldWeights


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("mean-field", MeanFieldWeights),
        ("low-rank", MeanFieldWeights),
        ("matrix", MatrixWeights),
    ],
)
def test_a_name_stands_for_its_weights(getkey, name, form):
    """With the sd of the locations and the sd asked for (F1), (V1)."""
    sizes = {"sd": 0.02, "start_sd": 0.3}
    weights = POSTERIORS[name].weights(200, 50, **sizes, key=getkey())
    assert isinstance(weights, form)
    assert (weights.fan_in, weights.nodes) == (201, 50)
    entropy = 201 * 0.5 * np.log(2 * np.pi * np.e * 0.02**2)
    np.testing.assert_allclose(weights.entropy(), np.full(50, entropy), rtol=1e-9)
    np.testing.assert_allclose(jnp.std(weights.expected()), 0.3, rtol=0.05)


def test_the_matrix_posterior_passes_its_settings_on(getkey):
    """Pairs and the most noise (V2), (V3)."""
    posterior = Matrix(pairs=7, noise=0.2)
    weights = posterior.weights(9, 4, sd=0.1, start_sd=1.0, key=getkey())
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
