"""Bad input gives one clear message and changes nothing; odd but legal input works."""

import copy

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from farrier import HorseshoeClassifier, HorseshoeRegressor, Training

pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (8,),
    "training": Training(learning_rate=0.03, max_iter=400),
    "n_draws": 48,
    "random_state": 0,
}
ESTIMATORS = [HorseshoeRegressor, HorseshoeClassifier]


def table(rows=60, seed=0):
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (rows, 2))
    return X, np.abs(X[:, 0]) + X[:, 1] / 2 + 0.1 * random.normal(size=rows)


def rows_for(estimator):
    """The table, with the signs of its targets as labels for a classifier."""
    X, y = table()
    return X, (y if estimator is HorseshoeRegressor else np.where(y > 0.5, 1, 0))


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda c: c.__name__)
def fitted(request):
    return request.param(**SMALL).fit(*rows_for(request.param))


def spoiled(values, bad):
    """The values as floats, with one of them bad."""
    values = np.array(values, float)
    values.flat[5] = bad
    return values


def assert_refused(fitted, X, y, *, match, settings=None, error=ValueError, **fit):
    """`fit` raises on a fresh and on a fitted estimator, and changes neither."""
    settings = settings or {}
    fresh, again = clone(fitted), copy.copy(fitted)
    for model in (fresh, again):
        model.set_params(**settings)
        before = vars(model).copy()
        with pytest.raises(error, match=match):
            model.fit(X, y, **fit)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is before[name] for name in before)
    assert vars(fresh).keys() == fresh.get_params(deep=False).keys()
    again.set_params(**SMALL)
    rows, _ = rows_for(type(fitted))
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))


# -- rows ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "match"),
    [(np.nan, "Input X contains NaN"), (np.inf, "Input X contains infinity")],
)
def test_inputs_must_be_finite(fitted, bad, match):
    X, y = rows_for(type(fitted))
    assert_refused(fitted, spoiled(X, bad), y, match=match)
    with pytest.raises(ValueError, match=match):
        fitted.predict(spoiled(X, bad))


@pytest.mark.parametrize(
    ("bad", "match"),
    [(np.nan, "Input y contains NaN"), (-np.inf, "Input y contains infinity")],
)
def test_targets_must_be_finite(fitted, bad, match):
    X, y = rows_for(type(fitted))
    assert_refused(fitted, X, spoiled(y, bad), match=match)
    with pytest.raises(ValueError, match=match):
        fitted.log_density(X, spoiled(y, bad))


