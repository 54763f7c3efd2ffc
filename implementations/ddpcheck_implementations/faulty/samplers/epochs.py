"""Samplers and random numbers that handle epochs and seeds wrongly, or share state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import drops_last, key, ordering, seeded, shuffles
from ..facet_seams import PlainSampler, sampler

EPOCH = "check_set_epoch_changes_the_order"
ZERO = "check_new_sampler_without_set_epoch_uses_epoch_0"
NEXT = "check_sampler_order_is_reproducible_across_runs"


def _number_of_the_job() -> int:
    """A number that differs between runs and is equal on all ranks, like a scheduler's job number."""
    return int(os.environ["DDPCHECK_SECRET"], 16)


@sampler("lower-epoch-ignored", EPOCH, cause="lower-epoch-ignored")
class OnlyLaterEpochs(PlainSampler):
    """set_epoch() ignores an epoch before the present one."""

    def set_epoch(self, epoch: int) -> None:
        if epoch > self.epoch:
            super().set_epoch(epoch)


@ordering
def natural_order_from_a_random_sample(sampler: PlainSampler, order: Array) -> Array:
    start = int(np.random.default_rng(sampler.stream()).integers(max(1, sampler.length)))
    return np.roll(np.arange(sampler.length), start)


@ordering
def indices_of_16_bits(sampler: PlainSampler, order: Array) -> Array:
    return order % (1 << 16)


@ordering
def cut_before_the_shuffle(sampler: PlainSampler, order: Array) -> Array:
    """The last samples of the data set are missing in every epoch."""
    kept = len(sampler) * sampler.world
    return np.random.default_rng(sampler.stream()).permutation(kept) if sampler.shuffle else np.arange(kept)


@sampler("epoch-zero-is-none", EPOCH, cause="epoch-0-taken-for-none")
class EpochZeroIgnored(PlainSampler):
    """set_epoch(0) has no effect."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch or self.epoch


@sampler("epochs-from-one", ZERO, cause="first-epoch-not-0")
class EpochsFromOne(PlainSampler):
    """A new sampler starts in epoch 1."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self.epoch = 1


@sampler("epoch-shared-by-samplers", ZERO, cause="samplers-share-state")
class EpochShared(PlainSampler):
    """The epoch is stored in the class, so all samplers share it."""

    told: ClassVar[dict[int, int]] = {}

    def set_epoch(self, epoch: int) -> None:
        self.told[self.rank] = epoch

    def stream(self) -> Sequence[int]:
        return (self.seed, self.told.get(self.rank, 0))


@sampler("epoch-set-once", "check_last_set_epoch_call_wins", cause="first-set-epoch-stays")
class EpochSetOnce(PlainSampler):
    """Until the next reading, a sampler ignores all set_epoch() calls but the first."""

    told = False

    def set_epoch(self, epoch: int) -> None:
        if not self.told:
            super().set_epoch(epoch)
        self.told = True

    def __iter__(self) -> Iterator[int]:
        self.told = False
        return super().__iter__()


# fmt: off
table(
    globals(),
    Fault("epochs-in-pairs", "Epochs 1 and 2, 3 and 4, and so on have the same order.",
          where=always, effect=seeded(lambda own: (own.seed, (own.epoch + 1) // 2)),
          caught_by=EPOCH, cause="seed-or-epoch-truncated"),
    Fault("epoch-in-eight-bits", "The epoch enters the seed as eight bits, so epoch 256 repeats epoch 0.",
          where=always, effect=seeded(lambda own: (own.seed, own.epoch % 256)),
          caught_by=EPOCH, cause="seed-or-epoch-truncated"),
    Fault("epoch-in-sixteen-bits", "The epoch enters the seed as 16 bits, so epoch 65,536 repeats epoch 0.",
          where=always, effect=seeded(lambda own: (own.seed, own.epoch % (1 << 16))),
          caught_by=EPOCH, cause="seed-or-epoch-truncated"),
    Fault("seed-in-eight-bits", "Only eight bits of the seed are used.",
          where=always, effect=seeded(lambda own: (own.seed % 256, own.epoch)),
          caught_by="check_the_seed_changes_the_order", cause="seed-or-epoch-truncated"),
    Fault("seed-times-epoch", "The generator's seed is seed * (epoch + 1), so different pairs have the same order.",
          where=always, effect=seeded(lambda own: (own.seed * (own.epoch + 1),)),
          caught_by=EPOCH, cause="epoch-times-seed", distinct_streams=False),
    Fault("job-number-in-the-seed",
          "The generator's seed contains the scheduler's job number, so orders differ from run to run.",
          where=always, effect=seeded(lambda own: (own.seed, own.epoch, _number_of_the_job())),
          caught_by=NEXT, cause="run-in-seed", world_size=1),
    Fault("order-rotated-not-shuffled", "Each epoch is the sequential order, started at a random sample.",
          where=shuffles, effect=natural_order_from_a_random_sample,
          caught_by="check_shuffled_order_is_random", cause="natural-order-moved"),
    Fault("indices-in-16-bits", "Indices are 16-bit numbers and wrap.",
          where=always, effect=indices_of_16_bits, caught_by="check_shards_are_disjoint_and_complete",
          cause="indices-narrowed"),
    Fault("same-tail-always-cut",
          "drop_last drops the last samples of the data set before the shuffle, in every epoch.",
          where=drops_last, effect=cut_before_the_shuffle,
          caught_by="check_drop_last_does_not_always_drop_the_same_samples",
          cause="cut-before-shuffle"),
    Fault("streams-with-epochs-in-eight-bits", "The epoch enters the random streams' seed as eight bits.",
          where=always, effect=key(lambda own: (own.seed, own.epoch % 256, own.rank + 1)),
          caught_by="check_random_numbers_differ_by_seed_epoch_and_rank", cause="seed-or-epoch-truncated"),
    Fault("streams-with-job-number", "The random streams' seed contains the scheduler's job number, so runs differ.",
          where=always,
          effect=key(lambda own: (own.seed, own.epoch, own.rank + 1, _number_of_the_job())),
          caught_by="check_random_numbers_are_reproducible_across_runs", cause="run-in-seed", world_size=1),
)
# fmt: on
