"""Runs a command in its own process group, with limits on time, memory and output; leaves no process behind."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..launchers.orphaned_processes import clock_ticks, kill_leftover_processes

_MARK = "DDPCHECK_GRADED"
"""The variable that marks the processes of a submission, in any session or group."""
_RUN_WITH_LIMITS = (
    "import os, resource, sys; memory, output = int(sys.argv[1]), int(sys.argv[2]); "
    "resource.setrlimit(resource.RLIMIT_AS, (memory, memory)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (output, output)); "
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
"""A program: limits of memory and of file sizes in bytes, then the command that replaces it."""
_GRACE = 10.0
"""Seconds to write the results so far, after SIGTERM."""


@dataclass(frozen=True)
class Limits:
    """seconds: of the whole command. memory: bytes of address space of each process. output: bytes of each file."""

    seconds: float
    memory: int
    output: int


@dataclass(frozen=True)
class CommandResult:
    """status: as in a shell. in_time: False if the command was ended. seconds: of wall time. left_behind: the number of
    processes.
    """

    status: int
    in_time: bool
    seconds: float
    left_behind: int


def run_limited(command: Sequence[str], folder: Path, log: Path, limits: Limits) -> CommandResult:
    """Run a command in a folder, with its output in a log file. Afterwards none of its processes is left."""
    mark, since = secrets.token_hex(16), clock_ticks()
    environment = {**os.environ, _MARK: mark}
    limited = [sys.executable, "-I", "-c", _RUN_WITH_LIMITS, str(limits.memory), str(limits.output), *command]
    began = time.monotonic()
    with log.open("wb") as output:
        started = subprocess.Popen(
            limited,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            in_time = _ends_in_time(started, limits.seconds)
        finally:
            left_behind = kill_leftover_processes(since, f"{_MARK}={mark}")
            started.wait()
    status = started.returncode
    return CommandResult(128 - status if status < 0 else status, in_time, time.monotonic() - began, left_behind)


def _ends_in_time(started: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the command ended in time; otherwise it gets SIGTERM and some seconds to end."""
    try:
        started.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        started.terminate()
    with suppress(subprocess.TimeoutExpired):
        started.wait(_GRACE)
    return False
