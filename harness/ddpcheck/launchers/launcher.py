"""The interface of launchers. A launcher starts one command on every rank, with an engine that users already have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, Self, runtime_checkable

from ..contract.rank_context import ENGINE_VARIABLES

if TYPE_CHECKING:
    from .fork_servers import ForkServers


@dataclass(frozen=True)
class Ending:
    """How a process of a run ended, or that it is stopped.

    text: the process and its end, as in "rank 2 was killed by SIGKILL". rank: None if the process is not a rank, or an
    unknown one. status: its exit status, or the negative number of the signal that killed it; None if it is stopped or the
    status is unknown.
    """

    text: str
    rank: int | None = None
    status: int | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def killed(self) -> bool:
        """Whether a signal ended the process."""
        return self.status is not None and self.status < 0


class Launched(Protocol):
    """Ranks that are starting or running."""

    def poll(self) -> Ending | None:
        """None while all ranks run; otherwise the end of the process that ended first, or is stopped."""
        ...

    def wait(self) -> int:
        """Wait until all ranks have ended, or one has failed: 0 for success, else the failed rank's exit status.

        After a failure the other ranks get a moment to report their errors; kill() ends those that still run.
        """
        ...

    def ending_of(self, rank: int) -> Ending | None:
        """How this rank's process ended, as far as the engine reports it; None if it runs or the end is unknown."""
        ...

    def output(self) -> str:
        """The last lines that the ranks wrote to stdout and stderr."""
        ...

    def kill(self) -> None:
        """End every process at once and reap them. Safe to call twice."""
        ...


@runtime_checkable
class TcpLauncher(Protocol):
    """A launcher that can force ranks of one host to send everything over TCP."""

    def over_tcp(self) -> Mapping[str, str]:
        """The environment variables that force TCP."""
        ...


@runtime_checkable
class ForkServerLauncher(Protocol):
    """A launcher whose ranks can be forked from pre-warmed processes (fork_servers.py)."""

    def with_fork_servers(self, fork_servers: ForkServers) -> Launcher: ...


@runtime_checkable
class ParentProcessLauncher(Protocol):
    """A launcher whose ranks are forked or spawned by one process that has imported the adapter's module."""

    @property
    def start_method(self) -> str:
        """fork, spawn or forkserver, as in Python's multiprocessing."""
        ...


@runtime_checkable
class EngineLauncher(Protocol):
    """A launcher whose engine watches the ranks."""

    @property
    def ends_ranks_together(self) -> bool:
        """Whether the engine ends all ranks when one has failed."""
        ...


@runtime_checkable
class StartsChildren(Protocol):
    """A launcher whose ranks are children of the process that calls start(), and can end when that process ends."""

    def parent(self) -> Mapping[str, str]:
        """The environment variables that name this process to its ranks."""
        ...


class Launcher(Protocol):
    """Starts an implementation's ranks."""

    @property
    def name(self) -> str: ...

    def unavailable(self) -> str | None:
        """The reason why the launcher cannot start ranks here, with advice; None if it can."""
        ...

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        """Start `command` on `world_size` ranks, with these environment variables added on each.

        inherit_output: the ranks write to this process's output instead of output().
        """
        ...


def parent_of(launcher: Launcher) -> Mapping[str, str]:
    """The environment variables that name this process to its child ranks; empty for launchers without child ranks."""
    return launcher.parent() if isinstance(launcher, StartsChildren) else {}


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without rank variables of an outer launcher, plus `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in ENGINE_VARIABLES}
    return kept | dict(variables)


@dataclass
class Output:
    """The ranks' output: an unnamed temporary file, so no file remains.

    limit: bytes that tail() reads: the traces of several agents of torchrun follow a failed rank's last words.
    """

    file: IO[bytes]
    limit: int = field(default=16_000)

    @classmethod
    def open(cls) -> Self:
        import tempfile  # imported here, since ranks import this module, too, and do not need it

        return cls(tempfile.TemporaryFile())  # closed by Launched.kill

    def tail(self) -> str:
        if self.file.closed:
            return ""
        size = os.fstat(self.file.fileno()).st_size
        start = max(0, size - self.limit)
        return os.pread(self.file.fileno(), self.limit, start).decode(errors="replace").strip()

    def is_whole_in_tail(self) -> bool:
        return os.fstat(self.file.fileno()).st_size <= self.limit

    def save(self, path: Path) -> None:
        """Write all of the output, of much output both ends (storage/long_texts.py). Without output there is no file."""
        import mmap  # imported here for the same reason

        from ..storage.long_texts import write_long_text

        if os.fstat(self.file.fileno()).st_size:
            with mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                write_long_text(path, text)
