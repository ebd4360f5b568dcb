"""Figures of one fitted model, in scikit-learn's habit.

A display holds plain arrays. `from_estimator` asks a fitted estimator for them, `plot`
draws them, and `ax_` and `figure_` then are matplotlib's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self

import numpy as np

from ..infer.nodes import ACTIVE_SHARE

BLUE, ORANGE, PURPLE, GREEN, OCHRE = (
    "#1f77a4",
    "#c8622f",
    "#8e6bb0",
    "#5b8c3a",
    "#b8860b",
)
SERIES = (BLUE, ORANGE, PURPLE, GREEN, OCHRE, "#7a7a7a")
GREY = "#808080"
FLOOR = 1e-6  # scores under this are drawn here
BINS = 10
LEVELS = (0.5, 0.9)  # of the bands, the narrow one first


def pyplot() -> ModuleType:
    """matplotlib.pyplot, or an error that names the extra."""
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Figures need matplotlib. Install it with `pip install 'farrier[plot]'`."
        ) from error
    return plt


@dataclass
class AbstractDisplay:
    """What displays share: a place to draw in, and what was drawn."""

    ax_: Any = field(init=False, default=None, repr=False)
    figure_: Any = field(init=False, default=None, repr=False)

    def _panels(self, ax: Any, *, count: int = 1) -> list[Any]:
        """Axes to draw in: those given, or those of a new figure."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(
                1, count, figsize=(5.5 * count, 4), layout="constrained"
            )
        panels = list(np.ravel(np.asarray(ax, object)))
        if len(panels) != count:
            raise ValueError(
                f"This figure has {count} panels, but `ax` holds {len(panels)}: give "
                f"{count} matplotlib axes, or none for a new figure."
            )
        self.ax_ = panels[0] if count == 1 else np.asarray(panels, object)
        self.figure_ = panels[0].figure
        return panels


