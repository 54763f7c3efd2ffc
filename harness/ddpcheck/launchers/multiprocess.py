"""Ranks started by one parent process with Python's multiprocessing, as torch.multiprocessing.spawn or a forking script does.

The parent imports the adapter's module and its requirements before it starts ranks (multiprocess_parent.py). A rank's state
depends on the start method:

fork        A rank inherits the state after the imports: NumPy's random state, the hash seed, open files, connections, locks.
spawn       A new interpreter imports the module again, before RANK is set. Neighbouring ranks have different hash seeds, those
            of `Processes`, unless PYTHONHASHSEED is set.
forkserver  A rank is forked from a process without the adapter's module: one hash seed for all ranks, the rest as with spawn.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, Literal, Self

from .launcher import Launched, Output, clean_environment
from .multiprocess_parent import ENDED, KILL
from .ports import rendezvous_address
from .process_handles import is_stopped, processes_under
from .processes import HASH_SEEDS, Children, describe_exit

Method = Literal["fork", "spawn", "forkserver"]
_LEAVE_WITHIN = 3.0
_MAX_FOLDER = 55
"""The most characters of the folder: the path of a Unix socket in it must be shorter than 108 (Linux) or 104
(macOS).
"""


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
        with ExitStack() as opened:  # closed if the parent cannot be started
            port, master = rendezvous_address(variables)
            opened.callback(port.release)
            output = Output.open()
            opened.callback(output.file.close)
            scratch = _socket_folder() if self.start_method == "forkserver" else None
            if scratch is not None:
                opened.callback(scratch.cleanup)
            seeds = [os.environ["PYTHONHASHSEED"]] if "PYTHONHASHSEED" in os.environ else list(HASH_SEEDS)
            sizes = {name: str(world_size) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
            shared = {**sizes, **master, "PYTHONHASHSEED": seeds[0]}
            parent = _Parent.start(
                self.start_method,
                (str(world_size), ",".join(seeds), scratch.name if scratch else "", *command),
                clean_environment({**shared, **self.variables, **variables}),
                None if inherit_output else output.file,
            )
            opened.pop_all()
        return _Family(
            [_Rank(parent, rank) for rank in range(world_size)], output, port, parent=parent, scratch=scratch
        )


def _socket_folder() -> tempfile.TemporaryDirectory[str]:
    """Make the folder of the fork server's socket, which the parent cannot remove if it is killed."""
    usual = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="ddp-", dir=usual if len(usual) < _MAX_FOLDER else "/tmp")


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

    process: subprocess.Popen[bytes]
    messages: socket.socket
    codes: dict[int, int] = field(default_factory=dict)
    _unread: bytes = b""

    @classmethod
    def start(
        cls, method: str, arguments: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | None
    ) -> Self:
        """Start the parent. output: None for this process's own output."""
        driver_end, parent_end = socket.socketpair()
        try:
            with parent_end:
                process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", f"{__package__}.multiprocess_parent"),
                        *(method, str(parent_end.fileno()), *arguments),
                    ],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[parent_end.fileno()],
                    start_new_session=True,  # the driver handles Ctrl-C
                )
        except BaseException:
            driver_end.close()
            raise
        driver_end.setblocking(False)
        return cls(process, driver_end)

    def code_of(self, rank: int) -> int | None:
        """Return the rank's exit status, None while it runs; or the parent's, if it ended before reporting the rank."""
        ended = self.ended()  # before reading, so that the last message is included
        self._listen()
        if ended is not None:
            return self.codes.get(rank, ended or 1)
        return self.codes.get(rank)

    def ended(self) -> int | None:
        """Return the parent's exit status. It stays a zombie until kill(), so its group id cannot be reused."""
        if self.process.returncode is not None:
            return self.process.returncode
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def _listen(self) -> None:
        with suppress(OSError):  # nothing new, or closed
            while text := self.messages.recv(4096):
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
            self.messages.send(KILL)
        if self.ended():  # as after a kill: its group id is still valid
            self._end_group()
        try:
            self.process.wait(_LEAVE_WITHIN)
        except subprocess.TimeoutExpired:
            self._end_group()
            self.process.wait()
        self.messages.close()

    def _end_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass
class _Rank:
    """One rank, as reported by its parent."""

    parent: _Parent
    rank: int

    @property
    def pid(self) -> int:
        return self.parent.process.pid  # the leader of the rank's process group

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
            return f"rank {rank} has ended: the process that started it {describe_exit(ended or 0)}"
        return known

    def poll(self) -> str | None:
        stopped = any(map(is_stopped, processes_under(self.parent.process.pid)))
        return super().poll() or ("a rank is stopped by a signal" if stopped else None)

    def kill(self) -> None:
        self.parent.kill()
        super().kill()
        if self.scratch is not None:
            self.scratch.cleanup()
