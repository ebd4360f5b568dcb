"""farrier's own recipes on the regression tables: parts, scores, tables, claims.

A recipe says how an estimator is made for a table of so many rows. It is one for all
tables. Settings are chosen on other tables (`choose.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeRegressor, Nuts, presets

from . import datasets, published
from ._harness import (
    Claim,
    Row,
    Work,
    markdown,
    mean_and_error,
    settings_without,
    verdict,
    where,
)
from ._models import fit_to_parts, written
from ._scores import coverage, crps
from .plots import Axes, Figure, legend_below, new_figure
from .settings import arguments, flat
from .uci import LARGE, LONG, files_of, mean, rmse

BLOCK = 5  # splits in one part
POSTERIOR = "posterior_coverage"  # in rows: of intervals that are not calibrated
SCORE_DRAWS = 400  # of targets, for the CRPS
# Sets whose RMSE may equal the printed one: it has one digit, or two sets share it.
TIES = ("kin8nm", "naval", "wine")
DECIMALS = 2
FAR = 10.0  # nats from a printed density; a mean beyond is written, not drawn
TRIAL = Nuts(chains=1, warm_up=150, draws=25, depth=2)  # does it run at all?
RECIPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "default": lambda rows: {},
    "trial": lambda rows: {"refine": TRIAL},
    "refined": presets.refined,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs."""

    recipe: str
    sets: tuple[str, ...] = (*datasets.UCI, "year")
    width: int = 50
    large_width: int = 100
    most_splits: int = 20
    max_iter: int | str = "auto"
    seed: int = 0


PLAN = ("sets", "most_splits")


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """A few splits of one set each: `yacht/0-4`."""
    found = {}
    for name in config.sets:
        for title, numbers in blocks(name, config.most_splits).items():
            found[title] = partial(fit, config, data, name, numbers)
    return found


def blocks(name: str, most_splits: int) -> dict[str, range]:
    """The splits of a set, a few together, each few under a title: `yacht/0-4`."""
    count = min(most_splits, published.SPLITS[name])
    found = [
        range(first, min(first + BLOCK, count)) for first in range(0, count, BLOCK)
    ]
    return {f"{name}/{numbers[0]}-{numbers[-1]}": numbers for numbers in found}


def settings_of(config: Config, part: str) -> dict[str, Any]:
    """Those of one part, and all that the estimator has for few or many rows."""
    own = settings_without(config, *PLAN)
    name = part.partition("/")[0]
    model = estimator(config, name, presets.MANY_ROWS if name in LONG else 0, 0)
    return own | {"given": written(flat(model.get_params(deep=False)))}


def data_files(config: Config) -> tuple[str, ...]:
    """The tables and their splits."""
    return files_of(config.sets)


def fit(config: Config, data: Path, name: str, numbers: range, work: Work) -> list[Row]:
    """Some splits of one set."""
    X, y, splits = datasets.year(data) if name == "year" else datasets.uci(name, data)
    trains = [splits[number][0] for number in numbers]
    models = [
        estimator(config, name, len(train), number)
        for train, number in zip(trains, numbers, strict=True)
    ]
    fit_to_parts(models, X, y, trains, work)
    rows = []
    for model, number in zip(models, numbers, strict=True):
        test = splits[number][1]
        rows.append({"set": name, "split": number} | scores(model, X[test], y[test]))
    return rows


def estimator(config: Config, name: str, rows: int, split: int) -> HorseshoeRegressor:
    """What the recipe makes for a table of so many rows."""
    width = config.large_width if name in LARGE else config.width
    first = {"max_iter": config.max_iter, "hidden_layer_sizes": (width,)}
    given = arguments(first, RECIPES[config.recipe](rows))
    return HorseshoeRegressor(random_state=config.seed + split, **given)


def scores(model: HorseshoeRegressor, X: np.ndarray, y: np.ndarray) -> Row:
    """What is reported of one split, in the units of the target."""
    row = {
        "rmse": rmse(model.predict(X), y),
        "log_density": float(model.log_density(X, y).mean()),
        "crps": crps(model.sample_y(X, SCORE_DRAWS), y),
        "coverage": coverage(model, X, y, "calibrated"),
        POSTERIOR: coverage(model, X, y, "posterior"),
        "nodes_on": sum(model.widths_),
        "width": sum(model.hidden_layer_sizes),
        "seconds": model.history_.seconds,
    }
    if (sampling := model.model_.sampling) is not None:
        row["seconds"] += sampling.seconds
        row |= {"r_hat": sampling.r_hat, "effective_draws": sampling.effective_draws}
        row |= {"gradients": sampling.gradients, "divergences": sampling.divergences}
    return row


# -- what is made of the rows ------------------------------------------------------


