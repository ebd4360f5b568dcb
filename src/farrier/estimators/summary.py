"""A fitted model in a few lines of text."""

from dataclasses import dataclass
from html import escape

import numpy as np

from ..fitted import FittedModel
from ..train.history import History, Status
from .base import NetworkEstimator

SHOWN = 10  # active columns that are named
ENDINGS = {
    Status.CONVERGED: "converged",
    Status.BUDGET: "whole budget used",
    Status.INTERRUPTED: "interrupted: the model is that of the last step kept",
    Status.NOT_FINITE: "stopped, the ELBO was no longer finite: do not use this model",
    Status.RUNNING: "by partial_fit",
}


@dataclass(frozen=True)
class Summary:
    """The summary of a fitted model, line by line: a label and a text.

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


def summarise(estimator: NetworkEstimator) -> Summary:
    """The summary of a fitted estimator."""
    model = estimator.model_
    lines = [
        ("task", _task(model)),
        ("rows", f"{model.total:,.10g}"),
        ("inputs", inputs_line(estimator)),
        ("prior", _plain(estimator.prior)),
        ("posterior", _plain(estimator.posterior)),
        *_width_lines(model),
        *_elbo_lines(model.history, model.total),
        ("training", _training(model.history)),
    ]
    if model.units.y is not None:
        lines.append(("noise sd", _noise(model)))
    if model.is_computed("compaction") or model.sample is not None:
        lines.append(("compaction", str(model.compaction)))
    if model.fits:
        lines.append(("restarts", _restarts(model)))
    if model.sampling is not None:
        lines.append(("sampling", str(model.sampling)))
    return Summary(type(estimator).__name__, tuple(lines))


def _plain(choice: object) -> str:
    """A name without quotes, or an object."""
    return choice if isinstance(choice, str) else repr(choice)


def widths_text(model: FittedModel) -> str:
    """Active nodes of each hidden layer: "7 of 100, 3 of 50"."""
    pairs = zip(model.nodes.widths, model.built_widths, strict=True)
    return ", ".join(f"{active} of {built}" for active, built in pairs)


def _task(model: FittedModel) -> str:
    if model.units.y is None:
        return f"classification, {model.likelihood.d_out} classes"
    targets = len(model.units.y.scale)
    several = f", {targets} targets" if targets > 1 else ""
    return f"regression{several}"


def inputs_line(estimator: NetworkEstimator) -> str:
    """How many inputs there are and, where they have scales, which are active."""
    columns = estimator.model_.nodes.of_columns
    if columns is None:
        return str(estimator.n_features_in_)
    (low, high), *_ = columns.width_interval(0.9)
    active, count = columns.active[0], columns.widths[0]
    known = getattr(estimator, "feature_names_in_", None)
    known = [f"x{i}" for i in range(len(active))] if known is None else known
    names = [str(known[index]) for index in np.flatnonzero(active)[:SHOWN]]
    names += ["..."] if count > SHOWN else []
    interval = f"(90 % interval {low} to {high})"
    return f"{count} of {len(active)} columns active {interval}: {', '.join(names)}"


def _width_lines(model: FittedModel) -> list[tuple[str, str]]:
    nodes = model.nodes
    layers = zip(
        model.built_widths, nodes.widths, nodes.width_interval(0.9), strict=True
    )
    return [
        (
            f"hidden layer {index}",
            f"{active} of {built} nodes active (90 % interval {low} to {high})",
        )
        for index, (built, active, (low, high)) in enumerate(layers, start=1)
    ]


def _elbo_lines(history: History, rows: float) -> list[tuple[str, str]]:
    if not len(history.step):
        return [("ELBO", "none: the training ended before its first record")]
    last = {name: float(values[-1]) / rows for name, values in history.kl.items()}
    kinds = {"weights": 0.0, "scales": 0.0, "noise": 0.0}
    for name, value in last.items():
        kind = "weights" if name.endswith("/beta") else "scales"
        kinds["noise" if name.startswith("noise/") else kind] += value
    likelihood = history.log_likelihood[-1] / rows
    parts = ", ".join(f"{kind} {value:.3f}" for kind, value in kinds.items() if value)
    total = sum(kinds.values())
    return [
        ("ELBO", f"{history.elbo[-1] / rows:.3f} nats per row"),
        ("  log likelihood", f"{likelihood:.3f}"),
        ("  KL terms", f"{total:.3f} ({parts})"),
    ]


def _training(history: History) -> str:
    steps = int(history.step[-1]) if len(history.step) else 0
    skipped = f", {history.skipped} not finite and skipped" if history.skipped else ""
    ending = ENDINGS[history.status]
    return f"{ending}; {steps:,} steps{skipped} in {history.seconds:.0f} s"


def _restarts(model: FittedModel) -> str:
    """ELBO, weight and widths of each fit."""
    each = []
    for fit in model.fits:
        parts = [f"weight {fit.weight:.2f}"]
        if fit.widths:
            parts.append(f"{' and '.join(map(str, fit.widths))} nodes active")
        each.append(f"{fit.elbo / model.total:.3f} ({', '.join(parts)})")
    return f"{len(each)} fits of ELBO {', '.join(each)}"


def _noise(model: FittedModel) -> str:
    """Quantiles of gamma^(-1/2), in the units of the target."""
    assert model.units.y is not None
    if model.likelihood.noise_outputs.any():
        return "depends on the inputs: see predict_variance(X)"
    noise = np.asarray(model.predictor.noise, float) * model.units.y.scale
    ends = np.quantile(noise, (0.05, 0.5, 0.95), axis=0)
    return "; ".join(
        f"{middle:.4g} (90 % interval {low:.4g} to {high:.4g})"
        for low, middle, high in zip(*ends, strict=True)
    )
