"""Operations for special cases: one rank acts differently, a program ends, or bytes sent are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ..storage.dataclass_json import plain

if TYPE_CHECKING:
    from . import Operation


@plain
@dataclass(frozen=True, slots=True)
class OnRanks:
    """Only these ranks execute the operation. Yields the operation's results there."""

    kind: ClassVar[str] = "on_ranks"
    ranks: tuple[int, ...]
    operation: Operation


@plain
@dataclass(frozen=True, slots=True)
class Attempt:
    """An operation whose exception is caught, after which the rank continues. Yields error: the exception, or ""."""

    kind: ClassVar[str] = "attempt"
    operation: Operation


@plain
@dataclass(frozen=True, slots=True)
class Leave:
    """One rank's program ends by an uncaught exception, and its interpreter exits as usual.

    close: the implementation is closed before, as by a `with` statement or `finally`.
    """

    kind: ClassVar[str] = "leave"
    rank: int
    close: bool = False


@plain
@dataclass(frozen=True, slots=True)
class Close:
    """Close the implementation, as at the end of a program. The ranks cannot be used afterwards.

    Yields before and held: the resources of the process before connect(), and after closing (process_resources.py).
    """

    kind: ClassVar[str] = "close"


@plain
@dataclass(frozen=True, slots=True)
class Left:
    """After Close: wait until all ranks arrive, then list the files and shared memory that they left behind.

    Yields files: files left in the world's own temporary folder (Start.own_folder); memory: shared memory that this
    process had mapped or open at Close and that still has a name. Yields neither if not all ranks arrive, as on several
    hosts.
    """

    kind: ClassVar[str] = "left"


@plain
@dataclass(frozen=True, slots=True)
class Sent:
    """Read the counters of this rank.

    Yields sent: {TCP connection: bytes handed to it and packets since it was opened} (sent_bytes.py); counts: the
    implementation's own counters, or None.
    """

    kind: ClassVar[str] = "sent"


@plain
@dataclass(frozen=True, slots=True)
class WatchCollectives:
    """Watch the asynchronous collectives of torch.distributed, until the end of the Job or WatchCollectives(on=False).

    Yields watched: whether torch.distributed is in use; found: (how, collective, line that starts it, line that shows it) of
    each collective so far that nothing awaits, or whose tensor is changed before (pytorch/pending_collectives.py).
    """

    kind: ClassVar[str] = "watch_collectives"
    on: bool = True


@plain
@dataclass(frozen=True, slots=True)
class Make:
    """Make the replica `times` times; each replaces the one before. Before each, the process settings are restored, and
    every rank draws another count of numbers from its process's generators, and one more each time.

    Yields changed: for each replica, the settings that making it has changed; before and after: a hash of each
    generator's state.
    """

    kind: ClassVar[str] = "make"
    times: int = 3


@plain
@dataclass(frozen=True, slots=True)
class Rounds:
    """Repeat these operations `times` times in each of `rounds` rounds, and drop their values. A Wait among them names
    its operation by the position of this one. After each round the process settings are restored (process_settings.py).

    Yields changed: names of the settings that each round changed; held: the resources of the process before the first
    round and after each round.
    """

    kind: ClassVar[str] = "rounds"
    operations: tuple[Operation, ...]
    times: int = 3
    rounds: int = 3


@plain
@dataclass(frozen=True, slots=True)
class ProbeGradients:
    """Make a replica of a tensor of `elements` beside a few scalars, with these options, and compare one backward's
    gradients with the exact ones on the rank itself, so that a large tensor is not sent to the driver.

    summed: gradients are sums over ranks, not means. input: the input of each rank's one sample; 0 means the world
    size. A local gradient is up to 8 times as large.

    Yields refused: the exception of make_replica if options are given, else "". Of the tensor it yields wrong: the
    number of wrong elements; first and last: the positions of the first and last wrong element, -1 if there is none;
    local, zero: whether all wrong elements equal the rank's local gradient, or are zero. scalars: the gradients of the
    scalars; right_scalar: their expected value.
    """

    kind: ClassVar[str] = "probe_gradients"
    elements: int
    dtype: str = "float32"
    optimizer: Literal["sgd", "adam"] = "sgd"
    scalars: int = 0
    options: tuple[tuple[str, float], ...] = ()
    summed: bool = False
    input: int = 0