def printed(name: str) -> dict[str, tuple[float, float]]:
    """RMSE and log-likelihood of HS-BNN and VMG; of VMG the better of two prints."""
    pair = lambda score: (score.rmse, score.log_likelihood)
    vmg = [pair(t[name]) for t in (published.VMG, published.VMG_ORIGINAL) if name in t]
    best = (min(rmse for rmse, _ in vmg), max(density for _, density in vmg))
    return {"HS-BNN": pair(published.HORSESHOE[name]), "VMG": best}


def ahead(name: str, score: str, ours: float, theirs: float) -> bool:
    """Whether our mean is better; as good as printed counts where `TIES` says so."""
    if score == "rmse":
        tie = name in TIES and round(ours, DECIMALS) <= theirs
        return ours < theirs or tie
    return ours > theirs


def cells(rows: list[Row], against: str) -> dict[tuple[str, str], bool]:
    """For each set and score, whether we are ahead of a published column."""
    found = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = where(rows, set=name)
        theirs = printed(name)[against]
        for score, value in zip(("rmse", "log_density"), theirs, strict=True):
            ours, _ = mean_and_error(row[score] for row in of_set)
            found[name, score] = ahead(name, score, ours, value)
    return found


def table(rows: list[Row]) -> str:
    """Ours beside both published columns, set by set."""
    columns = ["set", "splits", "our RMSE ± SE", "HS-BNN", "VMG"]
    columns += ["our log density ± SE", "HS-BNN", "VMG", "ahead of HS-BNN"]
    columns += ["ahead of VMG", "CRPS", "90 % intervals hold", "the posterior's"]
    columns += ["nodes on"]
    columns += ["R-hat", "effective draws", "s"]
    lines = []
    for name in dict.fromkeys(row["set"] for row in rows):
        of_set = where(rows, set=name)
        line: list[Any] = [name, len(of_set)]
        theirs = printed(name)
        for number, score in enumerate(("rmse", "log_density")):
            ours, error = mean_and_error(row[score] for row in of_set)
            line += [f"{ours:.3g} ± {error / 2:.2g}"]
            line += [f"{theirs[column][number]:.2f}" for column in theirs]
        for column in theirs:
            found = cells(of_set, column)
            words = {"rmse": "RMSE", "log_density": "log density"}
            good = [words[score] for (_, score), is_ahead in found.items() if is_ahead]
            line += ["both" if len(good) == 2 else " ".join(good) or "neither"]
        line += [f"{mean(of_set, 'crps'):.3g}", held_text(of_set)]
        line += [f"{mean(of_set, POSTERIOR):.1%}" if is_calibrated(of_set) else ""]
        line += [f"{mean(of_set, 'nodes_on'):.1f} of {of_set[0]['width']}"]
        sampled = "r_hat" in of_set[0]
        line += [f"{mean(of_set, 'r_hat'):.2f}" if sampled else ""]
        line += [f"{mean(of_set, 'effective_draws'):.0f}" if sampled else ""]
        line += [f"{mean(of_set, 'seconds'):.0f}"]
        lines.append(line)
    return NOTES + "\n" + markdown(columns, lines)


def is_calibrated(rows: list[Row]) -> bool:
    """Whether all have calibrated intervals (P4); older rows have the posterior's."""
    return all(POSTERIOR in row for row in rows)


def held_text(rows: list[Row]) -> str:
    """Share of the targets within their intervals, and whose intervals these were."""
    return f"{mean(rows, 'coverage'):.1%}" + (
        "" if is_calibrated(rows) else " (the posterior's)"
    )


NOTES = f"""\
RMSE and CRPS in the target's units, log density in nats, means over test rows and then
over splits; SE as if splits were independent. Of VMG's two prints the better one
stands here. `ahead`: our mean is better than the printed one; for the RMSE of
{", ".join(TIES)} it is enough to be as good at the printed precision. Seconds: the
training, and the sampling where there is any, of one split, with whatever else the
machine did at the time. `year` waits for its file. 90 % intervals hold: the share of
test targets in the intervals of `predict_interval`, whose depth was learned from the
training rows (P4), and beside it in those that the posterior has by itself.
"""


def beside(recipes: dict[str, list[Row]]) -> str:
    """For the README: each recipe beside both published columns, and what that says."""
    columns = ["set", "HS-BNN", "VMG"]
    for recipe in recipes:
        columns += [f"farrier, {recipe}", "90 % intervals hold"]
    lines = []
    for name in datasets.UCI:
        line = [name, *(f"{a:.2f} / {b:.2f}" for a, b in printed(name).values())]
        for rows in recipes.values():
            if not (found := where(rows, set=name)):
                line += ["not run yet", ""]
                continue
            means = [mean(found, score) for score in ("rmse", "log_density")]
            line.append(" / ".join(f"{value:#.3g}" for value in means))
            if name in unfinished(rows):
                line[-1] += f" ({len(found)} of {published.SPLITS[name]} splits)"
            line.append(held_text(found))
        lines.append(line)
    told = [
        f"- {recipe}, {claim.text.removeprefix('Ours: ').removesuffix('.')}: "
        f"{claim.verdict}. {claim.evidence}"
        for recipe, rows in recipes.items()
        for claim in claims(rows)
    ]
    return "\n".join([markdown(columns, lines), *told]) + "\n"


