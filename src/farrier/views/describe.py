"""A fitted model in words and numbers.

A `Description` is made of a `FittedModel` and plain values. All texts about a model
come from it: `summary()` of an estimator, its line in a notebook, the last lines of
`farrier fit`, `farrier inspect`, and the head of the report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from ..fit import FittedModel
from ..infer.nodes import Nodes
from ..train.history import Status

LEVEL = 0.9  # of the intervals of the numbers of active nodes
NAMED_COLUMNS = 10  # active columns whose names are shown


@dataclass(frozen=True)
class Ending:
    """How a training run ended, and what to do next."""

    text: str
    advice: str = ""


ENDINGS = {
    Status.CONVERGED: Ending("converged"),
    Status.BUDGET: Ending(
        "whole budget used", "if the ELBO still rises, use a larger max_iter"
    ),
    Status.INTERRUPTED: Ending(
        "interrupted",
        "the model is that of the last step kept: fit again, or resume from the "
        "checkpoint",
    ),
    Status.NOT_FINITE: Ending(
        "stopped because the ELBO was no longer finite",
        "do not use this model: try a lower learning_rate, or look for extreme values",
    ),
    Status.RUNNING: Ending("trained with partial_fit"),
}


@dataclass(frozen=True)
class Width:
    """Active nodes of one hidden layer, or active columns of the input.

    Parameters
    ----------
    active, built
        Active ones, and all of them before training.
    interval
        Central posterior interval of the number of active ones, of probability 0.9.
    stored
        Those that the model still has.
    """

    active: int
    built: int
    interval: tuple[int, int]
    stored: int

    @property
    def interval_text(self) -> str:
        """The interval as "5 to 9"."""
        low, high = self.interval
        return f"{low} to {high}"

    def text(self, what: str) -> str:
        """A text such as "7 of 100 nodes active (90 % interval 5 to 9)"."""
        level = f"{100 * LEVEL:g} % interval"
        return f"{short_text(self)} {what} active ({level} {self.interval_text})"


def short_text(*widths: Width) -> str:
    """A text such as "7 of 100, 3 of 50"."""
    return ", ".join(f"{width.active} of {width.built}" for width in widths)


@dataclass(frozen=True)
class Summary:
    """A table of two columns: labels and texts.

    `print` shows it as plain text, and a notebook as HTML.
    """

    title: str
    lines: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """A table of plain text."""
        rows = [self.title, "-" * len(self.title), *self.rows]
        return "\n".join(rows)

    def __repr__(self) -> str:
        """The same: a summary at a prompt is to be read."""
        return str(self)

    def __getitem__(self, label: str) -> str:
        """The text of one line."""
        return dict(self.lines)[label]

    @property
    def rows(self) -> list[str]:
        """The lines, with the texts below each other."""
        width = max(len(label) for label, _ in self.lines)
        return [f"{label:<{width}}  {text}" for label, text in self.lines]

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align: left'>{escape(label)}</th>"
            f"<td style='text-align: left'>{escape(text)}</td></tr>"
            for label, text in self.lines
        )
        return f"<table><caption>{escape(self.title)}</caption>{rows}</table>"


@dataclass(frozen=True)
class Description:
    """What there is to say about a fitted model: a `Summary`, text, HTML and JSON.

    Parameters
    ----------
    model : FittedModel
        `model_` of a fitted estimator.
    title : str, default="FittedModel"
        Name of the class of the estimator.
    settings : mapping of str to object
        Its parameters.
    features : sequence of str, default=()
        Names of the inputs; by default x0, x1, ...
    """

    model: FittedModel
    title: str = "FittedModel"
    settings: Mapping[str, Any] = field(default_factory=dict)
    features: Sequence[str] = ()

    # -- values ------------------------------------------------------------------------

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, or x0, x1, ..."""
        unnamed = [f"x{index}" for index in range(self.model.posterior.d_in)]
        return [*map(str, self.features)] or unnamed

    @cached_property
    def layers(self) -> tuple[Width, ...]:
        """Widths of the hidden layers."""
        model = self.model
        return _widths(model.nodes, model.built_widths, model.posterior.widths)

    @cached_property
    def columns(self) -> Width | None:
        """Number of active columns, where columns have scales of their own."""
        model, nodes = self.model, self.model.nodes.of_columns
        if nodes is None:
            return None
        count = stored = model.posterior.d_in
        if model.is_compact and model.compaction.columns is not None:
            stored = int(model.compaction.columns.sum())
        (width,) = _widths(nodes, (count,), (stored,))
        return width

    @property
    def steps(self) -> int:
        """Steps of the training."""
        step = self.model.history.step
        return int(step[-1]) if len(step) else 0

    @property
    def elbo_per_row(self) -> float | None:
        """Last record of the ELBO, in nats per row; None if nothing was recorded."""
        elbo = self.model.history.elbo
        return float(elbo[-1]) / self.model.total if self.steps else None

    @property
    def terms_per_row(self) -> dict[str, float]:
        """Last record of each term of the ELBO, in nats per row."""
        terms, total = self.model.history.terms, self.model.total
        return {n: float(v[-1]) / total for n, v in terms.items() if len(v)}

    @property
    def has_compaction(self) -> bool:
        """Whether the compaction is known, or can be computed."""
        return self.model.is_computed("compaction") or self.model.sample is not None

    # -- texts -------------------------------------------------------------------------

    @property
    def widths_text(self) -> str:
        """Active nodes of each hidden layer: "7 of 100, 3 of 50"."""
        return short_text(*self.layers)

    @property
    def elbo_text(self) -> str:
        """A text such as "-1.234 nats per row"."""
        if self.elbo_per_row is None:
            return "none: the training ended before its first record"
        return f"{self.elbo_per_row:.3f} nats per row"

    @property
    def training_text(self) -> str:
        """How the training ended, with its steps and seconds."""
        history = self.model.history
        ending = ENDINGS[history.status]
        skipped = history.skipped
        more = f" ({skipped} skipped because they were not finite)" if skipped else ""
        text = f"{ending.text}; {self.steps:,} steps{more} in {history.seconds:.0f} s"
        text += f" ({self.model.epochs:,} epochs)"
        return f"{text}; {ending.advice}" if ending.advice else text

    @property
    def inputs_text(self) -> str:
        """Number of inputs and, where columns have scales, which are active."""
        nodes, width = self.model.nodes.of_columns, self.columns
        if nodes is None or width is None:
            return str(self.model.posterior.d_in)
        pairs = zip(self.input_names, nodes.active[0], strict=True)
        names = [name for name, active in pairs if active]
        shown = names[:NAMED_COLUMNS] + ["..."] * (len(names) > NAMED_COLUMNS)
        return width.text("columns") + ": " * bool(shown) + ", ".join(shown)

    def summary(self) -> Summary:
        """All that is known, line by line."""
        model = self.model
        layers = [
            (f"hidden layer {index}", layer.text("nodes"))
            for index, layer in enumerate(self.layers, start=1)
        ]
        lines = [
            ("task", self._task_text()),
            ("rows", f"{model.total:,.10g}"),
            ("inputs", self.inputs_text),
            *self._choices(),
            *layers,
            *self._elbo_lines(),
            ("training", self.training_text),
        ]
        if model.units.y is not None:
            lines.append(("noise sd", self._noise_text()))
        if self.has_compaction:
            lines.append(("compaction", str(model.compaction)))
        if model.fits:
            lines.append(("restarts", self._restarts_text()))
        if model.sampling is not None:
            lines.append(("sampling", str(model.sampling)))
        return Summary(self.title, tuple(lines))

    def closing_lines(self) -> list[str]:
        """What is shown at the end of a fit."""
        lines = [
            f"Active nodes: {self.widths_text}",
            f"ELBO: {self.elbo_text}",
            f"Training: {self.training_text}",
        ]
        if self.columns is not None:
            lines.append(f"Inputs: {self.inputs_text}")
        if self.model.sampling is not None:
            lines.append(f"Sampling: {self.model.sampling}")
        return lines

    def html_line(self) -> str:
        """One line for a notebook, below scikit-learn's own view of an estimator."""
        text = f"Active nodes: {self.widths_text}"
        if self.columns is not None:
            text += f". Active columns: {short_text(self.columns)}"
        return f"<p>{escape(text)}. <code>summary()</code> shows more.</p>"

    def to_json(self) -> dict[str, Any]:
        """Plain values by name, and arrays."""
        model, sampling = self.model, self.model.sampling
        values = {
            "class": self.title,
            "task": model.task,
            "rows": model.total,
            "features": model.posterior.d_in,
            "widths": [layer.active for layer in self.layers],
            "built_widths": [layer.built for layer in self.layers],
            "width_interval_90": [layer.interval for layer in self.layers],
            "node_scores": [np.sort(s)[::-1] for s in model.nodes.scores],
            "compacted": model.is_compact,
            "compaction": str(model.compaction) if self.has_compaction else None,
            "elbo_per_row": self.elbo_per_row,
            "terms_per_row": self.terms_per_row,
            "status": str(model.history.status),
            "steps": self.steps,
            "epochs": model.epochs,
            "seconds": model.history.seconds,
            "restarts": [asdict(fit) for fit in model.fits],
            "sampling": sampling and asdict(sampling) | {"text": str(sampling)},
            "settings": {n: _setting(v) for n, v in self.settings.items()},
        }
        if (columns := model.nodes.of_columns) is None:
            return values
        if model.is_computed("column_shares") or model.sample is not None:
            values["feature_scores"] = np.median(model.column_shares, axis=0)
        return values | {
            "features_on": columns.active[0],
            "feature_probabilities": columns.probabilities[0],
            "inputs": self.inputs_text,
        }

    # -- lines of the summary ----------------------------------------------------------

    def _task_text(self) -> str:
        model = self.model
        if model.units.y is None:
            return f"{model.task}, {model.likelihood.d_out} classes"
        targets = len(model.units.y.scale)
        return model.task if targets == 1 else f"{model.task}, {targets} targets"

    def _choices(self) -> list[tuple[str, str]]:
        """The prior and the posterior: a name without quotes, or an object."""
        chosen = [(n, self.settings.get(n)) for n in ("prior", "posterior")]
        return [
            (name, value if isinstance(value, str) else repr(value))
            for name, value in chosen
            if value is not None
        ]

    def _elbo_lines(self) -> list[tuple[str, str]]:
        """The ELBO, its log likelihood, and its KL terms by what they belong to."""
        terms = self.terms_per_row
        if not terms:
            return [("ELBO", self.elbo_text)]
        likelihood = terms.pop("log_likelihood")
        sums = {"weights": 0.0, "scales": 0.0, "noise": 0.0}
        for name, value in terms.items():
            of = "weights" if name.endswith("/beta") else "scales"
            sums["noise" if name.startswith("noise/") else of] += value
        parts = ", ".join(f"{of} {value:.3f}" for of, value in sums.items() if value)
        return [
            ("ELBO", self.elbo_text),
            ("  log likelihood", f"{likelihood:.3f}"),
            ("  KL terms", f"{sum(sums.values()):.3f} ({parts})"),
        ]

    def _noise_text(self) -> str:
        """Quantiles of gamma^(-1/2), in the units of the target."""
        units = self.model.units.y
        assert units is not None
        if self.model.likelihood.noise_outputs.any():
            return "depends on the inputs: see predict_variance(X)"
        noise = np.asarray(self.model.predictor.noise, float) * units.scale
        ends = np.quantile(noise, (0.05, 0.5, 0.95), axis=0)
        return "; ".join(
            f"{middle:.4g} (90 % interval {low:.4g} to {high:.4g})"
            for low, middle, high in zip(*ends, strict=True)
        )

    def _restarts_text(self) -> str:
        """ELBO, weight and widths of each fit."""
        each = []
        for fit in self.model.fits:
            parts = [f"weight {fit.weight:.2f}"]
            if fit.widths:
                parts.append(f"{' and '.join(map(str, fit.widths))} nodes active")
            each.append(f"{fit.elbo / self.model.total:.3f} ({', '.join(parts)})")
        return f"{len(each)} fits of ELBO {', '.join(each)}"


def describe_estimator(estimator: Any, features: Sequence[str] = ()) -> Description:
    """Describe a fitted estimator; `features` are names of its inputs, if it has none.

    Only its public attributes are used.
    """
    names = getattr(estimator, "feature_names_in_", None)
    return Description(
        estimator.model_,
        title=type(estimator).__name__,
        settings=estimator.get_params(deep=False),
        features=features if names is None else [str(name) for name in names],
    )


def _widths(
    nodes: Nodes, built: tuple[int, ...], stored: tuple[int, ...]
) -> tuple[Width, ...]:
    found = (nodes.widths, built, nodes.width_interval(LEVEL), stored)
    return tuple(Width(*each) for each in zip(*found, strict=True))


def _setting(value: Any) -> Any:
    """An object of settings, such as a prior, as its class and its fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"class": type(value).__name__} | asdict(value)
    return value
