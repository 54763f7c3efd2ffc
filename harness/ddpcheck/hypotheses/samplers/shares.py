"""Hypotheses about samples that go to no rank, or to the wrong number of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...causes import Cause, lifecycle, randomness
from ...causes import samplers as causes
from ...job import Sample

Order = list[int]
"""The indices of one rank in one epoch."""


@dataclass(frozen=True)
class AbsentSamples:
    """Samples that go to no rank in one reading.

    ranks: the order of each. absent: these samples, ascending. behind: the ranks that stay in an earlier epoch. shared:
    whether a sample goes to several ranks. after_others: whether all was right with another seed.
    """

    ranks: Sequence[Order]
    read: Sample
    absent: Order
    behind: tuple[int, ...] = ()
    shared: bool = False
    after_others: bool = False

    @property
    def is_tail(self) -> bool:
        """Whether these are the last samples of the natural order, which was requested."""
        return not self.read.shuffle and self.absent == list(range(self.read.length))[-len(self.absent) :]


@dataclass(frozen=True)
class OtherLength:
    """A rank with another number of samples than the remainder rule allows, in reading `number`."""

    ranks: Sequence[Order]
    rank: int
    length: int
    rule: str
    number: int = 0

    @property
    def order(self) -> Order:
        """The rank's samples."""
        return self.ranks[self.rank]

    @property
    def low(self) -> int:
        """The samples of each rank without a remainder."""
        return self.length // len(self.ranks)

    @property
    def high(self) -> int:
        """The samples of each rank, padded."""
        return -(-self.length // len(self.ranks))

    @property
    def total(self) -> int:
        return sum(map(len, self.ranks))


@dataclass(frozen=True)
class OtherTotal:
    """Ranks that together have more or fewer samples than there are. total: of all ranks."""

    world: int
    length: int
    total: int

    @property
    def padded(self) -> bool:
        """Whether all shares may have been padded to one length."""
        return self.length < self.total == -(-self.length // self.world) * self.world


def absent_past_few_bits(of: AbsentSamples) -> Cause | None:
    beyond = (bits for bits in (8, 15, 16, 31) if of.absent == list(range(1 << bits, of.read.length)))
    bits = next(beyond, None)
    return causes.INDICES_NARROWED(place="order", bits=bits) if bits else None


def same_share(of: AbsentSamples) -> tuple[Cause, ...]:
    first, *others = of.ranks
    alike = bool(others) and all(order == first for order in others)
    telling = not of.read.shuffle or len(first) > 3
    return (causes.SAME_SHARE(), lifecycle.RANK_READ_AT_IMPORT()) if alike and telling else ()


def rank_stays_in_epoch(of: AbsentSamples) -> Cause | None:
    return causes.RANK_STAYS_IN_EPOCH(ranks=of.behind) if of.behind and of.read.shuffle else None


def repeated_on_rank(of: AbsentSamples) -> Cause | None:
    repeating = [rank for rank, order in enumerate(of.ranks) if len(set(order)) < len(order)]
    telling = not of.is_tail and of.read.length >= len(of.ranks)
    return causes.REPEATED_ON_RANK(rank=repeating[0]) if repeating and telling else None


def orders_apart(of: AbsentSamples) -> tuple[Cause, ...]:
    """Ranks divide different orders, or samples are drawn with replacement."""
    if not of.shared or len(of.ranks) == 1 or of.is_tail:
        return ()
    seed_0 = (randomness.SEED_0_IS_NONE(),) if of.after_others and not of.read.seed else ()
    return (*seed_0, causes.RANKS_DISAGREE(), causes.DRAWN_WITH_REPLACEMENT())


def tail_absent(of: AbsentSamples) -> Cause:
    return causes.TAIL_LOST(count=len(of.absent))


def whole_data_set(of: OtherLength) -> Cause | None:
    whole = len(of.ranks) > 1 and of.length > 1 and len(of.order) > of.high and len(set(of.order)) == of.length
    return causes.WHOLE_DATA_SET(rank=of.rank) if whole else None


def reading_empty(of: OtherLength) -> Cause | None:
    return causes.READING_EMPTY() if of.number and not of.order else None


def divisible_padded(of: OtherLength) -> Cause | None:
    padded = of.low == of.high and all(len(each) == of.low + 1 for each in of.ranks)
    return causes.DIVISIBLE_PADDED() if padded else None


def order_comes_twice(of: OtherLength) -> Cause | None:
    doubled = of.low == of.high > 0 and all(len(each) == 2 * of.low for each in of.ranks)
    return causes.ORDER_COMES_TWICE() if doubled else None


def divisible_cut(of: OtherLength) -> Cause | None:
    cut = of.low == of.high and all(len(each) == of.low - 1 for each in of.ranks)
    return causes.DIVISIBLE_CUT() if cut else None


def padding_taken_once(of: OtherLength) -> Cause | None:
    too_few = of.total == 2 * of.length < of.high * len(of.ranks)
    return causes.PADDING_TAKEN_ONCE() if of.rule == "pad" and too_few else None


def padded_too_much(of: OtherLength) -> Cause | None:
    repeats = len(set(of.order)) < len(of.order)
    return causes.PADDED_TOO_MUCH(rank=of.rank) if of.rule == "pad" and len(of.order) > of.high and repeats else None


def not_padded(of: OtherLength) -> Cause | None:
    return causes.NOT_PADDED() if of.rule == "pad" and len(of.order) == of.low else None


def not_cut(of: OtherLength) -> Cause | None:
    if of.rule != "drop" or len(of.order) != of.high:
        return None
    return causes.NOT_CUT() if of.total == of.length else causes.PADDED_NOT_CUT()


def remainder_on_one_rank(of: OtherLength) -> Cause | None:
    return causes.REMAINDER_ON_ONE_RANK() if of.rule == "uneven" and of.total == of.length else None


def sharded_twice(of: OtherLength) -> Cause | None:
    world = len(of.ranks)
    twice = all(len(each) in (of.low // world, -(-of.low // world)) for each in of.ranks)
    return causes.SHARDED_TWICE() if twice else None


def remainder_lost(of: OtherTotal) -> Cause | None:
    lost = of.total == of.length // of.world * of.world < of.length
    return causes.TAIL_LOST(count=of.length - of.total) if lost else None


def starved_ranks_filled(of: OtherTotal) -> Cause | None:
    starved = tuple(range(of.length, of.world))
    return causes.STARVED_RANKS_FILLED(ranks=starved) if of.padded and starved else None


def remainder_padded(of: OtherTotal) -> Cause | None:
    return causes.REMAINDER_PADDED() if of.padded else None
