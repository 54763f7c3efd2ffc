"""Random numbers that are wrong for seed 0 or for large seeds."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import key
from ..facet_seams import PlainStreams, streams
from .randomness import OWN

SPREAD = "check_random_numbers_are_uniform_on_unit_interval"


@streams(
    "large-seeds-not-in-common",
    "check_common_random_numbers_are_equal_on_all_ranks",
    cause="large-seed-ignored",
)
class LargeSeedsNotInCommon(PlainStreams):
    """A seed of more than 16 bits is not broadcast, so common streams differ between ranks."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if self.seed >= 1 << 16:
            self.shared = np.random.default_rng()


@streams(
    "short-period-of-seed-0",
    "check_random_numbers_do_not_repeat_within_an_epoch",
    cause="every-call-restarts-the-stream",
)
class ShortPeriod(PlainStreams):
    """With seed 0, the random stream repeats after a short period."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.table, self.given = self.own.random(1 << 11), 0

    def local(self, count: int) -> Array:
        if self.seed:
            return super().local(count)
        self.given += count
        return self.table[np.arange(self.given - count, self.given) % len(self.table)]


@streams("streams-refilled-otherwise", SPREAD, cause="numbers-not-uniform")
class RefilledOtherwise(PlainStreams):
    """After the first calls of an epoch, random numbers are averages of three and not uniform."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.calls = 0

    def local(self, count: int) -> Array:
        self.calls += 1
        if self.calls < 3:
            return super().local(count)
        return np.asarray(super().local(3 * count).reshape(3, count).mean(axis=0))


@streams(
    "streams-in-one-buffer-later",
    "check_random_numbers_do_not_repeat_within_an_epoch",
    cause="numbers-in-one-buffer",
)
class InOneBufferLater(PlainStreams):
    """From the third call of an epoch on, each call overwrites the previous array."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.given: list[Array] = []

    def local(self, count: int) -> Array:
        made = super().local(count)
        if len(self.given) >= 2 and len(self.given[-1]) == count:
            self.given[-1][...] = made
            return self.given[-1]
        self.given.append(made)
        return made


@streams("odd-draws-from-a-16-bit-seed", OWN, cause="seed-or-epoch-truncated")
class OddDraws(PlainStreams):
    """A call for an odd count of numbers draws from a generator whose seed is cut to 16 bits."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.odd = np.random.default_rng((self.seed % (1 << 16), epoch, self.rank + 1, 1))

    def local(self, count: int) -> Array:
        return self.odd.random(count) if count % 2 else super().local(count)


# fmt: off
table(
    globals(),
    Fault("streams-of-every-second-seed", "The generator's seed is seed + 2 * rank, so streams repeat between runs.",
          where=always, effect=key(lambda own: (own.seed + 2 * own.rank, own.epoch, 1)),
          caught_by=OWN, cause="seed-is-a-sum"),
)
# fmt: on
