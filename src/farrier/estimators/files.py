"""Reading a model back from its file."""

import dataclasses
from pathlib import Path
from typing import Any

from .. import persist
from ..core.posteriors import POSTERIORS, AbstractWeightPosterior
from ..core.priors import PRIORS, AbstractPrior
from ..tables.model import Estimator, TableModel
from .checks import checked_choice
from .classifier import HorseshoeClassifier
from .headers import check_header, check_settings
from .regressor import HorseshoeRegressor

CLASSES: dict[str, type[Estimator]] = {
    c.__name__: c for c in (HorseshoeRegressor, HorseshoeClassifier)
}


def load(path: str | Path) -> Estimator | TableModel:
    """What was saved: an estimator, or the model of a table; it predicts the same.

    The files of `estimator.save` give the estimator. Those of `farrier fit` hold the
    columns of a table besides, and give a `TableModel`, which takes the table as it
    stands. A file that is damaged, or that does not make sense, is a ValueError.
    """
    header, arrays = persist.read(path, "model")
    with persist.describing(path, "model"):
        if header["class"] not in CLASSES:
            raise ValueError(f"{header['class']!r:.40} is an unknown estimator")
        cls = CLASSES[header["class"]]
        check_header(header, arrays, {*cls().get_params(deep=False)})
        estimator = cls._from_file(header, arrays)
        _check_settings(estimator, header["params"])
        if "table" not in header:
            return estimator
        return TableModel.from_header(header["table"], estimator)


def _check_settings(estimator: Estimator, params: dict[str, Any]) -> None:
    """What `fit` would refuse, a file must not bring in; nor an object in part."""
    for name, found in params.items():
        if isinstance(found, dict) and "object" in found:
            needed = {f.name for f in dataclasses.fields(getattr(estimator, name))}
            if found["fields"].keys() != needed:
                raise ValueError(f"`{name}` does not have the fields {sorted(needed)}")
    check_settings(estimator.get_params(deep=False))
    estimator._checked_widths()
    estimator._config(2)
    estimator._checked_refine()
    estimator._checked_restarts()
    checked_choice("prior", estimator.prior, PRIORS, AbstractPrior)
    checked_choice(
        "posterior", estimator.posterior, POSTERIORS, AbstractWeightPosterior
    )
