"""Counts of the ranks' traffic: by the kernel on TCP connections, or else by the implementation itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from ddpcheck.operations.probes import Sent
from ddpcheck.trace import Trace
from ddpcheck.verdict import CannotTell

OWN_WORD = "by the implementation's own counters: the system cannot count this traffic"


@dataclass(frozen=True, slots=True)
class Counted:
    """Traffic by rank, from one Sent to the next. note: the counter, if it was not the kernel.

    A message is a TCP packet, or a message by the implementation's own count.
    """

    bytes: list[list[int]]
    messages: list[list[int]]
    note: str = ""


def counted(trace: Trace, least: float, counts: int = 1) -> Counted:
    """Traffic of each rank; CannotTell if its first `counts` numbers show less than half of the `least` bytes that all
    ranks together must have sent by then.
    """
    for one in (by_kernel(trace), by_itself(trace)):
        if _at_first(one, counts) >= least / 2:
            return one
    raise CannotTell(
        f"only {_at_first(by_kernel(trace), counts):,} of some {least:,.0f} bytes were seen on TCP connections: the data go "
        "another way, and the implementation does not count them"
    )


def by_kernel(trace: Trace) -> Counted:
    return Counted(_grown(trace, "sent", 0), _grown(trace, "sent", 1))


def by_itself(trace: Trace) -> Counted:
    return Counted(_grown(trace, "counts", "bytes"), _grown(trace, "counts", "messages"), OWN_WORD)


def begun(trace: Trace) -> list[list[int]]:
    """Collectives that each rank reports as started, from one Sent to the next."""
    return _grown(trace, "counts", "collectives")


def _at_first(of: Counted, counts: int) -> int:
    return sum(sum(sent[:counts]) for sent in of.bytes)


def _grown(trace: Trace, source: str, of: Literal[0, 1, "bytes", "messages", "collectives"]) -> list[list[int]]:
    """The growth of each count by rank, over all connections."""
    grown = []
    for rank in trace.ranks:
        totals = [_totals(record.values[source], of) for record in rank.records if record.kind == Sent.kind]
        grown.append(
            [sum(count - before.get(name, 0) for name, count in after.items()) for before, after in pairwise(totals)]
        )
    return grown


def _totals(values: Mapping[str, Any] | None, of: int | str) -> dict[str, int]:
    """Counts by connection if there are any, otherwise one total; empty without counts."""
    if isinstance(of, int):
        return {name: both[of] for name, both in (values or {}).items()}
    return {name: count for name, count in (values or {}).items() if name == of}
