"""What a training run records, and how it ended."""

import enum
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np


class Status(enum.StrEnum):
    """How a run ended."""

    RUNNING = "running"
    BUDGET = "budget"
    CONVERGED = "converged"
    INTERRUPTED = "interrupted"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Removal:
    """Nodes of one hidden layer that left the network while it was trained."""

    step: int
    layer: int  # 1 is the first
    nodes: tuple[int, ...]  # the numbers that they had at the start


@dataclass
class History:
    """The bound and its terms over the steps, in nats over the whole data set.

    Each entry is the mean over the steps since the entry before it. Where nodes have
    left, the bound is that of the network without them.
    """

    step: np.ndarray
    terms: dict[str, np.ndarray]
    status: Status = Status.RUNNING
    skipped: int = 0
    bad_step: int = -1
    bad_term: str = ""
    seconds: float = 0.0
    removed: tuple[Removal, ...] = ()

    @property
    def log_likelihood(self) -> np.ndarray:
        """Expected log likelihood."""
        return self.terms["log_likelihood"]

    @property
    def kl(self) -> dict[str, np.ndarray]:
        """Every divergence: `layer_1/beta`, `layer_1/tau`, ..."""
        return {n: v for n, v in self.terms.items() if n != "log_likelihood"}

    @property
    def bound(self) -> np.ndarray:
        """The exact bound, with every divergence at weight 1."""
        return self.log_likelihood - sum(self.kl.values())

    def summary(self) -> dict[str, Any]:
        """All but the records, as plain values."""
        return {k: v for k, v in asdict(self).items() if k not in ("step", "terms")}

    def extended(self, step: np.ndarray, terms: dict[str, np.ndarray]) -> "History":
        """The history with the records of one more chunk."""
        joined = {n: np.concatenate([self.terms[n], terms[n]]) for n in self.terms}
        return replace(self, step=np.concatenate([self.step, step]), terms=joined)
