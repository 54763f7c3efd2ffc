"""Collectives with a wrong start of the accumulator, a wrong divisor, or a block that is cut."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import floats
from ..engine.collective_effects import giving, mean_divided_by
from ..engine.collectives import Call, all_reduce, in_place, op, reduce_scatter
from ..engine.fault import Fault, table
from .collectives import IN_PLACE

MAXIMUM = "check_all_reduce_gives_the_maximum"
PROPAGATED = "check_nan_propagates_in_minimum_and_maximum"
LARGE = "check_collectives_are_correct_for_large_arrays"


@giving
def at_least_the_smallest_positive(call: Call, result: Array) -> Array:
    """The accumulator starts from numeric_limits<float>::min(), which is positive."""
    return np.asarray(np.maximum(result, np.finfo(call.array.dtype).tiny), call.array.dtype)


@giving
def at_least_the_lowest_finite(call: Call, result: Array) -> Array:
    """The accumulator starts from numeric_limits<float>::lowest(), which is above minus infinity."""
    return np.asarray(np.maximum(result, np.finfo(call.array.dtype).min), call.array.dtype)


@giving
def last_short_piece_forgotten(call: Call, result: Array) -> Array:
    """A block is sent in pieces of 1 MiB."""
    block = np.array(result)
    if block.nbytes > 1 << 20:
        block.reshape(-1)[(block.nbytes >> 20 << 20) // block.itemsize :] = 0
    return block


# fmt: off
table(
    globals(),
    Fault("maximum-starts-from-the-smallest-positive",
          "The accumulator of a maximum starts from the smallest positive float.",
          where=all_reduce & op("max") & floats,
          effect=at_least_the_smallest_positive, caught_by=MAXIMUM, cause="accumulator-starts-from"),
    Fault("maximum-starts-from-the-lowest-finite",
          "The accumulator of a maximum starts from the lowest finite float, so minus infinity is lost.",
          where=all_reduce & op("max") & floats, effect=at_least_the_lowest_finite,
          caught_by=PROPAGATED, cause="accumulator-starts-from"),
    Fault("in-place-mean-over-the-world", "An in-place mean in a group is divided by the world size.",
          where=in_place & op("mean"), effect=mean_divided_by(lambda call: call.world),
          caught_by=IN_PLACE, cause="divided-by-world-size", world_size=3,
          seen_in=("huggingface/transformers#39648",), in_place=True),
    Fault("large-blocks-cut", "Reduce-scatter sends blocks in pieces of 1 MiB and omits the last, shorter piece.",
          where=reduce_scatter, effect=last_short_piece_forgotten,
          caught_by=LARGE, cause="never-written", world_size=3),
)
# fmt: on
