"""Some of the ranks, as one of them sees it: how many operations they have begun together, and what moves their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ddpcheck.seeded_values import Array

from .connections import wire_format


class Algorithms(Protocol):
    """How two or more ranks do each collective. Arrays are flat; a mean is a sum with `divisor` W, which is 1 otherwise."""

    def all_reduce(self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int) -> None: ...

    def all_reduce_in_place(self, header: bytes, array: Array, reduction: np.ufunc, divisor: int) -> None: ...

    def reduce_scatter(
        self, header: bytes, source: Array, target: Array, reduction: np.ufunc, divisor: int
    ) -> None: ...

    def all_gather(self, header: bytes, own: Array, target: Array) -> None: ...

    def broadcast(self, header: bytes, array: Array, root: int) -> None: ...

    def barrier(self, header: bytes) -> None: ...


class SmallReductions(Protocol):
    """Reductions of arrays of up to `limit` bytes, in one exchange (shared_memory.small_reductions)."""

    limit: int

    def reduce(self, operation: str, op: str, array: Array, mine: Array, target: Array) -> None: ...


class Group:
    """Ascending ranks, this one among them. `algorithms` is None if it is the only one. `express` goes before them."""

    def __init__(self, ranks: Sequence[int], algorithms: Algorithms | None) -> None:
        self.ranks = tuple(ranks)
        self.size = len(self.ranks)
        self.algorithms = algorithms
        self.express: SmallReductions | None = None
        self._code = wire_format.group_code(self.ranks)
        self.begun = 0

    def header(self, operation: str, array: Array, detail: int | str = 0) -> bytes:
        """The header of this group's next operation."""
        packed = wire_format.pack(operation, array, detail, self._code, self.begun)
        self.begun += 1
        return packed
