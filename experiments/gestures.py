"""Gestures of aircraft handlers: four models, split at random and by person.

Six gestures of the NATOPS set: 15 frames, evenly spread over the time of a gesture, of
20 numbers each. The paper has 24 gestures, whose files we do not have, and splits at
random (75 % to train), so that repetitions of one person's gesture are on both sides.
The split by person is the honest one: nobody in the test rows was seen in training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from farrier import HorseshoeClassifier, fit_many

from . import datasets
from ._harness import Claim, Row, Work, markdown, settings_without, verdict
from ._models import (
    MODELS,
    NODES_ON,
    NORM_ON,
    Gap,
    classified,
    classifier,
    draw_norms,
    nodes,
    paired,
    standard_error,
    turned_off_claim,
    unpaired,
    written,
)
from .plots import Figure, legend_below, new_figure

HOURS = "about 20 minutes on 2 cores; with --short about 5 minutes"
BY_SUBJECT = "by subject"
NOTES = (
    """\
Error: share of the test gestures that the mean of the predictive probabilities gets
wrong. At random: mean ± standard deviation over five random splits, 75 % to train; the
same people are on both sides. By subject: trained on subjects below 15, tested on 15 to
19, ± one standard error of a share of so many gestures; this is the honest figure. Log
density: mean log probability of the true gesture, in nats. Nodes on and norms are those
of the split by subject. An epoch is 4 steps. The paper has 24 gestures, which we do not
have, so no printed number stands beside these.

Differences between models are taken split by split over the random splits. These share
training rows, so the standard errors of such differences are too small. By subject
there is one split, and rows hold error rates alone: there the difference is one of two
shares, as if the test rows were not the same.

"""
    + NODES_ON
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    widths
        Of both hidden layers.
    split_seeds
        One random split for each.
    first_test_subject
        Subjects from this number on are the test rows of the split by subject.
    every
        Use each so-many-th gesture.
    """

    widths: tuple[int, ...] = (400,)
    models: tuple[str, ...] = tuple(MODELS)
    epochs: int = 500
    learning_rate: float = 0.005
    batch_size: int = 512
    split_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    test_share: float = 0.25
    first_test_subject: int = 15
    every: int = 1
    draws: int = 100
    seed: int = 0


