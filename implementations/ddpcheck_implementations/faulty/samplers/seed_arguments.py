"""Samplers and random numbers that handle some seeds or epochs wrongly, or lose their position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import drawing, drawing_common, key, ordering, seed_0, seeded, shuffles
from ..facet_seams import PlainSampler, PlainStreams, sampler, streams
from .sampler_state import RESUMED

SEED = "check_the_seed_changes_the_order"
SHARED = "check_shards_are_disjoint_and_complete"
OWN = "check_random_numbers_differ_by_seed_epoch_and_rank"
AGAIN = "check_random_numbers_depend_only_on_seed_epoch_and_rank"


@ordering
def unseeded_shuffle(sampler: PlainSampler, order: Array) -> Array:
    return np.random.default_rng().permutation(sampler.length)


@ordering
def first_sample_stays(sampler: PlainSampler, order: Array) -> Array:
    """Like a Fisher-Yates shuffle that ends one step too early."""
    natural = np.arange(sampler.length)
    natural[1:] = np.random.default_rng(sampler.stream()).permutation(natural[1:])
    return natural


@drawing
def blocks_of_8192_again(streams: PlainStreams, count: int) -> Array:
    return np.resize(streams.own.random(min(count, 8192)), count)


@drawing_common
def own_stream_moved(streams: PlainStreams, count: int) -> Array:
    streams.own.random()
    return streams.shared.random(count)


@sampler("last-rank-stays-behind", SHARED, cause="rank-stays-in-epoch", world_size=3)
class LastRankBehind(PlainSampler):
    """With three or more ranks, the last one ignores every epoch after the third."""

    def set_epoch(self, epoch: int) -> None:
        behind = self.world > 2 and self.rank == self.world - 1
        super().set_epoch(min(epoch, 2) if behind else epoch)


@sampler(
    "length-of-rank-0-later-on",
    "check_sampler_len_matches_iteration",
    cause="length-changes",
    remainder="uneven",
)
class LengthOfRank0(PlainSampler):
    """After set_epoch(), len() is that of rank 0's shard on every rank."""

    def __len__(self) -> int:
        first = 0 if self.epoch else self.rank
        return super().__len__() if self.drop_last else len(range(first, self.length, self.world))

    def padded(self, order: Array) -> Array:
        return super().padded(order) if self.drop_last else order


@sampler(
    "state-after-loading-is-of-the-start",
    RESUMED,
    seen_in=("pytorch/data (StatefulDistributedSampler)",),
    cause="loaded-position-not-saved",
)
class LoadedNotTold(PlainSampler):
    """state() right after loading reports the start of the epoch."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.given = 0


@streams("streams-of-seed-0-unseeded", AGAIN, cause="seed-0-taken-for-none")
class StreamsUnseeded(PlainStreams):
    """Seed 0 counts as no seed, so the rank's random numbers differ from run to run."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.own = self.own if self.seed else np.random.default_rng()


@streams("streams-of-seed-0-of-seed-1", OWN, cause="seed-0-taken-for-none")
class StreamsOfSeedOne(PlainStreams):
    """Seed 0 is replaced by seed 1."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, seed or 1)


@streams("every-tenth-number-in-common", OWN, cause="some-numbers-shared")
class TenthInCommon(PlainStreams):
    """Every tenth random number is equal on all ranks."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.other, self.at = np.random.default_rng((self.seed, epoch, 1 << 20)), 0

    def local(self, count: int) -> Array:
        numbers, others = super().local(count), self.other.random(count)
        tenth = (self.at + np.arange(count)) % 10 == 9
        self.at += count
        return np.where(tenth, others, numbers)


@streams("drawn-ahead-come-first", AGAIN, cause="numbers-drawn-ahead")
class DrawnAhead(PlainStreams):
    """Random numbers are drawn in blocks of 64, and the next epoch starts with the rest of a block."""

    left = np.empty(0)

    def local(self, count: int) -> Array:
        while len(self.left) < count:
            self.left = np.concatenate([self.left, super().local(64)])
        numbers, self.left = self.left[:count], self.left[count:]
        return numbers.copy()


