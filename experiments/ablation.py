"""What the horseshoe is made of, and what two of our choices are worth.

Other priors on the node scales: exponential (a light tail), half-Cauchy without the
layer's scale (nothing that pulls all nodes to zero), none (Gaussian), on the 2-2-1
labels and on a UCI set. Then the paper's Gamma(6, 6) on the noise's precision against a
weak prior, and one draw of the scales for a batch against one for each row. All else is
the estimator's default.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import GaussianNoise, Horseshoe, HorseshoeRegressor, fit_many, presets

from . import datasets, structure
from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from .ablation_priors import BatchScales, NodeExponential, NodeHalfCauchy
from .plots import COLOURS, LABELS, Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about 10 minutes on 2 cores"
UNITS = 50  # on the UCI sets
NOISES = {"weak": GaussianNoise(), "Gamma(6, 6)": GaussianNoise(shape=6.0, rate=6.0)}
# Priors that are not part of farrier, by the names that rows have for them.
PRIORS = {"exponential": NodeExponential(), "half-cauchy": NodeHalfCauchy()}
SCALE_DRAWS = {"row": "horseshoe", "batch": BatchScales(prior=Horseshoe())}
DEFAULT = {"prior": "horseshoe", "noise": "weak", "draws": "row"}
FLOOR = 1e-6  # norms below this are drawn here

PLAN = ("priors", "prior_set", "draws_set", "scale_draws")  # which parts there are


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    priors
        On the labels, and on `prior_set`.
    prior_set, draws_set
        UCI sets: one for the priors and the noise, one for the draws of the scales.
    splits
        The first so many of the standard splits.
    most_iterations
        Passes over the data; "auto" is the estimator's budget.
    """

    seeds: tuple[int, ...] = tuple(range(10))
    width: int = 100
    points: int = 1_000
    priors: tuple[str, ...] = ("horseshoe", "exponential", "half-cauchy", "gaussian")
    prior_set: str = "yacht"
    draws_set: str = "energy"
    scale_draws: tuple[str, ...] = ("row", "batch")
    splits: int = 20
    most_iterations: int | str = "auto"


FULL = Config()
SMOKE = Config(
    seeds=(0, 1),
    width=5,
    points=50,
    priors=("exponential",),
    draws_set="yacht",
    scale_draws=(),
    splits=2,
    most_iterations=10,
)


def data_files(config: Config) -> tuple[str, ...]:
    """Those of the two UCI sets."""
    sets = dict.fromkeys((config.prior_set, config.draws_set))
    return tuple(file for name in sets for file in datasets.uci_files(name))


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """Priors on the labels, priors and noise on one set, draws on the other."""
    one, other = config.prior_set, config.draws_set
    found = {f"labels/{p}": partial(labels, config, p) for p in config.priors}
    for prior in config.priors:
        about = DEFAULT | {"set": one, "prior": prior}
        found[f"{one}/{prior}"] = partial(
            splits, config, data, about, PRIORS.get(prior, prior)
        )
    about = DEFAULT | {"set": one, "noise": "Gamma(6, 6)"}
    found[f"{one}/Gamma(6, 6)"] = partial(splits, config, data, about, "horseshoe")
    for draws in config.scale_draws:
        about = DEFAULT | {"set": other, "draws": draws}
        prior = SCALE_DRAWS[draws]
        found[f"{other}/{draws}"] = partial(splits, config, data, about, prior)
    return found


def labels(config: Config, prior: str, work: Work) -> list[Row]:
    """The fits of the experiment `structure` under this prior."""
    same = structure.Config(
        widths=(config.width,),
        seeds=config.seeds,
        points=config.points,
        most_iterations=config.most_iterations,
    )
    given = PRIORS.get(prior)
    rows = structure.fits(same, prior, config.width, work, prior=given)
    return [{"set": "labels"} | row for row in rows]


def splits(config: Config, data: Path, about: Row, prior: Any, work: Work) -> list[Row]:
    """A fit to each of the standard splits, all at once."""
    x, y, every = datasets.uci(about["set"], data)
    own = {
        "hidden_layer_sizes": (UNITS,),
        "prior": prior,
        "likelihood": NOISES[about["noise"]],
        "max_iter": config.most_iterations,
    }
    chosen = arguments(presets.PLAIN, own)
    used = every[: config.splits]
    models = [HorseshoeRegressor(random_state=i, **chosen) for i in range(len(used))]
    train = [rows for rows, _ in used]
    fit_many(models, x, y, rows=train, after_fit=work.counter(len(models)))
    found = []
    for index, (model, (_, test)) in enumerate(zip(models, used, strict=True)):
        error = np.asarray(model.predict(x[test])) - y[test]
        found.append(
            about
            | {
                "seed": index,
                "rmse": np.sqrt(np.mean(error**2)),
                "log_likelihood": model.log_density(x[test], y[test]).mean(),
                "nodes_on": model.widths_[0],
                "iterations": model.n_iter_,
            }
        )
    return found


