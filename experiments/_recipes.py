"""farrier's own recipes on the regression tables: parts, scores, tables, claims.

A recipe says how an estimator is made for a table with a given number of rows: one for
all tables. Settings are chosen on other tables (`choose.py`).
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeRegressor, Nuts, presets

from . import datasets, published
from ._cells import Cell
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
from .uci import (
    LARGE,
    LONG,
    MARK,
    SCORES,
    by_set,
    cell,
    copied,
    copies_text,
    counted,
    discrete_text,
    files_of,
    grouped,
    is_discrete,
    listed,
    lower,
    mean,
    point_scores,
    with_error,
)

BLOCK = 5  # splits in one part
POSTERIOR = "posterior_coverage"  # in rows: of intervals that are not calibrated
SCORE_DRAWS = 400  # of targets, for the CRPS
COLUMNS = ("HS-BNN", "VMG")  # published
# Commits of the code that made results/uci-*/rows.json; read off their history in git.
RUNS = Path(__file__).with_name("uci_runs.json")
FAR = 10.0  # nats from a printed density; a mean beyond is written, not drawn
TRIAL = Nuts(chains=1, warm_up=150, draws=25, depth=2)  # does it run at all?
IN_SETTINGS = ("RECIPES",)  # the arguments that they make are in `settings_of`
RECIPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "default": lambda rows: {},
    "before": lambda rows: {"prior": "narrow-horseshoe", "kl_annealing": 0.8},
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
        train, test = splits[number]
        row = {"set": name, "split": number, "distinct_targets": len(np.unique(y))}
        is_copy = copied(X, y, train, test)
        rows.append(row | scores(model, X[test], y[test], is_copy))
    return rows


def estimator(config: Config, name: str, rows: int, split: int) -> HorseshoeRegressor:
    """What the recipe makes for a table of so many rows."""
    width = config.large_width if name in LARGE else config.width
    first = {"max_iter": config.max_iter, "hidden_layer_sizes": (width,)}
    given = arguments(first, RECIPES[config.recipe](rows))
    return HorseshoeRegressor(random_state=config.seed + split, **given)


def scores(
    model: HorseshoeRegressor, X: np.ndarray, y: np.ndarray, is_copy: np.ndarray
) -> Row:
    """What is reported of one split, in the units of the target."""
    row = point_scores(model.predict(X), model.log_density(X, y), y, is_copy) | {
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


def printed(name: str) -> dict[str, published.Score]:
    """What is printed of HS-BNN and of VMG; of VMG the better of two prints."""
    vmg = published.VMG[name]
    if name in published.VMG_ORIGINAL:
        rmse, density = published.VMG_ORIGINAL[name]
        vmg = replace(
            vmg,
            rmse=replace(vmg.rmse, mean=min(vmg.rmse.mean, rmse)),
            log_density=replace(
                vmg.log_density, mean=max(vmg.log_density.mean, density)
            ),
        )
    return dict(zip(COLUMNS, (published.HORSESHOE[name], vmg), strict=True))


def cells(rows: list[Row], columns: tuple[str, ...] = COLUMNS) -> list[Cell]:
    """Ours beside both published columns, set by set and by both scores."""
    return [
        cell(of_set, score, column, printed(name)[column])
        for column in columns
        for name, of_set in by_set(rows).items()
        for score in SCORES
    ]


def scores_table(rows: list[Row]) -> str:
    """Ours beside both published columns, set by set."""
    columns = ["set", "splits"]
    for score in SCORES.values():
        columns += [f"our {score} ± SE", *(f"{column} ± SE" for column in COLUMNS)]
    columns += [f"against {column}: RMSE, log density" for column in COLUMNS]
    columns += ["CRPS ± SE", "90 % intervals hold", "the posterior's", "nodes on"]
    columns += ["R-hat", "effective draws", "s"]
    sets = by_set(rows)
    lines = []
    for name, of_set in sets.items():
        line: list[Any] = [name, len(of_set)]
        for score in SCORES:
            line += [score_text(of_set, score)]
            line += [printed_text(printed(name)[column], score) for column in COLUMNS]
        for column in COLUMNS:
            line += [", ".join(each.verdict for each in cells(of_set, (column,)))]
        line += [score_text(of_set, "crps"), held_text(of_set)]
        line += [f"{mean(of_set, POSTERIOR):.1%}" if is_calibrated(of_set) else ""]
        line += [f"{mean(of_set, 'nodes_on'):.1f} of {of_set[0]['width']}"]
        sampled = "r_hat" in of_set[0]
        line += [f"{mean(of_set, 'r_hat'):.2f}" if sampled else ""]
        line += [f"{mean(of_set, 'effective_draws'):.0f}" if sampled else ""]
        line += [f"{mean(of_set, 'seconds'):.0f}"]
        lines.append(line)
    text = NOTES + "\n" + markdown(columns, lines) + discrete_text(sets)
    return text + copies_text({"": sets})


def score_text(rows: list[Row], score: str) -> str:
    """A mean of ours with its standard error; marked where the target is discrete."""
    value, two_errors = mean_and_error(row[score] for row in rows)
    mark = MARK if score == "log_density" and is_discrete(rows) else ""
    return with_error(value, two_errors / 2, "#.3g") + mark


def printed_text(theirs: published.Score, score: str) -> str:
    """A printed mean with its standard error."""
    number = getattr(theirs, score)
    return with_error(number.mean, number.error, ".2f") + "?" * number.misprint


def runs_text(recipe: str) -> str:
    """How often the table has been run for a recipe, each time with what."""
    runs = json.loads(RUNS.read_text(encoding="utf-8"))[recipe]
    lines = [[r["date"], r["commit"], r["sets"], r["settings"]] for r in runs]
    return (
        f"\nRuns of this recipe on these tables so far: {len(runs)}, some of them on a "
        "few sets. Earlier test scores were known when settings were changed.\n\n"
        + markdown(["date", "code", "sets", "settings"], lines)
    )


def is_calibrated(rows: list[Row]) -> bool:
    """Whether all have calibrated intervals (P4); older rows have the posterior's."""
    return all(POSTERIOR in row for row in rows)


