"""A training step of a network with blitz's layers, by its own sampled bound."""

from collections.abc import Callable

import torch
from blitz.modules import BayesianLinear
from blitz.utils import variational_estimator
from protocol import Task, time_steps
from torch import nn
from torch_steps import adam_steps, layered

NOTE = (
    "Gaussian prior (its default mixture); weights drawn once a batch, KL sampled; "
    "noise by maximum likelihood"
)


@variational_estimator
class Network(nn.Sequential):
    """Layers in a row, with the methods that blitz adds."""


def build(task: Task) -> Callable[[], object]:
    """One draw of the bound a step."""
    network = layered(task, BayesianLinear, Network)
    share = 1 / len(task.x)
    return adam_steps(
        task,
        network,
        lambda x, y, criterion: network.sample_elbo(
            x, y, criterion, sample_nbr=1, complexity_cost_weight=share
        ),
    )


time_steps(
    build,
    packages=("blitz-bayesian-pytorch", "torch", "numpy"),
    note=NOTE,
    set_threads=torch.set_num_threads,
)
