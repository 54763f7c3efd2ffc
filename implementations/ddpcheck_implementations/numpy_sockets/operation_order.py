"""A rank's operations run one after the other, in the order of their calls, until the first error."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from ddpcheck.counted_nouns import ranks_named
from ddpcheck.seeded_values import Array

from .connections.peer import Peer
from .errors import CommunicationError

if TYPE_CHECKING:
    from concurrent.futures import Future

Ts = TypeVarTuple("Ts")
T = TypeVar("T")

_CLOSE_SECONDS = 0.05
"""Seconds to wait for the end of a dead rank's connection: a rank that failed because of it may end earlier."""


class OperationOrder:
    """Runs operations in the caller's thread or in the background, in the order of the calls.

    After an error no operation can follow: ranks would no longer agree on the next one. The rank then tells its peers, so
    that they fail at once too, and name the rank at fault.
    """

    def __init__(self, rank: int, peers: Mapping[int, Peer]) -> None:
        self.background = BackgroundThread()
        self.failure: BaseException | None = None
        self._peers = peers
        self._culprit = rank

    def run(self, operation: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run an operation after all earlier ones. CommunicationError if one of them failed."""
        self.background.drain()
        return self._run_or_fail(operation, *args)

    def run_in_background(self, operation: Callable[[*Ts], Array], *args: *Ts) -> PendingResult:
        """Run an operation in the background, after all earlier ones."""
        return self.background.submit(lambda: self._run_or_fail(operation, *args))

    def wait_until_idle(self) -> None:
        """Return when all operations have ended. CommunicationError if one of them failed."""
        self.background.drain()
        self._refuse_after_failure()

    def fail(self, error: BaseException) -> None:
        """Record an error and tell all peers: their streams are out of step with this rank's."""
        self.failure = error
        if isinstance(error, CommunicationError):
            self._culprit = error.culprit
            if closed := self._other_closed_peers(error.culprit):
                error.add_note(f"gone as well: {ranks_named(closed)}")
        for peer in self._peers.values():
            peer.abort(self._culprit)

    def _run_or_fail(self, operation: Callable[[*Ts], T], *args: *Ts) -> T:
        self._refuse_after_failure()
        try:
            return operation(*args)
        except BaseException as error:
            self.fail(error)
            raise

    def _refuse_after_failure(self) -> None:
        if self.failure is not None:
            raise CommunicationError(
                self._culprit, f"this communicator failed before: {self.failure}; start the ranks again"
            ) from self.failure

    def _other_closed_peers(self, culprit: int) -> list[int]:
        """Ranks besides the culprit that have closed. The end of a dead rank may arrive after that of a rank it made fail."""
        others = {rank: peer for rank, peer in self._peers.items() if rank != culprit}
        for pause in (0, _CLOSE_SECONDS) if others else ():
            time.sleep(pause)
            if closed := [rank for rank, peer in others.items() if peer.has_closed()]:
                return closed
        return []


class BackgroundThread:
    """One daemon thread that runs operations in the order of their calls; it starts with the first."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Array], Future[Array]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.last: Future[Array] | None = None

    def submit(self, operation: Callable[[], Array]) -> PendingResult:
        from concurrent.futures import Future  # importing it also imports logging, which slows down a rank's start

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="numpy_sockets", daemon=True)
            self._thread.start()
        result: Future[Array] = Future()
        self.last = result
        self._queue.put((operation, result))
        return PendingResult(result)

    def drain(self) -> None:
        """Return when all operations have ended; PendingResult.wait raises their errors."""
        if self.last is not None:
            self.last.exception()
            self.last = None

    def stop(self) -> None:
        """End the thread after all operations."""
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


class PendingResult:
    """The handle of an asynchronous operation (ddpcheck.contract.adapter.Handle)."""

    def __init__(self, result: Future[Array]) -> None:
        self._result = result

    def wait(self) -> Array:
        """Return the result. Each message of the operation has its own time limit, so this wait needs none."""
        return self._result.result()
