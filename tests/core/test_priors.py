"""Priors a user can name."""

import numpy as np
import pytest

from farrier.core.forms import Mixed, NonCentred, Regularised
from farrier.core.priors import (
    PRIORS,
    Gaussian,
    Horseshoe,
    ScaleMixture,
)
from farrier.core.scales import ExactHalfCauchy, HalfCauchy


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


def test_a_mixture_has_no_scales_and_is_the_prior_of_the_output_too():
    """Each weight has its own two normals (M10)."""
    prior = ScaleMixture(share=0.25, wide=0.5, narrow=0.01)
    assert prior.scales(3, start=0.4) == {}
    assert prior.parametrised() == Mixed(0.25, 0.5, 0.01)
    assert prior.output_prior() is prior
    assert prior.separate_output_prior() is prior


def test_outputs_of_different_units_have_a_scale_each():
    """kappa ~ C+(0, 5) for each, in the same form (M1), (L4)."""
    for prior in (Horseshoe(node_scale=2.0), Gaussian(scale=1.0)):
        assert prior_scales(prior.separate_output_prior()) == {"kappa": (5.0, (3,))}
    centred = Horseshoe(parametrisation="centred", half_cauchy="exact")
    outputs = centred.separate_output_prior()
    assert outputs.parametrised() == centred.parametrised()
    assert isinstance(outputs.scales(3, start=1.0)["kappa"].prior, ExactHalfCauchy)


def test_output_has_one_half_cauchy_scale_of_five():
    """Whatever the hidden layers have (M1), in the same form."""
    for prior in (Horseshoe(), Gaussian(scale=1.0)):
        assert prior.output_prior() == Gaussian(scale=5.0)
    exact = Horseshoe(half_cauchy="exact", parametrisation="centred", columns=True)
    output = Gaussian(half_cauchy="exact", parametrisation="centred")
    assert exact.output_prior() == output


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"share": 1.0}, "`share` must be between 0 and 1, got 1.0"),
        ({"wide": 0.0}, "`wide` must be positive and finite, got 0.0"),
        ({"narrow": 2.0}, "`narrow` must be less than `wide`, got 2.0 and 1.0"),
    ],
)
def test_a_mixture_says_what_it_needs(settings, match):
    with pytest.raises(ValueError, match=match):
        ScaleMixture(**settings)


@pytest.mark.parametrize(
    "prior",
    [Horseshoe(), Gaussian()],
    ids=lambda p: p.name,
)
def test_product_of_the_scales_starts_where_asked(prior):
    """Its median under q is `start` for each node (M1)."""
    scales = prior.scales(3, start=0.4)
    log_product = sum(np.asarray(scale.q.loc) for scale in scales.values())
    np.testing.assert_allclose(np.exp(log_product), 0.4, rtol=1e-12)


@pytest.mark.parametrize(
    ("half_cauchy", "form"),
    [("collapsed", HalfCauchy), ("exact", ExactHalfCauchy)],
)
@pytest.mark.parametrize("prior", [Horseshoe, Gaussian])
def test_both_forms_of_the_half_cauchy_have_the_same_scales(prior, half_cauchy, form):
    """Collapsed (M5), or the divergence (G2), which is less by the Jensen gap."""
    scales = prior(half_cauchy=half_cauchy).scales(3, start=0.4)
    collapsed = prior().scales(3, start=0.4)
    assert scales.keys() == collapsed.keys()
    for name, scale in scales.items():
        assert isinstance(scale.prior, form)
        np.testing.assert_array_equal(scale.q.loc, collapsed[name].q.loc)
        assert scale.prior.b == collapsed[name].prior.b
        assert scale.kl() <= collapsed[name].kl()


def test_priors_by_name():
    """The posterior stands on beta unless asked otherwise (M1)."""
    centred = Horseshoe(parametrisation="centred")
    assert PRIORS["horseshoe"] == Horseshoe(parametrisation="non-centred")
    assert PRIORS["narrow-horseshoe"] == Horseshoe(node_scale=0.01)
    assert PRIORS["column-horseshoe"] == Horseshoe(node_scale=0.01, columns=True)
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


def test_a_slab_is_in_hidden_layers_alone():
    """The scales of a horseshoe (M1), limited by the slab (G3)."""
    prior = Horseshoe(slab=3.0, layer_scale=0.1)
    assert prior_scales(prior) == {"tau": (1.0, (3,)), "upsilon": (0.1, ())}
    assert prior.parametrised() == Regularised(3.0)
    assert prior.output_prior().parametrised() == NonCentred()
    assert Horseshoe().parametrised() == NonCentred()
    assert PRIORS["regularised-horseshoe"] == Horseshoe(slab=2.0)


def test_columns_are_asked_of_a_horseshoe_alone():
    """The output layer has no columns of the table (I2)."""
    scales = Horseshoe(columns=True).column_scales(4)
    assert {name: s.q.loc.shape for name, s in scales.items()} == {
        "tau": (4,),
        "upsilon": (),
    }
    others = (Horseshoe(), Gaussian(), ScaleMixture())
    outputs = (Horseshoe(columns=True).output_prior(),)
    assert not any(prior.column_scales(4) for prior in others + outputs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"slab": 2.0, "parametrisation": "centred"},
            "must be non-centred, got .*'centred'. Set it to 'non-centred', or `slab`",
        ),
        ({"slab": 0}, "`slab` must be positive and finite, got 0"),
    ],
)
def test_settings_of_a_horseshoe_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        Horseshoe(**given)
