"""Errors of communication between ranks.

CommunicationError        each names the ranks concerned
├── RendezvousError       the ranks did not find each other
├── PeerLost              a peer died, closed its connection, or was silent for too long
└── Mismatch              two ranks call different operations, or pass different arrays
"""

from __future__ import annotations


class CommunicationError(RuntimeError):
    """The communicator cannot be used any more; `culprit` is the rank to look at first."""

    def __init__(self, culprit: int, message: str) -> None:
        super().__init__(message)
        self.culprit = culprit


class RendezvousError(CommunicationError):
    pass


class PeerLost(CommunicationError):
    pass


class Mismatch(CommunicationError):
    pass
