"""From a fitted model to the `Predictor` that is deployed."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators.base import NetworkEstimator
from ..fitted import FittedModel, key_for
from ..model.likelihoods.normal import MAX_LOG
from ..model.posterior import SampledPosterior
from ..tables.model import parts_of
from ..tables.table import Columns
from .portable import Predictor


def to_numpy(
    model: Any, path: str | Path | None = None, *, draws: int | None = None
) -> Predictor:
    """Convert a fitted model to a predictor that needs NumPy alone.

    Parameters
    ----------
    model : HorseshoeRegressor, HorseshoeClassifier or TableModel
        A fitted model. The columns of a `TableModel` must all be numbers.
    path : str or Path, optional
        Where to write the predictor (`.npz`). `portable.Predictor.load` reads it; a
        copy of the file `portable.py` is all that is needed there.
    draws : int, optional
        Number of posterior samples (draws) in the file. Default: the draws that the
        estimator itself predicts with (`n_draws`), so that predictions are the same.
        Fewer draws make the file smaller and predictions faster, but noisier.

    Returns
    -------
    Predictor
        The compacted network.

    See Also
    --------
    to_onnx : Also encodes the raw columns of a table.

    Examples
    --------
    >>> from farrier.export import to_numpy
    >>> predictor = to_numpy(model, "small.npz")  # doctest: +SKIP
    """
    estimator, columns = parts_of(model)
    if columns is None:
        names = getattr(estimator, "feature_names_in_", None)
    else:
        names = _names_of_numbers(columns)
    predictor = predictor_of(estimator, names, draws=draws)
    if path is not None:
        predictor.save(path)
    return predictor


def predictor_of(
    estimator: NetworkEstimator, names: Any, *, draws: int | None
) -> Predictor:
    """The compacted network of an estimator; `names` are those of its features."""
    if draws is not None and draws < 2:
        raise ValueError(f"`draws` must be at least 2, got {draws}.")
    check_is_fitted(estimator)
    if not estimator.model_.posterior.can_fold:
        raise ValueError(
            'Only networks with the posterior "mean-field" or with MCMC draws can be '
            f"exported, and this one has {estimator.posterior!r}. Fit it again with "
            'posterior="mean-field".'
        )
    small = estimator.compact()
    model = small.model_
    header = {
        "version": version("farrier"),
        "task": model.task,
        "activation": estimator.activation,
        "layers": len(model.posterior.widths),
        "features": None if names is None else [str(name) for name in names],
        "compaction": str(small.compaction_),
        "targets": target_columns(small),
    }
    if "classes_" in vars(small):
        classes = vars(small)["classes_"]
        header |= {"classes": classes.tolist(), "label_type": classes.dtype.str}
    return Predictor(header, arrays_of(model, draws) | _units(model))


def target_columns(estimator: NetworkEstimator) -> int | None:
    """Number of columns of the target; None where it is one-dimensional."""
    return getattr(estimator, "n_targets_", None)


def arrays_of(model: FittedModel, draws: int | None) -> dict[str, np.ndarray]:
    """Weights of all draws by name, and their noise."""
    key = key_for(model.seed, "predict")
    posterior = model.posterior.resampled(draws or model.draws, key=key).as_sampled()
    arrays = {}
    pairs = zip(posterior.kernels, posterior.biases, strict=True)
    for index, (kernel, bias) in enumerate(pairs):
        last = index == len(posterior.widths)
        layer = "output" if last else f"hidden.{index}"
        arrays |= {f"{layer}.kernel": kernel, f"{layer}.bias": bias}
    if model.units.y is not None:
        arrays |= _noise_arrays(posterior)
    return {name: np.asarray(value, np.float32) for name, value in arrays.items()}


def _noise_arrays(posterior: SampledPosterior) -> dict[str, Any]:
    """Variances of the output; the noise is part of them, or apart if it varies."""
    kernel, bias = posterior.kernels[-1], posterior.biases[-1]
    variance = jnp.zeros_like(kernel), jnp.zeros_like(bias)
    if posterior.output_variance is not None:
        variance = posterior.output_variance
    of_kernel, of_bias = variance
    noise = posterior.noise**2
    if not posterior.likelihood.noise_outputs.any():
        of_bias = of_bias + noise
        return {"output.kernel_variance": of_kernel, "output.bias_variance": of_bias}
    return {
        "output.kernel_variance": of_kernel,
        "output.bias_variance": of_bias,
        "noise": noise[:, None],
        "noise.limit": np.asarray(MAX_LOG),
    }


def _names_of_numbers(columns: Columns) -> list[str]:
    """Names of the columns of a table, each of which must be one feature."""
    for column in columns.columns:
        if column.feature_names != [column.name]:
            kind = "has missing values" if column.indicator else f"is a {column.kind}"
            raise ValueError(
                f"A NumPy file takes numeric features only, and column {column.name!r} "
                f"{kind}. Export to ONNX, which encodes raw columns; or export "
                "`model.estimator`, which takes `model.columns.features(frame)`."
            )
    return columns.feature_names


def _units(model: FittedModel) -> dict[str, np.ndarray]:
    """Mean and scale of inputs; for regression, of targets, and interval depths."""
    units = {"x.mean": model.units.x.mean, "x.scale": model.units.x.scale}
    if model.units.y is not None:
        units |= {"y.mean": model.units.y.mean, "y.scale": model.units.y.scale}
    if model.depths is not None:
        units["intervals.depths"] = model.depths
    return units