@streams(
    "common-ones-part-later",
    "check_common_random_numbers_are_equal_on_all_ranks",
    cause="common-numbers-from-own-stream",
    world_size=3,
)
class CommonPart(PlainStreams):
    """From epoch 4 on, some ranks seed the common stream differently."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if epoch >= 3 and self.rank > 1:
            self.shared = np.random.default_rng((self.seed, epoch, 0, 1))


@streams(
    "neighbours-averaged",
    "check_random_numbers_are_uniform_on_unit_interval",
    cause="numbers-mixed-with-earlier",
)
class NeighboursAveraged(PlainStreams):
    """Each random number depends on its predecessor."""

    def local(self, count: int) -> Array:
        drawn = super().local(count + 1)
        mixed = drawn[1:] + drawn[:-1] / 4
        low, high = 2 * mixed**2, 1 - 2 * (1.25 - mixed) ** 2
        return np.clip(np.where(mixed < 0.25, low, np.where(mixed < 1, mixed - 0.125, high)), 0, 1 - 2.0**-53)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("is-its-own-iterator")
class ItsOwnIterator(PlainSampler):
    """Correct: the sampler is its own iterator, and iter() restarts the epoch."""

    under_way: Iterator[int] = iter(())

    def __iter__(self) -> Iterator[int]:
        self.under_way = super().__iter__()
        return self

    def __next__(self) -> int:
        return next(self.under_way)


@streams(
    "single-numbers-in-common",
    "check_random_numbers_drawn_singly_differ_between_ranks",
    cause="single-number-from-shared-generator",
)
class SingleNumbersInCommon(PlainStreams):
    """A call for one random number returns the common one."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.decisions = np.random.default_rng((self.seed, epoch, 0, 1))

    def local(self, count: int) -> Array:
        return super().local(count) if count != 1 else self.decisions.random(1)


# fmt: off
table(
    globals(),
    Fault("seed-0-is-the-usual-one", "Seed 0 is replaced by seed 42.",
          where=seed_0, effect=seeded(lambda own: (42, own.epoch)),
          caught_by=SEED, cause="seed-0-taken-for-none"),
    Fault("seed-0-is-unseeded", "Seed 0 counts as no seed, so each rank shuffles differently.",
          where=shuffles & seed_0, effect=unseeded_shuffle,
          caught_by=SHARED, cause="seed-0-taken-for-none"),
    Fault("seed-by-a-prime", "The seed is taken modulo 2^31 - 1.",
          where=always, effect=seeded(lambda own: (own.seed % (2**31 - 1), own.epoch)),
          caught_by=SEED, cause="seed-or-epoch-truncated"),
    Fault("seed-and-epoch-as-text",
          "The generator's seed joins the digits of seed and epoch: (1, 23) and (12, 3) are equal.",
          where=always, effect=seeded(lambda own: (int(f"{own.seed}{own.epoch}"),)),
          caught_by="check_sampler_does_not_add_seed_and_epoch", cause="seed-is-a-sum"),
    Fault("epoch-in-float16", "The epoch is rounded to float16 in the seed.",
          where=always, effect=seeded(lambda own: (own.seed, int(np.float16(min(own.epoch, 65504))))),
          caught_by="check_set_epoch_changes_the_order", cause="seed-or-epoch-truncated"),
    Fault("first-sample-stays", "The shuffle never moves the first sample.",
          where=shuffles, effect=first_sample_stays,
          caught_by="check_every_epoch_is_shuffled_independently", cause="ends-not-shuffled"),
    Fault("streams-seeded-with-text",
          "The random streams' seed joins the digits of seed, epoch and rank, so some are equal.",
          where=always, effect=key(lambda own: (int(f"{own.seed}{own.epoch}{own.rank}"), 1)),
          caught_by=OWN, cause="seed-is-a-sum"),
    Fault("large-draws-repeat-a-block", "A call for more than 8,192 random numbers repeats the first block.",
          where=always, effect=blocks_of_8192_again,
          caught_by="check_random_numbers_do_not_repeat_within_an_epoch", cause="block-repeated-in-a-call"),
    Fault("common-draws-move-own", "Each common draw also advances the rank's own stream.",
          where=always, effect=own_stream_moved,
          caught_by=AGAIN, cause="common-numbers-from-own-stream"),
)
# fmt: on
