"""Operations that go on while the caller computes: one thread, which does them in the order of their calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ddpcheck.seeded_values import Array

if TYPE_CHECKING:
    from concurrent.futures import Future


class Background:
    """The thread starts with the first operation. It is a daemon: a rank that fails need not wait for it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Array], Future[Array]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.last: Future[Array] | None = None

    def submit(self, operation: Callable[[], Array]) -> Pending:
        from concurrent.futures import Future  # it brings logging along, which a rank need not wait for at its start

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="numpy_sockets", daemon=True)
            self._thread.start()
        result: Future[Array] = Future()
        self.last = result
        self._queue.put((operation, result))
        return Pending(result)

    def drain(self) -> None:
        """Return when all operations have ended. Their errors are raised by the waits for them."""
        if self.last is not None:
            self.last.exception()
            self.last = None

    def stop(self) -> None:
        """End the thread once all operations have ended."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            operation, result = item
            try:
                result.set_result(operation())
            except BaseException as error:
                result.set_exception(error)


class Pending:
    """A Handle of the contract."""

    def __init__(self, result: Future[Array]) -> None:
        self._result = result

    def wait(self) -> Array:
        """The result. It needs no time limit of its own: each message of the operation has one."""
        return self._result.result()
