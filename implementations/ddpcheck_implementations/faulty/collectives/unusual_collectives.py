"""Collectives that are correct but unusual."""

from __future__ import annotations

from typing import Any

import numpy as np

from ddpcheck.seeded_values import Array

from ..facet_seams import Group, PassThrough, collectives
from .memory import Later

WITH_FLOAT16 = frozenset({"float16", "float32", "float64", "int32", "int64"})


@collectives("gather-and-reduce")
class GatherAndReduce(PassThrough):
    """Correct: every rank gathers all arrays and reduces them itself, from the last rank to the first."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result, *others = self.comm.all_gather(array, group=group)[::-1]
        for other in others:
            result = _pair(result, other, op)
        return _finished(result, op, self.size(group), array)


@collectives("receives-in-place")
class ReceivesInPlace(PassThrough):
    """Correct: recv() fills the given array, as MPI does, and returns it."""

    def recv(self, array: Array, source: int) -> Array:
        array[...] = self.comm.recv(array, source)
        return array


@collectives("tree", world_size=3)
class Tree(PassThrough):
    """Correct: all-reduce adds pairs in a tree, in an order that is the same on every rank."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        rows = list(self.comm.all_gather(array, group=group))
        while len(rows) > 1:
            pairs = [_pair(a, b, op) for a, b in zip(rows[::2], rows[1::2], strict=False)]
            rows = pairs + rows[len(rows) // 2 * 2 :]
        return _finished(rows[0], op, self.size(group), array)


@collectives("butterfly", world_size=3)
class Butterfly(PassThrough):
    """Correct: partners at distances 1, 2, 4 exchange sums; ranks past a power of two send their arrays first."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        ranks = list(group) if group is not None else list(range(self.world))
        here, whole = ranks.index(self.rank), 1 << (len(ranks).bit_length() - 1)
        if here >= whole:
            self.comm.send(array, ranks[here - whole])
            return np.asarray(self.comm.recv(array, ranks[here - whole]))
        guest = ranks[here + whole] if here + whole < len(ranks) else None
        mine = np.array(array)
        if guest is not None:
            mine = _pair(mine, self.comm.recv(mine, guest), op)
        for distance in (1 << step for step in range(whole.bit_length() - 1)):
            other = self.swapped(mine, ranks[here ^ distance])
            mine = _pair(mine, other, op) if here < here ^ distance else _pair(other, mine, op)
        result = _finished(mine, op, len(ranks), array)
        if guest is not None:
            self.comm.send(result, guest)
        return result

    def swapped(self, array: Array, partner: int) -> Array:
        if self.rank < partner:
            self.comm.send(array, partner)
            return np.asarray(self.comm.recv(array, partner))
        other = np.asarray(self.comm.recv(array, partner))
        self.comm.send(array, partner)
        return other


@collectives("wide-accumulator", world_size=3, rounds_float16_once=True, dtypes=WITH_FLOAT16)
class WideAccumulator(PassThrough):
    """Correct: floating-point sums and products are computed in float64 and rounded once."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype.kind != "f":
            return super().all_reduce(array, op, group=group)
        return super().all_reduce(array.astype(np.float64), op, group=group).astype(array.dtype)

    def all_reduce_async(self, array: Array, op: str = "sum", *, group: Group = None) -> Any:
        if array.dtype.kind != "f":
            return self.comm.all_reduce_async(array, op, group=group)
        handle = self.comm.all_reduce_async(array.astype(np.float64), op, group=group)
        return Later(lambda: np.asarray(handle.wait()).astype(array.dtype))

    def reduce_scatter(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if array.dtype.kind != "f":
            return np.asarray(self.comm.reduce_scatter(array, op, group=group))
        return np.asarray(self.comm.reduce_scatter(array.astype(np.float64), op, group=group)).astype(array.dtype)


@collectives("divides-first", world_size=3)
class DividesFirst(PassThrough):
    """Correct: every rank multiplies by the rounded inverse of the number of ranks before the sum."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        if op != "mean":
            return super().all_reduce(array, op, group=group)
        inverse = array.dtype.type(1 / self.size(group))
        return super().all_reduce(np.asarray(array * inverse), group=group)


@collectives("results-in-another-memory-layout", world_size=3)
class LiesOtherwise(PassThrough):
    """Correct: results are column-major, reversed and read-only in memory."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        return _turned(super().all_reduce(array, op, group=group))

    def broadcast(self, array: Array, root: int = 0, *, group: Group = None) -> Array:
        return _turned(super().broadcast(array, root, group=group))

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        return _turned(self.comm.all_gather(array, group=group))

    def recv(self, array: Array, source: int) -> Array:
        return _turned(self.comm.recv(array, source))


@collectives("results-are-array-subclasses")
class ArraysOfAKind(PassThrough):
    """Correct: results are subclasses of NumPy's array, or scalars in place of arrays without dimensions."""

    def all_reduce(self, array: Array, op: str = "sum", *, group: Group = None) -> Array:
        result: Array = super().all_reduce(array, op, group=group).view(_Derived)[()]
        return result

    def all_gather(self, array: Array, *, group: Group = None) -> Array:
        result: Array = np.ma.masked_array(self.comm.all_gather(array, group=group))
        return result


class _Derived(np.ndarray[Any, np.dtype[Any]]):
    """A subclass of arrays, as in packages for units or named axes."""


def _turned(array: Array) -> Array:
    if not array.ndim:
        return array
    turned = np.asfortranarray(array[::-1])[::-1]
    turned.flags.writeable = False
    return turned


def _pair(a: Array, b: Array, op: str) -> Array:
    functions = {"min": np.minimum, "max": np.maximum, "prod": np.multiply}
    return np.asarray(functions.get(op, np.add)(a, b))


def _finished(result: Array, op: str, size: int, like: Array) -> Array:
    return np.array(result / size if op == "mean" else result, like.dtype)
