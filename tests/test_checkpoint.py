"""Checkpoints: a run that was stopped goes on with bit-identical results."""

import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

from farrier import HorseshoeRegressor, TrainingWarning, persist
from farrier.checkpoint import read_seed, resume, write_checkpoint
from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.presets import PLAIN
from farrier.train.config import TrainConfig
from farrier.train.history import Status
from farrier.train.loop import Run

ROWS, STEPS = 30, 50  # a chunk is ten steps


def table():
    X = np.random.default_rng(0).standard_normal((ROWS, 2))
    return X, X[:, 0] - 2 * np.abs(X[:, 1])


def regressor(**settings):
    training = replace(PLAIN["training"], max_iter=STEPS)
    small = {"training": training, "n_draws": 8, "random_state": 0}
    return HorseshoeRegressor((3,), **PLAIN | small | settings)


def fitted(model, X, y, **kwargs):
    """Fitted, with no word about widths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        return model.fit(X, y, **kwargs)


def interrupt_after(chunks, monkeypatch):
    """A `Ctrl-C` when so many checkpoints have been written."""
    written = []

    def write(path, run, **kwargs):
        write_checkpoint(path, run, **kwargs)
        written.append(run)
        if len(written) == chunks:
            raise KeyboardInterrupt

    monkeypatch.setattr("farrier.fit.write_checkpoint", write)


def assert_same_fit(a, b):
    """Networks and records are bit-identical."""
    assert eqx.tree_equal(a.model_.posterior, b.model_.posterior)
    assert a.history_.status is b.history_.status
    np.testing.assert_array_equal(a.history_.step, b.history_.step)
    np.testing.assert_array_equal(a.history_.elbo, b.history_.elbo)


# --- killed -----------------------------------------------------------------------

# In float32, as users have it, in processes that share nothing but the file.
COMMON = """
import sys, warnings
import numpy as np
from farrier import HorseshoeRegressor, Training, persist
warnings.simplefilter("ignore")
X = np.random.default_rng(0).standard_normal((900, 8))
y = X[:, 0] * X[:, 1] + np.abs(X[:, 2])
def fit(checkpoint=None):
    model = HorseshoeRegressor(
        (40,),
        training=Training(max_iter=800, batch_size=300),
        n_draws=8,
        random_state=0,
    )
    return model.fit(X, y, checkpoint=checkpoint)
path, predictions = sys.argv[1:]
"""
KILLED = COMMON + "fit(path)\nprint('finished', flush=True)\n"
RESUMED = COMMON + textwrap.dedent("""
    _, arrays = persist.read(path, "checkpoint")
    steps = [len(arrays["history.step"])]
    resumed, whole = fit(path), fit()
    steps += [len(resumed.history_.step), len(whole.history_.step)]
    np.savez(
        predictions,
        steps=steps,
        resumed=resumed.predict(X, return_std=True),
        whole=whole.predict(X, return_std=True),
    )
