"""Ranks that have waited for a while ask those they wait for whether they wait, too (waits.py): then all may wait for ever.

Questions and answers are datagrams between the ranks' own ports: streams hold messages that nobody may read now. Who does not
wait answers nothing, and its questions are dropped when there is no room for more. Lost datagrams cost time, and no more. Each
carries a token that its receiver has drawn, and told the other ranks over their connections.
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
from .waits import Wait, circle, go_on_never, pack, unpack

TOKEN_BYTES = 16
_START = struct.Struct(
    f"!{TOKEN_BYTES}sBIQ"
)  # the receiver's token, the kind, the sender, and the number of its question
_ASK, _TELL, _PROOF = range(3)
_LARGEST = 1 << 16
_MOST = 512
"""Datagrams read at once: all that fit the kernel's buffer. A stranger who sends more keeps nobody for longer."""
Place = tuple[tuple[str, int], bytes]
"""The address of another rank's port, and its token."""


class Stream(Protocol):
    """What is sent to another rank."""

    def unread(self) -> bool:
        """Whether some of it may still be on its way."""
        ...


class Lookout:
    """Of one rank, for one wait at a time. Before open() nothing is asked and nothing answered."""

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
        self._heard: dict[int, Wait] = {}
        self._first: dict[int, Wait] = {}  # all answers of the first time, when it is the second

    def open(
        self, port: socket.socket, token: bytes, others: Mapping[int, Place], streams: Mapping[int, Stream]
    ) -> None:
        """Datagrams that show `token` come in at `port`. streams: those to the others."""
        self._port, self._token, self._others, self._streams = port, token, others, streams

    def wake(self, poll: select.poll) -> None:
        """Let `poll` return when there is something to look at."""
        if self._port is not None:
            poll.register(self._port, select.POLLIN)

    def begin(
        self, header: bytes, still: Callable[[], bool], sources: Collection[int], sinks: Collection[int] = ()
    ) -> None:
        """This rank has waited for a while. still: whether it must go on; false as soon as anything has come."""
        self._serial += 1
        self._wait = Wait(self._rank, self._serial, header, tuple(sources), tuple(sinks))
        self._still = still
        self._due, self._pause = 0.0, MISMATCH_POLL_SECONDS

    def end(self) -> None:
        """The wait, if there is one, is over."""
        self._wait = None

    def look(self) -> None:
        """Answer, and ask if it is time to. Mismatch if the wait can never end."""
        if self._wait is None or self._port is None:
            return
        for kind, sender, question, said in self._datagrams():
            if kind == _ASK and self._still():
                self._say(_TELL, sender, question, [self._own(self._wait)])
            elif kind == _TELL and question == self._question and sender in self._asked and sender in said:
                self._hear(said[sender], self._wait)
            elif kind == _PROOF and self._concerns(said):
                raise circle(self._rank, said)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._pause
            self._pause *= 2
            self._first = {}
            self._ask(self._wait.awaited, {self._rank: self._own(self._wait)})

    def proof(self) -> Mismatch | None:
        """What another rank has found out about the latest wait of this one, before it gave up."""
        for kind, _, _, said in self._datagrams():
            if kind == _PROOF and self._concerns(said):
                return circle(self._rank, said)
        return None

    def close(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _own(self, wait: Wait) -> Wait:
        return replace(wait, unread=tuple(rank for rank, stream in self._streams.items() if stream.unread()))

    def _concerns(self, said: Mapping[int, Wait]) -> bool:
        return self._rank in said and said[self._rank].serial == self._serial

    def _ask(self, ranks: Collection[int], heard: dict[int, Wait]) -> None:
        """A new question. Answers to earlier ones count no more."""
        self._question += 1
        self._heard = heard
        self._asked = set(heard)
        self._ask_also(ranks)

    def _ask_also(self, ranks: Collection[int]) -> None:
        for other in sorted(set(ranks) - self._asked):
            self._asked.add(other)
            self._say(_ASK, other, self._question)

    def _hear(self, said: Wait, own: Wait) -> None:
        """An answer. When it was the last one, ask all again; when that was the last one, this is the end."""
        self._heard[said.rank] = said
        if self._first:
            if said.serial != self._first[said.rank].serial:
                self._asked = set()  # it has gone on
            elif self._asked == self._heard.keys() and self._still():
                for other in self._asked - {self._rank}:
                    self._say(_PROOF, other, 0, self._first.values())
                raise circle(self._rank, self._first)
            return
        self._ask_also(said.awaited)
        if self._asked == self._heard.keys() and go_on_never(self._heard):
            self._first = self._heard
            self._ask(self._first, {self._rank: own})

    def _say(self, kind: int, other: int, question: int, waits: Collection[Wait] = ()) -> None:
        if self._port is None or other not in self._others:
            return
        place, token = self._others[other]
        start = _START.pack(token, kind, self._rank, question)
        with suppress(OSError):  # nobody is there, or there is no room: it will be asked again
            self._port.sendto(start + pack(waits), socket.MSG_DONTWAIT, place)

    def _datagrams(self) -> Iterator[tuple[int, int, int, dict[int, Wait]]]:
        """Kind, sender, question and waits of each that has come from another rank."""
        for _ in range(_MOST if self._port is not None else 0):
            assert self._port is not None
            try:
                datagram = self._port.recv(_LARGEST, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                continue  # one that was sent came to nobody
            if len(datagram) < _START.size:
                continue
            token, kind, sender, question = _START.unpack_from(datagram)
            if not hmac.compare_digest(token, self._token) or sender not in self._others:
                continue
            with suppress(ValueError):
                yield kind, sender, question, unpack(datagram[_START.size :])
