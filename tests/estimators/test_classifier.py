"""HorseshoeClassifier as users call it; what it shares is in test_regressor.py."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from farrier import Gaussian, Horseshoe, HorseshoeClassifier, Training, load

pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (8,),
    "training": Training(learning_rate=0.03, max_iter=400),
    "n_draws": 48,
    "random_state": 0,
}
NAMES = ["height", "width"]


def table(rows=60, seed=0, flipped=0.1):
    """True where x_1 + |x_2| > 0.4, but one label in ten is wrong."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (rows, 2))
    wrong = random.uniform(size=rows) < flipped
    return X, (X[:, 0] + np.abs(X[:, 1]) > 0.4) ^ wrong


@pytest.fixture(scope="module")
def fitted():
    X, y = table()
    return HorseshoeClassifier(**SMALL).fit(X, y.astype(int))


# -- labels ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], object),
        np.array([False, True]),
        np.array([-3, 12]),
        np.array([0.0, 1.0]),
    ],
    ids=["text", "object", "bool", "int", "float"],
)
def test_labels_of_any_kind_come_back(fitted, labels):
    X, y = table()
    named = labels[y.astype(int)]
    model = HorseshoeClassifier(**SMALL).fit(X, named)
    assert model.classes_.tolist() == labels.tolist()
    assert model.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(model.predict(X), labels[fitted.predict(X)])
    np.testing.assert_array_equal(
        model.log_density(X, named), fitted.log_density(X, y.astype(int))
    )


def test_probabilities_are_those_of_the_label(fitted):
    X, y = table(500, seed=1)
    y = y.astype(int)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-12)
    np.testing.assert_array_equal(fitted.predict(X), p.argmax(1))
    expected = np.log(p[np.arange(len(y)), y])
    np.testing.assert_allclose(fitted.log_density(X, y), expected)
    np.testing.assert_array_equal(fitted.predict_log_proba(X), np.log(p))
    assert fitted.score(X, y) > 0.75
    # Better than knowing the shares of the classes, and calibrated in the large.
    assert expected.mean() > y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(
        1 - y.mean()
    )
    assert abs(p[:, 1].mean() - y.mean()) < 0.1


def test_many_classes():
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (400, 2))
    y = np.char.add(
        "sector ", ((np.arctan2(*X.T) / np.pi + 1) * 10).astype(int).astype(str)
    )
    training = Training(max_iter=1_000)
    model = HorseshoeClassifier((20,), training=training, n_draws=48, random_state=0)
    model.fit(X, y)
    assert len(model.classes_) == 20
    p = model.predict_proba(X)
    assert p.shape == (400, 20)
    assert model.score(X, y) > 0.7


# -- with scikit-learn's tools ---------------------------------------------------------


def test_pipeline_and_cross_validation():
    X, y = table()
    model = make_pipeline(StandardScaler(), HorseshoeClassifier(**SMALL))
    assert model.fit(X, y).score(*table(500, seed=1)) > 0.75
    assert cross_val_score(model, X, y, cv=3).mean() > 0.65


@pytest.mark.slow
def test_grid_search_over_widths_and_priors():
    X, y = table()
    grid = [{"hidden_layer_sizes": [(1,)]}, {"prior": [Gaussian(), Horseshoe()]}]
    model = HorseshoeClassifier(**SMALL)
    search = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss", refit=False)
    search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) == 3
    guess = y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log(1 - y.mean())
    assert search.best_score_ > guess


def test_clone_and_settings(fitted):
    model = HorseshoeClassifier(
        class_weight={0: 1, 1: 3}, prior=Horseshoe(node_scale=2)
    )
    assert clone(model).get_params() == model.get_params()
    assert HorseshoeClassifier(**model.get_params(deep=False)).get_params() == (
        model.get_params()
    )
    assert "class_weight={0: 1, 1: 3}" in repr(model)
    assert vars(clone(fitted)).keys() == fitted.get_params(deep=False).keys()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_column_names(fitted, frame):
    X, y = table()
    data = frame(dict(zip(NAMES, X.T, strict=True)))
    model = HorseshoeClassifier(**SMALL).fit(data, y.astype(int))
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict_proba(data), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(data[NAMES[::-1]])


# -- weights ---------------------------------------------------------------------------


def test_a_weight_of_2_is_a_row_that_is_there_twice():
    X, y = table()
    weight = np.where(np.arange(len(X)) < 20, 2, 1)
    weighted = HorseshoeClassifier(**SMALL).fit(X, y, sample_weight=weight)
    twice = np.repeat(np.arange(len(X)), weight)
    repeated = HorseshoeClassifier(**SMALL).fit(X[twice], y[twice])
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))


def test_a_class_weight_is_a_weight_of_its_rows():
    X, y = table()
    by_class = HorseshoeClassifier(**SMALL, class_weight={False: 1, True: 3}).fit(X, y)
    by_row = HorseshoeClassifier(**SMALL).fit(X, y, sample_weight=1 + 2 * y)
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


