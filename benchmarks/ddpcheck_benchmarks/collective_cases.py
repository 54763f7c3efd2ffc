"""Collectives and sizes to measure, and the rates that nccl-tests derives from their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from ddpcheck.contract import CallForm, Capabilities, needs
from ddpcheck.job import MeasureCollective
from ddpcheck.operations.timing import Collective

from .sizes import named

COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
DTYPE = "float32"
_SHARED = ("all_gather", "reduce_scatter")
_REDUCING = ("all_reduce", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Case:
    """One collective at one size: a row of the tables."""

    adapter: str
    world_size: int
    collective: Collective
    count: int
    dtype: str = DTYPE
    in_place: bool = False
    link: str = ""

    @property
    def bytes(self) -> int:
        """S of nccl-tests: the size of the vector that is reduced or sent, or the total for all_gather and
        reduce_scatter.
        """
        return self.count * np.dtype(self.dtype).itemsize

    @property
    def name(self) -> str:
        parts = [self.adapter, f"p{self.world_size}"] + [self.link] * bool(self.link)
        if self.collective != "barrier":
            parts += [named(self.bytes), self.dtype] + ["in_place"] * self.in_place
        return f"{self.collective}[{'-'.join(parts)}]"

    @property
    def messages(self) -> int:
        """Full-length messages that one call sends one after the other, there and back."""
        return 2 if self.collective == "send_recv" else 1

    def operation(self, warmups: int, iterations: int, calls: int) -> MeasureCollective:
        return MeasureCollective(
            self.collective, self.count, self.dtype, self.in_place, warmups=warmups, iterations=iterations, calls=calls
        )

    def info(self, seconds: float, cores: int) -> dict[str, Any]:
        """extra_info: the case, and the rates (GB/s of 1e9 bytes) for this time of one call."""
        algbw = self.bytes / seconds / 1e9
        factor = bus_factor(self.collective, self.world_size)
        moves = self.collective != "barrier" and self.world_size > 1
        return {
            "kind": "collective",
            "adapter": self.adapter,
            "collective": self.collective,
            "world_size": self.world_size,
            "bytes": self.bytes,
            "count": self.count,
            "dtype": self.dtype,
            "redop": "sum" if self.collective in _REDUCING else "none",
            "in_place": self.in_place,
            "cores": cores,
            "link": self.link,
            "algbw": algbw if moves else None,
            "busbw": algbw * factor if moves else None,
        }


def bus_factor(collective: str, world_size: int) -> float:
    """The quotient busbw / algbw, as nccl-tests' PERFORMANCE.md derives it."""
    share = (world_size - 1) / world_size
    return {"all_reduce": 2 * share, "all_gather": share, "reduce_scatter": share}.get(collective, 1.0)


def cases(
    adapter: str,
    promises: Capabilities,
    world_size: int,
    collectives: Sequence[Collective],
    sizes: Sequence[int],
    link: str = "",
) -> list[Case]:
    """All cases that this implementation offers. Sizes are rounded up to whole elements (one per rank, if sharded)."""
    found: dict[Case, None] = {}
    for collective in collectives:
        lacking = needs.collectives.operations(collective).lacking(promises, world_size)
        if lacking or (collective == "send_recv" and world_size < 2):
            continue
        if collective == "barrier":
            found[Case(adapter, world_size, collective, 0, link=link)] = None
            continue
        part = world_size if collective in _SHARED else 1
        for size in sizes:
            count = -(-size // (np.dtype(DTYPE).itemsize * part)) * part
            found[Case(adapter, world_size, collective, count, link=link)] = None
            if collective == "all_reduce" and promises.has(CallForm.IN_PLACE):
                found[Case(adapter, world_size, collective, count, in_place=True, link=link)] = None
    return list(found)


def memory_needed(case: Case) -> int:
    """The peak memory in bytes of all ranks of this host: arguments, results, expected values, and buffers."""
    return 6 * case.bytes * case.world_size
