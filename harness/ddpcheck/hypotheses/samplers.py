"""Causes of indices of a sampler that do not fit together: shares, orders, and what is left after resuming."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..causes import Cause, lifecycle, randomness
from ..causes import samplers as causes
from ..job import Sample

Order = list[int]
"""The indices of one rank in one epoch."""


def why_no_first(ranks: list[list[int]]) -> Cause:
    """Why sample 0 is left out of an order that should be the natural one."""
    if all(order == sorted(order) for order in ranks):
        return causes.HEAD_CUT()
    backwards = all(order == sorted(order, reverse=True) for order in ranks)
    return causes.NATURAL_ORDER_REVERSED() if backwards else causes.SHUFFLED_UNASKED()


def why_absent(
    ranks: list[list[int]],
    read: Sample,
    absent: list[int],
    behind: tuple[int, ...],
    *,
    shared: bool,
    after_others: bool,
) -> Iterator[Cause]:
    """Why these samples go to no rank.

    behind: the ranks that stay in an earlier epoch. shared: whether a sample goes to several ranks. after_others: whether all
    went well with another seed.
    """
    world, length = len(ranks), read.length
    tail = not read.shuffle and absent == list(range(length))[-len(absent) :]
    bits = next((bits for bits in (8, 15, 16, 31) if absent == list(range(1 << bits, length))), None)
    repeating = [rank for rank, order in enumerate(ranks) if len(set(order)) < len(order)]
    if bits:
        yield causes.INDICES_NARROWED(place="order", bits=bits)
    elif world > 1 and all(order == ranks[0] for order in ranks) and (not read.shuffle or len(ranks[0]) > 3):
        yield from (causes.SAME_SHARE(), lifecycle.RANK_READ_AT_IMPORT())
    elif behind and read.shuffle:
        yield causes.RANK_STAYS_IN_EPOCH(ranks=behind)
    elif repeating and not tail and length >= world:
        yield causes.REPEATED_ON_RANK(rank=repeating[0])
    elif shared and world > 1 and not tail:
        if after_others and not read.seed:
            yield randomness.SEED_0_IS_NONE()
        yield causes.RANKS_DISAGREE()
        yield causes.DRAWN_WITH_REPLACEMENT()
    else:
        yield causes.TAIL_LOST(count=len(absent))


def why_filled(ranks: list[list[int]], length: int) -> tuple[Cause, ...]:
    """Why ranks have more samples together than there are: what is left of few samples is told apart."""
    world, total = len(ranks), sum(map(len, ranks))
    if not length < total == -(-length // world) * world:
        return ()
    starved = tuple(range(length, world))
    return (causes.STARVED_RANKS_FILLED(ranks=starved),) if starved else (causes.REMAINDER_PADDED(),)


def why_other_lengths(ranks: list[list[int]], rank: int, length: int, rule: str, number: int) -> Iterator[Cause]:
    """Why this rank has another number of samples than the remainder rule allows, in reading `number`."""
    world, order, total = len(ranks), ranks[rank], sum(map(len, ranks))
    low, high = length // world, -(-length // world)
    even = length % world == 0
    if world > 1 and len(order) > high and length > 1 and len(set(order)) == length:
        yield causes.WHOLE_DATA_SET(rank=rank)
    elif number and not len(order):
        yield causes.READING_EMPTY()
    elif even and all(len(each) == low + 1 for each in ranks):
        yield causes.DIVISIBLE_PADDED()
    elif even and all(len(each) == low - 1 for each in ranks):
        yield causes.DIVISIBLE_CUT()
    elif rule == "pad" and total == 2 * length:
        yield causes.PADDING_TAKEN_ONCE()
    elif rule == "pad" and len(order) > high and len(set(order)) < len(order):
        yield causes.PADDED_TOO_MUCH(rank=rank)
    elif rule == "pad" and len(order) == low:
        yield causes.NOT_PADDED()
    elif rule == "drop" and len(order) == high:
        yield causes.NOT_CUT() if total == length else causes.PADDED_NOT_CUT()
    elif rule == "uneven" and total == length:
        yield causes.REMAINDER_ON_ONE_RANK()
    elif all(len(each) in (low // world, -(-low // world)) for each in ranks):
        yield causes.SHARDED_TWICE()


def why_epochs_agree(alike: list[tuple[int, int]], epochs: Sequence[int], seed: int) -> tuple[Cause, ...]:
    """alike: the pairs of epochs that have one order, in the order in which they were asked for; at least one."""
    first, second = alike[0]
    if len(alike) == len(epochs) * (len(epochs) - 1) // 2:
        return (
            (randomness.SET_EPOCH_IGNORED(),)
            if seed
            else (causes.EPOCH_TIMES_SEED(), randomness.SEED_0_IS_NONE().but("possible"))
        )
    if all(0 in pair and pair in list[tuple[int, int]](pairwise(epochs)) for pair in alike):
        return (causes.EPOCH_0_IS_NONE(),)
    return (randomness.TRUNCATED(part="epoch", first=min(first, second), second=max(first, second)),)


def why_seeds_agree(first: int, second: int, epoch: int, order: list[list[int]], *, ignored: bool) -> Cause:
    """order: of both seeds in this epoch; ignored: whether all seeds have it."""
    if all(each == sorted(each) for each in order):
        return causes.EPOCH_NOT_SHUFFLED(epoch=epoch)
    if ignored:
        return randomness.SEED_IGNORED()
    if 0 in (first, second) and max(first, second) < 1 << 16:
        return randomness.SEED_0_IS_NONE()
    return randomness.TRUNCATED(part="seed", first=min(first, second), second=max(first, second))


def why_other_rest(piece: Order, whole: Order, at: int, last: int, other: Order, then: int | None) -> Cause:
    """at: how many had been read; last: how many of them since the last load; other: the order of another epoch, `then`."""
    rest = whole[at:]
    if piece and piece == whole[: len(piece)] and at:
        return causes.POSITION_NOT_RESTORED()
    bits = next((bits for bits in (8, 16) if piece == [index % (1 << bits) for index in rest]), None)
    if bits and rest:
        return causes.INDICES_NARROWED(place="state", bits=bits)
    if rest and sorted(piece) == sorted(rest):
        return causes.REST_RESHUFFLED()
    found = next((start for start in range(len(whole)) if piece and piece == whole[start : start + len(piece)]), None)
    if at > last and found == last:
        return causes.POSITION_SINCE_LOAD()
    if found is not None and found != at:
        kind = causes.RESUMED_TOO_LATE if found > at else causes.RESUMED_TOO_EARLY
        return kind(count=abs(found - at), start=found)
    if not piece and rest:
        return causes.NOTHING_LEFT(count=len(rest))
    if then is not None and set(piece) <= set(other) and piece == other[at : at + len(piece)]:
        return causes.REST_OF_EPOCH(epoch=then)
    return causes.REST_PADDED() if piece and not rest else causes.RESUMED_ORDER_DIFFERS()


def why_other_epoch(then: Order, whole: Order, other: Order, epoch: int) -> Cause:
    """then: the indices read after the epoch whose order is `whole`, in place of `other`."""
    if then == whole != other and len(whole) > 2:
        return causes.SET_EPOCH_LOST_AFTER_LOAD(epoch=epoch)
    return causes.RESUMED_ORDER_DIFFERS() if len(then) == len(other) else causes.LOADED_POSITION_STAYS()
