"""The positions of the wrong elements of an array."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...causes import Cause, Elements, values
from ...seeded_values import Array
from .evidence import WrongArray


def elements(wrong: Array) -> Elements:
    """The elements of an array that are True: at least one."""
    flat = np.flatnonzero(wrong)
    return Elements(len(flat), wrong.size, int(flat[0]), int(flat[-1]))


_RUN = 8
"""This many adjacent elements are not equal by chance."""
_OUTLIERS = 3
"""The first wrong elements may have another cause, at the seam of two blocks."""


def shifted(of: WrongArray) -> Iterator[Cause]:
    """Elements, or the other ranks' part of them, at a wrong position: half of the wrong ones at the same distance."""
    got, expected, local, wrong = of.got, of.expected, of.evidence.local, of.wrong
    places = np.flatnonzero(wrong)
    if got.dtype.kind not in "fi" or len(places) < _RUN:
        return
    rest = None if local is None or local.shape != got.shape else expected - local
    known = (("the array", None), ("the other ranks' part", local), ("this rank's own part", rest))
    for what, base, first in ((what, base, first) for what, base in known for first in places[:_OUTLIERS].tolist()):
        if what != "the array" and (base is None or base.shape != got.shape):
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
                    yield values.SHIFTED(part=what, distance=distance).among(elements(wrong))
                    return


def remainder(of: WrongArray) -> Iterator[Cause]:
    """The last elements: as many as the remainder of a division by some number of ranks."""
    wrong, count = of.wrong, int(of.wrong.sum())
    parts = [parts for parts in range(2, of.evidence.world_size + 1) if wrong.size % parts == count]
    if parts and count < wrong.size and wrong.reshape(-1)[-count:].all():
        yield values.REMAINDER_WRONG(parts=parts[0]).among(elements(wrong))


def tail(of: WrongArray) -> Iterator[Cause]:
    """All elements from one on, and none before: many on either side, or from a round number of bytes on."""
    flat, itemsize = of.wrong.reshape(-1), of.got.itemsize
    first = int(flat.argmax())
    count = flat.size - first
    if not first or int(flat.sum()) < _NEARLY * count or min(count, first) < _RUN:
        return
    yield values.TAIL_WRONG(first=first, byte=first * itemsize)


_NEARLY = 0.9
"""Some may be right by chance, if they are small."""


def seams(of: WrongArray) -> Iterator[Cause]:
    """Isolated elements at equal distances."""
    places = np.flatnonzero(of.wrong)
    distances = set(np.diff(places).tolist())
    if len(places) < 3 or len(distances) > 1 or (distance := distances.pop()) < _RUN:
        return
    yield values.SEAMS_WRONG(distance=int(distance), first=int(places[0]))
