"""The templates of a driver: one process for each rank, from which that rank is forked whenever ranks start (template.py).

A template for each rank and not one for all: each interpreter hashes strings by a seed of its own, and lays out its memory in its
own way, as those of separately started ranks do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .template import HEADER, STATUS, UNSAFE

RANK_PROGRAM = (sys.executable, "-m", "ddpcheck.worker")
"""How the command of a rank begins that a template can stand in for."""

_OF_ONE_START = {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "PYTHONPATH", "PYTEST_CURRENT_TEST"}


class Templates:
    """Started when first needed, and kept for all Sessions of one run. Close them, or use them in a `with`.

    A template serves as long as the ranks' environment stays the same but for what differs from start to start; else a fresh one
    takes its place. world_size: the largest to come, if known: with the first ranks templates start for all of it. Several
    threads may use them.
    """

    def __init__(self, world_size: int = 0) -> None:
        self.world_size = world_size
        self._of_rank: dict[int, _Template] = {}
        self._asking = threading.Lock()

    def fork(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        modules: Sequence[str],
        output: IO[bytes],
        later: Sequence[Mapping[str, str]] = (),
    ) -> list[Forked] | None:
        """One process for each environment, in the order of ranks; None if they must be started in the usual way.

        modules: imported before the fork, besides what ddpcheck needs. later: environments of the ranks that are to come.
        """
        if tuple(command[: len(RANK_PROGRAM)]) != RANK_PROGRAM or not hasattr(os, "pidfd_open"):
            return None
        with self._asking:
            return self._fork(command, environments, modules, output, later)

    def _fork(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        modules: Sequence[str],
        output: IO[bytes],
        later: Sequence[Mapping[str, str]],
    ) -> list[Forked] | None:
        forked: list[Forked] = []
        try:
            asked = [self._template(rank, env, tuple(modules)) for rank, env in enumerate(environments)]
            for template, env in zip(asked, environments, strict=True):
                template.ask(command[len(RANK_PROGRAM) - 1 :], env, output)
            forked.extend(template.answer() for template in asked)  # what has come is kept if another refuses
            for rank, env in enumerate(later, len(asked)):
                self._template(rank, env, tuple(modules))
        except _NoFork:
            for child in forked:
                child.kill()
                child.wait()
            self.close()
            return None
        return forked

    def _template(self, rank: int, environment: Mapping[str, str], modules: tuple[str, ...]) -> _Template:
        known = {
            name: value
            for name, value in environment.items()
            if name not in _OF_ONE_START and not name.startswith("DDPCHECK_")
        }
        there = self._of_rank.get(rank)
        if there is not None and (there.environment, there.modules) == (known, modules):
            return there
        if there is not None:
            there.close()
        made = self._of_rank[rank] = _Template.start(known, modules, environment)
        return made

    def close(self) -> None:
        """End all templates; ranks that still run are not theirs to end. Safe to call twice."""
        for template in self._of_rank.values():
            template.close()
        self._of_rank.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class _NoFork(Exception):
    """The template is gone, or cannot fork safely."""


@dataclass
class _Template:
    environment: dict[str, str]
    modules: tuple[str, ...]
    process: subprocess.Popen[bytes]
    requests: socket.socket

    @classmethod
    def start(cls, known: dict[str, str], modules: tuple[str, ...], environment: Mapping[str, str]) -> Self:
        here, there = socket.socketpair()
        with there:
            process = subprocess.Popen(
                [sys.executable, "-m", "ddpcheck.launchers.template", str(there.fileno()), *modules],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                start_new_session=True,
            )
        return cls(known, modules, process, here)

    def ask(self, arguments: Sequence[str], variables: Mapping[str, str], output: IO[bytes]) -> None:
        request = {"arguments": list(arguments), "variables": dict(variables), "folder": str(Path.cwd())}
        content = json.dumps(request).encode()
        try:
            socket.send_fds(self.requests, [HEADER.pack(len(content))], [output.fileno()])
            self.requests.sendall(content)
        except OSError:
            raise _NoFork from None

    def answer(self) -> Forked:
        try:
            said, files, _, _ = socket.recv_fds(self.requests, 1, 2, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            raise _NoFork from None
        if not said or said == UNSAFE:
            raise _NoFork
        return Forked(*files)

    def close(self) -> None:
        self.requests.close()
        self.process.wait()


@dataclass
class Forked:
    """A process that another one has forked; poll, kill and wait are those of subprocess.Popen."""

    _process: int  # a pidfd
    _status: int  # its exit status comes through this pipe
    _code: int | None = field(default=None, init=False)

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
        if self._code is None and select.select([self._status], [], [], seconds)[0]:
            told = os.read(self._status, STATUS.size)
            # nothing: the template has gone before it
            self._code = STATUS.unpack(told)[0] if told else -signal.SIGKILL
            os.close(self._process)
            os.close(self._status)
        return self._code
