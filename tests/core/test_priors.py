"""Priors a user can name."""

import numpy as np
import pytest

from farrier.core.priors import PRIORS, Gaussian, Horseshoe
from farrier.core.scales import AuxiliaryHalfCauchy, HalfCauchy


def prior_scales(prior):
    """b of the half-Cauchy of each scale, and how many of it a layer of 3 nodes has."""
    scales = prior.scales(3, start=0.4)
    assert all(isinstance(scale.prior, HalfCauchy) for scale in scales.values())
    return {name: (scale.prior.b, scale.q.loc.shape) for name, scale in scales.items()}


def test_which_scales_a_prior_has():
    """s_k = tau_k upsilon for the horseshoe, one kappa ~ C+(0, 5) otherwise (M1)."""
    assert prior_scales(Horseshoe()) == {"tau": (1.0, (3,)), "upsilon": (1.0, ())}
    other = Horseshoe(node_scale=2.0, layer_scale=0.1)
    assert prior_scales(other) == {"tau": (2.0, (3,)), "upsilon": (0.1, ())}
    assert prior_scales(Gaussian()) == {"kappa": (5.0, ())}
    assert prior_scales(Gaussian(scale=2.0)) == {"kappa": (2.0, ())}


@pytest.mark.parametrize("prior", [Horseshoe(), Gaussian()], ids=lambda p: p.name)
def test_product_of_the_scales_starts_where_asked(prior):
    """Its median under q is `start` for each node (M1)."""
    scales = prior.scales(3, start=0.4)
    log_product = sum(np.asarray(scale.q.loc) for scale in scales.values())
    np.testing.assert_allclose(np.exp(log_product), 0.4, rtol=1e-12)


@pytest.mark.parametrize(
    ("half_cauchy", "kind"),
    [("collapsed", HalfCauchy), ("auxiliary", AuxiliaryHalfCauchy)],
)
@pytest.mark.parametrize("prior", [Horseshoe, Gaussian])
def test_both_forms_of_the_half_cauchy_start_alike(prior, half_cauchy, kind):
    """Collapsed (M5), or explicit with q(lam) at its optimum (M4), (M9): one number."""
    scales = prior(half_cauchy=half_cauchy).scales(3, start=0.4)
    collapsed = prior().scales(3, start=0.4)
    assert scales.keys() == collapsed.keys()
    for name, scale in scales.items():
        assert isinstance(scale.prior, kind)
        np.testing.assert_allclose(scale.kl(), collapsed[name].kl(), rtol=1e-12)


def test_priors_by_name():
    """The posterior stands on beta unless asked otherwise (M1)."""
    centred = Horseshoe(parametrisation="centred")
    assert PRIORS["horseshoe"] == Horseshoe(parametrisation="non-centred")
    assert PRIORS["centred-horseshoe"] == centred != Horseshoe()
    assert PRIORS["gaussian"] == Gaussian(scale=5.0)


@pytest.mark.parametrize("field", ["parametrisation", "half_cauchy"])
def test_a_form_that_nobody_knows_is_refused(field):
    with pytest.raises(
        ValueError, match=f"`{field}` must be one of .*, got 'middling'"
    ):
        Horseshoe(**{field: "middling"})


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize(
    ("prior", "name"),
    [(Horseshoe, "node_scale"), (Horseshoe, "layer_scale"), (Gaussian, "scale")],
)
def test_a_scale_that_is_none_is_refused(prior, name, bad):
    with pytest.raises(
        ValueError, match=f"`{name}` must be positive and finite, got {bad!r}"
    ):
        prior(**{name: bad})