ROWS = {
    "one row": (lambda X, y: (X[:1], y[:1]), r"1 sample.* minimum of 2"),
    "no row": (lambda X, y: (X[:0], y[:0]), r"0 sample.* minimum of 2"),
    "no column": (lambda X, y: (X[:, :0], y), r"0 feature.* minimum of 1"),
    "flat X": (lambda X, y: (X[:, 0], y), "Expected 2D array, got 1D array"),
    "deep X": (lambda X, y: (X[None], y), "Found array with dim 3"),
    "other length": (lambda X, y: (X, y[:7]), r"numbers of samples: \[60, 7\]"),
    "no target": (lambda X, y: (X, None), "requires y to be passed"),
    "text": (
        lambda X, y: (X.astype(str).astype(object) + "m", y),
        r"must hold numbers only.*-?\dm'.*OneHotEncoder",
    ),
    "fixed-width text": (
        lambda X, y: (np.full(X.shape, "blue"), y),
        r"must hold numbers only.*blue.*OneHotEncoder",
    ),
    "text column": (
        lambda X, y: (pd.DataFrame({"size": X[:, 0], "colour": "blue"}), y),
        r"must hold numbers only.*blue.*OneHotEncoder",
    ),
    "object column": (
        lambda X, y: (
            pd.DataFrame({"size": X[:, 0], "colour": ["blue"] * len(X)}, dtype=object),
            y,
        ),
        r"must hold numbers only.*blue.*OneHotEncoder",
    ),
    "complex": (lambda X, y: (X + 1j, y), "Complex data not supported"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_that_cannot_be_fitted(fitted, name):
    spoil, match = ROWS[name]
    assert_refused(fitted, *spoil(*rows_for(type(fitted))), match=match)


def test_sparse_rows_are_refused_as_scikit_learn_refuses_them(fitted):
    X, y = rows_for(type(fitted))
    assert_refused(
        fitted, sparse.csr_array(X), y, match="Sparse data was passed", error=TypeError
    )


def test_the_number_of_columns_is_that_of_the_fit(fitted):
    X, y = rows_for(type(fitted))
    for wrong in (X[:, :1], np.column_stack([X, X])):
        match = f"X has {wrong.shape[1]} features, but .* is expecting 2 features"
        with pytest.raises(ValueError, match=match):
            fitted.predict(wrong)
        with pytest.raises(ValueError, match=match):
            fitted.log_density(wrong, y)


def test_texts_are_refused_at_predict_too(fitted):
    with pytest.raises(ValueError, match=r"X must hold numbers only.*blue"):
        fitted.predict([["blue", "green"]])


def test_a_regressor_needs_numbers_as_targets():
    fitted = HorseshoeRegressor(**SMALL).fit(*table())
    X, _ = table()
    for y in (["low", "high"] * 30, np.array(["low", "high"] * 30, object)):
        assert_refused(fitted, X, y, match=r"X and y must hold numbers only.*low")


@pytest.mark.parametrize(
    ("y", "match"),
    [
        ([1] * 60, r"one class only \(1\).*at least two classes"),
        (["a"] * 60, r"one class only \('a'\).*at least two classes"),
        (np.linspace(0, 1, 60), "Unknown label type: continuous"),
        (np.zeros((60, 3), int), r"1d array, got an array of shape \(60, 3\)"),
    ],
)
def test_labels_that_cannot_be_fitted(y, match):
    fitted = HorseshoeClassifier(**SMALL).fit(*rows_for(HorseshoeClassifier))
    assert_refused(fitted, table()[0], y, match=match)


def test_labels_must_be_known_ones():
    X, y = rows_for(HorseshoeClassifier)
    model = HorseshoeClassifier(**SMALL).fit(X, np.array(["cat", "dog"])[y])
    match = r"labels that were not in the fit: \['cow'\]; known are \['cat', 'dog'\]"
    with pytest.raises(ValueError, match=match):
        model.log_density(X[:2], ["cat", "cow"])


# -- weights ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        ([-2.0] + [1.0] * 59, "`sample_weight` must not be negative.* smallest is -2"),
        ([0.0] * 60, "`sample_weight` is zero for all rows"),
        ([1.0] * 7, r"one entry for each of the 60 rows, got shape \(7,\)"),
        ([[1.0]] * 60, r"one entry for each of the 60 rows, got shape \(60, 1\)"),
        ([np.nan] * 60, "sample_weight contains NaN"),
        ([np.inf] * 60, "sample_weight contains infinity"),
        (["heavy"] * 60, r"`sample_weight` must hold numbers only.*heavy"),
    ],
)
def test_weights_that_cannot_be_used(fitted, weight, match):
    X, y = rows_for(type(fitted))
    assert_refused(fitted, X, y, sample_weight=weight, match=match)


def test_weights_must_leave_two_classes():
    X, y = rows_for(HorseshoeClassifier)
    fitted = HorseshoeClassifier(**SMALL).fit(X, y)
    match = r"one class only \(1\) where the weights are not 0"
    assert_refused(fitted, X, y, sample_weight=y.astype(float), match=match)
    settings = {"class_weight": {0: 0.0, 1: 1.0}}
    assert_refused(fitted, X, y, settings=settings, match=match)


@pytest.mark.parametrize(
    ("class_weight", "match"),
    [
        ({0: -1.0}, "`class_weight` must hold finite numbers from 0.*-1.0"),
        ({0: np.nan}, "`class_weight` must hold finite numbers from 0.*nan"),
        ({0: 0.0, 1: 0.0}, "`class_weight` must hold .* some row a weight over 0"),
        ({7: 1.0}, r"classes, \[0, 1\], are not in class_weight"),
        ("even", "'class_weight' .* must be .*Got 'even' instead"),
    ],
)
def test_class_weights_that_cannot_be_used(class_weight, match):
    X, y = rows_for(HorseshoeClassifier)
    fitted = HorseshoeClassifier(**SMALL).fit(X, y)
    settings = {"class_weight": class_weight}
    assert_refused(fitted, X, y, settings=settings, match=match)


# -- settings --------------------------------------------------------------------------

