"""scikit-learn's own checks of an estimator. None of them is expected to fail.

Small settings run in each test run, the shipped defaults with `--slow`.
"""

from collections.abc import Iterator

import jax
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from farrier import HorseshoeClassifier, HorseshoeRegressor, Training

# Nearly all nodes of a network of 8 are active, of which its fit warns.
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (8,),
    "training": Training(learning_rate=0.03, max_iter=300),
    "n_draws": 48,
}


@pytest.fixture(autouse=True, scope="module")
def compile_fast() -> Iterator[None]:
    """The checks ask for some forty shapes and train each for a moment only."""
    jax.config.update("jax_disable_most_optimizations", val=True)
    yield
    jax.config.update("jax_disable_most_optimizations", val=False)


@parametrize_with_checks([HorseshoeRegressor(**SMALL), HorseshoeClassifier(**SMALL)])
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([HorseshoeRegressor(), HorseshoeClassifier()])
def test_scikit_learn_check_of_the_defaults(estimator, check):
    check(estimator)
