"""The ELBO as a record of its terms."""

import jax.numpy as jnp
import numpy as np

from farrier.core.bound import Bound


def a_bound():
    kl = {"layer_1/beta": jnp.array([2.0, 4.0]), "noise/gamma": jnp.array([0.5, 0.25])}
    return Bound(jnp.array([-10.0, 3.0]), kl)


def test_total_is_the_log_likelihood_minus_all_kl_terms():
    """By hand, one value for each step of a history (B1)."""
    np.testing.assert_array_equal(a_bound().total, [-12.5, -1.25])


def test_weighted_is_linear_between_the_log_likelihood_and_the_elbo():
    """Weight 0 leaves the log likelihood, weight 1 is the ELBO (B1)."""
    bound = a_bound()
    np.testing.assert_array_equal(bound.weighted(0.0), bound.log_likelihood)
    np.testing.assert_array_equal(bound.weighted(1.0), bound.total)
    np.testing.assert_array_equal(bound.weighted(jnp.array(0.5)), [-11.25, 0.875])


def test_terms_are_named_and_sum_to_the_total():
    """The log likelihood first, then each KL term by its name (B1)."""
    bound = a_bound()
    terms = bound.terms()
    assert list(terms) == ["log_likelihood", "layer_1/beta", "noise/gamma"]
    likelihood, *kl = terms.values()
    np.testing.assert_array_equal(likelihood - sum(kl), bound.total)


def test_parts_of_the_rows_add_up_to_the_elbo():
    """Each has its own rows, and its share of the KL terms (B1)."""
    whole = a_bound()
    first = Bound(jnp.array([-4.0, 1.0]), whole.kl).cut(2)
    second = Bound(jnp.array([-6.0, 2.0]), whole.kl).cut(2)
    np.testing.assert_array_equal(first.total + second.total, whole.total)
    for name, term in whole.terms().items():
        np.testing.assert_array_equal(first.terms()[name] + second.terms()[name], term)
