"""Digits: what is read off a fit, and what tables and claims make of it."""

import dataclasses

import jax.random as jr
import numpy as np
import pytest

from experiments import mnist
from experiments._models import (
    DECADES,
    MODELS,
    SMALLEST,
    classified,
    nodes,
    quantile,
    smallest_units,
    sparsity_claim,
)
from experiments.settings import arguments
from farrier import HorseshoeClassifier


@pytest.fixture(scope="module")
def model():
    random = np.random.default_rng(0)
    X = random.normal(size=(60, mnist.SIDE**2))
    y = random.integers(0, 3, 60)
    settings = {"max_iter": 1, "n_draws": 4, "random_state": 0, "kl_annealing": 0.0}
    with pytest.warns(UserWarning, match="may be too narrow"):
        return HorseshoeClassifier((12, 6), **arguments(settings)).fit(X, y)


def made_row(name="horseshoe", width=400, error=0.02, on=(40, 30), median=1e-4):
    edges = len(DECADES) - 1
    density = np.zeros(edges)
    density[np.searchsorted(DECADES, np.log10(median)) - 1] = 1.0
    unit = {"norm": 1e-3, "median": median, "density": density.tolist()}
    picture = {"norm": 1.0, "unit": 0.01, "pixels": [*range(-392, 392)]}
    return {
        "model": name,
        "width": width,
        "epochs": 100,
        "seconds": 600.0,
        "bound_per_row": -0.2,
        "test_rows": 10_000,
        "error": error,
        "log_density": -0.08,
        "nodes_on": [50, 40],
        "norms_on": [*on],
        "norms": [np.geomspace(1, 1e-3, width).tolist()] * 2,
        "smallest": [[unit] * SMALLEST] * 2,
        "filters": {"largest": [picture] * 10, "smallest": [picture] * 10},
    }


def test_a_part_for_each_fit(tmp_path):
    names = list(mnist.parts(mnist.FULL, tmp_path))
    assert names[:4] == [f"400-400/{name}" for name in MODELS]
    assert len(names) == 12
    short = list(mnist.parts(mnist.SHORT, tmp_path))
    assert "1200-1200/gaussian" in short
    assert "1200-1200/vmg" not in short


def test_a_fit_is_kept_when_others_change():
    more = dataclasses.replace(mnist.SHORT, runs=(*mnist.SHORT.runs[:1],))
    part = "400-400/horseshoe"
    assert mnist.settings_of(more, part) == mnist.settings_of(mnist.SHORT, part)
    assert mnist.settings_of(mnist.FULL, part) != mnist.settings_of(mnist.SHORT, part)


def test_norms_are_counted_and_sorted(model):
    found = nodes(model)
    for on, norms, own in zip(
        found["norms_on"], found["norms"], model.weight_norms_, strict=True
    ):
        assert norms == sorted(own.tolist(), reverse=True)
        assert on == sum(norm > 0.01 * own.max() for norm in own)


def test_weights_of_the_smallest_units_are_those_of_the_posterior(model):
    drawn = smallest_units(model, key=jr.key(0))
    for layer, units in enumerate(drawn):
        smallest = np.sort(model.weight_norms_[layer])[:SMALLEST]
        np.testing.assert_allclose([unit["norm"] for unit in units], smallest)
        for unit in units:
            assert np.diff(DECADES) @ unit["density"] == pytest.approx(1)
    # Before much training the sd is a hundredth of the spread: draws are near E[w].
    expected = np.asarray(model.model_.variational().layers[0].expected_weights())
    unit = int(np.argmin(model.weight_norms_[0]))
    middle = np.median(np.abs(expected[unit]))
    assert drawn[0][0]["median"] == pytest.approx(middle, rel=0.1)


def test_filters_are_the_expected_weights(model):
    found = mnist.filters(model)
    expected = np.asarray(model.model_.variational().layers[0].expected_weights())
    order = np.argsort(model.weight_norms_[0])
    for kind, index in (("largest", order[-1]), ("smallest", order[0])):
        picture = found[kind][0]
        np.testing.assert_allclose(
            np.array(picture["pixels"]) * picture["unit"],
            expected[index],
            atol=0.51 * picture["unit"],
        )


