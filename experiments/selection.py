"""Whether the ELBO chooses the network that test rows would choose.

One hidden layer of several widths, under three priors, each with the collapsed and with
the exact form of the half-Cauchy KL terms, on six data sets: the cubic, labels of a
2-2-1 network, and four tables of PMLB. KL annealing over various shares of the steps
(none, a fifth, more than half) ends in various local optima. Each fit is judged by

    collapsed ELBO   the training objective of the default, at KL weight 1
    exact ELBO       the same with exact KL terms: a bound on the same log evidence
    IWAE             the mean over groups of K draws of
                     ln 1/K sum_k p(y, theta_k) / q(theta_k)

each on the training rows, and by the mean log density of test rows. A draw theta of
IWAE has all weights and scales, and one set for all rows, so that the IWAE is a lower
bound on the log evidence; the noise precision is integrated. With K = 1 it is the exact
ELBO but for that. Its looseness is unknown where the log evidence is; on small networks
annealed importance sampling (AIS) estimates the log evidence.

An objective "selects" within a set of fits of one data set, such as the widths under
one prior, if its choice has nearly the test log density of the best choice. The loss is
the difference in nats a point, averaged over the sets of a data set. The rule, written
before the run: over all data sets of a kind, "holds" when the mean loss plus two
standard errors is under 0.05 nats; "holds partly" when the mean loss less two standard
errors is; else "does not hold". The standard error is over data sets (cubic and 2-2-1)
or over tables. The best choice is the best on the same test rows, so that the loss is
never negative, and is a little too large for all objectives.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy import stats

from farrier import (
    Gaussian,
    Horseshoe,
    HorseshoeClassifier,
    HorseshoeRegressor,
    presets,
)
from farrier.core.scales import (
    ExactHalfCauchy,
    HalfCauchy,
)
from farrier.datasets import cubic, two_two_one
from farrier.infer.sample.target import (
    Target,
)

from . import datasets
from ._evidence import (
    annealed_weights,
    effective,
    importance_bound,
    log_mean,
    sampled_terms,
    step_sizes,
    under,
)
from ._harness import Claim, Row, Work, markdown, mean_and_error, verdict, where
from ._models import classified, fit_each, fit_to_parts, network_of
from .plots import Figure, legend_below, new_figure
from .settings import arguments

HOURS = "about an hour on 2 cores"
CUBIC, LABELS_221, EVIDENCE = "cubic", "two-two-one", "evidence"
TABLES = ("560_bodyfat", "1096_FacultySalaries", "547_no2", "595_fri_c0_1000_10")
PRIORS: dict[str, dict[str, Any]] = {
    "horseshoe": {"collapsed": Horseshoe(), "exact": Horseshoe(half_cauchy="exact")},
    "narrow": {
        "collapsed": Horseshoe(node_scale=0.01),
        "exact": Horseshoe(node_scale=0.01, half_cauchy="exact"),
    },
    "gaussian": {"collapsed": Gaussian()},
}
STYLES = {"horseshoe": "#1f6f8b", "narrow": "#6a9a3b", "gaussian": "#c05a2e"}
OBJECTIVES = {
    "elbo_collapsed": "collapsed ELBO",
    "elbo_exact": "exact ELBO",
    "iwae_50": "IWAE, K = 50",
    "iwae_all": "IWAE, all draws",
}
SETS = {
    "widths": "across widths, within a prior",
    "priors": "across priors, at a width",
    "annealings": "between KL annealings, at a prior and a width",
}
MOST_LOSS = 0.05  # nats a point
NONE = 0.0  # KL annealing
SETTLED = 0.5  # nats: largest difference of two schedules of AIS


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    cubic_seeds, label_seeds
        One data set, and one fit of each kind to it, for each.
    most_rows
        Training rows of a table; at most four fifths of its rows. The rest are test
        rows.
    elbo_draws
        Draws of the data term of the ELBO, each with its own noise for each row.
    weight_draws
        Draws of all weights for the IWAE.
    group
        K of the IWAE that is averaged over groups.
    annealings
        Shares of the steps over which the KL weight rises.
    chains, repeats, temperatures
        Of AIS: chains in one estimate, estimates, and steps of the two schedules.
    """

    annealings: tuple[float, ...] = (0.2, 0.8)
    cubic_widths: tuple[int, ...] = (2, 10, 50, 200, 1_000)
    label_widths: tuple[int, ...] = (10, 50, 1_000)
    table_widths: tuple[int, ...] = (10, 50, 1_000)
    evidence_widths: tuple[int, ...] = (2, 10)
    priors: tuple[str, ...] = tuple(PRIORS)
    tables: tuple[str, ...] = TABLES
    cubic_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    label_seeds: tuple[int, ...] = (0, 1)
    splits: int = 2
    most_rows: int = 300
    max_iter: int | str = "auto"
    test_points: int = 1_000
    elbo_draws: int = 400
    weight_draws: int = 2_000
    group: int = 50
    chains: int = 32
    repeats: int = 4
    temperatures: tuple[int, ...] = (1_000, 4_000)
    test_seed: int = 1_000


