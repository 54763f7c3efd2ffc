"""Causes of more bytes on the wire than a collective needs."""

from __future__ import annotations

from collections.abc import Sequence

from ..causes import Cause
from ..causes import traffic as causes


def why_more_sent(sent: Sequence[int], size: int, share: float) -> tuple[Cause, ...]:
    """sent: bytes by rank; size: of the array; share: the least that each rank must send on average."""
    most, world = max(sent), len(sent)
    least = share * world
    if world > 2 and most > 1.4 * sorted(sent)[-2]:
        return (causes.EVERYTHING_THROUGH_ONE_RANK(),)
    twice = causes.SENT_TWICE()
    near = [
        (2 * (world - 1) * size, causes.RING_SENDS_WHOLE()),
        ((world - 1) * size, causes.WHOLE_ARRAY_TO_ALL()),
        (2 * share, twice),
    ]
    fits = [cause for count, cause in near if all(abs(each - count) < 0.03 * count for each in sent)]
    if not fits and abs(sum(sent) - 2 * least) < 0.06 * least:
        fits = [twice]
    return tuple(fits) or (causes.MORE_THAN_LEAST(times=sum(sent) / least),)
