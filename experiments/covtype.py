"""Forest cover from a Parquet file, row group after row group, beside other models.

581,012 rows of 54 columns and seven classes. A tenth of the rows, drawn by lot, is for
the test; all models see the same split. farrier reads its rows from the file in each
pass; the others, of scikit-learn with its settings, have them in memory.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from farrier import HorseshoeClassifier, ParquetRows
from farrier.scale.rows import Lottery
from farrier.tables.files import imported, writing

from . import datasets
from ._harness import Claim, Row, Work, markdown, verdict, where
from .plots import Figure, new_figure
from .settings import arguments

HOURS = "about half an hour on 2 cores, by its number of steps"
OURS, LINEAR, TREES = "farrier", "logistic regression", "gradient boosting"
NOTES = """\
Error: share of the test rows that the most probable class gets wrong. Log density: mean
log probability of the true class, in nats. Minutes: of the fit alone.
"""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the runs.

    Parameters
    ----------
    every
        Use each so-many-th row.
    group
        Rows of a row group.
    """

    widths: tuple[int, ...] = (400, 400)
    epochs: int = 40
    trees: int = 500
    test_share: float = 0.1
    every: int = 1
    group: int = 2**16
    draws: int = 100
    seed: int = 0


FULL = Config()
SMOKE = Config(widths=(8,), epochs=1, trees=2, every=200, group=512, draws=8)


def parts(config: Config, data: Path) -> dict[str, Callable[[Work], list[Row]]]:
    """One for each model."""
    peers = {
        LINEAR: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1_000)),
        TREES: HistGradientBoostingClassifier(
            max_iter=config.trees, random_state=config.seed
        ),
    }
    return {OURS: partial(fit, config, data)} | {
        name: partial(fit_peer, config, data, name, model)
        for name, model in peers.items()
    }


def data_files(config: Config) -> tuple[str, ...]:
    """The one file of forest cover."""
    del config
    return ("covtype/covtype.csv.gz",)


def tested(config: Config) -> Lottery:
    """The rows for the test."""
    return Lottery(config.test_share, config.seed)


@lru_cache(maxsize=1)
def rows_of(config: Config, data: Path) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and classes; read once for all parts, which takes its time."""
    x, y = datasets.covtype(data)
    return x[:: config.every], y[:: config.every]


def write_parquet(path: Path, x: np.ndarray, y: np.ndarray, group: int) -> None:
    """The table as a file of row groups."""
    pandas, _ = imported()
    names = [f"x{i}" for i in range(x.shape[1])]
    with writing(path) as add:
        for first in range(0, len(x), group):
            part = slice(first, first + group)
            add(pandas.DataFrame(x[part], columns=names).assign(cover=y[part]))


def fit(config: Config, data: Path, work: Work) -> list[Row]:
    """Our own network, from the file."""
    x, y = rows_of(config, data)
    path = work.folder / "covtype.parquet"
    write_parquet(path, x, y, config.group)
    train = Lottery(config.test_share, config.seed, drawn=False)
    source = ParquetRows(path, "cover", task="classification", lottery=train)
    settings: dict[str, Any] = {"max_iter": config.epochs, "n_draws": config.draws}
    model = HorseshoeClassifier(
        config.widths, random_state=config.seed, **arguments(settings)
    )
    model.fit(
        source,
        checkpoint=work.folder / "fit.safetensors",
        callback=lambda share, history: work.report(share, "steps"),
    )
    others = source.others()
    _, truth, _ = others.read(0, others.rows)
    assert truth is not None
    p = model.predict_proba(others)
    row = scores(p, np.searchsorted(model.classes_, truth))
    about = {"nodes_on": [*model.widths_], "widths": [*config.widths]}
    return [row | about | {"model": OURS, "seconds": model.history_.seconds}]


def fit_peer(
    config: Config, data: Path, name: str, model: Any, work: Work
) -> list[Row]:
    """A model of scikit-learn, from memory."""
    work.note("fit")
    x, y = rows_of(config, data)
    test = tested(config).keeps(np.arange(len(x)))
    began = time.monotonic()
    model.fit(x[~test], y[~test])
    seconds = time.monotonic() - began
    p = model.predict_proba(x[test])
    row = scores(p, np.searchsorted(model.classes_, y[test]))
    return [row | {"model": name, "seconds": seconds}]


def scores(p: np.ndarray, codes: np.ndarray) -> Row:
    """Error rate and mean log probability of the true class."""
    true = p[np.arange(len(p)), codes]
    return {
        "error": float((p.argmax(axis=1) != codes).mean()),
        "log_density": float(np.log(np.maximum(true, np.finfo(float).tiny)).mean()),
        "test_rows": len(p),
    }


# -- what is made of the rows ------------------------------------------------------


def render(rows: list[Row]) -> dict[str, Figure]:
    """Errors and log densities side by side."""
    figure, axes = new_figure(1, 2, height=2.6)
    names = [row["model"] for row in rows]
    for ax, key, title in (
        (axes[0, 0], "error", "test error"),
        (axes[0, 1], "log_density", "log density, nats"),
    ):
        ax.barh(names, [row[key] for row in rows], color="#1f6f8b")
        ax.set_title(title, fontsize=10)
    return {"models": figure}


def table(rows: list[Row]) -> str:
    """One line for each model."""
    columns = ["model", "error, %", "log density", "nodes on", "minutes", "test rows"]
    lines = [
        [
            row["model"],
            f"{100 * row['error']:.2f}",
            f"{row['log_density']:.4f}",
            " - ".join(map(str, row.get("nodes_on", ["no nodes"]))),
            f"{row['seconds'] / 60:.1f}",
            row["test_rows"],
        ]
        for row in rows
    ]
    return markdown(columns, lines) + "\n" + NOTES


def claims(rows: list[Row]) -> list[Claim]:
    """Beyond the paper: holds when both figures are better, partly when one is."""
    ours, linear = where(rows, model=OURS), where(rows, model=LINEAR)
    if not (ours and linear):
        return []
    better = [
        ours[0]["error"] < linear[0]["error"],
        ours[0]["log_density"] > linear[0]["log_density"],
    ]
    told = [f"{r['model']} {r['error']:.2%} / {r['log_density']:.3f}" for r in rows]
    return [
        Claim(
            "A network that reads its rows from a file in each pass learns more of "
            "forest cover than a linear model in memory.",
            f"Test error / log density: {', '.join(told)}.",
            verdict(holds=all(better), partly=any(better)),
        )
    ]
