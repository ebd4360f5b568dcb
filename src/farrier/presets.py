"""Settings with a name: `HorseshoeRegressor(**presets.paper())`."""

from typing import Any

from .core.posteriors import Matrix
from .core.priors import Gaussian, Horseshoe, RegularisedHorseshoe
from .estimators.base import passes_of
from .infer.refine import Mclmc
from .model.likelihoods import GaussianNoise

MANY_ROWS = 2_000  # from which chains of a reasonable length are too short
BOTH_NOISES = ("gaussian", "heteroscedastic")
# A plain variational fit: the network of the papers, and a shorter warm-up. It stands
# beside their figures, and is what `farrier reproduce choose` compares others with.
PLAIN: dict[str, Any] = {
    "activation": "relu",
    "prior": "horseshoe",
    "likelihood": "gaussian",
    "kl_warm_up": 0.6,
}


def refined(rows: int) -> dict[str, Any]:
    """Our recipe for the best predictions from a table of so many rows.

    Up to 2,000 rows: two layers of 16 nodes, which from six columns on have no more
    weights than one layer of 50 and predict better. Eight short fits from different
    seeds are each the start of one MCLMC chain. A slab keeps the scales of nodes from
    growing where few rows speak against it. Heteroscedastic noise alone replaced a
    mixture of two noise models, which was no better (`results/noise`).
    Of many rows, a mixture of fits of the default network, with the horseshoe of the
    paper. It was chosen on training rows of the UCI tables (`farrier reproduce
    choose`).
    """
    if rows >= MANY_ROWS:
        return {"prior": "horseshoe", "n_restarts": 3}
    return {
        "hidden_layer_sizes": (16, 16),
        "prior": RegularisedHorseshoe(slab_scale=2.0),
        "likelihood": "heteroscedastic",
        "max_iter": passes_of(3_000, rows),
        "n_restarts": 8,
        "refine": Mclmc(chains=8, draws=200),
    }


def paper() -> dict[str, Any]:
    """Settings of Ghosh & Doshi-Velez 2017 for a table: 50 units, Gamma(6, 6) noise.

    The auxiliary variables are updated after each step, the divergences have full
    weight from the first step, and nothing stops the training early.
    """
    return {
        "hidden_layer_sizes": (50,),
        "activation": "relu",
        "prior": Horseshoe(half_cauchy="auxiliary"),
        "likelihood": GaussianNoise(shape=6.0, rate=6.0),
        "kl_warm_up": 0.0,
        "learning_rate_init": 0.005,
        "early_stopping": False,
    }


def vmg(target_sd: float = 1.0) -> dict[str, Any]:
    """Settings of Louizos & Welling 2016 for a table, from their code for yacht.

    Batches of 5 rows, Adam at 0.001, 2000 epochs, the parameters averaged over the last
    thousand steps or so, 5 pairs of pseudo-data with relative noise up to sqrt(0.005).
    What differs: our rate goes down to 0 over the run, and theirs is constant; one
    half-Cauchy scale for each layer stands where they learn two precisions; the output
    layer's weights are integrated, where they are drawn.

    Parameters
    ----------
    target_sd
        Standard deviation of the training targets. Their Gamma(6, 6) prior is one of
        the noise in the target's units; the estimators have standardised targets.
    """
    return {
        "hidden_layer_sizes": (50,),
        "activation": "relu",
        "prior": Gaussian(parametrisation="centred"),
        "posterior": Matrix(pairs=5, noise=0.005**0.5),
        "likelihood": GaussianNoise(shape=6.0, rate=6.0 / target_sd**2),
        "batch_size": 5,
        "max_iter": 2_000,
        "kl_warm_up": 0.0,
        "learning_rate_init": 0.001,
        "averaging": 0.999,
        "early_stopping": False,
    }
