"""Samplers that are wrong for divisible lengths, without shuffling, or at the start of a reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance
from ..engine.fault import Fault, table
from ..engine.samplers import drops_last, has_remainder, ordering, padding, sharing, shuffles
from ..facet_seams import PlainSampler, sampler
from .sampler_state import RESUMED
from .samplers import SHARED

SEQUENTIAL = "check_order_without_shuffle_is_sequential"
TAIL = "check_drop_last_drops_only_the_tail"

several_rounds = Circumstance("more than one round", lambda sampler: sampler.length > sampler.world)


@padding
def one_round_more(sampler: PlainSampler, order: Array) -> Array:
    """The number of rounds is length // world size + 1, also without a remainder."""
    return np.resize(order, (sampler.length // sampler.world + 1) * sampler.world)


@padding
def last_samples_again(sampler: PlainSampler, order: Array) -> Array:
    """Without a remainder, order[-0:] is the whole order."""
    missing = PlainSampler.__len__(sampler) * sampler.world - sampler.length
    return np.concatenate([order, order[-missing:]])


@padding
def cut_before_the_last_sample(sampler: PlainSampler, order: Array) -> Array:
    """The number of rounds is (length - 1) // world size."""
    return order[: (sampler.length - 1) // sampler.world * sampler.world]


@ordering
def backwards(sampler: PlainSampler, order: Array) -> Array:
    return order[::-1]


@sharing
def shares_that_rotate(sampler: PlainSampler, order: Array) -> Array:
    """In each epoch, a rank takes the next rank's shard."""
    return order[(sampler.rank + sampler.epoch) % sampler.world :: sampler.world]


@sampler("shares-promised-uneven-are-padded", SHARED, cause="remainder-padded", remainder="uneven")
class PromisedUneven(PlainSampler):
    """Shards are padded, although uneven shards are promised."""


@sampler("generator-in-place-of-an-order", SHARED, cause="second-reading-empty")
class ReadOnce(PlainSampler):
    """The sampler is an iterator, which is empty after the first epoch."""

    ended = False

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        yield from super().rest([] if self.ended else indices, begin)
        self.ended = True


@sampler("saved-epoch-counts-as-read", RESUMED, cause="nothing-left-when-resumed")
class CountsAsRead(PlainSampler):
    """A loaded epoch counts as already finished."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.begin = len(self)


@sampler("loaded-order-of-the-next-seed", RESUMED, cause="resumed-order-differs")
class OrderOfNextSeed(PlainSampler):
    """The state lacks the seed, and a sampler that loads a state advances its own seed."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.seed += 1


@sampler("saving-skips-a-sample", RESUMED, cause="state-moves-sampler")
class SavingSkips(PlainSampler):
    """state() takes the next sample to find the position, so that sample is lost."""

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        self.given = begin
        while self.given < len(indices):
            self.given += 1
            yield indices[self.given - 1]

    def state(self) -> dict[str, Any]:
        found = super().state()
        self.given += 1
        return found


# fmt: off
table(
    globals(),
    Fault("one-round-more-than-the-quotient", "A length divisible by the world size is padded by one sample per rank.",
          where=~has_remainder & ~drops_last, effect=one_round_more,
          caught_by=SHARED, cause="divisible-length-padded"),
    Fault("padded-with-the-last-none", "Padding takes order[-padding:], which is the whole order if padding is 0.",
          where=~drops_last & several_rounds, effect=last_samples_again,
          caught_by=(SHARED, SEQUENTIAL), cause="order-comes-twice"),
    Fault("cut-before-the-last-sample",
          "With drop_last, a length divisible by the world size loses one sample per rank.",
          where=drops_last & several_rounds, effect=cut_before_the_last_sample,
          caught_by=TAIL, cause="divisible-length-cut"),
    Fault("read-backwards", "With shuffle=False, samples descend instead of ascending.",
          where=~shuffles, effect=backwards, caught_by=SEQUENTIAL, cause="natural-order-reversed"),
    Fault("shares-rotate-unshuffled", "With shuffle=False, shards move to other ranks in every epoch.",
          where=~shuffles, effect=shares_that_rotate,
          caught_by=SEQUENTIAL, cause="unshuffled-order-changes"),
)
# fmt: on
