"""Training steps of the peers that bring layers and a KL for PyTorch, and no loop."""

from collections.abc import Callable
from itertools import pairwise

import torch
from protocol import Task
from torch import nn

RATE = 1e-3


def layered(
    task: Task, linear: Callable[[int, int], nn.Module], network=nn.Sequential
) -> nn.Sequential:
    """Layers of the sizes of the task with relu between them."""
    pairs = pairwise(task.sizes)
    layers = [layer for m, n in pairs for layer in (linear(m, n), nn.ReLU())]
    return network(*layers[:-1])


def adam_steps(
    task: Task, network: nn.Module, objective: Callable[..., torch.Tensor]
) -> Callable[[], object]:
    """All steps of the task: `objective(x, y, criterion)`, backward, Adam.

    `criterion` is the mean negative log likelihood of a row: of a normal whose noise
    is learned by maximum likelihood, or of classes.
    """
    x, y = torch.from_numpy(task.x), torch.from_numpy(task.y)
    log_noise = nn.Parameter(torch.zeros(()))

    def normal(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 0.5 * ((y - f) ** 2).mean() * torch.exp(-2 * log_noise) + log_noise

    criterion = normal if task.regression else nn.functional.cross_entropy
    adam = torch.optim.Adam([*network.parameters(), log_noise], lr=RATE)

    def run() -> None:
        for start in task.starts:
            rows = slice(start, start + task.batch)
            loss = objective(x[rows], y[rows], criterion)
            adam.zero_grad()
            loss.backward()
            adam.step()

    return run
