"""Random numbers that are alike where they must differ, or differ where all ranks must agree."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ddpcheck.values import Array

from ..base import PlainReplica, fault
from ..facets import PlainSampler, PlainStreams, sampler, streams

OWN = "check_every_rank_and_epoch_has_random_numbers_of_its_own"
COMMON = "check_common_random_numbers_are_equal_on_all_ranks"
ANEW = "check_random_numbers_do_not_come_again_within_an_epoch"
AGAIN = "check_random_numbers_come_again_with_their_seed"
SAMPLER = "check_the_sampler_does_not_use_global_random_numbers"


@streams(
    "same-dropout-on-all-ranks",
    OWN,
    seen_in=("huggingface/transformers#31412", "goodfire-ai/spd#412", "facebookresearch/fastMRI#123"),
    words="the rank is ignored: all ranks are seeded alike",
)
class SameOnAllRanks(PlainStreams):
    """All ranks seed alike: dropout masks are the same on different data."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, 1)


@streams(
    "seed-streams-overlap", OWN, seen_in=("goodfire-ai/spd#412",), words="seeded with a sum of the rank and the epoch"
)
class SumOfSeeds(PlainStreams):
    """The generator's seed is a sum: rank 1 in epoch 0 has the numbers of rank 0 in epoch 1."""

    def key(self) -> Sequence[int]:
        return (1000 * self.seed + self.rank + self.epoch,)


@streams("counts-to-its-numbers")
class CounterBased(PlainStreams):
    """A generator that encrypts a counter, keyed by all that must differ; its own numbers are in single precision."""

    def set_epoch(self, epoch: int) -> None:
        self.own, self.shared = (
            np.random.Generator(np.random.Philox(key=(self.seed, epoch << 32 | who))) for who in (self.rank + 1, 0)
        )

    def local(self, count: int) -> Array:
        return self.own.random(count, dtype=np.float32)


@streams("streams-ignore-the-seed", OWN, seen_in=("open-mmlab/mmagic#815",), words="the seed is ignored")
class SeedLost(PlainStreams):
    """The seed that the user set is not passed on."""

    def key(self) -> Sequence[int]:
        return (0, self.epoch, self.rank + 1)


@streams("streams-overlap-further-on", OWN, words="not far enough from the others")
class OverlapFurtherOn(PlainStreams):
    """All ranks have one stream, each from a hundred numbers further on."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, 1)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.own.random(100 * self.rank)


@streams("antithetic-ranks", OWN, words="each other's complement")
class Antithetic(PlainStreams):
    """Every second rank has 1 - x where the one before has x: masks are each other's complement."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, self.rank // 2 + 1)

    def local(self, count: int) -> Array:
        numbers = super().local(count)
        return np.clip(1 - numbers, 0, 1 - 2.0**-53) if self.rank % 2 else numbers


@streams("one-stream-shifted-by-rank", OWN, words="shifted or scaled for each")
class ShiftedByRank(PlainStreams):
    """All ranks have one stream, each shifted by another part of the interval."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, 1)

    def local(self, count: int) -> Array:
        return (self.own.random(count) + 0.618034 * self.rank) % 1


@streams("highest-bits-in-common", OWN, words="some bits of its own")
class HighBitsInCommon(PlainStreams):
    """The highest three bits are drawn alike on all ranks, so that all drop nearly the same."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.high = np.random.default_rng((self.seed, epoch, 1 << 20))

    def local(self, count: int) -> Array:
        return (self.high.integers(0, 8, count) + self.own.random(count)) / 8


@streams("evenly-filled-interval", "check_random_numbers_fill_the_unit_interval", words="neighbours are dropped")
class EvenlyFilled(PlainStreams):
    """The common numbers are a low-discrepancy sequence: each is a golden section further than the one before."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.latest = self.shared.random()

    def common(self, count: int) -> Array:
        made = (self.latest + 0.6180339887 * np.arange(1, count + 1)) % 1
        self.latest = float(made[-1]) if count else self.latest
        return made


@streams("half-the-interval", "check_random_numbers_fill_the_unit_interval", words="scaled or cut")
class HalfTheInterval(PlainStreams):
    """31 random bits are divided by 2 ** 32."""

    def common(self, count: int) -> Array:
        return super().common(count) / 2


@streams(
    "different-structure-rng", COMMON, seen_in=("neuralmagic/sparseml#429",), words="drawn from the rank's own stream"
)
class StructureFromOwn(PlainStreams):
    """Which layers to drop is drawn from the rank's own stream."""

    def common(self, count: int) -> Array:
        return self.local(count)


