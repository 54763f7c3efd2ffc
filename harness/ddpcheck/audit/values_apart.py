"""Finds the first value of a loss of which the ranks do not have a part: one process computes another one from the same inputs.

One process has a value of samples for the samples of all ranks. Another value is equal on all ranks, or their mean or sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..seeded_values import Array
from .event_journal import JournalReader

_CLOSE = 1e-4
_CLOSE_IN_HALF = 3e-2
_NOISE = 32

Key = tuple[str, str, int]
"""Line, operation, and how many of both came before."""


@dataclass(frozen=True)
class ValueApart:
    """The line and operation that computes it."""

    line: str
    operation: str


def first_value_apart(folder: Path, ranks: int, step: int, number: int, *, half: bool) -> ValueApart | None:
    """None if nothing shows. number: of the backward pass in the step. half: whether products are in float16 or bfloat16."""
    places = [Path("real", str(rank)) for rank in range(ranks)] + [Path("one", "0"), Path("noise", "0")]
    seen = [_read(folder / place, f"operations-{step}-{number}") for place in places]
    *own, whole, again = seen
    if any(each is None for each in own) or whole is None:
        return None
    first, *others = [each for each in own if each is not None]
    for place in first.of_the_loss():
        key = first.keys[place]
        together = [first.sums_at(key), *(each.sums_at(key) for each in others)]
        one, noisy = whole.sums_at(key), again.sums_at(key) if again is not None else None
        if one is None or any(each is None for each in together):
            continue
        if _is_apart([each for each in together if each is not None], one, noisy, _CLOSE_IN_HALF if half else _CLOSE):
            return ValueApart(key[0], key[1])
    return None


@dataclass(frozen=True)
class _Value:
    shape: tuple[int, ...]
    sums: tuple[Array | None, ...]


@dataclass(frozen=True)
class _Operations:
    loss: int
    results: Sequence[tuple[str, str, tuple[int, ...], tuple[int, ...]]]
    sums: Sequence[tuple[Array | None, ...]]

    @cached_property
    def keys(self) -> list[Key]:
        seen: Counter[tuple[str, str]] = Counter()
        found = []
        for line, operation, *_ in self.results:
            found.append((line, operation, seen[line, operation]))
            seen[line, operation] += 1
        return found

    @cached_property
    def _places(self) -> dict[Key, int]:
        return {key: place for place, key in enumerate(self.keys)}

    def sums_at(self, key: Key) -> _Value | None:
        """None if there is no such value, or if its sums were not kept."""
        place = self._places.get(key)
        return _Value(self.results[place][3], self.sums[place]) if place is not None and self.sums[place] else None

    def of_the_loss(self) -> list[int]:
        """The places of the values of which the loss consists, in order."""
        found, left = set[int](), [self.loss]
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left.extend(self.results[place][2])
        return sorted(found)


def _read(folder: Path, name: str) -> _Operations | None:
    journal = JournalReader(folder)
    if not journal.has(name):
        return None
    loss, results, sizes, flat = journal.load(name)
    ends = np.cumsum([each for sums in sizes for each in sums if each is not None])
    parts = iter(np.split(np.nan_to_num(flat.numpy(), posinf=0.0, neginf=0.0), ends))
    return _Operations(loss, results, [tuple(None if each is None else next(parts) for each in sums) for sums in sizes])


def _is_apart(own: Sequence[_Value], one: _Value, noisy: _Value | None, close: float) -> bool:
    if all(each.shape == one.shape for each in own):
        return not _is_common(own, one, noisy, close)
    places = [place for place in range(len(one.shape)) if _holds_samples(place, own, one)]
    if not places:  # ranks that pad to lengths of their own differ from one another, too
        return len({each.shape for each in own}) == 1 and len(own[0].shape) == len(one.shape)
    compared = [_near_in_any_order(place, own, one, noisy, close) for place in places]
    return False in compared and True not in compared


def _holds_samples(place: int, own: Sequence[_Value], one: _Value) -> bool:
    """Whether one process has along this dimension what all ranks have, and elsewhere as much as each."""
    return all(len(each.shape) == len(one.shape) for each in own) and all(
        (one.shape[other] == sum(each.shape[other] for each in own))
        if other == place
        else all(each.shape[other] == one.shape[other] for each in own)
        for other in range(len(one.shape))
    )


def _is_common(own: Sequence[_Value], one: _Value, noisy: _Value | None, close: float) -> bool:
    """Whether one process's value is that of each rank, or the mean or the sum over them."""
    for place, whole in enumerate(one.sums):
        parts = [each.sums[place] for each in own]
        if whole is None or any(each is None for each in parts):
            continue
        stacked = np.stack([each for each in parts if each is not None])
        allowed = _allowed(whole, noisy.sums[place] if noisy is not None else None, close)
        ways = (stacked.mean(0), stacked.sum(0))
        if not any(np.all(np.abs(way - whole) <= allowed) for way in ways):
            return False
    return True


def _near_in_any_order(
    place: int, own: Sequence[_Value], one: _Value, noisy: _Value | None, close: float
) -> bool | None:
    """None if these sums were not kept."""
    if place >= len(one.sums):
        return None
    whole, parts = one.sums[place], [each.sums[place] for each in own]
    if whole is None or any(each is None for each in parts):
        return None
    together = np.sort(np.concatenate([each for each in parts if each is not None]))
    again = noisy.sums[place] if noisy is not None and noisy.shape == one.shape else None
    allowed = _allowed(np.sort(whole), None if again is None else np.sort(again), close)
    return bool(np.all(np.abs(together - np.sort(whole)) <= allowed))


def _allowed(whole: Array, noisy: Array | None, close: float) -> Array:
    made: Array = close * (np.abs(whole).max(initial=0.0) + 1e-12) + np.zeros_like(whole)
    if noisy is not None and noisy.shape == whole.shape:
        made = made + _NOISE * np.abs(noisy - whole)
    return made
