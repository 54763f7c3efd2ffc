"""One collective repeated so often that counters may wrap around, with one array that is refilled for each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..seeded_values import Array
from ..storage.dataclass_json import plain

PERIOD = 251
"""Calls after which values repeat. A prime, so that calls confused by a wrapped counter have different values."""


@plain
@dataclass(frozen=True, slots=True)
class Calls:
    """Call a collective of all ranks `times` times, each time with other values in the same array of two elements.

    strided: the array is every other element of a larger one. all_reduce_async is waited for at once; send_recv goes
    from rank 0 to the last rank. Yields results, of shape (times, elements of a result); none on a rank without a
    result.
    """

    kind: ClassVar[str] = "calls"
    collective: Literal["all_reduce", "all_reduce_async", "broadcast", "all_gather", "reduce_scatter", "send_recv"]
    times: int
    dtype: str = "float32"
    reduction: Literal["sum", "mean", "min", "max"] = "sum"
    strided: bool = False

    def values(self, rank: int, world_size: int) -> Array:
        """This rank's values, call by call. Their mean is exact."""
        step = world_size if self.reduction == "mean" else 1
        made: Array = ((np.arange(self.times) + 7 * rank) % PERIOD + 1) * step
        return made.astype(self.dtype)

    def wanted(self, rank: int, world_size: int) -> Array | None:
        """The expected results on this rank, (times, elements); None on a rank without a result."""
        every = np.stack([self.values(each, world_size) for each in range(world_size)], axis=1)
        if self.collective == "send_recv":
            return np.repeat(every[:, :1], 2, axis=1) if rank == world_size - 1 else None
        if self.collective == "broadcast":
            return np.repeat(every[:, :1], 2, axis=1)
        if self.collective == "all_gather":
            return np.repeat(every, 2, axis=1)
        reduced: Array = getattr(every, self.reduction)(axis=1).astype(self.dtype)
        return np.repeat(reduced[:, None], 2, axis=1)