def test_error_and_density_are_those_of_the_mean_probabilities(model):
    X = np.random.default_rng(1).normal(size=(40, mnist.SIDE**2))
    y = np.random.default_rng(2).integers(0, 3, 40)
    found = classified(model, X, y)
    assert found["error"] == np.mean(model.predict(X) != y)
    assert found["log_density"] == pytest.approx(model.log_density(X, y).mean())


def test_the_table_states_error_and_epochs():
    text = mnist.table([made_row(), made_row("vmg", error=0.015)])
    assert "| HS-BNN | 400-400 | 100 | 2.00 ± 0.14 |" in text
    assert "| VMG | 400-400 | 100 | 1.50 ± 0.12 |" in text
    assert "40 - 30" in text


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0.020, "holds"), (0.023, "holds"), (0.027, "holds partly")],
)
def test_the_verdict_on_the_error_goes_by_its_standard_error(error, expected):
    others = {"gaussian": made_row("gaussian"), "vmg": made_row("vmg", error=0.05)}
    claim = mnist.error_claim(400, made_row(error=error), others)
    assert claim.verdict == expected
    assert "BNN 2.00%" in claim.evidence


def test_an_error_far_above_the_others_does_not_hold():
    others = {"gaussian": made_row("gaussian")}
    assert mnist.error_claim(400, made_row(error=0.04), others).verdict == (
        "does not hold"
    )


@pytest.mark.parametrize(
    ("on", "expected"),
    [((40, 30), "holds"), ((40, 300), "holds partly"), ((400, 400), "does not hold")],
)
def test_the_verdict_on_sparsity_goes_layer_by_layer(on, expected):
    other = {"gaussian": made_row("gaussian", on=(200, 200))}
    assert sparsity_claim(made_row(on=on), other).verdict == expected


def test_claims_on_the_smallest_units():
    ours, wide = made_row(median=1e-4), made_row(width=800, median=1e-5)
    mixture = made_row("scale-mixture", median=1e-2)
    assert mnist.spike_claim(ours, mixture).verdict == "holds"
    assert mnist.spike_claim(mixture, ours).verdict == "does not hold"
    assert mnist.width_claim([ours, wide]).verdict == "holds"
    assert mnist.width_claim([wide, ours]).verdict == "does not hold"


def test_a_slab_beside_a_spike_speaks_against_the_mixture():
    """Half of the weights are nearer to 0 than ours, a third of them are far off."""
    ours, mixture = made_row(median=1e-3), made_row("scale-mixture", median=1e-4)
    unit = mixture["smallest"][0][0]
    unit["density"][np.searchsorted(DECADES, -0.5)] = 0.5
    assert mnist.spike_claim(ours, mixture).verdict == "holds partly"


def test_quantiles_of_sizes_are_read_off_their_density(model):
    """Against the draws that made the density, of which the median is kept."""
    for layer in smallest_units(model, key=jr.key(1)):
        for unit in layer:
            found = quantile(unit["density"], 0.5)
            assert found == pytest.approx(unit["median"], rel=0.1)


def test_claims_wait_for_something_to_compare():
    assert mnist.claims([made_row()]) == []
    rows = [made_row(), made_row("scale-mixture"), made_row(width=1200)]
    assert len(mnist.claims(rows)) == 4


def test_figures_name_models_and_axes():
    rows = [made_row(), made_row("scale-mixture"), made_row(width=1200)]
    figures = mnist.render(rows)
    assert set(figures) == {"norms", "filters", "smallest", "five"}
    for name in ("norms", "five"):
        _, labels = figures[name].axes[-1].get_legend_handles_labels()
        assert labels == ["HS-BNN", "SM-BNN"]
    _, labels = figures["smallest"].axes[-1].get_legend_handles_labels()
    assert labels == ["400-400, 100 epochs", "1200-1200, 100 epochs"]
    for name in ("norms", "five", "smallest"):
        for ax in figures[name].axes:
            assert ax.get_xlabel()
            assert ax.get_ylabel()
    assert set(mnist.render([made_row("gaussian")])) == {"norms", "filters"}
