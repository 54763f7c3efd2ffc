"""Messages between ranks of one host through shared memory: the sender copies once, and readers compute in place.

Every rank has a board: memory that it alone writes, and that the others map. On it are

    tickets for each other rank r, 64 bytes: word n % SLOTS has the slot of the n-th message to r
    acks    for each other rank r, 64 bytes: the number of r's messages that this rank is done with, and whether it sleeps
    slots   SLOTS blocks, each behind the header (wire_format.py) of its operation
    buffer  two halves for express reductions (express.py)

Tickets and acks only grow, so nothing is reset, and an early reader cannot mistake an old message for a new one. A slot is
written again once all its readers are done with it. Words of 64 bits are written at once.

A ticket must not be visible before the block that it announces. x86 processors keep stores in program order, and loads too.
Others do not, and NumPy has no memory barrier, so ranks use sockets there (processor_keeps_store_order()).

A waiting rank polls while no other thread needs its processor, then sleeps until the other rank wakes it. Meanwhile it
watches its socket to that rank, which shows that rank's end or failure. Deadlocks are detected as over sockets
(deadlock_detector.py).
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
from ..connections.socket_options import MISMATCH_POLL_SECONDS
from ..errors import CommunicationError
from .plans import BUFFER_BYTES, DoubleBuffer
from .waiting import Polling, WakeUpPipe, WakeUpSender

SLOTS = 4
BLOCK_BYTES = 512 * 1024
"""The blocks of two ranks and their result stay in the cache."""

_LINE = 64
_TICKET = 8  # a ticket is the number of its message times this, plus its slot
ASLEEP = 1  # word 0 counts acks; word 1 is set while this rank sleeps
_SPINS = 1000  # some 50 microseconds
_RECHECK_SECONDS = 0.02
"""Seconds after which a sleeping rank checks its word again: a load may overtake a store, so a wake-up may be missing."""


def processor_keeps_store_order() -> bool:
    """Whether other processors see the stores of this one in program order."""
    return platform.machine().lower() in ("x86_64", "amd64", "i686", "i386")


def board_bytes(ranks: int) -> int:
    """Return the bytes of a board for `ranks` ranks."""
    return 2 * ranks * _LINE + SLOTS * (_LINE + BLOCK_BYTES) + BUFFER_BYTES


class _Slot:
    """One block of a board: its header, and its elements as an array of each dtype."""

    __slots__ = ("elements", "header", "readers")

    def __init__(self, board: memoryview, start: int) -> None:
        self.header = board[start : start + wire_format.HEADER_BYTES]
        block = board[start + _LINE : start + _LINE + BLOCK_BYTES]
        self.elements: dict[np.dtype[np.generic], Array] = {
            np.dtype(name): np.frombuffer(block, name) for name in wire_format.DTYPES
        }
        self.readers: list[tuple[BoardChannel, int]] = []


class BoardChannel:
    """The parts of two ranks' boards for each other. `peer` is the connection between them."""

    __slots__ = (
        "announced",
        "done",
        "peer",
        "place",
        "received",
        "sent",
        "slots",
        "taken",
        "ticket",
        "tickets",
        "waker",
        "words",
    )

    def __init__(
        self,
        own: memoryview,
        place: int,
        theirs: memoryview,
        their_place: int,
        ranks: int,
        peer: Peer,
        waker: WakeUpSender,
    ) -> None:
        self.peer, self.waker = peer, waker
        self.sent = self.received = 0
        self.place, self.ticket = 1, _TICKET  # where the next message is announced, and its least ticket
        self.tickets, self.done = _words(own, their_place), _words(own, ranks + their_place)
        self.announced, self.taken = _words(theirs, place), _words(theirs, ranks + place)
        self.slots = _slots(theirs, ranks)
        self.words = _double_buffer(theirs, ranks).words

    def wake(self) -> None:
        """Wake the other rank if it sleeps."""
        if self.taken[ASLEEP]:
            self.waker.wake()


