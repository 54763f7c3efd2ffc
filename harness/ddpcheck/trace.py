"""A Trace: the results of each rank in a Job, as plain data. Checks judge only Traces.

A rank's `outcome`:

    done     it ran all operations
    raised   the implementation (or a Raise operation) raised an exception; `error` says which and where
    invalid  the implementation returned a value that the contract does not allow, or lacks a method; `error` lists all
             problems
    hung     it had not ended by the deadline, or by the grace time after another rank failed; `stack` says where it waits
    died     its process ended; `error` has the exit status and the last lines of its output

`Trace.first_failure` is the rank that failed first. A rank that waits for a failed rank also hangs, but is not the
cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from .storage import codec
from .storage.files import atomic_file

_SEEN_WITHIN = 0.3
"""Seconds after which the driver has noticed a death."""

Outcome = Literal["done", "raised", "invalid", "hung", "died"]


class Record(NamedTuple):
    """One operation on one rank: position in the Job, kind, times, and results.

    entered and left are seconds of the host's monotonic clock (comparable between ranks of one host); left is None if
    the operation did not end.
    """

    operation: int
    kind: str
    entered: float
    left: float | None
    values: dict[str, Any]


IMPORTING = '"<frozen importlib._bootstrap>", line'
"""A line in the stack of a rank that imports a module."""


MAKING = "make_replica() raised:"
"""The first line of an error in make_replica, before the operation itself."""


class WrongForm(NamedTuple):
    """The dtype and shape of a returned array, and those that the contract demands."""

    dtype: str
    shape: tuple[int, ...]
    right_dtype: str
    right_shape: tuple[int, ...]


class Unread(NamedTuple):
    """Unread bytes in the sockets of a hung rank: sent by it and not read by a peer, and sent to it and not read."""

    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class RankTrace:
    """The record of one rank.

    wrong_form: of an array that made the outcome invalid. unread: of a hung rank, if known. transferred: bytes that a hung
    rank sent or received over TCP in the moment after its stack was taken. refused: the resource that the system refused
    (refused_resources.py). elsewhere: the process died on another host, where the driver cannot see its operation. missing:
    the method or facet that the Job needs and the implementation does not offer.
    """

    rank: int
    outcome: Outcome
    records: tuple[Record, ...]
    error: str = ""
    stack: str = ""
    failed_at: float | None = None
    wrong_form: WrongForm | None = None
    unread: Unread | None = None
    refused: str = ""
    elsewhere: bool = False
    missing: str = ""
    transferred: int = 0

    @property
    def last(self) -> Record | None:
        """The operation that the rank entered last."""
        return self.records[-1] if self.records else None

    @property
    def without_replica(self) -> bool:
        """Whether the rank failed while it made the replica for its last operation."""
        return self.error.startswith(MAKING)

    def values(self, operation: int) -> dict[str, Any]:
        """The results of the operation at this position. KeyError if the rank did not finish it."""
        for record in self.records:
            if record.operation == operation and record.left is not None:
                return record.values
        raise KeyError(f"rank {self.rank} did not finish operation {operation}")


@dataclass(frozen=True, slots=True)
class StartReport:
    """Observations from the start of the ranks of a Job with a Start until its end.

    listening: the addresses ("127.0.0.1:29500") on which each rank listened, if foreign clients were active. calls: the
    number of accepted foreign connections. ran: whether a rank loaded a foreign client's pickle.
    """

    listening: tuple[tuple[str, ...], ...] = ()
    calls: int = 0
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """The record of all ranks; `ranks[r]` is rank r."""

    ranks: tuple[RankTrace, ...]
    deadline: float = field(default=0.0, compare=False)
    start: StartReport = StartReport()

    @property
    def completed(self) -> bool:
        return all(rank.outcome == "done" for rank in self.ranks)

    @property
    def raised(self) -> tuple[int, ...]:
        """The ranks that raised an exception."""
        return tuple(rank.rank for rank in self.ranks if rank.outcome == "raised")

    @property
    def first_failure(self) -> RankTrace | None:
        """The rank that failed first; a hung one only if no rank raised or died."""
        failed = [rank for rank in self.ranks if rank.outcome not in ("done", "hung")]
        if failed:
            return min(failed, key=_began)
        return next((rank for rank in self.ranks if rank.outcome == "hung"), None)

    def values(self, operation: int, name: str) -> list[Any]:
        """One yielded value of one operation, from every rank in order."""
        return [rank.values(operation)[name] for rank in self.ranks]

    def all_values(self, kind: str) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """(position, values of every rank) of all finished operations of one kind."""
        for record in self.ranks[0].records:
            if record.kind == kind and record.left is not None:
                yield record.operation, [rank.values(record.operation) for rank in self.ranks]

    def to_plain(self) -> dict[str, Any]:
        """Dicts, lists, scalars and arrays, which codec.encode turns into bytes."""
        start = [self.start.listening, self.start.calls, self.start.ran]
        return {"deadline": self.deadline, "ranks": [rank_to_plain(rank) for rank in self.ranks], "start": start}

    @staticmethod
    def from_plain(data: Any) -> Trace:
        listening, calls, ran = data["start"]
        start = StartReport(tuple(tuple(addresses) for addresses in listening), calls, ran)
        return Trace(tuple(rank_from_plain(rank) for rank in data["ranks"]), data["deadline"], start)

    def save(self, path: Path) -> None:
        """Write a file for load(). UnwritableFile on failure."""
        with atomic_file(path) as file:
            file.write(codec.encode(self.to_plain()))

    @staticmethod
    def load(path: Path) -> Trace:
        return Trace.from_plain(codec.decode(path.read_bytes()))


def _began(rank: RankTrace) -> float:
    """The time when the rank failed. Others may report its closed sockets before the driver notices its death."""
    since = _SEEN_WITHIN if rank.outcome == "died" else 0.0
    return float("inf") if rank.failed_at is None else rank.failed_at - since


_FIELDS = tuple(each.name for each in fields(RankTrace))


def rank_to_plain(rank: RankTrace) -> list[Any]:
    """A list of a RankTrace's fields, which codec.encode turns into bytes."""
    return [getattr(rank, name) for name in _FIELDS]


def rank_from_plain(data: list[Any]) -> RankTrace:
    """Inverse of rank_to_plain. Older files lack the last fields."""
    values = dict(zip(_FIELDS, data, strict=False))
    values["records"] = tuple(map(Record._make, values["records"]))
    if values.get("wrong_form") is not None:
        dtype, shape, right_dtype, right_shape = values["wrong_form"]
        values["wrong_form"] = WrongForm(dtype, tuple(shape), right_dtype, tuple(right_shape))
    if values.get("unread") is not None:
        values["unread"] = Unread(*values["unread"])
    return RankTrace(**values)
