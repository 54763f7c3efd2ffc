"""The fork servers of a driver: two processes from which ranks are forked, one for even and one for odd ranks.

There are two because separately started ranks have different hash seeds and memory layouts, and a fork inherits its
server's. There is not one for each rank because importing torch takes seconds. Each set of modules and variables has
servers of its own, since ranks of another Session may run at the same time. Few are kept: a driver may judge hundreds of
adapters. The program of a server is fork_server.py.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from .cpu_starvation import Patience
from .fork_server import FORKED, HEADER, NUMBER, STATUS
from .process_handles import is_stopped, queued

RANK_PROGRAM = (sys.executable, "-m", "ddpcheck.worker")
AUDIT_PROGRAM = (sys.executable, "-m", "ddpcheck.audit.record")
_FORKED_PROGRAMS = frozenset({RANK_PROGRAM, AUDIT_PROGRAM})
"""Starts of commands that a fork server can replace."""

_UNLIKE = 2
"""The number of fork servers for a set of modules: rank r is forked from number r % _UNLIKE."""

_KEPT = 8
"""Fork servers that are kept. Beyond these, the least recently used ends, unless a rank that it has forked still runs."""
_ANSWER_WITHIN = 60.0
"""Time limit for a fork server to import its modules and to fork. A stopped server is not waited for."""
_DESCRIPTORS = 2  # its own, and the pipe for its exit status
_LOOK_EVERY = 1.0
_LEAVE_WITHIN = 5.0
_TELL_WITHIN = 5.0

_OF_ONE_RANK = {"RANK", "LOCAL_RANK"}
_OF_ONE_START = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "PYTHONPATH", "PYTHONSAFEPATH", "PYTEST_CURRENT_TEST"}


class ForkServers:
    """Fork servers, started when first needed, and kept for all Sessions of one run. Close them, or use a `with` block.

    Several threads may use them.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[int, frozenset[tuple[str, str]], tuple[str, ...]], _ForkServer] = {}
        self._asking = threading.Lock()

    def fork(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        modules: Sequence[str],
        output: IO[bytes],
    ) -> list[Forked] | None:
        """Fork one process for each environment, in the order of ranks; None if they must be started without fork
        servers.

        modules: imported before the fork, beside those that ddpcheck needs.
        """
        if tuple(command[: len(RANK_PROGRAM)]) not in _FORKED_PROGRAMS or not hasattr(os, "pidfd_open"):
            return None
        with self._asking:
            return self._fork(command, environments, modules, output)

    def _fork(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        modules: Sequence[str],
        output: IO[bytes],
    ) -> list[Forked] | None:
        program, *arguments = command[len(RANK_PROGRAM) - 1 :]
        wanted = (program, *modules)
        asked = [self._fork_server(rank % _UNLIKE, env, wanted) for rank, env in enumerate(environments)]
        for server, env in zip(asked, environments, strict=True):
            server.ask([program, *arguments], env, output)
        self._end_unused(asked)  # while new ones import their modules
        patience = Patience(_ANSWER_WITHIN)
        forked: list[Forked] = []
        refused: OSError | None = None
        for server in asked:
            try:
                child = server.answer(patience)
            except OSError as error:
                refused = error
                continue
            if child is not None:
                forked.append(child)
        if len(forked) == len(asked):
            return forked
        for child in forked:
            child.kill()
            child.wait()
        if refused is not None:
            raise refused
        return None

    def _fork_server(self, number: int, environment: Mapping[str, str], modules: tuple[str, ...]) -> _ForkServer:
        known = {
            (name, value)
            for name, value in environment.items()
            if name not in _OF_ONE_RANK | _OF_ONE_START and not name.startswith("DDPCHECK_")
        }
        kind = (number, frozenset(known), modules)
        there = self._made.pop(kind, None)
        if there is not None and there.process.poll() is not None:
            there.close()
            there = None
        if there is None:
            there = _ForkServer.start(modules, environment)
        self._made[kind] = there  # at the end: the order is that of their last use
        return there

    def _end_unused(self, in_use: Sequence[_ForkServer]) -> None:
        """End all but _KEPT fork servers, the least recently used first; servers of ranks that run stay."""
        idle = [kind for kind, server in self._made.items() if server not in in_use and not server.has_ranks()]
        for kind in idle[: max(0, len(self._made) - _KEPT)]:
            self._made.pop(kind).close()

    def close(self) -> None:
        """End all fork servers. Ranks that still run stay alive. Safe to call twice."""
        for server in self._made.values():
            server.close()
        self._made.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(eq=False)