FULL = Config()
SMOKE = Config(
    annealings=(0.2,),
    cubic_widths=(2,),
    label_widths=(),
    table_widths=(),
    evidence_widths=(2,),
    priors=("gaussian",),
    tables=(),
    cubic_seeds=(0,),
    max_iter=5,
    test_points=20,
    elbo_draws=4,
    weight_draws=8,
    group=4,
    chains=2,
    repeats=2,
    temperatures=(3, 6),
)
PLAN = ("cubic_widths", "label_widths", "table_widths", "evidence_widths", "tables")
PLAN += ("priors",)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One for each data set and width, and one for each log evidence."""
    made: dict[str, Callable[[Work], list[Row]]] = {}
    for width in config.cubic_widths:
        made[f"{CUBIC}/{width}"] = partial(cubic_fits, config, width)
    for width in config.label_widths:
        made[f"{LABELS_221}/{width}"] = partial(label_fits, config, width)
    for name in config.tables:
        for width in config.table_widths:
            made[f"{name}/{width}"] = partial(table_fits, config, data, name, width)
    for width in config.evidence_widths:
        for prior in config.priors:
            part = partial(evidences, config, prior, width)
            made[f"{EVIDENCE}/{prior}/{width}"] = part
    return made


def data_files(config: Config) -> tuple[str, ...]:
    """The tables."""
    return tuple(datasets.pmlb_regression_file(name) for name in config.tables)


# -- fits -------------------------------------------------------------------------


def kinds(config: Config, annealings: Sequence[float]) -> list[Row]:
    """All priors, forms of the KL terms and annealings of one width."""
    return [
        {"prior": prior, "form": form, "annealing": annealing}
        for prior in config.priors
        for form in PRIORS[prior]
        for annealing in annealings
    ]


def settings(config: Config, kind: Row, width: int, *given: Row) -> dict[str, Any]:
    """Arguments of the estimator of one kind of fit."""
    chosen: dict[str, Any] = {
        "hidden_layer_sizes": (width,),
        "prior": PRIORS[kind["prior"]][kind["form"]],
        "max_iter": config.max_iter,
        "kl_annealing": kind["annealing"],
    }
    return arguments(*given, chosen)


def cubic_fits(config: Config, width: int, work: Work) -> list[Row]:
    """The settings of the headline figure, at each KL annealing and without any."""
    annealings = (NONE, *config.annealings)
    runs = [(kind, s) for kind in kinds(config, annealings) for s in config.cubic_seeds]
    models = [
        HorseshoeRegressor(
            random_state=seed, **settings(config, kind, width, presets.PLAIN)
        )
        for kind, seed in runs
    ]
    fit_each(models, [cubic(seed=seed) for _, seed in runs], work)
    found = []
    for model, (kind, seed) in zip(models, runs, strict=True):
        x, y = cubic(config.test_points, seed=config.test_seed + seed)
        density = float(model.log_density(x, y).mean())
        found.append(_row(config, model, CUBIC, seed, width, kind, density))
    return found


def label_fits(config: Config, width: int, work: Work) -> list[Row]:
    """Labels of a network with two nodes: as many rows as a table has."""
    each = kinds(config, config.annealings)
    runs = [(kind, seed) for kind in each for seed in config.label_seeds]
    models = [
        HorseshoeClassifier(random_state=seed, **settings(config, kind, width))
        for kind, seed in runs
    ]
    tables = [two_two_one(config.most_rows, seed=seed) for _, seed in runs]
    fit_each(models, tables, work)
    found = []
    for model, (kind, seed) in zip(models, runs, strict=True):
        test = two_two_one(config.test_points, seed=config.test_seed + seed)
        density = classified(model, *test)["log_density"]
        found.append(_row(config, model, LABELS_221, seed, width, kind, density))
    return found


def table_fits(
    config: Config, data: Path, name: str, width: int, work: Work
) -> list[Row]:
    """The default likelihood on splits of one table."""
    X, y = datasets.pmlb_regression(name, data)
    size = min(config.most_rows, 4 * len(y) // 5)
    orders = [
        np.random.default_rng(split).permutation(len(y))
        for split in range(config.splits)
    ]
    each = kinds(config, config.annealings)
    runs = [(kind, split) for kind in each for split in range(config.splits)]
    models = [
        HorseshoeRegressor(random_state=split, **settings(config, kind, width))
        for kind, split in runs
    ]
    fit_to_parts(models, X, y, [orders[s][:size] for _, s in runs], work)
    found = []
    for model, (kind, split) in zip(models, runs, strict=True):
        test = orders[split][size:]
        density = float(model.log_density(X[test], y[test]).mean())
        found.append(_row(config, model, name, split, width, kind, density))
    return found


def _row(
    config: Config,
    model: HorseshoeClassifier | HorseshoeRegressor,
    data: str,
    replicate: int,
    width: int,
    kind: Row,
    density: float,
) -> Row:
    about = {"data": data, "replicate": replicate, "width": width}
    return (
        about
        | kind
        | {"log_density": density, "nodes_on": model.widths_[0]}
        | objectives(config, model)
    )


# -- objectives -------------------------------------------------------------------


def objectives(
    config: Config, model: HorseshoeClassifier | HorseshoeRegressor
) -> dict[str, Any]:
    """Both ELBOs and the IWAEs of one fit, on its training rows."""
    fitted = model.model_
    assert fitted.sample is not None
    network = network_of(model)
    if network.widths != fitted.built_widths:
        raise ValueError(
            f"Training removed nodes: {fitted.built_widths} became {network.widths}, "
            "and the KL terms of the nodes that went are not known. Use fewer rows."
        )
    exact = under(network, ExactHalfCauchy)
    data_term, log_weights = (
        np.asarray(values, float)
        for values in sampled_terms(
            exact,
            fitted.sample,
            config.elbo_draws,
            config.weight_draws,
            key=jr.key(fitted.seed),
        )
    )
    collapsed = under(network, HalfCauchy)
    kl = [float(np.sum([*n.kl(key=jr.key(0)).values()])) for n in (collapsed, exact)]
    grouped = importance_bound(log_weights, config.group)
    return {
        "elbo_collapsed": data_term.mean() - kl[0],
        "elbo_exact": data_term.mean() - kl[1],
        "elbo_error": data_term.std() / math.sqrt(len(data_term)),
        "iwae_1": log_weights.mean(),
        "iwae_50": grouped[0],
        "iwae_error": grouped[1],
        "iwae_all": importance_bound(log_weights, len(log_weights))[0],
        "effective": effective(log_weights),
        "weight_sd": log_weights.std(),
    }


# -- log evidence by annealed importance sampling ---------------------------------


def evidences(config: Config, prior: str, width: int, work: Work) -> list[Row]:
    """The log evidence of one small network, on each cubic data set."""
    found = []
    for number, seed in enumerate(config.cubic_seeds):
        target = cubic_target(prior, width, seed)
        for temperatures in config.temperatures:
            keys = jr.split(jr.key(seed), config.repeats + 1)
            sizes = step_sizes(target, config.chains, temperatures, key=keys[0])
            estimates = [
                log_mean(annealed_weights(target, config.chains, sizes, key=key))
                for key in keys[1:]
            ]
            found.append(
                {
                    "data": EVIDENCE,
                    "replicate": seed,
                    "prior": prior,
                    "width": width,
                    "temperatures": temperatures,
                    "log_evidence": log_mean(estimates),
                    "error": np.std(estimates, ddof=1) / math.sqrt(len(estimates)),
                    "step_size": float(sizes[-1]),
                }
            )
        work.done(number + 1, len(config.cubic_seeds))
    return found


def cubic_target(prior: str, width: int, seed: int) -> Target:
    """The density of a network on a cubic data set, in the units of its fits."""
    given = arguments(
        presets.PLAIN,
        {"hidden_layer_sizes": (width,), "prior": PRIORS[prior]["collapsed"]},
        {"max_iter": 1},
    )
    model = HorseshoeRegressor(random_state=seed, **given).fit(*cubic(seed=seed))
    rows = model.model_.sample
    assert rows is not None
    x, y, weight = (jnp.asarray(v, float) for v in (rows.x, rows.y, rows.weight))
    return Target(network_of(model), x, y, weight)


# -- what each objective chooses --------------------------------------------------


def candidates(rows: list[Row], objective: str, question: str) -> list[list[Row]]:
    """Sets of fits of one data set between which the objective chooses.

    The collapsed ELBO compares fits that were trained with it. The other objectives are
    bounds on the same log evidence, whatever a fit was trained with.
    """
    if objective == "elbo_collapsed":
        rows = where(rows, form="collapsed")
    if question != "annealings":
        rows = [row for row in rows if row["annealing"] != NONE]
    fixed = {
        "widths": ("prior", "form", "annealing"),
        "priors": ("width", "annealing"),
        "annealings": ("prior", "form", "width"),
    }[question]
    sets: dict[tuple, list[Row]] = {}
    for row in rows:
        of = tuple(row[name] for name in ("data", "replicate", *fixed))
        sets.setdefault(of, []).append(row)
    return [of for of in sets.values() if len(of) > 1]


def loss(fits: list[Row], objective: str) -> float:
    """Test log density lost by the objective's choice against the best choice."""
    chosen = max(fits, key=lambda row: row[objective])
    return max(row["log_density"] for row in fits) - chosen["log_density"]


