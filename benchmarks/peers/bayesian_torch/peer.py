"""A training step of a network that bayesian-torch made Bayesian."""

from collections.abc import Callable

import torch
from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn, get_kl_loss
from protocol import Task, time_steps
from torch import nn
from torch_steps import adam_steps, layered

NOTE = (
    "Gaussian prior; weights drawn once a batch; noise by maximum likelihood; its KL "
    "is a mean over the weights of a layer (as shipped)"
)
PRIOR = {
    "prior_mu": 0.0,
    "prior_sigma": 1.0,
    "posterior_mu_init": 0.0,
    "posterior_rho_init": -3.0,
    "type": "Reparameterization",
    "moped_enable": False,
}


def build(task: Task) -> Callable[[], object]:
    """The loss of its examples: criterion + KL / rows."""
    network = layered(task, nn.Linear)
    dnn_to_bnn(network, PRIOR)
    return adam_steps(
        task,
        network,
        lambda x, y, criterion: (
            criterion(network(x), y) + get_kl_loss(network) / len(task.x)
        ),
    )


time_steps(
    build,
    packages=("bayesian-torch", "torch", "numpy"),
    note=NOTE,
    set_threads=torch.set_num_threads,
)