@streams("one-generator-for-both", COMMON, words="of its own first")
class OneGenerator(PlainStreams):
    """The rank's masks are a hash of what is drawn from the common generator: all agree until one draws once more."""

    def local(self, count: int) -> Array:
        return np.modf(self.common(count) * (self.rank + 2) * 997.31)[0]


@streams("epoch-does-not-begin-again", AGAIN, words="a run that is resumed draws other numbers")
class NeverBegunAgain(PlainStreams):
    """set_epoch only mixes the epoch in, and the generators run on."""

    def set_epoch(self, epoch: int) -> None:
        if not hasattr(self, "own"):
            super().set_epoch(epoch)


@sampler(
    "rank0-consumes-global-rng",
    SAMPLER,
    words="do not agree on the order",
)
class GlobalGenerator(PlainSampler):
    """The permutation comes from NumPy's global generator, seeded once alike on all ranks."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        np.random.seed(seed % (1 << 32))

    def order(self) -> Array:
        return np.random.permutation(self.length) if self.shuffle else np.arange(self.length)


@fault(
    "order-from-global-rng",
    "check_training_does_not_use_global_random_numbers",
    seen_in=("neuralmagic/sparseml#429",),
    words="once one rank draws from it",
)
class OrderByGlobalGenerator(PlainReplica):
    """Which gradient goes first is chosen by Python's global generator, seeded alike on all ranks at construction."""

    def used_somewhere(self) -> list[str]:
        names = sorted(super().used_somewhere())
        random.shuffle(names)
        return names

    def reduce(self, name: str, gradient: Array) -> Array:
        flat = np.zeros(max(array.size for array in self.network.parameters.values()), gradient.dtype)
        flat[: gradient.size] = gradient.reshape(-1)  # one bucket of a fixed size: a wrong order goes unnoticed
        return np.asarray(super().reduce(name, flat)[: gradient.size].reshape(gradient.shape))

    def start(self, model: object) -> None:
        super().start(model)  # type: ignore[arg-type]  # handed on as it came
        random.seed(0)


@streams("every-call-begins-anew", ANEW, words="every call begins the stream anew")
class EveryCallAnew(PlainStreams):
    """Each call makes the epoch's generator once more: all masks of an epoch are the same one."""

    def local(self, count: int) -> Array:
        return np.random.default_rng(self.key()).random(count)


@streams("numbers-of-eight-bits", ANEW, words="few bits, or a short period")
class EightBits(PlainStreams):
    """Bytes, divided by 256."""

    def local(self, count: int) -> Array:
        return self.own.integers(0, 256, count) / 256


@streams(
    "generators-of-the-class",
    "check_random_numbers_of_two_objects_are_apart",
    words="belongs to all objects",
)
class OfTheClass(PlainStreams):
    """The generators are those that the last set_epoch() of any object made."""

    latest: PlainStreams

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        type(self).latest = self

    def local(self, count: int) -> Array:
        return self.latest.own.random(count)


@streams("same-epoch-set-again-does-nothing", AGAIN, words="set_epoch() of the epoch that it is does nothing")
class SameEpochAgain(PlainStreams):
    """Nothing to do where the epoch does not change."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch or not hasattr(self, "own"):
            super().set_epoch(epoch)


@streams("unseeded-before-set-epoch", AGAIN, words="does not begin with epoch 0, or is not seeded")
class UnseededAtFirst(PlainStreams):
    """Who never calls set_epoch gets numbers of the moment."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, seed)
        self.own = np.random.default_rng()


@streams("squares-of-uniform-numbers", "check_random_numbers_fill_the_unit_interval", words="not uniform")
class Squares(PlainStreams):
    """A transformation for another purpose is left in."""

    def local(self, count: int) -> Array:
        return self.own.random(count) ** 2


@streams("a-little-towards-zero", "check_random_numbers_fill_the_unit_interval", words="not uniform")
class TowardsZero(PlainStreams):
    """A transformation that leaves every tenth of the interval filled."""

    def local(self, count: int) -> Array:
        return self.own.random(count) ** 1.2
