"""Samplers that mind how they are read: in part, twice, beside another one; and orders that are not quite new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import PlainSampler, sampler

ANEW = "check_every_epoch_is_shuffled_independently"
SUMS = "check_sampler_does_not_add_seed_and_epoch"
LENGTH = "check_sampler_len_matches_iteration"


@sampler("one-order-begun-elsewhere", ANEW, cause="one-order-for-all-epochs")
class OneOrderRolled(PlainSampler):
    """One permutation for all epochs, each begun at another sample."""

    def order(self) -> Array:
        once = np.random.default_rng(self.seed).permutation(self.length)
        return np.roll(once, 7 * self.epoch + 1) if self.shuffle else np.arange(self.length)


@sampler("only-a-part-is-shuffled", ANEW, cause="partly-shuffled")
class PartlyShuffled(PlainSampler):
    """The last quarter stays where it is."""

    def order(self) -> Array:
        order, some = np.arange(self.length), 3 * self.length // 4
        if self.shuffle:
            order[:some] = np.random.default_rng(self.stream()).permutation(some)
        return order


@sampler("epoch-broken-off-runs-on", "check_interrupted_epoch_restarts_in_full", cause="broken-epoch-runs-on")
class RunsOn(PlainSampler):
    """The position is the sampler's, and goes back only at the end of an epoch."""

    position = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        while self.position < len(order):
            self.position += 1
            yield order[self.position - 1]
        self.position = 0


@sampler("order-shared-by-samplers", "check_samplers_do_not_share_state", cause="samplers-share-state")
class OrderOfTheLast(PlainSampler):
    """The order is an attribute of the class: it is that of the sampler which was told an epoch last."""

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
    """The generator is seeded when the epoch changes: an epoch that is set again has another order."""

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
    """How many samples there are is counted while they are read."""

    counted = 0

    def __iter__(self) -> Iterator[int]:
        order = list(super().__iter__())
        self.counted = len(order)
        return iter(order)

    def __len__(self) -> int:
        return self.counted

    def padded(self, order: Array) -> Array:
        return np.resize(order, PlainSampler.__len__(self) * self.world)


@sampler("seed-plus-thousand-epochs", SUMS, cause="seed-is-a-sum")
class SumWithThousand(PlainSampler):
    """The generator's seed is seed + 1000 epoch."""

    def stream(self) -> Sequence[int]:
        return (self.seed + 1000 * self.epoch,)


@sampler("seed-xor-epoch", SUMS, cause="seed-is-a-sum")
class ShiftedXor(PlainSampler):
    """The epoch is put into the seed's lowest four bits, and runs over into the others."""

    def stream(self) -> Sequence[int]:
        return ((self.seed << 4) ^ self.epoch,)


@sampler("seed-in-float32", "check_the_seed_changes_the_order", cause="seed-or-epoch-truncated")
class SeedInFloat32(PlainSampler):
    """Rank 0's seed comes to the others in float32."""

    def stream(self) -> Sequence[int]:
        return (int(np.float32(self.seed)), self.epoch)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@sampler("whole-blocks")
class WholeBlocks(PlainSampler):
    """Blocks of eight neighbours are shuffled, and read as they lie on disk."""

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
    """Every reading is of the next epoch, unless set_epoch says otherwise."""

    def __iter__(self) -> Iterator[int]:
        order = super().__iter__()
        self.epoch += 1
        return order


@sampler("order-of-a-longer-one", "check_samplers_do_not_share_state", cause="samplers-share-state")
class OrderOfALongerOne(PlainSampler):
    """Orders are kept by seed and epoch; one of more samples does for fewer, without those that there are not."""

    kept: ClassVar[dict[tuple[int, ...], Array]] = {}

    def order(self) -> Array:
        if not self.shuffle:
            return super().order()
        key = self.seed, self.epoch
        if len(self.kept.get(key, ())) < self.length:
            self.kept[key] = super().order()
        return self.kept[key][self.kept[key] < self.length]


@sampler("head-cut-with-drop-last", "check_drop_last_drops_only_the_tail", cause="head-cut")
class HeadCut(PlainSampler):
    """The remainder is cut off where the order begins."""

    def padded(self, order: Array) -> Array:
        return order[len(order) % self.world :] if self.drop_last else super().padded(order)
