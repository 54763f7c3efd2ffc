"""Collectives that reuse memory still in use, or that are wrong for large arrays, integers or groups only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from time import sleep
from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..engine.circumstances import larger_bytes, multiple_of_bytes, signed_integers
from ..engine.collective_effects import (
    block_of_the_neighbour,
    divided_by_world_size,
    giving,
    instead,
    sent_as,
    tail_kept_local,
    through,
)
from ..engine.collectives import Call, all_reduce, asynchronous, op, reduce_scatter, sent
from ..engine.fault import Fault, table
from ..facet_seams import Group, PassThrough, collectives

ALONE = "check_collectives_do_not_change_their_arguments"
ASYNC = "check_pending_all_reduces_keep_their_own_results"
MESSAGES = "check_send_recv_delivers_messages_unchanged"
LARGE = "check_all_reduce_of_large_tensors_is_exact"
SCATTER = "check_reduce_scatter_gives_each_rank_its_block"
PRODUCT = "check_all_reduce_multiplies_exactly"


class Pool(PassThrough):
    """Reuses one result array for each shape and dtype."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.arrays: dict[tuple[tuple[int, ...], str], Array] = {}

    def pooled(self, result: Array) -> Array:
        kept = self.arrays.setdefault((result.shape, result.dtype.str), result)
        kept[...] = result
        return kept


@collectives("result-buffer-reused-gather", ALONE, cause="result-buffer-reused")
class ReusedGather(Pool):
    """Each all-gather overwrites the result of the previous one."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return self.pooled(self.comm.all_gather(array, group=group))


@collectives("result-buffer-reused-messages", ALONE, cause="result-buffer-reused")
class ReusedMessages(Pool):
    """Each received message overwrites the array of the previous one."""

    def recv(self, array: Array, source: int) -> Array:
        return self.pooled(self.comm.recv(array, source))


@collectives("result-buffer-reused-large", ALONE, cause="result-buffer-reused")
class ReusedLarge(Pool):
    """Results of more than 64 KiB come from a pool whose arrays are reused while still in use."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return self.pooled(result) if result.nbytes > 1 << 16 else result


class Later:
    """A handle whose wait() calls a function."""

    def __init__(self, wait: Callable[[], Array]) -> None:
        self.wait = wait


@giving
def left_in_the_argument(call: Call, result: Array) -> Array:
    call.array[...] = result
    return result.copy()


@instead
def sent_a_moment_later(call: Call) -> None:
    """Keeps a reference: the array's values may have changed by then."""
    Timer(0.01, call.run).start()


@instead
def block_of_its_world_rank(call: Call) -> Array:
    blocks = np.split(call.changed(kind="all_reduce").run(), call.size)
    return blocks[call.rank % len(blocks)].copy()


@collectives("send-buffer-reused", LARGE, seen_in=("hpc/libcircle#45",), cause="shifted")
class SendBufferReused(PassThrough):
    """A large array is sent in pieces through one buffer, which the next piece overwrites too early."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.sender = ThreadPoolExecutor(1)

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        others = [rank for rank in group or range(self.world) if rank != self.rank]
        if op != "sum" or array.nbytes <= 1 << 16:
            return super().all_reduce(array, op, group=group)
        result = array.flatten()
        pieces = np.array_split(result, 4)
        buffer = np.empty_like(pieces[0])
        for piece in pieces:
            buffer[: len(piece)] = piece
            self.sender.submit(self.send_late, buffer[: len(piece)], others)
        for piece in pieces:
            for other in others:
                piece += self.comm.recv(piece, other)
        self.sender.submit(bool).result()  # wait until all is sent, so that later messages follow it
        return result.reshape(array.shape)

    def send_late(self, piece: Array, others: list[int]) -> None:
        sleep(0.001)
        for other in others:
            self.comm.send(piece, other)


# fmt: off
table(
    globals(),
    Fault("async-in-place", "Asynchronous all-reduce writes its result into the argument.",
          where=asynchronous, effect=left_in_the_argument, caught_by=ASYNC, cause="works-in-argument"),
    Fault("async-group-mean-by-world", "An asynchronous mean in a group is divided by the world size.",
          where=asynchronous & op("mean"), effect=divided_by_world_size,
          caught_by=ASYNC, cause="divided-by-world-size", world_size=3),
    Fault("send-keeps-a-reference",
          "send() returns before it has read the array, which the caller may change meanwhile.",
          where=sent, effect=sent_a_moment_later, caught_by=MESSAGES),
    Fault("large-integers-through-float", "All-reduce computes signed integers of more than 64 KiB in float64.",
          where=all_reduce & signed_integers & larger_bytes(1 << 16), effect=through("float64"),
          caught_by=LARGE, cause="integers-as-float"),
    Fault("large-blocks-rotated", "Reduce-scatter of more than 64 KiB returns the block of the neighbouring rank.",
          where=reduce_scatter & larger_bytes(1 << 16), effect=block_of_the_neighbour,
          caught_by=SCATTER, cause="other-ranks-block"),
    Fault("block-by-world-rank",
          "Reduce-scatter in a group picks the block by the rank in the world, not in the group.",
          where=reduce_scatter, effect=block_of_its_world_rank,
          caught_by="check_concurrent_groups_are_independent", cause="other-ranks-block", world_size=3),
    Fault("zeros-left-out-of-products", "Products replace 0 by 1.",
          where=all_reduce & op("prod"),
          effect=sent_as(lambda call: np.where(call.array == 0, call.array.dtype.type(1), call.array)),
          caught_by=PRODUCT, cause="zero-left-out-of-product"),
    Fault("last-full-chunk-not-sent", "If the size is a multiple of 4,096 bytes, the last chunk stays local.",
          where=all_reduce & multiple_of_bytes(4096),
          effect=tail_kept_local(lambda call: 4096 // call.array.itemsize),
          caught_by="check_all_reduce_sums_exactly", cause="not-reduced"),
)
# fmt: on
