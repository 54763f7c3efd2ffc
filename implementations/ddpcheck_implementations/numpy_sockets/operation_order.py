"""A rank's operations come one after the other, in the order of their calls, until the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar, TypeVarTuple

from ddpcheck.seeded_values import Array

from .background import Background, Pending
from .connections.peer import Peer
from .errors import CommunicationError

Ts = TypeVarTuple("Ts")
T = TypeVar("T")

_MOMENT = 0.05  # seconds


class Guard:
    """After an error nothing can follow: ranks would no longer agree on the next operation.

    It then tells the peers, so that they fail at once too, and say which rank to look at.
    """

    def __init__(self, rank: int, peers: Mapping[int, Peer]) -> None:
        self.background = Background()
        self.failure: BaseException | None = None
        self._peers = peers
        self._culprit = rank

    def now(self, operation: Callable[[*Ts], T], *args: *Ts) -> T:
        """Do it when all that was called before has ended. CommunicationError if something failed before."""
        self.background.drain()
        return self._guarded(operation, *args)

    def later(self, operation: Callable[[*Ts], Array], *args: *Ts) -> Pending:
        """Do it in the background, after all that was called before."""
        return self.background.submit(lambda: self._guarded(operation, *args))

    def settle(self) -> None:
        """Return when nothing is under way. CommunicationError if something failed before."""
        self.background.drain()
        self._refuse_after_failure()

    def fail(self, error: BaseException) -> None:
        """Whatever interrupted an operation, the streams are out of step now: end them, so that nobody waits for us."""
        self.failure = error
        if isinstance(error, CommunicationError):
            self._culprit = error.culprit
            if gone := self._gone_beside(error.culprit):
                error.add_note(f"gone as well: rank {', '.join(map(str, gone))}")
        for peer in self._peers.values():
            peer.abandon(self._culprit)

    def _guarded(self, operation: Callable[[*Ts], T], *args: *Ts) -> T:
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

    def _gone_beside(self, culprit: int) -> list[int]:
        """A rank that fails because of a dead one may be seen to close before the dead one is: look again a moment later."""
        others = {rank: peer for rank, peer in self._peers.items() if rank != culprit}
        for pause in (0, _MOMENT) if others else ():
            time.sleep(pause)
            if gone := [rank for rank, peer in others.items() if peer.gone()]:
                return gone
        return []
