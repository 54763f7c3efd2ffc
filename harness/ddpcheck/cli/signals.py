"""SIGINT, SIGTERM and SIGHUP end a command by an exception, which is raised again if other code drops it.

Python raises a signal handler's exception at the point that the main thread has reached. Python prints but does not
raise exceptions in destructors and in callbacks of weak references, such as those of the import system; and other code
catches every exception. So the exception notices when it is dropped.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_AGAIN = 0.01
"""Seconds until a dropped exception is raised again. By then the destructor that dropped it has usually ended."""


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
    raised = over = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        if os.getpid() != process:  # a forked child ends as any process does
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif not raised and not over:
            raised = True
            first.append(number)
            raise StoppedBySignal(first[0], dropped)

    def dropped() -> None:
        nonlocal raised
        if os.getpid() == process and not over:
            raised = False
            with suppress(RuntimeError):  # no thread can be started: the next signal counts instead
                threading.Thread(target=again, name="signal again", daemon=True).start()

    def again() -> None:
        time.sleep(_AGAIN)
        signal.pthread_kill(main, signal.SIGTERM)

    def from_thread(number: int) -> None:
        first.append(number)
        signal.pthread_kill(main, signal.SIGTERM)

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
