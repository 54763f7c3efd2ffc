"""Operations for the harder questions: ranks that do not do the same, a program that ends, and bytes on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..plain import plain

if TYPE_CHECKING:
    from . import Operation


@plain
@dataclass(frozen=True, slots=True)
class OnRanks:
    """An operation that these ranks enter, and the others pass by. Yields there what the operation yields."""

    kind: ClassVar[str] = "on_ranks"
    ranks: tuple[int, ...]
    operation: Operation


@plain
@dataclass(frozen=True, slots=True)
class Leave:
    """One rank's program ends by an exception that nobody catches: its process ends as the interpreter ends it.

    close: the implementation is closed before, as by a `with` statement or `finally`.
    """

    kind: ClassVar[str] = "leave"
    rank: int
    close: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Sent:
    """Read what this rank has sent. Yields sent: {TCP connection: bytes handed to it since it was opened} (sockets.py)."""

    kind: ClassVar[str] = "sent"
