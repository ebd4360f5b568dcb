"""What is reported while a fit runs: steps, a progress bar, the user's callback."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from ..console import progress
from ..fit import Plan, Watch, best_first
from ..train.history import History, Status
from ..train.loop import Job, Run

Callback: TypeAlias = Callable[[float, History], None]


def steps_counter(budgets: list[int]) -> Callable[[int, Run], int]:
    """A function that counts the steps of all fits.

    It is called with the number of a fit and its run. A fit that ended early counts
    with its whole budget.
    """
    done = [0] * len(budgets)

    def count(number: int, run: Run) -> int:
        ended = run.history.status is not Status.RUNNING
        done[number] = budgets[number] if ended else int(run.state.step)
        return sum(done)

    return count


def budgets_of(jobs: list[Job]) -> list[int]:
    """Maximum number of steps of each job."""
    return [job.config.steps for job in jobs]


def reporters(plan: Plan, callback: Callback | None) -> list[Watch]:
    """Calls the user's callback with the share of the budget that is used."""
    if callback is None:
        return []
    budgets = budgets_of(plan.jobs)
    done = steps_counter(budgets)
    refined = plan.recipe.refinement is not None
    steps = sum(budgets) * (2 if refined else 1)
    return [lambda number, run: callback(done(number, run) / steps, run.history)]


@contextmanager
def progress_of(plan: Plan, *, shown: bool) -> Iterator[list[Watch]]:
    """A progress bar over all runs of a fit; yields what to call after each chunk."""
    if not shown:
        yield []
        return
    budgets, rows = budgets_of(plan.jobs), int(plan.rows.data.rows)
    count = steps_counter(budgets)
    title = "fit" if len(budgets) == 1 else f"{len(budgets)} fits"
    with progress(title, sum(budgets)) as show:

        def note(number: int, run: Run) -> None:
            text = f"ELBO {run.history.elbo[-1] / rows:.3f} nats per row"
            show(count(number, run), text)

        yield [note]


@contextmanager
def sampling_progress(
    plan: Plan, runs: list[Run], callback: Callback | None, *, shown: bool
) -> Iterator[Callable[[int], None]]:
    """What to call with the number of MCMC iterations that are done."""
    method = plan.recipe.refinement
    if method is None:
        yield lambda done: None
        return
    with ExitStack() as stack:
        show = lambda done, text: None
        if shown:
            show = stack.enter_context(progress("sampling", method.iterations))

        def on_sampling(done: int) -> None:
            show(done, f"{method.chains} chains")
            if callback is not None:
                history = best_first(runs)[0].history
                callback(0.5 + 0.5 * done / method.iterations, history)

        yield on_sampling
