"""The published numbers that ours stand beside, each with where it is printed.

Test RMSE and test log-likelihood per point, means over splits, to the two decimals that
are printed, with the ± that is printed beside them. The paper does not say what its ±
are. Those of HS-BNN have the size of the standard deviation of our own scores over as
many splits, and those of VMG that of our standard errors (`uci` prints both ratios): so
the former are taken as standard deviations and the latter as standard errors. A ± of
0.00 is taken as 0.

What is not here: the paper's error rates on MNIST and on gestures, which it only plots.
"""

import math
from dataclasses import dataclass

PAPER = "Ghosh & Doshi-Velez 2017, arXiv 1705.10388, table of UCI results"
VMG_PAPER = "Louizos & Welling 2016, arXiv 1603.04733, table of UCI results"
DECIMALS = 2  # of the UCI table


@dataclass(frozen=True)
class Number:
    """A printed mean over splits.

    Parameters
    ----------
    mean, plus_minus
        As printed; NaN where no ± is printed.
    error
        Standard error of the mean over splits, inferred from `plus_minus`.
    misprint
        Whether `plus_minus` is likely to be a misprint.
    """

    mean: float
    plus_minus: float
    error: float
    misprint: bool = False


@dataclass(frozen=True)
class Score:
    """A printed result on one data set."""

    rmse: Number
    log_density: Number
    source: str


Pair = tuple[float, float]  # a printed mean, and its ±
NOT_PRINTED = math.nan
# Standard splits of each set.
SPLITS = dict.fromkeys(
    ("boston", "concrete", "energy", "kin8nm", "naval", "power"), 20
) | {"protein": 5, "wine": 20, "yacht": 20, "year": 1}
# The ± of VMG's log-likelihoods on boston and concrete. It is that of HS-BNN's RMSE on
# boston, and many times the other errors of its column.
MISPRINT = 0.66


def _standard_deviations(**printed: tuple[Pair, Pair]) -> dict[str, Score]:
    def number(name: str, mean: float, sd: float) -> Number:
        return Number(mean, sd, sd / math.sqrt(SPLITS[name]))

    return {
        name: Score(number(name, *rmse), number(name, *log_density), PAPER)
        for name, (rmse, log_density) in printed.items()
    }


def _standard_errors(source: str, **printed: tuple[Pair, Pair]) -> dict[str, Score]:
    number = lambda mean, error: Number(mean, error, error, error == MISPRINT)
    return {
        name: Score(number(*rmse), number(*log_density), source)
        for name, (rmse, log_density) in printed.items()
    }


HORSESHOE = _standard_deviations(
    boston=((3.32, 0.66), (-2.54, 0.15)),
    concrete=((5.66, 0.41), (-3.09, 0.06)),
    energy=((1.99, 0.34), (-2.66, 0.13)),
    kin8nm=((0.08, 0.00), (1.12, 0.03)),
    naval=((0.00, 0.00), (5.52, 0.10)),
    power=((4.03, 0.15), (-2.81, 0.03)),
    protein=((4.39, 0.04), (-2.89, 0.01)),
    wine=((0.63, 0.04), (-0.95, 0.05)),
    yacht=((1.58, 0.23), (-2.33, 0.01)),
    year=((9.26, NOT_PRINTED), (-3.63, NOT_PRINTED)),
)
VMG = _standard_errors(
    f"{VMG_PAPER}, as quoted in {PAPER}",
    boston=((2.72, 0.13), (-2.48, MISPRINT)),
    concrete=((4.88, 0.12), (-3.01, MISPRINT)),
    energy=((0.54, 0.02), (-1.06, 0.03)),
    kin8nm=((0.08, 0.00), (1.10, 0.01)),
    naval=((0.00, 0.00), (2.46, 0.00)),
    power=((4.04, 0.04), (-2.82, 0.01)),
    protein=((4.18, 0.02), (-2.88, 0.00)),
    wine=((0.63, 0.01), (-0.95, 0.01)),
    yacht=((0.70, 0.05), (-1.30, 0.02)),
    year=((8.82, NOT_PRINTED), (-3.60, NOT_PRINTED)),
)
# Means where the paper's quotation differs from the original: RMSE, log-likelihood.
VMG_ORIGINAL = {
    "boston": (2.70, -2.46),
    "protein": (4.13, -2.84),
    "year": (8.78, -3.59),
}


@dataclass(frozen=True)
class Compressed:
    """A published network for digits, trained as 784-300-100 and then pruned.

    `kept` are inputs and nodes of both hidden layers; `error` is in percent.
    """

    method: str
    kept: tuple[int, int, int]
    error: float
    source: str


# As these papers are commonly quoted; not yet held against their print.
BAYESIAN_COMPRESSION = "Louizos, Ullrich & Welling 2017, arXiv 1705.08665"
COMPRESSED = (
    Compressed("SBP", (245, 160, 55), 1.55, "Neklyudov et al. 2017, arXiv 1705.07283"),
    Compressed(
        "Bayesian compression (BC-GNJ)", (278, 98, 13), 1.8, BAYESIAN_COMPRESSION
    ),
    Compressed(
        "Bayesian compression (BC-GHS)", (311, 86, 14), 1.8, BAYESIAN_COMPRESSION
    ),
    Compressed("VIBNet", (97, 71, 33), 1.6, "Dai et al. 2018, arXiv 1802.10399"),
)
