"""Regression."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, overload

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from ..infer import intervals as calibrate
from ..infer import predict
from ..infer.sample.chains import allotted
from ..model.drawn import DrawnNetwork
from ..model.likelihoods import NOISES, AbstractNoise, AbstractNormalLikelihood
from ..scale.placement import ONE_DEVICE, AbstractPlacement
from ..scale.rows import RowSource, Statistics
from ..units import Standardiser
from .base import Callback, by_pieces
from .checks import (
    Unchecked,
    all_or_nothing,
    checked_choice,
    checked_count,
    checked_level,
    checked_weight,
    numbers_only,
)
from .headers import check_units, whole
from .views import Curves, ViewedEstimator

INTERVALS = ("calibrated", "posterior")
DEPTHS = "intervals.depths"  # in a file


class HorseshoeRegressor(RegressorMixin, ViewedEstimator):
    """Regression by a Bayesian network that chooses its own width.

    Inputs and targets are standardised inside; all that comes out is in the units of
    `y`. Equal rows are merged into one weighted row before the fit.

    Parameters
    ----------
    hidden_layer_sizes
        Nodes of each hidden layer, surely more than needed: the horseshoe prior
        switches off those that the data do not need.
    activation
        "gelu", "relu" or "tanh".
    prior
        "narrow-horseshoe" (a horseshoe whose nodes are quieter where they are off),
        "horseshoe" (that of the paper), "centred-horseshoe", "regularised-horseshoe",
        "gaussian", "scale-mixture", "half-cauchy", "exponential", or an object such as
        `Horseshoe(node_scale=0.1)`.
    posterior
        "factorised", "node" (the weights into a node are correlated), "tied" (they
        move with the scale of their node), "matrix" (correlated weights, tied to
        pseudo-data), or an object such as `Node(rank=2)`, `Tied(given="node")` or
        `Matrix(pairs=20)`. With "matrix", `compact` keeps all nodes.
    likelihood
        "heteroscedastic" (noise that depends on the row, where the data ask for it),
        "gaussian", which None stands for too (one noise for all rows), or an object
        such as `GaussianNoise(shape=6, rate=6)` with another prior on the noise.
        Several of these, in a tuple, are taken in turn by the fits of `n_restarts`.
    kl_weight
        Weight of the divergences in the bound; 1 is the exact bound. A `KlRelease`
        lets it fall in the course of the steps.
    kl_warm_up
        Share of the steps over which that weight rises from 0. Without it, small
        data collapse to a constant.
    learning_rate_init
        Learning rate at the start; it falls to 0 along a cosine.
    batch_size
        Rows in one step, or "auto": all of them up to 1024 rows, else 512.
    max_iter
        Most passes over the data, or "auto": a budget that suits the number of rows.
    averaging
        Share that each step keeps of a moving average of all parameters over the steps
        (Polyak averaging), which is then the result of `fit`; 0 is the last step.
    n_restarts
        Independent fits of the same rows, each from a seed of its own, that are mixed
        into one posterior with equal weights; `Restarts(count=5, weights="stacked")`
        weighs them. With `refine`, each chain begins at another of them.
    refine
        None, "nuts", "mclmc", or an object such as `Nuts(chains=4)`: after the
        variational fit, sample the exact posterior of the nodes that matter. Better
        predictions, for more time; `sampling_` says how well the chains mixed.
    input_horseshoe
        Give each column a scale of its own as nodes have, so that columns that are not
        needed are switched off too; `features_on_` says which are left.
    early_stopping
        Stop when the bound has surely little left to gain (`tol`). It looks at what
        follows the warm-up, and saves time where `kl_warm_up` is under 0.8.
    tol
        That little, in nats a row.
    standardise
        Bring each input to mean 0 and standard deviation 1 first. False leaves inputs
        that have a common unit, such as pixels, as they are.
    shrink
        Let nodes that are off for good leave the network while it is trained, where
        that saves time; `history_.removed` says which and when.
    n_draws
        Posterior draws of which a prediction is the mixture.
    warm_start
        Let `fit` go on from the posterior of the `fit` before it.
    random_state
        Seed: equal seeds give equal bits.
    verbose
        1 shows progress.

    Attributes
    ----------
    widths_
        Nodes on, one number for each hidden layer.
    node_scores_
        For each hidden layer, each node's share in what it feeds; on is over 0.01.
    node_probabilities_
        For each hidden layer, the posterior probability that each node is on.
    features_on_
        With `input_horseshoe`: whether each column is on.
    feature_probabilities_
        With `input_horseshoe`: the posterior probability that each column is on.
    feature_scores_
        Share of the target's variance that each column carries.
    weight_norms_
        For each hidden layer, the norm of the expected weights into each node.
    history_
        The bound and its terms over the steps.
    n_iter_
        Passes over the data.
    restarts_
        With `n_restarts` over 1: bound, weight and widths of each fit, best bound
        first. `history_` and `n_iter_` are those of the first.
    sampling_
        With `refine`: chains, draws, R-hat and effective draws of the predictions.

    Examples
    --------
    >>> import numpy as np
    >>> from farrier import HorseshoeRegressor
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> y = np.abs(X[:, 0])
    >>> model = HorseshoeRegressor((20,), random_state=0).fit(X, y)
    >>> mean, std = model.predict(X, return_std=True)
    """

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
        """Fit the network; `widths_` then says how many nodes each layer kept.

        Parameters
        ----------
        X
            An array or a frame; or rows that do not fit into memory, with their
            targets: `ParquetRows`, `ArrayRows`, `BatchRows`. A memory-mapped array of
            more than 1 GiB (as float64) is not taken into memory either.
        y
            One column, or one column for each target.
        sample_weight
            How many rows each row stands for.
        checkpoint
            A file that is written after each chunk of steps. If it is there already
            and was made by the same fit, the training goes on from it and ends with
            the same bits as one that was never stopped.
        callback
            Called between chunks of steps with the share of the budget that is used
            and the history so far. An exception that it raises ends the fit.
        placement
            The devices that train, from `farrier.distributed`; by default one device.
        """
        return self._fit(X, y, sample_weight, checkpoint, callback, placement)

    def _prepare(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = self._checked_xy(X, y, reset=not self._goes_on)
        return X, y, checked_weight(sample_weight, len(X))

    def _check_again(
        self, X: Unchecked, y: Unchecked, sample_weight: Unchecked
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = self._checked_xy(X, y, reset=False)
        return X, y, checked_weight(sample_weight, len(X))

    def partial_fit(
        self,
        X: Unchecked,
        y: Unchecked,
        sample_weight: Unchecked = None,
        *,
        n_rows: int | None = None,
    ) -> Self:
        """One pass over some rows, at a constant learning rate.

        After a `fit` it goes on from there. Otherwise standardisation is that of the
        first call, so it should hold a fair sample.

        Parameters
        ----------
        n_rows
            Rows of the whole data set, where they come more than once. By default
            every row handed over counts as a new one.
        """
        with all_or_nothing(self):
            X, y = self._checked_xy(X, y, reset=not hasattr(self, "network_"))
            weight = checked_weight(sample_weight, len(X))
            return self._partial_fit(X, y, weight, n_rows)

    def _checked_xy(
        self, X: Any, y: Any, *, reset: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        with numbers_only("X and y"):
            X, y = validate_data(
                self,
                X,
                y,
                reset=reset,
                dtype=np.float64,
                multi_output=True,
                y_numeric=True,
                ensure_min_samples=2 if reset else 1,
            )
            y = np.asarray(y, np.float64)
        columns = None if y.ndim == 1 else y.shape[1]
        if not reset and columns != self._columns:
            raise ValueError(
                f"`y` has {columns or 1} targets; the fit before had "
                f"{self._columns or 1}."
            )
        self._columns = columns
        return X, y.reshape(len(X), -1)

    def _learn(self, source: RowSource, found: Statistics) -> float:
        if found.y is None:
            raise ValueError(
                "A regression needs targets that are numbers. If `ParquetRows` took "
                'yours for labels, give it `task="regression"`.'
            )
        _, y = found.sample
        columns = None if y.ndim == 1 else y.shape[1]
        if not self._goes_on:
            self._y_standard = found.y.standardiser()
        elif columns != self._columns:
            raise ValueError(
                f"`y` has {columns or 1} targets; the fit before had "
                f"{self._columns or 1}."
            )
        self._columns = columns
        return super()._learn(source, found)

    def _in_units(
        self, x: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        y = y.reshape(len(y), self._columns or 1)
        return self._x_standard(x), self._targets(y), weight

    def _standardise(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
        super()._standardise(x, y, weight)
        self._y_standard = Standardiser.create(y, weight)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return self._y_standard(y)

    def _target_scale(self) -> np.ndarray:
        return self._y_standard.scale

    def _likelihood_for(self, rows: float, fit: int) -> AbstractNormalLikelihood:
        given: Any = "gaussian" if self.likelihood is None else self.likelihood
        choices = given if isinstance(given, tuple | list) and len(given) else (given,)
        count = self._checked_restarts().count
        if len(choices) > count:
            raise ValueError(
                f"`likelihood` names {len(choices)} noise models, which fits take in "
                f"turn, but `n_restarts` asks for {count}. Ask for {len(choices)} fits "
                "or more."
            )
        choice = choices[fit % len(choices)]
        noise = checked_choice("likelihood", choice, NOISES, AbstractNoise)
        return noise.build(self._columns or 1, rows=float(rows))

    def _summary(
        self, summary: Callable, X: Unchecked, *more: Any, draws: int = 0
    ) -> Any:
        """A summary of the predictive mixture for the rows of X, in standard units."""
        return self._summary_of(summary, self._checked_rows(X), *more, draws=draws)

    def _summary_of(
        self, summary: Callable, rows: np.ndarray, *more: Any, draws: int = 0
    ) -> Any:
        """The same for rows that are in standard units already."""
        arrays = [value for value in more if isinstance(value, np.ndarray)]
        args = [value for value in more if not isinstance(value, np.ndarray)]
        network, key = self._predictive(draws or self.n_draws)
        noise_sd = predict.noise_sds(network, draws or self.n_draws, key=key)
        return predict.by_chunks(
            summary, network, (rows, *arrays), noise_sd, *args, key=key
        )

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """One column as a flat array, where `y` was one."""
        return values[:, 0] if self._columns is None else values

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
        """Predictive mean, and with `return_std` the predictive standard deviation."""
        mean, noise, weights = self._summary(predict.moments, X)
        mean = self._shaped(self._y_standard.undo(np.asarray(mean, float)))
        if not return_std:
            return mean
        return mean, self._shaped(np.sqrt(noise + weights) * self._y_standard.scale)

    @by_pieces
    def predict_interval(
        self, X: Unchecked, level: float = 0.9, method: str = "calibrated"
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval that holds `y` with probability `level`.

        Parameters
        ----------
        method
            "calibrated": the central interval of the predictive law that holds a share
            `level` of the training rows, each left out of the draws. "posterior": that
            of probability `level` as the posterior says it.
        """
        level, depth = checked_level(level), self._depths(method)
        low, high = self._ends(self._checked_rows(X), calibrate.held(level, depth))
        return self._shaped(low), self._shaped(high)

    def _depths(self, method: str) -> np.ndarray:
        """How deep an interval of each level has to reach into the predictive law."""
        if method not in INTERVALS:
            raise ValueError(f"`method` must be one of {INTERVALS}, got {method!r}.")
        check_is_fitted(self)
        if method == "posterior":
            return calibrate.LEVELS
        if not hasattr(self, "_interval_depths"):
            x, y, weight = self._check_rows
            fit = jnp.asarray(self._fits_of_draws())
            place = self._summary_of(predict.left_out_cdfs, x, y, fit)
            self._interval_depths = calibrate.depths(np.asarray(place, float), weight)
        return self._interval_depths

    def _fits_of_draws(self) -> np.ndarray:
        """For each draw of a prediction, the number of the fit that it comes from.

        Chains sample one posterior, wherever they began.
        """
        if not hasattr(self, "restarts_") or hasattr(self, "sampling_"):
            return np.zeros(self.n_draws, int)
        mixture = self.network_
        assert isinstance(mixture, DrawnNetwork)
        weights = np.array([restart.weight for restart in self.restarts_])
        counts = allotted(weights, mixture.draws)
        numbers = mixture.draw_keys(self.n_draws, key=self._key("predict"))
        return np.repeat(np.arange(len(counts)), counts)[np.asarray(numbers)]

    def _settle(self) -> None:
        self._depths("calibrated")

    def _ends(self, rows: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the central interval of each target, by the predictive law."""
        tail = 0.5 - level / 2
        levels = jnp.asarray([tail, 1 - tail], float)
        ends = np.asarray(self._summary_of(predict.quantiles, rows, levels), float)
        low, high = (self._y_standard.undo(ends[..., i]) for i in range(2))
        return low, high

    def _curves(self, rows: np.ndarray, levels: list[float]) -> Curves:
        mean, _, _ = self._summary_of(predict.moments, rows)
        mean = self._y_standard.undo(np.asarray(mean, float))
        depth = self._depths("calibrated")
        ends = [self._ends(rows, calibrate.held(level, depth)) for level in levels]
        return {
            f"target {column}": (
                mean[:, column],
                [(low[:, column], high[:, column]) for low, high in ends],
            )
            for column in range(mean.shape[1])
        }

    @by_pieces
    def predict_variance(self, X: Unchecked) -> tuple[np.ndarray, np.ndarray]:
        """Variance from the noise, and variance from not knowing the weights."""
        _, *parts = self._summary(predict.moments, X)
        noise, weights = (
            self._shaped(part * self._y_standard.scale**2) for part in parts
        )
        return noise, weights

    def log_density(self, X: Unchecked, y: Unchecked) -> np.ndarray:
        """Log density of each row, in nats, in the units of `y`."""
        check_is_fitted(self)
        X, y = self._checked_xy(X, y, reset=False)
        rows, y = self._x_standard(X), self._y_standard(y)
        density = self._summary_of(predict.log_densities, rows, y)
        return np.asarray(density, float) - np.log(self._y_standard.scale).sum()

    def pit(self, X: Unchecked, y: Unchecked, method: str = "calibrated") -> np.ndarray:
        """Where each `y` lies in its predictive law, from 0 to 1 (P2).

        Uniform over the rows when the predictions are calibrated; from the ends of
        the interval of a level it is (1 - level) / 2 and (1 + level) / 2.

        Parameters
        ----------
        method
            The law: that of the intervals ("calibrated"), or the posterior's own
            ("posterior").
        """
        depth = self._depths(method)
        X, y = self._checked_xy(X, y, reset=False)
        rows = self._x_standard(X)
        place = self._summary_of(predict.cdfs, rows, self._y_standard(y))
        return self._shaped(calibrate.place_held(np.asarray(place, float), depth))

    def sample_y(
        self, X: Unchecked, n_samples: int = 1, random_state: Any = 0
    ) -> np.ndarray:
        """Draws of `y`: rows x draws, or rows x targets x draws.

        Each draw is a whole function, with fresh noise for each row.
        """
        rows = self._checked_rows(X)
        n_samples = checked_count("n_samples", n_samples, least=1)
        key = jr.key(int(check_random_state(random_state).randint(2**31 - 1)))
        noise_sd = predict.noise_sds(self.network_, n_samples, key=key)
        numbers = np.arange(len(rows))
        draws = predict.by_chunks(
            predict.sampled_targets, self.network_, (rows, numbers), noise_sd, key=key
        )
        scale, mean = self._y_standard.scale[:, None], self._y_standard.mean[:, None]
        return self._shaped(np.asarray(draws, float) * scale + mean)

    def _predictive_draws(self, X: Unchecked) -> dict[str, np.ndarray]:
        drawn = self.sample_y(X, self.n_draws, random_state=self._seed)
        return {"y": np.moveaxis(drawn, -1, 0)[None]}

    def _to_file(self) -> tuple[dict, dict[str, np.ndarray]]:
        header, arrays = super()._to_file()
        arrays["y.mean"], arrays["y.scale"] = (
            self._y_standard.mean,
            self._y_standard.scale,
        )
        arrays[DEPTHS] = self._depths("calibrated")
        return header | {"columns": self._columns}, arrays

    def _own_from_file(self, header: dict, arrays: dict[str, np.ndarray]) -> None:
        self._columns = header["columns"]
        if self._columns is not None and not whole(1)(self._columns):
            raise ValueError(f"`columns` is {self._columns!r:.80}")
        check_units(arrays, "y", self._columns or 1)
        self._y_standard = Standardiser(arrays["y.mean"], arrays["y.scale"])
        # Intervals of older files are the posterior's.
        self._interval_depths = arrays.get(DEPTHS, calibrate.LEVELS)
        if not calibrate.are_depths(self._interval_depths):
            raise ValueError(f"`{DEPTHS}` do not rise from 0 to 1")