def held_text(rows: list[Row]) -> str:
    """Share of the targets within their intervals, and whose intervals these were."""
    return f"{mean(rows, 'coverage'):.1%}" + (
        "" if is_calibrated(rows) else " (the posterior's)"
    )


NOTES = """\
RMSE and CRPS in the target's units, log density in nats: means over test rows and then
over splits. SE: standard error of the mean over splits, as if splits were independent;
for the printed numbers it follows from the printed ± (`uci` has the inference). Of
VMG's two prints the better one stands here. Against: `level` within one standard error
of the difference, or where both are the same at the printed precision; else `better` or
`worse`. A `?` marks a printed error that is likely to be a misprint: there the less
favourable verdict stands, with it or without it. Seconds: the training, and the
sampling where there is any, of one split, with whatever else the machine did at the
time. `year` waits for its file. 90 % intervals hold: the share of test targets in the
intervals of `predict_interval`, whose depth was learned from the training rows (P4),
and beside it in those that the posterior has by itself.
"""


def beside(recipes: dict[str, list[Row]]) -> str:
    """For the README: the verdicts, and each recipe beside both published columns."""
    columns = ["set", *COLUMNS]
    for recipe in recipes:
        columns += [f"farrier, {recipe}", "90 % intervals hold"]
    lines = []
    for name in datasets.UCI:
        line = [name]
        for theirs in printed(name).values():
            line.append(" / ".join(printed_text(theirs, score) for score in SCORES))
        for rows in recipes.values():
            if not (of_set := where(rows, set=name)):
                line += ["not run yet", ""]
                continue
            line.append(" / ".join(score_text(of_set, score) for score in SCORES))
            if name in unfinished(rows):
                line[-1] += f" ({len(of_set)} of {published.SPLITS[name]} splits)"
            line.append(held_text(of_set))
        lines.append(line)
    told = []
    for recipe, rows in recipes.items():
        for column in COLUMNS:
            found = cells(rows, (column,))
            told.append(f"- {recipe}, against {column}: {lower(counted(found))}")
            told[-1] += grouped(found, "level") + grouped(found, "worse")
            told[-1] += discrete_evidence(rows, found) + "."
        claim = coverage_claim(recipe, rows)
        told.append(f"- {claim.text.replace(':', ',', 1).removesuffix('.')}: ")
        told[-1] += f"{claim.verdict}. {claim.evidence}"
    text = "\n".join([*told, "", markdown(columns, lines)])
    sets = by_set(row for rows in recipes.values() for row in rows)
    text += discrete_text(sets)
    return text + copies_text({f"({r})": by_set(rows) for r, rows in recipes.items()})