class MessageBoard:
    """This rank's board, and a channel to every other rank of the host.

    The ranks of an operation publish and take the same messages in the same order.
    """

    def __init__(
        self,
        rank: int,
        boards: Mapping[int, memoryview],
        wake_up: WakeUpPipe,
        wakers: Mapping[int, WakeUpSender],
        peers: Mapping[int, Peer],
        traffic: Traffic,
        *,
        oversubscribed: bool,
    ) -> None:
        order = sorted(boards)
        place, own, ranks = order.index(rank), boards[rank], len(order)
        self.channels = {
            other: BoardChannel(own, place, boards[other], there, ranks, peers[other], wakers[other])
            for there, other in enumerate(order)
            if other != rank
        }
        self.buffers = [_double_buffer(boards[other], ranks) for other in order]
        self.place = place
        self._words = self.buffers[place].words  # two, of which the larger is the latest
        self._code = wire_format.group_code(order)
        self._own = _slots(own, ranks)
        self._published = 0
        self.traffic = traffic
        self._wake_up = wake_up
        self.oversubscribed = oversubscribed
        self._polling = Polling(_SPINS, oversubscribed=oversubscribed)

    def publish(self, readers: Sequence[BoardChannel], header: bytes, block: Array, counted: int) -> Array:
        """Send an array of at most BLOCK_BYTES to `readers`, which read `counted` bytes in all. Returns the published copy."""
        index = self._published % SLOTS
        self._published += 1
        slot = self._own[index]
        for channel, number in slot.readers:
            if channel.taken[0] < number:
                self._wait(channel, channel.taken, 0, number, header, "taken")
        slot.header[:] = header
        elements = slot.elements[block.dtype][: block.size]
        if block.ndim == 1:
            elements[:] = block
        else:
            elements.reshape(block.shape)[...] = block
        slot.readers = pending = []
        for channel in readers:
            channel.sent = number = channel.sent + 1
            pending.append((channel, number))
            channel.tickets[number % SLOTS] = number * _TICKET + index
            channel.wake()
        self.count(len(readers), counted)
        return elements

    def count(self, messages: int, payload_bytes: int) -> None:
        """Count messages and payload bytes as a network would carry them."""
        traffic = self.traffic
        traffic.messages += messages
        traffic.payload_bytes += payload_bytes
        traffic.header_bytes += wire_format.HEADER_BYTES * messages

    def take(self, channel: BoardChannel, header: bytes, dtype: np.dtype[np.generic], size: int) -> Array:
        """Return the elements of the next block of a channel, valid until done(). Mismatch if it is of another operation."""
        place, ticket = channel.place, channel.ticket
        channel.received += 1
        channel.place, channel.ticket = (place + 1) % SLOTS, ticket + _TICKET
        if channel.announced[place] < ticket:
            self._wait(channel, channel.announced, place, ticket, header, "sent")
        slot = channel.slots[channel.announced[place] - ticket]
        if slot.header != header:
            raise channel.peer.header_error(bytes(slot.header), header)
        return slot.elements[dtype][:size]

    def done(self, channel: BoardChannel) -> None:
        """Return the block of the last take() to its owner."""
        channel.done[0] = channel.received
        channel.wake()

    def close(self) -> None:
        self._wake_up.close()
        for channel in self.channels.values():
            channel.waker.close()

    def wait_for_word(self, channel: BoardChannel, half: int, word: int) -> None:
        """Return once `word` is in that half. Mismatch if the next word there, or the next message, is of another operation."""
        words = channel.words
        for _ in self._polling():
            if words[half] == word:
                return
        header = wire_format.unpack_word(word, self._code)
        self._sleep(
            channel, words, half, word >> wire_format.OPERATION_BITS << wire_format.OPERATION_BITS, header, "sent"
        )
        if words[half] != word:
            self.refuse_unread(channel, word)  # the message precedes the word
            raise channel.peer.header_error(wire_format.unpack_word(words[half], self._code), header)

    def refuse_unread(self, channel: BoardChannel, word: int) -> None:
        """Raise Mismatch if an unread message of the channel precedes the operation of `word`."""
        message = self._find_later_operation(channel, channel.words, wire_format.unpack_word(word, self._code))
        if message is not None:
            raise message

    def _wait(self, channel: BoardChannel, words: memoryview, place: int, least: int, header: bytes, verb: str) -> None:
        """Return once the word is `least` or more. PeerLost or Mismatch if the peer ends, fails or calls something else."""
        for _ in self._polling():
            if words[place] >= least:
                return
        self._sleep(channel, words, place, least, header, verb)

    def _sleep(
        self, channel: BoardChannel, words: memoryview, place: int, least: int, header: bytes, verb: str
    ) -> None:
        """As _wait, asleep until the other rank wakes this one."""
        peer, detector = channel.peer, channel.peer.detector
        poll = select.poll()
        poll.register(self._wake_up, select.POLLIN)
        poll.register(peer, select.POLLIN)
        channel.done[ASLEEP] = 1
        ends = ((), (peer.rank,)) if verb == "taken" else ((peer.rank,), ())
        start, woken, long = time.monotonic(), True, False
        try:
            while words[place] < least:
                error = peer.find_error(header) or self._find_later_operation(channel, words, header)
                if error is None and not woken:
                    error = peer.find_mismatch(header)
                if words[place] >= least:  # the word came before the peer ended or went on
                    return
                if error is not None:
                    raise error
                waited = time.monotonic() - start
                if waited > peer.timeout:
                    raise peer.timed_out(verb)
                if long:
                    detector.poll()
                elif waited > MISMATCH_POLL_SECONDS:
                    long = True
                    detector.start_wait(header, lambda: words[place] < least, *ends)
                    detector.register(poll)
                woken = bool(poll.poll(_RECHECK_SECONDS * 1000))
                self._wake_up.drain()
        finally:
            channel.done[ASLEEP] = 0
            detector.end_wait()

    def _find_later_operation(
        self, channel: BoardChannel, words: memoryview, header: bytes
    ) -> CommunicationError | None:
        """Return the error if the other rank is in a later operation: it sent a message in place of a word, or the reverse."""
        if words is channel.words:
            ahead = channel.announced[channel.place] - channel.ticket
            return channel.peer.header_error(bytes(channel.slots[ahead].header), header) if ahead >= 0 else None
        word = max(channel.words[0], channel.words[1])
        gone_on = word >> wire_format.OPERATION_BITS > max(self._words) >> wire_format.OPERATION_BITS
        return channel.peer.header_error(wire_format.unpack_word(word, self._code), header) if gone_on else None


def _words(board: memoryview, channel: int) -> memoryview:
    return board[channel * _LINE : (channel + 1) * _LINE].cast("Q")


def _slots(board: memoryview, ranks: int) -> list[_Slot]:
    start = 2 * ranks * _LINE
    return [_Slot(board, start + slot * (_LINE + BLOCK_BYTES)) for slot in range(SLOTS)]


def _double_buffer(board: memoryview, ranks: int) -> DoubleBuffer:
    start = board_bytes(ranks) - BUFFER_BYTES
    return DoubleBuffer(board[start : start + BUFFER_BYTES])
