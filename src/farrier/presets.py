"""Settings with a name: `HorseshoeRegressor(**presets.paper())`."""

from typing import Any

from .core.posteriors import Matrix
from .core.priors import Gaussian, Horseshoe
from .infer.sample.settings import Mclmc
from .model.likelihoods import GaussianNoise
from .train.config import Training, epochs_for

MANY_ROWS = 2_000  # from which chains of a reasonable length are too short
# A plain variational fit: the network of the papers, and a shorter annealing. It stands
# beside their figures, and experiments compare other settings with it.
PLAIN: dict[str, Any] = {
    "activation": "relu",
    "prior": "horseshoe",
    "likelihood": "gaussian",
    "training": Training(kl_annealing=0.6, learning_rate=0.01),
}


def refined(rows: int) -> dict[str, Any]:
    """The settings with the best predictions for a table with this number of rows.

    Up to 2,000 rows: two layers of 16 nodes, which from six columns on have no more
    weights than one layer of 50 and predict better. Eight short fits from different
    seeds are each the start of one MCLMC chain. On small tables, a slab keeps the
    scales of nodes from growing without bound. Heteroscedastic noise alone replaced a
    mixture of two noise models, which was no better (`results/noise`).
    With more rows: an ensemble of three fits of the default network, with the horseshoe
    of Ghosh & Doshi-Velez (2017).
    """
    if rows >= MANY_ROWS:
        return {
            "prior": "horseshoe",
            "training": Training(kl_annealing=0.8),
            "n_restarts": 3,
        }
    return {
        "hidden_layer_sizes": (16, 16),
        "prior": Horseshoe(slab=2.0),
        "likelihood": "heteroscedastic",
        "training": Training(max_iter=epochs_for(3_000, rows), kl_annealing=0.8),
        "n_restarts": 8,
        "refine": Mclmc(chains=8, draws=200),
    }


def paper() -> dict[str, Any]:
    """Settings of Ghosh & Doshi-Velez (2017): 50 nodes, Gamma(6, 6) noise.

    The KL terms have full weight from the first step, and nothing stops the training
    early. The auxiliary variables are at their optimum after each step, which gives the
    gradients of the paper's coordinate ascent.
    """
    return {
        "hidden_layer_sizes": (50,),
        "activation": "relu",
        "prior": "horseshoe",
        "likelihood": GaussianNoise(shape=6.0, rate=6.0),
        "training": Training(
            kl_annealing=0.0, learning_rate=0.005, early_stopping=False
        ),
    }


def vmg(target_sd: float = 1.0) -> dict[str, Any]:
    """Settings of Louizos & Welling (2016), from their code for the yacht table.

    Batches of 5 rows, Adam at 0.001, 2000 epochs, the parameters averaged over the last
    thousand steps or so, 5 pairs of pseudo-data with relative noise up to sqrt(0.005).
    Three things differ: the learning rate falls to 0 over the run, and theirs is
    constant; each layer has one half-Cauchy scale, and theirs two learned precisions;
    the output layer's weights are integrated, and theirs are drawn.

    Parameters
    ----------
    target_sd : float, default=1.0
        Standard deviation of the training targets. Their Gamma(6, 6) prior is for the
        noise precision in the target's units; the estimators standardise targets.
    """
    return {
        "hidden_layer_sizes": (50,),
        "activation": "relu",
        "prior": Gaussian(parametrisation="centred"),
        "posterior": Matrix(pairs=5, noise=0.005**0.5),
        "likelihood": GaussianNoise(shape=6.0, rate=6.0 / target_sd**2),
        "training": Training(
            batch_size=5,
            max_iter=2_000,
            kl_annealing=0.0,
            learning_rate=0.001,
            averaging=0.999,
            early_stopping=False,
        ),
    }
