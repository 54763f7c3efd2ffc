"""Traffic without noise: bytes, messages and collectives of a step or call. An increase is a regression on any
machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .launches import Counts, Seen

TrafficVerdict = Literal["equal", "more", "less", "moved", "varies", "not counted"]
_SLACK = 1.01
_HEADERS = 4096
_LARGE = 256 << 10


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


def tallies(seen: Seen, least: float | None, *, promised: bool) -> tuple[Tally, ...]:
    """Compare both sides. least: Benchmark.least_bytes; promised: Traffic.LEAST."""
    base, head = seen.counts
    if _uncounted(base) or _uncounted(head):
        return (Tally("traffic", (), (), "not counted"),)
    if len(base) > 1 or len(head) > 1:
        return (Tally("traffic", (), (), "varies"),)
    before, after = base[0], head[0]
    assert before is not None
    assert after is not None
    names = sorted({name for rank in (*before, *after) for name in rank})
    made = []
    for name in names:
        was = tuple(rank.get(name, 0) for rank in before)
        now = tuple(rank.get(name, 0) for rank in after)
        formula = least if name == "bytes" else None
        made.append(Tally(name, was, now, _judged(was, now), formula, promised and _wasteful(now, formula)))
    return tuple(made)


def _uncounted(counts: Sequence[Counts | None]) -> bool:
    return not counts or None in counts


def _judged(was: Sequence[float], now: Sequence[float]) -> TrafficVerdict:
    up = any(after > before for before, after in zip(was, now, strict=True))
    down = any(after < before for before, after in zip(was, now, strict=True))
    if up and down:
        return "more" if sum(now) > sum(was) or max(now) > max(was) else "moved"
    return "more" if up else "less" if down else "equal"


def _wasteful(now: Sequence[float], least: float | None) -> bool:
    """Whether more than `least` is sent. Small arrays may use an algorithm with more bytes and fewer messages."""
    return least is not None and least >= _LARGE and max(now) > _SLACK * least + _HEADERS * len(now)
