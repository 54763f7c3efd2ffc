"""Which algorithm an all-reduce takes: by where bytes go, the number of ranks, and bytes per rank.

All ranks choose the same, since it depends on nothing else. NUMPY_SOCKETS_ALGORITHM forces one wherever it can be used: over
sockets, in memory, or between hosts of which one has several of the ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Way = Literal["sockets", "memory", "hosts"]
_ANY = sys.maxsize


@dataclass(frozen=True, slots=True)
class Row:
    """Up to so many ranks, and bytes of each."""

    way: Way
    ranks: int
    nbytes: int
    algorithm: str


TABLE = (
    Row("sockets", 3, 32 * 1024, "direct"),  # all_to_all.py
    Row("sockets", 3, _ANY, "ring"),  # ring.py
    Row("sockets", _ANY, 32 * 1024, "doubling"),  # recursive_doubling.py
    Row("sockets", _ANY, 128 * 1024, "halving"),  # recursive_halving.py
    Row("sockets", _ANY, _ANY, "ring"),
    Row("memory", 4, 256 * 1024, "express"),  # small_reductions.py
    Row("memory", 2, _ANY, "all_add"),  # collectives.py
    Row("memory", _ANY, 64 * 1024, "express"),
    Row("memory", _ANY, _ANY, "owners_add"),
    Row("hosts", _ANY, 128 * 1024, "flat"),  # over sockets, as if each rank had a host of its own
    Row("hosts", _ANY, _ANY, "hierarchical"),  # hierarchical.py
)
"""The first row that fits counts. In memory `express` is for all ranks of the host; groups of them use `all_add` instead.

In place, arrays of more than memory.WORTH_BYTES are added up where they lie, if all can be reached there (in_place.py). The
limit of `express` is never below that.
"""

ALGORITHMS: dict[Way, tuple[str, ...]] = {
    "sockets": ("direct", "doubling", "halving", "ring"),
    "memory": ("express", "all_add", "owners_add"),
    "hosts": ("hierarchical",),
}
FOR_SMALL_ARRAYS = ("direct", "doubling", "halving", "express", "all_add")
"""Those that send more bytes than they must, in fewer messages."""


def choice(way: Way, ranks: int, forced: str) -> Callable[[int], str]:
    """A function that names the algorithm for so many bytes. ValueError if there is none of the name that is `forced`, or ""."""
    if forced in ALGORITHMS[way]:
        return lambda _: forced
    rows = [row for row in TABLE if row.way == way and ranks <= row.ranks]
    return lambda nbytes: next(row.algorithm for row in rows if nbytes <= row.nbytes)


def known(algorithm: str) -> None:
    """ValueError if there is no such algorithm. "" leaves the choice to the table."""
    names = [name for some in ALGORITHMS.values() for name in some]
    if algorithm and algorithm not in names:
        raise ValueError(f"there is no algorithm {algorithm!r}: choose one of {', '.join(names)}")
