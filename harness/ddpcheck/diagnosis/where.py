"""Where the wrong elements of an array lie. For causes.py."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..causes import Elements
from ..values import Array


def elements(wrong: Array) -> Elements:
    """Which elements of an array are True: at least one is."""
    flat = np.flatnonzero(wrong)
    return Elements(len(flat), wrong.size, int(flat[0]), int(flat[-1]))


def region(wrong: Array) -> str:
    return str(elements(wrong))


_RUN = 8
"""Elements next to one another that do not come to be alike by chance."""
_OUTLIERS = 3
"""The first wrong elements may be wrong for another reason, at the seam of two blocks."""


def shifted(got: Array, expected: Array, local: Array | None, wrong: Array) -> Iterator[str]:
    """Elements, or the other ranks' part of them, that belong elsewhere: half of the wrong ones by the same distance."""
    places = np.flatnonzero(wrong)
    if got.dtype.kind not in "fi" or len(places) < _RUN:
        return
    rest = None if local is None or local.shape != got.shape else expected - local
    known = (("", None), (", but for this rank's own part,", local), (", but for the other ranks' part,", rest))
    for what, base, first in ((what, base, first) for what, base in known for first in places[:_OUTLIERS].tolist()):
        if what and (base is None or base.shape != got.shape):
            continue
        a, b = (array.reshape(-1).astype(np.float64) for array in (got, expected))
        if base is not None:
            a, b = a - base.reshape(-1), b - base.reshape(-1)
        sought = a[first : first + _RUN]
        if len(sought) < _RUN or len(set(sought.tolist())) < _RUN // 2:
            continue
        for start in np.flatnonzero(b[: len(b) - _RUN + 1] == sought[0]).tolist():
            distance = start - first
            if distance and np.array_equal(b[start : start + _RUN], sought):
                there = places[(places + distance >= 0) & (places + distance < len(b))]
                if 4 * int((a[there] == b[there + distance]).sum()) >= len(places):
                    way = f"element{'s' * (abs(distance) > 1)} further {'on' if distance > 0 else 'back'}"
                    yield (
                        f"{region(wrong)}{what} hold what belongs {abs(distance)} {way}: a buffer was filled again before it "
                        "was sent, blocks are in a wrong order, or ranks cut them at different places"
                    )
                    return


def remainder(wrong: Array, world_size: int) -> Iterator[str]:
    count = int(wrong.sum())
    parts = [parts for parts in range(2, world_size + 1) if wrong.size % parts == count]
    if parts and count < wrong.size and wrong.reshape(-1)[-count:].all():
        yield f"only {region(wrong)} are wrong: the remainder of a division into {parts[0]} parts"


_PAGES = 2**10
"""Bytes of the least buffer that one would think of."""


def tail(wrong: Array, itemsize: int) -> Iterator[str]:
    """All elements from one on, and none before: many of either, or from a round number of bytes on."""
    flat = wrong.reshape(-1)
    first = int(flat.argmax())
    count, begins = flat.size - first, first * itemsize
    if not first or int(flat.sum()) < _NEARLY * count or min(count, first) < _RUN:
        return
    size = f", {begins} bytes," if begins >= _PAGES and not begins & (begins - 1) else ""
    yield (
        f"right up to element {first}{size} and wrong from there to the end: what is done in pieces ends before the last one, "
        "or a buffer ends there"
    )


_NEARLY = 0.9
"""Some may be right by chance, as small numbers are."""


def seams(wrong: Array) -> Iterator[str]:
    """Elements at equal distances, each alone."""
    places = np.flatnonzero(wrong)
    distances = set(np.diff(places).tolist())
    if len(places) < 3 or len(distances) > 1 or (distance := distances.pop()) < _RUN:
        return
    first = int(places[0])
    yield f"one element in {distance} is wrong, from {first} on: where pieces of {distance} elements begin, end or overlap"
