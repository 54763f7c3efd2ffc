"""Hypotheses about a sampler that has loaded another sampler's state."""

from __future__ import annotations

from dataclasses import dataclass

from ...causes import Cause
from ...causes import samplers as causes
from ...job import ResumeSampling
from .shares import Order


@dataclass(frozen=True)
class OtherPiece:
    """Indices, read after a state was loaded, that are not the next ones of the epoch.

    number: of this piece of the epoch. piece: the indices; should: the right ones. whole: the epoch's. at: the number
    read before; last: the number since the last load. other: the order of the epoch `read.then`. world: the
    number of ranks.
    """

    read: ResumeSampling
    number: int
    piece: Order
    should: Order
    whole: Order
    at: int
    last: int
    other: Order
    world: int = 1

    @property
    def rest(self) -> Order:
        """The unread indices of the epoch."""
        return self.whole[self.at :]

    @property
    def begins_again(self) -> bool:
        return bool(self.piece) and self.piece == self.whole[: len(self.piece)]

    @property
    def start(self) -> int | None:
        """The position in the epoch at which these indices are consecutive."""
        piece, whole = self.piece, self.whole
        return next(
            (start for start in range(len(whole)) if piece and piece == whole[start : start + len(piece)]), None
        )


@dataclass(frozen=True)
class OtherNextEpoch:
    """Indices that are not those of the next epoch.

    got: the indices; should: the right ones. whole: those of the resumed epoch, whose number is `epoch`; at: how many
    of them had been read.
    """

    got: Order
    should: Order
    whole: Order
    epoch: int
    at: int = 0


def loaded_position_not_saved(of: OtherPiece) -> Cause | None:
    return causes.LOADED_POSITION_NOT_SAVED() if of.read.at_once and of.number and of.begins_again else None


def position_of_epoch_before(of: OtherPiece) -> Cause | None:
    return causes.POSITION_OF_EPOCH_BEFORE() if of.read.used and not of.piece and of.should else None


def end_begins_again(of: OtherPiece) -> tuple[Cause, ...]:
    ended = of.begins_again and of.at and not of.rest
    return (causes.END_BEGINS_AGAIN(), causes.POSITION_NOT_RESTORED().but("possible")) if ended else ()


def position_not_restored(of: OtherPiece) -> Cause | None:
    return causes.POSITION_NOT_RESTORED() if of.begins_again and of.at else None


def state_narrowed(of: OtherPiece) -> Cause | None:
    fitting = (bits for bits in (8, 16) if of.rest and of.piece == [index % (1 << bits) for index in of.rest])
    bits = next(fitting, None)
    return causes.INDICES_NARROWED(place="state", bits=bits) if bits else None


def rest_reshuffled(of: OtherPiece) -> Cause | None:
    return causes.REST_RESHUFFLED() if of.rest and sorted(of.piece) == sorted(of.rest) else None


def position_since_load(of: OtherPiece) -> Cause | None:
    return causes.POSITION_SINCE_LOAD() if of.at > of.last == of.start else None


def position_of_another_rank(of: OtherPiece) -> Cause | None:
    """The indices begin where those of another rank would, as each rank has read another number of them."""
    if not of.read.ahead or of.start is None or of.start == of.at:
        return None
    read = [sum(of.read.counts(rank)[: of.number]) for rank in range(of.world)]
    return causes.POSITION_OF_ANOTHER_RANK(rank=read.index(of.start), start=of.start) if of.start in read else None


def resumed_elsewhere(of: OtherPiece) -> Cause | None:
    start = of.start
    if start is None or start == of.at:
        return None
    kind = causes.RESUMED_TOO_LATE if start > of.at else causes.RESUMED_TOO_EARLY
    return kind(count=abs(start - of.at), start=start)


def nothing_left(of: OtherPiece) -> Cause | None:
    return causes.NOTHING_LEFT(count=len(of.rest)) if of.rest and not of.piece else None


def rest_of_other_epoch(of: OtherPiece) -> Cause | None:
    then = of.read.then
    if then is None or not set(of.piece) <= set(of.other) or of.piece != of.other[of.at : of.at + len(of.piece)]:
        return None
    return causes.REST_OF_EPOCH(epoch=then)


def rest_padded(of: OtherPiece) -> Cause | None:
    return causes.REST_PADDED() if of.piece and not of.rest else None


def resumed_order_differs(of: OtherPiece) -> Cause:
    return causes.RESUMED_ORDER_DIFFERS()


def set_epoch_lost(of: OtherNextEpoch) -> Cause | None:
    """The indices are those of the resumed epoch, from its start."""
    lost = of.got == of.whole != of.should and len(of.whole) > 2
    return causes.SET_EPOCH_LOST_AFTER_LOAD(epoch=of.epoch) if lost else None


def order_of_next_epoch_differs(of: OtherNextEpoch) -> Cause | None:
    return causes.RESUMED_ORDER_DIFFERS() if len(of.got) == len(of.should) else None


def loaded_position_stays(of: OtherNextEpoch) -> Cause:
    return causes.LOADED_POSITION_STAYS()


def set_epoch_lost_at_once(of: OtherNextEpoch) -> Cause | None:
    """The indices are the unread ones of the resumed epoch."""
    lost = of.got == of.whole[of.at :] and of.got != of.should[of.at :]
    return causes.SET_EPOCH_LOST_AFTER_LOAD(epoch=of.epoch) if lost else None


def loaded_position_in_next_epoch(of: OtherNextEpoch) -> Cause:
    return causes.LOADED_POSITION_IN_NEXT_EPOCH()


def loaded_length_stays(length: int, given: int) -> Cause | None:
    """len() is smaller than the number of samples that the sampler gives after the resumed epoch."""
    return causes.LOADED_LENGTH_STAYS() if length < given else None
