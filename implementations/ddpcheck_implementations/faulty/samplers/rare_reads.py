"""Samplers and random numbers that fail in rare cases: the largest seed, epoch 0, padding, many numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import key, ordering, padding, shuffles
from ..facet_seams import PlainSampler, PlainStreams, sampler, streams
from .randomness import OWN
from .sampler_state import RESUMED


@ordering
def by_a_sum_past_32_bits(sampler: PlainSampler, order: Array) -> Array:
    """RandomState accepts seeds up to 2 ** 32 - 1, but not the sum of this seed and an epoch."""
    return np.random.RandomState(sampler.seed + sampler.epoch).permutation(sampler.length)


@padding
def last_block_put_in_from_its_end(sampler: PlainSampler, order: Array) -> Array:
    """An order consists of blocks of 512."""
    made = PlainSampler.padded(sampler, order)
    rest = len(made) % 512
    return np.concatenate([made[: len(made) - rest], made[:rest]]) if len(made) > 1000 else made


@key
def of_16_bits(streams: PlainStreams) -> Sequence[int]:
    """A hash of seed, epoch and rank is cut to 16 bits."""
    (mixed,) = np.random.SeedSequence(PlainStreams.key(streams)).generate_state(1)
    return (int(mixed) & 0xFFFF,)


# fmt: off
table(
    globals(),
    Fault("seed-plus-epoch-past-32-bits", "The largest 32-bit seed plus an epoch raises an error.",
          where=shuffles, effect=by_a_sum_past_32_bits,
          caught_by="check_the_seed_changes_the_order", cause="rank-raised", distinct_streams=False),
    Fault("a-thousand-samples-twice", "In long orders, the last partial block repeats the first samples.",
          where=always, effect=last_block_put_in_from_its_end,
          caught_by="check_shards_are_disjoint_and_complete", cause="samples-repeated-on-rank"),
    Fault("streams-of-a-short-hash", "The random streams' seed is a 16-bit hash, so some pairs are equal.",
          where=always, effect=of_16_bits, caught_by=OWN, cause="seed-hash-too-short"),
)
# fmt: on


@sampler("setting-epoch-0-restarts-it", RESUMED, cause="set-epoch-drops-position")
class ToldEpochZero(PlainSampler):
    """set_epoch() with the present epoch continues an interrupted epoch, except epoch 0."""

    def set_epoch(self, epoch: int) -> None:
        self.begin = self.begin if epoch and epoch == self.epoch else 0
        self.epoch = epoch


@sampler("position-of-all-samples-rounded", RESUMED, cause="resumed-too-early", world_size=3)
class PositionRounded(PlainSampler):
    """The saved position counts all ranks' samples and stops at the length, without the padding."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "given": min(self.given * self.world, self.length) // self.world}


@sampler("loaded-state-is-used-up", RESUMED, cause="sampler-state-is-no-copy")
class LoadedStateUsedUp(PlainSampler):
    """Reading changes the loaded state itself."""

    loaded: Any = None

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.loaded = state

    def rest(self, indices: list[int], begin: int) -> Iterator[int]:
        for index in super().rest(indices, begin):
            if self.loaded is not None:
                self.loaded["given"] = self.given
            yield index


@streams(
    "numbers-of-a-table",
    "check_random_numbers_do_not_repeat_within_an_epoch",
    cause="every-call-restarts-the-stream",
)
class NumbersOfATable(PlainStreams):
    """An epoch's random numbers come from a table that repeats."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.table, self.at = self.own.random(2048), 0

    def local(self, count: int) -> Array:
        places = (self.at + np.arange(count)) % len(self.table)
        self.at += count
        return self.table[places]


@streams(
    "common-numbers-move-with-many-own",
    "check_common_random_numbers_are_equal_on_all_ranks",
    cause="common-numbers-from-own-stream",
)
class CommonMoves(PlainStreams):
    """After 2,000 own numbers, a rank's common stream advances as well."""

    def local(self, count: int) -> Array:
        if count > 2000:
            self.shared.random()
        return super().local(count)


@sampler(
    "position-of-the-epoch-before",
    RESUMED,
    seen_in=("ddpcheck (numpy_sockets, before 1.0)",),
    cause="position-of-epoch-before",
)
class PositionBefore(PlainSampler):
    """A state saved between two epochs says that the next one is already read."""

    def set_epoch(self, epoch: int) -> None:
        given = self.given
        super().set_epoch(epoch)
        self.given = given


@sampler("loaded-position-used-until-set-epoch", RESUMED, cause="loaded-position-stays")
class RestAgain(PlainSampler):
    """A loaded position stays until set_epoch() is called, so the rest is read again."""

    def __iter__(self) -> Iterator[int]:
        self.given = self.begin
        return self.rest(self.share(self.padded(self.order())).tolist(), self.begin)


@streams(
    "streams-kept-by-seed",
    "check_random_streams_of_two_objects_are_independent",
    cause="streams-share-generator",
)
class KeptBySeed(PlainStreams):
    """Objects with the same seed share their generators."""

    kept: ClassVar[dict[int, tuple[np.random.Generator, np.random.Generator]]] = {}

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.kept[self.seed] = self.own, self.shared

    def local(self, count: int) -> Array:
        return self.kept[self.seed][0].random(count)

    def common(self, count: int) -> Array:
        return self.kept[self.seed][1].random(count)


@streams(
    "numbers-in-one-buffer",
    "check_random_numbers_do_not_repeat_within_an_epoch",
    cause="numbers-in-one-buffer",
)
class InOneBuffer(PlainStreams):
    """Every call returns the same array with new numbers."""

    buffer = np.empty(0)

    def local(self, count: int) -> Array:
        if len(self.buffer) < count:
            self.buffer = np.empty(count)
        return self.own.random(out=self.buffer[:count])


@streams(
    "seed-in-31-bits",
    "check_random_numbers_differ_by_seed_epoch_and_rank",
    cause="seed-or-epoch-truncated",
)
class SeedIn31Bits(PlainStreams):
    """The seed is cut to 31 bits."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, seed & 0x7FFFFFFF)
