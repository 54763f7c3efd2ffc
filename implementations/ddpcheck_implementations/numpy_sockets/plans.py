"""What can be computed once for all reductions of arrays of one dtype and shape: where the elements of every rank will be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpcheck.values import Array

from . import wire

EXPRESS_BYTES = 256 * 1024
"""The largest array."""
_LINE = 64
HALVES_BYTES = _LINE + 2 * EXPRESS_BYTES
_KEPT = 256
_Blocks = tuple[Array, Array, tuple[Array, ...]]


class Halves:
    """Memory of one rank for operations that take turns in it, and before each half a word that says what is there."""

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:_LINE].cast("Q")
        starts = (_LINE, _LINE + EXPRESS_BYTES)
        self.blocks = [memory[start : start + EXPRESS_BYTES] for start in starts]


@dataclass(frozen=True, slots=True)
class Plan:
    """`what` is its header (wire.compact). By half: `own` is where this rank writes, `blocks` what it reads of all, in rank
    order: of the first two, and of the others. `single`: it reads one element of each.
    """

    what: int
    reduction: np.ufunc
    divisor: int
    own: tuple[Array, Array]
    blocks: tuple[_Blocks, _Blocks]
    single: bool
    payload_bytes: int


class Plans:
    """Those of this rank, which has the halves in place `place` of all `halves`, in rank order."""

    def __init__(self, halves: Sequence[Halves], place: int) -> None:
        self._halves, self._place = halves, place
        self._kept: dict[tuple[str, str, np.dtype[np.generic], tuple[int, ...]], Plan] = {}

    def of(self, operation: str, op: str, array: Array) -> Plan:
        """For an array of at most EXPRESS_BYTES. TypeError or ValueError as wire.pack."""
        key = operation, op, array.dtype, array.shape
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) == _KEPT:
                self._kept.clear()
            found = self._kept[key] = self._made(operation, op, array)
        return found

    def _made(self, operation: str, op: str, array: Array) -> Plan:
        what = wire.compact(wire.pack(operation, array, op))
        first, second = (
            [np.frombuffer(each.blocks[half], array.dtype, array.size).reshape(array.shape) for each in self._halves]
            for half in range(2)
        )
        own, size = (first[self._place], second[self._place]), len(self._halves)
        if operation == "reduce_scatter":
            first, second = ([np.split(each, size)[self._place] for each in blocks] for blocks in (first, second))
        return Plan(
            what,
            reduction=wire.REDUCTIONS[op],
            divisor=size if op == "mean" else 1,
            own=own,
            blocks=(_blocks(*first), _blocks(*second)),
            single=first[0].size == 1,
            payload_bytes=(size - 1) * first[0].nbytes,
        )


def _blocks(first: Array, second: Array, *others: Array) -> _Blocks:
    return first, second, others
