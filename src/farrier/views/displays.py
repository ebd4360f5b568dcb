"""Figures of one fitted model, as displays in the style of scikit-learn.

A display contains plain arrays. `from_estimator` reads them from a fitted estimator and
`plot` draws them; `ax_` and `figure_` are then the objects of matplotlib.
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
FLOOR = 1e-6  # lower scores are drawn here
BINS = 10
LEVELS = (0.5, 0.9)  # of the bands, the narrower one first


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
    """The axes and the figure of a display, once it is drawn."""

    ax_: Any = field(init=False, default=None, repr=False)
    figure_: Any = field(init=False, default=None, repr=False)

    def _panels(self, ax: Any, *, count: int = 1) -> list[Any]:
        """The given axes, or those of a new figure."""
        plt = pyplot()
        if ax is None:
            _, ax = plt.subplots(
                1, count, figsize=(5.5 * count, 4), layout="constrained"
            )
        panels = list(np.ravel(np.asarray(ax, object)))
        if len(panels) != count:
            raise ValueError(
                f"This figure has {count} panels, but `ax` has {len(panels)}. Give "
                f"{count} matplotlib axes, or None for a new figure."
            )
        self.ax_ = panels[0] if count == 1 else np.asarray(panels, object)
        self.figure_ = panels[0].figure
        return panels


@dataclass
class NodesDisplay(AbstractDisplay):
    """Sorted node scores of each hidden layer, and the threshold of active nodes.

    Parameters
    ----------
    scores : sequence of ndarray of shape (n_nodes,)
        One array for each hidden layer: each node's share in what it feeds.
    threshold : float, default=0.01
        A node is active if its score is larger.
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
            active = int((ordered > self.threshold).sum())
            name = f"layer {index + 1}: " if len(self.scores) > 1 else ""
            ax.plot(
                np.arange(1, len(ordered) + 1),
                np.maximum(ordered, FLOOR),
                color=SERIES[index % len(SERIES)],
                marker="o",
                ms=4,
                lw=1,
                label=f"{name}{active} of {len(ordered)} active",
            )
        ax.axhline(
            self.threshold,
            color=GREY,
            ls="--",
            lw=1,
            label=f"active above {self.threshold:g}",
        )
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("node, largest first")
        ax.set_ylabel("share in what the node feeds")
        ax.legend(loc="best", fontsize="small")
        return self


