"""Overlap of all-reduces with backward: the communication thread, and the choice whether overlap pays."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType

from .settings import Overlap

Work = Callable[[], object]


class CommunicationThread:
    """A thread that runs the submitted functions of one backward in order, so that all ranks communicate in the same order.

    The thread starts with the first function, and the `with` block waits for its end. So no other code uses the communicator
    meanwhile, and no thread is left behind.

    After the first error no function is started, since ranks would no longer agree on the next one; the block raises the
    error. If the block itself raises, functions that have not begun are dropped.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dropped = False
        self._error: BaseException | None = None

    def submit(self, work: Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gradients", daemon=True)
            self._thread.start()
        self._work.put(work)

    def __enter__(self) -> CommunicationThread:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._dropped = error is not None
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        if self._error is not None:
            if error is None:
                raise self._error
            error.add_note(f"the all-reduce of its gradients failed as well: {self._error!r}")

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None and not self._dropped:
                work()
        except BaseException as error:
            self._error = error


class OverlapChoice:
    """The choice whether the next backward overlaps. "auto" tries both in turn, and keeps the faster choice.

    Every rank chooses for itself: overlap changes neither the all-reduces nor their order.
    """

    TRIALS = 3
    """Trials with and without overlap. The first backward is not counted: caches, pages and connections are cold."""

    def __init__(self, overlap: Overlap) -> None:
        self._fixed = None if overlap == "auto" else overlap == "on"
        self._count = 0
        self._fastest = {False: float("inf"), True: float("inf")}

    def overlaps(self) -> bool:
        return self._count % 2 == 0 if self._fixed is None else self._fixed

    def record(self, seconds: float) -> None:
        """Record the seconds of the last backward, communication included."""
        if self._fixed is not None:
            return
        if self._count:
            way = self.overlaps()
            self._fastest[way] = min(self._fastest[way], seconds)
        self._count += 1
        if self._count > 2 * self.TRIALS:
            self._fixed = self._fastest[True] < self._fastest[False]
