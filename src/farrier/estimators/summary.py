"""A fitted model in a few lines of text."""

from dataclasses import dataclass
from html import escape

import numpy as np
from scipy import stats

from ..infer.psis import GOOD, USABLE
from ..model.drawn import DrawnNetwork
from ..model.likelihoods import AbstractNormalLikelihood
from ..train.history import History, Status
from .base import NetworkEstimator

SHOWN = 10  # columns that are on, by name
ENDINGS = {
    Status.CONVERGED: "converged",
    Status.BUDGET: "whole budget used",
    Status.INTERRUPTED: "interrupted: the model is that of the last step kept",
    Status.NOT_FINITE: "stopped, the bound was no longer finite: do not use this model",
    Status.RUNNING: "by partial_fit",
}


@dataclass(frozen=True)
class Summary:
    """What `summary` says, line by line: a label and a text.

    `print` shows it as a table of text, a notebook as one of HTML.
    """

    title: str
    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """A table of text."""
        width = max(len(label) for label, _ in self.lines)
        rows = [f"{label:<{width}}  {text}" for label, text in self.lines]
        return "\n".join([self.title, "-" * len(self.title), *rows])

    def __repr__(self) -> str:
        """The same: a summary at a prompt is to be read."""
        return str(self)

    def __getitem__(self, label: str) -> str:
        """The text of one line."""
        return dict(self.lines)[label]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{escape(label)}</th>"
            f"<td style='text-align: left'>{escape(text)}</td></tr>"
            for label, text in self.lines
        )
        return f"<table><caption>{escape(self.title)}</caption>{rows}</table>"


def summarise(model: NetworkEstimator, k: float | None) -> Summary:
    """The summary of a fitted model, and of its k (K2) where that is known."""
    lines = [
        ("task", _task(model)),
        ("rows", f"{model._rows_seen:,.10g}"),
        ("inputs", inputs_line(model)),
        ("prior", _plain(model.prior)),
        ("posterior", _plain(model.posterior)),
        *_width_lines(model),
        *_bound_lines(model.history_, model._rows_seen),
        ("training", _training(model.history_)),
    ]
    if model.network_.likelihood.targets:
        lines.append(("noise sd", _noise(model)))
    lines.append(("compaction", str(model._compacted())))
    if hasattr(model, "restarts_"):
        lines.append(("restarts", _restarts(model)))
    if hasattr(model, "sampling_"):
        lines.append(("sampling", str(model.sampling_)))
    elif not isinstance(model.network_, DrawnNetwork):
        lines.append(("Pareto k", _word_on(k)))
    return Summary(type(model).__name__, tuple(lines))


def _plain(choice: object) -> str:
    """A name without quotes, or an object."""
    return choice if isinstance(choice, str) else repr(choice)


def _task(model: NetworkEstimator) -> str:
    likelihood = model.network_.likelihood
    if not likelihood.targets:
        return f"classification, {likelihood.d_out} classes"
    several = f", {likelihood.targets} targets" if likelihood.targets > 1 else ""
    return f"regression{several}"


def inputs_line(model: NetworkEstimator) -> str:
    """How many inputs there are and, where they have scales, which of them are on."""
    report = model._nodes.with_columns
    if report is model._nodes:
        return str(model.n_features_in_)
    (low, high), *_ = report.width_interval(0.9)
    on, count = report.on[0], report.widths[0]
    known = getattr(model, "feature_names_in_", [f"x{i}" for i in range(len(on))])
    names = [str(known[index]) for index in np.flatnonzero(on)[:SHOWN]]
    names += ["..."] if count > SHOWN else []
    interval = f"(90 % interval {low} to {high})"
    return f"{count} of {len(on)} columns on {interval}: {', '.join(names)}"


def _width_lines(model: NetworkEstimator) -> list[tuple[str, str]]:
    found = zip(
        model._built_widths, model.widths_, model.width_interval(0.9), strict=True
    )
    return [
        (
            f"hidden layer {index}",
            f"{on} of {built} nodes on (90 % interval {low} to {high})",
        )
        for index, (built, on, (low, high)) in enumerate(found, start=1)
    ]


def _bound_lines(history: History, rows: float) -> list[tuple[str, str]]:
    if not len(history.step):
        return [("bound", "none: the training ended before its first record")]
    last = {name: float(values[-1]) / rows for name, values in history.kl.items()}
    kinds = {"weights": 0.0, "scales": 0.0, "noise": 0.0}
    for name, value in last.items():
        kind = "weights" if name.endswith("/beta") else "scales"
        kinds["noise" if name.startswith("noise/") else kind] += value
    likelihood = history.log_likelihood[-1] / rows
    parts = ", ".join(f"{kind} {value:.3f}" for kind, value in kinds.items() if value)
    total = sum(kinds.values())
    return [
        ("bound", f"{history.bound[-1] / rows:.3f} nats a row"),
        ("  log likelihood", f"{likelihood:.3f}"),
        ("  divergences", f"{total:.3f} ({parts})"),
    ]


def _training(history: History) -> str:
    steps = int(history.step[-1]) if len(history.step) else 0
    skipped = f", {history.skipped} not finite and skipped" if history.skipped else ""
    ending = ENDINGS[history.status]
    return f"{ending}; {steps:,} steps{skipped} in {history.seconds:.0f} s"


def _restarts(model: NetworkEstimator) -> str:
    """Bound, weight and widths of each fit, and its noise where they differ in it."""
    differ = len({r.likelihood for r in model.restarts_}) > 1
    each = []
    for r in model.restarts_:
        told = [f"weight {r.weight:.2f}"]
        told += [f"{' and '.join(map(str, r.widths))} nodes on"] if r.widths else []
        told += [r.likelihood] if differ else []
        each.append(f"{r.bound / model._rows_seen:.3f} ({', '.join(told)})")
    return f"{len(each)} fits of bound {', '.join(each)}"


def _noise(model: NetworkEstimator) -> str:
    """Quantiles of gamma^(-1/2), in the units of the target."""
    if model.network_.likelihood.kinds == 2:
        return "depends on the row: see predict_variance(X)"
    levels = (0.05, 0.5, 0.95)
    if isinstance(model.network_, DrawnNetwork):
        ends = np.quantile(np.asarray(model.network_.noise_sd), levels, axis=0)
    else:
        likelihood = model.network_.likelihood
        assert isinstance(likelihood, AbstractNormalLikelihood)
        law = stats.gamma(np.asarray(likelihood.gamma.shape, float))
        rate = np.exp(np.asarray(likelihood.gamma.log_rate, float))
        ends = [np.sqrt(rate / law.isf(p)) for p in levels]
    ends = [end * model._target_scale() for end in ends]
    return "; ".join(
        f"{middle:.4g} (90 % interval {low:.4g} to {high:.4g})"
        for low, middle, high in zip(*ends, strict=True)
    )


def _word_on(k: float | None) -> str:
    """What k says of q."""
    if k is None:
        return "not known: call summary(X, y) with the rows of the fit"
    if k < GOOD:
        return f"{k:.2f}, under {GOOD}: the posterior is close to the exact one"
    if k < USABLE:
        return f"{k:.2f}, under {USABLE}: the posterior is near the exact one"
    return (
        f"{k:.2f}, over {USABLE}: the posterior as a whole is not the exact one, and "
        "too narrow. Predictions may be good all the same: see plot_calibration(X, y)"
    )
