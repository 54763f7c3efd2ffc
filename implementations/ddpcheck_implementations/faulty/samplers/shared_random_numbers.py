"""Common random numbers from a rank's own stream or with few bits, and sorted random numbers."""

from __future__ import annotations

import copy

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, always
from ..engine.fault import Fault, table
from ..engine.samplers import drawing, drawing_common
from ..facet_seams import PlainStreams, streams

DIFFER = "check_random_numbers_differ_by_seed_epoch_and_rank"
COMMON = "check_common_random_numbers_are_equal_on_all_ranks"
SINGLE = "check_random_numbers_drawn_singly_differ_between_ranks"

on_other_ranks = Circumstance("on ranks but rank 0", lambda streams: streams.rank > 0)


@streams("common-stream-is-rank-0-s", DIFFER, cause="common-numbers-of-one-rank")
class OfRank0(PlainStreams):
    """The common stream has the seed of rank 0's own stream."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.shared = np.random.default_rng((self.seed, epoch, 1))


@streams("rank-0-draws-common-numbers", SINGLE, cause="common-numbers-of-one-rank")
class Rank0DrawsCommon(PlainStreams):
    """Rank 0's own stream has the seed of the common one."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if self.rank == 0:
            self.own = copy.deepcopy(self.shared)


@drawing_common
def cut_to_16_bits(streams: PlainStreams, count: int) -> Array:
    return np.asarray(np.floor(streams.shared.random(count) * (1 << 16)) / (1 << 16))


@drawing_common
def single_from_own(streams: PlainStreams, count: int) -> Array:
    return (streams.own if count == 1 else streams.shared).random(count)


@drawing
def sorted_numbers(streams: PlainStreams, count: int) -> Array:
    return np.sort(streams.own.random(count))


# fmt: off
table(
    globals(),
    Fault("common-numbers-of-16-bits", "On ranks other than 0, common random numbers are cut to 16 bits.",
          where=on_other_ranks, effect=cut_to_16_bits,
          caught_by=COMMON, cause="common-numbers-rounded"),
    Fault("single-numbers-are-always-own", "A call for one common random number returns the rank's own.",
          where=always, effect=single_from_own,
          caught_by=SINGLE, cause="single-common-number-from-own-stream"),
    Fault("numbers-sorted-in-each-call", "The random numbers of each call are sorted.",
          where=always, effect=sorted_numbers,
          caught_by=DIFFER, cause="numbers-in-ascending-order"),
)
# fmt: on
