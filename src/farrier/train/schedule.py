"""Learning rate, KL weight and averaging weight at each step."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .config import KlRelease, TrainConfig

NOISE_WAITS = 5 / 6  # of the warm-up, before rows have a noise of their own


class Falling(eqx.Module):
    """A weight that goes from `peak` at step `begin` linearly to another at `end`."""

    peak: Float[Array, ""]
    begin: Int[Array, ""]
    end: Int[Array, ""]

    def towards(
        self, final: Float[Array, ""], step: Int[Array, ""]
    ) -> Float[Array, ""]:
        """The weight at a step: final + (peak - final) c(step)   (T5)."""
        length = jnp.maximum(self.end - self.begin, 1).astype(final.dtype)
        left = (self.end - step).astype(final.dtype) / length
        return final + (self.peak - final) * jnp.clip(left, 0, 1)


class Schedule(eqx.Module):
    """Learning rate and weight of the divergences at each step.

    rate(i) = start_rate (1 + cos(pi (i - start) / (end - start))) / 2
    kl_weight(i) = kl_weight min(1, (i + 1) / warm_up)                           (T2)

    where `kl_weight` falls from a peak to its final value if there is a `release` (T5),
    and the share of step i in the moving average of the parameters,
    max(1 - averaging, 1 / (i + 1)): a plain mean at first; the start has no say.
    """

    start_rate: Float[Array, ""]
    start: Int[Array, ""]
    end: Int[Array, ""]
    kl_weight: Float[Array, ""]
    warm_up: Int[Array, ""]
    averaging: Float[Array, ""]
    release: Falling | None = None

    @classmethod
    def create(cls, config: TrainConfig) -> Self:
        """The schedule of a run from its first step."""
        step = lambda share: jnp.asarray(round(share * config.steps), jnp.int32)
        weight, release = config.kl_weight, None
        if isinstance(weight, KlRelease):
            peak = jnp.asarray(weight.peak, float)
            release = Falling(peak, step(weight.begin), step(weight.end))
            weight = weight.final
        return cls(
            jnp.asarray(config.learning_rate, float),
            jnp.zeros((), jnp.int32),
            jnp.asarray(config.steps, jnp.int32),
            jnp.asarray(weight, float),
            step(config.kl_warm_up),
            jnp.asarray(config.averaging, float),
            release,
        )

    @property
    def settled(self) -> int:
        """The step from which the weight of the divergences stays as it is."""
        falls = 0 if self.release is None else int(self.release.end)
        return max(int(self.warm_up), falls)

    def rate(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Learning rate: half a cosine from `start` to `end`."""
        dtype = self.start_rate.dtype
        progress = (step - self.start).astype(dtype) / (self.end - self.start).astype(
            dtype
        )
        return self.start_rate * 0.5 * (1 + jnp.cos(jnp.pi * progress))

    def kl_weight_at(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the divergences: linear over the warm-up, constant or released."""
        weight = self.kl_weight
        if self.release is not None:
            weight = self.release.towards(weight, step)
        return weight * jnp.minimum(1, self._warmth(step))

    def noise_share(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Share of the noise that rows have of their own: 1 after the warm-up (T6)."""
        done = self._warmth(step) - NOISE_WAITS
        return jnp.clip(done / (1 - NOISE_WAITS), 0, 1)

    def _warmth(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Steps done over those of the warm-up: 1 at its end, and more after it."""
        dtype = self.kl_weight.dtype
        return (step + 1).astype(dtype) / jnp.maximum(self.warm_up, 1).astype(dtype)

    def share(self, step: Int[Array, ""]) -> Float[Array, ""]:
        """Share of a step in the moving average."""
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
