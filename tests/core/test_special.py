"""Stable scalar functions, against NumPy and by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farrier.core.special import softplus_inverse


@settings(deadline=None, derandomize=True)
@given(st.floats(1e-30, 1e30))
def test_softplus_undoes_softplus_inverse(x):
    np.testing.assert_allclose(
        jax.nn.softplus(softplus_inverse(jnp.array(x))), x, rtol=1e-12
    )


@pytest.mark.parametrize("x", [1e-8, 0.01, np.log(2.0), 3.0, 30.0, 700.0])
def test_softplus_inverse_is_the_textbook_formula(x):
    expected = np.log(np.expm1(x))
    actual = softplus_inverse(jnp.array(x))
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


def test_softplus_inverse_of_log_two_is_zero_and_of_a_large_value_is_itself():
    np.testing.assert_allclose(softplus_inverse(jnp.log(jnp.array(2.0))), 0, atol=1e-15)
    assert softplus_inverse(jnp.array(1e6)) == 1e6
