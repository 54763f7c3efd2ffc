"""Random numbers that are equal where they must differ, or differ where ranks must agree."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ddpcheck.seeded_values import Array

from ..base import PlainReplica, fault
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import StreamsEffect, drawing, drawing_common, key
from ..facet_seams import PlainSampler, PlainStreams, sampler, streams

OWN = "check_random_numbers_differ_by_seed_epoch_and_rank"
COMMON = "check_common_random_numbers_are_equal_on_all_ranks"
ANEW = "check_random_numbers_do_not_repeat_within_an_epoch"
AGAIN = "check_random_numbers_depend_only_on_seed_epoch_and_rank"
SAMPLER = "check_sampler_ignores_global_random_state"


def power(exponent: float) -> StreamsEffect:
    """Raise the rank's own numbers to this power, so they are not uniform."""
    return StreamsEffect(own=lambda streams, count: streams.own.random(count) ** exponent)


@drawing_common
def halved(streams: PlainStreams, count: int) -> Array:
    """Like a division of 31 random bits by 2 ** 32."""
    return streams.shared.random(count) / 2


@drawing_common
def from_own_stream(streams: PlainStreams, count: int) -> Array:
    return streams.own.random(count)


@drawing
def hash_of_the_common_ones(streams: PlainStreams, count: int) -> Array:
    """Common numbers stay equal until one rank draws more numbers of its own."""
    return np.modf(streams.shared.random(count) * (streams.rank + 2) * 997.31)[0]


@drawing
def begun_anew(streams: PlainStreams, count: int) -> Array:
    """Every call creates the epoch's generator again."""
    return np.random.default_rng(streams.key()).random(count)


@drawing
def bytes_divided_by_256(streams: PlainStreams, count: int) -> Array:
    return streams.own.integers(0, 256, count) / 256


@streams("counts-to-its-numbers")
class CounterBased(PlainStreams):
    """Correct: a counter-based generator, keyed by seed, epoch and rank; own numbers are float32."""

    def set_epoch(self, epoch: int) -> None:
        self.own, self.shared = (
            np.random.Generator(np.random.Philox(key=(self.seed, epoch << 32 | who))) for who in (self.rank + 1, 0)
        )

    def local(self, count: int) -> Array:
        return self.own.random(count, dtype=np.float32)


@streams("streams-overlap-further-on", OWN, cause="streams-overlap")
class OverlapFurtherOn(PlainStreams):
    """All ranks read one random stream, each a hundred numbers further on."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, 1)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.own.random(100 * self.rank)


@streams("antithetic-ranks", OWN, cause="streams-mirrored")
class Antithetic(PlainStreams):
    """Every second rank has 1 - x where the previous rank has x."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, self.rank // 2 + 1)

    def local(self, count: int) -> Array:
        numbers = super().local(count)
        return np.clip(1 - numbers, 0, 1 - 2.0**-53) if self.rank % 2 else numbers


@streams("one-stream-shifted-by-rank", OWN, cause="streams-depend-on-each-other")
class ShiftedByRank(PlainStreams):
    """All ranks have one random stream, shifted by a constant for each rank."""

    def key(self) -> Sequence[int]:
        return (self.seed, self.epoch, 1)

    def local(self, count: int) -> Array:
        return (self.own.random(count) + 0.618034 * self.rank) % 1


@streams("highest-bits-in-common", OWN, cause="streams-depend-on-each-other")
class HighBitsInCommon(PlainStreams):
    """The highest three bits of random numbers are equal on all ranks."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.high = np.random.default_rng((self.seed, epoch, 1 << 20))

    def local(self, count: int) -> Array:
        return (self.high.integers(0, 8, count) + self.own.random(count)) / 8


@streams(
    "evenly-filled-interval", "check_random_numbers_are_uniform_on_unit_interval", cause="numbers-follow-a-pattern"
)
class EvenlyFilled(PlainStreams):
    """Common random numbers are a low-discrepancy sequence, which is not random."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.latest = self.shared.random()

    def common(self, count: int) -> Array:
        made = (self.latest + 0.6180339887 * np.arange(1, count + 1)) % 1
        self.latest = float(made[-1]) if count else self.latest
        return made


@streams("epoch-does-not-begin-again", AGAIN, cause="set-epoch-does-not-restart")
class NeverBegunAgain(PlainStreams):
    """set_epoch() mixes the epoch into running generators, so an epoch cannot be repeated."""

    def set_epoch(self, epoch: int) -> None:
        if not hasattr(self, "own"):
            super().set_epoch(epoch)


