"""Failures of one rank: late, raising, killed, or with broken connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain


@plain
@dataclass(frozen=True, slots=True)
class Sleep:
    """One rank is late."""

    kind: ClassVar[str] = "sleep"
    rank: int
    seconds: float


@plain
@dataclass(frozen=True, slots=True)
class Raise:
    """One rank raises an exception between two operations of its training program."""

    kind: ClassVar[str] = "raise"
    rank: int
    message: str = "raised on purpose by the Job"


@plain
@dataclass(frozen=True, slots=True)
class Kill:
    """One rank's process is killed."""

    kind: ClassVar[str] = "kill"
    rank: int


@plain
@dataclass(frozen=True, slots=True)
class BreakConnections:
    """The connections of one rank's implementation break; all ranks stay alive.

    Yields broken: the number of its sockets that were shut down; 0 on the other ranks.
    """

    kind: ClassVar[str] = "break_connections"
    rank: int
