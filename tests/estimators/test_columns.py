"""A horseshoe over the columns of a table: all that an estimator does with it."""

import copy

import numpy as np
import pytest
from sklearn.base import clone

from farrier import (
    Horseshoe,
    HorseshoeClassifier,
    HorseshoeRegressor,
    Nuts,
    Training,
    fit_many,
    load,
)
from farrier.estimators.draws import posterior_draws
from farrier.export import to_numpy
from farrier.infer.relevance import input_shares
from farrier.presets import PLAIN
from farrier.views.report.content import case_of, inputs_table, nodes_table

# Networks as small as these have nearly all nodes on, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = PLAIN | {
    "hidden_layer_sizes": (6,),
    "prior": Horseshoe(columns=True),
    "training": Training(learning_rate=0.03, max_iter=400, kl_annealing=0.6),
    "n_draws": 32,
    "random_state": 0,
}


def table(rows=120, noise=3, seed=0):
    """y = 2 |x_0| + x_1 + noise of sd 0.2; columns of noise, and a constant."""
    random = np.random.default_rng(seed)
    X = np.column_stack([random.uniform(-1, 1, (rows, 2 + noise)), np.full(rows, 7.0)])
    return X, 2 * abs(X[:, 0]) + X[:, 1] + 0.2 * random.normal(size=rows)


@pytest.fixture(scope="module")
def model():
    return HorseshoeRegressor(**SMALL).fit(*table())


def test_columns_of_noise_are_off(model):
    assert model.features_on_.tolist() == [True, True, False, False, False, False]
    assert (model.feature_probabilities_[:2] == 1).all()
    assert (model.feature_probabilities_[2:] < 0.5).all()
    assert model.feature_scores_[:2].min() > 10 * model.feature_scores_[2:].max()
    last = {name: values[-1] for name, values in model.history_.kl.items()}
    assert last["inputs/tau"] > 0
    assert last["inputs/upsilon"] > 0


def test_words_name_the_columns(model):
    found = model.summary()["inputs"]
    assert found.startswith("2 of 6 columns active (90 % interval 2 to ")
    assert found.endswith(": x0, x1")
    assert "Active columns: 2 of 6" in model._repr_html_()


def test_the_report_has_a_line_for_the_columns(model):
    first, *_ = nodes_table(model).rows
    assert first[:3] == ["inputs", "6", "2"]
    kept = model.compact().compaction_.columns.sum()
    assert nodes_table(model.compact()).rows[0][-1] == str(kept)
    X, y = table(40)
    found = inputs_table(case_of(model, (X, y)), model.feature_shares(X))
    assert {row[0]: row[-1] for row in found.rows if row[-1] == "yes"} == {
        "x0": "yes",
        "x1": "yes",
    }


def test_without_scales_no_column_is_on_or_off():
    X, y = table(30)
    plain = clone(HorseshoeRegressor(**SMALL)).set_params(
        prior=Horseshoe(), training__max_iter=2
    )
    with pytest.raises(AttributeError, match=r"`prior=Horseshoe\(columns=True\)`"):
        _ = plain.fit(X, y).features_on_
    assert plain.model_.network.inputs is None
    assert not any("inputs/" in name for name in plain.history_.terms)


def test_a_file_keeps_it(model, tmp_path):
    X, _ = table(20, seed=1)
    for number, each in enumerate((model, model.compact())):
        path = tmp_path / f"{number}.safetensors"
        each.save(path)
        again = load(path)
        np.testing.assert_array_equal(again.predict(X), each.predict(X))
        np.testing.assert_array_equal(again.features_on_, each.features_on_)
        assert str(again.model_.compaction) == str(each.model_.compaction)


def test_a_compact_model_has_fewer_columns_and_predicts_the_same(model):
    X, _ = table(50, seed=1)
    small = model.compact()
    kept = small.compaction_.columns
    assert kept[:2].all()
    assert not kept[-1]  # the constant
    assert small.model_.network.layers[0].weights.fan_in == kept.sum() + 1
    (mean, sd), (other, _) = (m.predict(X, return_std=True) for m in (model, small))
    assert np.sqrt(np.mean(((mean - other) / sd) ** 2)) < 0.02
    moved = X + np.where(kept, 0, 1e3)  # what is gone is not looked at
    np.testing.assert_array_equal(small.predict(moved), small.predict(X))


