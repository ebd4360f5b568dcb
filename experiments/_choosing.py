"""How settings are chosen: on tables that no result is scored on, by a fixed rule.

`choose` (regression) and `choose-classes` are the two studies. Each compares candidates
with a reference, on the same splits of the same tables. The reference is the default
that is to be replaced or to stay. All candidates give all settings themselves, so that
their rows stay valid when a default changes.

The rule. The difference of a candidate to the reference on a table is the difference of
their mean log densities on held-out rows, averaged over the splits and clipped to ± 1
nat, so that no table decides alone. Over the tables it has a mean and a standard error.
The log density is the criterion because it is a proper score of the whole predictive
distribution, and its differences do not depend on the units of the target. Repeated
targets can inflate it, so a candidate also needs a second proper score (CRPS or Brier)
that is not worse by more than two standard errors.

1. A candidate whose mean difference is more than two standard errors above 0 replaces
   the reference. Of several, those count as equal whose mean is within one standard
   error (of the difference over the tables) of the highest; the fastest of them is
   chosen.
2. Otherwise, a candidate replaces it that is level and has another advantage; of
   several, the one with the highest mean. Level: within two standard errors of 0, and
   at most 0.05 nats worse at their lower end, so that noise does not count as equality.
   Advantages: the one listed with the candidate, or at most 0.8 x the seconds of the
   reference.
3. Otherwise the reference stays.

A table counts as better or worse from 0.01 nats on, else as level; these counts and the
median are reported and do not decide.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeClassifier, HorseshoeRegressor, Mclmc
from farrier.train.config import epochs_for

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
from .plots import Figure, legend_below, new_figure
from .settings import arguments, flat

PLAN = ("tables", "candidates")
CLIP = 1.0  # nats that one table may contribute
MARGIN = 0.05  # nats that a level candidate may lose
FASTER = 0.8  # of the seconds of the reference
TABLE_LEVEL = 0.01  # nats
# Of smoke runs: whether everything runs.
TRIAL: dict[str, Any] = {"hidden_layer_sizes": (4,), "max_iter": 2, "n_draws": 8}
TRIAL_CHAINS = Mclmc(chains=2, warm_up=150, draws=4, steps=2)

Estimator = HorseshoeClassifier | HorseshoeRegressor
Candidate = Callable[[int], dict[str, Any]]
# Defaults of the package that each candidate replaces by settings of its own.
GIVEN_BY_CANDIDATES = (
    "farrier.core.priors.PRIORS",
    "farrier.estimators.base.NetworkEstimator",
    "farrier.estimators.classifier.HorseshoeClassifier",
    "farrier.estimators.regressor.HorseshoeRegressor",
    "farrier.train.config.FEW_ROWS",
    "farrier.train.config.MAX_STEPS",
    "farrier.train.config.STEPS",
    "farrier.train.config.STEPS_FEW_ROWS",
    "farrier.train.config.STEPS_PER_ROW",
    "farrier.train.config.Training",
)
MARKED_ROWS = (100, 1_000, 2_000)  # at which settings belong to the mark of a part
Table = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    tables, candidates
        Those that are used, of all of the study; empty for all.
    train_rows, held_rows
        Maximum numbers of rows of a split.
    held_out
        Share of the rows of a table that is held out.
    trial
        Arguments that every estimator is given.
    """

    tables: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ()
    splits: int = 2
    train_rows: int = 2_000
    held_rows: int = 2_000
    held_out: float = 0.3
    trial: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Group:
    """Candidates that are compared with each other.

    Parameters
    ----------
    tables
        The tables that they are fitted to.
    candidates
        All settings of each candidate that may be a default some day, for a number of
        training rows. The first candidate is the reference.
    shipped
        Name of the candidate that is the default of the package.
    advantages
        Why a candidate would be preferred if its predictions are level.
    splits
        Maximum number of splits of each table.
    """

    tables: tuple[str, ...]
    candidates: dict[str, Candidate]
    shipped: str
    advantages: dict[str, str] = field(default_factory=dict)
    splits: int = 2

    @property
    def reference(self) -> str:
        """Name of the candidate that the others are compared with."""
        return next(iter(self.candidates))