def render(rows: list[Row]) -> dict[str, Figure]:
    """Sorted norms on the labels, by prior."""
    here = where(rows, set="labels")
    if not here:
        return {}
    figure, axes = new_figure(1, 2, height=3.6)
    ranks = np.arange(1, len(here[0]["norms"]) + 1)
    for prior in dict.fromkeys(row["prior"] for row in here):
        norms = np.array([row["norms"] for row in where(here, prior=prior)])
        for ax, values in zip(axes[0], (norms, norms / norms[:, :1]), strict=True):
            low, middle, high = np.maximum(
                np.quantile(values, [0.0, 0.5, 1.0], axis=0), FLOOR
            )
            ax.plot(ranks, middle, color=COLOURS[prior], label=LABELS[prior], lw=1.6)
            ax.fill_between(ranks, low, high, color=COLOURS[prior], alpha=0.15, lw=0)
    axes[0, 1].axhline(0.05, color="k", ls=":", lw=1)
    axes[0, 1].text(1, 0.045, "5 %", ha="left", va="top", fontsize=8)
    names = ("norm of E[w] into the unit", "the same, over the largest")
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("unit, largest norm first")
        ax.set_ylabel(name)
    legend_below(figure, axes[0, 0])
    figure.suptitle(
        f"2-2-1 labels, {ranks[-1]} units: median and range over data sets", fontsize=10
    )
    return {"norms": figure}


def kept(rows: list[Row], prior: str) -> tuple[float, float]:
    """Largest norm as a share of that under the horseshoe, and two standard errors."""
    ours, theirs = (
        {row["seed"]: row["norms"][0] for row in where(rows, set="labels", prior=name)}
        for name in ("horseshoe", prior)
    )
    both = ours.keys() & theirs
    return mean_and_error(theirs[seed] / ours[seed] for seed in both)


def gain(rows: list[Row], one: Row, other: Row, measure: str) -> tuple[float, float]:
    """Mean difference of the first from the second, and two standard errors."""
    first, second = (
        {row["seed"]: row[measure] for row in where(rows, **wanted)}
        for wanted in (one, other)
    )
    return mean_and_error(first[seed] - second[seed] for seed in first.keys() & second)


def table(rows: list[Row]) -> str:
    """Two tables of ours; the paper argues this and prints no numbers."""
    lines = []
    for prior in dict.fromkeys(row["prior"] for row in where(rows, set="labels")):
        here = where(rows, set="labels", prior=prior)
        share = _shown(kept(rows, prior), "{:.0%}")
        lines.append(
            [
                prior,
                structure.spread([row["nodes_on"] for row in here]),
                structure.spread([row["weights_on"] for row in here]),
                _shown(mean_and_error(row["norms"][0] for row in here)),
                share,
                _shown(mean_and_error(row["error_rate"] for row in here), "{:.1%}"),
                len(here),
            ]
        )
    columns = ["prior", "on (range)", "weights (range)", "largest norm"]
    columns += ["of the horseshoe's", "test error", "data sets"]
    text = "2-2-1 labels (two nodes made them):\n\n" + markdown(columns, lines)
    lines = []
    groups = dict.fromkeys(
        (row["set"], row["prior"], row["noise"], row["draws"])
        for row in rows
        if row["set"] != "labels"
    )
    for name, prior, noise, draws in groups:
        here = where(rows, set=name, prior=prior, noise=noise, draws=draws)
        lines.append(
            [
                name,
                prior,
                noise,
                draws,
                _shown(mean_and_error(row["rmse"] for row in here), "{:.3f}"),
                _shown(mean_and_error(row["log_likelihood"] for row in here), "{:.3f}"),
                structure.spread([row["nodes_on"] for row in here]),
                len(here),
            ]
        )
    columns = ["set", "prior", "noise prior", "scales drawn for each", "RMSE"]
    columns += ["log-likelihood", "on (range)", "splits"]
    return (
        f"{text}\nUCI sets, {UNITS} units:\n\n{markdown(columns, lines)}\n"
        "± two standard errors over data sets or splits. On and weights: as in the "
        "experiment structure. The paper gives no numbers for these.\n"
    )