""")


@pytest.mark.slow
def test_a_killed_fit_ends_with_the_bits_of_one_never_stopped(tmp_path):
    """SIGKILL in the middle, wherever it strikes; a new process goes on."""
    path, predictions = tmp_path / "run.safetensors", tmp_path / "predictions.npz"
    command = [sys.executable, "-c", KILLED, str(path), str(predictions)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        versions = set()
        while process.poll() is None and len(versions) < 3:
            if path.exists():
                versions.add(path.stat().st_mtime_ns)
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        assert process.stdout
        assert process.stdout.read() == b"", "the fit was over before it was killed"
    assert process.returncode == -signal.SIGKILL
    command = [sys.executable, "-c", RESUMED, str(path), str(predictions)]
    subprocess.run(command, check=True)
    found = np.load(predictions)
    before, resumed, whole = found["steps"]
    assert 0 < before < resumed == whole
    assert found["whole"].dtype == np.float64
    np.testing.assert_array_equal(found["resumed"], found["whole"])
    # What the killed process was writing may lie there; nothing else may.
    assert len(list(tmp_path.glob("run.safetensors*"))) <= 2


# --- interrupted ------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole():
    """A fit that was never stopped."""
    return fitted(regressor(), *table())


def test_an_interrupted_fit_goes_on(whole, tmp_path, monkeypatch):
    """It keeps what it learned, warns, and ends like one that was never stopped."""
    (X, y), path = table(), tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        with pytest.warns(
            TrainingWarning, match="the model is that of step 20"
        ) as seen:
            model = regressor().fit(X, y, checkpoint=path)
    assert all(issubclass(w.category, TrainingWarning) for w in seen)
    assert model.history_.status is Status.INTERRUPTED
    np.testing.assert_array_equal(model.history_.elbo, whole.history_.elbo[:20])
    resumed = fitted(regressor(verbose=1), X, y, checkpoint=path)
    assert resumed.history_.status is Status.BUDGET
    assert_same_fit(resumed, whole)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_finished_checkpoint_gives_its_result_at_once(whole, tmp_path, monkeypatch):
    """Not one step is taken again."""
    (X, y), path = table(), tmp_path / "run.safetensors"
    assert_same_fit(fitted(regressor(), X, y, checkpoint=path), whole)
    content = path.read_bytes()
    monkeypatch.setattr("farrier.train.data.run_chunk", None)
    again = fitted(regressor(), X, y, checkpoint=path)
    assert_same_fit(again, whole)
    np.testing.assert_array_equal(again.predict(X), whole.predict(X))
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_without_a_seed_the_stored_one_is_used(tmp_path, monkeypatch):
    """`random_state=None` draws a seed once, for the whole of a run."""
    (X, y), path = table(), tmp_path / "run.safetensors"
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        stopped = fitted(regressor(random_state=None), X, y, checkpoint=path)
    resumed = fitted(regressor(random_state=None), X, y, checkpoint=path)
    header, _ = persist.read(path, "checkpoint")
    np.testing.assert_array_equal(resumed.history_.elbo[:20], stopped.history_.elbo)

    class OneNumber:
        def randint(self, most):
            assert header["seed"] < most
            return header["seed"]

    monkeypatch.setattr(
        "farrier.estimators.base.check_random_state", lambda state: OneNumber()
    )
    assert_same_fit(resumed, fitted(regressor(random_state=None), X, y))


def test_a_random_state_object_can_go_on(tmp_path, monkeypatch):
    """Its address in memory is not a setting."""
    (X, y), path = table(), tmp_path / "run.safetensors"
    state = lambda: np.random.RandomState(5)
    with monkeypatch.context() as patch:
        interrupt_after(2, patch)
        fitted(regressor(random_state=state()), X, y, checkpoint=path)
    resumed = fitted(regressor(random_state=state()), X, y, checkpoint=path)
    assert_same_fit(resumed, fitted(regressor(random_state=state()), X, y))


@pytest.mark.parametrize(
    "change", ["X", "y", "sample_weight", "tol", "prior", "random_state"]
)
def test_a_checkpoint_of_another_fit_is_refused(getkey, tmp_path, change):
    """With its name and what to do; the file stays as it is."""
    X, y = table()
    path, mark = tmp_path / "run.safetensors", mark_of(regressor(), X, y)
    run = Run.create(network(getkey()), TrainConfig(steps=STEPS))
    write_checkpoint(path, run, mark=mark, seed=1)
    training = replace(PLAIN["training"], max_iter=STEPS, tol=0.1)
    settings = {"tol": {"training": training}, "random_state": {"random_state": 1}}
    settings["prior"] = {"prior": Horseshoe(layer_scale=0.5)}
    weight = np.ones(ROWS)
    weight[0] += change == "sample_weight"
    X[3, 1] += 1e-9 * (change == "X")
    y[3] += 1e-9 * (change == "y")
    content = path.read_bytes()
    model = regressor(**settings.get(change, {}))
    with pytest.raises(
        ValueError, match=r"run\.safetensors' belongs to other.*delete it"
    ):
        model.fit(X, y, weight, checkpoint=path)
    assert not hasattr(model, "model_")
    assert path.read_bytes() == content


def mark_of(model, X, y):
    """The mark that a fit gives its checkpoints."""
    marks = []

    def stop(path, *, mark):
        marks.append(mark)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("farrier.estimators.base.read_seed", stop)
        with pytest.raises(InterruptedError):
            model.fit(X, y, checkpoint="nowhere")
    return marks[0]


# --- files ------------------------------------------------------------------------


def network(key):
    likelihood = GaussianNoise().build(1, rows=float(ROWS))
    return Network.create(2, (3,), likelihood, Horseshoe(), key=key)


def test_a_run_comes_back_whole(getkey, tmp_path):
    """Parameters, optimiser, a schedule that cools down, bad steps and records."""
    path, config = tmp_path / "run.safetensors", TrainConfig(steps=400)
    run = Run.create(network(getkey()), config)
    run.schedule = run.schedule.cooled(120, 160)
    run.state = eqx.tree_at(lambda s: s.step, run.state, run.state.step + 130)
    run.history = run.history.extended(
        np.array([10, 20]),
        {name: np.array([np.nan, i]) for i, name in enumerate(run.history.terms)},
    )
    run.history.skipped, run.history.bad_step, run.history.seconds = 3, 4, 1.5
    run.history.bad_term = "layer_1/tau"
    write_checkpoint(path, run, mark="here", seed=7)
    assert read_seed(path, mark="here") == 7
    back = resume(path, Run.create(network(getkey()), config))
    assert eqx.tree_equal((back.state, back.schedule), (run.state, run.schedule))
    assert list(back.history.terms) == list(run.history.terms)
    np.testing.assert_array_equal(back.history.step, run.history.step)
    np.testing.assert_array_equal(back.history.elbo, run.history.elbo)
    for name in ("status", "skipped", "bad_step", "bad_term", "seconds"):
        assert getattr(back.history, name) == getattr(run.history, name)


def test_where_there_is_no_file_a_run_begins(getkey, tmp_path):
    path = tmp_path / "run.safetensors"
    fresh = Run.create(network(getkey()), TrainConfig(steps=40))
    assert read_seed(path, mark="here") is None
    assert resume(path, fresh) is fresh


@pytest.mark.parametrize("status", list(Status))
def test_only_an_interrupted_run_starts_to_run_again(getkey, tmp_path, status):
    path = tmp_path / "run.safetensors"
    run = Run.create(network(getkey()), TrainConfig(steps=40))
    run.history.status = status
    write_checkpoint(path, run, mark="", seed=0)
    back = resume(path, Run.create(network(getkey()), TrainConfig(steps=40)))
    runs_again = status in (Status.INTERRUPTED, Status.RUNNING)
    assert back.history.status is (Status.RUNNING if runs_again else status)


def test_a_model_is_no_checkpoint(tmp_path):
    path = tmp_path / "model.safetensors"
    persist.write(path, "model", {}, {"a": np.ones(1)})
    with pytest.raises(ValueError, match="is a model, not a checkpoint"):
        fitted(regressor(), *table(), checkpoint=path)
