"""How our recipes were chosen: on training parts alone.

Of the training rows of a standard split a tenth is set apart at random; the candidates
are fitted to the rest and judged on that tenth. No test row is ever looked at. A
recipe has to be good by both scores, so that the gain of a candidate over the plain
variational fit is the sum of two: that of the log density, and that of -ln RMSE, both
in nats. What wins is the best mean gain over the sets, apart for tables of few and of
many rows; the table has the best of those that are not sampled and of those that are.
Tables of many rows have one split, since more rows are set apart there, and shorter
chains. Candidates differ from `presets.PLAIN` by what their names say.

Three splits cannot tell the last two variational candidates apart, so that tables of
few rows have all twenty for these: a final, whose winner is the default.

Some candidates of the first runs use options that farrier no longer has: a posterior
with one scale for each node or tied scales, two noise models in one ensemble, stacking
weights, short NUTS chains. Their rows stay; they are not run again.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import Horseshoe, HorseshoeRegressor, Nuts, presets
from farrier.train.config import epochs_for

from . import datasets
from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from ._models import fit_to_parts
from .plots import Axes, Figure, legend_below, new_figure
from .settings import arguments, flat
from .uci import LARGE, LONG, files_of, mean, rmse

HOURS = "about two hours on 2 cores"
HELD_OUT = 0.1
COLOURS = 10  # in a figure; then with another marker
LARGE_WIDTH = 100
PLAIN = "variational"
SMOOTH = {"activation": "gelu"}
BY_THE_ROW = {"likelihood": "heteroscedastic"}
DEFAULT = "gelu, noise by the row, warm-up 0.8"
NARROW = f"{DEFAULT}, narrow horseshoe"
MIXED = f"{DEFAULT}, 3 restarts"
SAMPLED = {"refine": Nuts(candidates=50), "n_restarts": 4}
LONG_WARM_UP = {"kl_annealing": 0.8}
# Candidates of the first runs that farrier no longer offers: whether chains follow the
# variational fit.
REMOVED = {
    "variational, node": False,
    f"{DEFAULT}, tied": False,
    "both noises, 50 nodes, slab 1, 4 restarts": True,
    "both noises, 5 restarts": False,
    "gelu, warm-up 0.8, both noises, 50 nodes, slab 2, 4 restarts": True,
    "gelu, warm-up 0.8, both noises, 50 nodes, slab 2, 4 restarts, MCLMC": True,
    "gelu, warm-up 0.8, both noises, 50 nodes, slab 2, 4 restarts, MCLMC, stacked": (
        True
    ),
    "gelu, warm-up 0.8, both noises, 16 - 16 nodes, slab 2, 8 restarts of 3,000 steps, "
    "MCLMC, stacked": True,
    "short chains": True,
    "short chains, slab 1, 2 restarts": True,
}
OTHERS: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "6,000 steps": {"steps": 6_000},
    "40,000 steps": {"steps": 40_000},
    "5 restarts": {"n_restarts": 5},
    "gelu": SMOOTH,
    "noise by the row": BY_THE_ROW,
    "gelu, noise by the row": SMOOTH | BY_THE_ROW,
    DEFAULT: SMOOTH | BY_THE_ROW | LONG_WARM_UP,
    NARROW: SMOOTH | BY_THE_ROW | LONG_WARM_UP | {"prior": "narrow-horseshoe"},
    "20 nodes": {"refine": Nuts(candidates=20)},
    "50 nodes": {"refine": Nuts(candidates=50)},
    "50 nodes, 4 restarts": SAMPLED,
    "50 nodes, slab 1, 4 restarts": SAMPLED | {"prior": Horseshoe(slab=1.0)},
    MIXED: SMOOTH | LONG_WARM_UP | BY_THE_ROW | {"n_restarts": 3},
    "trial": {"refine": Nuts(chains=1, warm_up=150, draws=25, depth=2)},
}
CANDIDATES = {name: flat(presets.PLAIN) | own for name, own in OTHERS.items()}
STEPS = ("6,000 steps", "40,000 steps")
FINALISTS = (DEFAULT, NARROW)
OF_BOTH = (PLAIN, *FINALISTS)
OF_MANY_ROWS = (*OF_BOTH, *STEPS, "5 restarts", MIXED)
OF_FEW_ROWS = (*OF_BOTH, *(c for c in CANDIDATES if c not in OF_MANY_ROWS))


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs."""

    sets: tuple[str, ...] = tuple(datasets.UCI)
    candidates: tuple[str, ...] = tuple(CANDIDATES)[:-1]
    splits: int = 3
    final_splits: int = 20
    width: int = 50
    max_iter: int | str = "auto"
    seed: int = 0


