"""The seams of samplers and of random numbers: one step of a reading, or of a draw, has an effect in some circumstance.

Circumstances are asked of the sampler or the streams themselves, which know their seed, epoch, rank, length, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import PlainSampler, PlainStreams, sampler, streams
from .circumstances import Circumstance

Key = Callable[[Any], Sequence[int]]
Step = Callable[[Any, Array], Array]


@dataclass(frozen=True)
class SamplerEffect:
    """key: the generator's seed. order, padded, share: change the right one."""

    key: Key | None = None
    order: Step | None = None
    padded: Step | None = None
    share: Step | None = None
    register = staticmethod(sampler)

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongSampler,), {"where": where, "effect": self})


class WrongSampler(PlainSampler):
    """A correct sampler; where the circumstance holds, the effect takes place."""

    where: Circumstance
    effect: SamplerEffect

    def stream(self) -> Sequence[int]:
        wrong = self.effect.key is not None and self.where(self)
        return self.effect.key(self) if wrong and self.effect.key else super().stream()

    def order(self) -> Array:
        return self._step(self.effect.order, super().order())

    def padded(self, order: Array) -> Array:
        return self._step(self.effect.padded, order, super().padded)

    def share(self, order: Array) -> Array:
        return self._step(self.effect.share, order, super().share)

    def _step(self, effect: Step | None, order: Array, right: Callable[[Array], Array] | None = None) -> Array:
        if effect is not None and self.where(self):
            return effect(self, order)
        return order if right is None else right(order)


@dataclass(frozen=True)
class StreamsEffect:
    """key: the seed of the rank's generator. own, common: draw that many numbers."""

    key: Key | None = None
    own: Callable[[Any, int], Array] | None = None
    common: Callable[[Any, int], Array] | None = None
    register = staticmethod(streams)

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongStreams,), {"where": where, "effect": self})


class WrongStreams(PlainStreams):
    """Correct random numbers; where the circumstance holds, the effect takes place."""

    where: Circumstance
    effect: StreamsEffect

    def key(self) -> Sequence[int]:
        wrong = self.effect.key is not None and self.where(self)
        return self.effect.key(self) if wrong and self.effect.key else super().key()

    def local(self, count: int) -> Array:
        wrong = self.effect.own is not None and self.where(self)
        return self.effect.own(self, count) if wrong and self.effect.own else super().local(count)

    def common(self, count: int) -> Array:
        wrong = self.effect.common is not None and self.where(self)
        return self.effect.common(self, count) if wrong and self.effect.common else super().common(count)


# ---------------------------------------------------------------------------------------------------- circumstances

shuffles = Circumstance("it shuffles", lambda sampler: sampler.shuffle)
drops_last = Circumstance("drop_last is set", lambda sampler: sampler.drop_last)
has_remainder = Circumstance("samples are left over", lambda sampler: sampler.length % sampler.world)
odd_length = Circumstance("an odd length", lambda sampler: sampler.length % 2)
seed_0 = Circumstance("seed 0", lambda sampler: sampler.seed == 0)


def longer(samples: int) -> Circumstance:
    return Circumstance(f"more than {samples:,} samples", lambda sampler: sampler.length > samples)


def from_epoch(epoch: int) -> Circumstance:
    return Circumstance(f"from epoch {epoch} on", lambda sampler: sampler.epoch >= epoch)


# --------------------------------------------------------------------------------------------------------- effects


def seeded(key: Key) -> SamplerEffect:
    """The sampler's generator has another seed."""
    return SamplerEffect(key=key)


def ordering(order: Step) -> SamplerEffect:
    """The order is changed."""
    return SamplerEffect(order=order)


def padding(padded: Step) -> SamplerEffect:
    """The order is padded or cut in another way."""
    return SamplerEffect(padded=padded)


def sharing(share: Step) -> SamplerEffect:
    """A rank's share of the padded order is another one."""
    return SamplerEffect(share=share)


def key(key: Key) -> StreamsEffect:
    """The rank's generator has another seed."""
    return StreamsEffect(key=key)


def drawing(own: Callable[[Any, int], Array]) -> StreamsEffect:
    """The rank's own numbers are other ones."""
    return StreamsEffect(own=own)


def drawing_common(common: Callable[[Any, int], Array]) -> StreamsEffect:
    """The numbers that are common to all ranks are other ones."""
    return StreamsEffect(common=common)


@ordering
def natural_order(sampler: PlainSampler, order: Array) -> Array:
    return np.arange(sampler.length)


@ordering
def shuffled(sampler: PlainSampler, order: Array) -> Array:
    return np.random.default_rng(sampler.stream()).permutation(sampler.length)
