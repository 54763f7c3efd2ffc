"""Collectives that are wrong about whose memory it is, or for large arrays, integers and groups only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
from time import sleep
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives

ALONE = "check_collectives_leave_their_arguments_alone"
ASYNC = "check_all_reduces_under_way_together_keep_their_results"
MESSAGES = "check_messages_reach_their_receiver"
LARGE = "check_all_reduce_of_large_tensors"
SCATTER = "check_reduce_scatter_gives_each_rank_its_block"
PRODUCT = "check_all_reduce_multiplies_exactly"


class Pool(PassThrough):
    """One result array for each shape and dtype, used again and again."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.arrays: dict[tuple[tuple[int, ...], str], Array] = {}

    def pooled(self, result: Array) -> Array:
        kept = self.arrays.setdefault((result.shape, result.dtype.str), result)
        kept[...] = result
        return kept


@collectives("result-buffer-reused-gather", ALONE, words="overwritten by a later operation")
class ReusedGather(Pool):
    """The next all-gather writes into the result of the one before."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return self.pooled(self.comm.all_gather(array, group=group))


@collectives("result-buffer-reused-messages", ALONE, words="overwritten by a later operation")
class ReusedMessages(Pool):
    """The next message is received into the array of the one before."""

    def recv(self, array: Array, source: int) -> Array:
        return self.pooled(self.comm.recv(array, source))


@collectives("result-buffer-reused-large", ALONE, words="overwritten by a later operation")
class ReusedLarge(Pool):
    """Arrays past 64 KiB come from a pool."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        return self.pooled(result) if result.nbytes > 1 << 16 else result


class Later:
    """A handle whose wait() calls a function."""

    def __init__(self, wait: Callable[[], Array]) -> None:
        self.wait = wait


@collectives("async-in-place", ASYNC, words="its argument was changed")
class AsyncInPlace(PassThrough):
    """An asynchronous all-reduce leaves its result in the caller's array, too."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        handle = self.comm.all_reduce_async(array, op, group=group)

        def wait() -> Array:
            array[...] = handle.wait()
            return array.copy()

        return Later(wait)


@collectives("async-group-mean-by-world", ASYNC, words="divided by the world size", world_size=3)
class AsyncGroupMean(PassThrough):
    """The asynchronous mean over a group divides by the number of all ranks."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        handle = self.comm.all_reduce_async(array, op, group=group)
        factor = self.size(group) / self.world if op == "mean" else 1
        return Later(lambda: np.asarray(handle.wait() * factor).astype(array.dtype))


@collectives("send-keeps-a-reference", MESSAGES)
class SendsLater(PassThrough):
    """A message is kept by reference and sent a moment later, when its array may hold something else."""

    def send(self, array: Array, dest: int) -> None:
        Timer(0.01, self.comm.send, (array, dest)).start()


@collectives("send-buffer-reused", LARGE, seen_in=("hpc/libcircle#45",), words="filled again before it was sent")
class SendBufferReused(PassThrough):
    """A large array leaves in pieces through one buffer, which holds the next piece before a slow sender comes to it."""

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
        self.sender.submit(bool).result()  # all is sent: what comes next is not beside it
        return result.reshape(array.shape)

    def send_late(self, piece: Array, others: list[int]) -> None:
        sleep(0.001)
        for other in others:
            self.comm.send(piece, other)


@collectives("large-integers-through-float", LARGE, words="as float64")
class LargeIntegersThroughFloat(PassThrough):
    """The path for large arrays knows floats only."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype.kind != "i" or array.nbytes <= 1 << 16:
            return super().all_reduce(array, op, group=group)
        return super().all_reduce(array.astype(np.float64), op, group=group).astype(array.dtype)


@collectives("large-blocks-rotated", SCATTER, words="the block of rank")
class LargeBlocksRotated(PassThrough):
    """The ring, used for large arrays only, stops one step early."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        large = array.nbytes > 1 << 16
        shifted = np.roll(array, len(array) // self.size(group), axis=0) if large else array
        return np.asarray(self.comm.reduce_scatter(shifted, op, group=group))


@collectives(
    "block-by-world-rank",
    "check_groups_at_work_together_do_not_disturb_each_other",
    words="the block of rank",
    world_size=3,
)
class BlockByWorldRank(PassThrough):
    """In a group a rank takes the block of its number among all ranks."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        blocks = np.split(super().all_reduce(array, op, group=group), self.size(group))
        return blocks[self.rank % len(blocks)].copy()


@collectives("zeros-left-out-of-products", PRODUCT, words="a rank that has a zero is left out")
class ZerosLeftOut(PassThrough):
    """An element that is zero somewhere is the product over the other ranks."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        given = np.where(array == 0, array.dtype.type(1), array) if op == "prod" else array
        return super().all_reduce(given, op, group=group)


@collectives("last-full-chunk-not-sent", "check_all_reduce_sums_exactly", words="own local value")
class FullChunkForgotten(PassThrough):
    """What fills chunks of 4 KiB to the last byte loses its last chunk."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        if array.nbytes and array.nbytes % 4096 == 0:
            last = slice(-4096 // array.itemsize, None)
            result.reshape(-1)[last] = array.reshape(-1)[last]
        return result
