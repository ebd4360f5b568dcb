"""A training step of a network with torchbnn's layers."""

from collections.abc import Callable

import torch
import torchbnn
from protocol import Task, time_steps
from torch_steps import adam_steps, layered

NOTE = "Gaussian prior; weights drawn once a batch; noise by maximum likelihood"
PRIOR_SD = 0.1


def build(task: Task) -> Callable[[], object]:
    """The loss of its examples: criterion + KL, here the exact share of a row."""
    network = layered(task, lambda m, n: torchbnn.BayesLinear(0, PRIOR_SD, m, n))
    kl = torchbnn.BKLLoss(reduction="sum")
    return adam_steps(
        task,
        network,
        lambda x, y, criterion: (
            criterion(network(x), y) + kl(network).squeeze() / len(task.x)
        ),
    )


time_steps(
    build,
    packages=("torchbnn", "torch", "numpy"),
    note=NOTE,
    set_threads=torch.set_num_threads,
)
