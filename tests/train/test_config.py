"""Settings of training: budgets, batches, errors."""

import math

import pytest

from farrier import Training
from farrier.train.config import (
    BATCH,
    FEW_ROWS,
    MAX_STEPS,
    SMALL,
    STEPS,
    STEPS_FEW_ROWS,
    STEPS_PER_ROW,
    TrainConfig,
    epochs_for,
)


@pytest.mark.parametrize(
    ("rows", "steps", "batch_size"),
    [
        (10, STEPS_FEW_ROWS, 10),
        (FEW_ROWS, STEPS_FEW_ROWS, FEW_ROWS),
        (FEW_ROWS + 1, STEPS, FEW_ROWS + 1),
        (SMALL, STEPS, SMALL),
        (SMALL + 1, STEPS, BATCH),
        (STEPS // STEPS_PER_ROW + 1, STEPS + STEPS_PER_ROW, BATCH),
        (10**6, MAX_STEPS, BATCH),
    ],
)
def test_the_budget_follows_the_number_of_rows(rows, steps, batch_size):
    config = Training().config(rows, kl_annealing=0.8)
    assert (config.steps, config.batch_size) == (steps, batch_size)


@pytest.mark.parametrize(
    ("rows", "settings", "steps", "batch_size"),
    [
        (100, {"max_iter": 30}, 30, 100),
        (2_000, {"max_iter": 30}, 30 * 4, BATCH),
        (100, {"max_iter": 3, "batch_size": 32}, 3 * 4, 32),
        (96, {"max_iter": 3, "batch_size": 32}, 3 * 3, 32),
        (2_000, {"batch_size": 7}, 8_000, 7),
    ],
)
def test_epochs_are_whole_passes_of_batches(rows, settings, steps, batch_size):
    training = Training(**settings)
    config = training.config(rows, kl_annealing=0.8)
    assert (config.steps, config.batch_size) == (steps, batch_size)
    assert training.resolved_batch_size(rows) == batch_size


def test_streamed_rows_state_the_steps_of_an_epoch():
    training = Training(max_iter=3, batch_size=10)
    assert training.config(100, kl_annealing=0.0, batches=12).steps == 36
    assert Training().config(100, kl_annealing=0.0, batches=12).steps == STEPS_FEW_ROWS


def test_all_settings_reach_the_run():
    """Only "auto" takes the task's annealing; without early stopping no tolerance."""
    given = Training(
        learning_rate=0.3, kl_weight=0.7, kl_annealing=0.25, averaging=0.5, tol=0.02
    )
    config = given.config(50, kl_annealing=0.8)
    assert config == TrainConfig(
        steps=STEPS_FEW_ROWS,
        batch_size=50,
        learning_rate=0.3,
        kl_weight=0.7,
        kl_annealing=0.25,
        averaging=0.5,
        tolerance=0.02,
    )
    assert Training().config(50, kl_annealing=0.8).kl_annealing == 0.8
    assert Training(kl_annealing=0).config(50, kl_annealing=0.8).kl_annealing == 0
    assert Training(early_stopping=False).config(50, kl_annealing=0.8).tolerance == 0


@pytest.mark.parametrize("rows", [100, SMALL, SMALL + 1, 60_000])
def test_epochs_for_a_number_of_steps(rows):
    """The least that has so many steps, in default batches."""
    epochs = epochs_for(3_000, rows)
    steps = Training(max_iter=epochs).config(rows, kl_annealing=0.8).steps
    one_less = Training(max_iter=epochs - 1).config(rows, kl_annealing=0.8).steps
    assert one_less < 3_000 <= steps


def test_settings_have_names_for_searches():
    """`training__learning_rate` of an estimator, by scikit-learn's own rules."""
    from sklearn.base import clone

    from farrier import HorseshoeRegressor

    training = Training(learning_rate=0.02, max_iter=7)
    assert training.get_params()["learning_rate"] == 0.02
    assert Training(**training.get_params(deep=False)) == training
    model = HorseshoeRegressor(training=training)
    assert model.get_params()["training__max_iter"] == 7
    changed = clone(model).set_params(training__learning_rate=0.005)
    assert changed.training == Training(learning_rate=0.005, max_iter=7)
    assert model.training == training


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"max_iter": 0}, "`max_iter` must be 'auto' or a whole number from 1, got 0"),
        ({"max_iter": "all"}, "`max_iter` must be .* got 'all'"),
        ({"batch_size": -3}, "`batch_size` must be 'auto' or a whole .* got -3"),
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive, .* got 0.0"),
        ({"learning_rate": True}, "`learning_rate` must be a positive, .* got True"),
        ({"kl_weight": math.inf}, "`kl_weight` must be a positive, finite .* got inf"),
        ({"kl_annealing": 1.5}, "`kl_annealing` must be .* from 0 to 1, got 1.5"),
        ({"kl_annealing": "long"}, "`kl_annealing` must be 'auto' or .* got 'long'"),
        ({"averaging": 1.0}, "`averaging` must be a share .* less than 1, got 1.0"),
        ({"tol": -1e-9}, "`tol` must be a number of nats per row from 0, got -1e-09"),
        ({"tol": math.nan}, "`tol` must be a number of nats per row from 0, got nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(setting, text):
    with pytest.raises(ValueError, match=text):
        Training(**setting)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"steps": 0}, "`steps` must be at least 1, got 0"),
        ({"batch_size": -3}, "`batch_size` must be at least 1, got -3"),
        ({"max_bad_run": 0}, "`max_bad_run` must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "`learning_rate` must be a positive, .* got 0.0"),
        ({"kl_weight": math.inf}, "`kl_weight` must be a positive, .* got inf"),
        ({"kl_annealing": 1.5}, "from 0 to 1, got 1.5"),
        ({"averaging": -0.1}, "`averaging` must be a share .* got -0.1"),
        ({"tolerance": math.nan}, "`tolerance` must be a number from 0, got nan"),
    ],
)
def test_a_run_refuses_a_setting_out_of_range(setting, text):
    with pytest.raises(ValueError, match=text):
        TrainConfig(**setting)
