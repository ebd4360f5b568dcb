"""What a user looks at after a fit."""

import copy
import dataclasses
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.feature_selection import SelectFromModel

from farrier import HorseshoeClassifier, HorseshoeRegressor, Summary, Training, load
from farrier.presets import PLAIN

mpl.use("Agg")
from matplotlib import pyplot as plt

# Nearly all nodes of networks as small as these are active, of which fits warn.
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (8,),
    "training": Training(learning_rate=0.03, max_iter=400, kl_annealing=0.6),
    "n_draws": 48,
    "random_state": 0,
}
NAMES = ["height", "width", "noise_1", "noise_2"]


def table(rows=120, seed=0):
    """y = 2 |height| + width + noise of sd 0.2, and two columns of noise."""
    random = np.random.default_rng(seed)
    X = pd.DataFrame(random.uniform(-1, 1, (rows, 4)), columns=NAMES)
    y = 2 * X["height"].abs() + X["width"] + 0.2 * random.normal(size=rows)
    return X, 1000 * y.to_numpy()


def labels(rows=120, seed=0):
    X, y = table(rows, seed)
    return X, np.where(y > np.median(y), "tall", "short")


@pytest.fixture(scope="module")
def regressor():
    return HorseshoeRegressor(**PLAIN | SMALL).fit(*table())


@pytest.fixture(scope="module")
def classifier():
    return HorseshoeClassifier(**SMALL).fit(*labels())


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


# -- in words --------------------------------------------------------------------------


def test_summary_states_what_was_fitted(regressor, classifier):
    found = regressor.summary()
    assert found["task"] == "regression"
    assert found["rows"] == "120"
    low, high = regressor.width_interval(0.9)[0]
    on = f"{regressor.widths_[0]} of 8 nodes active (90 % interval {low} to {high})"
    assert found["hidden layer 1"] == on
    history = regressor.history_
    assert found["ELBO"] == f"{history.elbo[-1] / 120:.3f} nats per row"
    assert found["training"].startswith("whole budget used; 400 steps in ")
    noise = float(found["noise sd"].split()[0])
    assert 150 < noise < 350  # 200, in the units of y
    assert str(found).splitlines()[0] == repr(found).splitlines()[0]
    of_classes = classifier.summary()
    assert of_classes["task"] == "classification, 2 classes"
    assert "noise sd" not in dict(of_classes.lines)


def test_summary_in_a_notebook_is_escaped():
    html = Summary("<title>", (("a & b", "<i>"),))._repr_html_()
    assert "&lt;title&gt;" in html
    assert "<th style='text-align: left'>a &amp; b</th>" in html
    assert "<td style='text-align: left'>&lt;i&gt;</td>" in html


def test_view_in_a_notebook_shows_the_widths(regressor):
    line = f"Active nodes: {regressor.widths_[0]} of 8."
    assert line in regressor._repr_mimebundle_()["text/html"]
    assert line in regressor._repr_html_()
    assert "Active nodes" not in HorseshoeRegressor()._repr_html_()


def test_listing_an_estimator_computes_nothing(regressor):
    """As scikit-learn's view in notebooks and the completion of names do."""
    model = copy.copy(regressor)
    model.model_ = dataclasses.replace(regressor.model_)
    assert {"widths_", "plot_nodes"} <= {*dir(model)}
    assert not {"feature_scores_", "features_on_", "sampling_"} & {*dir(model)}
    for name in ("predictor", "nodes", "depths", "compaction", "column_shares"):
        assert not model.model_.is_computed(name)


# -- figures ---------------------------------------------------------------------------


def test_figures_return_axes(regressor):
    ax = plt.figure().subplots()
    assert regressor.plot_nodes(ax=ax) is ax
    terms = regressor.history_.terms
    drawn = regressor.plot_history(terms=terms).get_lines()
    assert [line.get_label() for line in drawn] == ["ELBO", *terms]
    per_row = regressor.history_.elbo[-1] / 120
    assert drawn[0].get_ydata()[-1] == pytest.approx(per_row)
    histogram, curve = regressor.plot_calibration(*table(80, seed=1))
    assert histogram.get_ylabel() == "density"
    inside = curve.get_lines()[1].get_ydata()
    assert inside[90] > 0.7  # of the intervals of level 0.9


def test_band_of_a_regression_follows_the_function(regressor):
    """2000 |height|, in the units of y; at the ends it is wider than at the median."""
    X, _ = table()
    ax = regressor.plot_band(X, "height")
    grid, mean = ax.get_lines()[0].get_data()
    assert ax.get_xlabel() == "height"
    assert (grid[0], grid[-1]) == (X["height"].min(), X["height"].max())
    middle = 2000 * abs(grid) + 1000 * X["width"].median()
    assert np.sqrt(np.mean((mean - middle) ** 2)) < 250
    _, curves, name = regressor.predict_band(X, 0, levels=(0.5, 0.9))
    mean, ((low_half, high_half), (low, high)) = curves["target 0"]
    assert name == "height"
    assert (low < low_half).all()
    assert (low_half < mean).all()
    assert (mean < high_half).all()
    assert (high_half < high).all()


