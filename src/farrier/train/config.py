"""Settings of a training run."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np

SMALL = 1_024  # rows up to which a step uses all of them
BATCH = 512
STEPS = 6_000  # budget of a small table
FEW_ROWS = 256  # up to here wide networks need longer to leave a constant ...
STEPS_FEW_ROWS = 10_000  # ... prediction, and steps are cheap
STEPS_PER_ROW = 4  # budget of a large table, which has more to learn ...
MAX_STEPS = 160_000  # ... but never more than this
COMPILER_OPTIONS = {
    # XLA's own choice is 256 bits; where a processor has no wider, nothing changes.
    "xla_cpu_prefer_vector_width": 512,
    # Fewer copies in loops, which saves 5 % of a small step. Results are bit-identical.
    "xla_cpu_copy_insertion_use_region_analysis": True,
}


def _check(name: str, value: Any, *, valid: bool, needed: str) -> None:
    if not valid:
        raise ValueError(f"`{name}` must be {needed}, got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_shared(settings: "Training | TrainConfig") -> None:
    """Check the settings that both classes have."""
    for name in ("learning_rate", "kl_weight"):
        value = getattr(settings, name)
        valid = _is_number(value) and 0 < value < math.inf
        _check(name, value, valid=valid, needed="a positive, finite number")
    value = settings.averaging
    valid = _is_number(value) and 0 <= value < 1
    _check("averaging", value, valid=valid, needed="a share from 0 to less than 1")


@dataclass(frozen=True, kw_only=True)
class Training:
    """How an estimator trains its network.

    Parameters
    ----------
    max_iter : int or "auto", default="auto"
        Maximum number of epochs. "auto" chooses from the number of rows.
    batch_size : int or "auto", default="auto"
        Rows in one step. "auto" uses all rows up to 1,024, else 512.
    learning_rate : float, default=0.01
        Learning rate at the start; it falls to 0 along a cosine.
    kl_weight : float, default=1.0
        Weight of the KL terms in the ELBO; 1 is the exact ELBO.
    kl_annealing : float or "auto", default="auto"
        Share of the steps over which the KL weight rises from 0. Without it, small
        data sets collapse to a constant. With too long an annealing, noisy data sets
        are learned by heart first, and nodes stay active that are not needed. "auto" is
        0.2 for regression and 0.6 for classification.
    averaging : float, default=0.0
        Share that each step keeps of a moving average of all parameters over the steps
        (Polyak averaging), which is then the result of the fit; 0 is the last step.
    early_stopping : bool, default=True
        Stop when the ELBO has little left to gain (`tol`), after the KL annealing.
    tol : float, default=1e-3
        That gain, in nats per row.

    Examples
    --------
    >>> from farrier import HorseshoeRegressor, Training
    >>> model = HorseshoeRegressor(training=Training(max_iter=200))
    >>> model.set_params(training__learning_rate=0.005).training.learning_rate
    0.005
    """

    max_iter: int | str = "auto"
    batch_size: int | str = "auto"
    learning_rate: float = 0.01
    kl_weight: float = 1.0
    kl_annealing: float | str = "auto"
    averaging: float = 0.0
    early_stopping: bool = True
    tol: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("max_iter", "batch_size"):
            value: Any = getattr(self, name)
            valid = value == "auto" or (isinstance(value, Integral) and int(value) >= 1)
            _check(name, value, valid=valid, needed="'auto' or a whole number from 1")
        value = self.kl_annealing
        valid = value == "auto" or (_is_number(value) and 0 <= float(value) <= 1)
        needed = "'auto' or a share of the steps from 0 to 1"
        _check("kl_annealing", value, valid=valid, needed=needed)
        valid = _is_number(self.tol) and self.tol >= 0
        _check("tol", self.tol, valid=valid, needed="a number of nats per row from 0")
        _check_shared(self)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """All settings by name, as scikit-learn's search tools ask for them."""
        del deep
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def resolved_batch_size(self, rows: int) -> int:
        """Rows in one step, for a table of `rows` rows."""
        if self.batch_size == "auto":
            return rows if rows <= SMALL else BATCH
        return int(self.batch_size)

    def config(
        self, rows: int, *, kl_annealing: float, batches: int | None = None
    ) -> "TrainConfig":
        """The settings of a run on `rows` rows.

        Parameters
        ----------
        kl_annealing
            What "auto" stands for.
        batches
            Steps in one epoch of streamed rows; by default those of rows in memory.
        """
        batch_size = self.resolved_batch_size(rows)
        if self.max_iter == "auto":
            least = STEPS_FEW_ROWS if rows <= FEW_ROWS else STEPS
            steps = int(np.clip(STEPS_PER_ROW * rows, least, MAX_STEPS))
        else:
            steps = int(self.max_iter) * (batches or math.ceil(rows / batch_size))
        annealing = self.kl_annealing
        return TrainConfig(
            steps=steps,
            batch_size=batch_size,
            learning_rate=float(self.learning_rate),
            kl_weight=float(self.kl_weight),
            kl_annealing=kl_annealing if annealing == "auto" else float(annealing),
            averaging=float(self.averaging),
            tolerance=float(self.tol) if self.early_stopping else 0.0,
        )


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How long and how fast to train, on a known number of rows.

    Parameters
    ----------
    steps
        Budget; training may stop before it (`tolerance`).
    batch_size
        Most rows in one step. An epoch is cut into batches of nearly equal size.
    kl_weight
        Weight of the KL terms, 1 being the exact ELBO.
    kl_annealing
        Share of the budget over which that weight rises linearly from 0.
    averaging
        The network of a run is a moving average over its steps, each of which keeps
        this share of the average before it; 0 is the network of the last step.
    tolerance
        Stop when the possible further gain, in nats per row, is less than this.
    max_bad_run
        Stop after this many steps in a row that were not finite.
    """

    steps: int = 5_000
    batch_size: int = 512
    learning_rate: float = 0.01
    kl_weight: float = 1.0
    kl_annealing: float = 0.6
    averaging: float = 0.0
    tolerance: float = 1e-3
    max_bad_run: int = 20

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "max_bad_run"):
            value = getattr(self, name)
            _check(name, value, valid=value >= 1, needed="at least 1")
        valid = 0 <= self.kl_annealing <= 1
        needed = "a share of the steps from 0 to 1"
        _check("kl_annealing", self.kl_annealing, valid=valid, needed=needed)
        valid = self.tolerance >= 0
        _check("tolerance", self.tolerance, valid=valid, needed="a number from 0")
        _check_shared(self)


def epochs_for(steps: int, rows: int) -> int:
    """Epochs of default batches that make at least `steps` steps."""
    batches = 1 if rows <= SMALL else math.ceil(rows / BATCH)
    return math.ceil(steps / batches)
