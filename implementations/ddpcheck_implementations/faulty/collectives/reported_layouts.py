"""Collectives from bug reports, which treat non-contiguous arrays as contiguous or compute wrong offsets."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import Group, PassThrough, collectives
from .collectives import BROADCAST


@collectives("strides-ignored-by-broadcast", BROADCAST, seen_in=("pytorch/pytorch#192920",), cause="permuted")
class StridesIgnored(PassThrough):
    """Broadcast ignores strides and sends the memory that follows the first element."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        ascending = array.size > 1 and not array.flags.c_contiguous and min(array.strides) > 0
        span = sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True)) + array.itemsize
        if not ascending or span < array.nbytes:
            return super().broadcast(array, root, group=group)
        flat = np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
        return super().broadcast(flat.copy(), root, group=group).reshape(array.shape)


@collectives(
    "contiguous-copy-reduced",
    "check_strided_arrays_are_reduced_in_place_or_refused",
    seen_in=("NVIDIA/Megatron-LM#5337",),
    cause="copy-reduced-in-place",
    in_place=True,
)
class CopyReduced(PassThrough):
    """All-reduce in place of a non-contiguous array reduces a copy, which is thrown away."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        contiguous = np.ascontiguousarray(array)
        contiguous[...] = self.all_reduce(contiguous, op, group=group)


@collectives(
    "rows-gathered-by-two",
    "check_all_gather_stacks_in_rank_order",
    cause="row-of-other-rank",
    world_size=3,
)
class RowsByTwo(PassThrough):
    """All-gather computes row offsets as for two ranks."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        rows = np.asarray(self.comm.all_gather(array, group=group))
        return rows[[row % 2 for row in range(len(rows))]]
