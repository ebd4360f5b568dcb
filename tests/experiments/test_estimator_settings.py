"""Flat settings become arguments of an estimator, and training settings an object."""

from experiments.settings import arguments, flat
from farrier import Horseshoe, HorseshoeClassifier, HorseshoeRegressor, Training


def test_training_settings_are_gathered_in_one_object():
    preset = {"prior": "horseshoe", "training": Training(learning_rate=0.5)}
    assert arguments(preset, {"max_iter": 3}, {"prior": "gaussian"}) == {
        "prior": "gaussian",
        "training": Training(max_iter=3, learning_rate=0.5),
    }
    assert arguments({"prior": "gaussian"}) == {"prior": "gaussian"}


def test_flat_settings_have_each_training_setting_by_its_name():
    training = Training(learning_rate=0.5, kl_annealing=0.2, tol=0.0)
    found = flat({"prior": "horseshoe", "training": training})
    assert found == {"prior": "horseshoe"} | training.get_params()
    assert arguments(found) == {"prior": "horseshoe", "training": training}


def test_arguments_are_those_of_the_estimators():
    settings = {"max_iter": 3, "learning_rate": 0.5, "kl_annealing": 0.1, "tol": 0.0}
    settings |= {"prior": Horseshoe(slab=1.5), "batch_size": 5, "early_stopping": False}
    for kind in (HorseshoeRegressor, HorseshoeClassifier):
        given = flat(kind((4,), **arguments(settings)).get_params(deep=False))
        assert settings.items() <= given.items()
