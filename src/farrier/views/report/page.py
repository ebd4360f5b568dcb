"""The page: figures and tables in the template report.html."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..describe import Description
from . import figures
from .content import (
    PREDICTIONS,
    Case,
    case_of,
    data_table,
    inputs_table,
    nodes_table,
    settings_table,
    versions_table,
)

TEMPLATE = Path(__file__).with_name("report.html")


def write_report(model: Any, data: Any, path: str | Path) -> None:
    """Write an HTML report about a fitted model and rows that it has not seen.

    It shows scores, calibration, the inputs and nodes that matter, the training, and
    the rows with the worst predictions. The page needs no internet connection and
    contains no scripts.

    Parameters
    ----------
    model : HorseshoeRegressor, HorseshoeClassifier or TableModel
        A fitted estimator, or a model of `farrier fit` that `farrier.load` returned.
    data : tuple of X and y, or data frame
        Rows with their targets. For a `TableModel` a pandas or polars data frame with
        the target column, else a pair `(X, y)`. Use rows that were not used in the fit.
    path : str or Path
        The file to write.

    Examples
    --------
    >>> from farrier import HorseshoeRegressor, write_report
    >>> model = HorseshoeRegressor().fit(X, y)  # doctest: +SKIP
    >>> write_report(model, (X_test, y_test), "report.html")  # doctest: +SKIP
    """
    Path(path).write_text(_page(case_of(model, data)), encoding="utf-8")


def _page(case: Case) -> str:
    model, predictions = case.model, PREDICTIONS[case.task](case)
    description = case.description
    groups = [entry.features for entry in case.inputs]
    shares = model.feature_shares(case.X, groups)
    order = np.argsort(-np.median(shares, axis=0), kind="stable")
    return _template().render(
        title=f"Report on {case.target}",
        case=case,
        made=f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC",
        rows=len(case.y),
        fitted_rows=f"{model.n_rows_:,.0f}",
        description=description,
        predictions=predictions,
        cards=_cards(case, predictions, description),
        data=data_table(case),
        nodes=nodes_table(model),
        compaction=str(model.model_.compaction),
        inputs=inputs_table(case, shares),
        scores=predictions.scores(case),
        coverage=predictions.coverage(case),
        worst=predictions.worst(case, order),
        settings=settings_table(model),
        versions=versions_table(),
        figures=_figures(case, predictions, shares),
        most_bars=figures.MOST_BARS,
        most_points=figures.MOST_POINTS,
    )


def _figures(case: Case, predictions: Any, shares: np.ndarray) -> dict[str, list[str]]:
    names = [entry.name for entry in case.inputs]
    drawn = {
        "nodes": figures.nodes(case.model),
        "inputs": figures.inputs(names, shares),
        "history": figures.history(case.model),
    }
    return drawn | predictions.figures(case)


def _cards(
    case: Case, predictions: Any, description: Description
) -> list[tuple[str, str]]:
    """The numbers at the top of the page, each with its name."""
    (error, size, _), *_ = predictions.scores(case).rows
    density = predictions.density.mean()
    return [
        (size, error),
        (f"{density:.3f}", "log density, nats per row"),
        (description.widths_text, "active nodes"),
        (f"{len(case.y):,}", "test rows"),
    ]


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "The report requires jinja2 and matplotlib. Install them with `pip install "
            "'farrier[report]'`."
        ) from error
    # Everything is escaped but the figures, which the template marks as safe.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = TEMPLATE.read_text(encoding="utf-8")
    return environment.from_string(text)
