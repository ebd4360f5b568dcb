"""A training step of UQ360's horseshoe network, as its own `fit` does it."""

from collections.abc import Callable

import numpy as np
import torch
from protocol import Task, time_steps
from uq360.models.bayesian_neural_networks.bnn_models import horseshoe_mlp

np.float = float  # noqa: NPY001 (UQ360 0.2 uses this name, which NumPy has dropped)
NOTE = (
    "scales drawn once a batch; hidden layers after the first are in a plain list, so "
    "that Adam never gets their weights: they are not trained (as shipped). Its fit "
    "also copies all weights after each epoch; that copy is not in the step"
)
RATE = 1e-3


def build(task: Task) -> Callable[[], object]:
    """Bound, backward, Adam, and the fixed point of the auxiliary variables."""
    d_in, *widths, d_out = task.sizes
    if len(set(widths)) > 1:
        raise SystemExit("UQ360 has one width for all hidden layers.")
    kinds = (horseshoe_mlp.HshoeClassificationNet, horseshoe_mlp.HshoeRegressionNet)
    network = kinds[task.regression](
        ip_dim=d_in, op_dim=d_out, num_nodes=widths[0], num_layers=len(widths)
    )
    adam = torch.optim.Adam(network.parameters(), lr=RATE)
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
    batches = -(-len(x) // task.batch)

    def run() -> None:
        for start in task.starts:
            rows = slice(start, start + task.batch)
            loss = network.neg_elbo(batches, x[rows], y[rows]) / task.batch
            adam.zero_grad()
            loss.backward()
            adam.step()
            network.fixed_point_updates()
            loss.item()

    return run


time_steps(
    build,
    packages=("uq360", "torch", "numpy"),
    note=NOTE,
    set_threads=torch.set_num_threads,
)
