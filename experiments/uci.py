"""Ten regression tables: RMSE and log density beside the published ones.

One hidden layer of 50 units (100 for `protein` and `year`), on the standard splits.
Two models: the horseshoe network with the paper's settings, and the matrix Gaussian
posterior (VMG) with those of its authors. farrier's own are in `uci-default` and
`uci-refined`.

The committed rows of HS-BNN were made with auxiliary variables for the half-Cauchy
distributions, set to their optimum after each step, at the commits in the manifest.
farrier now has the collapsed form, in which the auxiliary variables are always at their
optimum: by design it has the same gradients.
"""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from farrier import HorseshoeRegressor, fit_many, presets
from farrier.model.posterior import AbstractPosterior

from . import datasets, published
from ._harness import (
    Claim,
    Row,
    Work,
    markdown,
    plain,
    settings_without,
    verdict,
    write_text,
)
from .plots import Figure, legend_below, new_figure
from .settings import arguments, flat

HOURS = "about an hour and a half on 2 cores"
LARGE = ("protein", "year")  # sets with 100 units in place of 50
# Sets of many rows, where the budget that an estimator takes by itself is fewer epochs
# than the 500 that the paper trains digits for.
LONG, EPOCHS = ("kin8nm", "naval", "power", "protein", "year"), 500
LABELS = {
    "horseshoe": "HS-BNN, the paper's settings",
    "vmg": "VMG, its authors' settings",
}
COLOURS = {"horseshoe": "#1f6f8b", "vmg": "#7d5ba6"}
PRINTED = {
    "horseshoe": published.HORSESHOE,
    "vmg": published.VMG,
}
# Their batches of 5 rows at 0.001 need six times the steps.
QUICKER = {"batch_size": 32, "learning_rate": 0.005}
# Settings, given the standard deviation of the training targets.
PRESETS: dict[str, Callable[[float], dict[str, Any]]] = {
    "horseshoe": lambda sd: flat(presets.paper()),
    "vmg": lambda sd: flat(presets.vmg(sd)) | QUICKER,
}
ROUNDING = 0.005  # of a number that is printed to two decimals
CLOSE_SETS = ("boston", "concrete", "energy", "yacht")  # on which VMG is held to it


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    most_splits
        Splits of each set that are used, from the first.
    max_iter
        Passes over the data, or "auto" for those of the preset or, where it has none,
        those that the estimator takes by itself.
    most_steps
        Where a preset has a number of passes, as many as make no more steps than this.
    draws
        Functions that are drawn for the RMSE of single draws.
    """

    sets: tuple[str, ...] = (*datasets.UCI, "year")
    models: tuple[str, ...] = tuple(LABELS)
    width: int = 50
    large_width: int = 100
    most_splits: int = 20
    max_iter: int | str = "auto"
    most_steps: int = 20_000
    draws: int = 100
    seed: int = 0


FULL = Config()
SMOKE = Config(
    sets=("yacht",),
    models=("vmg",),
    width=4,
    most_splits=2,
    max_iter=2,
    draws=4,
)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One part for each set and model: `yacht/horseshoe`."""
    return {
        f"{name}/{model}": partial(fit, config, data, name, model)
        for name in config.sets
        for model in config.models
    }


def settings_of(config: Config, part: str) -> dict[str, Any]:
    """Those of one part: other sets and models may change without it."""
    name, model = part.split("/")
    own = settings_without(config, "sets", "models")
    if model != "vmg":
        del own["most_steps"]
    if model == "horseshoe" and name in LONG:
        own["epochs"] = EPOCHS
    return own | ({"quicker": QUICKER} if model == "vmg" else {})


def data_files(config: Config) -> tuple[str, ...]:
    """The tables and their splits."""
    return files_of(config.sets)


def files_of(sets: Iterable[str]) -> tuple[str, ...]:
    """The tables of some sets, and their splits."""
    files: list[str] = []
    for name in sets:
        year = name == "year"
        files += [datasets.YEAR_FILE] if year else datasets.uci_files(name)
    return tuple(files)


