"""The demonstration: horseshoe and Gaussian prior on the two problems of the paper.

These are the small problems of Ghosh & Doshi-Velez (2017). On the cubic, predictions
under the horseshoe do not depend on the width that the network starts with. On the
2-2-1 labels, the horseshoe recovers the two nodes that generated them.
"""

import json
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .datasets import cubic, two_two_one
from .estimators.checks import TrainingWarning
from .estimators.classifier import HorseshoeClassifier
from .estimators.regressor import HorseshoeRegressor
from .presets import PLAIN
from .train.config import Training

DATA_SEED, TEST_SEED, MODEL_SEED = 0, 1000, 0
GRID = np.linspace(-5, 5, 200)
WEIGHTS_ON = 0.05  # weights of a node count if their norm is over this x the largest
COLOURS = {"horseshoe": "#1f6f8b", "gaussian": "#c05a2e"}
LABELS = {"horseshoe": "Horseshoe", "gaussian": "Gaussian"}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the demonstration fits."""

    priors: tuple[str, ...] = ("horseshoe", "gaussian")
    cubic_widths: tuple[int, ...] = (50, 100, 1000)
    structure_widths: tuple[int, ...] = (15, 100)
    training: Training = PLAIN["training"]
    draws: int = 200

    @property
    def fits(self) -> int:
        """Number of fits."""
        return len(self.priors) * len(self.cubic_widths + self.structure_widths)

    def settings(self, prior: str) -> dict[str, Any]:
        """Settings of both estimators."""
        return {
            "prior": prior,
            "training": self.training,
            "n_draws": self.draws,
            "random_state": MODEL_SEED,
        }


FULL = Config()


def weights_on(model: HorseshoeRegressor | HorseshoeClassifier) -> int:
    """Nodes whose expected weights are not shrunk to zero, as the paper counts them."""
    norms = model.weight_norms_[0]
    return int((norms > WEIGHTS_ON * norms.max()).sum())


def fit_cubic(prior: str, width: int, config: Config) -> tuple[dict, dict]:
    """One fit to the cubic: its row of the table and its panel of the figure."""
    x, y = cubic(seed=DATA_SEED)
    x_test, y_test = cubic(200, seed=TEST_SEED)
    began = time.monotonic()
    model = HorseshoeRegressor((width,), **PLAIN | config.settings(prior)).fit(x, y)
    seconds = time.monotonic() - began
    error = np.asarray(model.predict(x_test)) - y_test
    row = {
        "data": "cubic",
        "prior": prior,
        "width": width,
        "nodes_on": model.widths_[0],
        "weights_on": weights_on(model),
        "rmse": float(np.sqrt(np.mean(error**2))),
        "log_density": float(model.log_density(x_test, y_test).mean()),
        "seconds": seconds,
    }
    mean, std = model.predict(GRID[:, None], return_std=True)
    panel = row | {"x": GRID, "mean": mean, "std": std, "data_x": x[:, 0], "data_y": y}
    return row, panel


def fit_structure(prior: str, width: int, config: Config) -> tuple[dict, dict]:
    """One fit to the 2-2-1 labels: its row of the table and its panel of the figure."""
    x, y = two_two_one(seed=DATA_SEED)
    x_test, y_test = two_two_one(seed=TEST_SEED)
    began = time.monotonic()
    model = HorseshoeClassifier((width,), **config.settings(prior)).fit(x, y)
    seconds = time.monotonic() - began
    row = {
        "data": "2-2-1",
        "prior": prior,
        "width": width,
        "nodes_on": model.widths_[0],
        "weights_on": weights_on(model),
        "error_rate": float(np.mean(model.predict(x_test) != y_test)),
        "log_density": float(model.log_density(x_test, y_test).mean()),
        "seconds": seconds,
    }
    norms, scores = model.weight_norms_[0], model.node_scores_[0]
    return row, row | {"norms": norms, "scores": scores}


def run(folder: Path, config: Config, report: Callable[[int, str], None]) -> list[dict]:
    """Fit everything and write figures, `rows.json` and `manifest.json` to a folder.

    Parameters
    ----------
    report
        Called with the number of fits that are done and a note.

    Returns
    -------
    list of dict
        One row for each fit.
    """
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    rows, panels = [], {"cubic": [], "2-2-1": []}
    problems = [
        (fit_cubic, config.cubic_widths),
        (fit_structure, config.structure_widths),
    ]
    plan = [
        (fit, prior, width)
        for fit, widths in problems
        for prior in config.priors
        for width in widths
    ]
    for done, (fit, prior, width) in enumerate(plan):
        report(done, f"{prior} prior, {width} nodes")
        with warnings.catch_warnings():
            # From 50 nodes on, the Gaussian network predicts a constant. The table
            # shows it, so that a warning would add nothing.
            warnings.simplefilter("ignore", TrainingWarning)
            row, panel = fit(prior, width, config)
        rows.append(row)
        panels[row["data"]].append(panel)
    report(len(plan), "done")
    cubic_figure(panels["cubic"]).savefig(folder / "cubic.png", dpi=150)
    structure_figure(panels["2-2-1"]).savefig(folder / "structure.png", dpi=150)
    manifest = {
        "command": "farrier demo",
        "seeds": {"data": DATA_SEED, "test": TEST_SEED, "model": MODEL_SEED},
        "versions": {
            n: version(n) for n in ("farrier", "jax", "numpy", "scikit-learn")
        },
        "python": platform.python_version(),
        "seconds": time.monotonic() - began,
    }
    (folder / "rows.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    return rows


# -- figures ----------------------------------------------------------------------


def new_figure(rows: int, columns: int, *, height: float) -> tuple[Figure, np.ndarray]:
    """A figure of equal panels, 9 inches wide."""
    figure = Figure(figsize=(9, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, axes


def band(
    ax: Axes,
    x: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    *,
    colour: str,
) -> None:
    """Predictive mean and a band of three standard deviations."""
    ax.plot(x, mean, color=colour, lw=1.8, label="mean")
    ax.fill_between(
        x, mean - 3 * std, mean + 3 * std, color=colour, alpha=0.2, lw=0, label="± 3 sd"
    )


def cubic_figure(panels: list[dict]) -> Figure:
    """Bands of the fits to the cubic: a row for each prior, a column for each width.

    Each panel has `prior`, `width`, `nodes_on`, `x`, `mean`, `std`, `data_x`, `data_y`.
    """
    priors = list(dict.fromkeys(p["prior"] for p in panels))
    widths = list(dict.fromkeys(p["width"] for p in panels))
    figure, axes = new_figure(len(priors), len(widths), height=5.2)
    for panel in panels:
        row, column = priors.index(panel["prior"]), widths.index(panel["width"])
        ax = axes[row, column]
        colour = COLOURS[panel["prior"]]
        band(ax, panel["x"], panel["mean"], panel["std"], colour=colour)
        ax.plot(panel["x"], panel["x"] ** 3, "k--", lw=1, label="truth: x³")
        ax.plot(panel["data_x"], panel["data_y"], "k.", ms=5, label="data")
        ax.set_ylim(-110, 110)
        ax.set_title(
            f"{LABELS[panel['prior']]}, {panel['width']} nodes, "
            f"{panel['nodes_on']} active",
            fontsize=10,
        )
        if row == len(priors) - 1:
            ax.set_xlabel("x")
        if column == 0:
            ax.set_ylabel("y")
        ax.label_outer()
    for ax in axes[:, -1]:
        if ax.has_data():
            ax.legend(fontsize=7, loc="lower right", framealpha=0.9)
    return figure


def structure_figure(panels: list[dict]) -> Figure:
    """Nodes of the fits to the 2-2-1 labels, largest first.

    Each panel has `prior`, `width`, `norms` (of the expected weights into each node)
    and `scores` (share in what the node feeds).
    """
    widths = list(dict.fromkeys(p["width"] for p in panels))
    figure, axes = new_figure(2, len(widths), height=5.2)
    for panel in panels:
        column = widths.index(panel["width"])
        for row, values in enumerate((panel["norms"], panel["scores"])):
            ax = axes[row, column]
            ordered = np.sort(values)[::-1]
            ax.plot(
                np.arange(1, len(ordered) + 1),
                np.maximum(ordered, 1e-5),
                marker="o",
                ms=3.5,
                lw=1,
                color=COLOURS[panel["prior"]],
                label=LABELS[panel["prior"]],
            )
            ax.set_yscale("log")
    for column, width in enumerate(widths):
        axes[0, column].set_title(f"{width} nodes", fontsize=10)
        axes[0, column].set_ylabel("norm of E[weights into node]")
        style = {"color": "k", "ls": ":", "lw": 1, "label": "active above 0.01"}
        axes[1, column].axhline(0.01, **style)
        axes[1, column].set_ylabel("share in the output")
        axes[1, column].set_xlabel("node, largest first")
        for row in range(2):
            axes[row, column].legend(fontsize=8, loc="upper right")
    return figure
