"""Samplers that depend on earlier readings or on other samplers, and orders that repeat between epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.samplers import drops_last, ordering, padding, seeded, shuffles
from ..facet_seams import PlainSampler, sampler

ANEW = "check_every_epoch_is_shuffled_independently"
SUMS = "check_sampler_does_not_add_seed_and_epoch"
LENGTH = "check_sampler_len_matches_iteration"


@ordering
def one_order_begun_elsewhere(sampler: PlainSampler, order: Array) -> Array:
    """One permutation for all epochs, started at another sample in each."""
    return np.roll(np.random.default_rng(sampler.seed).permutation(sampler.length), 7 * sampler.epoch + 1)


@ordering
def last_quarter_not_shuffled(sampler: PlainSampler, order: Array) -> Array:
    order, some = np.arange(sampler.length), 3 * sampler.length // 4
    order[:some] = np.random.default_rng(sampler.stream()).permutation(some)
    return order


@padding
def cut_off_where_the_order_begins(sampler: PlainSampler, order: Array) -> Array:
    return order[len(order) % sampler.world :]


# fmt: off
table(
    globals(),
    Fault("one-permutation-rotated-per-epoch", "Every epoch has the same permutation, started at another sample.",
          where=shuffles, effect=one_order_begun_elsewhere,
          caught_by=ANEW, cause="one-order-for-all-epochs"),
    Fault("only-a-part-is-shuffled", "The last quarter of the samples is not shuffled.",
          where=shuffles, effect=last_quarter_not_shuffled,
          caught_by=ANEW, cause="partly-shuffled"),
    Fault("seed-plus-thousand-epochs",
          "The generator's seed is seed + 1000 * epoch, so different pairs have the same order.",
          where=always, effect=seeded(lambda own: (own.seed + 1000 * own.epoch,)),
          caught_by=SUMS, cause="seed-is-a-sum"),
    Fault("seed-xor-epoch", "The generator's seed mixes seed and epoch by XOR, so different pairs have the same order.",
          where=always, effect=seeded(lambda own: ((own.seed << 4) ^ own.epoch,)),
          caught_by=SUMS, cause="seed-is-a-sum"),
    Fault("seed-in-float32", "The seed is rounded to float32.",
          where=always, effect=seeded(lambda own: (int(np.float32(own.seed)), own.epoch)),
          caught_by="check_the_seed_changes_the_order", cause="seed-or-epoch-truncated"),
    Fault("head-cut-with-drop-last", "drop_last drops samples at the start of the order, not at its end.",
          where=drops_last, effect=cut_off_where_the_order_begins,
          caught_by="check_drop_last_drops_only_the_tail", cause="head-cut"),
)
# fmt: on


@sampler("epoch-broken-off-runs-on", "check_interrupted_epoch_restarts_in_full", cause="broken-epoch-runs-on")
class RunsOn(PlainSampler):
    """An interrupted epoch continues at its position when it is restarted."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        while self.position < len(order):
            self.position += 1
            yield order[self.position - 1]
        self.position = 0


@sampler("order-shared-by-samplers", "check_samplers_do_not_share_state", cause="samplers-share-state")
class OrderOfTheLast(PlainSampler):
    """The order is stored in the class, so samplers share the one that was set last."""

    kept: ClassVar[dict[tuple[int, int], Array]] = {}

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.kept[self.rank, self.length] = super().order()

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self.kept.pop((rank, length), None)

    def order(self) -> Array:
        return self.kept.get((self.rank, self.length), super().order())


@sampler(
    "generator-reset-on-change-only",
    "check_sampler_order_depends_only_on_seed_and_epoch",
    cause="order-depends-on-readings",
)
class ResetOnChange(PlainSampler):
    """The generator is reseeded only if the epoch changes, so setting it again gives another order."""

    def __init__(self, length: int, rank: int, world: int, *, shuffle: bool, seed: int, drop_last: bool) -> None:
        super().__init__(length, rank, world, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self.generator = np.random.default_rng(self.stream())

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            super().set_epoch(epoch)
            self.generator = np.random.default_rng(self.stream())

    def order(self) -> Array:
        return self.generator.permutation(self.length) if self.shuffle else np.arange(self.length)


@sampler("length-after-reading", LENGTH, cause="length-known-late")
class LengthAfterReading(PlainSampler):
    """len() counts the samples that were read."""

    counted = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        self.counted = len(order)
        return iter(order)

    def __len__(self) -> int:
        return self.counted

    def padded(self, order: Array) -> Array:
        return np.resize(order, PlainSampler.__len__(self) * self.world)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("whole-blocks")
class WholeBlocks(PlainSampler):
    """Correct: blocks of eight neighbouring samples are shuffled."""

    def order(self) -> Array:
        blocks = np.array_split(np.arange(self.length), max(1, self.length // 8))
        if self.shuffle:
            blocks = [blocks[place] for place in np.random.default_rng(self.stream()).permutation(len(blocks))]
        return np.concatenate(blocks)

    def share(self, order: Array) -> Array:
        size = PlainSampler.__len__(self)
        return order[size * self.rank : size * (self.rank + 1)]


@sampler("advances-by-itself", sampler_state=False)
class AdvancesByItself(PlainSampler):
    """Correct: every reading advances the epoch, unless set_epoch() sets it."""

    def __iter__(self) -> Iterator[int]:
        order = super().__iter__()
        self.epoch += 1
        return order


@sampler("order-of-a-longer-one", "check_samplers_do_not_share_state", cause="samplers-share-state")
class OrderOfALongerOne(PlainSampler):
    """Orders are cached by seed and epoch; a shorter sampler reuses that of a longer one."""

    kept: ClassVar[dict[tuple[int, ...], Array]] = {}

    def order(self) -> Array:
        if not self.shuffle:
            return super().order()
        key = self.seed, self.epoch
        if len(self.kept.get(key, ())) < self.length:
            self.kept[key] = super().order()
        return self.kept[key][self.kept[key] < self.length]