def test_balanced_classes_weigh_the_same():
    X, y = table()
    shares = {False: len(y) / (2 * (~y).sum()), True: len(y) / (2 * y.sum())}
    by_name = HorseshoeClassifier(**SMALL, class_weight="balanced").fit(X, y)
    by_hand = HorseshoeClassifier(**SMALL, class_weight=shares).fit(X, y)
    np.testing.assert_array_equal(by_name.predict_proba(X), by_hand.predict_proba(X))
    plain = HorseshoeClassifier(**SMALL).fit(X, y)
    rare = int(y.mean() < 0.5)
    more = by_name.predict_proba(X)[:, rare] - plain.predict_proba(X)[:, rare]
    assert more.mean() > 0.01


# -- going on --------------------------------------------------------------------------


def test_partial_fit_learns_batch_by_batch():
    X, y = table(180)
    model = HorseshoeClassifier(**SMALL)
    early = np.inf
    for step in range(600):
        batch = slice(60 * (step % 3), 60 * (step % 3) + 60)
        model.partial_fit(X[batch], y[batch], classes=[False, True], n_rows=180)
        if step == 2:
            early = model.log_density(*table(500, seed=1)).mean()
    assert model.log_density(*table(500, seed=1)).mean() > early + 0.05
    assert model.score(*table(500, seed=1)) > 0.75


def test_partial_fit_knows_classes_that_come_later():
    X, y = table()
    order = np.argsort(y, kind="stable")
    X, y = X[order], np.where(y[order], "b", "a")
    model = HorseshoeClassifier(**SMALL).partial_fit(X[:20], y[:20], classes=["b", "a"])
    assert set(y[:20]) == {"a"}
    assert model.classes_.tolist() == ["a", "b"]
    assert model.partial_fit(X[-20:], y[-20:]).predict_proba(X).shape == (60, 2)
    with pytest.raises(
        ValueError, match=r"not in the fit: \['c'\]; known are \['a', 'b'\]"
    ):
        model.partial_fit(X[:2], ["a", "c"])


def test_partial_fit_needs_all_classes_first():
    X, y = table()
    with pytest.raises(ValueError, match="first call of `partial_fit` needs `classes`"):
        HorseshoeClassifier(**SMALL).partial_fit(X, y)
    with pytest.raises(ValueError, match=r"at least two of them, got \[True\]"):
        HorseshoeClassifier(**SMALL).partial_fit(X, y, classes=[True])


def test_partial_fit_cannot_balance_what_it_has_not_seen():
    X, y = table()
    model = HorseshoeClassifier(**SMALL, class_weight="balanced")
    with pytest.raises(ValueError, match="`class_weight='balanced'` needs all rows"):
        model.partial_fit(X, y, classes=[False, True])


def test_partial_fit_goes_on_from_a_fit(fitted):
    X, y = table()
    model = pickle.loads(pickle.dumps(fitted)).set_params(training__learning_rate=1e-3)
    model.partial_fit(X, y.astype(int), n_rows=len(X))
    moved = np.abs(model.predict_proba(X) - fitted.predict_proba(X)).max()
    assert 0 < moved < 0.05


def test_warm_start_goes_on_from_the_last_fit():
    X, y = table()
    model = HorseshoeClassifier(**SMALL, warm_start=True).fit(X, y)
    first = model.history_.elbo
    again = model.fit(X, y).history_.elbo
    assert again[:40].mean() > 0.5 * (first[:40].mean() + first[-40:].mean())
    with pytest.raises(ValueError, match="labels that were not in the fit: "):
        model.fit(X, np.where(y, 5, 7))


# -- seeds, pickles, files, nodes ------------------------------------------------------


def test_same_seed_same_bits_with_and_without_progress(fitted, capsys):
    X, y = table()
    shown = HorseshoeClassifier(**SMALL, verbose=1).fit(X, y.astype(int))
    assert f"{shown.history_.step[-1]}/400 ELBO" in capsys.readouterr().err
    np.testing.assert_array_equal(shown.predict_proba(X), fitted.predict_proba(X))


def test_pickles_and_files_bring_the_model_back(fitted, tmp_path):
    X, _ = table()
    fitted.save(tmp_path / "model.safetensors")
    for again in (
        pickle.loads(pickle.dumps(fitted)),
        load(tmp_path / "model.safetensors"),
    ):
        np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
        assert again.classes_.tolist() == [0, 1]


def test_the_history_has_every_term_of_the_elbo(fitted):
    names = {f"layer_1/{part}" for part in ("beta", "tau", "upsilon")}
    assert fitted.history_.kl.keys() == names | {"output/beta", "output/kappa"}
    assert 0 < fitted.n_iter_ == fitted.history_.step[-1] <= 400


def test_a_compact_estimator_predicts_the_same():
    X, y = table(300)
    # With few draws their error alone moves the means by 1 %, and no node may go.
    training = Training(learning_rate=0.03, max_iter=3_000)
    settings = SMALL | {"hidden_layer_sizes": (30,), "training": training}
    settings |= {"n_draws": 1000}
    wide = HorseshoeClassifier(**settings).fit(X, y)
    small = wide.compact()
    assert small.model_.posterior.widths[0] < 30
    assert small.widths_ == wide.widths_
    assert small.compaction_.moved <= 0.01
    new_X, _ = table(500, seed=1)
    moved = small.predict_proba(new_X) - wide.predict_proba(new_X)
    assert np.sqrt((moved**2).mean()) < 0.02