WIDTHS = "`hidden_layer_sizes` must be one or more whole numbers from 1, got "
POSITIVE = "must be a positive, finite number, got "
SETTINGS = [
    *(
        ("hidden_layer_sizes", bad, WIDTHS)
        for bad in ((-3,), (0,), (8, 0), (2.5,), 2.5, 0, (), None, "8", ((8,),))
    ),
    *(
        (
            "activation",
            bad,
            r"`activation` must be one of \['relu', 'tanh', 'gelu'\], got",
        )
        for bad in ("sigmoid", None, ["relu"])
    ),
    *(
        (
            "prior",
            bad,
            r"`prior` must be one of \['horseshoe'.* such as Horseshoe\(\.\.\.\), got",
        )
        for bad in ("laplace", None, 3, ["horseshoe"])
    ),
    ("posterior", "full", r"`posterior` must be one of \['mean-field'.* got 'full'"),
    *(
        ("training", bad, "`training` must be a Training object, such as Training")
        for bad in ("auto", {"max_iter": 3})
    ),
    *(
        ("n_restarts", bad, "`n_restarts` must be a whole number from 1, got")
        for bad in (0, -1, 1.5, "2", None)
    ),
    ("refine", "gibbs", r"`refine` must be one of \['nuts', 'mclmc'\] .*'gibbs'"),
    ("likelihood", "poisson", "`likelihood` must be .*, got 'poisson'"),
    *(
        ("n_draws", bad, "`n_draws` must be a whole number from 2, got")
        for bad in (1, 2.5)
    ),
    ("random_state", "seed", "'seed' cannot be used to seed"),
]


WHOLE = "must be 'auto' or a whole number from 1, got"
SHARE = "must be 'auto' or a share of the steps from 0 to 1, got"
TRAINING = [
    *(("kl_weight", bad, f"`kl_weight` {POSITIVE}") for bad in (0, -1, np.nan)),
    *(
        ("learning_rate", bad, f"`learning_rate` {POSITIVE}")
        for bad in (0, -0.1, np.nan, np.inf)
    ),
    *(
        ("averaging", bad, "`averaging` must be a share from 0 to less than 1, got")
        for bad in (-0.1, 1, np.nan)
    ),
    *(("kl_annealing", bad, f"`kl_annealing` {SHARE}") for bad in (-0.1, 1.1, np.nan)),
    ("tol", -1, "`tol` must be a number of nats per row from 0, got"),
    *(("max_iter", bad, f"`max_iter` {WHOLE}") for bad in (0, -1, "many")),
    *(("batch_size", bad, f"`batch_size` {WHOLE}") for bad in (0, -1, "all")),
]


@pytest.mark.parametrize(("name", "bad", "match"), TRAINING)
def test_training_settings_are_checked_when_they_are_set(fitted, name, bad, match):
    """And nothing changes where one cannot be used."""
    model = clone(fitted)
    before = vars(model).copy()
    with pytest.raises(ValueError, match=match):
        model.set_params(**{f"training__{name}": bad})
    assert vars(model) == before


@pytest.mark.parametrize(("name", "bad", "match"), SETTINGS)
def test_settings_that_cannot_be_used(fitted, name, bad, match):
    X, y = rows_for(type(fitted))
    assert_refused(fitted, X, y, settings={name: bad}, match=match)


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, np.nan])
def test_levels_lie_between_0_and_1(fitted, level):
    match = "`level` must be a number between 0 and 1, got"
    with pytest.raises(ValueError, match=match):
        fitted.width_interval(level)
    if isinstance(fitted, HorseshoeRegressor):
        with pytest.raises(ValueError, match=match):
            fitted.predict_interval(table()[0], level)


@pytest.mark.parametrize("draws", [0, -1])
def test_draws_are_counted(draws):
    X, y = table()
    model = HorseshoeRegressor(**SMALL).fit(X, y)
    with pytest.raises(ValueError, match="`n_samples` must be a whole number from 1"):
        model.sample_y(X, draws)