def changes(before: list[Row], now: list[Row]) -> str:
    """The present default less the earlier one, split by split, with its verdict."""
    lines = []
    for name in datasets.UCI:
        old = {row["split"]: row for row in where(before, set=name)}
        if not (pairs := [(r, old[r["split"]]) for r in where(now, set=name)]):
            continue
        line = [name]
        for score, sign in {"rmse": -1, "log_density": 1, "crps": -1}.items():
            gaps = [new[score] - other[score] for new, other in pairs]
            gap, two_errors = mean_and_error(gaps)
            error = two_errors / 2
            better = "better" if sign * gap > 0 else "worse"
            told = "level" if abs(gap) <= error else better
            line.append(f"{gap:+.2g} ± {error:.1g}, {told}")
        nodes = (np.mean([pair[i]["nodes_on"] for pair in pairs]) for i in (1, 0))
        line.append(" to ".join(f"{count:.0f}" for count in nodes))
        lines.append(line)
    return markdown(["set", "RMSE", "log density", "CRPS", "active nodes"], lines)


def unfinished(rows: list[Row]) -> list[str]:
    """Sets that have not all of their splits."""
    return [
        name
        for name in datasets.UCI
        if len(where(rows, set=name)) < published.SPLITS[name]
    ]


def claims(rows: list[Row]) -> list[Claim]:
    """Better in every cell: holds when it is so, partly when none is worse."""
    claims = []
    for column in COLUMNS:
        found = cells(rows, (column,))
        evidence = counted(found) + listed(found, "level") + listed(found, "worse")
        evidence += discrete_evidence(rows, found) + "."
        if missing := unfinished(rows):
            evidence += f" Splits of {', '.join(missing)} are to come."
        verdicts = {each.verdict for each in found}
        decided = verdict(holds=verdicts <= {"better"}, partly="worse" not in verdicts)
        text = f"Ours: better than {column}'s printed numbers in every cell."
        claims.append(
            Claim(text, evidence, "waits for results" if missing else decided)
        )
    return [*claims, coverage_claim("Ours", rows)]


def discrete_evidence(rows: list[Row], found: list[Cell]) -> str:
    """Which cells count as better by a density that is not comparable."""
    names = [
        name
        for name, of_set in by_set(rows).items()
        if is_discrete(of_set)
        and any(
            each.name.startswith(f"{name}, {SCORES['log_density']}")
            for each in found
            if each.verdict == "better"
        )
    ]
    text = "; among the better, log density of a discrete target: "
    return text + ", ".join(names) if names else ""


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
    styles = {"HS-BNN": ("#1f6f8b", "s"), "VMG": ("#7d5ba6", "D")}
    shifts = np.linspace(-0.3, 0.3, len(styles) + len(series))
    for ax, score in zip(axes[0], SCORES, strict=True):
        for place, name in enumerate(names):
            best = getattr(printed(name)["VMG"], score).mean
            if score == "rmse" and best == 0:
                ax.text(1.0, place, " printed as 0.00", va="center")
                continue
            unit, zero = (best, 0.0) if score == "rmse" else (1.0, best)
            points = []
            for column, style in styles.items():
                theirs = getattr(printed(name)[column], score)
                error = math.nan if theirs.misprint else 2 * theirs.error
                points.append((f"{column}, printed", *style, theirs.mean, error))
            for label, (colour, rows) in series.items():
                values = mean_and_error(row[score] for row in where(rows, set=name))
                points.append((label, colour, "o", *values))
            for shift, point in zip(shifts, points, strict=True):
                label, colour, marker, middle, error = point
                x = (middle - zero) / unit
                if score == "log_density" and abs(x) > FAR:
                    at_edge(ax, x, place + shift, colour)
                    x = np.nan
                ax.errorbar(
                    x,
                    place + shift,
                    xerr=np.nan_to_num(error) / unit,
                    fmt=marker,
                    ms=4,
                    color=colour,
                    label=f"{label}, ± 2 SE" if place == 0 else None,
                )
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.axvline(1.0 if score == "rmse" else 0.0, color="0.7", lw=1, zorder=0)
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
