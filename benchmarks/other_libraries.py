"""Other libraries, each in an environment of its own, timed in turn with farrier.

Our own steps run before and after each peer (`environments.py`), and a figure is a
median. A whole training of a peer is taken to be its steps. What goes wrong with a peer
becomes its entry in the table.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from experiments import datasets
from farrier.train.data import Data
from farrier.train.shrink import Shrinking

from .bench import (
    FITS,
    REPEATS,
    SHAPES,
    machine,
    many_fits,
    our_steps,
    random_table,
    train_digits,
)
from .environments import (
    FIT_KEYS,
    SCRIPTS,
    PeerError,
    answer_of,
    environment,
    write_splits,
)

CHECKOUT = Path(__file__).parents[1]
STEP_PEERS = ("uq360", "bayesian_torch", "torchbnn", "blitz", "numpyro_svi")
STEP_SHAPES = ("8-50-1", "784-400-400-10")
TRAINING_PEER = "uq360"
FIT_PEERS = ("bde", "ngboost", "sklearn_gp")
FIT_DATA, FIT_SPLIT = "concrete", 0
OURS = {"farrier": "default", "farrier_refined": "refined"}  # our fits: their recipes
# Seconds that one process may take.
STEPS_SECONDS, FIT_SECONDS = 600, 1_800
STEP_KEYS = {"step_s", "note", "versions"}  # what an answer must hold
TRAININGS = {  # name: shape, and what trains ours: seconds, and steps in all
    "20 fits at once": ("8-50-1", lambda data: many_steps()),
    "60 epochs of MNIST": ("784-400-400-10", lambda data: digit_steps(data)),
}

BESIDE = {  # for the README: name, kind of model, what becomes of its nodes
    "farrier": ("farrier", "horseshoe network, variational", "switched off, removed"),
    "farrier_refined": ("farrier, refined", "the same, then sampled", "most stay"),
    "uq360": ("UQ360", "horseshoe network, variational", "shrunk"),
    "bayesian_torch": ("bayesian-torch", "Gaussian network, variational", "all stay"),
    "numpyro_svi": ("NumPyro, SVI", "the model that you write", "as you write it"),
    "bde": ("bde", "ensemble of networks, sampled", "all stay"),
    "ngboost": ("NGBoost", "boosted trees", ""),
    "sklearn_gp": ("scikit-learn's GP", "Gaussian process", ""),
}


def run_peers(
    folder: Path,
    environments: Path,
    report: Callable[[int, str], None],
    *,
    scripts: Path = SCRIPTS,
    data: Path = CHECKOUT.parent / "shared" / "data",
    only: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """All figures, also written to `peers.json` in `folder` as they come.

    Parameters
    ----------
    environments
        Folder of the environments, kept from run to run.
    report
        Told the number of tasks done and the one that begins.
    scripts
        Folder of the peers.
    data
        Folder of the data sets, with `uci` in it.
    only
        Tasks whose names hold one of these; all other figures in the file stay.
    """
    chosen = tasks(only)
    found = _known(folder) if only else {}
    for kind in ("steps", "trainings", "fits"):
        found.setdefault(kind, {})
    with tempfile.TemporaryDirectory() as scratch:
        for done, (kind, name, shape) in enumerate(chosen):
            report(done, f"{name} {shape}")
            figures = _task(
                kind, name, shape, Path(scratch), scripts, environments, data
            )
            if kind == "steps":
                found[kind].setdefault(name, {})[shape] = figures
            else:
                found[kind][shape if kind == "trainings" else name] = figures
            write(folder, found)
    report(len(chosen), "done")
    return found


def tasks(only: Sequence[str] = ()) -> list[tuple[str, str, str]]:
    """Kind of figures, peer, and what it does; those whose names hold one of these."""
    every = [("steps", name, shape) for shape in STEP_SHAPES for name in STEP_PEERS]
    every += [("trainings", TRAINING_PEER, title) for title in TRAININGS]
    every += [("fits", name, FIT_DATA) for name in (*OURS, *FIT_PEERS)]
    return [
        task
        for task in every
        if not only or any(text in " ".join(task) for text in only)
    ]


def _task(
    kind: str,
    name: str,
    shape: str,
    scratch: Path,
    scripts: Path,
    environments: Path,
    data: Path,
) -> dict[str, Any]:
    """The figures of one task."""
    peer = scripts / name, environments / name
    if kind == "fits":
        return fit_figures(*peer, scratch / "split.npz", data)
    shape, train = TRAININGS.get(shape, (shape, None))
    x, y = random_table(shape)
    table = scratch / "table.npz"
    np.savez(table, x=x, y=y)
    if train is not None:
        return training_figures(*peer, shape, table, partial(train, data))
    return step_figures(*peer, shape, table, our_seconds(shape, x, y))


def _known(folder: Path) -> dict[str, Any]:
    """Figures of earlier runs."""
    path = folder / "peers.json"
    return json.loads(path.read_text())["figures"] if path.is_file() else {}


def step_figures(
    peer: Path, home: Path, shape: str, table: Path, ours: Callable[[], list[float]]
) -> dict[str, Any]:
    """Milliseconds of a step of a peer and of ours, and theirs / ours."""
    load = os.getloadavg()[0]
    try:
        python = environment(peer, home)
        before = ours()
        answer = steps_of(python, peer, shape, table)
    except PeerError as error:
        return {"error": str(error)}
    theirs_s = statistics.median(answer.pop("step_s"))
    ours_s = statistics.median([*before, *ours()])
    figures = {
        "peer_ms": 1e3 * theirs_s,
        "ours_ms": 1e3 * ours_s,
        "ratio": theirs_s / ours_s,
    }
    return figures | answer | {"load": load}


def training_figures(
    peer: Path,
    home: Path,
    shape: str,
    table: Path,
    ours: Callable[[], tuple[float, int]],
) -> dict[str, Any]:
    """Seconds of a whole training: a peer's step x their number, ours, theirs / ours.

    The peer's steps are timed before and after our training.
    """
    load = os.getloadavg()[0]
    try:
        python = environment(peer, home)
        answer = steps_of(python, peer, shape, table)
        seconds, steps = ours()
        after = steps_of(python, peer, shape, table)
    except (PeerError, OSError) as error:
        return {"error": str(error)}
    theirs = steps * statistics.median([*answer.pop("step_s"), *after["step_s"]])
    figures = {"peer_s": theirs, "ours_s": seconds, "ratio": theirs / seconds}
    return figures | answer | {"steps": steps, "load": load}


def steps_of(python: Path, peer: Path, shape: str, table: Path) -> dict[str, Any]:
    """What a peer answers when asked for the seconds of its steps."""
    *_, batch, steps = SHAPES[shape]
    arguments = [str(table), shape, str(batch), str(steps), str(REPEATS)]
    script = peer / "peer.py"
    return answer_of(python, script, arguments, STEPS_SECONDS, STEP_KEYS)


def many_steps() -> tuple[float, int]:
    """Seconds and steps of 20 fits of 8-50-1 as one piece of work."""
    found = many_fits()
    return found[f"{FITS}_fits_s"], int(found["steps"])


def digit_steps(data: Path) -> tuple[float, int]:
    """Seconds and steps of MNIST with 400-400 units, nodes leaving on the way."""
    found = train_digits(data, SHAPES["784-400-400-10"][1], Shrinking())
    return found["s"], int(found["steps"])


def fit_figures(peer: Path, home: Path, split: Path, data: Path) -> dict[str, Any]:
    """Seconds and scores of a whole fit; farrier's own runs in this environment."""
    own = peer.name in OURS
    load = os.getloadavg()[0]
    try:
        write_split(split, data)
        python = Path(sys.executable) if own else environment(peer, home)
        script = peer.parent / "ours.py" if own else peer / "peer.py"
        arguments = [str(split), *([OURS[peer.name]] if own else [])]
        answer = answer_of(python, script, arguments, FIT_SECONDS, FIT_KEYS)
    except PeerError as error:
        return {"error": str(error)}
    return answer | {"load": load}


