"""What is said about a fitted model, in text, HTML and JSON."""

import dataclasses
import json
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

from farrier import Horseshoe, HorseshoeRegressor, Mclmc
from farrier.cli._shared import plain
from farrier.fit import FittedModel, Units
from farrier.infer.compact import Compaction
from farrier.infer.ensemble import FitSummary
from farrier.infer.nodes import Nodes
from farrier.infer.sample.settings import Sampling
from farrier.model.likelihoods import Categorical, GaussianNoise
from farrier.model.posterior import SampledPosterior
from farrier.train.history import History, Status
from farrier.units import Standardiser, identity_units
from farrier.views.describe import ENDINGS, Description, Summary

DRAWS, ROWS, WIDTHS = 20, 40.0, (5, 3)
ACTIVE = (3, 1)  # nodes of each layer
STEP = np.array([100, 200])
TERMS = {
    "log_likelihood": np.array([-90.0, -40.0]),
    "layer_1/beta": np.array([1.0, 8.0]),
    "layer_1/tau": np.array([1.0, 4.0]),
    "noise/gamma": np.array([1.0, 2.0]),
}


def shares(width, active):
    """Shares of which the first `active` nodes are over 1 % in all draws but one."""
    values = np.where(np.arange(width) < active, 0.5, 0.001) * np.ones((DRAWS, 1))
    values[0] = 0.5
    return values


def tiny_model(*, classes=None, columns=None, status=Status.BUDGET, noise=2.0, **more):
    """A model of two hidden layers and four inputs, without any fit."""
    settings = GaussianNoise() if classes is None else Categorical()
    likelihood = settings.build(classes or 1, rows=ROWS)
    sizes = [4, *WIDTHS, likelihood.d_out]
    pairs = [*pairwise(sizes)]
    posterior = SampledPosterior(
        kernels=tuple(jnp.ones((DRAWS, *pair)) for pair in pairs),
        biases=tuple(jnp.zeros((DRAWS, size)) for size in sizes[1:]),
        scales={},
        noise=jnp.full((DRAWS, 1 if classes is None else 0), noise),
        likelihood=likelihood,
        activation="relu",
    )
    of_y = Standardiser(np.array([7.0]), np.array([10.0])) if classes is None else None
    model = FittedModel(
        posterior=posterior,
        network=None,
        units=Units(identity_units(4), of_y),
        history=History(STEP, TERMS, status=status, seconds=3.2),
        built_widths=(100, 50),
        total=ROWS,
        epochs=200,
        seed=0,
        draws=DRAWS,
    )
    pairs = zip(WIDTHS, ACTIVE, strict=True)
    of_layers = tuple(shares(width, active) for width, active in pairs)
    of_columns = None if columns is None else shares(4, columns)
    model = dataclasses.replace(model, **more)
    return model.computed(nodes=Nodes(of_layers, of_columns))


def test_a_width_is_the_same_in_every_form():
    """Counted by hand: 3 and 1 active nodes, and all of them in one draw of 20."""
    found = Description(tiny_model())
    assert [layer.active for layer in found.layers] == [*ACTIVE]
    assert [layer.stored for layer in found.layers] == [*WIDTHS]
    assert found.widths_text == "3 of 100, 1 of 50"
    assert f"<p>Active nodes: {found.widths_text}." in found.html_line()
    assert found.closing_lines()[0] == f"Active nodes: {found.widths_text}"
    summary = found.summary()
    assert summary["hidden layer 1"] == ("3 of 100 nodes active (90 % interval 3 to 3)")
    assert summary["hidden layer 2"].startswith("1 of 50 nodes active")
    values = found.to_json()
    assert (values["widths"], values["built_widths"]) == ([3, 1], [100, 50])


def test_the_elbo_is_per_row():
    found = Description(tiny_model())
    assert found.elbo_per_row == pytest.approx((-40 - 8 - 4 - 2) / ROWS)
    assert found.terms_per_row["layer_1/tau"] == pytest.approx(4 / ROWS)
    summary = found.summary()
    assert summary["ELBO"] == "-1.350 nats per row"
    assert summary["  log likelihood"] == "-1.000"
    parts = "weights 0.200, scales 0.100, noise 0.050"
    assert summary["  KL terms"] == f"0.350 ({parts})"
    assert f"ELBO: {summary['ELBO']}" in found.closing_lines()


def test_without_a_record_there_is_no_elbo():
    empty = {name: np.zeros(0) for name in TERMS}
    history = History(np.zeros(0, int), empty, status=Status.INTERRUPTED)
    found = Description(tiny_model(history=history))
    assert found.elbo_per_row is None
    assert found.to_json()["terms_per_row"] == {}
    assert found.summary()["ELBO"].startswith("none")
    assert "interrupted; 0 steps" in found.training_text


@pytest.mark.parametrize("status", [*Status])
def test_every_ending_has_its_text_and_advice(status):
    found = Description(tiny_model(status=status))
    text = found.training_text
    assert text.startswith(f"{ENDINGS[status].text}; 200 steps in 3 s (200 epochs)")
    assert text.endswith(ENDINGS[status].advice)
    assert f"Training: {text}" in found.closing_lines()
    assert found.summary()["training"] == text
    assert found.to_json()["status"] == str(status)


