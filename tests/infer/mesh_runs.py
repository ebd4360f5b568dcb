"""Runs of `tests/infer/test_placement.py`, each in processes of its own.

python mesh_runs.py NAME FOLDER [RANK PORT]: what a run ends with goes to FOLDER.
"""

import sys
from pathlib import Path

import jax
import jax.random as jr
import numpy as np

from farrier.core.priors import Horseshoe
from farrier.infer import placement, shrink
from farrier.infer.placement import Meshed, OneDevice, distributed
from farrier.infer.stream import Held, Stream
from farrier.infer.train import Job, Run, TrainConfig, train
from farrier.model.likelihoods import GaussianNoise
from farrier.model.network import Network

ROWS, STEPS, WIDTH = 1_003, 200, 16
placement.WIDE = WIDTH
shrink.PAYS = 3e6  # so little that nodes leave, and so much that they seldom do


def table() -> Held:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    return Held(x, np.sin(2 * x[:, :1]), np.ones(ROWS), piece=37)


def job(where: OneDevice | None) -> Job:
    held = table()
    noise = GaussianNoise().build(1, rows=ROWS)
    network = Network.create(3, (WIDTH, WIDTH), noise, Horseshoe(), key=jr.key(0))
    config = TrainConfig(steps=STEPS, batch_size=64, kl_warm_up=0.2)
    data = Stream(held, batch_size=64, key=jr.key(1), placement=where)
    start = Run.create(network, config)
    return Job(start, data, config, jr.key(2), shrink.shrunk)


def write(file: Path, run: Run) -> None:
    network = run.state.network
    np.savez(
        file,
        bound=run.history.bound,
        nodes=np.concatenate([np.asarray(layer.nodes) for layer in network.layers]),
        kernel=np.asarray(network.layers[0].weights.kernel.loc),
    )


def devices(folder: Path) -> None:
    """One process with eight devices, cut in three ways."""
    found = jax.devices()
    places = {
        "one": None,
        "rows": Meshed.over(found),
        "nodes": Meshed.over(found, nodes=2),
    }
    for name, where in places.items():
        write(folder / f"{name}.npz", train(job(where)))


def processes(folder: Path, rank: int, port: int) -> None:
    """Two processes with one device each."""
    distributed(f"127.0.0.1:{port}", 2, rank)
    write(folder / f"process_{rank}.npz", train(job(placement.current())))


if __name__ == "__main__":
    name, folder, *numbers = sys.argv[1:]
    globals()[name](Path(folder), *map(int, numbers))
