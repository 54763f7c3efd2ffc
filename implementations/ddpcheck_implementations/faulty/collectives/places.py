"""Collectives that put something in a wrong place: blocks, messages, results in place, buffers that two calls share."""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

import numpy as np

from ddpcheck.values import Array

from ..facets import Group, PassThrough, collectives
from .in_groups import Parted
from .memory import ASYNC, MESSAGES, SCATTER, Later

IN_PLACE = "check_all_reduce_in_place_is_exact"
LATE = "check_a_late_rank_changes_no_result"
MINIMUM = "check_all_reduce_gives_the_minimum"
FINITE = "check_nan_and_infinity_propagate_in_sums"


class _Given(np.ndarray[Any, np.dtype[Any]]):
    """An array whose end can be heard of."""


@collectives("memory-given-out-while-in-use", IN_PLACE, words="gave its memory out again", in_place=True)
class GivenOutAgain(PassThrough):
    """Memory is free again when the array that empty() gave is gone, though a part of it is still in use."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.free: list[Array] = []

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        fitting = [number for number, block in enumerate(self.free) if block.nbytes >= size]
        block = self.free.pop(fitting[0]) if fitting else np.empty(max(size, 8), np.uint8)
        given = _Given(shape, np.dtype(dtype), block.data)
        weakref.finalize(given, self.free.append, block).atexit = False
        return given


@collectives("in-place-at-the-start", IN_PLACE, words="where that one begins", in_place=True)
class AtTheStart(PassThrough):
    """The result goes where the memory begins that an array is a part of."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        whole = array if array.base is None else np.asarray(array.base).reshape(-1)
        whole.reshape(-1)[: array.size] = self.all_reduce(array, op, group=group).reshape(-1)


@collectives("block-by-the-last-dimension", SCATTER, words="the block is cut in a wrong place")
class ByLastDimension(PassThrough):
    """Where a block begins is worked out from the last dimension, which is all of a row only where there are two."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        size = self.size(group)
        place = self.rank if group is None else list(group).index(self.rank)
        rows = len(array) // size
        begin, count = place * rows * (array.shape[-1] if array.ndim > 1 else 1), array.size // size
        whole = super().all_reduce(array, op, group=group).reshape(-1)
        return np.resize(whole[begin:], count).reshape(rows, *array.shape[1:]).copy()


@collectives("received-into-a-copy", MESSAGES, words="it is what recv() was given")
class IntoACopy(PassThrough):
    """A message is received into array.reshape(-1), which is a copy where the array is not contiguous."""

    def recv(self, array: Array, source: int) -> Array:
        array.reshape(-1)[...] = np.asarray(self.comm.recv(array, source)).reshape(-1)
        return array


@collectives("messages-as-they-lie-in-memory", MESSAGES, words="column by column")
class AsItLies(PassThrough):
    """A message goes in the order of memory."""

    def send(self, array: Array, dest: int) -> None:
        self.comm.send(array.ravel(order="K").reshape(array.shape), dest)


@collectives("staging-by-bytes", ASYNC, words="whose bits are read as")
class StagedByBytes(PassThrough):
    """Results of as many bytes, under way together, share a buffer, of whatever dtype they are."""

    def __init__(self, comm: Any, rank: int, world: int) -> None:
        super().__init__(comm, rank, world)
        self.latest: dict[int, Any] = {}

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Later:
        own = self.comm.all_reduce_async(array, op, group=group), array.dtype
        self.latest[array.nbytes] = own

        def wait() -> Array:
            handle, dtype = self.latest[array.nbytes]
            chosen = own[0] if dtype == array.dtype else handle
            return np.frombuffer(np.asarray(chosen.wait()).tobytes(), array.dtype).reshape(array.shape).copy()

        return Later(wait)


@collectives("scattered-mean-of-a-power-of-two", FINITE, words="divided by 2, not by the 3 ranks", world_size=3)
class MeanOfPower(PassThrough):
    """Halving takes a power of two of ranks, by which the mean is divided; the others were added to them before."""

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean":
            return np.asarray(self.comm.reduce_scatter(array, op, group=group))
        total = np.asarray(self.comm.reduce_scatter(array, "sum", group=group))
        return np.asarray(total / (1 << self.size(group).bit_length() - 1), array.dtype)


@collectives("folded-by-adding", MINIMUM, words="and 2 were added", world_size=3)
class FoldedByAdding(PassThrough):
    """The ranks past a power of two give their values to others first, which add them whatever the reduction is."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        size = self.size(group)
        half = 1 << size.bit_length() - 1
        if op not in ("min", "max") or half == size:
            return super().all_reduce(array, op, group=group)
        rows = self.comm.all_gather(array, group=group)
        rows[: size - half] += rows[half:]
        return np.asarray(rows[:half].min(axis=0) if op == "min" else rows[:half].max(axis=0))


@collectives("impatient-in-groups", LATE, words="was 1.2 s late, and not waited for", world_size=4)
class Impatient(Parted):
    """In a group, who is a third of a second late counts as zeros."""

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        if not self.part(group):
            return np.asarray(self.comm.all_gather(array, group=group))
        began = time.monotonic()
        entered = self.comm.all_gather(np.array([began]), group=group)[:, 0]
        gathered = np.asarray(self.comm.all_gather(array, group=group))
        gathered[entered > began + 1 / 3] = 0
        return gathered


@collectives("one-number-in-place-is-summed", IN_PLACE, words="it is the sum", in_place=True)
class OneNumberIsSummed(PassThrough):
    """A single number has a way of its own, which is that of a counter."""

    def all_reduce_in_place(self, array: Array, op: str = "sum", *, group: Group = None) -> None:
        super().all_reduce_in_place(array, "sum" if op == "prod" and array.size == 1 else op, group=group)
