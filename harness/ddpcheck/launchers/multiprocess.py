"""Ranks that a parent process starts by Python's multiprocessing, as torch.multiprocessing.spawn or a forking script does it.

The parent imports the adapter's module, and what it requires, before there are ranks (multiprocess_parent.py). So a rank's state
depends on the method:

fork        It inherits all that the imports made: NumPy's global random state, the hash seed, open files, connections and locks.
spawn       A new interpreter imports the module again, before RANK is set. Neighbours hash strings by different seeds, those of
            `Processes`, unless PYTHONHASHSEED is set.
forkserver  Forked from a process that has imported nothing of the adapter: one hash seed for all, the rest as with spawn.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from .base import Launched, Output, clean_environment
from .multiprocess_parent import ENDED, KILL
from .ports import rendezvous_address
from .process_handles import is_stopped, processes_under
from .processes import HASH_SEEDS, Children, describe_exit

Method = Literal["fork", "spawn", "forkserver"]
_LEAVE_WITHIN = 3.0
_ROOM_FOR_SOCKET = 55
"""Characters: with what comes behind them, the address of a Unix socket must be shorter than 108, or 104."""


@dataclass(frozen=True)
class Multiprocessing:
    """Start every rank as a multiprocessing.Process of one parent, on this host."""

    start_method: Method = "spawn"
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.start_method

    def unavailable(self) -> str | None:
        import multiprocessing

        known = multiprocessing.get_all_start_methods()
        if self.start_method in known:
            return None
        return f"Python's multiprocessing has no start method {self.start_method!r} here; use {' or '.join(known)}"

    def start(
        self,
        command: Sequence[str],
        world_size: int,
        variables: Mapping[str, str],
        *,
        inherit_output: bool = False,
    ) -> Launched:
        port, master = rendezvous_address(variables)
        seeds = [os.environ["PYTHONHASHSEED"]] if "PYTHONHASHSEED" in os.environ else list(HASH_SEEDS)
        shared = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            **master,
            "PYTHONHASHSEED": seeds[0],
        }
        output = Output.open()
        scratch = _folder_of_server() if self.start_method == "forkserver" else None
        target = None if inherit_output else output.file
        here, there = socket.socketpair()
        try:
            with there:
                settings = (self.start_method, str(world_size), str(there.fileno()), ",".join(seeds))
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        f"{__package__}.multiprocess_parent",
                        *settings,
                        scratch.name if scratch else "",
                        *command,
                    ],
                    env=clean_environment({**shared, **self.variables, **variables}),
                    stdin=subprocess.DEVNULL,
                    stdout=target,
                    stderr=target,
                    pass_fds=[there.fileno()],
                    start_new_session=True,  # Ctrl-C is the driver's to handle
                )
        except BaseException:
            here.close()
            output.file.close()
            port.release()
            if scratch is not None:
                scratch.cleanup()
            raise
        here.setblocking(False)
        parent = _Parent(self.start_method, process, here)
        return _Family(
            [_Rank(parent, rank) for rank in range(world_size)], output, port, parent=parent, scratch=scratch
        )


def _folder_of_server() -> tempfile.TemporaryDirectory[str]:
    """Where the fork server's socket lies, which stays if the parent is killed."""
    usual = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="ddp-", dir=usual if len(usual) < _ROOM_FOR_SOCKET else "/tmp")


def spawn() -> Multiprocessing:
    """Fresh processes of Python's multiprocessing, as torch.multiprocessing.spawn starts them."""
    return Multiprocessing("spawn")


def fork() -> Multiprocessing:
    """Forks of a process that has imported the adapter: ranks inherit the state after the import."""
    return Multiprocessing("fork")


def forkserver() -> Multiprocessing:
    """Forks of multiprocessing's server, which has not imported the adapter."""
    return Multiprocessing("forkserver")


@dataclass
class _Parent:
    """The parent process that starts the ranks and reports how they end."""

    method: str
    process: subprocess.Popen[bytes]
    told: socket.socket
    codes: dict[int, int] = field(default_factory=dict)
    _unread: bytes = b""

    def code_of(self, rank: int) -> int | None:
        """How the rank ended; as the parent did, if that went before it could tell."""
        ended = self.ended()  # before reading: its last message has then arrived
        self._listen()
        if ended is not None:
            return self.codes.get(rank, ended or 1)
        return self.codes.get(rank)

    def ended(self) -> int | None:
        """The exit status. The process stays a zombie until kill(), so its group id cannot be reused."""
        if self.process.returncode is not None:
            return self.process.returncode
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _listen(self) -> None:
        with suppress(OSError):  # nothing new, or closed
            while text := self.told.recv(4096):
                self._unread += text
        while len(self._unread) >= ENDED.size:
            rank, code = ENDED.unpack(self._unread[: ENDED.size])
            self._unread = self._unread[ENDED.size :]
            self.codes[rank] = code

    def kill(self) -> None:
        """Ask the parent to end and reap its ranks; kill it if it does not. Safe to call twice."""
        if self.process.returncode is not None:
            return
        with suppress(OSError):
            self.told.send(KILL)
        if self.ended():  # it was killed, say; it still holds the number of its group
            self._end_group()
        try:
            self.process.wait(_LEAVE_WITHIN)
        except subprocess.TimeoutExpired:
            self._end_group()
            self.process.wait()
        self.told.close()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class _Rank:
    """One rank, as its parent reports it."""

    parent: _Parent
    rank: int

    @property
    def pid(self) -> int:
        return self.parent.process.pid  # in whose group it is

    def poll(self) -> int | None:
        return self.parent.code_of(self.rank)

    def kill(self) -> None:
        self.parent.kill()

    def wait(self) -> int:
        self.parent.process.wait()
        return self.poll() or 0


@dataclass
class _Family(Children):
    parent: _Parent = field(kw_only=True)
    scratch: tempfile.TemporaryDirectory[str] | None = field(kw_only=True)

    def status_of(self, rank: int) -> str:
        ended = self.parent.ended()
        known = super().status_of(rank)
        if known and rank not in self.parent.codes:
            return f"rank {rank} is gone, the process that started it {describe_exit(ended or 0)}"
        return known

    def poll(self) -> str | None:
        stopped = any(map(is_stopped, processes_under(self.parent.process.pid)))
        return super().poll() or ("a rank is stopped by a signal" if stopped else None)

    def kill(self) -> None:
        self.parent.kill()
        super().kill()
        if self.scratch is not None:
            self.scratch.cleanup()
