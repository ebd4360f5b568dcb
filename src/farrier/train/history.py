"""What a training run records, and how it ended."""

import enum
import math
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
    """Nodes of one hidden layer that were removed from the network while training."""

    step: int
    layer: int  # 1 is the first
    nodes: tuple[int, ...]  # the numbers that they had at the start


@dataclass
class History:
    """The ELBO and its terms over the steps, in nats over the whole data set.

    Each entry is the mean over the steps since the entry before it. Where nodes were
    removed during training, the ELBO is that of the network without them.

    Attributes
    ----------
    step : ndarray of int
        Step of each record.
    terms : dict of ndarray
        Expected log likelihood and KL terms by name.
    status : Status
        How the run ended.
    skipped : int
        Steps that were not finite and were skipped; `bad_step` is the first of them
        and `bad_term` its first term that was not finite.
    seconds : float
        Training time.
    removed : tuple of Removal
        Nodes that were removed while training.
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
        """Every KL term: `layer_1/beta`, `layer_1/tau`, ..."""
        return {n: v for n, v in self.terms.items() if n != "log_likelihood"}

    @property
    def elbo(self) -> np.ndarray:
        """The exact ELBO, with every KL term at weight 1."""
        return self.log_likelihood - sum(self.kl.values())

    @property
    def last_elbo(self) -> float:
        """The last record of the ELBO, or -inf if it is not finite."""
        elbo = self.elbo
        return float(elbo[-1]) if len(elbo) and np.isfinite(elbo[-1]) else -math.inf

    def summary(self) -> dict[str, Any]:
        """Everything except the records, as plain values."""
        return {k: v for k, v in asdict(self).items() if k not in ("step", "terms")}

    def extended(self, step: np.ndarray, terms: dict[str, np.ndarray]) -> "History":
        """The history with the records of one more chunk."""
        joined = {n: np.concatenate([self.terms[n], terms[n]]) for n in self.terms}
        return replace(self, step=np.concatenate([self.step, step]), terms=joined)