def chance(fits: list[Row]) -> float:
    """The same for a choice at random."""
    densities = [row["log_density"] for row in fits]
    return max(densities) - float(np.mean(densities))


def rank_correlation(fits: list[Row], objective: str) -> float:
    """Spearman's, between the objective and the test log density; 0 if constant."""
    columns = [[row[name] for row in fits] for name in (objective, "log_density")]
    if any(len(set(column)) == 1 for column in columns):
        return 0.0
    ranks = [stats.rankdata(column) for column in columns]
    return float(np.corrcoef(ranks)[0, 1])


def of_fits(rows: list[Row]) -> dict[str, list[Row]]:
    """The fits of each data set; the cubic has one for each seed."""
    names = dict.fromkeys(row["data"] for row in rows if row["data"] != EVIDENCE)
    return {name: where(rows, data=name) for name in names}


def per_replicate(
    rows: list[Row], objective: str, question: str, measure: Callable[..., float]
) -> list[float]:
    """A measure of the sets of one data set, averaged for each replicate."""
    numbers = dict.fromkeys(row["replicate"] for row in rows)
    sets = [
        candidates(where(rows, replicate=number), objective, question)
        for number in numbers
    ]
    return [float(np.mean([measure(fits) for fits in of])) for of in sets if of]


def losses(rows: list[Row], objective: str, question: str) -> list[float]:
    """Losses of all data sets of a kind: one for each replicate, or for each table."""
    found = []
    for name, of in of_fits(rows).items():
        each = per_replicate(of, objective, question, lambda f: loss(f, objective))
        if each:
            found += [float(np.mean(each))] if name in TABLES else each
    return found


