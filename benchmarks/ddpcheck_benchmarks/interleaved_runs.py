"""Two measurements in turns, A B B A, so that drift of the machine affects both equally."""

from __future__ import annotations

from collections.abc import Callable


def in_turns(a: Callable[[], float], b: Callable[[], float], pairs: int) -> list[tuple[float, float]]:
    """The results of a and b, pair by pair; b is first in every second pair."""
    found = []
    for pair in range(pairs):
        first, second = (b, a) if pair % 2 else (a, b)
        one, other = first(), second()
        found.append((other, one) if pair % 2 else (one, other))
    return found
