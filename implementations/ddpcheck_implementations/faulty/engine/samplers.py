"""The seams of samplers and of random numbers: an effect on one step of a reading or draw, in one circumstance.

A circumstance is a predicate over the sampler or the streams, with their seed, epoch, rank, length, ...
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
    """key: the generator's seed. order: changes the order. padded, share: replace these steps."""

    key: Key | None = None
    order: Step | None = None
    padded: Step | None = None
    share: Step | None = None
    register = staticmethod(sampler)

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongSampler,), {"where": where, "effect": self})


class WrongSampler(PlainSampler):
    """A correct sampler, with the effect where the circumstance holds."""

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
    """key: the seed of the rank's generator. own, common: replace local() and common()."""

    key: Key | None = None
    own: Callable[[Any, int], Array] | None = None
    common: Callable[[Any, int], Array] | None = None
    register = staticmethod(streams)

    def implemented(self, where: Circumstance) -> type[Any]:
        return type("Wrong", (WrongStreams,), {"where": where, "effect": self})


class WrongStreams(PlainStreams):
    """Correct random numbers, with the effect where the circumstance holds."""

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
    """Change the seed of the order's generator."""
    return SamplerEffect(key=key)


def ordering(order: Step) -> SamplerEffect:
    """Change the order."""
    return SamplerEffect(order=order)


def padding(padded: Step) -> SamplerEffect:
    """Pad or cut the order in another way."""
    return SamplerEffect(padded=padded)


def sharing(share: Step) -> SamplerEffect:
    """Take another share of the padded order."""
    return SamplerEffect(share=share)


def key(key: Key) -> StreamsEffect:
    """Change the seed of the rank's generator."""
    return StreamsEffect(key=key)


def drawing(own: Callable[[Any, int], Array]) -> StreamsEffect:
    """Draw the rank's own numbers in another way."""
    return StreamsEffect(own=own)


def drawing_common(common: Callable[[Any, int], Array]) -> StreamsEffect:
    """Draw the numbers common to all ranks in another way."""
    return StreamsEffect(common=common)


@ordering
def natural_order(sampler: PlainSampler, order: Array) -> Array:
    return np.arange(sampler.length)


@ordering
def shuffled(sampler: PlainSampler, order: Array) -> Array:
    return np.random.default_rng(sampler.stream()).permutation(sampler.length)
