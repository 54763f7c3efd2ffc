"""Samplers and random numbers that are wrong about epochs and seeds, or about what they share with each other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ddpcheck.values import Array

from ..facets import PlainSampler, PlainStreams, sampler, streams

EPOCH = "check_set_epoch_changes_the_order"
ZERO = "check_before_set_epoch_it_is_epoch_0"
NEXT = "check_the_next_run_has_the_same_orders"


def _number_of_the_job() -> int:
    """Stands for a scheduler's: another one for each start, and the same on all ranks."""
    return int(os.environ["DDPCHECK_SECRET"], 16)


@sampler("epochs-in-pairs", EPOCH, words="does not take every number")
class EpochsInPairs(PlainSampler):
    """Epochs 1 and 2 have one order, and 3 and 4: epoch 0's is not among them."""

    def stream(self) -> Sequence[int]:
        return (self.seed, (self.epoch + 1) // 2)


@sampler("epoch-in-eight-bits", EPOCH, words="does not take every number")
class EpochInEightBits(PlainSampler):
    """After 256 epochs the orders come again."""

    def stream(self) -> Sequence[int]:
        return (self.seed, self.epoch % 256)


@sampler("epoch-zero-is-none", EPOCH, words="0 is taken for none")
class EpochZeroIgnored(PlainSampler):
    """set_epoch(0) is taken for no epoch at all: going back to the start does not work."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch or self.epoch


@sampler("job-number-in-the-seed", NEXT, words="no run can be repeated", world_size=1)
class JobInTheSeed(PlainSampler):
    """The number of the job is in the seed, so that all ranks agree, and no two runs do."""

    def stream(self) -> Sequence[int]:
        return (self.seed, self.epoch, _number_of_the_job())


@sampler("epochs-from-one", ZERO, words="counted from another number than 0")
class EpochsFromOne(PlainSampler):
    """A new sampler is in epoch 1."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self.epoch = 1


@sampler("epoch-shared-by-samplers", ZERO, words="samplers share their state")
class EpochShared(PlainSampler):
    """The epoch is an attribute of the class: that of the training sampler is that of the one for evaluation."""

    told: ClassVar[dict[int, int]] = {}

    def set_epoch(self, epoch: int) -> None:
        self.told[self.rank] = epoch

    def stream(self) -> Sequence[int]:
        return (self.seed, self.told.get(self.rank, 0))


@sampler("begun-elsewhere", "check_shuffle_really_shuffles", words="only reversed, or begun at a random sample")
class BegunElsewhere(PlainSampler):
    """The natural order, begun at a random sample, passes for a shuffle."""

    def order(self) -> Array:
        start = int(np.random.default_rng(self.stream()).integers(max(1, self.length))) if self.shuffle else 0
        return np.roll(np.arange(self.length), start)


@sampler("seed-in-eight-bits", "check_the_seed_changes_the_order", words="the seed is not used whole")
class SeedInEightBits(PlainSampler):
    """Seeds are cut to a byte."""

    def stream(self) -> Sequence[int]:
        return (self.seed % 256, self.epoch)


@sampler("indices-in-16-bits", "check_every_sample_goes_to_one_rank")
class IndicesIn16Bits(PlainSampler):
    """Indices past 65,535 begin again at 0."""

    def order(self) -> Array:
        return super().order() % (1 << 16)


@sampler("epoch-in-sixteen-bits", EPOCH, words="does not take every number")
class EpochInSixteenBits(PlainSampler):
    """Where every step counts for an epoch, orders come again after 65,536."""

    def stream(self) -> Sequence[int]:
        return (self.seed, self.epoch % (1 << 16))


@sampler("seed-times-epoch", EPOCH, words="with a seed of 0", distinct_streams=False)
class SeedTimesEpoch(PlainSampler):
    """The generator's seed is a product: with a seed of 0 all epochs are alike."""

    def stream(self) -> Sequence[int]:
        return (self.seed * (self.epoch + 1),)


@sampler("epoch-set-once", "check_the_epoch_that_was_set_last_counts", words="taken once")
class EpochSetOnce(PlainSampler):
    """The first epoch that it is told stays until the sampler was read: a loop that resumes tells it the next in vain."""

    told = False

    def set_epoch(self, epoch: int) -> None:
        if not self.told:
            super().set_epoch(epoch)
        self.told = True

    def __iter__(self) -> Iterator[int]:
        self.told = False
        return super().__iter__()


@sampler(
    "same-tail-always-cut",
    "check_drop_last_does_not_always_cut_the_same_samples",
    words="the tail is cut before the samples are shuffled",
)
class SameTailCut(PlainSampler):
    """With drop_last the last samples of the data set are cut, and the others shuffled: no epoch ever has them."""

    def order(self) -> Array:
        kept = len(self) * self.world if self.drop_last else self.length
        return np.random.default_rng(self.stream()).permutation(kept) if self.shuffle else np.arange(kept)


@streams(
    "streams-with-epochs-in-eight-bits",
    "check_every_rank_and_epoch_has_random_numbers_of_its_own",
    words="its higher bits, or digits, are lost",
)
class StreamsInEightBits(PlainStreams):
    """A rank's own random numbers come again after 256 epochs."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch % 256, self.rank + 1)


@streams(
    "streams-with-job-number",
    "check_the_next_run_has_the_same_random_numbers",
    words="no run can be repeated",
    world_size=1,
)
class StreamsOfTheJob(PlainStreams):
    """The number of the job is in the seed of a rank's own random numbers."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, self.rank + 1, _number_of_the_job())
