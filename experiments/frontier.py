"""Digits: error against nodes, over KL weights and their schedules.

Two hidden layers of 400 units. With the ELBO itself (`kl_weight` 1) the posterior turns
off more nodes than with a smaller weight, and makes more errors: a frontier. Only
weight 1 is a lower bound on the evidence: any other is a declared choice of the
objective. A weight that is high at first and low at the end was tried too ("released"),
and was removed from farrier: its rows stay and are not made again.

What is left, where it has at most 200 nodes, is a network of known widths. It is fitted
again from the start, from three seeds, with the posterior of Louizos & Welling 2016
(`posterior=Matrix(...)`, whose objective is no lower bound either), and the three
posteriors are mixed (W1): the horseshoe has chosen how wide, the mixture predicts.

Candidates are fitted to the first 50,000 training digits and judged on the last 10,000
(`choose/...`), before and after they are fitted again. The rule: the least error among
networks of at most 200 nodes, then those of more. The first few by that rule are fitted
to all 60,000 digits and tested (`tested/1`, ...), and no test digit is used before. But
earlier designs of this experiment had been tested on the same digits when this one was
made.
Errors are those of the compacted network after the last epoch, or of the one that was
fitted again, after its last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeClassifier

from . import datasets
from ._harness import Claim, Row, Work, markdown, settings_without, verdict, where
from ._models import (
    AGAIN,
    FEW_DIGITS,
    MODELS,
    AbstractDigits,
    classified,
    fitted,
    standard_error,
    unpaired,
    written,
)
from .mnist import FILES
from .plots import Axes, Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about 40 minutes on 2 cores"
GOAL_NODES, GOAL_ERROR = 200, 0.014
CHOOSE, FINAL = "choose", "final"  # in rows: what a part does
TESTED = "tested"  # how the name of a part of the kind FINAL begins
CONSTANT, RELEASED, SECOND = "constant", "released", "fitted again"
COLOURS = {CONSTANT: "#c05a2e", RELEASED: "#1f6f8b", SECOND: MODELS["vmg"].colour}
CANDIDATES = {"1": 1.0, "0.1": 0.1}
REMOVED = ("0.5 to 0.05", "0.3 to 0.03")  # weights that fell during training
NOTES = """\
KL weight, or its peak and its final value, under which the widths were chosen. Kept:
nodes of both layers of the compacted network, and in brackets those that are on by
`widths_`. Error: of the compacted network after the last epoch, ± one standard error of
a share of so many digits; before: of the network that it was compacted from, or, of one
that was fitted again, the compacted one. ELBO: one that was fitted again has its own
objective there, which is no lower bound, of the best of its fits. Fits: that are mixed,
with seeds of their own. Minutes: of the training, of the best of several fits, with
whatever else the machine did at the time.
"""


@dataclass(frozen=True, kw_only=True)
class Config(AbstractDigits):
    """Settings of the runs.

    Parameters
    ----------
    candidates
        Names of weights, see `CANDIDATES`.
    finals
        How many of them are tested, by the rule.
    fits
        That are mixed where the widths are known.
    """

    candidates: tuple[str, ...] = tuple(CANDIDATES)
    finals: int = 1
    fits: int = 3
    width: int = 400


FULL = Config()
SMOKE = Config(
    candidates=("0.1", "1"),
    finals=1,
    fits=2,
    width=8,
    **FEW_DIGITS,
)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """First `choose/0.1`, ... for all candidates, then `tested/1`, ..."""
    found: dict[str, Callable[[Work], list[Row]]] = {
        f"{CHOOSE}/{name}": partial(judge, config, data, name)
        for name in config.candidates
    }
    for place in range(1, config.finals + 1):
        found[f"{TESTED}/{place}"] = partial(test, config, data, place)
    return found


def settings_of(config: Config, part: str) -> dict[str, Any]:
    """Those of one fit; what is tested depends on all candidates and on the rule."""
    own = settings_without(config, "candidates", "finals", "fits", "test_rows")
    own |= {"most_nodes": GOAL_NODES}
    again = {"again": written(given_again(config))}
    kind, name = part.split("/")
    if kind == CHOOSE:
        return own | again | {"weight": repr(CANDIDATES[name])}
    weights = [repr(CANDIDATES[name]) for name in config.candidates]
    return own | again | {"test_rows": config.test_rows, "weights": weights}


def data_files(config: Config) -> tuple[str, ...]:
    """The four files of MNIST."""
    del config
    return FILES


def judge(config: Config, data: Path, name: str, work: Work) -> list[Row]:
    """A candidate without the last training rows, and its scores on them."""
    X, y = datasets.mnist(data)
    first = config.rows - config.held_out
    fit, held = slice(first), slice(first, config.rows)
    about = {"kind": CHOOSE, "rows": first}
    tables = (X[fit], y[fit]), (X[held], y[held])
    return [about | row for row in both_fits(config, name, *tables, work)]


def test(config: Config, data: Path, place: int, work: Work) -> list[Row]:
    """The candidate at a place by the rule: all training rows, and the test rows.

    Both of its fits, that which has the place first.
    """
    judged = where([*work.rows], kind=CHOOSE)
    missing = {*config.candidates} - {row["candidate"] for row in judged}
    if missing:
        raise FileNotFoundError(
            f"All candidates must be judged first; {', '.join(sorted(missing))} "
            f"{'is' if len(missing) == 1 else 'are'} not."
        )
    chosen = ranked(judged)[place - 1]
    rows, tested = slice(config.rows), slice(config.test_rows)
    X, y = (values[rows] for values in datasets.mnist(data))
    X_test, y_test = (values[tested] for values in datasets.mnist(data, "t10k"))
    about = {"kind": FINAL, "rows": config.rows, "place": place}
    name = chosen["candidate"]
    found = both_fits(config, name, (X, y), (X_test, y_test), work)
    found = sorted(found, key=lambda row: row["schedule"] != chosen["schedule"])
    return [about | row for row in found]


def ranked(judged: list[Row]) -> list[Row]:
    """Best first: those with few enough nodes, then the others, by their error."""
    rule = lambda row: (sum(row["kept"]) > GOAL_NODES, row["error"], sum(row["kept"]))
    return sorted(judged, key=rule)


Table = tuple[np.ndarray, np.ndarray]


def both_fits(
    config: Config, name: str, train: Table, judge: Table, work: Work
) -> list[Row]:
    """A candidate made small, and a network of its widths that is fitted again.

    Only of at most `GOAL_NODES` nodes: the first is all there is of wider ones.
    """
    widths = (config.width, config.width)
    settings = given(config, name)
    model = fitted(widths, settings, train, work.piece(0, 2), "widths")
    small = model.compact()
    kept = tuple(int(keep.sum()) for keep in small.compaction_.keep)
    about = {"candidate": name, "epochs": config.epochs, "width": config.width}
    about |= {"kept": [*kept]}
    first = scores(small, *judge) | {
        "fits": 1,
        "schedule": RELEASED if is_released(name) else CONSTANT,
        "error_before": classified(model, *judge)["error"],
        "on": [*model.widths_],
        "recipe": typed(widths, settings),
    }
    if sum(kept) > GOAL_NODES:
        return [about | first]
    settings = given_again(config)
    again = fitted(kept, settings, train, work.piece(1, 2), "again")
    second = scores(again, *judge) | {
        "fits": config.fits,
        "schedule": SECOND,
        "error_before": first["error"],
        "on": [*again.widths_],
        "recipe": f"{first['recipe']}`, then `{typed(kept, settings)}",
    }
    return [about | row for row in (first, second)]


def given(config: Config, name: str) -> dict[str, Any]:
    """What the estimator is given, but for the widths: the recipe."""
    weight = {"kl_weight": CANDIDATES[name], "kl_annealing": config.kl_annealing}
    return weight | config.shared()


def given_again(config: Config) -> dict[str, Any]:
    """What it is given when the widths are known."""
    return AGAIN | {"n_restarts": config.fits} | config.shared()


def typed(widths: tuple[int, ...], settings: dict[str, Any]) -> str:
    """The estimator of a fit as it is typed."""
    recipe = ", ".join(f"{k}={v!r}" for k, v in arguments(settings).items())
    return f"HorseshoeClassifier({widths}, {recipe})"


def is_released(name: str) -> bool:
    """Whether the weight of a candidate fell during training."""
    return name in REMOVED


def scores(model: HorseshoeClassifier, X: np.ndarray, y: np.ndarray) -> Row:
    """What a fit has to show on some digits."""
    return {
        **classified(model, X, y),
        "test_rows": len(y),
        "bound": float(model.history_.elbo[-1]),
        "seconds": model.history_.seconds,
    }


# -- what is made of the rows ------------------------------------------------------


def table(rows: list[Row]) -> str:
    """Tested candidates, then all of them as they were judged."""
    text = ""
    if finals := where(rows, kind=FINAL):
        text += "Tested, in the order of the rule:\n\n"
        text += lines_of(finals, "test error, %") + "\n"
        text += f"The first as it is typed: `{finals[0]['recipe']}`.\n\n"
    if judged := where(rows, kind=CHOOSE):
        text += "Judged on training digits set apart, best by the rule first:\n\n"
        text += lines_of(ranked(judged), "error, %") + "\n"
    return text + NOTES


def lines_of(rows: list[Row], error: str) -> str:
    """A line for each row."""
    columns = ["weight", "schedule", "fits", "epochs", error, "before", "log density"]
    columns += ["nodes kept (on)", "ELBO a row", "minutes"]
    lines = [
        [
            row["candidate"],
            row["schedule"],
            row["fits"],
            row["epochs"],
            f"{100 * row['error']:.2f} ± {100 * standard_error(row):.2f}",
            f"{100 * row['error_before']:.2f}",
            f"{row['log_density']:.4f}",
            f"{sum(row['kept'])} of {2 * row['width']}: "
            f"{' - '.join(map(str, row['kept']))} ({' - '.join(map(str, row['on']))})",
            f"{row['bound'] / row['rows']:.3f}",
            f"{row['seconds'] / 60:.1f}",
        ]
        for row in rows
    ]
    return markdown(columns, lines)


def claims(rows: list[Row]) -> list[Claim]:
    """Ours, beyond the paper."""
    judged, finals = where(rows, kind=CHOOSE), where(rows, kind=FINAL)
    found = [goal_claim(finals[0])] if finals else []
    constant = where(judged, schedule=CONSTANT)
    released = where(judged, schedule=RELEASED)
    if constant and released:
        found.append(release_claim(constant, released))
    if again := where(judged, schedule=SECOND):
        found.append(again_claim(again))
    return found


def goal_claim(row: Row) -> Claim:
    """Holds when both figures are reached, partly when one is."""
    nodes = sum(row["kept"])
    reached = nodes <= GOAL_NODES, row["error"] <= GOAL_ERROR
    return Claim(
        f"Ours: at most {GOAL_ERROR:.1%} test error on digits with at most "
        f"{GOAL_NODES} of 800 nodes.",
        f"KL weight {row['candidate']}, {row['schedule']}, {row['fits']} x "
        f"{row['epochs']} epochs: {row['error']:.2%} (SE {standard_error(row):.2%}) "
        f"with {nodes} of {2 * row['width']} nodes.",
        verdict(holds=all(reached), partly=any(reached)),
    )


def release_claim(constant: list[Row], released: list[Row]) -> Claim:
    """Holds when each constant weight has a better released one, partly when one has.

    Better: no more nodes and no more error, on the digits set apart.
    """
    better = lambda a, b: a["error"] <= b["error"] and sum(a["kept"]) <= sum(b["kept"])
    beaten = [any(better(one, row) for one in released) for row in constant]
    told = [
        f"{row['candidate']}: {row['error']:.2%} with {sum(row['kept'])}"
        for row in (*constant, *released)
    ]
    return Claim(
        "Ours: a weight that is released is better than a constant one.",
        f"Error and nodes on training digits set apart, {'; '.join(told)}.",
        verdict(holds=all(beaten), partly=any(beaten)),
    )


def again_claim(again: list[Row]) -> Claim:
    """Holds when all have less error than before, with p < 0.05; partly when some."""
    gaps = [unpaired(row, row | {"error": row["error_before"]}) for row in again]
    better = [gap.significantly_better for gap in gaps]
    told = [
        f"{sum(row['kept'])} nodes {row['error_before']:.2%} to {row['error']:.2%} "
        f"({gap})"
        for row, gap in zip(again, gaps, strict=True)
    ]
    return Claim(
        "Ours: what the horseshoe keeps predicts better when it is fitted again, "
        "as a mixture of matrix normal posteriors.",
        f"Error on training digits set apart, {'; '.join(told)}.",
        verdict(holds=all(better), partly=any(better)),
    )


def render(rows: list[Row]) -> dict[str, Figure]:
    """Nodes against error, as judged and as tested."""
    panels = {
        CHOOSE: "training digits set apart: all candidates",
        FINAL: "test digits: the first by the rule, both fits",
    }
    figure, axes = new_figure(1, 2, height=4.0)
    for ax, (kind, title) in zip(axes[0], panels.items(), strict=True):
        of_kind = where(rows, kind=kind)
        for schedule, colour in COLOURS.items():
            draw(ax, where(of_kind, schedule=schedule), schedule, colour)
        ax.plot(
            [0, GOAL_NODES, GOAL_NODES],
            [100 * GOAL_ERROR, 100 * GOAL_ERROR, 0],
            color="0.5",
            ls="--",
            lw=1,
            label=f"at most {GOAL_ERROR:.1%} and {GOAL_NODES} nodes",
        )
        ax.set_xlim(0, 1.1 * max([2 * GOAL_NODES, *(sum(r["kept"]) for r in rows)]))
        ax.set_ylim(0.75, 1.25 * max([2.0, *(100 * row["error"] for row in rows)]))
        ax.set_xlabel("nodes of the compacted network, both layers")
        ax.set_ylabel("error, % (± one standard error)")
        ax.set_title(title, fontsize=10)
    legend_below(figure, axes[0, 0])
    return {"frontier": figure}


def draw(ax: Axes, rows: list[Row], schedule: str, colour: str) -> None:
    """The points of one schedule, labelled with their weights.

    One that was fitted again stands under the one whose widths it has.
    """
    ax.errorbar(
        [sum(row["kept"]) for row in rows],
        [100 * row["error"] for row in rows],
        yerr=[100 * standard_error(row) for row in rows],
        fmt="o",
        ms=5,
        lw=1,
        color=colour,
        label=schedule if schedule == SECOND else f"{schedule} weight",
    )
    for row in rows:
        if schedule == SECOND:
            nodes, errors = sum(row["kept"]), (row["error_before"], row["error"])
            ends = [100 * error for error in errors]
            ax.plot([nodes, nodes], ends, color=colour, ls=":", lw=1, zorder=0)
            continue
        # Upright and over its bar: neighbours may be near each other.
        ax.annotate(
            row["candidate"],
            (sum(row["kept"]), 100 * (row["error"] + standard_error(row))),
            xytext=(0, 3),
            textcoords="offset points",
            rotation=90,
            ha="center",
            va="bottom",
            fontsize=8,
            color=colour,
        )
