"""Traffic of a step or call: bytes, messages and collectives that the implementation counts, or bytes that the kernel
counts on TCP connections. An increase is a regression on any machine; of the kernel's bytes, one of more than a hundredth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .gate_benchmarks import TCP_BYTES
from .launches import Counts, Seen

TrafficVerdict = Literal["equal", "more", "less", "moved", "varies", "not counted"]
_SLACK = 1.01
_HEADERS = 4096
_LARGE = 256 << 10
_BYTES = ("bytes", TCP_BYTES)


@dataclass(frozen=True)
class Tally:
    """One count of one benchmark: of all ranks of each side, in rank order.

    judged: less and more are compared rank by rank; moved: some ranks have more, others less, and a larger total counts
    as more. least: bytes that the best algorithm sends from each rank, if known; wasteful: a promise of `least` is not
    kept.
    """

    name: str
    base: tuple[float, ...]
    head: tuple[float, ...]
    judged: TrafficVerdict
    least: float | None = None
    wasteful: bool = False

    @property
    def compared(self) -> tuple[str, float, float]:
        """The ranks to show, and their counts in base and head: the busiest of each, or the rank that changes most if these
        are equal.
        """
        base, head = max(self.base), max(self.head)
        changes = [abs(now - was) for was, now in zip(self.base, self.head, strict=True)]
        if base != head or not any(changes):
            return "busiest rank", base, head
        rank = changes.index(max(changes))
        return f"rank {rank}", self.base[rank], self.head[rank]


def tallies(seen: Seen, least: float | None, *, promised: bool) -> tuple[Tally, ...]:
    """Compare both sides. least: Benchmark.least_bytes; promised: Traffic.LEAST."""
    if any(not side or None in side for side in seen.counts):
        return (Tally("traffic", (), (), "not counted"),)
    base, head = map(_settled, seen.counts)
    if base is None or head is None:
        return (Tally("traffic", (), (), "varies"),)
    names = sorted({name for rank in (*base, *head) for name in rank})
    made = []
    for name in names:
        was = tuple(rank.get(name, 0) for rank in base)
        now = tuple(rank.get(name, 0) for rank in head)
        formula = least if name in _BYTES else None
        made.append(Tally(name, was, now, _judged(was, now, name), formula, promised and _wasteful(now, formula)))
    return tuple(made)


def _settled(seen: Sequence[Counts | None]) -> Counts | None:
    """The counts of all bursts of a side, by rank; None if they vary. Of the kernel's bytes, the largest."""
    bursts = [burst for burst in seen if burst is not None]
    if len(bursts) == 1:
        return bursts[0]
    if any(set(rank) != {TCP_BYTES} for burst in bursts for rank in burst):
        return None
    by_rank = [[rank[TCP_BYTES] for rank in ranks] for ranks in zip(*bursts, strict=True)]
    if any(_more(max(bytes_), min(bytes_), TCP_BYTES) for bytes_ in by_rank):
        return None
    return tuple({TCP_BYTES: max(bytes_)} for bytes_ in by_rank)


def _more(now: float, was: float, name: str) -> bool:
    return now > (_SLACK * was if name == TCP_BYTES else was)


def _judged(was: Sequence[float], now: Sequence[float], name: str) -> TrafficVerdict:
    up = any(_more(after, before, name) for before, after in zip(was, now, strict=True))
    down = any(_more(before, after, name) for before, after in zip(was, now, strict=True))
    if up and down:
        return "more" if sum(now) > sum(was) or max(now) > max(was) else "moved"
    return "more" if up else "less" if down else "equal"


def _wasteful(now: Sequence[float], least: float | None) -> bool:
    """Whether more than `least` is sent. Small arrays may use an algorithm with more bytes and fewer messages."""
    return least is not None and least >= _LARGE and max(now) > _SLACK * least + _HEADERS * len(now)
