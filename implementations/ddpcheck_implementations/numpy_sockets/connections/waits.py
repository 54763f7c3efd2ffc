"""The waits of ranks as a wait-for graph, and the proof that a set of ranks is deadlocked.

A rank reports the ranks that it waits for, the serial number of its wait, and the ranks to which its bytes are in transit. Each
rank of a set is asked twice, the second time after all have answered. If all are in the same wait both times, all of them waited
at one moment between the two. Their messages had arrived by the first answer and did not end the waits. If they also wait for no
rank outside the set, none of them can continue. The proof needs no time limit. A slow rank does not answer, so it is never part
of a deadlock.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..errors import Mismatch
from . import wire_format

_WAIT = struct.Struct(f"!IQ{wire_format.HEADER_BYTES}sHHH")  # rank, serial, header, and how many ranks of each kind
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Wait:
    """The `serial`-th wait of `rank`: for a message from any of `sources`, or until any of `sinks` receives one.

    header: the header of the operation. unread: the ranks to which bytes are in transit.
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


def is_deadlock(waits: Mapping[int, Wait]) -> bool:
    """Whether ranks in these waits can only wait for each other, and will do so if each is still in the same wait later."""
    return all(
        other in waits and (other not in wait.sources or rank not in waits[other].unread)
        for rank, wait in waits.items()
        for other in wait.awaited
    )


def deadlock_error(own: int, waits: Mapping[int, Wait]) -> Mismatch:
    """The error that rank `own` raises. It names the wait of each deadlocked rank, its own first."""
    order = sorted(waits, key=lambda rank: (rank != own, rank))
    named = "; ".join(str(waits[rank]) for rank in order[:_MOST_NAMED])
    more = f"; {len(order) - _MOST_NAMED} more ranks wait" if len(order) > _MOST_NAMED else ""
    return Mismatch(
        waits[own].awaited[0],
        f"ranks {', '.join(map(str, sorted(waits)))} wait for each other, and no message is under way: {named}{more}. All ranks "
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
    """The packed waits by rank. ValueError if the bytes are no packed waits."""
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
        raise ValueError(f"{len(packed)} bytes are no packed waits: {error}") from error
    if not all(wait.awaited for wait in found.values()):
        raise ValueError("a wait for no rank")
    return found
