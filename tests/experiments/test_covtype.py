"""Forest cover: one split for all models, and what is made of the rows."""

import numpy as np
import pytest

from experiments import covtype
from farrier import ParquetRows


def made_rows(error=0.1, log_density=-0.3):
    about = {"test_rows": 58_000, "seconds": 600.0}
    rows = [(covtype.OURS, error, log_density), (covtype.LINEAR, 0.28, -0.63)]
    rows += [(covtype.TREES, 0.12, -0.33)]
    found = [about | {"model": m, "error": e, "log_density": d} for m, e, d in rows]
    found[0] |= {"nodes_on": [90, 40], "widths": [400, 400]}
    return found


def test_the_file_has_the_rows_and_the_split_of_the_others(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(900, 4)).astype(np.float32), rng.integers(1, 8, 900)
    covtype.write_parquet(tmp_path / "rows.parquet", x, y, 128)
    lottery = covtype.tested(covtype.FULL)
    source = ParquetRows(tmp_path / "rows.parquet", "cover", lottery=lottery)
    test = lottery.keeps(np.arange(900))
    found = source.read(0, source.rows)
    np.testing.assert_array_equal(found[0], x[test])
    np.testing.assert_array_equal(found[1], y[test])
    assert source.columns.task == "classification"


def test_scores_are_those_done_by_hand():
    p = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    found = covtype.scores(p, np.array([1, 2]))
    assert found["error"] == 0.5
    assert found["log_density"] == pytest.approx(np.log([0.5, 0.7]).mean())


def test_table_and_figure_show_each_model():
    text = covtype.table(made_rows())
    assert "| farrier | 10.00 | -0.3000 | 90 - 40 | 10.0 | 58000 |" in text
    assert "| gradient boosting | 12.00 |" in text
    assert len(covtype.render(made_rows())["models"].axes) == 2


@pytest.mark.parametrize(
    ("error", "log_density", "expected"),
    [(0.1, -0.3, "holds"), (0.1, -0.9, "holds partly"), (0.5, -0.9, "does not hold")],
)
def test_the_verdict_takes_both_figures(error, log_density, expected):
    (claim,) = covtype.claims(made_rows(error, log_density))
    assert claim.verdict == expected
    assert "logistic regression 28.00% / -0.630" in claim.evidence
    assert covtype.claims(made_rows()[:1]) == []
