"""What ranks that wait say of themselves, and when it proves that they wait in a circle.

A rank says for whom it waits, in which of its waits, and to whom bytes are still on their way. Each of some ranks is asked twice,
the second time when all have answered. If all are still in the same wait, there was a moment between the two at which all
waited. Whatever any of them had sent has arrived by the first answer, and was not enough, or the wait would have ended by the
second. So if they wait for no rank besides, none of them can go on: the proof needs no time limit, and a slow rank, which does
not answer, is never part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..errors import Mismatch
from . import wire_format

_WAIT = struct.Struct(f"!IQ{wire_format.HEADER_BYTES}sHHH")  # rank, serial, header, and how many ranks of each kind
_MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class Wait:
    """`rank` waits, for the `serial`-th time, for a message from `sources`, or until `sinks` take one; any of them will do.

    header: of the operation. unread: ranks to which bytes are on their way.
    """

    rank: int
    serial: int
    header: bytes
    sources: tuple[int, ...]
    sinks: tuple[int, ...] = ()
    unread: tuple[int, ...] = ()

    @property
    def awaited(self) -> tuple[int, ...]:
        return self.sources + self.sinks

    def __str__(self) -> str:
        for_whom = " or ".join(f"rank {other}" for other in dict.fromkeys(self.awaited))
        return (
            f"rank {self.rank} waits for {for_whom} in {wire_format.describe(self.header, receives=bool(self.sources))}"
        )


def go_on_never(waits: Mapping[int, Wait]) -> bool:
    """Whether ranks that answered so can only wait for each other: if a second answer of each names the same wait, they will."""
    return all(
        other in waits and (other not in wait.sources or rank not in waits[other].unread)
        for rank, wait in waits.items()
        for other in wait.awaited
    )


def circle(own: int, waits: Mapping[int, Wait]) -> Mismatch:
    """What rank `own`, one of them, raises. It names the wait of each, its own first."""
    order = sorted(waits, key=lambda rank: (rank != own, rank))
    told = "; ".join(str(waits[rank]) for rank in order[:_MOST_TOLD])
    more = f"; so do {len(order) - _MOST_TOLD} ranks more" if len(order) > _MOST_TOLD else ""
    return Mismatch(
        waits[own].awaited[0],
        f"ranks {', '.join(map(str, sorted(waits)))} wait for each other, and no message is on its way: {told}{more}. All ranks "
        "must call the same operations in the same order, with the same root",
    )


def pack(waits: Collection[Wait]) -> bytes:
    """Bytes for unpack()."""
    packed = bytearray()
    for wait in waits:
        kinds: Sequence[tuple[int, ...]] = (wait.sources, wait.sinks, wait.unread)
        packed += _WAIT.pack(wait.rank, wait.serial, wait.header, *map(len, kinds))
        for ranks in kinds:
            packed += struct.pack(f"!{len(ranks)}I", *ranks)
    return bytes(packed)


def unpack(packed: bytes) -> dict[int, Wait]:
    """Waits by their rank. ValueError if these are none."""
    found: dict[int, Wait] = {}
    place = 0
    try:
        while place < len(packed):
            rank, serial, header, *counts = _WAIT.unpack_from(packed, place)
            place += _WAIT.size
            kinds: list[tuple[int, ...]] = []
            for count in counts:
                kinds.append(struct.unpack_from(f"!{count}I", packed, place))
                place += 4 * count
            found[rank] = Wait(rank, serial, header, *kinds)
    except struct.error as error:
        raise ValueError(f"{len(packed)} bytes are no waits: {error}") from error
    if not all(wait.awaited for wait in found.values()):
        raise ValueError("a wait for nobody")
    return found
