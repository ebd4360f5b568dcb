"""How the settings of classification are chosen: on tables that are not scored.

Tables of PMLB, and tables with strings and missing values (`CreditCard` and after). The
latter are encoded by farrier's own columns: one feature for each category, and missing
values filled in and marked. On two random splits of each table, 30 % of the rows are
held out (at most 2,000) and up to 1,000 others are trained on. All copies of a row are
on the same side. No table of `mnist`, `gestures` or `covtype` is here. Scores are the
log density of the labels, the error, the Brier score, and the expected calibration
error in ten bins. "Seconds" are those of a fit, compilation included; compare them
within one run.

The rule, written before the run (`_choosing.py` computes it), is that of `choose`, with
the Brier score in place of the CRPS:

1. The difference of a candidate to the reference, the default of 2026-11-18
   ("before"), on a table is that of their mean log densities on held-out rows, averaged
   over the splits and clipped to ± 1 nat. A candidate whose mean over the tables is
   more than two standard errors above 0 replaces the reference. Of several, those count
   as equal whose mean is within one standard error (of the difference over the tables)
   of the highest; the fastest of them is chosen.
2. Otherwise a level candidate with another advantage replaces it; of several, again the
   one with the highest mean. Level: within two standard errors of 0, which end at most
   0.05 nats below. Advantages: the one that is listed with the candidate, or at most
   0.8 x the seconds.
3. In both cases the mean difference in Brier score must not be worse by more than two
   standard errors.
4. Otherwise the reference stays.

"Better", "level" and "worse" count tables, with 0.01 nats as the limit. These counts
and the median do not decide.
"""

from pathlib import Path
from typing import Any

import numpy as np

from farrier import Horseshoe, HorseshoeClassifier

from . import datasets
from ._choosing import (
    GIVEN_BY_CANDIDATES,
    TRIAL,
    Candidate,
    Config,
    Group,
    Study,
    Table,
    budget,
)
from ._harness import Row
from ._scores import brier, calibration_error

HOURS = "about 20 minutes on 2 cores"
PMLB = ("ann_thyroid", "australian", "car", "churn", "cmc", "connect_4", "credit_g")
PMLB += ("led24", "mfeat_factors", "mushroom", "optdigits", "page_blocks", "pendigits")
PMLB += ("phoneme", "ring", "segmentation", "splice", "texture", "twonorm")
PMLB += ("waveform_40",)
LEFT_OUT = {
    "wine_quality_white": "the other half of the study of wine, a scored table of "
    "`uci`, with the same columns and ratings; a fifth of its rows are copies",
}


def read(name: str, data: Path) -> Table:
    """A table of either collection."""
    if name in datasets.MIXED:
        return datasets.mixed(name, data)
    return datasets.pmlb(name, data)


def file(name: str) -> str:
    """The file of a table of either collection."""
    if name in datasets.MIXED:
        return datasets.mixed_file(name)
    return datasets.pmlb_file(name)


def scores(model: HorseshoeClassifier, X: np.ndarray, y: np.ndarray) -> Row:
    """Scores of held-out rows."""
    p, codes = model.predict_proba(X), np.searchsorted(model.classes_, y)
    return {
        "log_density": float(model.log_density(X, y).mean()),
        "error": float(np.mean(p.argmax(axis=1) != codes)),
        "brier": brier(p, codes),
        "calibration": calibration_error(p, codes),
    }


BEFORE: dict[str, Any] = {
    "hidden_layer_sizes": (100,),
    "activation": "relu",
    "prior": Horseshoe(),
    "posterior": "mean-field",
    "learning_rate": 0.01,
    "kl_annealing": 0.6,
}
ANNEALED: dict[str, Any] = {
    "prior": Horseshoe(half_cauchy="exact", columns=True),
    "kl_annealing": 0.2,
}
GELU: dict[str, Any] = ANNEALED | {"activation": "gelu"}
FAST: dict[str, Any] = GELU | {"learning_rate": 0.02}


def variational(share: float = 1.0, **changes: Any) -> Candidate:
    """`BEFORE` with some changes, and a share of its steps."""
    return lambda rows: BEFORE | {"max_iter": budget(rows, share)} | changes


# Values that are in the settings of each part.
IN_SETTINGS = ("GROUPS", "BEFORE", "ANNEALED", "GELU", "FAST")
GROUPS = {
    "variational": Group(
        tables=(*PMLB, *datasets.MIXED),
        candidates={
            "before": variational(),
            "exact half-Cauchy": variational(prior=Horseshoe(half_cauchy="exact")),
            "gelu": variational(activation="gelu"),
            "annealing 0.2": variational(kl_annealing=0.2),
            "columns": variational(prior=ANNEALED["prior"]),
            "columns, annealing 0.2": variational(**ANNEALED),
            "columns, annealing 0.2, narrow": variational(
                prior=Horseshoe(node_scale=0.01, half_cauchy="exact", columns=True),
                kl_annealing=0.2,
            ),
            "columns, annealing 0.2, gelu": variational(**GELU),
            "columns, annealing 0.2, gelu, rate 0.02": variational(**FAST),
            "columns, annealing 0.2, gelu, rate 0.02, half of the steps": variational(
                0.5, **FAST
            ),
        },
        shipped="before",
        advantages={"exact half-Cauchy": "its ELBO is comparable between widths"},
    )
}
GIVEN = GIVEN_BY_CANDIDATES
STUDY = Study(
    estimator=HorseshoeClassifier,
    groups=GROUPS,
    left_out=LEFT_OUT,
    read=read,
    file=file,
    scores=scores,
    second="brier",
    titles={
        "log_density": "log density",
        "error": "error",
        "brier": "Brier score",
        "calibration": "calibration error",
    },
)

FULL = Config(train_rows=1_000)
SMOKE = Config(
    tables=("CreditCard",),
    candidates=("before", "gelu"),
    train_rows=200,
    trial=TRIAL,
)
parts, settings_of, data_files = STUDY.parts, STUDY.settings_of, STUDY.data_files
table, claims, render = STUDY.table, STUDY.claims, STUDY.render
