"""Hypotheses about orders of samples: of equal epochs and seeds, unshuffled, of a new sampler, and about len()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from ...causes import Cause, randomness
from ...causes import samplers as causes
from ...job import Sample
from .shares import Order


@dataclass(frozen=True)
class EqualEpochs:
    """Epochs of one seed with the same order.

    alike: the pairs of these epochs, in the order of reading; at least one. epochs: all that were read.
    """

    alike: Sequence[tuple[int, int]]
    epochs: Sequence[int]
    seed: int

    @property
    def all_alike(self) -> bool:
        return len(self.alike) == len(self.epochs) * (len(self.epochs) - 1) // 2


@dataclass(frozen=True)
class EqualSeeds:
    """Two seeds with the same order in an epoch. order: of each rank. ignored: whether all seeds have it."""

    first: int
    second: int
    epoch: int
    order: Sequence[Order]
    ignored: bool = False


@dataclass(frozen=True)
class SameOrder:
    """Two readings with the same order, of two epochs or two seeds."""

    read: Sample
    epoch: int | None
    other_epoch: int | None
    other_seed: int

    def ignored(self, part: str) -> Cause:
        epochs = sorted({each for each in (self.epoch, self.other_epoch) if each is not None})
        length, drop_last = self.read.length, self.read.drop_last
        return causes.IGNORED_AT_LENGTH(part=part, epochs=tuple(epochs), length=length, drop_last=drop_last)


@dataclass(frozen=True)
class SameSubset:
    """A rank's orders in two epochs, which consist of the same samples."""

    first: Order
    second: Order


@dataclass(frozen=True)
class UntoldOrder:
    """A new sampler's order before set_epoch(), after another sampler's order in its epoch; zero: of epoch 0."""

    untold: Order
    told: Order
    zero: Order


@dataclass(frozen=True)
class OtherLen:
    """len() of a sampler that gives another number of samples. before: len() before the first reading, which gave `first`."""

    before: int
    first: int


def set_epoch_ignored(of: EqualEpochs) -> Cause | None:
    return randomness.SET_EPOCH_IGNORED() if of.all_alike and of.seed else None


def epoch_times_seed(of: EqualEpochs) -> tuple[Cause, ...]:
    return (causes.EPOCH_TIMES_SEED(), randomness.SEED_0_IS_NONE().but("possible")) if of.all_alike else ()


def epoch_0_is_none(of: EqualEpochs) -> Cause | None:
    following = list(pairwise(of.epochs))
    return causes.EPOCH_0_IS_NONE() if all(0 in pair and pair in following for pair in of.alike) else None


def lower_epoch_ignored(of: EqualEpochs) -> Cause | None:
    """Epochs have one order exactly where no higher one was read in between."""
    highest = [max(of.epochs[: place + 1]) for place in range(len(of.epochs))]
    pairs = combinations(zip(of.epochs, highest, strict=True), 2)
    alike = {(first, second) for (first, most), (second, later) in pairs if most == later}
    return causes.LOWER_EPOCH_IGNORED() if alike == set(of.alike) else None


def epoch_truncated(of: EqualEpochs) -> Cause:
    first, second = sorted(of.alike[0])
    return randomness.TRUNCATED(part="epoch", first=first, second=second)


def seed_ignored_at_length(of: SameOrder) -> Cause | None:
    """The readings have two seeds."""
    return of.ignored("seed") if of.read.seed != of.other_seed else None


def epoch_ignored_at_length(of: SameOrder) -> Cause:
    return of.ignored("epoch")


def epoch_not_shuffled(of: EqualSeeds) -> Cause | None:
    return causes.EPOCH_NOT_SHUFFLED(epoch=of.epoch) if all(each == sorted(each) for each in of.order) else None


def seed_ignored(of: EqualSeeds) -> Cause | None:
    return randomness.SEED_IGNORED() if of.ignored else None


def seed_0_is_none(of: EqualSeeds) -> Cause | None:
    return randomness.SEED_0_IS_NONE() if 0 in (of.first, of.second) and max(of.first, of.second) < 1 << 16 else None


def seed_truncated(of: EqualSeeds) -> Cause:
    return randomness.TRUNCATED(part="seed", first=min(of.first, of.second), second=max(of.first, of.second))


def head_cut(ranks: Sequence[Order]) -> Cause | None:
    return causes.HEAD_CUT() if all(order == sorted(order) for order in ranks) else None


def natural_order_reversed(ranks: Sequence[Order]) -> Cause | None:
    backwards = all(one > other for order in ranks for one, other in pairwise(order))
    return causes.NATURAL_ORDER_REVERSED() if backwards else None


def natural_order_comes_twice(ranks: Sequence[Order]) -> Cause | None:
    halves = [(order[: len(order) // 2], order[len(order) // 2 :]) for order in ranks]
    doubled = all(first == second == sorted(first) for first, second in halves)
    return causes.ORDER_COMES_TWICE() if doubled else None


def begins_again_from_the_front(ranks: Sequence[Order]) -> Cause | None:
    """Ascending samples are followed by some that the rank has had, as padding is."""
    for rank, order in enumerate(ranks):
        kept = list(dict.fromkeys(order))
        if len(kept) < len(order) and kept == sorted(kept) == order[: len(kept)]:
            return causes.PADDED_TOO_MUCH(rank=rank)
    return None


def shuffled_unasked(ranks: Sequence[Order]) -> Cause:
    return causes.SHUFFLED_UNASKED()


def one_order_moved(of: SameSubset) -> Cause | None:
    return causes.ONE_ORDER_MOVED() if _neighbours(of.first) == _neighbours(of.second) else None


def shuffled_within_shares(of: SameSubset) -> Cause:
    return causes.SHUFFLED_WITHIN_SHARES()


def _neighbours(order: Order) -> set[tuple[int, int]]:
    """Pairs of adjacent samples, in either direction, including last and first."""
    return {(min(pair), max(pair)) for pair in pairwise([*order[-1:], *order])}


def epoch_of_another_sampler(of: UntoldOrder) -> Cause | None:
    stale = len(of.told) > 1 and of.untold == of.told != of.zero
    return causes.SAMPLERS_SHARE_STATE(state="epoch") if stale else None


def first_epoch_not_0(of: UntoldOrder) -> Cause:
    return randomness.FIRST_EPOCH_NOT_0()


def length_changes(of: OtherLen) -> Cause | None:
    return causes.LENGTH_CHANGES() if of.before == of.first else None


def length_apart(of: OtherLen) -> Cause:
    return causes.LENGTH_APART()