def unfinished(rows: list[Row]) -> list[str]:
    """Sets that have not all of their splits."""
    return [
        name
        for name in datasets.UCI
        if len(where(rows, set=name)) < published.SPLITS[name]
    ]


def claims(rows: list[Row]) -> list[Claim]:
    """Ours: ahead in every cell holds when all splits are there and none is behind."""
    found = []
    for column in ("HS-BNN", "VMG"):
        seen = cells(rows, column)
        behind = [
            f"{name} ({score.replace('_', ' ')})"
            for (name, score), is_ahead in seen.items()
            if not is_ahead
        ]
        evidence = f"Ahead in {len(seen) - len(behind)} of {len(seen)} cells"
        evidence += f"; behind in {', '.join(behind)}." if behind else "."
        if missing := unfinished(rows):
            evidence += f" Splits of {', '.join(missing)} are to come."
        decided = verdict(holds=not behind, partly=2 * len(behind) < len(seen))
        text = f"Ours: ahead of {column}'s printed numbers on every set."
        found.append(Claim(text, evidence, "waits for results" if missing else decided))
    return [*found, coverage_claim("Ours", rows)]


def coverage_claim(whose: str, rows: list[Row]) -> Claim:
    """Holds when it is so; partly when the average is from 84 to 96 %."""
    by_set = {name: where(rows, set=name) for name in {row["set"] for row in rows}}
    held = [mean_and_error(r["coverage"] for r in v)[0] for v in by_set.values()]
    average = float(np.mean(held))
    good = 0.88 <= average <= 0.92 and min(held) >= 0.84 and max(held) <= 0.96
    return Claim(
        f"{whose}: 90 % intervals hold 88 to 92 % on average, 84 to 96 % on each set.",
        f"{average:.1%} on average, {min(held):.1%} to {max(held):.1%}.",
        verdict(holds=good, partly=0.84 <= average <= 0.96),
    )


def render(rows: list[Row]) -> dict[str, Figure]:
    """Ours against both published columns, set by set."""
    return {"recipe": scores_figure({"ours": ("#c0392b", rows)})}


def scores_figure(series: dict[str, tuple[str, list[Row]]]) -> Figure:
    """Means of some rows against both published columns, set by set.

    Parameters
    ----------
    series
        Under its label, the colour and the rows of each.
    """
    figure, axes = new_figure(1, 2, height=4.2)
    every = [row for _, rows in series.values() for row in rows]
    names = list(dict.fromkeys(row["set"] for row in every))
    shifts = np.linspace(-0.15, 0.15, len(series)) if len(series) > 1 else [0.0]
    styles = {"HS-BNN": ("#1f6f8b", "s"), "VMG": ("#7d5ba6", "D")}
    for ax, number, score in zip(axes[0], (0, 1), ("rmse", "log_density"), strict=True):
        for place, name in enumerate(names):
            best = printed(name)["VMG"][number]
            if number == 0 and best == 0:
                ax.text(1.0, place, " printed as 0.00", va="center")
                continue
            unit, zero = (best, 0.0) if number == 0 else (1.0, best)
            for column, (colour, marker) in styles.items():
                label = f"{column}, printed" if place == 0 else None
                x = (printed(name)[column][number] - zero) / unit
                ax.plot(x, place, marker, color=colour, ms=5, label=label)
            for shift, (label, (colour, rows)) in zip(
                shifts, series.items(), strict=True
            ):
                found = [row[score] for row in where(rows, set=name)]
                middle, error = mean_and_error(found)
                x = (middle - zero) / unit
                if score == "log_density" and abs(x) > FAR:
                    at_edge(ax, x, place + shift, colour)
                    x = np.nan
                ax.errorbar(
                    x,
                    place + shift,
                    xerr=np.nan_to_num(error) / unit,
                    fmt="o",
                    ms=5,
                    color=colour,
                    label=f"{label}, ± 2 standard errors" if place == 0 else None,
                )
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.axvline(1.0 if number == 0 else 0.0, color="0.7", lw=1, zorder=0)
    axes[0, 0].set_xlabel("RMSE / printed RMSE of VMG")
    axes[0, 1].set_xlabel("log density - printed one of VMG (nats)")
    axes[0, 0].set_title("less is better", fontsize=10)
    axes[0, 1].set_title("more is better", fontsize=10)
    legend_below(figure, axes[0, 1])
    return figure


def at_edge(ax: Axes, x: float, y: float, colour: str) -> None:
    """Write, at the side where it would be, a value that is too far off to draw."""
    left = x < 0
    ax.annotate(
        f"← {x:.0f}" if left else f"{x:.0f} →",
        (0.02 if left else 0.98, y),
        xycoords=("axes fraction", "data"),
        color=colour,
        ha="left" if left else "right",
        va="center",
    )
