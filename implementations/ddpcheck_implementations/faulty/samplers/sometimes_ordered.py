"""Samplers in whose order seed and epoch count, but for some lengths, some epochs, or with drop_last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpcheck.values import Array

from ..facets import PlainSampler, sampler

ANY = "check_seed_and_epoch_count_for_every_length"


@sampler("drop-last-is-not-shuffled", ANY, words="where samples are 81 and drop_last is set")
class DropLastIsNotShuffled(PlainSampler):
    """What drops the last samples is another branch, in which nobody shuffles, unless nothing is left over."""

    def order(self) -> Array:
        plain = self.drop_last and self.length % self.world
        return np.arange(self.length) if plain else super().order()


@sampler("seed-without-remainder", ANY, words="the seed does not count where samples are 81")
class SeedWithoutRemainder(PlainSampler):
    """Where padding is needed, the order comes from a generator that nobody has told the seed."""

    def stream(self) -> Sequence[int]:
        return (0 if self.length % self.world else self.seed, self.epoch)


@sampler("epochs-of-even-lengths", ANY, words="the epoch does not count where samples are 81")
class EpochsOfEvenLengths(PlainSampler):
    """Epochs of an odd number of samples are counted in pairs."""

    def stream(self) -> Sequence[int]:
        return (self.seed, self.epoch // 2 if self.length % 2 else self.epoch)


@sampler("seed-of-the-first-epochs", ANY, words="the seed does not count where samples are 81")
class SeedOfTheFirstEpochs(PlainSampler):
    """From the fourth epoch on the generator is begun by the epoch alone."""

    def stream(self) -> Sequence[int]:
        return (self.seed if self.epoch < 3 else 0, self.epoch)


@sampler("too-large-to-be-shuffled", ANY, words="shuffle=True is lost on the way where samples are 70001")
class TooLargeToBeShuffled(PlainSampler):
    """A list of more than 65,536 places is thought to take too much memory, and the order is the natural one."""

    def order(self) -> Array:
        return np.arange(self.length) if self.length > 1 << 16 else super().order()


@sampler(
    "drop-last-is-always-shuffled",
    "check_without_shuffle_the_order_is_natural",
    words="shuffle=False is lost on the way",
)
class DropLastIsAlwaysShuffled(PlainSampler):
    """Who drops the last samples is thought to be training, and training is shuffled."""

    def order(self) -> Array:
        orders = np.random.default_rng(self.stream())
        return orders.permutation(self.length) if self.drop_last else super().order()


@sampler("other-lengths-otherwise")
class OtherLengthsOtherwise(PlainSampler):
    """Correct: orders of odd lengths come from another generator, which begins with seed and epoch, too."""

    def order(self) -> Array:
        if not self.shuffle or self.length % 2 == 0:
            return super().order()
        return np.random.Generator(np.random.MT19937(self.seed * 65537 + self.epoch)).permutation(self.length)