FULL = Config()
SHORT = Config(epochs=100)
SMOKE = Config(
    widths=(8,),
    models=("horseshoe", "gaussian"),
    epochs=2,
    batch_size=64,
    split_seeds=(0,),
    every=10,
    draws=8,
)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One part for each width and model, with all its splits: `400-400/horseshoe`."""
    return {
        f"{width}-{width}/{name}": partial(fit, config, data, name, width)
        for width in config.widths
        for name in config.models
    }


def settings_of(config: Config, part: str) -> dict[str, Any]:
    """Those of one part: other widths and models may change without it."""
    _, name = part.split("/")
    own = settings_without(config, "widths", "models")
    return own | {"model": written(MODELS[name].settings)}


def data_files(config: Config) -> tuple[str, ...]:
    """The one file of the six gestures."""
    del config
    return (datasets.NATOPS6_FILE,)


def splits(config: Config, subject: np.ndarray) -> dict[str, np.ndarray]:
    """Which rows are for the test, for each split."""
    tested = round(config.test_share * len(subject))
    found = {}
    for seed in config.split_seeds:
        test = np.zeros(len(subject), bool)
        test[np.random.default_rng(seed).permutation(len(subject))[:tested]] = True
        found[f"random {seed}"] = test
    return found | {BY_SUBJECT: subject >= config.first_test_subject}


def fit(config: Config, data: Path, name: str, width: int, work: Work) -> list[Row]:
    """One model on all splits."""
    X, y, subject = (v[:: config.every] for v in datasets.natops6(data))
    chosen = splits(config, subject)
    model = classifier(
        name,
        width,
        learning_rate=config.learning_rate,
        batch_size=config.batch_size,
        max_iter=config.epochs,
        n_draws=config.draws,
        random_state=config.seed,
    )
    rows: dict[str, Row] = {}

    def after_fit(index: int, fitted: HorseshoeClassifier) -> None:
        split, test = [*chosen.items()][index]
        row = {
            "model": name,
            "width": width,
            "epochs": config.epochs,
            "split": split,
            "seconds": fitted.history_.seconds,
            "test_rows": int(test.sum()),
            **classified(fitted, X[test], y[test]),
            **nodes(fitted),
        }
        if split != BY_SUBJECT:
            del row["norms"]  # the figure shows one split
        rows[split] = row
        work.done(len(rows), len(chosen))

    training = [np.flatnonzero(~test) for test in chosen.values()]
    work.note(f"{len(chosen)} splits, {config.epochs} epochs each")
    fit_many(model, X, y, rows=training, after_fit=after_fit)
    return [rows[split] for split in chosen]


# -- what is made of the rows ------------------------------------------------------


def by_part(rows: list[Row]) -> dict[tuple[int, str], tuple[list[Row], Row]]:
    """For each width and model, the rows of the random splits and that by subject."""
    found: dict[tuple[int, str], tuple[list[Row], Row]] = {}
    for honest in rows:
        if honest["split"] == BY_SUBJECT:
            key = (honest["width"], honest["model"])
            others = [r for r in rows if (r["width"], r["model"]) == key]
            found[key] = ([r for r in others if r is not honest], honest)
    return found


def render(rows: list[Row]) -> dict[str, Figure]:
    """Sorted norms of each layer, for each width."""
    honest = [row for row in rows if row["split"] == BY_SUBJECT]
    widths = sorted({row["width"] for row in honest})
    figure, axes = new_figure(len(widths), 2, height=3.4 * len(widths) + 0.2)
    for line, width in zip(axes, widths, strict=True):
        for layer, ax in enumerate(line):
            for row in honest:
                if row["width"] == width:
                    draw_norms(ax, row["model"], row["norms"][layer])
            epochs = honest[0]["epochs"]
            heading = f"layer {layer + 1} of {width}-{width}, {epochs} epochs"
            ax.set_title(heading, fontsize=10)
            ax.set_xlabel("unit, largest first")
            ax.set_ylabel("norm of E[weights into unit]")
    legend_below(figure, axes[0, 1])
    return {"norms": figure}


def table(rows: list[Row]) -> str:
    """Errors of both kinds of split, and what each network kept."""
    columns = ["model", "widths", "epochs", "error at random, %", "error by subject, %"]
    columns += ["log density at random", "log density by subject"]
    columns += ["nodes on (`widths_`)"]
    columns += [f"norms over {NORM_ON:.0%} of the largest", "minutes a fit"]
    lines = []
    for (width, name), (random, honest) in by_part(rows).items():
        errors, densities = (
            np.array([row[key] for row in random]) for key in ("error", "log_density")
        )
        sd = errors.std(ddof=1) if len(errors) > 1 else float("nan")
        lines.append(
            [
                MODELS[name].label,
                f"{width}-{width}",
                honest["epochs"],
                f"{100 * errors.mean():.2f} ± {100 * sd:.2f}",
                f"{100 * honest['error']:.2f} ± {100 * standard_error(honest):.2f}",
                f"{densities.mean():.3f}",
                f"{honest['log_density']:.3f}",
                " - ".join(map(str, honest["nodes_on"])),
                " - ".join(map(str, honest["norms_on"])),
                f"{honest['seconds'] / 60:.1f}",
            ]
        )
    return markdown(columns, lines) + "\n" + NOTES


def claims(rows: list[Row]) -> list[Claim]:
    """What the paper says of gestures, in its words, on the six that we have.

    Better: p < 0.05. Competitive: within two standard errors, either way. Holds when it
    is so over the random splits and by subject, for each model; partly for some.
    """
    found: list[Claim] = []
    parted = by_part(rows)
    for width in sorted({width for width, _ in parted}):
        models = {name: parted[w, name] for w, name in parted if w == width}
        if "horseshoe" in models and len(models) > 1:
            ours = models["horseshoe"]
            about = f"Gestures ({width}-{width}): "
            text = f'{about}"HS-BNN significantly outperforms BNN".'
            is_so = lambda gap: gap.significantly_better
            found.append(error_claim(text, is_so, ours, models, ("gaussian",)))
            text = f'{about}"competitive with VMG and SM-BNN".'
            is_so = lambda gap: gap.comparable
            others = ("vmg", "scale-mixture")
            found.append(error_claim(text, is_so, ours, models, others))
            quote = f'{about}"strong sparsity, just as in MNIST".'
            found.append(turned_off_claim(quote, [ours[1]]))
    return found


def error_claim(
    text: str,
    is_so: Callable[[Gap], bool],
    ours: tuple[list[Row], Row],
    models: dict[str, tuple[list[Row], Row]],
    names: tuple[str, ...],
) -> Claim:
    """A relation between the errors of HS-BNN and of others, in both kinds of split."""
    good, told = [], []
    random, honest = ours
    for name in (name for name in names if name in models):
        others, other = models[name]
        gaps = {
            "random splits": paired(random, others),
            BY_SUBJECT: unpaired(honest, other),
        }
        good += [is_so(gap) for gap in gaps.values()]
        shown = [f"{kind} {gap}" for kind, gap in gaps.items()]
        told.append(f"against {MODELS[name].label}: {', '.join(shown)}")
    if len(told) < len(names):
        return Claim(text, "not all models are there yet", "waits for results")
    about = f"error, {honest['epochs']} epochs, six gestures; "
    return Claim(
        text, about + "; ".join(told), verdict(holds=all(good), partly=any(good))
    )
