"""scikit-learn's callbacks, where that version has them."""

from typing import Any

import numpy as np
import pytest

from farrier import HorseshoeRegressor, Training

pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9")
pytestmark = pytest.mark.filterwarnings("ignore::farrier.TrainingWarning")
SMALL = {
    "hidden_layer_sizes": (3,),
    "training": Training(max_iter=30),
    "n_draws": 4,
    "random_state": 0,
}
X = np.linspace(-1, 1, 20)[:, None]
Y = np.abs(X[:, 0])


class Recorder:
    """A callback that records its calls, and may ask for an end."""

    def __init__(self, *, stop=False, fail=False):
        self.calls, self.steps, self.stop, self.fail = [], [], stop, fail

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        assert len(X) == 20

    def on_fit_task_end(self, estimator, context, *, fitted_estimator: Any = None):
        self.calls.append(context.task_name)
        if context.task_name == "steps":
            assert np.isfinite(fitted_estimator.predict(X)).all()
            self.steps.append(fitted_estimator.n_iter_)
            if self.fail:
                raise RuntimeError("a callback that fails")
        return self.stop


def test_each_chunk_is_a_task():
    recorder = Recorder()
    model = HorseshoeRegressor(**SMALL).set_callbacks(recorder).fit(X, Y)
    assert recorder.calls == ["setup", "steps", "steps", "steps", "fit", "teardown"]
    assert recorder.steps == [10, 20, 30]
    alone = HorseshoeRegressor(**SMALL).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    assert not [name for name in vars(model) if "callback_fit" in name]


def test_a_callback_may_end_the_fit():
    model = HorseshoeRegressor(**SMALL).set_callbacks(Recorder(stop=True))
    with pytest.warns(UserWarning, match="interrupted; the model is that of step 10"):
        model.fit(X, Y)
    assert model.n_iter_ == 10


def test_callbacks_are_taken_down_when_a_fit_fails():
    recorder = Recorder(fail=True)
    model = HorseshoeRegressor(**SMALL).set_callbacks(recorder)
    with pytest.raises(RuntimeError, match="a callback that fails"):
        model.fit(X, Y)
    assert recorder.calls[-1] == "teardown"
    assert not hasattr(model, "model_")