@dataclass
class NodesDisplay(AbstractDisplay):
    """Node scores of each hidden layer, largest first, and the line between on and off.

    Parameters
    ----------
    scores
        One array for each hidden layer: each node's share in what it feeds.
    threshold
        A node is on above this.
    """

    scores: Sequence[np.ndarray]
    threshold: float = ACTIVE_SHARE

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the nodes of a fitted estimator."""
        return cls(estimator.node_scores_).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        (ax,) = self._panels(ax)
        for index, scores in enumerate(self.scores):
            ordered = np.sort(scores)[::-1]
            on = int((ordered > self.threshold).sum())
            name = f"layer {index + 1}: " if len(self.scores) > 1 else ""
            ax.plot(
                np.arange(1, len(ordered) + 1),
                np.maximum(ordered, FLOOR),
                color=SERIES[index % len(SERIES)],
                marker="o",
                ms=4,
                lw=1,
                label=f"{name}{on} of {len(ordered)} on",
            )
        ax.axhline(
            self.threshold,
            color=GREY,
            ls="--",
            lw=1,
            label=f"on above {self.threshold:g}",
        )
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("node, largest first")
        ax.set_ylabel("share in what the node feeds")
        ax.legend(loc="best", fontsize="small")
        return self


@dataclass
class HistoryDisplay(AbstractDisplay):
    """The bound over the steps of the training, and terms of it.

    Parameters
    ----------
    step
        Step of each record.
    bound
        The bound, in nats a row.
    terms
        Its terms by name, in nats a row.
    """

    step: np.ndarray
    bound: np.ndarray
    terms: dict[str, np.ndarray]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, terms: Iterable[str] = (), ax: Any = None
    ) -> Self:
        """Draw the history of a fitted estimator; see `plot`."""
        history, rows = estimator.history_, estimator.n_rows_
        parts = {name: values / rows for name, values in history.terms.items()}
        return cls(history.step, history.bound / rows, parts).plot(ax, terms=terms)

    def plot(self, ax: Any = None, *, terms: Iterable[str] = ()) -> Self:
        """Draw into `ax`, or into a new figure.

        Parameters
        ----------
        terms
            Names of terms to draw beside the bound: `model.history_.terms` for all.
        """
        (ax,) = self._panels(ax)
        drawn = {"bound": self.bound}
        for name in terms:
            if name not in self.terms:
                raise ValueError(
                    f"`terms` must be among {[*self.terms]}, got {name!r}."
                )
            drawn[name] = self.terms[name]
        for index, (name, values) in enumerate(drawn.items()):
            style = ("-", "--", ":")[index // len(SERIES) % 3]
            colour = SERIES[index % len(SERIES)]
            ax.plot(self.step, values, style, color=colour, lw=1.6, label=name)
        self._look_at_the_end(ax, list(drawn.values()))
        ax.set_xlabel("step")
        ax.set_ylabel("nats a row")
        ax.legend(loc="best", fontsize="small", ncols=1 if len(drawn) < 6 else 2)
        return self

    def _look_at_the_end(self, ax: Any, curves: list[np.ndarray]) -> None:
        """Leave out the first steep steps, which would flatten all the rest."""
        late = [curve[len(curve) // 8 :] for curve in curves]
        values = np.concatenate(late)
        values = values[np.isfinite(values)]
        if len(values):
            low, high = values.min(), values.max()
            margin = 0.06 * (high - low) or 0.1
            ax.set_ylim(low - margin, high + margin)


@dataclass
class CalibrationDisplay(AbstractDisplay):
    """Whether predicted probabilities hold.

    For a regression two panels: a histogram of where the targets lie in their
    predictive laws, which is flat when they hold, and how many targets the central
    intervals of each level cover. For a classification one panel: how often the class
    came, against its predicted probability.

    Parameters
    ----------
    predicted
        Levels of intervals, or predicted probabilities.
    observed
        The shares that came true.
    error
        Standard error of each share.
    pit
        For a regression: where each target lies in its predictive law, from 0 to 1.
    label
        What the probabilities are of.
    """

    predicted: np.ndarray
    observed: np.ndarray
    error: np.ndarray
    pit: np.ndarray | None = None
    label: str = ""

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Draw the calibration of a fitted estimator on rows it has not seen."""
        if hasattr(estimator, "classes_"):
            probability = estimator.predict_proba(X)
            return cls.from_probabilities(probability, y, estimator.classes_, ax=ax)
        return cls.from_pit(estimator.pit(X, y), ax=ax)

    @classmethod
    def from_pit(cls, pit: np.ndarray, *, ax: Any = None) -> Self:
        """Draw from the places of the targets in their predictive laws (P2)."""
        pit = np.ravel(pit)
        levels = np.linspace(0, 1, 101)
        observed = coverage(pit, levels)
        error = np.sqrt(levels * (1 - levels) / len(pit))
        return cls(levels, observed, error, pit).plot(ax)

    @classmethod
    def from_probabilities(
        cls, probability: np.ndarray, y: Any, classes: np.ndarray, *, ax: Any = None
    ) -> Self:
        """Draw from class probabilities: of the second class of two, or of the best."""
        codes = np.searchsorted(classes, np.asarray(y))
        if len(classes) == 2:
            chance, came = probability[:, 1], codes == 1
            label = f"probability of {classes[1]}"
        else:
            best = probability.argmax(1)
            chance, came = probability.max(1), codes == best
            label = "probability of the predicted class"
        parts = np.array_split(np.argsort(chance, kind="stable"), min(BINS, len(came)))
        predicted = np.array([chance[part].mean() for part in parts])
        observed = np.array([came[part].mean() for part in parts])
        count = np.array([len(part) for part in parts])
        error = np.sqrt(predicted * (1 - predicted) / count)
        return cls(predicted, observed, error, label=label).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, two of them for a regression, or into a new figure."""
        *histogram, curve = self._panels(ax, count=1 if self.pit is None else 2)
        if self.pit is None:
            self._reliability(curve)
        else:
            self._histogram(histogram[0], self.pit)
            self._coverage(curve)
        return self

    def _histogram(self, ax: Any, pit: np.ndarray) -> None:
        bins = int(np.clip(len(pit) // 20, 5, 20))
        share = 1 / bins
        error = 2 * np.sqrt(share * (1 - share) / len(pit)) / share
        ax.hist(
            pit, np.linspace(0, 1, bins + 1), density=True, color=BLUE, alpha=0.75, lw=0
        )
        ax.axhline(1, color=GREY, lw=1, ls="--", label="calibrated")
        ax.axhspan(
            1 - error,
            1 + error,
            color=GREY,
            alpha=0.2,
            lw=0,
            label="± 2 standard errors",
        )
        ax.set_xlim(0, 1)
        ax.set_ylim(0, 1.25 * ax.get_ylim()[1])  # room for the legend
        ax.set_xlabel("place of the target in its predictive law")
        ax.set_ylabel("density")
        ax.legend(loc="upper center", fontsize="small", ncols=2)

    def _coverage(self, ax: Any) -> None:
        low, high = self.predicted - 2 * self.error, self.predicted + 2 * self.error
        _unit_square(ax)
        ax.fill_between(
            self.predicted,
            np.clip(low, 0, 1),
            np.clip(high, 0, 1),
            color=GREY,
            alpha=0.2,
            lw=0,
            label="± 2 standard errors",
        )
        ax.plot(self.predicted, self.observed, color=BLUE, lw=1.8, label="observed")
        ax.set_xlabel("level of the interval")
        ax.set_ylabel("share of targets inside")
        ax.legend(loc="upper left", fontsize="small")

    def _reliability(self, ax: Any) -> None:
        _unit_square(ax)
        ax.errorbar(
            self.predicted,
            self.observed,
            2 * self.error,
            color=BLUE,
            marker="o",
            ms=4,
            lw=1.4,
            elinewidth=1,
            label="observed ± 2 standard errors",
        )
        ax.set_xlabel(self.label, parse_math=False)
        ax.set_ylabel("how often it came")
        ax.legend(loc="lower right", fontsize="small")


@dataclass
class BandDisplay(AbstractDisplay):
    """The prediction over one input, the others at their medians, with bands.

    Parameters
    ----------
    grid
        Values of the input.
    curves
        By name of target or class: the mean, and for each level the two ends.
    levels
        Levels of the bands.
    feature
        Name of the input.
    target
        What the vertical axis shows.
    """

    grid: np.ndarray
    curves: dict[str, tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]]
    levels: Sequence[float]
    feature: str
    target: str

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        feature: int | str,
        *,
        levels: Sequence[float] = LEVELS,
        ax: Any = None,
    ) -> Self:
        """Draw the band of a fitted estimator over the range of one column of X."""
        grid, curves, name = estimator.predict_band(X, feature, levels)
        target = "probability" if hasattr(estimator, "classes_") else "y"
        return cls(grid, curves, tuple(levels), name, target).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax`, or into a new figure."""
        (ax,) = self._panels(ax)
        for index, (name, (mean, bands)) in enumerate(self.curves.items()):
            colour = SERIES[index % len(SERIES)]
            lead = f"{name}: " if len(self.curves) > 1 else ""
            ax.plot(self.grid, mean, color=colour, lw=1.8, label=f"{lead}mean")
            for (low, high), level in zip(bands, self.levels, strict=True):
                label = f"{100 * level:g} %" if len(self.curves) == 1 else None
                shade = {"alpha": 0.1 + 0.4 * (1 - level), "lw": 0, "label": label}
                ax.fill_between(self.grid, low, high, color=colour, **shade)
        ax.set_xlim(self.grid[0], self.grid[-1])
        ax.set_xlabel(self.feature, parse_math=False)
        ax.set_ylabel(self.target, parse_math=False)
        for text in ax.legend(loc="best", fontsize="small").get_texts():
            text.set_parse_math(False)  # a name may hold a dollar sign
        return self


def coverage(pit: np.ndarray, levels: Any) -> np.ndarray:
    """Share of targets inside the central interval of each level (P2)."""
    place = np.sort(np.abs(2 * np.ravel(pit) - 1))
    return np.searchsorted(place, np.asarray(levels), side="right") / len(place)


def _unit_square(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--", label="calibrated")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
