"""Weights of the rows count them: the shape of q(gamma) (M8), and too few rows."""

import numpy as np
import pytest

from farrier import HorseshoeRegressor, Training, TrainingWarning

ROWS = 20


def table():
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, 2))
    return X, X[:, 0] + 0.1 * random.normal(size=ROWS)


def regressor(**settings):
    training = Training(max_iter=2, early_stopping=False)
    return HorseshoeRegressor(
        (2,), likelihood="gaussian", training=training, random_state=0, **settings
    )


def fitted(model, X, y, weight=None):
    """The fitted q(gamma); so short a fit warns that it has not converged."""
    with pytest.warns(TrainingWarning):
        model.fit(X, y, sample_weight=weight)
    return model.model_.likelihood.gamma


def test_the_shape_of_the_noise_posterior_counts_weights():
    """a + n / 2, where n is the sum of the weights and not the number of rows (M8)."""
    X, y = table()
    weight = np.linspace(0.5, 4.0, ROWS)
    gamma = fitted(regressor(), X, y, weight)
    np.testing.assert_allclose(gamma.fixed_shape, 1 + weight.sum() / 2, rtol=1e-6)
    assert abs(weight.sum() - ROWS) > 10


def test_equal_rows_count_as_often_as_they_occur():
    """Equal rows are merged, and their weights are added (M8)."""
    X, y = table()
    gamma = fitted(regressor(), np.tile(X, (3, 1)), np.tile(y, 3))
    np.testing.assert_allclose(gamma.fixed_shape, 1 + 3 * ROWS / 2, rtol=1e-6)


def test_training_that_goes_on_counts_its_own_rows():
    """`warm_start` takes the shape of the new rows, and starts at the old mean (M8)."""
    X, y = table()
    model = regressor(warm_start=True)
    first = fitted(model, X, y)
    np.testing.assert_allclose(first.fixed_shape, 1 + ROWS / 2, rtol=1e-6)
    mean, weight = float(first.mean()[0]), np.full(ROWS, 2.5)
    second = fitted(model, X, y, weight)
    np.testing.assert_allclose(second.fixed_shape, 1 + 2.5 * ROWS / 2, rtol=1e-6)
    # Two epochs are two or so steps, which cannot move the mean far.
    assert float(second.mean()[0]) == pytest.approx(mean, rel=0.2)


@pytest.mark.parametrize(
    ("rows", "weight", "warned"), [(20, 1 / 20, 1), (8, 1, 0), (20, 1 / 2, 0)]
)
def test_weights_that_sum_to_a_few_rows_are_reported(rows, weight, warned):
    """A weight counts rows: scaled to sum to 1 they make one row of all (P4)."""
    X, y = table()
    with pytest.warns(TrainingWarning) as caught:
        regressor().fit(X[:rows], y[:rows], sample_weight=np.full(rows, weight))
    texts = [str(each.message) for each in caught]
    said = [text for text in texts if "divide them by their mean" in text]
    assert len(said) == warned
    for text in said:
        assert text.startswith("The weights of 20 rows sum to 1. A weight is the")
