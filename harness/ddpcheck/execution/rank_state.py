"""The state of a rank that runs a Job: the rank, its part of the Job, and results of earlier operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..contract.adapter import Facets
from ..job import Job, TensorSpec
from ..launchers.mpi_segments import Segment
from ..seeded_values import Array, poison
from ..trace import Record
from .replica_state import ReplicaState
from .result_validation import offered, offered_method

Values: TypeAlias = dict[str, Any]
"""The named results of an operation."""


class RankState:
    """One rank during one Job.

    records: of the operations entered so far. progress: reports a position to the driver, once for each operation, and again
    within a long one.
    """

    def __init__(
        self, facets: Facets, job: Job, rank: int, scratch: str | None, progress: Callable[[int], None]
    ) -> None:
        self.facets: Facets = facets
        self.job: Job = job
        self.rank: int = rank
        self.scratch: str | None = scratch
        self.progress = progress
        self.records: list[Record] = []
        self.held: ReplicaState = ReplicaState(facets, job, rank)
        self._other: ReplicaState | None = None
        self.handles: dict[int, tuple[Any, Array, Array]] = {}
        """By position of an asynchronous operation: its handle, its argument, and a copy of the argument's values."""
        self.shared: dict[TensorSpec, Array] = {}
        """Arrays that are arguments of several operations, so that none may be overwritten."""
        self.named_memory: set[Segment] = set()
        """Named shared memory that existed when the implementation was closed."""
        self.aggregated: list[tuple[Mapping[str, Any], str]] = []
        """Returned metrics, with their values at that time as text."""
        self._handed_out: list[tuple[Values, str, Array, Any]] = []
        self._waited: list[Array] = []

    @property
    def position(self) -> int:
        """The position of the current operation."""
        return len(self.records) - 1

    @property
    def collectives(self) -> Any:
        return offered(self.facets.collectives, "collectives")

    def collective(self, method: str) -> Any:
        """A method of the collectives, which may lack those that are not promised."""
        return offered_method(self.collectives, method)

    def switch(self) -> None:
        """Switch to the other replica, and keep this one."""
        # build it now: construction may communicate, and all ranks must construct in the same order
        self.held.replica()
        other = self._other or ReplicaState(self.facets, self.job.of_second(), self.rank)
        self._other, self.held = self.held, other

    def is_member(self, group: tuple[int, ...] | None) -> bool:
        return group is None or self.rank in group

    def check_later(self, values: Values, name: str, now: Array, handed_out: Any) -> None:
        """At the end of the Job, add `name` to `values`: whether `handed_out` no longer has the value `now`."""
        self._handed_out.append((values, name, now, handed_out))

    def waited(self, argument: Array) -> None:
        """Mark an argument whose wait() has returned: it is overwritten before the next operation."""
        self._waited.append(argument)

    def overwrite_waited(self) -> None:
        for argument in self._waited:
            poison(argument)
        self._waited.clear()

    def is_shared(self, argument: Array) -> bool:
        return any(argument is each for each in self.shared.values())

    def forget(self) -> None:
        """Forget all arrays that were handed out."""
        self.overwrite_waited()
        self._handed_out.clear()
        self.aggregated.clear()

    def check_again_later(self) -> None:
        for values, name, before, handed_out in self._handed_out:
            if before.tobytes() != np.asarray(handed_out).tobytes():
                values.setdefault("overwritten_later", []).append(name)
        if changed := [*self.held.changed(), *(self._other.changed() if self._other else ())]:
            self.records[-1].values["arguments_changed"] = changed
