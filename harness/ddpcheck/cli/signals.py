"""SIGINT, SIGTERM and SIGHUP end a command by an exception, which is raised again if other code drops it.

Python raises a signal handler's exception at the point that the main thread has reached. Python prints but does not
raise exceptions in destructors and in callbacks of weak references, such as those of the import system; and other code
catches every exception. So the exception notices when it is dropped. And subprocess.Popen holds a lock while it asks for a
process's exit status: an exception at the wrong line would leave it locked, and wait() would wait for ever. There the
exception is raised a moment later.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_AGAIN = 0.01
"""Seconds until a dropped exception is raised again. By then the destructor that dropped it has usually ended."""
_ASKING = {getattr(subprocess.Popen, name).__code__ for name in ("_internal_poll", "_wait")}
"""The code of subprocess that holds a lock outside a `with` block."""


class StoppedBySignal(KeyboardInterrupt):
    """A signal asks the command to end. Handlers of Ctrl-C treat all signals alike.

    heeded: set by the handler that ends the command. dropped: called if the exception vanishes before.
    """

    def __init__(self, number: int, dropped: Callable[[], None]) -> None:
        super().__init__()
        self.number: int = number
        self.heeded: bool = False
        self._dropped = dropped

    def __del__(self) -> None:
        if not self.heeded:
            self._dropped()


@contextmanager
def raise_on_signals() -> Iterator[Callable[[int], None]]:
    """SIGINT, SIGTERM and SIGHUP raise StoppedBySignal once, so that a second signal does not interrupt the clean-up.

    Yields a function by which other threads do the same, without a signal to the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda number: None
        return
    process, main = os.getpid(), threading.main_thread().ident
    assert main is not None
    first: list[int] = []  # the signal that counts
    raised = over = postponing = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal raised, postponing
        if os.getpid() != process:  # a forked child ends as any process does
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not raised and not over and not postponing:
            first.append(number)
            if not _would_leave_a_lock(frame):
                raised = True
                raise StoppedBySignal(first[0], dropped)
            if len(first) == 1:  # else a thread sends signals already
                postponing = True
                raise_later()
                postponing = False

    def dropped() -> None:
        nonlocal raised
        if os.getpid() == process and not over:
            raised = False
            raise_later()

    def raise_later() -> None:
        with suppress(RuntimeError):  # no thread can be started: the next signal counts instead
            threading.Thread(target=again, name="signal again", daemon=True).start()

    def again() -> None:
        time.sleep(_AGAIN)
        while not raised and not over:
            signal.pthread_kill(main, signal.SIGTERM)
            time.sleep(_AGAIN)

    def from_thread(number: int) -> None:
        first.append(number)
        again()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP
        numbers.append(signal.SIGHUP)
    with _not_printed():
        before = {number: signal.signal(number, end) for number in numbers}
        try:
            yield from_thread
            if first and not raised:  # the exception was dropped a moment ago
                raise StoppedBySignal(first[0], dropped)
        except Exception:  # such as an error during the clean-up
            if not first:
                raise
            raise StoppedBySignal(first[0], dropped) from None
        finally:
            over = True
            for number, handler in before.items() if not first else ():  # after one signal no other counts
                signal.signal(number, handler)


def _would_leave_a_lock(frame: FrameType | None) -> bool:
    """Whether the main thread holds the lock of a subprocess.Popen at a line that an exception leaves without releasing
    it.
    """
    if frame is None or frame.f_code not in _ASKING:
        return False
    lock: threading.Lock = frame.f_locals["self"]._waitpid_lock
    return lock.locked()


@contextmanager
def _not_printed() -> Iterator[None]:
    """Python prints exceptions of destructors. Do not print one that will be raised again."""
    before = sys.unraisablehook

    def shown(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, StoppedBySignal):
            before(unraisable)

    sys.unraisablehook = shown
    try:
        yield
    finally:
        sys.unraisablehook = before
