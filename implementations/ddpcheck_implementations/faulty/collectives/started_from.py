"""Collectives with an accumulator that starts from a wrong number, a wrong divisor, or a buffer that is too short for a block."""

from __future__ import annotations

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .collectives import IN_PLACE

MAXIMUM = "check_all_reduce_gives_the_maximum"
PROPAGATED = "check_nan_propagates_in_minimum_and_maximum"
LARGE = "check_every_collective_is_right_for_large_arrays"


@collectives("maximum-starts-from-the-smallest-positive", MAXIMUM, words="from which the accumulator starts")
class StartsFromSmallestPositive(PassThrough):
    """The accumulator starts from numeric_limits<float>::min(), which is positive."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        found = super().all_reduce(array, op, group=group)
        if op != "max" or array.dtype.kind != "f":
            return found
        return np.asarray(np.maximum(found, np.finfo(array.dtype).tiny), array.dtype)


@collectives("maximum-starts-from-the-lowest-finite", PROPAGATED, words="minus the largest finite number as well")
class StartsFromLowestFinite(PassThrough):
    """Infinities are lower than numeric_limits<float>::lowest()."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        found = super().all_reduce(array, op, group=group)
        if op != "max" or array.dtype.kind != "f":
            return found
        return np.asarray(np.maximum(found, np.finfo(array.dtype).min), array.dtype)


@collectives(
    "in-place-mean-over-the-world",
    IN_PLACE,
    seen_in=("huggingface/transformers#39648",),
    words="divided by the world size, not by the size of the group",
    in_place=True,
    world_size=3,
)
class InPlaceMeanOverWorld(PassThrough):
    """A group's mean in place is its sum, divided by the number of all ranks."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        if op != "mean":
            super().all_reduce_in_place(array, op, group=group)
            return
        array[...] = np.asarray(super().all_reduce(array, "sum", group=group) / self.world, array.dtype)


@collectives("large-blocks-cut", LARGE, words="never written", world_size=3)
class LargeBlocksCut(PassThrough):
    """A reduced block goes in pieces of a MiB, of which the last one is forgotten if it is shorter."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        block = np.array(self.comm.reduce_scatter(array, op, group=group))
        if block.nbytes > 1 << 20:
            block.reshape(-1)[(block.nbytes >> 20 << 20) // block.itemsize :] = 0
        return block
