"""Many fits at once, for splits of the rows, seeds or settings."""

import pickle
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import clone

from ..console import progress
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.processes import AbstractGroup
from ..train.history import Status
from ..train.loop import Run
from ..train.parallel import train_many
from .base import Fitting, NetworkEstimator, complete_fit, planned
from .checks import Unchecked
from .progress import budgets_of, steps_counter

Table: TypeAlias = tuple[Unchecked, Unchecked, Unchecked]  # X, y and sample_weight


def fit_many(
    models: Unchecked,
    X: Unchecked,
    y: Unchecked,
    sample_weight: Unchecked = None,
    *,
    rows: Sequence[np.ndarray] | None = None,
    after_fit: Callable[[int, Any], None] = lambda index, model: None,
    verbose: int = 0,
    placement: AbstractPlacement = ONE_DEVICE,
) -> list[Any]:
    """Fit many estimators at once: on all cores, and small ones in one program.

    Each gives the results of its own `fit`; small ones up to the rounding of sums. With
    a `placement` from `farrier.distributed` each process fits a share of the models,
    and all processes receive all models.

    Parameters
    ----------
    models : estimator or list of estimators
        Estimators, which are fitted in place; or one, of which a copy is fitted to
        each entry of `rows`.
    X, y, sample_weight : array-like
        The table that all of them are fitted to.
    rows : list of ndarray of int, default=None
        For each model the numbers of the rows that it is fitted to; by default all.
    after_fit : callable, default=None
        Called with the number of each model as soon as it is fitted, in the order in
        which they end.
    verbose : int, default=0
        1 shows progress.
    placement : placement, default=one device
        The processes that share the work, from `farrier.distributed`.

    Returns
    -------
    list of estimators

    Examples
    --------
    >>> import numpy as np
    >>> from farrier import HorseshoeRegressor, fit_many
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.abs(X[:, 0])
    >>> halves = [np.arange(0, 60, 2), np.arange(1, 60, 2)]
    >>> models = fit_many(HorseshoeRegressor((20,), random_state=0), X, y, rows=halves)
    """
    models, table = _checked_models(models, rows), (X, y, sample_weight)
    if placement.group.count > 1:
        return _fit_shares(models, table, rows, after_fit, verbose, placement.group)
    _train_all(models, _planned(models, table, rows), after_fit, verbose)
    return models


def _planned(
    models: list[Any], table: Table, rows: Sequence[np.ndarray] | None
) -> list[Fitting]:
    """The training runs of all fits."""
    fittings, part = [], table
    for index, model in enumerate(models):
        if rows is not None:
            part = [_take(values, rows[index]) for values in table]
        try:
            fittings.append(planned(model, *part))
        except ValueError as error:
            error.add_note(f"This is about model {index} of `fit_many`.")
            raise
    return fittings


def _train_all(
    models: list[Any],
    fittings: list[Fitting],
    after_fit: Callable[[int, Any], None],
    verbose: int,
) -> None:
    """Train the runs of all fits, and complete each fit when its runs have ended."""
    jobs = [fitting.plan.jobs for fitting in fittings]
    flat = [(i, n, job) for i, of in enumerate(jobs) for n, job in enumerate(of)]
    runs: list[dict[int, Run]] = [{} for _ in models]
    with ExitStack() as stack:
        after_chunk = lambda position, run: None
        if verbose:
            budgets = budgets_of([job for *_, job in flat])
            show = stack.enter_context(progress(f"{len(flat)} fits", sum(budgets)))
            after_chunk = _steps_shown(show, budgets)
        for position, run in train_many([job for *_, job in flat], after_chunk):
            index, number, _ = flat[position]
            runs[index][number] = run
            if len(runs[index]) == len(jobs[index]):
                trained = [runs[index][n] for n in range(len(jobs[index]))]
                complete_fit(models[index], fittings[index], trained)
                after_fit(index, models[index])


def _fit_shares(
    models: list[Any],
    table: Table,
    rows: Sequence[np.ndarray] | None,
    after_fit: Callable[[int, Any], None],
    verbose: int,
    group: AbstractGroup,
) -> list[Any]:
    """`fit_many` by all processes: each fits every n-th model and sends it to all."""
    senders = [index % group.count for index in range(len(models))]
    mine = [index for index, sender in enumerate(senders) if sender == group.rank]
    with group.together(), group.separately():
        fit_many(
            [models[index] for index in mine],
            *table,
            rows=None if rows is None else [rows[index] for index in mine],
            after_fit=lambda number, model: after_fit(mine[number], model),
            verbose=verbose if group.is_first else 0,
        )
    for index, (model, sender) in enumerate(zip(models, senders, strict=True)):
        sent = index in mine
        data = group.bytes_of(sender, _bytes(model) if sent else b"")
        if not sent:
            _fill(model, data)
            after_fit(index, model)
    return models


def _bytes(model: NetworkEstimator) -> bytes:
    """What a model has learned, for the other processes of the same program.

    A file would leave out the training rows, which `compact` needs.
    """
    params = model.get_params(deep=False)
    return pickle.dumps({n: v for n, v in vars(model).items() if n not in params})


def _fill(model: NetworkEstimator, data: bytes) -> None:
    """Give a model what that of another process has learned."""
    vars(model).update(pickle.loads(data))


def _checked_models(models: Unchecked, rows: Sequence[np.ndarray] | None) -> list:
    if isinstance(models, NetworkEstimator):
        models = [models] if rows is None else [clone(models) for _ in rows]
    models = list(models)
    for index, model in enumerate(models):
        if not isinstance(model, NetworkEstimator):
            raise TypeError(
                f"`models` must hold farrier's estimators; number {index} is a "
                f"{type(model).__name__}."
            )
    if len({id(model) for model in models}) < len(models):
        raise ValueError(
            "`models` holds one object twice; give each fit an estimator of its own, "
            "for example by scikit-learn's `clone`."
        )
    if rows is not None and len(rows) != len(models):
        raise ValueError(
            f"`rows` must have one entry for each of the {len(models)} models, got "
            f"{len(rows)}."
        )
    return models


def _take(values: Unchecked, rows: np.ndarray) -> Unchecked:
    """The rows of an array or a data frame with these numbers."""
    if values is None:
        return None
    try:
        return values.iloc[rows]
    except AttributeError:  # not a data frame
        return np.asarray(values)[rows]


def _steps_shown(
    show: Callable[[int, str], None], budgets: list[int]
) -> Callable[[int, Run], None]:
    """Progress over all fits; one that ends early counts with its whole budget."""
    count, ended = steps_counter(budgets), set[int]()

    def after_chunk(index: int, run: Run) -> None:
        if run.history.status is not Status.RUNNING:
            ended.add(index)
        show(count(index, run), f"{len(ended)} ended")

    return after_chunk
