"""Hypotheses about blocks of a reduction: another one, one of another reduction, or one that lacks ranks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product

import numpy as np

from ...causes import collectives as causes
from ...job import ReduceScatter
from ...oracle.collectives import reduced, wants
from ..arrays.evidence import WhatIf
from .evidence import LINEAR, WrongResult
from .integers import other_integers

_FEW = 512
"""Elements of a reduction for which every block is tried."""
_SMALL_RING, _MOST = 6, 1 << 22
"""For up to this many ranks, and elements, partial sums are tried: each is as large as the result."""
_UNITS = tuple(1 << power for power in range(1, 13))
"""Numbers of elements to which offsets are rounded."""


def block_of_other_reduction(of: WrongResult) -> WhatIf:
    """Integers are reduced in another dtype; arrays are sent by columns."""
    made, tensor = of.collective, of.tensor
    if not isinstance(made, ReduceScatter):
        return
    wholes = list(other_integers(of, made.reduction)) if not tensor.dtype.startswith("float") else []
    if tensor.layout == "F":
        whole = np.asarray(reduced(tensor, made.reduction, of.members).value)
        wholes.append((causes.SENT_BY_COLUMNS(), whole.T.reshape(whole.shape)))
    for cause, whole in wholes:
        yield cause, np.split(whole, len(of.members))[of.place]


def block_cut_elsewhere(of: WrongResult) -> WhatIf:
    """Elements that start at a wrong position."""
    made, tensor = of.collective, of.tensor
    if not isinstance(made, ReduceScatter):
        return
    flat = np.asarray(reduced(tensor, made.reduction, of.members).value).reshape(-1)
    size = flat.size // len(of.members)
    for begin in range(flat.size - size + 1) if size > 1 and flat.size <= _FEW else ():
        if begin % size:
            cause = causes.BLOCK_CUT_WRONG(first=begin, expected=of.place * size)
            yield cause, flat[begin : begin + size].reshape(-1, *tensor.shape[1:])


def block_aligned(of: WrongResult) -> WhatIf:
    """A block that begins at a multiple of a power of two; past the end of the reduction it has zeros."""
    made, tensor = of.collective, of.tensor
    if not isinstance(made, ReduceScatter):
        return
    flat = np.asarray(reduced(tensor, made.reduction, of.members).value).reshape(-1)
    size = flat.size // len(of.members)
    due, tried = of.place * size, set()
    for unit in _UNITS if size > 1 else ():
        for begin in (-(-due // unit) * unit, due // unit * unit):
            if begin % size == 0 or begin in tried:  # the right block, or that of another rank
                continue
            tried.add(begin)
            block = np.zeros(size, flat.dtype)
            part = flat[begin : begin + size]
            block[: part.size] = part
            cause = causes.BLOCK_ALIGNED(first=begin, expected=due, unit=begin & -begin or unit)
            yield cause, block.reshape(-1, *tensor.shape[1:])


def block_of_narrow_sum(of: WrongResult) -> WhatIf:
    """Parts are narrowed to float32: large ones become infinite, and their sums NaN."""
    made, members = of.collective, of.members
    if not isinstance(made, ReduceScatter) or of.tensor.dtype != "float64" or made.reduction not in ("sum", "mean"):
        return
    with np.errstate(all="ignore"):
        total = np.stack([part.astype(np.float32) for part in of.parts]).sum(axis=0)
        whole = (total / (len(members) if made.reduction == "mean" else 1)).astype(np.float64)
    block = np.asarray(np.split(whole, len(members))[of.place])
    if not np.isfinite(block).all():  # otherwise lost_precision explains more
        yield causes.SUM_AS_FLOAT32(), block


def block_of_other_rank(of: WrongResult) -> WhatIf:
    """The block that another rank should have."""
    if isinstance(of.collective, ReduceScatter):
        for other, want in wants(of.collective, of.members).items():
            if other != of.rank:
                yield causes.OTHER_RANKS_BLOCK(rank=other), want.value


def gathered_too_early(of: WrongResult) -> WhatIf:
    """A ring gathers blocks to which only some ranks, each beside the last, have added their parts."""
    size = len(of.members)
    if of.all_reduce not in LINEAR or not 1 < size <= _SMALL_RING or of.total.size > _MOST:
        return
    flat = [part.reshape(-1) for part in of.parts]
    divisor = size if of.all_reduce == "mean" else 1
    for edges in _edges(flat[0].size, size):
        for added, first in product(range(1, size), range(size)):  # a ring the other way adds such neighbours, too
            blocks = [
                sum(flat[(block + first + hop) % size][begin:end] for hop in range(added)) / divisor
                for block, (begin, end) in enumerate(pairwise(edges))
            ]
            cause = causes.BLOCKS_GATHERED_EARLY(added=added, world_size=size)
            yield cause, np.concatenate(blocks).reshape(of.total.shape)


def _edges(count: int, size: int) -> Iterable[tuple[int, ...]]:
    """Where the blocks of a flat array begin and end: blocks of equal size, the last ones shorter; and as even as possible."""
    width = -(-count // size)
    even, longer = divmod(count, size)
    places = range(size + 1)
    equal = tuple(min(place * width, count) for place in places)
    return dict.fromkeys((equal, tuple(place * even + min(place, longer) for place in places)))