def test_band_is_the_prediction(regressor):
    X, _ = table()
    grid, curves, _ = regressor.predict_band(X, "width", levels=(0.8,))
    rows = pd.DataFrame([X.median()] * len(grid)).assign(width=grid)
    mean, [(low, high)] = curves["target 0"]
    np.testing.assert_allclose(mean, regressor.predict(rows))
    expected = regressor.predict_interval(rows, level=0.8)
    np.testing.assert_allclose((low, high), expected)


def test_band_of_a_class_is_a_probability(classifier):
    X, _ = labels()
    grid, curves, _ = classifier.predict_band(X, "width")
    rows = pd.DataFrame([X.median()] * len(grid)).assign(width=grid)
    (name, (mean, bands)), *none = curves.items()
    assert (name, none) == ("tall", [])
    np.testing.assert_allclose(mean, classifier.predict_proba(rows)[:, 1])
    for low, high in bands:
        assert 0 <= low.min() <= high.max() <= 1
    assert classifier.plot_band(X, "width").get_ylabel() == "probability"


def test_reliability_of_a_classifier(classifier):
    ax = classifier.plot_calibration(*labels(200, seed=1))
    assert ax.get_xlabel() == "probability of tall"
    predicted, observed = ax.get_lines()[1].get_data()
    assert np.corrcoef(predicted, observed)[0, 1] > 0.8


@pytest.mark.parametrize(
    ("feature", "message"), [("depth", "got 'depth'; the first"), (4, "0 to 3, got 4")]
)
def test_an_unknown_feature_is_named(regressor, feature, message):
    with pytest.raises(ValueError, match=message):
        regressor.plot_band(table()[0], feature)


# -- calibration -----------------------------------------------------------------------


def test_pit_tells_which_intervals_cover(regressor):
    """Inside the interval of a level exactly where |2 u - 1| <= level (P2)."""
    X, y = table(60, seed=2)
    place = regressor.pit(X, y)
    low, high = regressor.predict_interval(X, level=0.8)
    np.testing.assert_array_equal((low <= y) & (y <= high), abs(2 * place - 1) <= 0.8)


# -- inputs that matter ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_noise_columns_have_low_scores(kind, request):
    """And the posterior is sure of it (I1)."""
    model = request.getfixturevalue(kind)
    scores, (low, high) = model.feature_scores_, model.feature_interval(0.9)
    assert scores[:2].min() > 5 * scores[2:].max()
    assert low[:2].min() > high[2:].max()
    assert (low <= scores).all()
    assert (scores <= high).all()


def test_scores_are_those_of_the_rows_given(regressor):
    X, _ = table()
    shares = regressor.feature_shares(X, groups=[[0, 1], [2, 3]])
    assert shares.shape == (48, 2)
    fixed = X.assign(height=0.5)
    none, *_ = np.median(regressor.feature_shares(fixed), axis=0)
    assert none < 1e-20


def test_select_from_model():
    X, y = table()
    select = SelectFromModel(HorseshoeRegressor(**SMALL), threshold=0.05).fit(X, y)
    assert select.get_feature_names_out().tolist() == NAMES[:2]


def test_scores_survive_a_file(regressor, tmp_path):
    expected = regressor.feature_scores_
    regressor.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(again.feature_scores_, expected)
    assert again.plot_nodes().get_xlabel() == "node, largest first"


# -- draws -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of ArviZ 0.23, about its own
def test_draws_for_arviz(regressor, classifier):
    pytest.importorskip("arviz")
    X, _ = table(7, seed=3)
    found = regressor.to_arviz(X)
    noise = found["posterior"]["noise_sd"].to_numpy()
    assert noise.shape == (1, 48, 1)
    assert np.median(noise) == pytest.approx(
        float(regressor.summary()["noise sd"].split()[0]), rel=0.02
    )
    tau = found["posterior"]["layer_1_tau"].to_numpy()
    assert tau.shape == (1, 48, len(regressor.node_scores_[0]))
    loc = np.asarray(regressor.model_.network.layers[0].scales["tau"].q.loc)
    sd = np.asarray(regressor.model_.network.layers[0].scales["tau"].q.scale)
    error = sd / np.sqrt(48)
    assert (abs(np.log(tau).mean((0, 1)) - loc) < 5 * error).all()
    drawn = found["posterior_predictive"]["y"].to_numpy()
    assert drawn.shape == (1, 48, 7)
    assert "posterior_predictive" not in regressor.to_arviz()
    p = classifier.to_arviz(X)["posterior_predictive"]["p"].to_numpy()
    np.testing.assert_allclose(p.mean((0, 1)), classifier.predict_proba(X), rtol=1e-6)


def test_a_missing_arviz_is_named(regressor, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"farrier\[arviz\]"):
        regressor.to_arviz()
