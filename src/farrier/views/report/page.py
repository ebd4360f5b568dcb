"""The page itself: figures and tables put into the template beside this file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ...train.history import Status
from . import figures
from .content import (
    PREDICTIONS,
    Case,
    Regression,
    case_of,
    data_table,
    inputs_table,
    nodes_table,
    settings_table,
    versions_table,
)

TEMPLATE = Path(__file__).with_name("report.html")
ENDINGS = {
    Status.CONVERGED: "It stopped by itself: the bound had surely little left to gain.",
    Status.BUDGET: "It used its whole budget of steps. If the bound below is still "
    "rising, a larger max_iter will help.",
    Status.INTERRUPTED: "It was interrupted. The model is that of the last step that "
    "was kept: fit again, or go on from the checkpoint.",
    Status.NOT_FINITE: "It stopped because the bound was no longer finite. Do not use "
    "this model: try a lower learning_rate_init, or look for extreme values.",
    Status.RUNNING: "It was trained piece by piece, with partial_fit.",
}


def write_report(model: Any, data: Any, path: str | Path) -> None:
    """Write one HTML page about a fitted model and rows that it has not seen.

    The page needs no network and no scripts: nodes and inputs that matter, the
    training, predictions beside what was observed, calibration, the worst rows.

    Parameters
    ----------
    model
        A fitted `HorseshoeRegressor` or `HorseshoeClassifier`, or a model that
        `farrier fit` wrote and `farrier.load` read.
    data
        Rows with their targets: a pair `(X, y)`, or for the latter a frame that has
        the target among its columns. The figures are honest only for rows that were
        not used in the fit.
    path
        The page to write.

    Examples
    --------
    >>> from farrier import HorseshoeRegressor, write_report
    >>> model = HorseshoeRegressor().fit(X, y)  # doctest: +SKIP
    >>> write_report(model, (X_test, y_test), "report.html")  # doctest: +SKIP
    """
    Path(path).write_text(_page(case_of(model, data)), encoding="utf-8")


def _page(case: Case) -> str:
    model, predictions = case.model, PREDICTIONS[case.task](case)
    groups = [entry.features for entry in case.inputs]
    shares = model.feature_shares(case.X, groups)
    order = np.argsort(-np.median(shares, axis=0), kind="stable")
    return _template().render(
        title=f"Report on {case.target}",
        case=case,
        made=f"{datetime.now(UTC):%d %B %Y, %H:%M} UTC",
        rows=len(case.y),
        fitted_rows=f"{model.n_rows_:,.0f}",
        predictions=predictions,
        cards=_cards(case, predictions),
        data=data_table(case),
        nodes=nodes_table(model),
        compaction=str(model._compacted()),
        inputs=inputs_table(case, shares),
        scores=predictions.scores(case),
        coverage=predictions.coverage(case),
        worst=predictions.worst(case, order),
        steps=int(model.history_.step[-1]),
        seconds=model.history_.seconds,
        bound=float(model.history_.bound[-1] / model.n_rows_),
        ending=ENDINGS[model.history_.status],
        settings=settings_table(model),
        versions=versions_table(),
        figures=_figures(case, predictions, shares),
        most_bars=figures.MOST_BARS,
        most_points=figures.MOST_POINTS,
    )


def _figures(case: Case, predictions: Any, shares: np.ndarray) -> dict[str, list[str]]:
    names = [entry.name for entry in case.inputs]
    made = {
        "nodes": figures.nodes(case.model),
        "inputs": figures.inputs(names, shares),
        "history": figures.history(case.model),
    }
    if isinstance(predictions, Regression):
        y = case.y.astype(float)
        made["observed"] = figures.observed(predictions.mean, y, case.target)
        made["calibration"] = figures.calibration_of_places(predictions.pit)
    else:
        classes = case.model.classes_
        made["calibration"] = figures.calibration_of_classes(
            predictions.probability, case.y, classes
        )
    return made


def _cards(case: Case, predictions: Any) -> list[tuple[str, str]]:
    """The figures that stand on top."""
    (error, size, _), *_ = predictions.scores(case).rows
    density = predictions.density.mean()
    nodes = zip(case.model.widths_, case.model._built_widths, strict=True)
    return [
        (size, error),
        (f"{density:.3f}", "log density, nats a row"),
        (", ".join(f"{on} of {of}" for on, of in nodes), "nodes on"),
        (f"{len(case.y):,}", "rows tested"),
    ]


def _template() -> Any:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise ImportError(
            "The report needs jinja2 and matplotlib. Install them with `pip install "
            "'farrier[report]'`."
        ) from error
    # Everything is escaped, except what the template marks as safe: our own figures.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    text = TEMPLATE.read_text(encoding="utf-8")
    return environment.from_string(text)
