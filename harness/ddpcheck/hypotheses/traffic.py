"""Hypotheses about bytes and messages on the wire: more than needed, inside no_sync(), and counted wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..causes import Cause
from ..causes import traffic as causes

_NEAR = 0.03
"""By more than this share a number of bytes is not that of an algorithm."""
_MOST = 0.9
"""A larger share of the bytes of synchronised backwards shows that all are sent."""


@dataclass(frozen=True)
class MoreSent:
    """More bytes than a collective needs.

    sent: bytes by rank; size: of the array; share: the least that each rank must send on average.
    """

    sent: Sequence[int]
    size: int
    share: float

    @property
    def least(self) -> float:
        return self.share * len(self.sent)


@dataclass(frozen=True)
class SentInside:
    """Bytes that a rank sent in backwards inside no_sync(). synchronised: in as many that are synchronised.

    inside_all: those of all ranks. before: of all ranks, until the end of the synchronised backwards before. least: the
    least that all ranks must have sent by then.
    """

    inside: int
    synchronised: int
    inside_all: int
    before: int
    least: float


@dataclass(frozen=True)
class GrowingBytes:
    """The bytes that all ranks sent in equal training steps. least: the least for the gradients of one step."""

    steps: Sequence[int]
    least: float


@dataclass(frozen=True)
class WrongCount:
    """The bytes that a rank sent, and another number that counts() tells."""

    sent: int
    told: int


@dataclass(frozen=True)
class ManyMessages:
    """The messages that each rank sends at least in one backward, and the number of its gradients."""

    least: int
    gradients: int


def everything_through_one_rank(of: MoreSent) -> Cause | None:
    through = len(of.sent) > 2 and max(of.sent) > 1.4 * sorted(of.sent)[-2]
    return causes.EVERYTHING_THROUGH_ONE_RANK() if through else None


def known_algorithm(of: MoreSent) -> tuple[Cause, ...]:
    """Every rank sends as much as in an algorithm that is not the best."""
    others = len(of.sent) - 1
    known = (
        (2 * others * of.size, causes.RING_SENDS_WHOLE()),
        (others * of.size, causes.WHOLE_ARRAY_TO_ALL()),
        (2 * of.share, causes.SENT_TWICE()),
    )
    return tuple(cause for count, cause in known if all(abs(each - count) < _NEAR * count for each in of.sent))


def sent_twice(of: MoreSent) -> Cause | None:
    """All ranks together send twice the least."""
    return causes.SENT_TWICE() if abs(sum(of.sent) - 2 * of.least) < 2 * _NEAR * of.least else None


def more_than_least(of: MoreSent) -> Cause:
    return causes.MORE_THAN_LEAST(times=sum(of.sent) / of.least)


def sent_after_backward(of: SentInside) -> Cause | None:
    """The synchronised backwards sent too little by their end, and no more than the rest was sent inside."""
    missing, near = of.least - of.before, 2 * _NEAR * of.least
    return causes.SENT_AFTER_BACKWARD() if missing > near and of.inside_all < missing + near else None


def reduced_inside_no_sync(of: SentInside) -> Cause | None:
    return causes.REDUCED_INSIDE_NO_SYNC() if of.inside > of.synchronised * _MOST else None


def sends_inside_no_sync(of: SentInside) -> Cause:
    return causes.SENDS_INSIDE_NO_SYNC()


def sent_in_later_steps(of: GrowingBytes) -> Cause | None:
    """The first step sent less than its gradients need, so later ones sent the rest."""
    return causes.SENT_AFTER_BACKWARD() if of.steps[0] < (1 - _NEAR) * of.least else None


def grows_with_steps(of: GrowingBytes) -> Cause:
    return causes.GROWS_WITH_STEPS(first=of.steps[0], last=of.steps[-1], steps=len(of.steps))


def partly_counted(told: Sequence[int]) -> Cause | None:
    """told: too few bytes, by rank."""
    return causes.PARTLY_COUNTED() if any(told) else None


def none_counted(told: Sequence[int]) -> Cause:
    return causes.NOT_COUNTED()


def counts_scaled(of: WrongCount) -> Cause | None:
    return causes.COUNTS_SCALED(times=of.told / max(1, of.sent)) if of.told else None


def not_counted(of: WrongCount) -> Cause:
    return causes.NOT_COUNTED()


def gradients_alone(of: ManyMessages) -> Cause | None:
    return causes.GRADIENTS_ALONE() if of.least >= of.gradients else None


def small_groups(of: ManyMessages) -> Cause:
    return causes.SMALL_GROUPS()
