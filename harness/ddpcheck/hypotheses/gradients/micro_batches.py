"""Hypotheses about a gradient: micro-batches that are lost, or earlier backwards that are kept."""

from __future__ import annotations

from ...causes import gradients as causes
from ...seeded_values import Array
from ..arrays.evidence import WhatIf
from .contributions import Contributions


def of_backward_before(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The gradients from after the previous backward stay, or are reduced again."""
    if made.before is None:
        return
    before, size = made.before[rank], len(made.own)
    if made.backwards:
        yield causes.STALE(), before
    yield causes.NOT_RESET(), expected + before
    if made.backwards > 1 and size > 1 and not made.inside:
        yield causes.REDUCED_AGAIN(times=float(size)), expected + before * (size - 1)
        yield causes.REDUCED_AGAIN(times=1 / size), expected - before * ((size - 1) / size)
    for left in range(1, 1 if made.inside else size):
        kept = causes.SOME_RANKS_NOT_RESET(count=left, world_size=size)
        yield kept, expected + before * (left / size)


def survives_zero_grad(made: Contributions, expected: Array, rank: int) -> WhatIf:
    if made.earlier is not None and made.backwards == 1 and not made.inside:
        yield causes.ACCUMULATED_SURVIVES_ZERO_GRAD(), expected + made.earlier.mean(axis=0)


def some_micro_batches(made: Contributions, expected: Array, rank: int) -> WhatIf:
    """The first or the last of several micro-batches counts alone, or is lost; or the sum is divided by their
    number.
    """
    if made.backwards < 2:
        return
    last = made.last[rank] if made.inside else made.last.mean(axis=0)
    yield causes.LAST_MICRO_BATCH_ONLY(), last
    first = made.first[rank] if made.inside else made.first.mean(axis=0)
    yield causes.FIRST_MICRO_BATCH_MISSING(), expected - first
    yield causes.LAST_MICRO_BATCH_MISSING(), expected - last
    yield causes.DIVIDED_BY_MICRO_BATCHES(count=made.backwards), expected / made.backwards
    if not made.inside:
        yield causes.ACCUMULATED_NOT_REDUCED(), made.own[rank] - made.last[rank] + last
        yield causes.LAST_BACKWARD_NOT_REDUCED(), expected - last + made.last[rank]
