"""Messages between ranks of one host through memory that they share: one copy in, and readers compute from where it is.

Every rank has a board: memory that it alone writes, and that the others map. On it are

    lines   for each other rank r, 64 bytes of tickets: word n % SLOTS says in which slot the n-th message to r is
    acks    for each other rank r, 64 bytes: how many of r's messages this rank has done with, and whether it sleeps
    slots   SLOTS blocks, each after the header (wire_format.py) of the operation that it belongs to
    halves  for operations that need neither (small_reductions.py)

Tickets and acks only ever grow, so nothing is ever reset, and a reader that is early cannot take an old message for a new
one. A slot is written again once all its readers are done with it. Words of 64 bits are written whole.

Order matters: a ticket must not be seen before the block that it announces. x86 processors keep stores in the order of
the program, and loads too; others do not, and NumPy has no barrier, so sockets are used there (keeps_order()).

A rank that waits looks again and again, as long as nobody else wants its processor, then it sleeps until the other one rings.
Meanwhile it looks at the socket of the one it waits for: a peer that ends, fails or gives up says so there. Ranks that wait in a
circle find out as those over sockets do (lookout.py).
"""

from __future__ import annotations

import platform
import select
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ddpcheck.seeded_values import Array

from ..connections import wire_format
from ..connections.peer import Peer, Traffic
from ..connections.socket_options import LOOK_SECONDS
from ..errors import CommunicationError
from .plans import HALVES_BYTES, Halves
from .waiting import Polling
from .wake_up import Bell, Rope

SLOTS = 4
BLOCK_BYTES = 512 * 1024
"""Two ranks' blocks and their result stay in the cache."""

_LINE = 64
_TICKET = 8  # a ticket is its number times this, plus its slot
ASLEEP = 1  # the word after the count of acks: this rank sleeps until the other one rings
_SPINS = 1000  # some 50 microseconds
_LOOK_AGAIN = 0.02
"""Seconds after which a sleeper looks for itself: a store may pass a load, so that a bell is not rung (it was never seen)."""


def keeps_order() -> bool:
    """Whether this processor keeps stores in order."""
    return platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")


def board_bytes(ranks: int) -> int:
    """The size of a board among so many ranks."""
    return 2 * ranks * _LINE + SLOTS * (_LINE + BLOCK_BYTES) + HALVES_BYTES


class _Slot:
    """One block of a board: its header, and its elements as an array of each dtype."""

    __slots__ = ("elements", "header", "readers")

    def __init__(self, board: memoryview, start: int) -> None:
        self.header = board[start : start + wire_format.HEADER_BYTES]
        block = board[start + _LINE : start + _LINE + BLOCK_BYTES]
        self.elements: dict[np.dtype[np.generic], Array] = {
            np.dtype(name): np.frombuffer(block, name) for name in wire_format.DTYPES
        }
        self.readers: list[tuple[Line, int]] = []


class Line:
    """The parts of two ranks' boards that are for each other."""

    __slots__ = (
        "announced",
        "done",
        "peer",
        "place",
        "received",
        "rope",
        "sent",
        "slots",
        "taken",
        "ticket",
        "tickets",
        "words",
    )

    def __init__(
        self, own: memoryview, place: int, theirs: memoryview, their_place: int, ranks: int, peer: Peer, rope: Rope
    ) -> None:
        self.peer, self.rope = peer, rope
        self.sent = self.received = 0
        self.place, self.ticket = 1, _TICKET  # where the next message is announced, and from what ticket on
        self.tickets, self.done = _words(own, their_place), _words(own, ranks + their_place)
        self.announced, self.taken = _words(theirs, place), _words(theirs, ranks + place)
        self.slots = _slots(theirs, ranks)
        self.words = _halves(theirs, ranks).words

    def wake(self) -> None:
        """Tell the other rank, which may be waiting, that the message is there."""
        if self.taken[ASLEEP]:
            self.rope.pull()


