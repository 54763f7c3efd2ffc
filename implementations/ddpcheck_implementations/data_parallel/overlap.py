"""All-reduces that go on while backward computes, on a thread of their own, and when that pays."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType

from .settings import Overlap

Work = Callable[[], object]


class CommunicationThread:
    """Runs the functions that it is given one after the other, in the order of the calls, so that ranks cannot cross.

    A thread for one backward: it starts with the first work, and ends with the `with` block, which waits for it. So nothing
    else uses the communicator meanwhile, and nothing is left behind.

    The first error ends it: later functions are not begun, as ranks would no longer agree on them, and the block raises the
    error. If the block itself raises, work that has not begun is dropped.
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


class Choice:
    """Whether the next backward overlaps. With "auto" both ways are tried in turn, and the faster one is kept.

    Every rank chooses for itself: it changes neither the all-reduces nor their order, so ranks need not agree.
    """

    TRIALS = 3
    """Of each way. The first backward of all counts for neither: caches, pages and connections are cold."""

    def __init__(self, overlap: Overlap) -> None:
        self._fixed = None if overlap == "auto" else overlap == "on"
        self._count = 0
        self._fastest = {False: float("inf"), True: float("inf")}

    def overlaps(self) -> bool:
        return self._count % 2 == 0 if self._fixed is None else self._fixed

    def took(self, seconds: float) -> None:
        """How long the backward took that was done this way, communication included."""
        if self._fixed is not None:
            return
        if self._count:
            way = self.overlaps()
            self._fastest[way] = min(self._fastest[way], seconds)
        self._count += 1
        if self._count > 2 * self.TRIALS:
            self._fixed = self._fastest[True] < self._fastest[False]
