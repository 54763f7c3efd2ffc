"""The choice of an all-reduce algorithm by route, number of ranks and bytes per rank.

Nothing else counts, so all ranks choose the same algorithm. NUMPY_SOCKETS_ALGORITHM forces one on every route that has it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Route = Literal["sockets", "memory", "hosts"]
"""Sockets, memory of one host, or both: "hosts" are several hosts, at least one with two or more ranks."""
_ANY = sys.maxsize


@dataclass(frozen=True, slots=True)
class Rule:
    """The algorithm for up to `ranks` ranks with up to `nbytes` bytes each."""

    route: Route
    ranks: int
    nbytes: int
    algorithm: str


TABLE = (
    Rule("sockets", 3, 32 * 1024, "direct"),  # all_to_all.py
    Rule("sockets", 3, _ANY, "ring"),  # ring.py
    Rule("sockets", _ANY, 32 * 1024, "doubling"),  # recursive_doubling.py
    Rule("sockets", _ANY, 128 * 1024, "halving"),  # recursive_halving.py
    Rule("sockets", _ANY, _ANY, "ring"),
    Rule("memory", 4, 256 * 1024, "express"),  # express.py
    Rule("memory", 2, _ANY, "all_add"),  # shared_memory/collectives.py
    Rule("memory", _ANY, 64 * 1024, "express"),
    Rule("memory", _ANY, _ANY, "owners_add"),
    Rule("hosts", _ANY, 128 * 1024, "flat"),  # sockets between all ranks, also of the same host
    Rule("hosts", _ANY, _ANY, "hierarchical"),  # hierarchical.py
)
"""The first rule that fits applies. `express` needs all ranks of the host; smaller groups use `all_add` instead.

all_reduce_in_place adds up arrays of more than mapping.MIN_REGION_BYTES in the caller's memory, if all ranks can reach it
(in_place.py). The limit of `express` is never below that.
"""

ALGORITHMS: dict[Route, tuple[str, ...]] = {
    "sockets": ("direct", "doubling", "halving", "ring"),
    "memory": ("express", "all_add", "owners_add"),
    "hosts": ("hierarchical",),
}
FOR_SMALL_ARRAYS = ("direct", "doubling", "halving", "express", "all_add")
"""Algorithms that send fewer messages, but more bytes than necessary."""


def choose_algorithm(route: Route, ranks: int, forced: str) -> Callable[[int], str]:
    """Return a function from an array's bytes to the name of its algorithm: `forced` if the route has it."""
    if forced in ALGORITHMS[route]:
        return lambda _: forced
    rules = [rule for rule in TABLE if rule.route == route and ranks <= rule.ranks]
    return lambda nbytes: next(rule.algorithm for rule in rules if nbytes <= rule.nbytes)


def validate_algorithm(algorithm: str) -> None:
    """Raise ValueError if there is no algorithm of this name. "" leaves the choice to the table."""
    names = [name for route in ALGORITHMS.values() for name in route]
    if algorithm and algorithm not in names:
        raise ValueError(f"there is no algorithm {algorithm!r}: choose one of {', '.join(names)}")