def _shown(pair: tuple[float, float], form: str = "{:.2f}") -> str:
    known = (form.format(value) for value in pair if not math.isnan(value))
    return " ± ".join(known)


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper argues of other priors, in its words, and what we say of ours.

    A difference counts where it is over two standard errors.
    """
    return [
        _scales_are_low(rows),
        _prediction_suffers(rows),
        _no_sparsity(rows),
        _both_necessary(rows),
        _predicts_no_worse(rows),
        _holds_back(
            rows,
            "Ours: the Gamma(6, 6) prior on the noise holds the fit back",
            {"noise": "Gamma(6, 6)"},
        ),
        _holds_back(
            rows,
            "Ours: scales drawn once for a whole batch hold the fit back",
            {"draws": "batch"},
        ),
    ]


def _waits(text: str) -> Claim:
    return Claim(text, "not all runs are there yet", "waits for results")


def _scales_are_low(rows: list[Row]) -> Claim:
    """Holds when the largest norm is smaller than under the horseshoe."""
    text = 'Exponential node scales: "all scales are forced artificially low"'
    here = where(rows, set="labels")
    if not (where(here, prior="horseshoe") and where(here, prior="exponential")):
        return _waits(text)
    share, error = kept(rows, "exponential")
    return Claim(
        text,
        f"the largest norm is {share:.0%} ± {error:.0%} of the horseshoe's",
        verdict(holds=share + error < 1, partly=False),
    )


def _prediction_suffers(rows: list[Row]) -> Claim:
    """Holds when both scores on the UCI set are worse, partly when one is."""
    text = 'Exponential node scales: "prediction suffers"'
    here = [row for row in rows if row["set"] != "labels"]
    other = DEFAULT | {"prior": "exponential"}
    if not (where(here, **DEFAULT) and where(here, **other)):
        return _waits(text)
    name = where(here, **other)[0]["set"]
    here = where(here, set=name)
    lost, lost_error = gain(here, DEFAULT, other, "log_likelihood")
    rmse, rmse_error = gain(here, other, DEFAULT, "rmse")
    worse = [lost > lost_error, rmse > rmse_error]
    return Claim(
        text,
        f"{name}, against the horseshoe: log-likelihood {-lost:+.2f} ± "
        f"{lost_error:.2f}, RMSE {rmse:+.2f} ± {rmse_error:.2f}",
        verdict(holds=all(worse), partly=any(worse)),
    )


def _more_on(rows: list[Row], prior: str) -> tuple[bool, str] | None:
    """Whether more nodes are on than under the horseshoe, on the labels."""
    one, other = ({"set": "labels", "prior": name} for name in (prior, "horseshoe"))
    if not (where(rows, **one) and where(rows, **other)):
        return None
    more, error = gain(rows, one, other, "nodes_on")
    norms, norms_error = gain(rows, one, other, "weights_on")
    return more > error, (
        f"{more:+.1f} ± {error:.1f} nodes on (weights over 5 % of the largest: "
        f"{norms:+.1f} ± {norms_error:.1f})"
    )


def _no_sparsity(rows: list[Row]) -> Claim:
    """Holds when more nodes are on than under the horseshoe."""
    text = 'Half-Cauchy node scales without the layer\'s: "we will not have sparsity"'
    found = _more_on(rows, "half-cauchy")
    if found is None:
        return _waits(text)
    more, told = found
    told = f"2-2-1 labels, against the horseshoe: {told}"
    return Claim(text, told, verdict(holds=more, partly=False))


def _both_necessary(rows: list[Row]) -> Claim:
    """Holds when more nodes are on without either, partly without one of the two."""
    text = (
        '"Both the shrinkage to zero and the heavy tails of the horseshoe prior are '
        'necessary to get the model selection that we require"'
    )
    found = {prior: _more_on(rows, prior) for prior in ("exponential", "half-cauchy")}
    known = {prior: pair for prior, pair in found.items() if pair is not None}
    if len(known) < len(found):
        return _waits(text)
    more = [pair[0] for pair in known.values()]
    told = "; ".join(f"{prior} {pair[1]}" for prior, pair in known.items())
    return Claim(
        text,
        f"2-2-1 labels, against the horseshoe: {told}",
        verdict(holds=all(more), partly=any(more)),
    )


def _predicts_no_worse(rows: list[Row]) -> Claim:
    """Holds when it is not worse than either by over two standard errors."""
    text = (
        "Ours: spike and heavy tail together predict no worse than one without the "
        "other"
    )
    here = [row for row in rows if row["set"] != "labels"]
    others = [DEFAULT | {"prior": prior} for prior in ("exponential", "half-cauchy")]
    if not all(where(here, **wanted) for wanted in (DEFAULT, *others)):
        return _waits(text)
    name = where(here, **others[0])[0]["set"]
    here = where(here, set=name)
    gains = [gain(here, DEFAULT, other, "log_likelihood") for other in others]
    level = [mean >= -error for mean, error in gains]
    shown = " and ".join(f"{mean:+.2f} ± {error:.2f}" for mean, error in gains)
    return Claim(
        text,
        f"{name}, log-likelihood against exponential and half-Cauchy: {shown}",
        verdict(holds=all(level), partly=any(level)),
    )


def _holds_back(rows: list[Row], text: str, other: Row) -> Claim:
    """That another choice has a lower log-likelihood than the default one."""
    against = where(rows, **other)
    here = where(rows, set=against[0]["set"]) if against else []
    if not where(here, **DEFAULT):
        return _waits(text)
    density, error = gain(here, DEFAULT, other, "log_likelihood")
    rmse, rmse_error = gain(here, other, DEFAULT, "rmse")
    return Claim(
        text,
        f"{against[0]['set']}: log-likelihood {-density:+.2f} ± {error:.2f}, RMSE "
        f"{rmse:+.2f} ± {rmse_error:.2f}",
        verdict(holds=density > error, partly=density > 0),
    )