def test_export_has_the_scales_in_its_weights(model):
    """The same predictions; weights from removed columns are zero."""
    X, _ = table(50, seed=1)
    small = model.compact()
    predictor = to_numpy(model)
    (mean, sd), (other, wide) = (
        m.predict(X, return_std=True) for m in (small, predictor)
    )
    assert np.sqrt(np.mean(((mean - other) / sd) ** 2)) < 1e-4
    assert np.sqrt(np.mean((wide / sd - 1) ** 2)) < 1e-4
    gone = predictor.arrays["hidden.0.kernel"][..., ~small.compaction_.columns, :]
    assert (gone == 0).all()


def test_training_goes_on_from_it(model):
    """By `warm_start`, of a compacted model, whose columns stay away."""
    X, y = table()
    again = copy.copy(model.compact()).set_params(warm_start=True, training__max_iter=2)
    columns = again.model_.network.inputs.columns
    assert len(columns) < 6
    again.fit(X, y)
    np.testing.assert_array_equal(again.model_.network.inputs.columns, columns)
    np.testing.assert_allclose(again.predict(X), model.predict(X), atol=0.2)


@pytest.mark.slow
def test_every_way_to_train(tmp_path):
    """By pieces, from a checkpoint, as one of many."""
    X, y = table()
    short = HorseshoeRegressor(**SMALL).set_params(training__max_iter=3)
    pieces = clone(short).partial_fit(X, y).partial_fit(X, y)
    assert len(pieces.history_.terms["inputs/tau"]) == 2
    short.fit(X, y, checkpoint=tmp_path / "run")
    (again,) = fit_many([clone(short)], X, y)
    resumed = clone(short).fit(X, y, checkpoint=tmp_path / "run")
    for other in (again, resumed):
        np.testing.assert_allclose(other.predict(X), short.predict(X), rtol=1e-6)


def test_scales_of_columns_are_among_the_draws(model):
    found = posterior_draws(model.model_)
    assert found["inputs_tau"].shape == (1, 32, 6)
    assert found["inputs_upsilon"].shape == (1, 32)
    q = model.model_.network.inputs.tau.q
    mean, error = np.asarray(q.loc), np.asarray(q.scale) / np.sqrt(32)
    assert (abs(np.log(found["inputs_tau"]).mean((0, 1)) - mean) < 5 * error).all()


@pytest.mark.slow
def test_scales_of_inputs_are_sampled_too(tmp_path):
    X, y = table(60, noise=1)
    method = Nuts(candidates=2, chains=1, warm_up=150, draws=50, kept=32, depth=2)
    settings = SMALL | {"hidden_layer_sizes": (2,), "refine": method}
    model = HorseshoeRegressor(**settings).set_params(training__max_iter=100)
    model.fit(X, y)
    tau = np.asarray(model.model_.posterior.scales["inputs"]["tau"])
    assert tau.shape == (32, 4)
    assert tau.std() > 0
    assert model.features_on_[0]
    assert not model.features_on_[-1]
    model.compact().save(tmp_path / "small")
    again = load(tmp_path / "small")
    np.testing.assert_array_equal(again.predict(X), model.compact().predict(X))


@pytest.mark.slow
def test_classes_and_shares(getkey):
    X, y = table()
    settings = SMALL | {"likelihood": None}
    model = HorseshoeClassifier(**settings).set_params(training__max_iter=150)
    model.fit(X, y > np.median(y))
    assert model.features_on_[:2].all()
    assert not model.features_on_[-1]
    posterior = model.model_.posterior.resampled(8, key=getkey())
    shares = input_shares(posterior, model.model_.units.x(X), [[0], [5]], key=getkey())
    assert (shares[:, 0] > 0).all()
    np.testing.assert_allclose(shares[:, 1], 0, atol=1e-20)
