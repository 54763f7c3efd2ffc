"""Arrays of more elements than 24 bits can count, the limit of exact integers in float32: offsets, counts and tails
stay right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ddpcheck.available_memory import available_memory
from ddpcheck.checks import law
from ddpcheck.contract import needs
from ddpcheck.job import Job, MeasureCollective

from ..drawing import for_each
from ..strategies_collectives import dtypes
from .small_buffers import none_wrong, ways

if TYPE_CHECKING:
    from ddpcheck.session import Session

PAST_24_BITS = (1 << 24) + 7
"""Elements; no float32 equals this number."""
DEEP = tuple((1 << bits) + 7 for bits in (26, 28, 29, 30, 31))
COPIES = 10
"""Copies of the array in a rank's memory: argument, result, expected result, and the implementation's own."""
PATIENCE = 120.0
"""Seconds for one call on the largest arrays."""


@law("collectives", needs.collectives, needs.ranks(2, most=2))
def check_collectives_are_correct_past_24_bit_counts(session: Session) -> None:
    """Collectives are correct on arrays of more than 2^24 elements. The deep profile goes up to 2^31 elements, limited to
    half of the free memory.
    """
    smallest = min(dtypes(session.capabilities), key=lambda dtype: np.dtype(dtype).itemsize)
    each = list(_ways(session, smallest, PAST_24_BITS))
    for_each(session, [Job(session.world_size, tuple(each if session.deep else each[:1]))] if each else (), none_wrong)
    if not session.deep:
        return
    room = available_memory() // 2 // (COPIES * session.world_size * np.dtype(smallest).itemsize)
    before, session.deadline = session.deadline, max(session.deadline, PATIENCE)
    try:
        for count in (count for count in DEEP if count <= room):
            for one in _ways(session, smallest, count):
                for_each(session, [Job(session.world_size, (one,))], none_wrong)
    finally:
        session.deadline = before


def _ways(session: Session, dtype: str, count: int) -> Iterator[MeasureCollective]:
    """Each promised collective; the size is a multiple of the world size if blocks are distributed or gathered."""
    for one in ways(session.capabilities, dtype, count):
        shared = one.collective in ("all_gather", "reduce_scatter")
        yield replace(one, count=count - count % session.world_size) if shared else one
