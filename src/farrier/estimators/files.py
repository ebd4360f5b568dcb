"""Reading a model back from its file."""

from pathlib import Path

from .. import persist
from ..tables import Columns
from .classifier import HorseshoeClassifier
from .regressor import HorseshoeRegressor
from .tabular import Estimator, TableModel

CLASSES: dict[str, type[Estimator]] = {
    c.__name__: c for c in (HorseshoeRegressor, HorseshoeClassifier)
}


def load(path: str | Path) -> Estimator | TableModel:
    """What was saved: an estimator, or what `farrier fit` made; it predicts the same.

    A file of the command line holds a table's columns besides the estimator, and gives
    a `TableModel`, which takes the table as it stands.
    """
    header, arrays = persist.read(path, "model")
    if header["class"] not in CLASSES:
        raise ValueError(
            f"{str(path)!r} holds an unknown estimator, {header['class']!r}."
        )
    estimator = CLASSES[header["class"]]._from_file(header, arrays)
    if "table" not in header:
        return estimator
    table = header["table"]
    return TableModel(Columns.from_json(table["columns"]), estimator, table["about"])
