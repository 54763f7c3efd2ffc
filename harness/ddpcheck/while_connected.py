"""Runs a command for as long as the ssh connection that has started it lasts:

    ssh host1 "cd /shared/folder && python -m ddpcheck.while_connected torchrun ..."

The end of a connection does not end the command on the other host. A signal does not always end it either: an agent of
torchrun that waits for other agents inside C++ ignores SIGTERM for up to five minutes. So this program watches its own
stdout and stderr. When their other end closes, all processes that the command has started get a moment to end, then
SIGTERM, then SIGKILL. The same happens when the command ends, or this program gets a signal.

The exit status is the command's, or 128 plus the number of the signal that has ended it.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

from .launchers.process_handles import adopt_orphans, processes_under

_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_STEPS = ((0, 1.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0))
"""Signals, and seconds that each has. Signal 0 does nothing: ranks whose driver has ended remove their files."""
_LOOK_EVERY = 0.02


def main(words: list[str]) -> int:
    ends = [file for file in (sys.stdout.fileno(), sys.stderr.fileno()) if _has_other_end(file)]
    if not words or not ends:
        why = "stdout or stderr must be the connection, not a file" if words else "the command is missing"
        print(f"{why}; use: ssh HOST python -m ddpcheck.while_connected COMMAND...", file=sys.stderr)
        return 2
    adopt_orphans()
    for number in _ENDING:
        signal.signal(number, _end)
    threading.Thread(target=_watch, args=(ends,), daemon=True).start()
    command = None
    try:
        command = subprocess.Popen(words, start_new_session=True)
        status = command.wait()
    except OSError as error:
        print(f"{words[0]} cannot be started: {error.strerror}", file=sys.stderr)
        return 127
    finally:
        _end_all(command)
    return status if status >= 0 else 128 - status


def _has_other_end(file: int) -> bool:
    mode = os.fstat(file).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file)


def _watch(files: list[int]) -> None:
    """Wait for the other end of a file to close, which is an error and no event: then end this program."""
    poller = select.poll()
    for file in files:
        poller.register(file, 0)
    poller.poll()
    os.kill(os.getpid(), signal.SIGHUP)


def _end(number: int, _frame: object) -> NoReturn:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end_all(command: subprocess.Popen[bytes] | None) -> None:
    for number, seconds in _STEPS:
        limit = time.monotonic() + seconds
        signalled: set[int] = set()
        while (remaining := _remaining(command)) and time.monotonic() < limit:
            for process in remaining - signalled:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process, number)
            signalled |= remaining
            time.sleep(_LOOK_EVERY)


def _remaining(command: subprocess.Popen[bytes] | None) -> set[int]:
    """All processes below this one. Where the system has no /proc, only the command."""
    own = {command.pid} if command is not None and command.poll() is None else set[int]()
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # orphans, too
            pass
    return own | processes_under(os.getpid())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