@pytest.mark.parametrize(
    "change",
    [
        lambda X, y: (spoiled(X, np.nan), y, {}),
        lambda X, y: (X[:, :1], y, {}),
        lambda X, y: (X, y[:7], {}),
        lambda X, y: (X, y, {"n_rows": 0}),
        lambda X, y: (X, y, {"sample_weight": -np.ones(len(X))}),
    ],
    ids=["nan", "columns", "length", "n_rows", "weight"],
)
def test_a_failed_partial_fit_changes_nothing(fitted, change):
    X, y = rows_for(type(fitted))
    model = copy.copy(fitted)
    before = vars(model).copy()
    bad_X, bad_y, options = change(X, y)
    with pytest.raises(ValueError, match=r"NaN|1 features|samples|`n_rows`|negative"):
        model.partial_fit(bad_X, bad_y, **options)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


# -- odd, but legal --------------------------------------------------------------------


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e20 / 3])
def test_constant_columns(fitted, constant):
    X, y = rows_for(type(fitted))
    values = np.column_stack([np.full(len(X), constant), X[:, 1]])
    guess = (
        0.0 if isinstance(fitted, HorseshoeRegressor) else max(y.mean(), 1 - y.mean())
    )
    assert clone(fitted).fit(values, y).score(values, y) > guess + 0.05
    values = np.full(X.shape, constant)
    model = clone(fitted).fit(values, y)
    if isinstance(fitted, HorseshoeRegressor):
        np.testing.assert_allclose(model.predict(values), y.mean(), atol=0.1 * y.std())
    else:
        p = model.predict_proba(values)[:, 1]
        np.testing.assert_allclose(p, y.mean(), atol=0.05)


@pytest.mark.parametrize("constant", [0.0, -7.25, 1e12])
def test_a_constant_target(constant):
    X, _ = table()
    model = HorseshoeRegressor(**SMALL).fit(X, np.full(len(X), constant))
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, constant, atol=0.05 * max(1, abs(constant)))
    assert (std > 0).all()


def test_a_batch_larger_than_the_data(fitted):
    X, y = rows_for(type(fitted))
    large = clone(fitted).set_params(training__batch_size=10_000).fit(X, y)
    np.testing.assert_array_equal(large.predict(X), fitted.predict(X))


def test_values_of_any_size():
    X, y = table()
    far = HorseshoeRegressor(**SMALL).fit(1e12 * X - 5e12, 1e12 * y + 3e12)
    assert far.score(1e12 * X - 5e12, 1e12 * y + 3e12) > 0.8
    mean, std = far.predict(1e12 * X - 5e12, return_std=True)
    assert 1e10 < std.mean() < 1e12
    assert np.abs(mean - 1e12 * y - 3e12).mean() < 5e11
    near = HorseshoeRegressor(**SMALL).fit(1e-12 * X, 1e-12 * y)
    assert near.score(1e-12 * X, 1e-12 * y) > 0.8
    X, labels = rows_for(HorseshoeClassifier)
    model = HorseshoeClassifier(**SMALL).fit(1e12 * X, labels)
    assert model.score(1e12 * X, labels) > 0.8


@pytest.mark.parametrize(
    "change",
    [
        np.asfortranarray,
        lambda X: X.tolist(),
        lambda X: X[:, ::-1][:, ::-1],
        lambda X: np.lib.stride_tricks.as_strided(X, writeable=False),
    ],
    ids=["fortran", "list", "strided", "read-only"],
)
def test_the_layout_of_the_rows_does_not_matter(fitted, change):
    X, y = rows_for(type(fitted))
    model = clone(fitted).fit(change(X), y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int8, bool])
def test_the_type_of_the_numbers_does_not_matter(fitted, dtype):
    X, y = rows_for(type(fitted))
    values = (100 * X if dtype is not bool else X > 0).astype(dtype)
    model = clone(fitted).fit(values, y)
    same = clone(fitted).fit(values.astype(float), y)
    np.testing.assert_array_equal(
        model.predict(values), same.predict(values.astype(float))
    )


def test_rows_that_are_there_many_times(fitted):
    X, y = rows_for(type(fitted))
    five = np.tile(np.arange(5), 12)
    model = clone(fitted).fit(X[five], y[five])
    weighted = clone(fitted).fit(X[:5], y[:5], np.full(5, 12.0))
    np.testing.assert_array_equal(model.predict(X), weighted.predict(X))


def test_two_rows_are_enough(fitted):
    X, _ = table()
    y = [0, 1]
    model = clone(fitted).fit(X[:2], y)
    assert model.predict(X[:2])[0] <= model.predict(X[:2])[1]
    assert np.isfinite(model.log_density(X[:2], y)).all()