def groups(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows of the cubic, of the 2-2-1 data, and of all tables."""
    made = {name: where(rows, data=name) for name in (CUBIC, LABELS_221)}
    made["four tables"] = [row for row in rows if row["data"] in TABLES]
    return {name: of for name, of in made.items() if of}


def favourite(fits: Iterable[Row], score: str, question: str) -> str:
    """What is chosen most often: a width, a prior or an annealing."""
    name = question.removesuffix("s")
    named = [row[name] for row in fits]
    choice = max(dict.fromkeys(named), key=named.count)
    return f"{choice} ({named.count(choice)} of {len(named)})"


def table(rows: list[Row]) -> str:
    """Choices and losses; local optima; looseness of the IWAE; the log evidence."""
    return "\n".join(
        part
        for part in (
            choices_table(rows),
            optima_table(rows),
            widths_table(rows),
            evidence_table(rows),
        )
        if part
    )


def choices_table(rows: list[Row]) -> str:
    """For each question, data set and objective: its choice and what it costs."""
    text = ""
    for question, title in SETS.items():
        lines = []
        for name, of in of_fits(rows).items():
            for objective, label in OBJECTIVES.items():
                sets = candidates(of, objective, question)
                if not sets:
                    continue
                best = [max(f, key=lambda r: r["log_density"]) for f in sets]
                chosen = [max(f, key=lambda r: r[objective]) for f in sets]
                lost, random, ranks = (
                    mean_and_error(per_replicate(of, objective, question, measure))
                    for measure in (
                        partial(loss, objective=objective),
                        chance,
                        partial(rank_correlation, objective=objective),
                    )
                )
                lines.append(
                    [
                        name,
                        label,
                        favourite(chosen, objective, question),
                        favourite(best, "log_density", question),
                        f"{lost[0]:.3f} ± {lost[1]:.3f}",
                        f"{random[0]:.3f}",
                        f"{ranks[0]:+.2f} ± {ranks[1]:.2f}",
                    ]
                )
        columns = ["data", "objective", "it chooses", "test rows choose"]
        columns += ["nats a point lost", "lost at random", "rank correlation"]
        if lines:
            text += f"\nChoosing {title}:\n\n" + markdown(columns, lines)
    return text + (
        "\n± two standard errors over data sets or splits; in brackets the number of "
        "choices.\n"
    )


def optima_table(rows: list[Row]) -> str:
    """Each objective with a KL annealing less that without, on the cubic."""
    lines = []
    names = ["elbo_collapsed", "elbo_exact", "iwae_1", "iwae_50", "iwae_all"]
    for (prior, form, annealing, width), pairs in optima(rows).items():
        line: list[Any] = [f"{prior}, {form}", annealing, width]
        for name in (*names, "log_density"):
            gaps = [a[name] - b[name] for a, b in pairs]
            mean, error = mean_and_error(gaps)
            digits = 2 if name == "log_density" else 1
            line.append(
                f"{mean:+.{digits}f} ± {error:.{digits}f} "
                f"({sum(gap > 0 for gap in gaps)} of {len(gaps)})"
            )
        lines.append(line)
    if not lines:
        return ""
    columns = ["prior", "annealing", "units", "collapsed ELBO", "exact ELBO"]
    columns += ["IWAE, K = 1"]
    columns += ["K = 50", "K = all draws", "test, nats a point"]
    text = "The cubic with KL annealing less without, in nats of the data set; in "
    text += "brackets how often the annealed fit is preferred:\n\n"
    return text + markdown(columns, lines)


def optima(rows: list[Row]) -> dict[tuple, list[tuple[Row, Row]]]:
    """For each kind of annealed fit and width: the fit of each seed, and that without.

    Keys are prior, form, annealing and width.
    """
    found: dict[tuple, list[tuple[Row, Row]]] = {}
    for fits in candidates(where(rows, data=CUBIC), "elbo_exact", "annealings"):
        for plain in where(fits, annealing=NONE):
            for row in fits:
                if row is not plain:
                    names = ("prior", "form", "annealing", "width")
                    of = tuple(row[name] for name in names)
                    found.setdefault(of, []).append((row, plain))
    return found


def widths_table(rows: list[Row]) -> str:
    """Objectives and test log density of all kinds of fits, averaged."""
    lines = []
    names = ("data", "prior", "form", "annealing", "width")
    fits = [row for of in of_fits(rows).values() for row in of]
    for key in dict.fromkeys(tuple(row[name] for name in names) for row in fits):
        here = where(fits, **dict(zip(names, key, strict=True)))
        scores = [*OBJECTIVES, "elbo_error", "weight_sd", "effective"]
        mean = {n: np.mean([r[n] for r in here]) for n in (*scores, "log_density")}
        nodes = np.mean([row["nodes_on"] for row in here])
        data, prior, form, annealing, width = key
        lines.append(
            [data, f"{prior}, {form}", annealing, width]
            + [f"{mean[name]:.1f}" for name in OBJECTIVES]
            + [f"{mean['elbo_error']:.2f}", f"{mean['weight_sd']:.1f}"]
            + [f"{mean['effective']:.1f}", f"{mean['log_density']:.3f}", f"{nodes:.1f}"]
        )
    columns = ["data", "prior, trained with", "annealing", "units"]
    columns += [*OBJECTIVES.values()]
    columns += ["error of the ELBO", "sd of ln weight", "effective draws"]
    text = (
        "Means over data sets or splits. Bounds are in nats of all training rows, in "
    )
    text += "the units of the network. An IWAE is loose where the log weights of its "
    text += "draws have a large sd or few draws are effective:\n\n"
    return text + markdown([*columns, "test, nats a point", "nodes on"], lines)


def settled(rows: list[Row]) -> dict[tuple[str, int, int], tuple[Row, bool]]:
    """The longest AIS of each network and data set, and whether it has settled.

    It has when the next shorter schedule is within `SETTLED` and so are two standard
    errors.
    """
    found = {}
    here = where(rows, data=EVIDENCE)
    for key in dict.fromkeys((r["prior"], r["width"], r["replicate"]) for r in here):
        of = where(here, prior=key[0], width=key[1], replicate=key[2])
        *_, short, long = sorted(of, key=lambda r: r["temperatures"])
        gap = abs(long["log_evidence"] - short["log_evidence"])
        found[key] = (long, gap < SETTLED and 2 * long["error"] < SETTLED)
    return found


def evidence_table(rows: list[Row]) -> str:
    """Log evidence by AIS beside the bounds of the fits with the shortest annealing."""
    lines = []
    done = settled(rows)
    for prior, width in dict.fromkeys(key[:2] for key in done):
        here = {key[2]: done[key] for key in done if key[:2] == (prior, width)}
        fits = where(rows, data=CUBIC, prior=prior, width=width)
        shortest = min((r["annealing"] for r in fits if r["annealing"]), default=NONE)
        fits = where(fits, annealing=shortest)
        value, error = mean_and_error(r["log_evidence"] for r, _ in here.values())
        line: list[Any] = [prior, width, f"{value:.2f} ± {error:.2f}"]
        line.append(f"{max(r['error'] for r, _ in here.values()):.2f}")
        line.append(f"{sum(ok for _, ok in here.values())} of {len(here)}")
        for form in ("collapsed", "exact"):
            of = [r for r in where(fits, form=form) if r["replicate"] in here]
            for name in ("elbo_exact", "iwae_50", "iwae_all"):
                gaps = [here[r["replicate"]][0]["log_evidence"] - r[name] for r in of]
                line.append(f"{np.mean(gaps):.1f}" if gaps else "")
        densities = [r["log_density"] for r in fits]
        line.append(f"{np.mean(densities):.2f}" if densities else "")
        lines.append(line)
    if not lines:
        return ""
    columns = ["prior", "units", "log evidence", "largest error", "settled"]
    for form in ("collapsed", "exact"):
        columns += [f"less exact ELBO ({form} fit)", "less IWAE 50", "less IWAE all"]
    text = "Log evidence of small networks on the cubic by AIS (mean over data sets, ± "
    text += "two standard errors over them, which contain the differences between the "
    text += f"data sets). Settled: two schedules within {SETTLED} nats:\n\n"
    return text + markdown([*columns, "test, nats a point"], lines)


def claims(rows: list[Row]) -> list[Claim]:
    """For each question and objective: whether it selects, by the rule above."""
    found = []
    for question, title in SETS.items():
        for objective, label in OBJECTIVES.items():
            text = f"Ours: the {label} selects {title}."
            lost = {
                name: mean_and_error(each)
                for name, of in groups(rows).items()
                if len(each := losses(of, objective, question)) > 1
            }
            if not lost:
                waits = "there are no two data sets of a kind yet"
                found.append(Claim(text, waits, "waits for results"))
                continue
            evidence = ", ".join(
                f"{name} {mean:.3f} ± {error:.3f}"
                for name, (mean, error) in lost.items()
            )
            found.append(
                Claim(
                    text,
                    f"Nats a point lost by its choice: {evidence}.",
                    verdict(
                        holds=all(m + e < MOST_LOSS for m, e in lost.values()),
                        partly=all(m - e < MOST_LOSS for m, e in lost.values()),
                    ),
                )
            )
    return found


def render(rows: list[Row]) -> dict[str, Figure]:
    """Objective against test log density, one panel for each data set."""
    names = [*of_fits(rows)]
    if not names:
        return {}
    return {
        f"selection_{objective}": objective_figure(rows, objective, label)
        for objective, label in OBJECTIVES.items()
        if objective in ("elbo_exact", "iwae_all")
    }


def objective_figure(rows: list[Row], objective: str, label: str) -> Figure:
    """Colours are priors; filled: annealed, the darker the shorter; larger: wider."""
    of = of_fits(rows)
    figure, axes = new_figure(-(-len(of) // 3), min(3, len(of)), height=6.4)
    for ax, (name, fits) in zip(axes.flat, of.items(), strict=False):
        for prior, colour in STYLES.items():
            for form, marker in (("collapsed", "o"), ("exact", "s")):
                shares = sorted({row["annealing"] for row in fits})
                for annealing in shares:
                    here = where(fits, prior=prior, form=form, annealing=annealing)
                    if not here:
                        continue
                    size = [8 + 10 * math.log2(row["width"]) for row in here]
                    ax.scatter(
                        [row[objective] for row in here],
                        [row["log_density"] for row in here],
                        s=size,
                        marker=marker,
                        facecolors=colour if annealing else "none",
                        edgecolors=colour,
                        alpha=0.35 if annealing == shares[-1] else 0.8,
                    )
        ax.set_title(name, fontsize=10)
        ax.tick_params(labelsize=8)
        ax.set_xlabel(f"{label} (nats)")
    for ax in axes[:, 0]:
        ax.set_ylabel("test log density (nats a point)")
    for ax in [*axes.flat][len(of) :]:
        ax.set_visible(False)
    for prior, colour in STYLES.items():
        axes[0, 0].scatter([], [], color=colour, label=prior)
    grey: dict[str, Any] = {"edgecolors": "0.3", "s": 40}
    axes[0, 0].scatter([], [], color="0.3", alpha=0.35, label="longest KL annealing")
    axes[0, 0].scatter([], [], marker="o", color="0.3", label="trained collapsed")
    axes[0, 0].scatter([], [], marker="s", color="0.3", label="trained exact")
    axes[0, 0].scatter([], [], facecolors="none", label="no KL annealing", **grey)
    legend_below(figure, axes[0, 0])
    return figure
