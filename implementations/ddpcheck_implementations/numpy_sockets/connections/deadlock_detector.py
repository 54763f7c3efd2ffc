"""Deadlock detection: a rank that waits long asks the awaited ranks for their own waits (waits.py).

Questions and answers are UDP datagrams, because messages in streams are read in order only. A rank
that does not wait sends no answer, and drops questions when its buffer is full. A lost datagram delays detection only. Each
datagram carries a random token that its receiver has sent to the other ranks over their connections.
"""

from __future__ import annotations

import hmac
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from ..errors import Mismatch
from .socket_options import MISMATCH_POLL_SECONDS
from .waits import Wait, deadlock_error, is_deadlock, pack, unpack

TOKEN_BYTES = 16
# the receiver's token, the kind, the sender, and the number of its question
_START = struct.Struct(f"!{TOKEN_BYTES}sBIQ")
_ASK, _TELL, _PROOF = range(3)
_MAX_DATAGRAM_BYTES = 1 << 16
_MAX_DATAGRAMS = 512
"""The largest number read at once, so that a foreign sender cannot keep a rank reading."""
Place = tuple[tuple[str, int], bytes]
"""The address of another rank's port, and its token."""


class Stream(Protocol):
    """The stream of bytes to another rank."""

    def unread(self) -> bool:
        """Whether some of its bytes may still be in transit."""
        ...


class DeadlockDetector:
    """The deadlock detector of one rank, for one wait at a time. Before open() it sends and reads nothing."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._port: socket.socket | None = None
        self._token = b""
        self._others: Mapping[int, Place] = {}
        self._streams: Mapping[int, Stream] = {}
        self._serial = 0
        self._wait: Wait | None = None
        self._still: Callable[[], bool] = bool
        self._due = self._pause = 0.0
        self._question = 0
        self._asked: set[int] = set()
        self._answers: dict[int, Wait] = {}
        self._first: dict[int, Wait] = {}  # the answers of the first round, during the second

    def open(
        self, port: socket.socket, token: bytes, others: Mapping[int, Place], streams: Mapping[int, Stream]
    ) -> None:
        """Begin detection. `port` receives datagrams that carry `token`. others: ports and tokens of the other ranks."""
        self._port, self._token, self._others, self._streams = port, token, others, streams

    def register(self, poll: select.poll) -> None:
        """Let `poll` return when a datagram has arrived."""
        if self._port is not None:
            poll.register(self._port, select.POLLIN)

    def start_wait(
        self, header: bytes, still: Callable[[], bool], sources: Collection[int], sinks: Collection[int] = ()
    ) -> None:
        """Note that this rank has waited for a while. still: whether it must still wait; False once bytes have arrived."""
        self._serial += 1
        self._wait = Wait(self._rank, self._serial, header, tuple(sources), tuple(sinks))
        self._still = still
        self._due, self._pause = 0.0, MISMATCH_POLL_SECONDS

    def end_wait(self) -> None:
        """Note that the wait is over."""
        self._wait = None

    def poll(self) -> None:
        """Answer questions, and ask when it is time. Mismatch if the wait can never end."""
        if self._wait is None or self._port is None:
            return
        for kind, sender, question, waits in self._datagrams():
            if kind == _ASK and self._still():
                self._send(_TELL, sender, question, [self._own(self._wait)])
            elif kind == _TELL and question == self._question and sender in self._asked and sender in waits:
                self._receive_answer(waits[sender], self._wait)
            elif kind == _PROOF and self._concerns(waits):
                raise deadlock_error(self._rank, waits)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._pause *= 2
            self._first = {}
            self._ask(self._wait.awaited, {self._rank: self._own(self._wait)})

    def reported_deadlock(self) -> Mismatch | None:
        """The error of a deadlock that another rank has proved and that contains this rank's latest wait, or None."""
        for kind, _, _, waits in self._datagrams():
            if kind == _PROOF and self._concerns(waits):
                return deadlock_error(self._rank, waits)
        return None

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _own(self, wait: Wait) -> Wait:
        return replace(wait, unread=tuple(rank for rank, stream in self._streams.items() if stream.unread()))

    def _concerns(self, waits: Mapping[int, Wait]) -> bool:
        return self._rank in waits and waits[self._rank].serial == self._serial

    def _ask(self, ranks: Collection[int], answers: dict[int, Wait]) -> None:
        """Begin a round of questions. Answers to earlier rounds no longer count."""
        self._question += 1
        self._answers = answers
        self._asked = set(answers)
        self._ask_others(ranks)

    def _ask_others(self, ranks: Collection[int]) -> None:
        for other in sorted(set(ranks) - self._asked):
            self._asked.add(other)
            self._send(_ASK, other, self._question)

    def _receive_answer(self, wait: Wait, own: Wait) -> None:
        """Take an answer. The last answer of the first round begins the second; the last of the second proves the deadlock."""
        self._answers[wait.rank] = wait
        if self._first:
            if wait.serial != self._first[wait.rank].serial:
                self._asked = set()  # the rank has continued since
            elif self._asked == self._answers.keys() and self._still():
                for other in self._asked - {self._rank}:
                    self._send(_PROOF, other, 0, self._first.values())
                raise deadlock_error(self._rank, self._first)
            return
        self._ask_others(wait.awaited)
        if self._asked == self._answers.keys() and is_deadlock(self._answers):
            self._first = self._answers
            self._ask(self._first, {self._rank: own})

    def _send(self, kind: int, other: int, question: int, waits: Collection[Wait] = ()) -> None:
        if self._port is None or other not in self._others:
            return
        place, token = self._others[other]
        start = _START.pack(token, kind, self._rank, question)
        with suppress(OSError):  # no rank listens, or the buffer is full: the next round asks again
            self._port.sendto(start + pack(waits), socket.MSG_DONTWAIT, place)

    def _datagrams(self) -> Iterator[tuple[int, int, int, dict[int, Wait]]]:
        """The kind, sender, question number and waits of each datagram that has come from another rank."""
        for _ in range(_MAX_DATAGRAMS if self._port is not None else 0):
            assert self._port is not None
            try:
                datagram = self._port.recv(_MAX_DATAGRAM_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                continue  # an earlier datagram reached no process
            if len(datagram) < _START.size:
                continue
            token, kind, sender, question = _START.unpack_from(datagram)
            if not hmac.compare_digest(token, self._token) or sender not in self._others:
                continue
            with suppress(ValueError):
                yield kind, sender, question, unpack(datagram[_START.size :])