@sampler(
    "rank0-consumes-global-rng",
    SAMPLER,
    cause="ranks-disagree-on-order",
)
class GlobalGenerator(PlainSampler):
    """The order comes from NumPy's global generator, which one rank may use otherwise."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        np.random.seed(seed % (1 << 32))

    def order(self) -> Array:
        return np.random.permutation(self.length) if self.shuffle else np.arange(self.length)


@fault(
    "order-from-global-rng",
    "check_training_ignores_global_random_state",
    seen_in=("neuralmagic/sparseml#429",),
    cause="global-generator-decides",
)
class OrderByGlobalGenerator(PlainReplica):
    """The order of reductions comes from Python's global generator, which one rank may use otherwise."""

    def used_somewhere(self) -> list[str]:
        names = sorted(super().used_somewhere())
        random.shuffle(names)
        return names

    def reduce(self, name: str, gradient: Array) -> Array:
        flat = np.zeros(max(array.size for array in self.network.parameters.values()), gradient.dtype)
        flat[: gradient.size] = gradient.reshape(-1)  # one bucket size, so that collectives do not notice a wrong order
        return np.asarray(super().reduce(name, flat)[: gradient.size].reshape(gradient.shape))

    def start(self, model: object) -> None:
        super().start(model)  # type: ignore[arg-type]  # passed on unchanged
        random.seed(0)


@streams(
    "generators-of-the-class",
    "check_random_streams_of_two_objects_are_independent",
    cause="streams-share-generator",
)
class OfTheClass(PlainStreams):
    """All objects share the generators of the last set_epoch() call."""

    latest: PlainStreams

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        type(self).latest = self

    def local(self, count: int) -> Array:
        return self.latest.own.random(count)


@streams("same-epoch-set-again-does-nothing", AGAIN, cause="same-epoch-not-restarted")
class SameEpochAgain(PlainStreams):
    """set_epoch() with the present epoch does not restart it."""

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch or not hasattr(self, "own"):
            super().set_epoch(epoch)


@streams("unseeded-before-set-epoch", AGAIN, cause="first-epoch-not-0")
class UnseededAtFirst(PlainStreams):
    """Before any set_epoch() call, random numbers have no seed."""

    def __init__(self, rank: int, seed: int) -> None:
        super().__init__(rank, seed)
        self.own = np.random.default_rng()


# fmt: off
table(
    globals(),
    Fault("same-dropout-on-all-ranks", "All ranks draw the same random numbers.",
          where=always, effect=key(lambda own: (own.seed, own.epoch, 1)),
          caught_by=OWN, cause="rank-not-in-seed",
          seen_in=("huggingface/transformers#31412", "goodfire-ai/spd#412", "facebookresearch/fastMRI#123")),
    Fault("seed-streams-overlap",
          "The generator's seed is a sum of seed, rank and epoch, so streams of different ranks repeat.",
          where=always, effect=key(lambda own: (1000 * own.seed + own.rank + own.epoch,)),
          caught_by=OWN, cause="seed-is-a-sum", seen_in=("goodfire-ai/spd#412",)),
    Fault("streams-ignore-the-seed", "Random numbers ignore the seed.",
          where=always, effect=key(lambda own: (0, own.epoch, own.rank + 1)),
          caught_by=OWN, cause="seed-ignored", seen_in=("open-mmlab/mmagic#815",)),
    Fault("half-the-interval", "Common random numbers lie in [0, 0.5).",
          where=always, effect=halved,
          caught_by="check_random_numbers_are_uniform_on_unit_interval", cause="numbers-scaled-or-cut"),
    Fault("different-structure-rng", "Common random numbers come from the rank's own stream.",
          where=always, effect=from_own_stream,
          caught_by=COMMON, cause="common-numbers-from-own-stream", seen_in=("neuralmagic/sparseml#429",)),
    Fault("one-generator-for-both",
          "A rank's own numbers are computed from the common stream, which then advances on that rank only.",
          where=always, effect=hash_of_the_common_ones,
          caught_by=COMMON, cause="common-numbers-from-own-stream"),
    Fault("every-call-begins-anew", "Every call restarts the rank's stream.",
          where=always, effect=begun_anew, caught_by=ANEW, cause="every-call-restarts-the-stream"),
    Fault("numbers-of-eight-bits", "A rank's random numbers have only 256 different values.",
          where=always, effect=bytes_divided_by_256,
          caught_by=ANEW, cause="few-different-numbers"),
    Fault("squares-of-uniform-numbers", "A rank's random numbers are squares of uniform ones.",
          where=always, effect=power(2),
          caught_by="check_random_numbers_are_uniform_on_unit_interval", cause="numbers-not-uniform"),
    Fault("a-little-towards-zero", "A rank's random numbers are uniform ones to the power 1.2.",
          where=always, effect=power(1.2),
          caught_by="check_random_numbers_are_uniform_on_unit_interval", cause="numbers-not-uniform"),
)
# fmt: on
