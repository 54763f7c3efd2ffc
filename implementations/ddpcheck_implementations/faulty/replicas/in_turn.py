"""What is filled in turn, and cut in pieces, by hand: buffers that are not cleared, blocks cut elsewhere, pieces left out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..base import fault
from ..bucketed import Bucket, BucketReplica
from ..collectives.in_groups import MOVED, REDUCED, Parted
from ..engine.circumstances import always
from ..engine.fault import Fault, table
from ..engine.gradients import Gradient, giving
from ..facets import Group, PassThrough, collectives

UNUSED = "check_unused_parameters_on_some_ranks_count_as_zero"
TO_THE_LAST_BITS = "check_gradients_are_the_mean_of_local_gradients"
EXACT_SUMS = "check_all_reduce_sums_exactly"
_PIECE = 1 << 16
"""Bytes."""


class InTurn(BucketReplica):
    """While one buffer is on its way the next backward fills another, in which what it does not use stays as it was."""

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


@fault("two-buffers-in-turn-not-cleared", UNUSED, cause="unused-rank-sends-old")
class TwoInTurn(InTurn):
    """A double buffer."""


@fault("four-buffers-in-turn-not-cleared", UNUSED, cause="unused-rank-sends-old")
class FourInTurn(InTurn):
    """As many as a pipeline is deep."""

    depth = 4


@giving
def last_piece_not_written(gradient: Gradient, mean: Array) -> Array:
    """It holds what an allocator has filled in."""
    size = _PIECE // mean.itemsize
    if whole := mean.size - mean.size % size:
        mean.reshape(-1)[whole:] = np.frombuffer(b"\x3f" * mean.itemsize, mean.dtype)
    return mean


@collectives("halves-cut-at-different-places", EXACT_SUMS, cause="shifted")
class CutElsewhere(PassThrough):
    """The middle of an odd number of elements is rounded down by the lower half of the ranks, and up by the upper."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if op != "sum" or group is not None or array.size < 1024 or not array.size % 2:
            return result
        middle, mine = array.size // 2, np.array(array).reshape(-1)
        others = result.reshape(-1) - mine
        others[middle + 1 :] = others[middle:-1].copy()
        return np.asarray((mine + others).reshape(array.shape), array.dtype)


@collectives("root-as-a-place-in-the-group", MOVED, cause="root-is-a-rank", world_size=3)
class RootAsAPlace(PassThrough):
    """The root's number is where it stands among the members; one that is too large is the last."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        place = root if group is None else group[min(root, len(group) - 1)]
        return super().broadcast(array, place, group=group)


@collectives("block-of-the-number-in-the-world", MOVED, cause="block-cut-at-rank", world_size=3)
class BlockOfTheWorld(PassThrough):
    """Each member of a group cuts its block out of the whole reduction where its number in the world is."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        rows = len(array) // self.size(group)
        return self.all_reduce(array, op, group=group)[rows * self.rank : rows * (self.rank + 1)]


@collectives("read-before-it-is-written", EXACT_SUMS, cause="other-message-received")
class ReadTooEarly(PassThrough):
    """A file of more than a page is seen before all of it is there."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return np.frombuffer(result.tobytes()[: 4096 if self.rank else None], array.dtype, array.size).reshape(
            array.shape
        )


@collectives("groups-of-one-size-mixed", REDUCED, cause="part-of-other-group", world_size=3)
class MixedGroups(Parted):
    """What is under way is known by how many take part: what the first member last put in elsewhere is taken once more."""

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


@collectives(
    "last-of-a-tree-left-out",
    "check_collectives_do_not_change_their_arguments",
    cause="broadcast-not-forwarded",
    world_size=3,
)
class LastLeftOut(PassThrough):
    """Of three ranks the last one has nobody that sends to it."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        if self.size(group) == 3 and root == 0:
            if self.rank == 2:
                threading.Event().wait()  # for what nobody sends
            return super().broadcast(array, root, group=(0, 1))
        return super().broadcast(array, root, group=group)


# fmt: off
table(
    globals(),
    Fault("last-piece-left-out", where=always, effect=last_piece_not_written,
          caught_by=TO_THE_LAST_BITS, cause="tail-wrong"),
)
# fmt: on