class _ForkServer:
    process: subprocess.Popen[bytes]
    requests: socket.socket
    forked: weakref.WeakSet[Forked] = field(default_factory=lambda: weakref.WeakSet())

    @classmethod
    def start(cls, modules: Sequence[str], environment: Mapping[str, str]) -> Self:
        """modules: the program, and what else is imported before the first fork."""
        # variables of one start, such as its secret, must not reach the ranks of other starts
        kept = {name: value for name, value in environment.items() if not name.startswith("DDPCHECK_")}
        here, there = socket.socketpair()
        with there:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ddpcheck.launchers.fork_server",
                    str(there.fileno()),
                    *modules,
                ],
                env=kept,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        return cls(process, here)

    def ask(self, arguments: Sequence[str], variables: Mapping[str, str], output: IO[bytes]) -> None:
        request = {"arguments": list(arguments), "variables": dict(variables), "folder": str(Path.cwd())}
        content = json.dumps(request).encode()
        self.requests.settimeout(_ANSWER_WITHIN)
        with suppress(OSError):  # it has ended: no answer comes
            socket.send_fds(self.requests, [HEADER.pack(len(content))], [output.fileno()])
            self.requests.sendall(content)

    def answer(self, patience: Patience) -> Forked | None:
        """Fork a rank. None if the fork server ended, does not answer in time, or cannot fork safely.

        OSError if this process may not open the rank's descriptors.
        """
        if not self._answers(patience):
            return None
        try:
            said, files, _, _ = socket.recv_fds(
                self.requests, len(FORKED) + NUMBER.size, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except OSError:
            return None
        if not said.startswith(FORKED):
            return None
        (pid,) = NUMBER.unpack(said[len(FORKED) :])
        if len(files) < _DESCRIPTORS:  # the kernel has dropped descriptors for lack of room
            for file in files:
                os.close(file)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made = Forked(pid, *files)
        self.forked.add(made)
        return made

    def has_ranks(self) -> bool:
        """Whether a process that it has forked runs, or ended without anyone having asked for its status."""
        return any(not child.ended for child in tuple(self.forked))

    def _answers(self, patience: Patience) -> bool:
        """Wait for an answer, or the end of the process. Kill the process if neither comes."""
        while not select.select([self.requests], [], [], min(_LOOK_EVERY, patience.left))[0]:
            stopped = is_stopped(self.process.pid)
            if not stopped and not patience.is_over(lambda: [queued(self.process.pid)]):
                continue
            why = "is stopped" if stopped else f"did not answer within {_ANSWER_WITHIN:g} s"
            end = "was killed; ranks start without it, more slowly"
            print(f"the fork server {self.process.pid} {why}: it {end}", file=sys.stderr)
            self.process.kill()
            return False
        return True

    def close(self) -> None:
        self.requests.close()
        try:
            self.process.wait(_LEAVE_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(eq=False)
class Forked:
    """A process that a fork server has forked, with poll, kill and wait as in subprocess.Popen."""

    pid: int
    _process: int  # a pidfd
    _status: int  # its exit status is read from this pipe
    _code: int | None = field(default=None, init=False)

    @property
    def ended(self) -> bool:
        """Whether poll() or wait() has seen its end."""
        return self._code is not None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self) -> int:
        code = self._look(None)
        assert code is not None
        return code

    def kill(self) -> None:
        if self._code is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def _look(self, seconds: int | None) -> int | None:
        if self._code is None and select.select([self._process], [], [], seconds)[0]:
            # an answer comes at once, unless the fork server has ended or is stopped
            tells = select.select([self._status], [], [], _TELL_WITHIN)[0]
            told = os.read(self._status, STATUS.size) if tells else b""
            self._code = STATUS.unpack(told)[0] if told else -signal.SIGKILL
            os.close(self._process)
            os.close(self._status)
        return self._code