@dataclass
class HistoryDisplay(AbstractDisplay):
    """The ELBO over the training steps, and its terms.

    Parameters
    ----------
    step : ndarray of shape (n_records,)
        Step of each record.
    elbo : ndarray of shape (n_records,)
        The ELBO, in nats per row.
    terms : dict of str to ndarray of shape (n_records,)
        Its terms by name, in nats per row.
    """

    step: np.ndarray
    elbo: np.ndarray
    terms: dict[str, np.ndarray]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, terms: Iterable[str] = (), ax: Any = None
    ) -> Self:
        """Draw the history of a fitted estimator; see `plot`."""
        history, rows = estimator.history_, estimator.n_rows_
        parts = {name: values / rows for name, values in history.terms.items()}
        return cls(history.step, history.elbo / rows, parts).plot(ax, terms=terms)

    def plot(self, ax: Any = None, *, terms: Iterable[str] = ()) -> Self:
        """Draw into `ax`, or into a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        terms : iterable of str, default=()
            Names of terms of the ELBO to draw too: `model.history_.terms` for all.
        """
        (ax,) = self._panels(ax)
        drawn = {"ELBO": self.elbo}
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
        self._show_the_end(ax, list(drawn.values()))
        ax.set_xlabel("step")
        ax.set_ylabel("nats per row")
        ax.legend(loc="best", fontsize="small", ncols=1 if len(drawn) < 6 else 2)
        return self

    def _show_the_end(self, ax: Any, curves: list[np.ndarray]) -> None:
        """Leave out the steep first steps, which would flatten the others."""
        late = [curve[len(curve) // 8 :] for curve in curves]
        values = np.concatenate(late)
        values = values[np.isfinite(values)]
        if len(values):
            low, high = values.min(), values.max()
            margin = 0.06 * (high - low) or 0.1
            ax.set_ylim(low - margin, high + margin)


@dataclass
class CalibrationDisplay(AbstractDisplay):
    """Calibration of the predictions.

    A regression has two panels: a histogram of the probability integral transform
    (PIT), which is flat for calibrated predictions, and the coverage of central
    intervals against their level. A classification has one panel: the observed
    frequency of a class against its predicted probability.

    Parameters
    ----------
    predicted : ndarray of shape (n_points,)
        Levels of intervals, or predicted probabilities.
    observed : ndarray of shape (n_points,)
        Coverage of the intervals, or observed frequencies.
    error : ndarray of shape (n_points,)
        Standard error of each of these.
    pit : ndarray of shape (n_rows,), default=None
        For a regression: the predictive cdf at each target.
    label : str, default=""
        Which probabilities they are.
    """

    predicted: np.ndarray
    observed: np.ndarray
    error: np.ndarray
    pit: np.ndarray | None = None
    label: str = ""

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Draw the calibration of a fitted estimator on new rows."""
        if hasattr(estimator, "classes_"):
            probability = estimator.predict_proba(X)
            return cls.from_probabilities(probability, y, estimator.classes_, ax=ax)
        return cls.from_pit(estimator.pit(X, y), ax=ax)

    @classmethod
    def from_pit(cls, pit: np.ndarray, *, ax: Any = None) -> Self:
        """Draw the calibration from probability integral transforms (P2)."""
        pit = np.ravel(pit)
        levels = np.linspace(0, 1, 101)
        observed = coverage(pit, levels)
        error = np.sqrt(levels * (1 - levels) / len(pit))
        return cls(levels, observed, error, pit).plot(ax)

    @classmethod
    def from_probabilities(
        cls, probability: np.ndarray, y: Any, classes: np.ndarray, *, ax: Any = None
    ) -> Self:
        """Draw the calibration of class probabilities.

        Of two classes it is that of the second class, of more that of the predicted
        class.
        """
        codes = np.searchsorted(classes, np.asarray(y))
        if len(classes) == 2:
            predicted, occurred = probability[:, 1], codes == 1
            label = f"probability of {classes[1]}"
        else:
            best = probability.argmax(1)
            predicted, occurred = probability.max(1), codes == best
            label = "probability of the predicted class"
        order = np.argsort(predicted, kind="stable")
        parts = np.array_split(order, min(BINS, len(order)))
        means = np.array([predicted[part].mean() for part in parts])
        observed = np.array([occurred[part].mean() for part in parts])
        count = np.array([len(part) for part in parts])
        error = np.sqrt(means * (1 - means) / count)
        return cls(means, observed, error, label=label).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into `ax` (two axes for a regression), or into a new figure."""
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
        ax.set_xlabel("predictive cdf at the target (PIT)")
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
        ax.set_ylabel("coverage")
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
        ax.set_ylabel("observed frequency")
        ax.legend(loc="lower right", fontsize="small")


@dataclass
class BandDisplay(AbstractDisplay):
    """The prediction over one input with bands, and the other inputs at their medians.

    Parameters
    ----------
    grid : ndarray of shape (n_points,)
        Values of the input.
    curves : dict of str to (ndarray, list of pairs of ndarray)
        For each target or class the mean, and for each level the ends of the band.
    levels : sequence of float
        Levels of the bands.
    feature : str
        Name of the input.
    target : str
        Label of the vertical axis.
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
    depth = np.sort(np.abs(2 * np.ravel(pit) - 1))
    return np.searchsorted(depth, np.asarray(levels), side="right") / len(depth)


def _unit_square(ax: Any) -> None:
    ax.plot([0, 1], [0, 1], color=GREY, lw=1, ls="--", label="calibrated")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_aspect("equal")
