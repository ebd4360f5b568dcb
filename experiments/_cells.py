"""One of our numbers beside a published one: better, level or worse."""

import math
from dataclasses import dataclass

VERDICTS = ("better", "level", "worse")


@dataclass(frozen=True)
class Cell:
    """One number of ours beside a published one, with standard errors.

    Errors are standard errors of the mean over splits; NaN, where there is none, counts
    as 0. `decimals` is the number of decimals that the published number is printed to.
    """

    name: str  # "wine, RMSE, against HS-BNN"
    ours: float
    our_error: float
    theirs: float
    their_error: float
    more_is_better: bool
    decimals: int = 2

    def __post_init__(self) -> None:
        if not math.isfinite(self.theirs):
            raise ValueError(
                f"{self.name}: `theirs` must be a published number, got {self.theirs}."
            )

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        errors = (self.our_error, self.their_error)
        return math.hypot(*(0.0 if math.isnan(each) else each for each in errors))

    @property
    def verdict(self) -> str:
        """Level within one standard error, or where both are printed alike.

        A number of ours that is not finite is worse, not level.
        """
        if not math.isfinite(self.ours):
            return "worse"
        if round(self.ours, self.decimals) == round(self.theirs, self.decimals):
            return "level"
        difference = self.ours - self.theirs
        if abs(difference) <= self.error:
            return "level"
        return "better" if (difference > 0) == self.more_is_better else "worse"