def test_only_what_went_wrong_needs_advice():
    silent = [status for status in Status if not ENDINGS[status].advice]
    assert silent == [Status.RUNNING, Status.CONVERGED]
    assert "do not use this model" in ENDINGS[Status.NOT_FINITE].advice


def test_skipped_steps_are_counted():
    history = History(STEP, TERMS, skipped=7)
    found = Description(tiny_model(history=history))
    assert "200 steps (7 skipped because they were not finite)" in found.training_text


def test_active_columns_are_named():
    found = Description(tiny_model(columns=2), features=["a", "b", "c", "d"])
    text = "2 of 4 columns active (90 % interval 2 to 2): a, b"
    assert found.inputs_text == text
    assert f"Inputs: {text}" in found.closing_lines()
    assert ". Active columns: 2 of 4." in found.html_line()
    assert found.to_json()["features_on"].tolist() == [True, True, False, False]
    unnamed = Description(tiny_model(columns=1))
    assert unnamed.inputs_text.endswith(": x0")
    without = Description(tiny_model())
    assert without.inputs_text == "4"
    assert "features_on" not in without.to_json()


def test_noise_is_in_the_units_of_the_target():
    assert Description(tiny_model(noise=2.0)).summary()["noise sd"] == (
        "20 (90 % interval 20 to 20)"
    )
    of_classes = Description(tiny_model(classes=3)).summary()
    assert of_classes["task"] == "classification, 3 classes"
    assert "noise sd" not in dict(of_classes.lines)


def test_restarts_and_sampling_are_described():
    fits = (FitSummary(-40.0, 0.5, (3, 1)), FitSummary(-80.0, 0.5, ()))
    sampling = Sampling(4, 100, 1.02, 250.0, 0.8, 0, 4_000, 9.0)
    found = Description(tiny_model(fits=fits, sampling=sampling))
    assert found.summary()["restarts"] == (
        "2 fits of ELBO -1.000 (weight 0.50, 3 and 1 nodes active), "
        "-2.000 (weight 0.50)"
    )
    assert found.summary()["sampling"] == str(sampling)
    assert f"Sampling: {sampling}" in found.closing_lines()
    values = found.to_json()
    assert values["restarts"][1]["elbo"] == -80
    assert (values["sampling"]["chains"], values["sampling"]["r_hat"]) == (4, 1.02)


def test_a_compaction_is_described_once_it_is_known():
    """A model from a file has no rows to compute it from."""
    model = tiny_model()
    assert Description(model).to_json()["compaction"] is None
    assert "compaction" not in dict(Description(model).summary().lines)
    keep = tuple(np.ones(width, bool) for width in WIDTHS)
    compaction = Compaction(model.posterior, keep, 0.005, -0.001)
    found = Description(model.computed(compaction=compaction))
    assert found.summary()["compaction"] == str(compaction)
    assert found.to_json()["compaction"] == str(compaction)


def test_settings_are_plain_in_json():
    settings = {"prior": Horseshoe(slab=2.0), "refine": Mclmc(), "posterior": "matrix"}
    found = Description(tiny_model(), settings=settings)
    values = json.loads(json.dumps(plain(found.to_json()), allow_nan=False))
    assert values["settings"]["prior"]["class"] == "Horseshoe"
    assert values["settings"]["prior"]["slab"] == 2
    assert values["settings"]["refine"]["class"] == "Mclmc"
    assert found.summary()["prior"] == repr(settings["prior"])
    assert found.summary()["posterior"] == "matrix"


def test_a_summary_is_a_table():
    summary = Summary("Title", (("a", "one"), ("longer", "two")))
    assert str(summary) == repr(summary)
    assert str(summary) == "Title\n-----\na       one\nlonger  two"
    assert summary["longer"] == "two"


def test_a_summary_is_escaped_in_a_notebook():
    html = Summary("<title>", (("a & b", "<i>"),))._repr_html_()
    assert "&lt;title&gt;" in html
    assert "<th style='text-align: left'>a &amp; b</th>" in html
    assert "<td style='text-align: left'>&lt;i&gt;</td>" in html


def test_a_notebook_computes_nothing():
    """scikit-learn's view lists and reads all attributes of an estimator."""
    estimator = HorseshoeRegressor()
    unfitted = estimator._repr_html_()
    estimator.model_, estimator.n_features_in_ = tiny_model(), 4
    html = estimator._repr_html_()
    line = "Active nodes: 3 of 100, 1 of 50."
    assert line in html
    assert line in estimator._repr_mimebundle_()["text/html"]
    assert "Active nodes" not in unfitted
    names = {*dir(estimator)}
    assert {"widths_", "plot_nodes"} <= names
    assert not {"feature_scores_", "sampling_"} & names
    for name in ("predictor", "depths", "compaction", "column_shares"):
        assert not estimator.model_.is_computed(name)
    estimator.model_.computed(column_shares=np.full((DRAWS, 4), 0.25))
    assert {"feature_scores_", "feature_importances_"} <= {*dir(estimator)}
