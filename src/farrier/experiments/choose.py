"""How our recipes were chosen: on training parts alone.

Of the training rows of a standard split a tenth is set apart at random; the candidates
are fitted to the rest and judged by their log density on that tenth. No test row is
ever looked at. What wins is the candidate with the best mean, over the sets, of the
gain over the plain variational fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import datasets
from ..core.priors import Horseshoe
from ..estimators import HorseshoeRegressor
from ..infer.refine import Nuts
from ..infer.restarts import Restarts
from ..plots import Figure, legend_below, new_figure
from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from .uci import files_of, mean, rmse

HOURS = "about an hour on 2 cores"
HELD_OUT = 0.1
PLAIN = "variational"
CANDIDATES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "variational, node": {"posterior": "node"},
    "quadrature": {"prior": Horseshoe(half_cauchy="quadrature")},
    "regularised": {"prior": "regularised-horseshoe"},
    "5 restarts": {"n_restarts": 5},
    "5 restarts, stacked": {"n_restarts": Restarts(weights="stacked")},
    "20 nodes": {"refine": Nuts(candidates=20)},
    "50 nodes": {"refine": Nuts(candidates=50)},
    "50 nodes, 4 restarts": {"refine": Nuts(candidates=50), "n_restarts": 4},
    "noise by the row": {"likelihood": "heteroscedastic"},
    "noise by the row, 50 nodes": {
        "likelihood": "heteroscedastic",
        "refine": Nuts(candidates=50),
    },
    "trial": {"refine": Nuts(chains=1, warm_up=150, draws=25, depth=2)},
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
SMOKE = Config(
    sets=("yacht",), candidates=(PLAIN, "trial"), splits=1, width=4, max_iter=2
)
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
    return files_of(config.sets)


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
        given |= CANDIDATES[candidate]
        model = HorseshoeRegressor(
            (config.width,), random_state=config.seed + split, **given
        )
        model.fit(X[rest], y[rest])
        row = {"set": name, "candidate": candidate, "split": split}
        row |= {
            "log_density": float(model.log_density(X[held], y[held]).mean()),
            "rmse": rmse(model.predict(X[held]), y[held]),
            "seconds": model.history_.seconds,
        }
        if hasattr(model, "sampling_"):
            row["r_hat"] = model.sampling_.r_hat
            row["seconds"] = model.sampling_.seconds
        rows.append(row)
    return rows


def gain(rows: list[Row], name: str, candidate: str) -> list[float]:
    """Of a candidate over the plain fit, split by split."""
    plain = {r["split"]: r for r in where(rows, set=name, candidate=PLAIN)}
    return [
        row["log_density"] - plain[row["split"]]["log_density"]
        for row in where(rows, set=name, candidate=candidate)
        if row["split"] in plain
    ]


def gains(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Mean gain of each candidate on each set."""
    sets = dict.fromkeys(row["set"] for row in rows)
    return {
        candidate: {
            name: float(np.mean(found))
            for name in sets
            if (found := gain(rows, name, candidate))
        }
        for candidate in dict.fromkeys(row["candidate"] for row in rows)
    }


def winner(rows: list[Row]) -> str:
    """The candidate with the best mean gain, among those that have all sets."""
    found = {c: [*of_sets.values()] for c, of_sets in gains(rows).items() if of_sets}
    if not found:
        return "not known yet"
    most = max(len(values) for values in found.values())
    whole = {c: np.mean(values) for c, values in found.items() if len(values) == most}
    return max(whole, key=lambda candidate: whole[candidate])


def table(rows: list[Row]) -> str:
    """Each candidate on each set."""
    columns = ["set", "candidate", "splits", "gain ± SE (nats a row)", "RMSE"]
    columns += ["R-hat", "training, or sampling after it (s)"]
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        for candidate in dict.fromkeys(row["candidate"] for row in rows):
            found = where(rows, set=name, candidate=candidate)
            if not found:
                continue
            middle, error = mean_and_error(gain(rows, name, candidate))
            r_hat = f"{mean(found, 'r_hat'):.2f}" if "r_hat" in found[0] else ""
            lines.append(
                [
                    name,
                    candidate,
                    len(found),
                    f"{middle:+.3f} ± {error / 2:.3f}",
                    f"{mean(found, 'rmse'):.3g}",
                    r_hat,
                    f"{mean(found, 'seconds'):.0f}",
                ]
            )
    means = ", ".join(
        f"{candidate} {np.mean([*of_sets.values()]):+.3f}"
        for candidate, of_sets in gains(rows).items()
        if of_sets
    )
    text = f"Mean gain over the sets: {means}. Best: {winner(rows)}.\n\n"
    return text + markdown(columns, lines)


def claims(rows: list[Row]) -> list[Claim]:
    """Ours: holds when sampling gains on every set; partly on most."""
    flat = [
        value
        for candidate, of_sets in gains(rows).items()
        if "refine" in CANDIDATES[candidate]
        for value in of_sets.values()
    ]
    good = sum(value > 0 for value in flat)
    return [
        Claim(
            "Ours: sampling after the variational fit predicts better.",
            f"Log density on training rows set apart rose for {good} of {len(flat)} "
            f"pairs of set and candidate; best candidate: {winner(rows)}.",
            verdict(holds=0 < good == len(flat), partly=2 * good > len(flat)),
        )
    ]


def render(rows: list[Row]) -> dict[str, Figure]:
    """Gains of each candidate, set by set."""
    figure, axes = new_figure(1, 1, height=4.0)
    ax = axes[0, 0]
    found = [c for c, of_sets in gains(rows).items() if of_sets and c != PLAIN]
    names = list(dict.fromkeys(row["set"] for row in rows))
    shifts = np.linspace(-0.2, 0.2, len(found)) if len(found) != 1 else [0.0]
    for shift, candidate in zip(shifts, found, strict=True):
        for place, name in enumerate(names):
            middle, error = mean_and_error(gain(rows, name, candidate))
            ax.errorbar(
                middle,
                place + shift,
                xerr=np.nan_to_num(error),
                fmt="o",
                color=f"C{found.index(candidate)}",
                label=candidate if place == 0 else None,
            )
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("gain in log density over the plain fit (nats a row; ± 2 SE)")
    legend_below(figure, ax)
    return {"gains": figure}
