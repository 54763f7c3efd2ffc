"""Replicas and collectives that reuse buffers without clearing, or cut arrays at wrong places."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..bucketed import Bucket, BucketReplica
from ..collectives.group_only import MOVED, REDUCED, Parted
from ..engine.circumstances import always, larger, odd_size
from ..engine.collective_effects import giving as returning
from ..engine.collective_effects import instead as computed
from ..engine.collective_effects import sending
from ..engine.collectives import Call, all_reduce, broadcast, group_of, in_group, in_place, op, reduce_scatter, root
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, giving
from ..engine.replicas import Made
from ..facet_seams import Group, collectives

UNUSED = "check_unused_parameters_on_some_ranks_count_as_zero"
TO_THE_LAST_BITS = "check_gradients_are_the_mean_of_local_gradients"
EXACT_SUMS = "check_all_reduce_sums_exactly"
_PIECE = 1 << 16
"""Bytes."""


class InTurn(BucketReplica):
    """Backwards use several buffers in turn. Parts of unused parameters keep their old values."""

    depth = 2

    def start(self, model: Any) -> None:
        super().start(model)
        self.turn = 0
        self.filled: dict[tuple[Bucket, int], Array] = {}

    def pack(self, bucket: Bucket) -> Array:
        fresh = super().pack(bucket)
        kept = self.filled.setdefault((bucket, self.turn % self.depth), fresh)
        end = 0
        for name in bucket:
            begin, end = end, end + self.network.parameters[name].size
            if name in self.local:
                kept[begin:end] = fresh[begin:end]
        return kept

    def synchronise(self, batch_size: int) -> None:
        super().synchronise(batch_size)
        self.turn += 1


@giving
def last_piece_not_written(gradient: Gradient, mean: Array) -> Array:
    """The last piece holds the allocator's fill value."""
    size = _PIECE // mean.itemsize
    if whole := mean.size - mean.size % size:
        mean.reshape(-1)[whole:] = np.frombuffer(b"\x3f" * mean.itemsize, mean.dtype)
    return mean


@returning
def halves_cut_at_different_places(call: Call, result: Array) -> Array:
    """The lower half of the ranks rounds the middle down, the upper half rounds up."""
    middle, mine = call.array.size // 2, np.array(call.array).reshape(-1)
    others = result.reshape(-1) - mine
    others[middle + 1 :] = others[middle:-1].copy()
    return np.asarray((mine + others).reshape(call.array.shape), call.array.dtype)


@sending
def root_as_a_place_in_the_group(call: Call) -> Call:
    """Use the root's rank as an index into the group, limited to the last index."""
    return call.changed(root=call.ranks[min(call.root or 0, call.size - 1)])


@computed
def block_of_its_number_in_the_world(call: Call) -> Array:
    """Reduce the whole array, and cut out the block of the rank in the world."""
    rows = len(call.array) // call.size
    return call.changed(kind="all_reduce").run()[rows * call.rank : rows * (call.rank + 1)]


@returning
def read_before_it_is_written(call: Call, result: Array) -> Array:
    """A file is read after only its first page is written."""
    page = result.tobytes()[: 4096 if call.rank else None]
    return np.frombuffer(page, call.array.dtype, call.array.size).reshape(call.array.shape)


@collectives("groups-of-one-size-mixed", REDUCED, cause="part-of-other-group", world_size=3)
class MixedGroups(Parted):
    """Pending calls are stored by group size, so groups of one size mix up their arguments."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.last: dict[tuple[Any, ...], tuple[Group, Array]] = {}

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if not self.part(group):
            return super().all_reduce(array, op, group=group)
        assert group is not None
        key = len(group), array.shape, array.dtype
        before, self.last[key] = self.last.get(key), (tuple(group), np.array(array))
        stale = before is not None and before[0] != tuple(group) and self.rank == group[0]
        return super().all_reduce(before[1] if before and stale else array, op, group=group)


@computed
def last_of_three_left_out(call: Call) -> Array:
    """No rank sends to rank 2."""
    if call.rank == 2:
        threading.Event().wait()
    return call.changed(group=(0, 1)).run()


# fmt: off
table(
    globals(),
    Fault("last-piece-left-out", "The last piece of a large gradient is never written.",
          where=always, effect=last_piece_not_written,
          caught_by=TO_THE_LAST_BITS, cause="tail-wrong"),
    Fault("two-buffers-in-turn-not-cleared",
          "Two send buffers are used in turn and not cleared, so an unused parameter sends an old gradient.",
          where=always, effect=Made(InTurn),
          caught_by=UNUSED, cause="unused-rank-sends-old"),
    Fault("four-buffers-in-turn-not-cleared",
          "Four send buffers are used in turn and not cleared, so an unused parameter sends an old gradient.",
          where=always, effect=Made(InTurn, depth=4),
          caught_by=UNUSED, cause="unused-rank-sends-old"),
    Fault("halves-cut-at-different-places",
          "In odd sizes, half of the ranks round the middle down and the others up, so elements shift.",
          where=(all_reduce | in_place) & op("sum") & ~in_group & larger(1023) & odd_size,
          effect=halves_cut_at_different_places,
          caught_by=EXACT_SUMS, cause="shifted"),
    Fault("root-as-a-place-in-the-group", "Broadcast in a group takes the root's rank for its position in the group.",
          where=broadcast & in_group, effect=root_as_a_place_in_the_group,
          caught_by=MOVED, cause="root-is-a-rank", world_size=3),
    Fault("block-of-the-number-in-the-world", "Reduce-scatter in a group picks the block by the rank in the world.",
          where=reduce_scatter, effect=block_of_its_number_in_the_world,
          caught_by=MOVED, cause="block-cut-at-rank", world_size=3),
    Fault("read-before-it-is-written", "Messages in files are read before all of the content is written.",
          where=all_reduce | in_place, effect=read_before_it_is_written,
          caught_by=EXACT_SUMS, cause="other-message-received"),
    Fault("last-of-a-tree-left-out", "In a group of three, broadcast from rank 0 never reaches the last rank.",
          where=broadcast & group_of(3) & root(0), effect=last_of_three_left_out,
          caught_by="check_collectives_do_not_change_their_arguments", cause="broadcast-not-forwarded", world_size=3),
)
# fmt: on
