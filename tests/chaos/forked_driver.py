"""Commands in a fork of this process, which has imported what they need: a start then takes no processor time.

A fresh interpreter takes half of the time of a small command. The fork is a process of its own like any other: with its
own session, environment, folder and output, and with Python's exit handlers at its end.
"""

from __future__ import annotations

import atexit
import importlib
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

from ddpcheck import cli
from ddpcheck.running.plan import installed_checks

_MODULES = (
    *(f"ddpcheck.cli.{name}" for name in ("check", "train", "audit")),
    "ddpcheck_benchmarks.bench",
    "ddpcheck_benchmarks.gate.command",
)
_LOOK_EVERY = 0.02


class Running(Protocol):
    """A command that runs, as in subprocess.Popen."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


@dataclass
class Forked:
    """A fork that runs a command."""

    pid: int
    _status: int | None = None

    def poll(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. TimeoutError if the command still runs after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise TimeoutError
            time.sleep(_LOOK_EVERY)
        return status


def import_commands() -> None:
    """Import the modules of the commands and of all checks."""
    for name in _MODULES:
        importlib.import_module(name)
    installed_checks()


def start(words: Sequence[str], folder: Path, variables: Mapping[str, str], output: BinaryIO) -> Forked:
    """Run `ddpcheck WORDS` in a fork."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if not process:
        _run(words, folder, variables, output)
    return Forked(process)


def _run(words: Sequence[str], folder: Path, variables: Mapping[str, str], output: BinaryIO) -> NoReturn:
    status: object = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(variables)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for own, number in ((nothing, 0), (output.fileno(), 1), (output.fileno(), 2)):
            os.dup2(own, number)
        os.closerange(3, 1 << 10)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
        tempfile.tempdir = None  # it was that of this process
        here = {str(Path(__file__).parent), str(Path(__file__).parents[1])}
        sys.path[:] = [entry for entry in sys.path if entry not in here]
        sys.argv = ["ddpcheck", *words]
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        atexit._clear()  # exit handlers of the campaign
        cli.program()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter does at its end
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status if isinstance(status, int) else 0 if status is None else 1)
