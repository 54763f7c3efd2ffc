"""Numbers with their nouns, such as "1 rank" and "2 ranks", and ranks by their numbers."""

from __future__ import annotations

from collections.abc import Collection


def counted(number: int, noun: str, nouns: str = "") -> str:
    """nouns: the plural, if it is not the noun with an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or f'{noun}s'}"


def ranks_named(ranks: Collection[int]) -> str:
    """As in "rank 0" and "ranks 0, 2"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}"
