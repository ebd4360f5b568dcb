"""What a pass costs against rows, columns, width, batch: measured, and a model of it.

A run of one pass over N rows in batches of B has its records, N / B steps, and each
step a cost of its own, one for each row, and one for each row and weight:

    seconds = r + N / B (a + B (b + c W)),   W = (d + 1) w + w + 1                  (Y1)

with d columns and w nodes. All four costs are fitted to the streamed passes, none
negative.
"""

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize

from experiments.plots import Figure, legend_below, new_figure

from .bench import machine, output_of, write_rows

KINDS = {"streamed": "from Parquet", "held": "in memory"}
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Point:
    """One fit of one pass."""

    rows: int = 1_000_000
    columns: int = 20
    width: int = 100
    batch: int = 512
    kind: str = "streamed"

    @property
    def weights(self) -> int:
        """Of the network, biases included: W of (Y1)."""
        return (self.columns + 1) * self.width + self.width + 1

    @property
    def steps(self) -> float:
        """In one pass."""
        return self.rows / self.batch


BASE = Point()
AXES: dict[str, tuple[int, ...]] = {
    "rows": (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000),
    "columns": (5, 20, 80),
    "width": (25, 100, 400),
    "batch": (128, 512, 2_048),
}
HELD = (250_000, 500_000, 1_000_000, 2_000_000)  # rows that are tried in memory too
FAR = 10**9  # rows for which the model is asked


def points() -> list[Point]:
    """All that is measured: each axis from the same base, each point once."""
    streamed = [
        replace(BASE, **{axis: value})
        for axis, values in AXES.items()
        for value in values
    ]
    held = [replace(BASE, rows=rows, kind="held") for rows in HELD]
    return list(dict.fromkeys([*streamed, *held]))


# Seconds are those between the first look at the run and the last: without compiling.
PROGRAM = """
import json, sys, warnings
from pathlib import Path
import numpy as np
from experiments.settings import arguments
from farrier import HorseshoeRegressor, ParquetRows
warnings.simplefilter("ignore")
folder, width, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rows = (ParquetRows(folder, "y"),)
if kind == "held":
    table = np.load(folder / "table.npy")
    rows = table[:, :-1], table[:, -1]
looks = []
once = {"max_iter": 1, "batch_size": int(sys.argv[4]), "early_stopping": False}
model = HorseshoeRegressor((width,), random_state=0, **arguments(once))
model.fit(*rows, callback=lambda _, run: looks.append((run.step[-1], run.seconds)))
(first, early), (last, late) = looks[0], looks[-1]
status = Path("/proc/self/status").read_text()
peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
print(json.dumps([float((late - early) / (last - first)), peak / 1e9]))
"""


def measured(point: Point) -> Row:
    """One pass in a new process: its seconds, and the peak of its memory."""
    with tempfile.TemporaryDirectory() as folder:
        table = write_rows(Path(folder), point.rows, point.columns)
        if point.kind == "held":
            np.save(Path(folder, "table.npy"), np.concatenate([*table()]))
        given = folder, str(point.width), point.kind, str(point.batch)
        step, peak = json.loads(output_of(PROGRAM, *given))
    return asdict(point) | {"pass_s": step * point.steps, "peak_GB": peak}


def cost_model(rows: Iterable[Row]) -> np.ndarray:
    """r, a, b and c of (Y1), with the least sum of squared relative errors."""
    streamed = [row for row in rows if row["kind"] == "streamed"]
    terms = np.stack([_terms(row) for row in streamed])
    seconds = np.array([row["pass_s"] for row in streamed])
    return optimize.nnls(terms / seconds[:, None], np.ones(len(streamed)))[0]


def predicted(model: np.ndarray, row: Row) -> float:
    """Seconds of a pass by (Y1)."""
    return float(_terms(row) @ model)


def _terms(row: Row) -> np.ndarray:
    point = Point(**{name: row[name] for name in asdict(BASE)})
    return np.array([1, point.steps, point.rows, point.rows * point.weights])


def run(folder: Path, report: Callable[[int, str], None]) -> list[Row]:
    """All points, written to `scaling.json`, `scaling.md` and `scaling.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for done, point in enumerate(points()):
        report(done, f"{point.rows} x {point.columns}, {point.width} nodes")
        rows.append(measured(point))
    report(len(rows), "done")
    write(folder, {"machine": machine(), "rows": rows})
    return rows


def write(folder: Path, found: dict[str, Any]) -> None:
    """What was found, and what is made of it."""
    model = cost_model(found["rows"])
    (folder / "scaling.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "scaling.md").write_text(page(found["rows"], model))
    figure(found["rows"], model).savefig(folder / "scaling.png", dpi=150)


def page(rows: list[Row], model: np.ndarray) -> str:
    """What was measured beside the model, and what the model says of a large table."""
    lines = [
        "| rows | columns | nodes | batch | rows come | a pass (s) | by (Y1) (s) | "
        "peak (GB) |",
        "| ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        shape = " | ".join(f"{row[axis]:,}" for axis in AXES)
        lines.append(
            f"| {shape} | {KINDS[row['kind']]} | {row['pass_s']:.2f} | "
            f"{predicted(model, row):.2f} | {row['peak_GB']:.2f} |"
        )
    once, step, each, weight = model
    costs = f"{once:.1f} s a run, {1e6 * step:.0f} us a step, {1e9 * each:.0f} ns a row"
    far = predicted(model, asdict(replace(BASE, rows=FAR))) / 3600
    size = f"{FAR:,} rows of {BASE.columns} columns with {BASE.width} nodes"
    return "\n".join(lines) + (
        f"\n\n(Y1), fitted to the streamed passes: {costs} and {1e9 * weight:.3f} ns a "
        f"row and weight. One pass over {size}: {far:.1f} hours.\n"
    )


def figure(rows: list[Row], model: np.ndarray) -> Figure:
    """Seconds above, memory below, against each axis."""
    drawn, axes = new_figure(2, len(AXES), height=5.4)
    base = asdict(BASE)
    for column, axis in enumerate(AXES):
        fixed = {name: base[name] for name in AXES if name != axis}
        time, memory = axes[:, column]
        for kind, style in (("streamed", "o"), ("held", "s")):
            chosen = fixed | {"kind": kind}
            on = [row for row in rows if chosen.items() <= row.items()]
            on.sort(key=lambda row: row[axis])
            if kind == "held" and axis != "rows":
                continue
            place = [row[axis] for row in on]
            label = f"rows {KINDS[kind]}"
            time.plot(place, [row["pass_s"] for row in on], style, ms=5, label=label)
            memory.plot(place, [row["peak_GB"] for row in on], f"{style}-", ms=4)
            if kind == "streamed":
                line = [predicted(model, row) for row in on]
                time.plot(place, line, color="0.5", lw=1, label="model (Y1)")
        for ax in (time, memory):
            ax.set(xscale="log", ylim=(0, None))
            ax.set_xticks(AXES[axis], [short(value) for value in AXES[axis]])
            ax.minorticks_off()
        memory.set_xlabel(axis)
    axes[0, 0].set_ylabel("one pass (s)")
    axes[1, 0].set_ylabel("peak memory (GB)")
    legend_below(drawn, axes[0, 0])
    return drawn


def short(value: int) -> str:
    """A number for an axis: 250k, 4M."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if value >= unit and not value % unit:
            return f"{value // unit}{name}"
    return str(value)
