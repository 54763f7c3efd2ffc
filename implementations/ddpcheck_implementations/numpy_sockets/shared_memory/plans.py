"""Plans of express reductions, made once for each operation, dtype and shape: views of all ranks' buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections import wire_format

EXPRESS_BYTES = 256 * 1024
"""Bytes of the largest array."""
_LINE, _WORDS = 64, 16
_INLINE_BYTES = 24
"""Arrays of up to so many bytes share the cache line of the words, so that a reader fetches one line only."""
BUFFER_BYTES = _LINE + 2 * EXPRESS_BYTES
_MAX_PLANS = 256
Key = tuple[str, str, np.dtype[np.generic], tuple[int, ...]]
"""Operation, reduction, and the dtype and shape of the array."""
_Blocks = tuple[Array, Array, tuple[Array, ...]]


class DoubleBuffer:
    """Memory of one rank in two halves, which operations use by turns; a word for each half names the operation in it."""

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:_WORDS].cast("Q")
        self._inline = [memory[start : start + _INLINE_BYTES] for start in (_WORDS, _WORDS + _INLINE_BYTES)]
        self._blocks = [memory[start : start + EXPRESS_BYTES] for start in (_LINE, _LINE + EXPRESS_BYTES)]

    def block(self, half: int, nbytes: int) -> memoryview:
        """Return the memory for an array of `nbytes`, which may be longer."""
        return (self._inline if nbytes <= _INLINE_BYTES else self._blocks)[half]


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """One reduction, with views of the buffers for each half.

    `operation` is its header (wire_format.pack_word). This rank writes to `own`, and reads `blocks`, in rank order: the first
    two, and the others. `single` if each of those has one element.
    """

    operation: int
    reduction: np.ufunc
    divisor: int
    own: tuple[Array, Array]
    blocks: tuple[_Blocks, _Blocks]
    single: bool
    payload_bytes: int


class ReductionPlans(dict[Key, ReductionPlan]):
    """The plans of the rank in place `place` of all `buffers`, which are in rank order. Missing plans are made.

    Arrays have at most EXPRESS_BYTES. TypeError and ValueError as wire_format.pack.
    """

    def __init__(self, buffers: Sequence[DoubleBuffer], place: int) -> None:
        super().__init__()
        self._buffers, self._place = buffers, place

    def __missing__(self, key: Key) -> ReductionPlan:
        if len(self) == _MAX_PLANS:
            self.clear()
        made = self[key] = self._make(*key)
        return made

    def _make(self, operation: str, op: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> ReductionPlan:
        count = prod(shape)
        word = wire_format.pack_word(wire_format.pack(operation, np.empty(count, dtype), op))
        first, second = (
            [
                np.frombuffer(each.block(half, count * dtype.itemsize), dtype, count).reshape(shape)
                for each in self._buffers
            ]
            for half in range(2)
        )
        own, size = (first[self._place], second[self._place]), len(self._buffers)
        if operation == "reduce_scatter":
            first, second = ([np.split(each, size)[self._place] for each in blocks] for blocks in (first, second))
        return ReductionPlan(
            word,
            reduction=wire_format.REDUCTIONS[op],
            divisor=size if op == "mean" else 1,
            own=own,
            blocks=(_split(*first), _split(*second)),
            single=first[0].size == 1,
            payload_bytes=(size - 1) * first[0].nbytes,
        )


def _split(first: Array, second: Array, *others: Array) -> _Blocks:
    return first, second, others