@dataclass(frozen=True)
class Gain:
    """A candidate compared with the reference, over the tables that both have.

    Parameters
    ----------
    differences
        Of the mean log densities, by table.
    mean, error
        Of the clipped differences: their mean and two standard errors.
    second, second_error
        The same of the second score, more than 0 where the candidate is better.
    seconds
        Median over the tables of the ratio of its seconds to those of the reference.
    """

    differences: dict[str, float]
    mean: float
    error: float
    second: float
    second_error: float
    seconds: float

    @property
    def sound(self) -> bool:
        """Whether the second score is not worse."""
        return self.second >= -self.second_error

    @property
    def better(self) -> bool:
        """Whether it replaces the reference by its log density."""
        return self.sound and self.mean > self.error

    @property
    def level(self) -> bool:
        """Whether its log density is level with that of the reference."""
        near = abs(self.mean) <= self.error
        return self.sound and near and self.mean - self.error >= -MARGIN

    def equals(self, best: "Gain") -> bool:
        """Whether the mean is within one standard error of that of the best."""
        gaps = [
            np.clip(best.differences[name], -CLIP, CLIP)
            - np.clip(self.differences[name], -CLIP, CLIP)
            for name in best.differences
            if name in self.differences
        ]
        mean, two_errors = mean_and_error(gaps)
        return mean <= two_errors / 2

    @property
    def counts(self) -> tuple[int, int, int]:
        """Numbers of tables on which it is better, level and worse."""
        values = np.array([*self.differences.values()])
        up, down = (values >= TABLE_LEVEL).sum(), (values <= -TABLE_LEVEL).sum()
        return int(up), len(values) - int(up) - int(down), int(down)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: its tables, its candidates and its scores.

    Parameters
    ----------
    read, file
        The inputs and targets of a table, and its file under the data folder.
    left_out
        Tables of the data folder that are not used, with the reason.
    scores
        Scores of a fitted model on held-out rows; `log_density` is one of them.
    second
        Name of the second score of the rule, lower being better.
    titles
        Of the scores in the tables.
    """

    estimator: type[HorseshoeClassifier] | type[HorseshoeRegressor]
    groups: dict[str, Group]
    left_out: dict[str, str]
    read: Callable[[str, Path], Table]
    file: Callable[[str], str]
    scores: Callable[[Any, np.ndarray, np.ndarray], Row]
    second: str
    titles: dict[str, str]

    # -- the runs ------------------------------------------------------------------

    def parts(
        self, config: Config, data: Path
    ) -> dict[str, Callable[[Work], list[Row]]]:
        """One for each table and candidate: `variational/503_wind/relu`."""
        return {
            f"{group}/{name}/{candidate}": partial(
                self.fit, config, data, group, name, candidate
            )
            for group, of in self.groups.items()
            for name in of.tables
            if not config.tables or name in config.tables
            for candidate in of.candidates
            if not config.candidates or candidate in config.candidates
        }

    def settings_of(self, config: Config, part: str) -> dict[str, Any]:
        """What a part depends on, with all arguments of its estimator."""
        group, _, candidate = part.split("/")
        models = [self.model(config, group, candidate, n, 0) for n in MARKED_ROWS]
        given = [written(flat(model.get_params(deep=False))) for model in models]
        splits = min(config.splits, self.groups[group].splits)
        changed = {"given": given, "splits": splits}
        return settings_without(config, *PLAN, "trial") | changed

    def data_files(self, config: Config) -> tuple[str, ...]:
        """The tables."""
        names = dict.fromkeys(n for of in self.groups.values() for n in of.tables)
        return tuple(
            self.file(n) for n in names if not config.tables or n in config.tables
        )

    def model(
        self, config: Config, group: str, candidate: str, rows: int, split: int
    ) -> Estimator:
        """A candidate for this number of training rows."""
        of = self.groups[group]
        given = arguments(of.candidates[candidate](rows), config.trial)
        if config.trial and "refine" in given:
            given |= {"refine": TRIAL_CHAINS, "n_restarts": TRIAL_CHAINS.chains}
        return self.estimator(random_state=config.seed + split, **given)

    def fit(
        self,
        config: Config,
        data: Path,
        group: str,
        name: str,
        candidate: str,
        work: Work,
    ) -> list[Row]:
        """One candidate on the splits of one table."""
        X, y = read_once(self.read, name, data)
        copies, splits = split_rows(X, y, config)
        splits = splits[: self.groups[group].splits]
        models = [
            self.model(config, group, candidate, len(train), split)
            for split, (train, _) in enumerate(splits)
        ]
        began = time.monotonic()
        fit_to_parts(models, X, y, [train for train, _ in splits], work)
        seconds = (time.monotonic() - began) / len(models)
        about = {"group": group, "table": name, "candidate": candidate}
        about |= {"columns": X.shape[1], "copies": copies, "seconds": seconds}
        return [
            about
            | {"split": split, "train": len(train), "held": len(held)}
            | self.scores(model, X[held], y[held])
            for split, (model, (train, held)) in enumerate(
                zip(models, splits, strict=True)
            )
        ]

    # -- the rule ------------------------------------------------------------------

    def gains(self, rows: list[Row], group: str) -> dict[str, Gain]:
        """Each candidate of a group, compared with the reference."""
        means = means_of(where(rows, group=group), self.second)
        reference = self.groups[group].reference
        others = [c for c in self.groups[group].candidates if c != reference]
        return {
            candidate: gain_of(means[candidate], means[reference], self.second)
            for candidate in others
            if means.get(candidate, {}).keys() & means.get(reference, {}).keys()
        }

    def chosen(self, rows: list[Row], group: str) -> str:
        """The candidate that the rule makes the default."""
        of, gains = self.groups[group], self.gains(rows, group)
        better = {c: gain for c, gain in gains.items() if gain.better}
        if better:
            best = max(better.values(), key=lambda gain: gain.mean)
            equal = [c for c, gain in better.items() if gain.equals(best)]
            return min(equal, key=lambda c: gains[c].seconds)
        level = [c for c, gain in gains.items() if self._preferred(of, c, gain)]
        return max(level, key=lambda c: gains[c].mean, default=of.reference)

    def _preferred(self, group: Group, candidate: str, gain: Gain) -> bool:
        advantage = candidate in group.advantages or gain.seconds <= FASTER
        return gain.level and advantage

    def complete(self, rows: list[Row], group: str) -> bool:
        """Whether each candidate has rows of each table."""
        pairs = {(r["table"], r["candidate"]) for r in where(rows, group=group)}
        of = self.groups[group]
        return pairs >= {(t, c) for t in of.tables for c in of.candidates}

    # -- what is made of the rows --------------------------------------------------

    def claims(self, rows: list[Row]) -> list[Claim]:
        """Of each group: whether the shipped default is what the rule chooses."""
        return [self._claim(rows, group) for group in self.groups]

    def _claim(self, rows: list[Row], group: str) -> Claim:
        shipped = self.groups[group].shipped
        text = f'Ours: the rule chooses the settings that are the default, "{shipped}" '
        text += f"({group}, on tables that are not scored)."
        if not self.complete(rows, group):
            return Claim(text, "Not all parts have been run.", "waits for results")
        gains = self.gains(rows, group)
        chosen = self.chosen(rows, group)
        count = len(self.groups[group].tables)
        evidence = f"Mean clipped differences in log density over {count} tables, ± "
        evidence += "two standard errors: "
        evidence += "; ".join(
            f"{c} {gain.mean:+.3f} ± {gain.error:.3f}" for c, gain in gains.items()
        )
        evidence += f". The rule chooses: {chosen}."
        return Claim(text, evidence, verdict(holds=chosen == shipped, partly=False))

    def table(self, rows: list[Row]) -> str:
        """What the rule chooses, each candidate over the tables, and each table."""
        text = ""
        for group in self.groups:
            if of := where(rows, group=group):
                text += self._summary(of, group) + "\n" + self._each(of, group) + "\n"
        reasons = "".join(f"- {name}: {why}\n" for name, why in self.left_out.items())
        return f"{text}Tables that are left out:\n\n{reasons}"

    def _summary(self, rows: list[Row], group: str) -> str:
        of, gains = self.groups[group], self.gains(rows, group)
        title = self.titles[self.second]
        columns = ["candidate", "tables", "gain ± SE (nats)", "not clipped", "median"]
        columns += ["better / level / worse", f"gain in {title} ± SE"]
        columns += ["seconds, ratio", "by the rule"]
        lines = [
            [
                candidate,
                len(gain.differences),
                f"{gain.mean:+.4f} ± {gain.error / 2:.4f}",
                f"{np.mean([*gain.differences.values()]):+.4f}",
                f"{np.median([*gain.differences.values()]):+.4f}",
                " / ".join(map(str, gain.counts)),
                f"{gain.second:+.4f} ± {gain.second_error / 2:.4f}",
                f"{gain.seconds:.2f}",
                self._outcome(of, candidate, gain),
            ]
            for candidate, gain in gains.items()
        ]
        complete = self.complete(rows, group)
        state = "" if complete else ", of the parts that have been run"
        text = f'## {group}\n\nCompared with "{of.reference}". '
        text += f"The rule chooses{state}: **{self.chosen(rows, group)}**.\n\n"
        return text + markdown(columns, lines)

    def _outcome(self, group: Group, candidate: str, gain: Gain) -> str:
        if not np.isfinite(gain.error):
            return "too few tables"
        if gain.better:
            return "better"
        if gain.level:
            why = group.advantages.get(candidate)
            why = why or ("faster" if gain.seconds <= FASTER else "no advantage")
            return f"level; {why}"
        if gain.mean < -gain.error:
            return "worse"
        return "not decided" if gain.sound else f"worse in {self.titles[self.second]}"

    def _each(self, rows: list[Row], group: str) -> str:
        columns = ["table", "rows, train / held out", "columns", "copies", "candidate"]
        columns += ["gain (nats)", *self.titles.values(), "seconds"]
        gains, lines = self.gains(rows, group), []
        for name in dict.fromkeys(row["table"] for row in rows):
            for candidate in self.groups[group].candidates:
                of = where(rows, table=name, candidate=candidate)
                if not of:
                    continue
                of_tables = gains[candidate].differences if candidate in gains else {}
                first = of[0]
                line = [name, f"{first['train']} / {first['held']}", first["columns"]]
                line += [first["copies"], candidate]
                line += [f"{of_tables[name]:+.4f}" if name in of_tables else ""]
                line += [f"{mean(of, key):.4g}" for key in (*self.titles, "seconds")]
                lines.append(line)
        return markdown(columns, lines)

    def render(self, rows: list[Row]) -> dict[str, Figure]:
        """The clipped differences of each group: their mean, and table by table."""
        return {
            group: self._figure(gains, group)
            for group in self.groups
            if (gains := self.gains(rows, group))
        }

    def _figure(self, gains: dict[str, Gain], group: str) -> Figure:
        names = [*dict.fromkeys(n for g in gains.values() for n in g.differences)]
        figure, axes = new_figure(1, 1, height=1.8 + 0.32 * len(names))
        ax = axes[0, 0]
        shifts = np.linspace(-0.25, 0.25, len(gains) + 2)[1:-1]
        for number, (shift, (candidate, gain)) in enumerate(
            zip(shifts, gains.items(), strict=True)
        ):
            values = np.clip([*gain.differences.values()], -CLIP, CLIP)
            places = [names.index(name) + shift for name in gain.differences]
            style = {"fmt": "oDs^vP"[number % 6], "ms": 5, "color": f"C{number}"}
            ax.errorbar(values, places, label=candidate, **style)
            ax.errorbar(gain.mean, shift - 1, xerr=np.nan_to_num(gain.error), **style)
        for place in range(len(names)):
            ax.axhline(place - 0.5, color="0.9", lw=0.8, zorder=0)
        ax.axvline(0, color="0.6", lw=1, zorder=0)
        ax.set_xscale("symlog", linthresh=0.1)
        ax.set_xticks([-1, -0.3, -0.1, 0, 0.1, 0.3, 1])
        ax.set_xticklabels(["-1", "-0.3", "-0.1", "0", "0.1", "0.3", "1"])
        ax.set_xlim(-1.2, 1.2)
        labels = ["mean ± 2 SE", *names]
        ax.set_yticks(range(-1, len(names)), labels, fontsize=8)
        ax.set_ylim(len(names) - 0.5, -1.5)
        ax.set_xlabel(
            f'gain in log density over "{self.groups[group].reference}" (nats a row, '
            "clipped at 1; linear up to 0.1)"
        )
        legend_below(figure, ax)
        return figure


# -- candidates --------------------------------------------------------------------


def budget(rows: int, share: float = 1.0) -> int:
    """Epochs of the defaults of 2026-11-18, or a share of them."""
    least = 10_000 if rows <= 256 else 6_000
    return epochs_for(round(share * np.clip(4 * rows, least, 160_000)), rows)


# -- rows of a table ---------------------------------------------------------------


@lru_cache(maxsize=1)
def read_once(read: Callable[[str, Path], Table], name: str, data: Path) -> Table:
    """A table, which all candidates share."""
    return read(name, data)


def split_rows(
    X: np.ndarray, y: np.ndarray, config: Config
) -> tuple[int, list[tuple[np.ndarray, np.ndarray]]]:
    """How many rows are copies of others, and rows to train on and held-out ones.

    All copies of a row (inputs and target) are on the same side of a split.
    """
    codes = np.unique(y, return_inverse=True)[1]
    whole = np.column_stack([X, codes])
    group = np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1)
    splits = []
    for split in range(config.splits):
        random = np.random.default_rng(config.seed + split)
        rank = random.permutation(group.max() + 1)[group]
        order = np.argsort(rank, kind="stable")
        wanted = round(config.held_out * len(y))
        cut = int(np.searchsorted(rank[order], rank[order[wanted]]))
        train, held = order[cut:], order[:cut]
        splits.append((train[: config.train_rows], held[: config.held_rows]))
    return len(y) - int(group.max() + 1), splits


# -- gains -------------------------------------------------------------------------


def mean(rows: list[Row], key: str) -> float:
    """Mean of one value over rows; infinities were stored as None."""
    return float(np.mean([-np.inf if r[key] is None else r[key] for r in rows]))


def means_of(rows: list[Row], second: str) -> dict[str, dict[str, Row]]:
    """Of each candidate, by table: scores and seconds, averaged over the splits."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        of = found.setdefault(row["candidate"], {})
        if row["table"] not in of:
            pair = {"table": row["table"], "candidate": row["candidate"]}
            same = where(rows, **pair)
            keys = ("log_density", second, "seconds")
            of[row["table"]] = {key: mean(same, key) for key in keys}
    return found


def gain_of(own: dict[str, Row], reference: dict[str, Row], second: str) -> Gain:
    """A candidate compared with the reference, from their means by table."""
    shared = [name for name in reference if name in own]
    difference = lambda key: [own[name][key] - reference[name][key] for name in shared]
    densities = difference("log_density")
    return Gain(
        dict(zip(shared, densities, strict=True)),
        *mean_and_error(np.clip(densities, -CLIP, CLIP)),
        *mean_and_error(-np.array(difference(second))),
        float(np.median([own[n]["seconds"] / reference[n]["seconds"] for n in shared])),
    )
