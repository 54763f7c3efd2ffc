"""Operations for special cases: ranks that act differently, a program that ends, and bytes on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ..storage.dataclass_json import plain

if TYPE_CHECKING:
    from . import Operation


@plain
@dataclass(frozen=True, slots=True)
class OnRanks:
    """An operation that only these ranks enter. Yields the operation's results there."""

    kind: ClassVar[str] = "on_ranks"
    ranks: tuple[int, ...]
    operation: Operation


@plain
@dataclass(frozen=True, slots=True)
class Attempt:
    """An operation whose exception is caught: the rank's program continues. Yields error: the exception, or ""."""

    kind: ClassVar[str] = "attempt"
    operation: Operation


@plain
@dataclass(frozen=True, slots=True)
class Leave:
    """One rank's program ends by an uncaught exception: its process ends as the interpreter ends it.

    close: the implementation is closed before, as by a `with` statement or `finally`.
    """

    kind: ClassVar[str] = "leave"
    rank: int
    close: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Close:
    """The implementation is closed, as at the end of a program. The ranks are of no use afterwards.

    Yields before and held: the process's resources before connect(), and now (process_resources.py).
    """

    kind: ClassVar[str] = "close"


@plain
@dataclass(frozen=True, slots=True)
class Left:
    """After Close: wait until all ranks are here, and list the names that they have left.

    Yields files: those in a temporary folder of the world's own (Start.own_folder); memory: shared memory that this process had
    mapped, or open, when it was closed, and that has its name still. None of both if not all ranks come, as on several hosts.
    """

    kind: ClassVar[str] = "left"


@plain
@dataclass(frozen=True, slots=True)
class Sent:
    """Read the counters of this rank. Yields sent: {TCP connection: bytes handed to it and packets since it was opened}
    (sent_bytes.py); counts: the implementation's own counters, None if it has none.
    """

    kind: ClassVar[str] = "sent"


@plain
@dataclass(frozen=True, slots=True)
class Make:
    """Make the replica so many times, each in the place of the one before. Before each the settings of the process become
    again what they were, and numbers are drawn from its generators, on every rank another count.

    Yields changed: names of the settings that each making changed; before and after: each generator's state, as a hash.
    """

    kind: ClassVar[str] = "make"
    times: int = 3


@plain
@dataclass(frozen=True, slots=True)
class Rounds:
    """These operations again and again: `rounds` rounds of `times` each, whose values are dropped. A Wait among them names
    this operation's own position. After each round the settings of the process (process_settings.py) are put back.

    Yields changed: names of the settings that each round changed; held: its resources before, and after each round.
    """

    kind: ClassVar[str] = "rounds"
    operations: tuple[Operation, ...]
    times: int = 3
    rounds: int = 3


@plain
@dataclass(frozen=True, slots=True)
class ProbeGradients:
    """Make a replica with these options of a tensor of `elements` beside a few scalars, go backward once, and compare with the
    exact gradients on the rank: a large tensor need not go to the driver. summed: they are sums over ranks, not means. input:
    of each rank's one sample; a local gradient is up to 8 times as large. 0 means the world size.

    Yields refused: the exception of make_replica where options are given, else "" and, of the tensor: wrong, how many elements
    are; first and last: the places of the first and last of them, -1 if none is; local, zero: whether all of them are the rank's
    own gradient, or zero; scalars: the gradients of the others; right_scalar: what each of these should be.
    """

    kind: ClassVar[str] = "probe_gradients"
    elements: int
    dtype: str = "float32"
    optimizer: Literal["sgd", "adam"] = "sgd"
    scalars: int = 0
    options: tuple[tuple[str, float], ...] = ()
    summed: bool = False
    input: int = 0
