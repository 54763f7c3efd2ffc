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


class _Signals:
    """The signals of one command. first: the one that counts, if any came. raised: its exception is on its way. over: the
    command has ended.
    """

    def __init__(self) -> None:
        main = threading.main_thread().ident
        assert main is not None
        self.first: list[int] = []
        self.raised = self.over = False
        self._postponing = False
        self._process, self._main = os.getpid(), main

    def exception(self) -> StoppedBySignal:
        return StoppedBySignal(self.first[0], self._dropped)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler of a signal."""
        if os.getpid() != self._process:  # a forked child ends as any process does
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not self.raised and not self.over and not self._postponing:
            self.first.append(number)
            if not _would_leave_a_lock(frame):
                self.raised = True
                raise self.exception()
            if len(self.first) == 1:  # else a thread sends signals already
                self._postponing = True
                self._raise_later()
                self._postponing = False

    def end_from_thread(self, number: int) -> None:
        """As a signal of this number, from another thread and without a signal to the process."""
        self.first.append(number)
        self._send_until_raised()

    def _dropped(self) -> None:
        if os.getpid() == self._process and not self.over:
            self.raised = False
            self._raise_later()

    def _raise_later(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: the next signal counts instead
            threading.Thread(target=self._send_until_raised, name="signal again", daemon=True).start()

    def _send_until_raised(self) -> None:
        time.sleep(_AGAIN)
        while not self.raised and not self.over:
            signal.pthread_kill(self._main, signal.SIGTERM)
            time.sleep(_AGAIN)


@contextmanager
def raise_on_signals() -> Iterator[Callable[[int], None]]:
    """SIGINT, SIGTERM and SIGHUP raise StoppedBySignal once, so that a second signal does not interrupt the clean-up.

    Yields a function by which other threads do the same, without a signal to the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda number: None
        return
    signals = _Signals()
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores SIGHUP
        numbers.append(signal.SIGHUP)
    with _not_printed():
        before = {number: signal.signal(number, signals.handle) for number in numbers}
        try:
            yield signals.end_from_thread
            if signals.first and not signals.raised:  # the exception was dropped a moment ago
                raise signals.exception()
        except Exception:  # such as an error during the clean-up
            if not signals.first:
                raise
            raise signals.exception() from None
        finally:
            signals.over = True
            for number, handler in before.items() if not signals.first else ():  # after one signal no other counts
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
