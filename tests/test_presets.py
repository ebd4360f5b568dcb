"""Settings with a name."""

import inspect
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from farrier import (
    GaussianNoise,
    Horseshoe,
    HorseshoeRegressor,
    Training,
    presets,
)
from farrier.core.priors import PRIORS


def test_the_preset_of_the_paper_has_its_settings():
    settings = presets.paper()
    assert settings["hidden_layer_sizes"] == (50,)
    assert PRIORS[settings["prior"]] == Horseshoe(
        node_scale=1.0, layer_scale=1.0, half_cauchy="collapsed"
    )
    assert settings["likelihood"] == GaussianNoise(shape=6.0, rate=6.0)
    assert settings["training"].kl_annealing == 0
    assert settings["training"].early_stopping is False


def test_every_setting_is_an_argument_of_the_estimator():
    arguments = inspect.signature(HorseshoeRegressor).parameters
    assert presets.paper().keys() <= arguments.keys()
    assert presets.vmg().keys() <= arguments.keys()
    assert presets.refined(300).keys() <= arguments.keys()


def test_each_chain_of_the_refined_recipe_has_a_fit_to_begin_at():
    settings = presets.refined(1_999)
    assert settings["n_restarts"] == settings["refine"].chains == 8
    assert settings["prior"] == Horseshoe(slab=2.0)
    assert settings["likelihood"] == "heteroscedastic"


@pytest.mark.parametrize(("rows", "epochs"), [(200, 3_000), (1_999, 750)])
def test_fits_of_the_refined_recipe_have_3000_steps(rows, epochs):
    """Up to 1024 rows a step has all of them, else 512: here four steps an epoch."""
    settings = presets.refined(rows)
    training = settings["training"]
    assert training.max_iter == epochs
    assert training.config(rows, kl_annealing=0.8).steps == 3_000
    none = presets.refined(0)["training"]
    assert none.max_iter == 3_000  # the estimator reports what is wrong


def test_the_refined_network_has_no_more_weights_than_one_layer_of_50():
    """Of six columns, as yacht's; there are fewer where there are more columns."""
    nodes = (6, *presets.refined(300)["hidden_layer_sizes"], 1)
    weights = sum((a + 1) * b for a, b in pairwise(nodes))
    assert weights <= 7 * 50 + 51


def test_of_many_rows_the_refined_recipe_mixes_fits_under_the_papers_prior():
    assert presets.refined(2_000) == {
        "prior": "horseshoe",
        "training": Training(kl_annealing=0.8),
        "n_restarts": 3,
    }


def test_the_plain_settings_have_the_papers_prior():
    """The default of a regression has a narrower one, which is not in its tables."""
    assert presets.PLAIN["prior"] == "horseshoe" != HorseshoeRegressor().prior


def test_vmg_has_the_noise_prior_in_the_units_of_the_target():
    """A precision x of y is sd^2 x for y / sd, and that is Gamma(6, 6 / sd^2)."""
    likelihood = presets.vmg(target_sd=15.0)["likelihood"]
    draws = stats.gamma(6, scale=1 / 6).rvs(10_000, random_state=0) * 15.0**2
    law = stats.gamma(likelihood.shape, scale=1 / likelihood.rate)
    assert stats.kstest(draws, law.cdf).pvalue > 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_vmg_learns_a_line():
    X = np.linspace(-1, 1, 40)[:, None] * np.array([[1.0, -0.5, 0.2]])
    y = 3 + 2 * X[:, 0]
    settings = presets.vmg(y.std())
    shorter = {"batch_size": 40, "max_iter": 600, "learning_rate": 0.01}
    training = replace(settings["training"], averaging=0.9, **shorter)
    settings |= {"training": training, "random_state": 0}
    model = HorseshoeRegressor(**settings).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.2 * y.std()
    assert model.model_.variational().output.weights.extra_kl() >= 0


def test_a_preset_is_a_fresh_dict():
    presets.paper()["hidden_layer_sizes"] = (3,)
    assert presets.paper()["hidden_layer_sizes"] == (50,)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
def test_the_noise_of_the_paper_has_a_floor():
    # q(gamma) = Gamma(6 + n / 2, .) with a rate over 6 (M8): the noise variance of a
    # standardised target stays over 6 / (6 + n / 2), however well the network fits.
    X = np.linspace(-1, 1, 30)[:, None]
    y = X[:, 0]
    settings = presets.paper() | {"n_draws": 48, "random_state": 0}
    settings["training"] = Training(
        max_iter=1_000, learning_rate=0.03, kl_annealing=0.6, early_stopping=False
    )
    floor = 6 / (6 + len(X) / 2) * y.var()
    noise, _ = HorseshoeRegressor(**settings).fit(X, y).predict_variance(X)
    assert (noise > floor).all()
    settings["likelihood"] = "gaussian"
    noise, _ = HorseshoeRegressor(**settings).fit(X, y).predict_variance(X)
    assert (noise < floor).all()
