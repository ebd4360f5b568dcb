"""Flat settings become arguments of an estimator, and training settings an object."""

from dataclasses import dataclass

import farrier
from experiments.settings import arguments, flat, recorded, with_slab
from farrier import HorseshoeClassifier, HorseshoeRegressor


@dataclass(frozen=True, kw_only=True)
class Training:
    max_iter: int = 7
    learning_rate: float = 0.01


def test_training_settings_are_gathered_in_one_object(monkeypatch):
    monkeypatch.setattr(farrier, "Training", Training, raising=False)
    preset = {"prior": "horseshoe", "training": Training(learning_rate=0.5)}
    assert flat(preset) == {"prior": "horseshoe", "max_iter": 7, "learning_rate": 0.5}
    found = arguments(preset, {"max_iter": 3}, {"prior": "gaussian"})
    assert found == {
        "prior": "gaussian",
        "training": Training(max_iter=3, learning_rate=0.5),
    }
    assert arguments({"prior": "gaussian"}) == {"prior": "gaussian"}


def test_settings_have_one_name_whoever_wrote_them():
    """Presets with the arguments of an estimator, experiments with the flat names."""
    assert flat({"learning_rate_init": 0.5}) == flat({"learning_rate": 0.5})
    assert recorded(flat({"kl_warm_up": 0.5})) == {"kl_warm_up": 0.5}
    both = [{"learning_rate_init": 0.5}, {"learning_rate": 0.1}]
    assert flat(arguments(*both)) | {"learning_rate": 0.1} == flat(arguments(both[1]))


def test_arguments_are_those_of_the_estimators():
    settings = {"max_iter": 3, "learning_rate": 0.5, "kl_annealing": 0.1, "tol": 0.0}
    settings |= {"prior": with_slab(1.5), "batch_size": 5, "early_stopping": False}
    for kind in (HorseshoeRegressor, HorseshoeClassifier):
        given = flat(kind((4,), **arguments(settings)).get_params(deep=False))
        assert settings.items() <= given.items()
