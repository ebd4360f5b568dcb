"""Settings with a name."""

import inspect

import numpy as np
import pytest

from farrier import GaussianNoise, Horseshoe, HorseshoeRegressor, presets


def test_the_paper_uses_what_it_says():
    settings = presets.paper()
    assert settings["hidden_layer_sizes"] == (50,)
    assert settings["prior"] == Horseshoe(
        node_scale=1.0, layer_scale=1.0, half_cauchy="auxiliary"
    )
    assert settings["likelihood"] == GaussianNoise(shape=6.0, rate=6.0)
    assert settings["kl_warm_up"] == 0
    assert settings["early_stopping"] is False


def test_every_setting_is_an_argument_of_the_estimator():
    arguments = inspect.signature(HorseshoeRegressor).parameters
    assert presets.paper().keys() <= arguments.keys()


def test_a_preset_is_a_fresh_dict():
    presets.paper()["hidden_layer_sizes"] = (3,)
    assert presets.paper()["hidden_layer_sizes"] == (50,)


@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_the_noise_of_the_paper_has_a_floor():
    # q(gamma) = Gamma(6 + n / 2, .) with a rate over 6 (M8): the noise variance of a
    # standardised target stays over 6 / (6 + n / 2), however well the network fits.
    X = np.linspace(-1, 1, 30)[:, None]
    y = X[:, 0]
    settings = presets.paper() | {"max_iter": 1_000, "n_draws": 48, "random_state": 0}
    settings |= {"learning_rate_init": 0.03, "kl_warm_up": 0.6}
    floor = 6 / (6 + len(X) / 2) * y.var()
    noise, _ = HorseshoeRegressor(**settings).fit(X, y).predict_variance(X)
    assert (noise > floor).all()
    settings["likelihood"] = None
    noise, _ = HorseshoeRegressor(**settings).fit(X, y).predict_variance(X)
    assert (noise < floor).all()
