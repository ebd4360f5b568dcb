"""The published numbers that ours stand beside, each with where it is printed.

Test RMSE and test log-likelihood a point, means over splits, to the two decimals that
are printed. What is not here was not to be had with certainty: the spreads behind the
+- of the UCI table, and the paper's error rates on MNIST and on gestures.
"""

from dataclasses import dataclass

PAPER = "Ghosh & Doshi-Velez 2017, arXiv 1705.10388, table of UCI results"
VMG_PAPER = "Louizos & Welling 2016, arXiv 1603.04733, table of UCI results"


@dataclass(frozen=True)
class Score:
    """A printed result on one data set."""

    rmse: float
    log_likelihood: float
    source: str


def _column(source: str, **scores: tuple[float, float]) -> dict[str, Score]:
    return {name: Score(*pair, source) for name, pair in scores.items()}


# The paper's +- of this column are standard deviations over splits ...
HORSESHOE = _column(
    PAPER,
    boston=(3.32, -2.54),
    concrete=(5.66, -3.09),
    energy=(1.99, -2.66),
    kin8nm=(0.08, 1.12),
    naval=(0.00, 5.52),
    power=(4.03, -2.81),
    protein=(4.39, -2.89),
    wine=(0.63, -0.95),
    yacht=(1.58, -2.33),
    year=(9.26, -3.63),
)
# ... and those of this one are standard errors.
VMG = _column(
    f"{VMG_PAPER}, as quoted in {PAPER}",
    boston=(2.72, -2.48),
    concrete=(4.88, -3.01),
    energy=(0.54, -1.06),
    kin8nm=(0.08, 1.10),
    naval=(0.00, 2.46),
    power=(4.04, -2.82),
    protein=(4.18, -2.88),
    wine=(0.63, -0.95),
    yacht=(0.70, -1.30),
    year=(8.82, -3.60),
)
# Standard splits of each set.
SPLITS = {name: 20 for name in HORSESHOE} | {"protein": 5, "year": 1}
# Where the paper's quotation differs from the original.
VMG_ORIGINAL = _column(
    VMG_PAPER,
    boston=(2.70, -2.46),
    protein=(4.13, -2.84),
    year=(8.78, -3.59),
)


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
