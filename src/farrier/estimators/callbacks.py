"""scikit-learn's callbacks: `set_callbacks(ProgressBar())`, from its version 1.9 on.

A fit is one task, and each chunk of its steps a task within it.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..fit import Plan, model_so_far
from ..train.data import RECORDS_PER_CHUNK
from ..train.history import Status
from ..train.loop import Run

HAS_CALLBACKS = find_spec("sklearn.callback") is not None

if TYPE_CHECKING or HAS_CALLBACKS:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
else:

    class CallbackSupportMixin:
        """Nothing: this version of scikit-learn has no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """The method as it is."""
        return method


def watcher(
    estimator: Any, plan: Plan, learned: dict[str, Any], X: Any, y: Any
) -> tuple[Callable[[Run], None], Callable[[], None]]:
    """A function to call after each chunk of steps, and one for the end of the fit."""
    if not HAS_CALLBACKS:
        return lambda run: None, lambda: None
    jobs, job = plan.jobs, plan.jobs[0]
    steps_in_chunk = job.steps_per_record * RECORDS_PER_CHUNK
    chunks = len(jobs) * -(-job.config.steps // steps_in_chunk)
    fit = estimator._init_callback_context(max_subtasks=chunks)
    fit.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def after_chunk(run: Run) -> None:
        # A callback that looks at predictions gets an estimator with a model so far.
        fitted = lambda: learned | {"model_": model_so_far(plan, run)}
        task = fit.subcontext(task_name="steps")
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        stop = task.call_on_fit_task_end(
            estimator=estimator, X=X, y=y, reconstruction_attributes=fitted
        )
        if stop and run.history.status is Status.RUNNING:
            run.history.status = Status.INTERRUPTED

    def at_end() -> None:
        fit.call_on_fit_task_end(
            estimator=estimator, X=X, y=y, reconstruction_attributes={}
        )

    return after_chunk, at_end
