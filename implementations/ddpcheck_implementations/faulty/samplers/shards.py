"""Samplers with shards that overlap, are uneven or have a wrong length."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.samplers import ordering, padding, sharing
from ..facet_seams import PlainSampler, sampler
from .samplers import LENGTH, SHARED


@sampler("length-of-the-unshuffled", LENGTH, cause="length-computed-apart")
class LengthOfTheUnshuffled(PlainSampler):
    """With shuffle=False, len() omits the padding."""

    def __len__(self) -> int:
        return super().__len__() if self.shuffle else self.length // self.world


@Circumstance.of
def padded(sampler: PlainSampler) -> bool:
    return 0 < sampler.length < PlainSampler.__len__(sampler) * sampler.world


@sharing
def own_share_and_all_padding(sampler: PlainSampler, order: Array) -> Array:
    own = order[: sampler.length][sampler.rank :: sampler.world]
    return np.concatenate([own, order[sampler.length :]])


@ordering
def first_written_over(sampler: PlainSampler, order: Array) -> Array:
    """Copy the largest index to the start without swapping."""
    if sampler.length:
        order[0] = order[order.argmax()]
    return order


@padding
def padded_with_the_last(sampler: PlainSampler, order: Array) -> Array:
    return np.append(order, [order[-1]] * (len(sampler) * sampler.world - sampler.length))


@sharing
def dealt_from_the_last_rank(sampler: PlainSampler, order: Array) -> Array:
    return order[sampler.world - 1 - sampler.rank :: sampler.world]


@sampler("blocks-rounded-up", SHARED, cause="remainder-on-one-rank", remainder="uneven", world_size=3)
class BlocksRoundedUp(PlainSampler):
    """Shards are blocks of length / W, rounded up, so the last one may be empty."""

    def padded(self, order: Array) -> Array:
        return order

    def share(self, order: Array) -> Array:
        size = -(-self.length // self.world)
        return order[self.rank * size : (self.rank + 1) * size]

    def __len__(self) -> int:
        return len(self.share(self.order()))


# fmt: off
table(
    globals(),
    Fault("padding-of-all-on-each", "Each rank reads the padding of all ranks.",
          where=padded, effect=own_share_and_all_padding,
          caught_by=(SHARED, LENGTH), cause="padded-too-much"),
    Fault("order-with-a-sample-twice", "The order repeats its largest index at the start and loses the first sample.",
          where=always, effect=first_written_over,
          caught_by=(SHARED, "check_shards_stay_disjoint_without_set_epoch"),
          cause="samples-repeated-on-rank"),
    # Correct, but unusual:
    Fault("padded-with-the-last-sample", "Correct: padding repeats the last sample.",
          where=padded, effect=padded_with_the_last,
          seen_in=("huggingface/pytorch-image-models",)),
    Fault("dealt-out-from-the-last-rank", "Correct: samples are dealt out starting from the last rank.",
          where=always, effect=dealt_from_the_last_rank),
)
# fmt: on
