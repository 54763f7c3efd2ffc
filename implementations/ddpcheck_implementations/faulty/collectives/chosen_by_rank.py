"""Collectives in which each rank chooses one of two algorithms by a property that may differ between ranks."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, larger, negative_stride, read_only
from ..engine.collective_effects import instead
from ..engine.collectives import Call, all_reduce, asynchronous, broadcast, in_group, reduce_scatter
from ..engine.fault import Fault, table

LAYOUTS = "check_memory_layouts_may_differ_between_ranks"
LARGE = 10_000
"""Elements."""
ALIGNED = 16
"""Bytes."""
DIFFER = "layouts-differ-between-ranks"


@Circumstance.of
def every_other_element(call: Call) -> bool:
    return call.array.ndim > 0 and call.array.strides[-1] == 2 * call.array.itemsize


@Circumstance.of
def rows_of_a_wider_array(call: Call) -> bool:
    return call.array.ndim > 1 and call.array.strides[-2] > call.array.shape[-1] * call.array.strides[-1] > 0


@Circumstance.of
def not_aligned(call: Call) -> bool:
    return bool(call.array.ctypes.data % ALIGNED)


@instead
def gathered_and_reduced(call: Call) -> Array:
    """The other ranks send all-reduce messages."""
    folds = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}
    whole = folds.get(call.op or "", np.add).reduce(call.gathered(), axis=0, dtype=call.array.dtype)
    whole = (whole / call.size).astype(call.array.dtype) if call.op == "mean" else whole
    return np.array(np.split(whole, call.size)[call.place] if call.kind == "reduce_scatter" else whole)


@instead
def taken_from_a_gathering(call: Call) -> Array:
    return np.array(call.gathered()[call.ranks.index(call.root or 0)])


# fmt: off
table(
    globals(),
    Fault("gathers-arrays-with-gaps",
          "A rank whose array has gaps in memory calls all-gather while other ranks call all-reduce.",
          where=all_reduce & every_other_element, effect=gathered_and_reduced,
          caught_by=LAYOUTS, cause=DIFFER),
    Fault("gathers-large-arrays-of-negative-stride",
          "A rank with a large array of negative stride calls all-gather while others call all-reduce.",
          where=all_reduce & negative_stride & larger(LARGE),
          effect=gathered_and_reduced,
          caught_by=LAYOUTS, cause=DIFFER),
    Fault("gathers-what-is-not-aligned",
          "A rank whose array is not aligned calls all-gather while other ranks call all-reduce.",
          where=(all_reduce | asynchronous) & not_aligned, effect=gathered_and_reduced,
          caught_by=LAYOUTS, cause=DIFFER),
    Fault("gathers-rows-of-wider-arrays-in-groups",
          "In a group, a rank that passes rows of a wider array calls all-gather, not all-reduce.",
          where=all_reduce & in_group & rows_of_a_wider_array,
          effect=gathered_and_reduced,
          caught_by=LAYOUTS, cause=DIFFER),
    Fault("broadcasts-read-only-arrays-by-gathering",
          "A rank with a read-only argument calls all-gather while other ranks call broadcast.",
          where=broadcast & read_only, effect=taken_from_a_gathering,
          caught_by=LAYOUTS, cause=DIFFER),
    Fault("scatters-arrays-with-gaps-by-gathering",
          "A rank whose array has gaps calls all-gather while other ranks call reduce-scatter.",
          where=reduce_scatter & every_other_element,
          effect=gathered_and_reduced,
          caught_by=LAYOUTS, cause=DIFFER),
)
# fmt: on
