"""Priors a user can name."""

import numpy as np
import pytest
from scipy import integrate, stats

from farrier.core.priors import (
    PRIORS,
    Gaussian,
    Horseshoe,
    NodeExponential,
    NodeHalfCauchy,
    RegularisedHorseshoe,
    ScaleMixture,
    layer_scale_for,
)
from farrier.core.scales import AuxiliaryHalfCauchy, Exponential, HalfCauchy
from farrier.core.weights import Mixed, NonCentred, Regularised


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


def test_the_alternatives_have_a_scale_for_each_node_and_none_for_the_layer():
    """Half-Cauchy (M1) or exponential (M11)."""
    assert prior_scales(NodeHalfCauchy(node_scale=2.0)) == {"tau": (2.0, (3,))}
    scales = NodeExponential(node_scale=0.5).scales(3, start=0.4)
    assert [*scales] == ["tau"]
    assert scales["tau"].prior == Exponential(0.5)
    assert scales["tau"].q.loc.shape == (3,)


def test_a_mixture_has_no_scales_and_is_the_prior_of_the_output_too():
    """Each weight has its own two normals (M10)."""
    prior = ScaleMixture(share=0.25, wide=0.5, narrow=0.01)
    assert prior.scales(3, start=0.4) == {}
    assert prior.parametrised() == Mixed(0.25, 0.5, 0.01)
    assert prior.of_output() is prior
    assert prior.of_unlike_outputs() is prior


def test_outputs_of_different_units_have_a_scale_each():
    """kappa ~ C+(0, 5) for each, in the same form (M1), (L4)."""
    for prior in (Horseshoe(node_scale=2.0), Gaussian(scale=1.0), NodeHalfCauchy()):
        assert prior_scales(prior.of_unlike_outputs()) == {"kappa": (5.0, (3,))}
    centred = Horseshoe(parametrisation="centred", scale_draws="batch")
    outputs = centred.of_unlike_outputs()
    assert outputs.parametrised() == centred.parametrised()
    assert outputs.scale_rows is centred.scale_rows


def test_output_has_one_half_cauchy_scale_of_five():
    """Whatever the hidden layers have (M1), in the same form."""
    for prior in (Horseshoe(), Gaussian(scale=1.0), NodeHalfCauchy()):
        assert prior.of_output() == Gaussian(scale=5.0)
    auxiliary = Horseshoe(half_cauchy="auxiliary", parametrisation="centred")
    output = Gaussian(half_cauchy="auxiliary", parametrisation="centred")
    assert auxiliary.of_output() == output


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
    [Horseshoe(), Gaussian(), NodeHalfCauchy(), NodeExponential()],
    ids=lambda p: p.name,
)
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
    assert PRIORS["narrow-horseshoe"] == Horseshoe(node_scale=0.01)
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


def test_a_regularised_horseshoe_has_a_slab_in_hidden_layers_alone():
    """The scales of a horseshoe (M1), cut off softly (G3)."""
    prior = RegularisedHorseshoe(slab_scale=3.0, layer_scale=0.1)
    assert prior_scales(prior) == {"tau": (1.0, (3,)), "upsilon": (0.1, ())}
    assert prior.parametrised() == Regularised(3.0)
    assert prior.of_output().parametrised() == NonCentred()
    assert PRIORS["regularised-horseshoe"] == RegularisedHorseshoe()


@pytest.mark.parametrize(("expected", "nodes"), [(5, 50), (0.2, 30)])
def test_layer_scale_makes_so_many_nodes_expected(expected, nodes):
    """(G5) against quadrature and draws of 1 - 1 / (1 + n b^2 tau^2)."""
    rows = 400
    b = layer_scale_for(expected, nodes, rows)
    on = lambda tau: 1 - 1 / (1 + rows * b**2 * tau**2)
    count = expected * nodes if expected < 1 else expected
    share, _ = integrate.quad(lambda t: stats.halfcauchy.pdf(t) * on(t), 0, np.inf)
    assert nodes * share == pytest.approx(count, rel=1e-6)
    tau = stats.halfcauchy.rvs(size=40_000, random_state=np.random.default_rng(0))
    error = nodes * on(tau).std() / np.sqrt(len(tau))
    assert abs(nodes * on(tau).mean() - count) < 5 * error


def test_expected_nodes_take_the_place_of_the_layer_scale():
    """At most all but one are expected to be on (G5)."""
    prior = RegularisedHorseshoe(expected_nodes=1, rows=100, node_scale=2.0)
    assert prior_scales(prior)["upsilon"][0] == pytest.approx(0.5 / 10 / 2)
    many = RegularisedHorseshoe(expected_nodes=9, rows=100)
    assert prior_scales(many)["upsilon"][0] == pytest.approx(2 / 10)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"expected_nodes": 5}, "`expected_nodes` and `rows` go together, got 5 and N"),
        ({"parametrisation": "centred"}, "is non-centred, got .*'centred'"),
        ({"slab_scale": 0}, "`slab_scale` must be positive and finite, got 0"),
    ],
)
def test_settings_of_a_regularised_horseshoe_are_checked(given, said):
    with pytest.raises(ValueError, match=said):
        RegularisedHorseshoe(**given)
