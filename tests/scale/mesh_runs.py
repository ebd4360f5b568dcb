"""Runs of `tests/scale/test_processes.py`, each in its own processes.

python mesh_runs.py NAME FOLDER [RANK PORT]: the results of a run are written to FOLDER.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import farrier
from farrier.core.priors import Horseshoe
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network
from farrier.scale import rows
from farrier.scale.placement import ONE_DEVICE, AbstractPlacement, Meshed
from farrier.scale.rows import ArrayRows, Raw
from farrier.scale.stream import Block, Stream, run_block
from farrier.train.config import TrainConfig
from farrier.train.loop import Job, Run, train
from farrier.train.shrink import Shrinking

ROWS, STEPS, WIDTH = 1_003, 200, 16
rows.PIECE = 37
# So little that nodes are removed, and so much that they are removed once.
SHRINKING = Shrinking(min_saving=1.2e6)
QUICK = farrier.Training(max_iter=3)


def table() -> ArrayRows:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    return ArrayRows(x, np.sin(2 * x[:, :1]))


def job(where: AbstractPlacement, source: ArrayRows) -> Job:
    noise = GaussianNoise().build(1, rows=ROWS)
    network = Network.create(3, (WIDTH,), noise, Horseshoe(), key=jr.key(0))
    config = TrainConfig(steps=STEPS, batch_size=64, kl_annealing=0.2)
    data = Stream(source, batch_size=64, key=jr.key(1), placement=where)
    return Job(Run.create(network, config), data, config, jr.key(2), shrink=SHRINKING)


def write(file: Path, run: Run) -> None:
    layers = run.state.network.layers
    np.savez(
        file,
        elbo=run.history.elbo,
        nodes=np.concatenate([np.asarray(layer.nodes) for layer in layers]),
        kernel=np.asarray(layers[0].weights.kernel.loc),
    )


def devices(folder: Path) -> None:
    """One process: one device, and eight of which two share each part of the rows."""
    eight = Meshed.over(jax.devices(), 2, wide=WIDTH)
    for name, where in {"one": ONE_DEVICE, "eight": eight}.items():
        write(folder / f"{name}.npz", train(job(where, table())))
    (folder / "program.txt").write_text(program(Meshed.over(jax.devices(), wide=WIDTH)))


def program(where: Meshed) -> str:
    """What XLA has made of a block of steps."""
    work = job(where, table())
    run, total, key = work.run, jnp.asarray(ROWS, float), work.key
    sums = jnp.zeros(len(run.state.network.term_names()) + 1)
    stop = jnp.asarray(2, jnp.int32)
    state, schedule, sums, total, stop, key = where.put_on_devices(
        (run.state, run.schedule, sums, total, stop, key)
    )
    assert isinstance(work.data, Stream)
    batches = [np.stack([v, v]) for v in work.data.batch(0)]
    block = Block(*(where.put_batches(values, 64) for values in batches))
    whole: Any = run_block
    lowered = whole.lower(state, sums, block, total, schedule, stop, where, key=key)
    return lowered.compile().compiled.as_text()


class Broken(ArrayRows):
    """A source with rows that the second process cannot read."""

    def read(self, first: int, last: int) -> Raw:
        if jax.process_index() == 1 and last > first > ROWS / 2:
            raise ValueError("row group 7 is damaged")
        return super().read(first, last)


def message_of(work: Callable[[], object]) -> str:
    try:
        work()
    except (ValueError, OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def policies() -> list[int]:
    """How the threads of this process are scheduled, on Linux."""
    tasks = Path("/proc/self/task")
    if not tasks.exists():
        return []
    return sorted({os.sched_getscheduler(int(task.name)) for task in tasks.iterdir()})


def processes(folder: Path, rank: int, port: int) -> None:
    """Two processes with one device each; then what stops them, and many fits."""
    address = f"127.0.0.1:{port}"
    where = farrier.distributed(address, 2, rank)
    write(folder / f"process_{rank}.npz", train(job(where, table())))

    source = table()
    assert source.y is not None
    x, y = source.x[:64], source.y[:64, 0]

    def fit(shift: float = 0.0, **settings) -> None:
        model = farrier.HorseshoeRegressor((4,), training=QUICK, random_state=0)
        model.fit(x + shift, y, placement=where, **settings)

    def interrupt(share: float, history: object) -> None:
        if rank == 1 and share < 0.5:
            os.kill(os.getpid(), signal.SIGINT)

    broken = Broken(source.x, source.y)
    results = {
        "broken": message_of(lambda: train(job(where, broken))),
        "folder": message_of(lambda: fit(checkpoint=folder / "none" / "x.checkpoint")),
        "rows": message_of(lambda: fit(shift=float(rank))),
        "bad values": message_of(lambda: fit(shift=np.nan if rank else 0.0)),
        "twice": message_of(lambda: farrier.distributed(address, 2, rank)),
    }
    many = farrier.fit_many(
        farrier.HorseshoeRegressor((4,), training=QUICK, random_state=0),
        x,
        y,
        rows=[np.arange(n, 64, 3) for n in range(3)],
        placement=where,
    )
    results["many"] = [model.predict(x[:5]).tolist() for model in many]
    model = farrier.HorseshoeRegressor((4,), training=farrier.Training(max_iter=30))
    model.fit(x, y, callback=interrupt, placement=where)
    results["interrupted"] = [str(model.history_.status), model.predict(x[:5]).tolist()]
    results["policies"] = policies()
    (folder / f"messages_{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    name, folder, *numbers = sys.argv[1:]
    globals()[name](Path(folder), *map(int, numbers))