FULL = Config()
SMOKE = Config(
    sets=("yacht",),
    candidates=(PLAIN, "trial"),
    splits=1,
    final_splits=2,
    width=4,
    max_iter=2,
)
PLAN = ("sets", "candidates", "final_splits")


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One for each set and each candidate that makes sense on it; then the final."""
    found = {
        f"{name}/{candidate}": partial(fit, config, data, name, candidate)
        for name in config.sets
        for candidate in config.candidates
        if candidate in (OF_MANY_ROWS if name in LONG else OF_FEW_ROWS)
    }
    finals = {
        f"{name}/{candidate} on {config.final_splits} splits": partial(
            final, config, data, name, candidate
        )
        for name in config.sets
        if name not in LONG
        for candidate in FINALISTS
    }
    return found | finals


def data_files(config: Config) -> tuple[str, ...]:
    """The tables and their splits."""
    return files_of(config.sets)


def fit(config: Config, data: Path, name: str, candidate: str, work: Work) -> list[Row]:
    """One candidate on one set."""
    count = 1 if name in LONG else config.splits
    return judged(config, data, name, candidate, count, work)


def final(
    config: Config, data: Path, name: str, candidate: str, work: Work
) -> list[Row]:
    """One of the last candidates on one set, on more splits."""
    rows = judged(config, data, name, candidate, config.final_splits, work)
    return [row | {"final": True} for row in rows]


def judged(
    config: Config, data: Path, name: str, candidate: str, count: int, work: Work
) -> list[Row]:
    """Fits to so many splits of a training part, and scores on what is set apart."""
    X, y, splits = datasets.uci(name, data)
    models, parts = [], []
    for split in range(count):
        train = np.random.default_rng(config.seed + split).permutation(splits[split][0])
        apart = round(HELD_OUT * len(train))
        parts.append((train[:apart], train[apart:]))
        models.append(estimator(config, name, candidate, len(train) - apart, split))
    fit_to_parts(models, X, y, [rest for _, rest in parts], work)
    rows = []
    for split, (model, (held, _)) in enumerate(zip(models, parts, strict=True)):
        row = {"set": name, "candidate": candidate, "split": split}
        row |= {
            "log_density": float(model.log_density(X[held], y[held]).mean()),
            "rmse": rmse(model.predict(X[held]), y[held]),
            "seconds": model.history_.seconds,
        }
        if (sampling := model.model_.sampling) is not None:
            row |= {"r_hat": sampling.r_hat, "seconds": sampling.seconds}
        rows.append(row)
    return rows


def estimator(
    config: Config, name: str, candidate: str, rows: int, split: int
) -> HorseshoeRegressor:
    """A candidate for a set of so many rows."""
    given: dict[str, Any] = {"max_iter": config.max_iter} | CANDIDATES[candidate]
    if (steps := given.pop("steps", None)) is not None:
        given["max_iter"] = epochs_for(steps, rows)
    width = LARGE_WIDTH if name in LARGE else config.width
    given = {"hidden_layer_sizes": (width,)} | given
    return HorseshoeRegressor(random_state=config.seed + split, **arguments(given))


def trials(rows: list[Row]) -> list[Row]:
    """Those of all candidates."""
    return [row for row in rows if "final" not in row]


def gain(rows: list[Row], name: str, candidate: str, plain: str = PLAIN) -> list[float]:
    """Of a candidate over the plain fit by both scores, split by split."""
    plains = {r["split"]: r for r in where(rows, set=name, candidate=plain)}
    return [
        both(row) - both(plains[row["split"]])
        for row in where(rows, set=name, candidate=candidate)
        if row["split"] in plains
    ]


def both(row: Row) -> float:
    """Log density - ln RMSE, in nats."""
    return row["log_density"] - math.log(row["rmse"])


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


def is_sampled(candidate: str) -> bool:
    """Whether there are chains after the variational fit."""
    return REMOVED.get(candidate, "refine" in CANDIDATES.get(candidate, {}))


def mean_gains(rows: list[Row], *, sampled: bool, many_rows: bool) -> dict[str, float]:
    """Over tables of few or of many rows, of the candidates that have all of these."""
    found = {
        candidate: [v for name, v in of.items() if (name in LONG) == many_rows]
        for candidate, of in gains(rows).items()
        if is_sampled(candidate) == sampled
    }
    most = max((len(values) for values in found.values()), default=0)
    whole = {c: values for c, values in found.items() if 0 < len(values) == most}
    return {c: float(np.mean(values)) for c, values in whole.items()}


def winner(rows: list[Row], *, sampled: bool, many_rows: bool) -> str:
    """The candidate with the best mean gain."""
    found = mean_gains(rows, sampled=sampled, many_rows=many_rows)
    return max(found, key=lambda c: found[c]) if found else "not known yet"


def table(rows: list[Row]) -> str:
    """Each candidate on each set, and the final."""
    last = where(rows, final=True)
    rows = trials(rows)
    columns = ["set", "candidate", "splits", "gain ± SE (nats)", "log density", "RMSE"]
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
                    f"{middle:+.3f}" + (f" ± {error / 2:.3f}" if error >= 0 else ""),
                    f"{mean(found, 'log_density'):.3f}",
                    f"{mean(found, 'rmse'):.3g}",
                    r_hat,
                    f"{mean(found, 'seconds'):.0f}",
                ]
            )
    text = means_of(rows) + finals_of(last) + "\n" + markdown(columns, lines)
    return text + removed_note(rows)


def removed_note(rows: list[Row]) -> str:
    """Which candidates of the rows farrier no longer offers."""
    names = [c for c in dict.fromkeys(row["candidate"] for row in rows) if c in REMOVED]
    if not names:
        return ""
    lines = "".join(f"- {name}\n" for name in names)
    return f"\nRemoved from farrier since, and not run again:\n\n{lines}"


def finals_of(rows: list[Row]) -> str:
    """The last candidate beside the one before it, set by set."""
    before, after = FINALISTS
    columns = ["set", "splits", "gain ± SE (nats)"]
    columns += ["log density, before", "after", "RMSE, before", "after"]
    lines, middles = [], []
    for name in dict.fromkeys(row["set"] for row in rows):
        found = gain(rows, name, after, plain=before)
        if not found:
            continue
        middle, error = mean_and_error(found)
        middles.append(middle)
        line = [name, len(found), f"{middle:+.4f} ± {error / 2:.4f}"]
        for score, digits in (("log_density", ".4f"), ("rmse", ".4g")):
            for candidate in FINALISTS:
                of_set = where(rows, set=name, candidate=candidate)
                line.append(f"{mean(of_set, score):{digits}}")
        lines.append(line)
    if not lines:
        return ""
    best = after if np.mean(middles) > 0 else before
    text = f"\nThe final: {before} (before), and {after} (after). Mean gain over the "
    text += f"sets {np.mean(middles):+.4f} nats; the winner is: {best}.\n\n"
    return text + markdown(columns, lines)


def means_of(rows: list[Row]) -> str:
    """Mean gains over the tables of few and of many rows, with and without chains."""
    lines = []
    for many_rows, sampled in itertools.product((False, True), (False, True)):
        found = mean_gains(rows, sampled=sampled, many_rows=many_rows)
        best = winner(rows, sampled=sampled, many_rows=many_rows)
        told = ", ".join(f"{name} {value:+.3f}" for name, value in found.items())
        lines.append(["many" if many_rows else "few"])
        lines[-1] += ["sampled" if sampled else "variational", best, told]
    return markdown(["rows", "candidates", "best", "mean gains (nats)"], lines)


def claims(rows: list[Row]) -> list[Claim]:
    """Ours: holds when sampling gains on every set; partly on most."""
    rows = trials(rows)
    flat = [
        value
        for candidate, of_sets in gains(rows).items()
        if is_sampled(candidate)
        for value in of_sets.values()
    ]
    good = sum(value > 0 for value in flat)
    best = [winner(rows, sampled=True, many_rows=many) for many in (False, True)]
    return [
        Claim(
            "Ours: sampling after the variational fit predicts better.",
            f"Log density less ln RMSE, on training rows set apart, rose for {good} of "
            f"{len(flat)} pairs of set and candidate; best: {best[0]} (few rows), "
            f"{best[1]} (many rows).",
            verdict(holds=0 < good == len(flat), partly=2 * good > len(flat)),
        )
    ]


def render(rows: list[Row]) -> dict[str, Figure]:
    """Gains of each candidate, set by set: without chains, and with them."""
    rows = trials(rows)
    names = list(dict.fromkeys(row["set"] for row in rows))
    figures = {}
    for title, sampled in (("variational", False), ("sampled", True)):
        figure, axes = new_figure(1, 1, height=6.0)
        ax = axes[0, 0]
        draw(ax, rows, names, sampled=sampled)
        ax.axvline(0, color="0.6", lw=1, zorder=0)
        ax.set_yticks(range(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        for place in range(1, len(names)):
            ax.axhline(place - 0.5, color="0.9", lw=1, zorder=0)
        ax.set_xlabel("gain over the plain fit, log density - ln RMSE (nats; ± 2 SE)")
        ax.set_title(title, fontsize=10)
        legend_below(figure, ax)
        figures[title] = figure
    return figures


def draw(ax: Axes, rows: list[Row], names: list[str], *, sampled: bool) -> None:
    """The gains of some candidates, next to each other."""
    found = [c for c in gains(rows) if c != PLAIN and is_sampled(c) == sampled]
    shifts = np.linspace(-0.3, 0.3, len(found)) if len(found) > 1 else [0.0]
    for number, (shift, candidate) in enumerate(zip(shifts, found, strict=False)):
        pairs = [mean_and_error(gain(rows, name, candidate)) for name in names]
        ax.errorbar(
            [middle for middle, _ in pairs],
            np.arange(len(names)) + shift,
            xerr=[np.nan_to_num(error) for _, error in pairs],
            fmt="oD^"[number // COLOURS],
            ms=4,
            color=f"C{number % COLOURS}",
            label=candidate,
        )
