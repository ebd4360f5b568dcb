"""Regression."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, overload

import jax.random as jr
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from ..fitted import Units
from ..model.likelihoods import AbstractLikelihood
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import ConvertedRows, RowSource
from ..units import Standardiser, identity_units
from . import regression
from .checks import (
    Unchecked,
    by_pieces,
    checked_count,
    checked_level,
    checked_weight,
    learned_by,
    numbers_only,
)
from .progress import Callback
from .rows import CheckedRows, CheckedSource, Learned, source_names, source_units
from .settings import checked_noise
from .views import Curves, ViewedEstimator


class HorseshoeRegressor(RegressorMixin, ViewedEstimator):
    """Regression by a Bayesian neural network that chooses its own width.

    Inputs and targets are standardised inside; all that comes out is in the units of
    `y`. Equal rows are merged into one weighted row before the fit.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int, default=(100,)
        Nodes of each hidden layer, surely more than needed: the horseshoe prior
        switches off those that the data do not need.
    activation : {"gelu", "relu", "tanh"}, default="gelu"
        Activation function of the hidden layers.
    prior : str or AbstractPrior, default="column-horseshoe"
        "column-horseshoe" (a horseshoe over the nodes, and one over the columns of `X`,
        which switches off columns that are not needed), "narrow-horseshoe" (the same
        without the columns), "horseshoe" (that of Ghosh & Doshi-Velez 2017),
        "centred-horseshoe", "regularised-horseshoe", "gaussian", "scale-mixture", or an
        object such as `Horseshoe(node_scale=0.1)`.
    posterior : {"mean-field", "low-rank", "matrix"} or object, default="mean-field"
        Variational posterior of the weights: independent normals; independent normals
        whose variances have rank 1, with faster steps (`LowRank(rank=2)` for another
        rank); or a matrix normal with pseudo-data (Louizos & Welling 2016), with which
        `compact` keeps all nodes.
    likelihood : {"heteroscedastic", "gaussian"} or object, default="heteroscedastic"
        Noise that depends on the inputs where the data ask for it, or noise of one
        variance; or an object such as `GaussianNoise(shape=6, rate=6)` with another
        prior on the precision.
    n_restarts : int, default=1
        Independent fits, each from its own random seed, that are combined into one
        posterior with equal weights. With `refine`, each Markov chain starts at
        another of them.
    refine : {None, "nuts", "mclmc"} or object, default=None
        MCMC refinement: after the variational fit, sample the posterior by Markov
        chains. It predicts better and takes longer; `sampling_` reports the mixing.
    training : Training or None, default=None
        How the network is trained: epochs, batch size, learning rate, KL weight. None
        stands for `Training()`.
        `set_params(training__learning_rate=0.005)` sets one of its fields.
    standardise : bool, default=True
        Bring each input to mean 0 and standard deviation 1 first. False leaves inputs
        that have a common unit, such as pixels, as they are.
    n_draws : int, default=200
        Posterior draws of which a prediction is the mixture.
    warm_start : bool, default=False
        Let `fit` go on from the posterior of the `fit` before it.
    random_state : int, RandomState or None, default=None
        Seed: equal seeds give bit-identical results.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    widths_ : tuple of int
        Active nodes, one number for each hidden layer.
    node_scores_ : tuple of ndarray of shape (n_nodes,)
        For each hidden layer, each node's share in what it feeds; active is over 0.01.
    node_probabilities_ : tuple of ndarray of shape (n_nodes,)
        For each hidden layer, the posterior probability that each node is active.
    features_on_ : ndarray of bool of shape (n_features,)
        Whether each column is active, if the prior has scales of the columns.
    feature_probabilities_ : ndarray of shape (n_features,)
        The posterior probability of that, if the prior has scales of the columns.
    feature_scores_ : ndarray of shape (n_features,)
        Share of the target's variance that each column carries.
    weight_norms_ : tuple of ndarray of shape (n_nodes,)
        For each hidden layer, the norm of the expected weights into each node.
    n_targets_ : int or None
        Number of columns of `y`; None where it is one-dimensional.
    history_ : History
        The ELBO and its terms over the steps.
    n_iter_ : int
        Epochs of the training.
    restarts_ : tuple of FitSummary
        With `n_restarts` over 1: ELBO, weight and widths of each fit, best ELBO first.
        `history_` and `n_iter_` are those of the first.
    sampling_ : Sampling
        With `refine`: chains, draws, R-hat and effective draws of the predictions.
    model_ : FittedModel
        All that the fit learned, as one value.

    See Also
    --------
    HorseshoeClassifier : The same for classes.

    References
    ----------
    Ghosh & Doshi-Velez (2017), Model Selection in Bayesian Neural Networks via
    Horseshoe Priors.

    Examples
    --------
    >>> import numpy as np
    >>> from farrier import HorseshoeRegressor
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> y = np.abs(X[:, 0])
    >>> model = HorseshoeRegressor((20,), random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    """

    n_targets_: int | None
    _default_annealing: float = 0.2

    def __sklearn_tags__(self):
        """Several targets at once are allowed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Unchecked,
        y: Unchecked = None,
        sample_weight: Unchecked = None,
        *,
        checkpoint: str | Path | None = None,
        callback: Callback | None = None,
        placement: AbstractPlacement = ONE_DEVICE,
    ) -> Self:
        """Fit the network; `widths_` then says how many nodes are active.

        Parameters
        ----------
        X : array-like or source of rows
            An array or a data frame; or rows that do not fit into memory, with their
            targets: `ParquetRows`, `ArrayRows`, `BatchRows`. A memory-mapped array of
            more than 1 GiB (as float64) is not loaded into memory either.
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            The targets.
        sample_weight : array-like of shape (n_rows,), default=None
            How many rows each row stands for.
        checkpoint : path, default=None
            A file that is written after each chunk of steps. If it exists and was made
            by the same fit, training goes on from it and gives results that are
            bit-identical to those of a fit that was never stopped.
        callback : callable, default=None
            Called between chunks of steps with the share of the budget that is used
            and the `History` so far.
        placement : placement, default=one device
            What `farrier.distributed` returned: the devices and processes that train.

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, checkpoint, callback, placement)

    def partial_fit(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked = None,
        *,
        n_rows: int | None = None,
    ) -> Self:
        """One epoch over some rows, at a constant learning rate.

        After a `fit` it goes on from there. Otherwise standardisation is that of the
        first call, so the first rows should be a fair sample.

        Parameters
        ----------
        n_rows : int, default=None
            Rows of the whole data set, where they come more than once. By default
            every row counts as a new one.
        """
        reset = not self._is_fitted()
        rows = self._check_rows(X, y, sample_weight, reset=reset)
        return self._partial_fit(rows, n_rows)

    # -- checks --------------------------------------------------------------------

    def _check_rows(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked, *, reset: bool
    ) -> CheckedRows:
        (x, y), learned = learned_by(self, _validated, X, y, reset=reset)
        columns = None if y.ndim == 1 else y.shape[1]
        if not reset:
            self._check_targets(columns)
        weight = checked_weight(sample_weight, len(x))
        learned["n_targets_"] = columns
        return CheckedRows(x, y.reshape(len(x), -1), weight, learned)

    def _check_targets(self, columns: int | None) -> None:
        if columns != self.n_targets_:
            given, fitted = (
                "1 target, in one dimension"
                if n is None
                else f"{n} targets, as columns"
                for n in (columns, self.n_targets_)
            )
            raise ValueError(f"`y` has {given}; the fit before had {fitted}.")

    def _check_source(self, source: RowSource) -> CheckedSource:
        statistics, start = source.statistics(), self._start()
        if statistics.y is None:
            raise ValueError(
                "A regression needs targets that are numbers. If `ParquetRows` took "
                'yours for labels, give it `task="regression"`.'
            )
        x, y = statistics.sample
        expected = None if start is None else self.n_features_in_
        learned = source_names(source, x.shape[1], expected)
        columns = None if y.ndim == 1 else y.shape[1]
        if start is None:
            units = Units(
                source_units(statistics, standardise=self.standardise),
                self._units_of(statistics.y, columns or 1),
            )
        else:
            self._check_targets(columns)
            units = start.units
        of_y = units.y
        assert of_y is not None

        def convert(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> tuple:
            return units.x(x), of_y(y.reshape(len(y), columns or 1)), weight

        sample = convert(x, y, np.ones(len(x)))
        learned["n_targets_"] = columns
        rows = ConvertedRows(source, convert)
        total, mark = statistics.x.weight, source.mark()
        return CheckedSource(rows, sample, units, total, learned, mark)

    def _units_of(self, target: Any, columns: int) -> Standardiser:
        """Units of the targets of a source, from their statistics."""
        if not standardises(self.likelihood):
            return identity_units(columns)
        return target.standardiser()

    def _target_units(self, y: np.ndarray, weight: np.ndarray) -> Standardiser:
        if not standardises(self.likelihood):
            return identity_units(y.shape[1])
        return Standardiser.create(y, weight)

    def _likelihood_of(self, learned: Learned) -> Callable[[float], AbstractLikelihood]:
        settings = checked_noise(self.likelihood)
        targets = learned["n_targets_"] or 1
        return lambda rows: settings.build(targets, rows=float(rows))

    # -- predictions ---------------------------------------------------------------

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """One column as a flat array, where `y` was one."""
        return values[:, 0] if self.n_targets_ is None else values

    @overload
    def predict(
        self, X: Unchecked, return_std: Literal[False] = False
    ) -> np.ndarray: ...

    @overload
    def predict(
        self, X: Unchecked, return_std: Literal[True]
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @by_pieces
    def predict(
        self, X: Unchecked, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictive mean, and with `return_std` the predictive standard deviation.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The inputs.
        return_std : bool, default=False
            Return the standard deviation too.

        Returns
        -------
        mean : ndarray of shape (n_rows,) or (n_rows, n_targets)
        std : ndarray of the same shape
            Only with `return_std`.
        """
        mean, *variances = regression.moments(self._fitted, self._in_units(X))
        if not return_std:
            return self._shaped(mean)
        sd = np.sqrt(sum(variances)) * regression.target_units(self._fitted).scale
        return self._shaped(mean), self._shaped(sd)

    @by_pieces
    def predict_interval(
        self, X: Unchecked, level: float = 0.9, method: str = "calibrated"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that covers `y` with probability `level`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The inputs.
        level : float, default=0.9
            Probability, between 0 and 1.
        method : {"calibrated", "posterior"}, default="calibrated"
            "calibrated": the central interval of the predictive distribution that
            covers a share `level` of the training rows, each left out of the posterior
            draws by importance weights. "posterior": the central interval of
            probability `level` under the posterior.

        Returns
        -------
        low, high : ndarray of shape (n_rows,) or (n_rows, n_targets)
        """
        level, rows = checked_level(level), self._in_units(X)
        low, high = regression.interval_ends(self._fitted, rows, level, method)
        return self._shaped(low), self._shaped(high)

    def _curves(self, rows: np.ndarray, levels: list[float]) -> Curves:
        return regression.bands(self._fitted, rows, levels)

    @by_pieces
    def predict_variance(self, X: Unchecked) -> tuple[np.ndarray, np.ndarray]:
        """Aleatoric and epistemic variance: of the noise, and of the model.

        Returns
        -------
        noise, model : ndarray of shape (n_rows,) or (n_rows, n_targets)
        """
        _, *parts = regression.moments(self._fitted, self._in_units(X))
        square = regression.target_units(self._fitted).scale ** 2
        noise, model = (self._shaped(part * square) for part in parts)
        return noise, model

    def log_density(self, X: Unchecked, y: Unchecked) -> np.ndarray:
        """Log density of each row, in nats, in the units of `y`.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        model = self._fitted
        checked = self._check_rows(X, y, None, reset=False)
        return regression.log_densities(model, model.units.x(checked.x), checked.y)

    def pit(self, X: Unchecked, y: Unchecked, method: str = "calibrated") -> np.ndarray:
        """Probability integral transform: the cdf at each `y`, from 0 to 1 (P2).

        Uniform over the rows when the predictions are calibrated; at the ends of the
        interval of a level it is (1 - level) / 2 and (1 + level) / 2.

        Parameters
        ----------
        method : {"calibrated", "posterior"}, default="calibrated"
            The predictive distribution: that of the calibrated intervals, or the
            posterior's own.
        """
        model = self._fitted
        checked = self._check_rows(X, y, None, reset=False)
        rows = model.units.x(checked.x)
        return self._shaped(regression.positions(model, rows, checked.y, method))

    def sample_y(
        self, X: Unchecked, n_samples: int = 1, random_state: Any = 0
    ) -> np.ndarray:
        """Samples of `y`, each a whole function, with fresh noise for each row.

        Returns
        -------
        ndarray of shape (n_rows, n_samples) or (n_rows, n_targets, n_samples)
        """
        rows = self._in_units(X)
        n_samples = checked_count("n_samples", n_samples, least=1)
        key = jr.key(int(check_random_state(random_state).randint(2**31 - 1)))
        drawn = regression.samples(self._fitted, rows, n_samples, key=key)
        return self._shaped(drawn)

    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        model = self._fitted
        drawn = self.sample_y(X, model.draws, random_state=model.seed)
        return {"y": np.moveaxis(drawn, -1, 0)[None]}


def _validated(
    estimator: Any, X: Any, y: Any, *, reset: bool
) -> tuple[np.ndarray, np.ndarray]:
    with numbers_only("X and y"):
        x, y = validate_data(
            estimator,
            X,
            y,
            reset=reset,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=2 if reset else 1,
        )
        return np.asarray(x), np.asarray(y, np.float64)


def standardises(likelihood: Any) -> bool:
    """Whether targets are brought to mean 0 and standard deviation 1 for it."""
    return getattr(likelihood, "standardises_targets", True)