class Board:
    """This rank's board, and a line to every other rank of the host.

    The ranks of an operation publish and take the same messages in the same order. `counted` is how many bytes others
    read of a block that is published.
    """

    def __init__(
        self,
        rank: int,
        boards: Mapping[int, memoryview],
        bell: Bell,
        ropes: Mapping[int, Rope],
        peers: Mapping[int, Peer],
        traffic: Traffic,
        *,
        crowded: bool,
    ) -> None:
        order = sorted(boards)
        place, own, ranks = order.index(rank), boards[rank], len(order)
        self.lines = {
            other: Line(own, place, boards[other], there, ranks, peers[other], ropes[other])
            for there, other in enumerate(order)
            if other != rank
        }
        self.halves = [_halves(boards[other], ranks) for other in order]
        self.place = place
        self._words = self.halves[place].words  # two, of which the larger is the latest
        self._code = wire_format.group_code(order)
        self._own = _slots(own, ranks)
        self._published = 0
        self.traffic = traffic
        self._bell = bell
        self.crowded = crowded
        self._looks = Polling(_SPINS, crowded=crowded)

    def publish(self, readers: Sequence[Line], header: bytes, block: Array, counted: int) -> Array:
        """Let `readers` have the elements of an array of at most BLOCK_BYTES. Returns the flat copy that they read."""
        index = self._published % SLOTS
        self._published += 1
        slot = self._own[index]
        for line, number in slot.readers:
            if line.taken[0] < number:
                self._wait(line, line.taken, 0, number, header, "taken")
        slot.header[:] = header
        elements = slot.elements[block.dtype][: block.size]
        if block.ndim == 1:
            elements[:] = block
        else:
            elements.reshape(block.shape)[...] = block
        slot.readers = pending = []
        for line in readers:
            line.sent = number = line.sent + 1
            pending.append((line, number))
            line.tickets[number % SLOTS] = number * _TICKET + index
            line.wake()
        self.count(len(readers), counted)
        return elements

    def count(self, messages: int, payload_bytes: int) -> None:
        """Bytes that a network would have had to carry."""
        traffic = self.traffic
        traffic.messages += messages
        traffic.payload_bytes += payload_bytes
        traffic.header_bytes += wire_format.HEADER_BYTES * messages

    def take(self, line: Line, header: bytes, dtype: np.dtype[np.generic], size: int) -> Array:
        """The elements of the next block from there, until done(). Mismatch if it belongs to another operation."""
        place, ticket = line.place, line.ticket
        line.received += 1
        line.place, line.ticket = (place + 1) % SLOTS, ticket + _TICKET
        if line.announced[place] < ticket:
            self._wait(line, line.announced, place, ticket, header, "sent")
        slot = line.slots[line.announced[place] - ticket]
        if slot.header != header:
            raise line.peer.unexpected(bytes(slot.header), header)
        return slot.elements[dtype][:size]

    def done(self, line: Line) -> None:
        """Give the block that was taken back to its owner."""
        line.done[0] = line.received
        line.wake()

    def close(self) -> None:
        self._bell.close()
        for line in self.lines.values():
            line.rope.close()

    def wait_for_word(self, line: Line, half: int, word: int) -> None:
        """Return once it is the word of that half. Mismatch if the next one there, or the next message, is another."""
        words = line.words
        for _ in self._looks():
            if words[half] == word:
                return
        header = wire_format.expand(word, self._code)
        self._sleep(line, words, half, word >> wire_format.WHAT_BITS << wire_format.WHAT_BITS, header, "sent")
        if words[half] != word:
            self.refuse_unread(line, word)  # sent before that
            raise line.peer.unexpected(wire_format.expand(words[half], self._code), header)

    def refuse_unread(self, line: Line, word: int) -> None:
        """Mismatch if a message from there comes before the operation that the word stands for."""
        message = self._astray(line, line.words, wire_format.expand(word, self._code))
        if message is not None:
            raise message

    def _wait(self, line: Line, words: memoryview, place: int, least: int, header: bytes, verb: str) -> None:
        """Return once the word is `least` or more. PeerLost or Mismatch if the peer says elsewhere that it never will be."""
        for _ in self._looks():
            if words[place] >= least:
                return
        self._sleep(line, words, place, least, header, verb)

    def _sleep(self, line: Line, words: memoryview, place: int, least: int, header: bytes, verb: str) -> None:
        """As _wait, until the other rank wakes this one."""
        peer, lookout = line.peer, line.peer.lookout
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(peer, select.POLLIN)
        line.done[ASLEEP] = 1
        ends = ((), (peer.rank,)) if verb == "taken" else ((peer.rank,), ())
        start, patient, long = time.monotonic(), False, False
        try:
            while words[place] < least:
                trouble = peer.trouble(header) or self._astray(line, words, header)
                if trouble is None and patient:
                    trouble = peer.stray(header)
                if words[place] >= least:  # it came before the peer ended, or went on
                    return
                if trouble is not None:
                    raise trouble
                waited = time.monotonic() - start
                if waited > peer.timeout:
                    raise peer.silent(verb)
                if long:
                    lookout.look()
                elif waited > LOOK_SECONDS:
                    long = True
                    lookout.begin(header, lambda: words[place] < least, *ends)
                    lookout.wake(poll)
                patient = not poll.poll(_LOOK_AGAIN * 1000)
                self._bell.silence()
        finally:
            line.done[ASLEEP] = 0
            lookout.end()

    def _astray(self, line: Line, words: memoryview, header: bytes) -> CommunicationError | None:
        """What to raise if the other rank has gone on: with a word if a message is awaited, with a message if it is a word."""
        if words is line.words:
            ahead = line.announced[line.place] - line.ticket
            return line.peer.unexpected(bytes(line.slots[ahead].header), header) if ahead >= 0 else None
        word = max(line.words[0], line.words[1])
        gone_on = word >> wire_format.WHAT_BITS > max(self._words) >> wire_format.WHAT_BITS
        return line.peer.unexpected(wire_format.expand(word, self._code), header) if gone_on else None


def _words(board: memoryview, line: int) -> memoryview:
    return board[line * _LINE : (line + 1) * _LINE].cast("Q")


def _slots(board: memoryview, ranks: int) -> list[_Slot]:
    start = 2 * ranks * _LINE
    return [_Slot(board, start + slot * (_LINE + BLOCK_BYTES)) for slot in range(SLOTS)]


def _halves(board: memoryview, ranks: int) -> Halves:
    start = board_bytes(ranks) - HALVES_BYTES
    return Halves(board[start : start + HALVES_BYTES])
