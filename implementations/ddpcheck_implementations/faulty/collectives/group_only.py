"""Collectives that are wrong in groups only, for some dtypes, sizes and members."""

from __future__ import annotations

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import Circumstance, dtype, floats, larger, more_dimensions
from ..engine.collective_effects import (
    giving,
    own_value,
    raises,
    result_through,
    sending,
    sent_as,
    tail_kept_local,
    through,
)
from ..engine.collectives import Call, all_gather, all_reduce, asynchronous, broadcast, group_of, in_group, in_part, op
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough

REDUCED = "check_groups_reduce_over_their_members_only"
MOVED = "check_group_collectives_are_correct_for_any_array"
UNDER_WAY = "check_pending_all_reduces_keep_their_own_results"
FINITE = "check_nan_and_infinity_propagate_in_sums"


class Parted(PassThrough):
    """Collectives with a test for groups of some ranks, but not all."""

    def part(self, group: Group) -> bool:
        return 1 < self.size(group) < self.world


finite = Circumstance("finite numbers", lambda call: np.isfinite(call.array).all())
two_past_a_multiple_of_3 = Circumstance("3 n + 2 elements", lambda call: call.array.size % 3 == 2)
past_a_row = Circumstance("a rank past those in a row", lambda call: call.rank >= call.group[0] + len(call.group))
as_signed = sent_as(
    lambda call: (call.array.astype(np.int8) if in_part(call) else call.array).astype(np.int32),
    lambda call, result: result.astype(np.uint8),
)


@giving
def overflow_cut_off(call: Call, result: Array) -> Array:
    """A dynamic loss scale misses the overflow."""
    largest = np.finfo(call.array.dtype).max
    return np.clip(result, -largest, largest)


@giving
def overflow_is_nan(call: Call, result: Array) -> Array:
    result[np.isinf(result)] = np.nan
    return result


@sending
def root_is_a_place(call: Call) -> Call:
    """The group's communicator uses the root's rank as an index into the group."""
    assert call.group is not None
    assert call.root is not None
    if call.root >= call.size:
        raise ValueError(f"invalid root {call.root}: this communicator has {call.size} ranks")
    return call.changed(root=call.group[call.root])


# fmt: off
table(
    globals(),
    Fault("int32-of-groups-through-float", "All-reduce in a group computes int32 arrays in float32.",
          where=all_reduce & in_part & dtype("int32"), effect=through("float32"),
          caught_by=REDUCED, cause="integers-computed-as-float", world_size=3),
    Fault("uint8-of-groups-as-signed", "All-reduce compares uint8 values as signed bytes.",
          where=all_reduce & dtype("uint8"), effect=as_signed,
          caught_by=REDUCED, cause="unsigned-as-signed", world_size=3,
          operations=frozenset({"all_reduce"}), dtypes=frozenset({"float32", "uint8"})),
    Fault("last-element-local-in-groups-of-three", "In groups of three, the last element of some arrays stays local.",
          where=all_reduce & group_of(3) & larger(1000) & two_past_a_multiple_of_3, effect=tail_kept_local(1),
          caught_by=REDUCED, cause="part-not-reduced", world_size=4),
    Fault("large-arrays-local-past-a-gap-of-ranks",
          "In a group with gaps between its ranks, some ranks keep large arrays local.",
          where=all_reduce & larger(9999) & in_group & past_a_row, effect=own_value,
          caught_by=MOVED, cause="not-reduced", world_size=3),
    Fault("int64-broadcast-in-groups-through-float", "Broadcast in a group converts int64 arrays to float64 and back.",
          where=broadcast & in_part & dtype("int64"), effect=result_through("float64"),
          caught_by=MOVED, cause="sent-as", world_size=3),
    Fault("int64-gathered-in-groups-in-32-bits", "All-gather in a group sends int64 arrays as int32.",
          where=all_gather & in_part & dtype("int64"), effect=through("int32"),
          caught_by=MOVED, cause="integers-truncated", world_size=3),
    Fault("large-asynchronous-float64-in-float32",
          "Asynchronous all-reduce computes float64 arrays of more than 2,000 elements in float32.",
          where=asynchronous & dtype("float64") & larger(2000),
          effect=through("float32"),
          caught_by=UNDER_WAY, cause="fewer-bits"),
    Fault("eight-dimensions-at-most", "All-reduce raises ValueError for arrays of more than eight dimensions.",
          where=all_reduce & more_dimensions(8), effect=raises(ValueError, "at most 8 dimensions"),
          caught_by="check_all_reduce_sums_exactly", cause="rank-raised"),
    Fault("overflow-is-cut-off", "A sum that overflows becomes the largest finite number instead of infinity.",
          where=all_reduce & op("sum") & floats & finite, effect=overflow_cut_off,
          caught_by=FINITE, cause="clamped"),
    Fault("overflow-is-nan", "A sum that overflows becomes NaN instead of infinity.",
          where=all_reduce & op("sum") & floats, effect=overflow_is_nan,
          caught_by=FINITE, cause="infinity-becomes-nan"),
    Fault("root-counted-in-the-world", "Broadcast in a group takes the root's rank for its position in the group.",
          where=broadcast & in_part, effect=root_is_a_place,
          caught_by=MOVED, cause="root-not-found-in-group", world_size=3),
)
# fmt: on
