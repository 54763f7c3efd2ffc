"""What the oracle says: one Moment for each operation, with an Entry for each named array."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..diagnosis import Evidence
from ..job import Operation
from ..values import Array
from .rounding import Value

Presence = Literal["there", "none", "either"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What one named array must be on every rank: value.exact[r] on rank r.

    presence: whether rank r must hold an array, must hold None, or may hold None or zeros. ranks: those on which the
    value is promised. local: each rank's own gradients since zero_grad. stale: the gradient of the synchronised
    backward before. last: each rank's own gradient of the last micro-batch only. alike: all ranks
    must hold the same bits, even where a bound lets them differ from the exact value.
    """

    value: Value
    dtype: str
    presence: tuple[Presence, ...]
    ranks: tuple[int, ...]
    local: Array | None = None
    stale: Array | None = None
    last: Array | None = None
    alike: bool = True

    def evidence(self, rank: int) -> Evidence:
        """What else it might be, for a diagnosis."""
        size = len(self.presence)
        known: list[tuple[str, Array]] = []
        if self.stale is not None:
            known.append(
                ("it is the gradient of the step before: stale, reduced too early or one step late", self.stale[rank])
            )
        if self.last is not None:
            known.append(
                ("it is the last micro-batch only: what was accumulated before is lost", self.last.mean(axis=0))
            )
        if self.local is not None:
            known += [
                (f"it is rank {other}'s own local gradient: one rank's value, not all ranks'", self.local[other])
                for other in range(size)
                if other != rank
            ]
            known.append(
                ("it is the mean with equal weights, but should be weighted by batch sizes", self.local.mean(axis=0))
            )
        own = None if self.local is None else self.local[rank]
        return Evidence(size, own, tuple(known))


@dataclass(frozen=True, slots=True)
class Moment:
    """What one operation must have yielded.

    numbers: by name (loss, norm), a value for every rank. arrays: by what (gradients, parameters, buffers), then by
    name. outputs: of a prediction, an array for every rank; `promised` are the ranks on which it is.
    """

    position: int
    operation: Operation
    numbers: Mapping[str, Value] = field(default_factory=dict)
    arrays: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)
    outputs: tuple[Value, ...] = ()
    promised: tuple[int, ...] = ()
