"""Warnings of a fit: what went wrong, or may have, and what to try."""

from ..fitted import FittedModel
from ..infer.sample.settings import AbstractRefinement, Sampling
from ..train.config import Training
from ..train.history import History, Status
from ..train.loop import Run
from ..train.stopping import rise_at_the_end
from .checks import warn

RISING = 0.02  # nats per row; a rise of the ELBO at the end over which a fit warns
MAX_R_HAT = 1.1  # an R-hat over this means that the chains have not mixed
NEARLY_ALL = 0.9
MIN_TOTAL = 9  # row weights: under it 0.9 (n + 1) > n, and (P4) has no 90 % interval


def warn_of_fit(
    model: FittedModel,
    runs: list[Run],
    training: Training,
    method: AbstractRefinement | None,
) -> None:
    """Warn of all that went wrong, or may have."""
    _warn_of_weights(model)
    _warn_of_training(model, runs, training)
    if len(model.fits or runs) < len(runs):
        endings = ", ".join(run.history.status for run in runs)
        warn(
            f"The model combines {len(model.fits)} of {len(runs)} fits. They ended so: "
            f"{endings}."
        )
    if model.run is None:
        if model.sampling is None:
            _warn_of_widths(model)
        if method is not None:
            _warn_of_sampling(model, runs, method)


def _warn_of_weights(model: FittedModel) -> None:
    """Weights count rows; those that were scaled to sum to 1 make one row of all."""
    rows = 0 if model.sample is None else int((model.sample.weight > 0).sum())
    if model.total < min(MIN_TOTAL, rows / 2):
        warn(
            f"The weights of {rows} rows sum to {model.total:.3g}. A weight is the "
            "number of rows that a row stands for, so this fit is one to "
            f"{model.total:.3g} rows: it stays close to the prior, and calibrated "
            "intervals are nearly unbounded. If the weights are relative, divide them "
            "by their mean."
        )


def _warn_of_training(model: FittedModel, runs: list[Run], training: Training) -> None:
    history, rate = model.history, training.learning_rate
    if history.status is Status.NOT_FINITE:
        warn(
            f"The ELBO stopped being finite at step {history.bad_step}, first in "
            f"`{history.bad_term}`; {history.skipped} steps were skipped and the "
            f"training stopped at step {history.step[-1]}. Try a lower "
            f"`learning_rate` in `Training` (now {rate:.3g}), or look for extreme "
            "values."
        )
    elif history.skipped:
        warn(
            f"{history.skipped} steps were not finite and were skipped, the first "
            f"at step {history.bad_step} in `{history.bad_term}`. If there are "
            f"many, try a lower `learning_rate` in `Training` (now {rate:.3g})."
        )
    if any(run.history.status is Status.INTERRUPTED for run in runs):
        done = history.step[-1] if len(history.step) else 0
        warn(
            f"Training was interrupted; the model is that of step {done}. Fit "
            "again, or go on from a checkpoint: `fit(X, y, checkpoint=...)`."
        )
    _warn_of_rise(model, history, runs, training)


def _warn_of_rise(
    model: FittedModel, history: History, runs: list[Run], training: Training
) -> None:
    annealing = int(runs[0].schedule.annealing)
    rise = rise_at_the_end(history, annealing) / model.total
    if history.status is Status.BUDGET and training.early_stopping and rise > RISING:
        warn(
            f"Training has not converged: its budget of {model.epochs} epochs is "
            f"used up, and at the end of it the ELBO still rose by {rise:.2g} "
            "nats per row. Try a larger `max_iter` in `Training`."
        )


def _warn_of_widths(model: FittedModel) -> None:
    if model.history.status is Status.NOT_FINITE:
        return
    pairs = zip(model.nodes.widths, model.built_widths, strict=True)
    for index, (active, built) in enumerate(pairs, start=1):
        if active == 0:
            warn(
                f"All {built} nodes of hidden layer {index} are inactive: the model "
                "predicts a constant. Either the inputs carry no information about the "
                "target, or the training was too short: try a larger `max_iter` in "
                "`Training`."
            )
        elif active > NEARLY_ALL * built:
            warn(
                f"{active} of {built} nodes of hidden layer {index} are active: the "
                "network may be too narrow. Try a larger `hidden_layer_sizes`."
            )


def _warn_of_sampling(
    model: FittedModel, runs: list[Run], method: AbstractRefinement
) -> None:
    sampling: Sampling | None = model.sampling
    trained = all(run.history.status is not Status.INTERRUPTED for run in runs)
    if model.history.status is Status.INTERRUPTED and trained:
        draws = 0 if sampling is None else sampling.draws
        of = "made of those" if draws else "the variational one"
        warn(
            f"Sampling was interrupted after {draws} draws of each chain; the model "
            f"is {of}."
        )
    elif sampling is not None and sampling.r_hat > MAX_R_HAT:
        warn(
            f"The chains have not mixed: R-hat of the predictions is "
            f"{sampling.r_hat:.2f} and they are worth "
            f"{sampling.effective_draws:.0f} independent draws. Predictions may be "
            f"good all the same. For more, try `refine={type(method).__name__}"
            f"(draws=...)` with more than {sampling.draws} draws."
        )
