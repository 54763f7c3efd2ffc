"""Plans, computed once for all reductions of one dtype and shape: where the elements of every rank will be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections import wire_format

EXPRESS_BYTES = 256 * 1024
"""The largest array."""
_LINE, _WORDS = 64, 16
_BESIDE_BYTES = 24
"""So much goes into the cache line of the words, so that a processor which has seen a word need not fetch another."""
HALVES_BYTES = _LINE + 2 * EXPRESS_BYTES
_KEPT = 256
Key = tuple[str, str, np.dtype[np.generic], tuple[int, ...]]
"""Operation and reduction, and the dtype and shape of the array."""
_Blocks = tuple[Array, Array, tuple[Array, ...]]


class Halves:
    """Memory of one rank for operations that take turns in it, and for each half a word that names its content."""

    def __init__(self, memory: memoryview) -> None:
        self.words = memory[:_WORDS].cast("Q")
        self._beside = [memory[start : start + _BESIDE_BYTES] for start in (_WORDS, _WORDS + _BESIDE_BYTES)]
        self._behind = [memory[start : start + EXPRESS_BYTES] for start in (_LINE, _LINE + EXPRESS_BYTES)]

    def block(self, half: int, nbytes: int) -> memoryview:
        """Where so many bytes go, and perhaps more."""
        return (self._beside if nbytes <= _BESIDE_BYTES else self._behind)[half]


@dataclass(frozen=True, slots=True)
class Plan:
    """`what` is its header (wire.compact). By half: `own` is where this rank writes, `blocks` are those that it reads, in rank
    order: of the first two, and of the others. `single`: it reads one element of each.
    """

    what: int
    reduction: np.ufunc
    divisor: int
    own: tuple[Array, Array]
    blocks: tuple[_Blocks, _Blocks]
    single: bool
    payload_bytes: int


class Plans(dict[Key, Plan]):
    """Those of this rank, which has the halves in place `place` of all `halves`, in rank order. Missing ones are made.

    TypeError or ValueError as wire.pack; an array has at most EXPRESS_BYTES.
    """

    def __init__(self, halves: Sequence[Halves], place: int) -> None:
        super().__init__()
        self._halves, self._place = halves, place

    def __missing__(self, key: Key) -> Plan:
        if len(self) == _KEPT:
            self.clear()
        made = self[key] = self._made(*key)
        return made

    def _made(self, operation: str, op: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Plan:
        count = prod(shape)
        what = wire_format.compact(wire_format.pack(operation, np.empty(count, dtype), op))
        first, second = (
            [
                np.frombuffer(each.block(half, count * dtype.itemsize), dtype, count).reshape(shape)
                for each in self._halves
            ]
            for half in range(2)
        )
        own, size = (first[self._place], second[self._place]), len(self._halves)
        if operation == "reduce_scatter":
            first, second = ([np.split(each, size)[self._place] for each in blocks] for blocks in (first, second))
        return Plan(
            what,
            reduction=wire_format.REDUCTIONS[op],
            divisor=size if op == "mean" else 1,
            own=own,
            blocks=(_blocks(*first), _blocks(*second)),
            single=first[0].size == 1,
            payload_bytes=(size - 1) * first[0].nbytes,
        )


def _blocks(first: Array, second: Array, *others: Array) -> _Blocks:
    return first, second, others
