"""Learning rate, KL weight and averaging weight at each step."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .config import TrainConfig

NOISE_START = 5 / 6  # share of the KL annealing after which noise varies by row


class Schedule(eqx.Module):
    """Learning rate, KL weight and averaging weight at each step.

    rate(i) = start_rate (1 + cos(pi (i - start) / (end - start))) / 2
    kl_weight(i) = kl_weight min(1, (i + 1) / annealing)                         (T2)

    Step i has the weight max(1 - averaging, 1 / (i + 1)) in the moving average of the
    parameters: it begins as a plain mean, so that the initial values do not count.
    """

    start_rate: Float[Array, ""]
    start: Int[Array, ""]
    end: Int[Array, ""]
    kl_weight: Float[Array, ""]
    annealing: Int[Array, ""]  # steps
    averaging: Float[Array, ""]

    @classmethod
    def create(cls, config: TrainConfig) -> Self:
        """The schedule of a run from its first step."""
        step = lambda share: jnp.asarray(round(share * config.steps), jnp.int32)
        return cls(
            jnp.asarray(config.learning_rate, float),
            jnp.zeros((), jnp.int32),
            jnp.asarray(config.steps, jnp.int32),
            jnp.asarray(config.kl_weight, float),
            step(config.kl_annealing),
            jnp.asarray(config.averaging, float),
        )

    def rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate: half a cosine from `start` to `end`."""
        dtype = self.start_rate.dtype
        progress = (step - self.start).astype(dtype) / (self.end - self.start).astype(
            dtype
        )
        return self.start_rate * 0.5 * (1 + jnp.cos(jnp.pi * progress))

    def kl_weight_at(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """KL weight: linear over the annealing, then constant."""
        return self.kl_weight * jnp.minimum(1, self._progress(step))

    def noise_share(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Share of the noise that varies by row: from 0 to 1 by the annealing (T6)."""
        done = self._progress(step) - NOISE_START
        return jnp.clip(done / (1 - NOISE_START), 0, 1)

    def _progress(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Steps done over those of the annealing: 1 at its end, and more after it."""
        dtype = self.kl_weight.dtype
        return (step + 1).astype(dtype) / jnp.maximum(self.annealing, 1).astype(dtype)

    def averaging_weight(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of a step in the moving average."""
        steps = (step + 1).astype(self.averaging.dtype)
        return jnp.maximum(1 - self.averaging, 1 / steps)

    def cooled(self, now: int, end: int) -> Self:
        """The schedule that goes from the present rate down to 0 at `end`."""
        step = jnp.asarray(now, jnp.int32)
        return replace(
            self,
            start_rate=self.rate(step),
            start=step,
            end=jnp.asarray(end, jnp.int32),
        )
