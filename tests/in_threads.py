"""Ranks as threads of this process: a Session without processes, for tests of the checks themselves.

    session = ThreadedSession(connect, world_size=3)
    check(session)                                    # connect: as an Adapter's, with context.rank and context.world_size

Collectives are a shared table at which all threads meet. A thread that waits there for an ended rank counts as hung at
once, so no time limit can be too short on a slow machine.
"""

from __future__ import annotations

import tempfile
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddpcheck.contract import Capabilities
from ddpcheck.contract.adapter import Adapter, Facets
from ddpcheck.execution import ContractViolation, Execution
from ddpcheck.job import Job
from ddpcheck.seeded_values import Array
from ddpcheck.trace import Outcome, RankTrace, Trace


class LostError(Exception):
    """A peer has ended and will not come."""


@dataclass
class Table:
    """A meeting point of threads."""

    size: int
    slots: dict[int, Any] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    turn: int = 0
    waiting: int = 0
    ended: bool = False

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.slots[rank] = value
        self.wait()
        found = [self.slots[other] for other in range(self.size)]
        self.wait()
        return found

    def wait(self) -> None:
        """Wait until all ranks have come as often. LostError once a missing rank has ended."""
        with self.changed:
            turn = self.turn
            self.waiting += 1
            if self.waiting == self.size:
                self.waiting, self.turn = 0, turn + 1
                self.changed.notify_all()
            self.changed.wait_for(lambda: self.turn > turn or self.ended)
            if self.turn == turn:
                raise LostError

    def leave(self) -> None:
        """Mark a rank as ended."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()


class ThreadCollectives:
    """all_reduce, broadcast and barrier for all ranks."""

    def __init__(self, table: Table, rank: int) -> None:
        self.table, self.rank = table, rank

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        assert op in ("sum", "mean", "max")
        parts = self.table.exchange(self.rank, array.copy())
        if op == "max":
            return np.asarray(np.max(parts, axis=0))
        total = parts[0].copy()
        for part in parts[1:]:
            total = total + part
        return np.asarray(total if op == "sum" else total / len(parts)).astype(array.dtype)

    def broadcast(self, array: Array, root: int = 0, *, group: Sequence[int] | None = None) -> Array:
        found: Array = self.table.exchange(self.rank, array.copy())[root].copy()
        return found

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        return np.stack(self.table.exchange(self.rank, array.copy()))

    def barrier(self, *, group: Sequence[int] | None = None) -> None:
        self.table.exchange(self.rank, None)


Wire = Callable[[Any, int, int], Facets]
"""From collectives, rank and world size to the facets under test."""


@dataclass
class ThreadedSession:
    """One adapter's replicas at one world size. `wire` makes a rank's facets from its collectives."""

    wire: Wire
    world_size: int = 2
    capabilities: Capabilities = field(default_factory=Capabilities)
    effort: int = 10
    deep: bool = False
    random_seed: int | None = None
    jobs: int = 0
    brief: bool = False
    told: frozenset[str] = frozenset()
    shrinks: bool = True
    replayed: Job | None = None

    def run_many(self, jobs: Iterable[Job]) -> Generator[Trace, None, None]:
        return (self.run(job) for job in jobs)

    def run(self, job: Job) -> Trace:
        self.jobs += 1
        table = Table(self.world_size)
        ranks: list[RankTrace | None] = [None] * self.world_size

        def one(rank: int) -> None:
            outcome: Outcome = "done"
            error, form, missing = "", None, ""
            execution = None
            try:
                facets = self.wire(ThreadCollectives(table, rank), rank, self.world_size)
                execution = Execution(facets, job, rank, lambda position: None, str(scratch))
                with np.errstate(all="ignore"):  # processes would only print warnings
                    execution.run()
            except LostError:
                outcome = "hung"
            except ContractViolation as broken:
                outcome, error, form, missing = "invalid", str(broken), broken.form, broken.missing
            except Exception:
                outcome, error = "raised", traceback.format_exc()
            finally:
                table.leave()
            records = tuple(execution.records) if execution else ()
            failed_at = None if outcome == "done" else 1.0
            ranks[rank] = RankTrace(
                rank, outcome, records, error, failed_at=failed_at, wrong_form=form, missing=missing
            )

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.world_size)]
        with tempfile.TemporaryDirectory() as folder:
            scratch = Path(folder) / "scratch"
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        return Trace(tuple(rank for rank in ranks if rank is not None))


def session_of(adapter: Adapter, wire: Wire, world_size: int = 2, effort: int = 10) -> ThreadedSession:
    return ThreadedSession(wire, world_size, adapter.capabilities, effort)