def our_seconds(shape: str, x: np.ndarray, y: np.ndarray) -> Callable[[], list[float]]:
    """A function that trains on for some chunks: seconds a step of each, compiled."""
    *_, batch_size, steps = SHAPES[shape]
    run = our_steps(shape, Data.create(x, y, batch_size=batch_size))

    def chunk() -> float:
        began = time.perf_counter()
        jax.block_until_ready(run())
        return (time.perf_counter() - began) / steps

    chunk()
    return lambda: [chunk() for _ in range(REPEATS)]


def write_split(file: Path, data: Path) -> None:
    """The standard split of the whole fits, in the units of the data."""
    try:
        x, y, splits = datasets.uci(FIT_DATA, data)
    except OSError as error:
        raise PeerError(f"The data of {FIT_DATA} were not found: {error}") from error
    write_splits(file, x, y, {FIT_SPLIT: splits[FIT_SPLIT]})


def write(folder: Path, found: dict[str, Any]) -> None:
    """Write `peers.json`, under another name first, so that it is always whole."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine(), "figures": found}, indent=1)
    part = folder / "peers.json.part"
    part.write_text(text + "\n")
    part.replace(folder / "peers.json")
    (folder / "peers.md").write_text(page(found))


def page(found: dict[str, Any]) -> str:
    """All figures as three tables in Markdown."""

    def row(*cells: str) -> str:
        return "| " + " | ".join(cells) + " |"

    def values(entry: dict[str, Any], *keys: str) -> list[str]:
        shown = [f"{entry[key]:.3g}" if key in entry else "" for key in keys]
        note = entry.get("error") or entry.get("note", "")
        return [*shown, note.replace("\n", " ").replace("|", "/")]

    lines = [
        row("peer", "shape", "peer, ms a step", "ours, ms", "peer / ours", "note"),
        row("---", "---", "---:", "---:", "---:", "---"),
    ]
    for name, shapes in found["steps"].items():
        for shape, entry in shapes.items():
            cells = values(entry, "peer_ms", "ours_ms", "ratio")
            lines.append(row(name, shape, *cells))
    lines += [
        "",
        row("training", "peer, s", "ours, s", "peer / ours", "note"),
        row("---", "---:", "---:", "---:", "---"),
    ]
    for title, entry in found["trainings"].items():
        shape, _ = TRAININGS[title]
        cells = values(entry, "peer_s", "ours_s", "ratio")
        lines.append(row(f"{TRAINING_PEER}, {shape}, {title}", *cells))
    lines += [
        "",
        row(f"fit to {FIT_DATA}", "s", "RMSE", "log density", "CRPS", "note"),
        row("---", "---:", "---:", "---:", "---:", "---"),
    ]
    for name, entry in found["fits"].items():
        cells = values(entry, "seconds", "rmse", "log_density", "crps")
        lines.append(row(name, *cells))
    return "\n".join(lines) + "\n"


def beside(found: dict[str, Any]) -> str:
    """The table of the README: some of the figures, one line for each library."""
    steps = [f"step / ours, {shape}" for shape in STEP_SHAPES]
    columns = ["library", "what it is", "nodes", *steps]
    columns += [f"{FIT_DATA}: RMSE", "log density", "CRPS", "s"]
    lines = [columns, ["---"] * 3 + ["---:"] * (len(columns) - 3)]
    for name, words in BESIDE.items():
        shapes = found["steps"].get(name, {})
        ratios = [shapes.get(shape, {}).get("ratio") for shape in STEP_SHAPES]
        fit = found["fits"].get(name, {})
        scores = [fit.get(key) for key in ("rmse", "log_density", "crps", "seconds")]
        values = [*ratios, *scores]
        lines.append([*words, *("" if v is None else f"{v:.3g}" for v in values)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