def settings(config: Config, name: str, model: str, y: np.ndarray) -> dict[str, Any]:
    """What the estimator is given for one set and model, and training targets `y`."""
    given = PRESETS[model](float(f"{y.std():.2g}"))
    width = config.large_width if name in LARGE else config.width
    given["hidden_layer_sizes"] = (width,)
    if config.max_iter != "auto":
        given["max_iter"] = config.max_iter
    elif model == "horseshoe":
        given["max_iter"] = EPOCHS if name in LONG else "auto"
    elif model == "vmg":
        batches = math.ceil(len(y) / given["batch_size"])
        passes = max(1, config.most_steps // batches)
        given["max_iter"] = min(given["max_iter"], passes)
    return given


def fit(config: Config, data: Path, name: str, model: str, work: Work) -> list[Row]:
    """All splits of one set, but for those that a stopped run had finished."""
    X, y, splits = datasets.year(data) if name == "year" else datasets.uci(name, data)
    splits = splits[: config.most_splits]
    kept = {int(f.stem): json.loads(f.read_text()) for f in work.folder.glob("*.json")}
    waiting = [number for number in range(len(splits)) if number not in kept]
    # The targets of the first split for all: they then share a program.
    given = settings(config, name, model, y[splits[0][0]])
    models = [
        HorseshoeRegressor(**arguments(given), random_state=config.seed + s)
        for s in waiting
    ]

    def after_fit(index: int, fitted: HorseshoeRegressor) -> None:
        number = waiting[index]
        test = splits[number][1]
        row = {"set": name, "model": model, "split": number}
        row |= scores(fitted, X[test], y[test], config)
        kept[number] = plain(row)
        write_text(work.folder / f"{number}.json", json.dumps(kept[number]))
        work.done(len(kept), len(splits))

    work.done(len(kept), len(splits))
    fit_many(models, X, y, rows=[splits[s][0] for s in waiting], after_fit=after_fit)
    return [kept[number] for number in sorted(kept)]


def scores(
    model: HorseshoeRegressor, X: np.ndarray, y: np.ndarray, config: Config
) -> Row:
    """What is reported of one split, in the units of the target."""
    drawn = single_draws(model, X, config.draws, key=jr.key(config.seed))
    return {
        "rmse": rmse(model.predict(X), y),
        "rmse_of_draws": float(np.mean([rmse(draw, y) for draw in drawn.T])),
        "log_density": float(model.log_density(X, y).mean()),
        "nodes_on": model.widths_[0],
        "width": model.hidden_layer_sizes[0],
        "epochs": model.n_iter_,
    }


def rmse(predicted: np.ndarray, y: np.ndarray) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def single_draws(
    model: HorseshoeRegressor, X: np.ndarray, draws: int, *, key: PRNGKeyArray
) -> np.ndarray:
    """Whole functions from the posterior, without noise: rows x draws."""
    fitted = model.model_
    assert fitted.units.y is not None
    rows = jnp.asarray(fitted.units.x(X), float)
    drawn = _functions(fitted.posterior.resampled(draws, key=key), rows)
    return fitted.units.y.undo(np.asarray(drawn, float))


@eqx.filter_jit
def _functions(
    posterior: AbstractPosterior, x: Float[Array, "rows d_in"]
) -> Float[Array, "rows draws"]:
    return posterior.drawn_outputs(x)[:, :, 0].T


# -- what is made of the rows ------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """A score over the splits of one set, beside the printed one."""

    values: np.ndarray
    printed: float
    better: int  # 1 where more is better, -1 where less is

    @property
    def mean(self) -> float:
        """Over the splits."""
        return float(self.values.mean())

    @property
    def sd(self) -> float:
        """Over the splits; not known from one."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else float("nan")

    @property
    def se(self) -> float:
        """Of the mean over the splits, as if they were independent."""
        return self.sd / float(np.sqrt(len(self.values)))

    @property
    def difference(self) -> float:
        """Ours minus the printed one."""
        return self.mean - self.printed

    def reached(self, spread: float) -> str:
        """`yes` within two spreads of the printed number, `better`, or `no`."""
        allowed = ROUNDING + (2 * spread if np.isfinite(spread) else 0.0)
        if abs(self.difference) <= allowed:
            return "yes"
        return "better" if self.better * self.difference > 0 else "no"


def of(rows: Iterable[Row], model: str) -> dict[str, list[Row]]:
    """Rows of one model by set, in the order of the rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["model"] == model:
            found.setdefault(row["set"], []).append(row)
    return found


def summaries(rows: list[Row], name: str, model: str) -> tuple[Summary, Summary]:
    """RMSE and log density of one set."""
    printed = PRINTED[model][name]
    rmses, densities = (
        np.array([row[key] for row in rows], float) for key in ("rmse", "log_density")
    )
    return (
        Summary(rmses, printed.rmse, -1),
        Summary(densities, printed.log_likelihood, 1),
    )


def spread(summary: Summary, model: str) -> float:
    """The spread that the published column has: standard errors for VMG, else sds."""
    return summary.se if model == "vmg" else summary.sd


def table(rows: list[Row]) -> str:
    """One table for each model."""
    text = NOTES
    for model, label in LABELS.items():
        sets = of(rows, model)
        if sets:
            text += f"\n## {label}\n\n" + model_table(sets, model)
    return text


def model_table(sets: dict[str, list[Row]], model: str) -> str:
    """Published, ours, difference, for each set."""
    within = "within 2 SE or better" if model == "vmg" else "within 2 SD or better"
    columns = ["set", "published RMSE", "our RMSE ± SD", "SE", "difference", within]
    columns += ["RMSE of single draws"]
    columns += ["published log density", "our log density ± SD", "SE", "difference"]
    columns += [within, "nodes on", "splits", "epochs"]
    lines = []
    for name, rows in sets.items():
        line: list[Any] = [name]
        for number, summary in enumerate(summaries(rows, name, model)):
            line += [printed_text(name, model, number)]
            line += [f"{summary.mean:.3g} ± {summary.sd:.2g}", f"{summary.se:.2g}"]
            line += [f"{summary.difference:+.2g}"]
            line += [summary.reached(spread(summary, model))]
            if number == 0:
                line += [f"{mean(rows, 'rmse_of_draws'):.3g}"]
        line += [f"{mean(rows, 'nodes_on'):.1f} of {rows[0]['width']}", len(rows)]
        line += [f"{mean(rows, 'epochs'):.0f}"]
        lines.append(line)
    return markdown(columns, lines)


def mean(rows: list[Row], key: str) -> float:
    """Mean of one entry of the rows."""
    return float(np.mean([row[key] for row in rows]))


def printed_text(name: str, model: str, number: int) -> str:
    """The printed RMSE (0) or log-likelihood (1), with the original if it differs."""
    pick = lambda score: (score.rmse, score.log_likelihood)[number]
    text = f"{pick(PRINTED[model][name]):.2f}"
    if model == "vmg" and name in published.VMG_ORIGINAL:
        text += f" (original {pick(published.VMG_ORIGINAL[name]):.2f})"
    return text


def render(rows: list[Row]) -> dict[str, Figure]:
    """Ours against the printed numbers of HS-BNN, set by set."""
    figure, axes = new_figure(1, 2, height=4.2)
    names = list(dict.fromkeys(row["set"] for row in rows))
    models = [model for model in LABELS if of(rows, model)]
    for shift, model in zip(np.linspace(-0.2, 0.2, len(models)), models, strict=True):
        sets = of(rows, model)
        for number, ax in enumerate(axes[0]):
            for name, of_set in sets.items():
                summary = summaries(of_set, name, "horseshoe")[number]
                scale = summary.printed if number == 0 else 1.0
                if scale == 0:  # there is no ratio to show
                    if model == models[0]:
                        ax.text(
                            0.98,
                            names.index(name),
                            "printed as 0.00",
                            ha="right",
                            va="center",
                        )
                    continue
                centre = summary.mean / scale if number == 0 else summary.difference
                error = 2 * np.nan_to_num(summary.se) / scale
                ax.errorbar(
                    centre,
                    names.index(name) + shift,
                    xerr=error,
                    fmt="o",
                    ms=4,
                    color=COLOURS[model],
                    label=LABELS[model] if name == next(iter(sets)) else None,
                )
    for ax, at, what in zip(
        axes[0],
        (1.0, 0.0),
        ("RMSE / printed RMSE of HS-BNN", "log density - printed one of HS-BNN (nats)"),
        strict=True,
    ):
        ax.axvline(at, color="0.6", lw=1, zorder=0)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_xlabel(what)
    axes[0, 0].set_title("less is better; bars: ± 2 standard errors", fontsize=10)
    axes[0, 1].set_title("more is better", fontsize=10)
    legend_below(figure, axes[0, 0])
    return {"uci": figure}


NOTES = """\
RMSE: of the predictive mean, in the target's units; log density: mean over test rows,
in nats. SD and SE: over splits. Published spreads are standard deviations for HS-BNN
and standard errors for VMG; only the means are known to us, so `within` goes by our own
spread and allows for the rounding of the printed number. `better` lies outside on the
good side. Single draws: the mean of the RMSEs of single functions drawn from the
posterior, which is what the authors' code reports. The paper does not say how long it
trains tables: HS-BNN has 500 epochs, as it has for digits, or 6000 steps where that is
more. (At first it had 6000 steps everywhere; that was raised after protein had come out
at 4.59, so there the length was not chosen blindly.) VMG's authors train yacht for 2000
epochs in batches of 5 at a learning rate of 0.001; here it has batches of 32 at 0.005,
and where 2000 epochs are over 20,000 steps, it gets fewer. That is what differs; which
of it keeps concrete behind we do not know, but in trials on four of its splits all 2000
epochs, at either rate, brought it no nearer. Its noise prior is Gamma(6, 6) in the
target's own units. `year` waits for its file where it is missing.
"""


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of the tables, and whether VMG is as its authors have it."""
    nine = tuple(datasets.UCI)
    return [
        reached_claim(
            rows, "horseshoe", 0, nine, "HS-BNN reaches the printed RMSE on the sets."
        ),
        reached_claim(
            rows,
            "horseshoe",
            1,
            nine,
            "HS-BNN reaches the printed log-likelihood on the sets.",
        ),
        reached_claim(
            rows,
            "vmg",
            0,
            CLOSE_SETS,
            "VMG has its printed RMSE on boston, concrete, energy and yacht.",
        ),
        comparable_claim(rows, nine),
    ]


def reached_claim(
    rows: list[Row], model: str, number: int, names: tuple[str, ...], text: str
) -> Claim:
    """Holds when no set is worse by more than two spreads; partly for most of them."""
    sets = {name: found for name, found in of(rows, model).items() if name in names}
    fails = []
    for name, of_set in sets.items():
        summary = summaries(of_set, name, model)[number]
        if summary.reached(spread(summary, model)) == "no":
            fails.append(f"{name} {summary.mean:.3g} (printed {summary.printed:.2f})")
    evidence = (
        f"Within two spreads or better on {len(sets) - len(fails)} of {len(sets)}"
    )
    evidence += f"; not on {', '.join(fails)}." if fails else "."
    decided = verdict(holds=not fails, partly=2 * len(fails) < len(sets))
    return waiting_or(Claim(text, evidence, decided), sets, names)


def comparable_claim(rows: list[Row], names: tuple[str, ...]) -> Claim:
    """Holds when HS-BNN is worse than our VMG by over two SE on no set, else on few."""
    ours, theirs = of(rows, "horseshoe"), of(rows, "vmg")
    both = {name: ours[name] for name in names if name in ours and name in theirs}
    worse = []
    for name in both:
        # The splits are the same: the difference is taken split by split.
        pairs = zip(ours[name], theirs[name], strict=False)
        gaps = Summary(np.array([a["rmse"] - b["rmse"] for a, b in pairs]), 0.0, -1)
        if gaps.mean > 2 * np.nan_to_num(gaps.se):
            worse.append(f"{name} by {gaps.mean:.2g}")
    evidence = f"RMSE no worse than our VMG on {len(both) - len(worse)} of {len(both)}"
    evidence += f"; worse on {', '.join(worse)}." if worse else "."
    text = "HS-BNN predicts about as well as VMG."
    decided = verdict(holds=not worse, partly=2 * len(worse) < len(both))
    return waiting_or(Claim(text, evidence, decided), both, names)


def waiting_or(claim: Claim, found: Iterable[str], names: tuple[str, ...]) -> Claim:
    """The claim, or one that waits where some of the sets are still to come."""
    missing = [name for name in names if name not in {*found}]
    if not missing:
        return claim
    evidence = f"{claim.evidence} To come: {', '.join(missing)}."
    return Claim(claim.text, evidence, "waits for results")
