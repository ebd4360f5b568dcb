"""Settings of a training run."""

import math
from dataclasses import dataclass

COMPILER_OPTIONS = {
    # XLA's own choice is 256 bits; where a processor has no wider, nothing changes.
    "xla_cpu_prefer_vector_width": 512,
    # Fewer copies of what a loop carries: a twentieth of a small step. Bits stay.
    "xla_cpu_copy_insertion_use_region_analysis": True,
}


@dataclass(frozen=True, kw_only=True)
class KlRelease:
    """A weight of the divergences that is high at first and low at the end (T5).

    Under the high weight nodes switch off; under the low one those that are left fit
    the rows more closely. What is maximised at the end is the bound only if `final` is
    1.

    Parameters
    ----------
    peak
        Weight after the warm-up.
    final
        Weight at the end.
    begin, end
        Shares of the budget between which it falls, linearly, from `peak` to `final`.
    """

    peak: float = 0.3
    final: float = 0.03
    begin: float = 0.4
    end: float = 0.6

    def __post_init__(self) -> None:
        for name in ("peak", "final"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(
                    f"`{name}` must be positive and finite, got {value!r}."
                )
        shares = self.begin, self.end
        if not (
            all(isinstance(v, int | float) for v in shares)
            and 0 <= shares[0] <= shares[1] <= 1
        ):
            raise ValueError(
                "`begin` and `end` are shares of the steps, from 0 to 1 and in order, "
                f"got {self.begin!r} and {self.end!r}."
            )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long and how fast to train.

    Parameters
    ----------
    steps
        Budget; training may stop before it (`tolerance`).
    batch_size
        Most rows in one step. A pass is cut into batches of nearly equal size.
    kl_weight
        Weight of the divergences, 1 being the exact bound, or how it falls.
    kl_warm_up
        Share of the budget over which that weight rises linearly from 0.
    averaging
        The network of a run is a moving average over its steps, each of which keeps
        this share of the average before it; 0 is the network of the last step.
    tolerance
        Stop when the gain still to be had, in nats a row, is surely under this.
    max_bad_run
        Stop after this many steps in a row that were not finite.
    """

    steps: int = 5_000
    batch_size: int = 512
    learning_rate: float = 0.01
    kl_weight: float | KlRelease = 1.0
    kl_warm_up: float = 0.6
    averaging: float = 0.0
    tolerance: float = 1e-3
    max_bad_run: int = 20

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "max_bad_run"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )
        for name in ("learning_rate", "kl_weight"):
            value = getattr(self, name)
            if not (isinstance(value, KlRelease) or 0 < value < math.inf):
                raise ValueError(
                    f"`{name}` must be positive and finite, got {value!r}."
                )
        if not 0 <= self.kl_warm_up <= 1:
            raise ValueError(
                "`kl_warm_up` is a share of the steps, from 0 to 1, got "
                f"{self.kl_warm_up!r}."
            )
        if not 0 <= self.averaging < 1:
            raise ValueError(
                "`averaging` is a share, from 0 to less than 1, got "
                f"{self.averaging!r}."
            )
        if not self.tolerance >= 0:
            raise ValueError(
                f"`tolerance` must not be negative, got {self.tolerance!r}."
            )
