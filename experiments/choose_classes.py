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

1. The difference of a candidate to the present default on a table is that of their mean
   log densities on held-out rows, averaged over the splits and clipped to ± 1 nat. A
   candidate whose mean over the tables is more than two standard errors above 0
   replaces the default; of several, the one with the highest mean.
2. Otherwise a level candidate with another advantage replaces it; of several, again the
   one with the highest mean. Level: within two standard errors of 0, which end at most
   0.05 nats below. Advantages: the one that is listed with the candidate, or at most
   0.8 x the seconds.
3. In both cases the mean difference in Brier score must not be worse by more than two
   standard errors.
4. Otherwise the default stays.

"Better", "level" and "worse" count tables, with 0.01 nats as the limit. These counts
and the median do not decide.
"""

from pathlib import Path

import numpy as np

from farrier import Horseshoe, HorseshoeClassifier

from . import datasets
from ._choosing import TRIAL, Config, Group, Study, Table
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


STUDY = Study(
    estimator=HorseshoeClassifier,
    groups={
        "variational": Group(
            tables=(*PMLB, *datasets.MIXED),
            default=lambda rows: {},
            candidates={
                "default": {},
                "exact half-Cauchy": {"prior": Horseshoe(half_cauchy="exact")},
                "narrow horseshoe": {"prior": "narrow-horseshoe"},
                "gelu": {"activation": "gelu"},
                "low rank": {"posterior": "low-rank"},
            },
            advantages={"exact half-Cauchy": "its ELBO is comparable between widths"},
        )
    },
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
    candidates=("default", "gelu"),
    train_rows=200,
    trial=TRIAL,
)
parts, settings_of, data_files = STUDY.parts, STUDY.settings_of, STUDY.data_files
table, claims, render = STUDY.table, STUDY.claims, STUDY.render
