"""Plain processes with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

Even and odd ranks have different hash seeds, PYTHONHASHSEED=20 and 235, unless that variable is set. So sets of strings
have different orders on neighbouring ranks, and the same orders in every run. (mpiexec and torchrun leave the seed
random.)

With `fork_servers`, ranks of a Session are forked from pre-warmed processes, so restarts are fast (fork_servers.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from .launcher import Ending, Launched, Output, clean_environment
from .mpi_segments import abandoned_segments, remove_segments
from .ports import Port, rendezvous_address
from .process_handles import DRIVER, end_group, is_stopped

if TYPE_CHECKING:  # a rank that starts does not need it
    from .fork_servers import ForkServers

HASH_SEEDS = ("20", "235")
"""Hash seeds for which sets of two usual names, {"weight", "bias"} and {"loss", "accuracy"}, have opposite orders."""

_POLL = 0.02
_FAILURE_GRACE = 2.0
"""Seconds for the other ranks to report their errors after one has failed."""


@dataclass(frozen=True)
class Processes:
    """Child processes on this host, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.

    preload: modules that fork servers import before they fork: slow to import, and without threads.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    name: str = "processes"
    preload: tuple[str, ...] = ()
    fork_servers: ForkServers | None = None

    def unavailable(self) -> str | None:
        return None

    def with_fork_servers(self, fork_servers: ForkServers) -> Processes:
        """See launcher.ForkServerLauncher."""
        return replace(self, fork_servers=fork_servers)

    def parent(self) -> Mapping[str, str]:
        """See launcher.StartsChildren."""
        return {DRIVER: str(os.getpid())}

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        port, master = rendezvous_address(variables)
        shared = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            **master,
            **self.variables,
            **variables,
        }
        environments = [
            {"PYTHONHASHSEED": HASH_SEEDS[rank % len(HASH_SEEDS)]}
            | clean_environment(shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(world_size)
        ]
        import subprocess  # imported here, since ranks import this module too

        output = Output.open()
        launched = Children([], output, port)
        try:
            forked = None
            if self.fork_servers is not None and not inherit_output:
                forked = self.fork_servers.fork(command, environments, self.preload, output.file)
            if forked is not None:
                launched.children.extend(forked)
                return launched
            target = None if inherit_output else output.file
            for env in environments:
                child = subprocess.Popen(
                    list(command),
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    start_new_session=True,  # the driver handles Ctrl-C
                )
                launched.children.append(child)  # appended at once, so that it is killed if a later one cannot start
        except BaseException:
            launched.kill()
            raise
        return launched


class _Child(Protocol):
    """The common interface of subprocess.Popen and Forked."""

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group with all its children."""
        ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


@dataclass
class Children:
    """Ranks that are processes of this host, watched one by one."""

    children: list[_Child]
    written: Output
    port: Port
    failed: int | None = None  # the first rank that failed
    started: float = field(default_factory=time.time)

    def poll(self) -> Ending | None:
        codes = self._update()
        ended = next((rank for rank, code in enumerate(codes) if code is not None), None)
        first = ended if self.failed is None else self.failed
        if first is not None:
            return self.ending_of(first)
        stopped = next((rank for rank, child in enumerate(self.children) if is_stopped(child.pid)), None)
        return None if stopped is None else Ending(f"rank {stopped} is stopped by a signal", stopped)

    def wait(self) -> int:
        limit = float("inf")
        while None in (codes := self._update()) and time.monotonic() < limit:
            if self.failed is not None:
                limit = min(limit, time.monotonic() + _FAILURE_GRACE)
            time.sleep(_POLL)
        return 0 if self.failed is None else codes[self.failed] or 0

    def _update(self) -> list[int | None]:
        """Return all exit statuses, and record the first failure.

        Of the ranks that failed since the last call, a rank killed by a signal (negative status) counts as the first,
        since the others failed because of it.
        """
        codes = [child.poll() for child in self.children]
        if self.failed is None:
            failed = [(code > 0, rank) for rank, code in enumerate(codes) if code]
            self.failed = min(failed)[1] if failed else None
        return codes

    def ending_of(self, rank: int) -> Ending | None:
        code = self.children[rank].poll()
        return None if code is None else Ending(f"rank {rank} {describe_exit(code)}", rank, code)

    def output(self) -> str:
        return self.written.tail()

    def kill(self) -> None:
        for child in self.children:
            ended = child.poll() is not None
            if not ended:
                child.kill()  # the process may not lead a group yet
            end_group(child.pid, ended=ended)
        for child in self.children:
            child.wait()
        remove_segments(abandoned_segments(self.started))  # a rank alone can be a world of MPI, too
        self.written.file.close()
        self.port.release()


def describe_exit(code: int) -> str:
    """Describe an exit status in words. Shells and MPI launchers add 128 to the signal that killed their process."""
    if code < 0:
        return f"was killed by {_signal_named(-code) or f'signal {-code}'}"
    name = _signal_named(code - 128)
    return f"exited with status {code}" + (f": a process was killed by {name}" if name else "")


def _signal_named(number: int) -> str:
    """The name of a signal; empty if there is none with this number."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""
