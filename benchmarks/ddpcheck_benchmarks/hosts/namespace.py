"""A network namespace without a name: it ends with the last process in it and the last open file on it.

No clean-up is needed: if the driver ends, even by kill -9, its namespaces end with it, with every link and queue in
them.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LIBRARY = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns exist from Python 3.12 on


class Namespace:
    """A new network with only a loopback, which is down. OSError without the right to create one."""

    def __init__(self) -> None:
        self._file = _on_a_thread(_new)

    @property
    def path(self) -> str:
        """The path at which other processes find the namespace while it is open here."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    def inside(self, work: Callable[[], T]) -> T:
        """Run `work` in this namespace, and return its result. Its sockets and processes stay in the namespace."""

        def entered() -> T:
            _checked(_LIBRARY.setns(self._file, _NEW_NETWORK))
            return work()

        return _on_a_thread(entered)

    def batch(self, tool: str, lines: Iterable[str]) -> None:
        """Let `ip` or `tc` execute these lines here. OSError with the tool's message if one fails."""
        words = [tool, "-batch", "-"]
        done = self.inside(
            lambda: subprocess.run(words, input="\n".join(lines), capture_output=True, text=True, check=False)
        )
        if done.returncode:
            raise OSError(f"{tool}: {done.stderr.strip()}")

    def close(self) -> None:
        os.close(self._file)


def _new() -> int:
    _checked(_LIBRARY.unshare(_NEW_NETWORK))
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _on_a_thread(work: Callable[[], T]) -> T:
    """Run in a new thread: a thread that enters a namespace cannot return, and other threads are not affected."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
