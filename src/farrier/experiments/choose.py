"""How the refined recipe was chosen: on training parts alone.

Of the training rows of a standard split a tenth is set apart at random; the candidates
are fitted to the rest and judged by their log density on that tenth. No test row is
ever looked at. What wins is the candidate with the best mean, over the sets, of the
gain over the variational fit that it started from.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import datasets
from ..estimators import HorseshoeRegressor
from ..infer.refine import Nuts
from ..plots import Figure, legend_below, new_figure
from ._harness import Claim, Row, Work, markdown, mean_and_error, where
from .uci import rmse

HOURS = "about 25 minutes on 2 cores"
HELD_OUT = 0.1
CANDIDATES = {
    "20 nodes": {"candidates": 20},
    "50 nodes": {"candidates": 50},
    "trial": {"chains": 1, "warm_up": 150, "draws": 25, "depth": 2},
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs."""

    sets: tuple[str, ...] = ("boston", "concrete", "energy", "wine", "yacht")
    candidates: tuple[str, ...] = tuple(CANDIDATES)[:-1]
    splits: int = 3
    width: int = 50
    max_iter: int | str = "auto"
    seed: int = 0


FULL = Config()
SMOKE = Config(sets=("yacht",), candidates=("trial",), splits=1, width=4, max_iter=2)
PLAN = ("sets", "candidates")


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One for each set and candidate."""
    return {
        f"{name}/{candidate}": partial(fit, config, data, name, candidate)
        for name in config.sets
        for candidate in config.candidates
    }


def data_files(config: Config) -> tuple[str, ...]:
    """The tables and their splits."""
    return tuple(file for name in config.sets for file in datasets.uci_files(name))


def fit(config: Config, data: Path, name: str, candidate: str, work: Work) -> list[Row]:
    """One candidate on one set."""
    X, y, splits = datasets.uci(name, data)
    rows = []
    for split in range(config.splits):
        work.done(split, config.splits)
        train = np.random.default_rng(config.seed + split).permutation(splits[split][0])
        apart = round(HELD_OUT * len(train))
        held, rest = train[:apart], train[apart:]
        given: dict[str, Any] = {"max_iter": config.max_iter}
        given |= {"refine": Nuts(**CANDIDATES[candidate])}
        model = HorseshoeRegressor(
            (config.width,), random_state=config.seed + split, **given
        )
        model.fit(X[rest], y[rest])
        before = copy.copy(model)
        before.network_ = model._variational()
        rows.append(
            {
                "set": name,
                "candidate": candidate,
                "split": split,
                "gain": _density(model, X[held], y[held])
                - _density(before, X[held], y[held]),
                "rmse": rmse(model.predict(X[held]), y[held]),
                "rmse_before": rmse(before.predict(X[held]), y[held]),
                "log_density": _density(model, X[held], y[held]),
                "r_hat": model.sampling_.r_hat,
                "seconds": model.sampling_.seconds,
            }
        )
    return rows


def _density(model: HorseshoeRegressor, X: np.ndarray, y: np.ndarray) -> float:
    return float(model.log_density(X, y).mean())


def gains(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Mean gain of each candidate on each set."""
    candidates = dict.fromkeys(row["candidate"] for row in rows)
    sets = dict.fromkeys(row["set"] for row in rows)
    return {
        candidate: {
            name: mean_and_error(r["gain"] for r in found)[0]
            for name in sets
            if (found := where(rows, candidate=candidate, set=name))
        }
        for candidate in candidates
    }


def winner(rows: list[Row]) -> str:
    """The candidate with the best mean gain, among those that have all sets."""
    found = gains(rows)
    most = max(len(of_sets) for of_sets in found.values())
    whole = {c: np.mean([*v.values()]) for c, v in found.items() if len(v) == most}
    return max(whole, key=lambda candidate: whole[candidate])


def table(rows: list[Row]) -> str:
    """Each candidate on each set."""
    columns = ["set", "candidate", "rows set apart of", "gain ± SE (nats a row)"]
    columns += ["RMSE, variational", "RMSE, refined", "R-hat", "sampling, s"]
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for candidate in dict.fromkeys(row["candidate"] for row in rows):
            found = where(rows, set=name, candidate=candidate)
            if not found:
                continue
            mean = lambda key, found=found: mean_and_error(r[key] for r in found)[0]
            gain, error = mean_and_error(row["gain"] for row in found)
            lines.append(
                [
                    name,
                    candidate,
                    f"{len(found)} splits",
                    f"{gain:+.3f} ± {error / 2:.3f}",
                    f"{mean('rmse_before'):.3g}",
                    f"{mean('rmse'):.3g}",
                    f"{mean('r_hat'):.2f}",
                    f"{mean('seconds'):.0f}",
                ]
            )
    means = ", ".join(
        f"{candidate} {np.mean([*of_sets.values()]):+.3f}"
        for candidate, of_sets in gains(rows).items()
    )
    text = f"Mean gain over the sets: {means}. Best: {winner(rows)}.\n\n"
    return text + markdown(columns, lines)


def claims(rows: list[Row]) -> list[Claim]:
    """Ours: holds when every candidate gains on every set; partly for most."""
    flat = [gain for of_sets in gains(rows).values() for gain in of_sets.values()]
    good = sum(gain > 0 for gain in flat)
    decided = "holds" if good == len(flat) else "holds partly"
    return [
        Claim(
            "Ours: sampling after the variational fit predicts better.",
            f"Log density on rows set apart rose for {good} of {len(flat)} pairs of "
            f"set and candidate; best candidate: {winner(rows)}.",
            decided if 2 * good > len(flat) else "does not hold",
        )
    ]


def render(rows: list[Row]) -> dict[str, Figure]:
    """Gains of each candidate, set by set."""
    figure, axes = new_figure(1, 1, height=4.0)
    ax = axes[0, 0]
    found = gains(rows)
    names = list(dict.fromkeys(row["set"] for row in rows))
    shifts = np.linspace(-0.2, 0.2, len(found)) if len(found) > 1 else [0.0]
    for shift, candidate in zip(shifts, found, strict=True):
        for place, name in enumerate(names):
            of_set = where(rows, set=name, candidate=candidate)
            gain, error = mean_and_error(row["gain"] for row in of_set)
            ax.errorbar(
                gain,
                place + shift,
                xerr=np.nan_to_num(error),
                fmt="o",
                color=f"C{list(found).index(candidate)}",
                label=candidate if place == 0 else None,
            )
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("gain in log density on rows set apart (nats a row; ± 2 SE)")
    legend_below(figure, ax)
    return {"gains": figure}
