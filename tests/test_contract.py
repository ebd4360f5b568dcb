"""scikit-learn's own checks of an estimator. None of them is expected to fail.

Small settings run in each test run, the shipped defaults with `--slow`.
"""

import json
import os
import subprocess
import sys
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


SHIPPED = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import farrier
warnings.simplefilter("ignore")
results = check_estimator(getattr(farrier, sys.argv[1])(), on_fail=None)
failed = {
    each["check_name"]: str(each["exception"])
    for each in results
    if each["status"] == "failed"
}
json.dump([len(results), failed], sys.stdout)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HorseshoeRegressor", "HorseshoeClassifier"])
def test_scikit_learn_checks_of_the_shipped_defaults(name):
    """In float32, with all optimisations of XLA, in a process of its own."""
    plain = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    command = [sys.executable, "-c", SHIPPED, name]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=plain
    )
    count, failed = json.loads(done.stdout)
    assert count > 40
    assert failed == {}
