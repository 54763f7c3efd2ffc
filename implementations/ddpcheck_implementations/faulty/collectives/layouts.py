"""Collectives that are right for some memory layouts, sizes and counts of calls: what each way does by itself goes wrong."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ddpcheck.adapter import Handle
from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .collectives import BROADCAST, LARGE

SUM = "check_all_reduce_sums_exactly"
ALONE = "check_collectives_leave_their_arguments_alone"
SCATTERED = "check_reduce_scatter_gives_each_rank_its_block"
IN_OTHER_PLACES = "in other places"
PAST_64_KIB = 65536
"""Bytes from which on an array is a large one here."""


@collectives("large-products-in-the-order-of-memory", LARGE, words=IN_OTHER_PLACES)
class ProductsReversed(PassThrough):
    """The product of a large array has a way of its own, which forgets that the first dimension may run backwards."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result = super().all_reduce(array, op, group=group)
        backwards = op == "prod" and array.nbytes > PAST_64_KIB and array.strides[0] < 0
        return result[::-1].copy() if backwards else result


@collectives("large-broadcasts-in-the-order-of-memory", BROADCAST, words=IN_OTHER_PLACES)
class BroadcastsTransposed(PassThrough):
    """A large array is broadcast as it lies in memory, and written in the order of rows."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        large = array.nbytes > PAST_64_KIB
        sent = array.ravel(order="K").reshape(array.shape) if large else array
        return super().broadcast(sent, root, group=group)


@collectives(
    "asynchronous-in-the-order-of-memory",
    "check_all_reduces_under_way_together_keep_their_results",
    words=IN_OTHER_PLACES,
)
class AsynchronousTransposed(PassThrough):
    """Only the synchronous way makes an array contiguous first."""

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Handle:
        sent = array.ravel(order="K").reshape(array.shape)
        handle: Handle = self.comm.all_reduce_async(sent, op, group=group)
        return handle


@collectives("repeated-row-reduced-once", SUM, words="that part was never reduced")
class RepeatedRowReducedOnce(PassThrough):
    """An array that a stride of zero repeats is reduced as it lies in memory, which is one row."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if not array.size or not array.ndim or array.strides[0]:
            return super().all_reduce(array, op, group=group)
        result = np.array(array)
        result[:1] = super().all_reduce(array[:1], op, group=group)
        return result


@collectives("row-width-for-row-stride", SUM, words="width is taken for their stride")
class RowWidthForRowStride(PassThrough):
    """Rows that are contiguous are taken to follow on each other: those of a wider array do not."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        rows = array.ndim == 2 and array.size > 1 and array.strides[1] == array.itemsize < array.strides[0]
        if not rows:
            return super().all_reduce(array, op, group=group)
        close = (array.shape[1] * array.itemsize, array.itemsize)
        return super().all_reduce(np.lib.stride_tricks.as_strided(array, array.shape, close), op, group=group)


@collectives("last-chunk-of-one-element", "check_collectives_of_every_size_are_right", words="never written")
class LoneTailLost(PassThrough):
    """Chunks of 4096 elements are broadcast as long as more than one element is left."""

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        result = super().broadcast(array, root, group=group)
        if result.size > 4096 and result.size % 4096 == 1 and self.rank != root:
            result.reshape(-1)[-1] = 0
        return result


@collectives(
    "pool-of-four-results",
    ALONE,
    words="overwritten by a later operation",
)
class PoolOfFour(PassThrough):
    """Results come from a pool of four buffers, each used again in the fourth call after."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.pool: list[Array] = []

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result = np.asarray(self.comm.all_gather(array, group=group))
        oldest = self.pool.pop(0) if len(self.pool) == 4 else result
        fits = oldest.shape == result.shape and oldest.dtype == result.dtype
        if fits:
            oldest[...] = result
        self.pool.append(oldest if fits else result)
        return self.pool[-1]


@collectives("layout-of-one-rank-for-all", SUM, words="lie differently in memory")
class SentAsItLies(PassThrough):
    """An array is sent as it lies in memory, and what comes back is laid out alike: right where all ranks' arrays are."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        order: Literal["C", "F"] = "C" if array.flags.c_contiguous or not array.flags.f_contiguous else "F"
        result = super().all_reduce(array.reshape(-1, order=order), op, group=group)
        return np.array(result.reshape(array.shape, order=order))


@collectives("large-means-in-place", ALONE, words="works in place on the caller's array")
class LargeMeansInPlace(PassThrough):
    """A large array is divided where it lies, before it is summed."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op == "mean" and array.size > 1000:
            array /= array.dtype.type(self.size(group))
            op = "sum"
        return super().all_reduce(array, op, group=group)


@collectives("nothing-past-4-mebibytes", LARGE, words="that part was never reduced")
class CutAtFourMebibytes(PassThrough):
    """The buffer of messages has 4 MiB, and a larger array is taken for one that fills it."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        room = (1 << 22) // array.itemsize
        if array.size <= room:
            return super().all_reduce(array, op, group=group)
        flat = array.flatten()
        flat[:room] = super().all_reduce(flat[:room], op, group=group)
        return flat.reshape(array.shape)


@collectives("reduce-scatter-in-float32", SCATTERED, words="sent with fewer bits than float64")
class ScattersInFloat32(PassThrough):
    """The buffer of reduce-scatter is one of float32, whatever the array is."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        sent = array.astype(np.float32) if array.dtype == np.float64 else array
        return np.asarray(self.comm.reduce_scatter(sent, op, group=group)).astype(array.dtype)
