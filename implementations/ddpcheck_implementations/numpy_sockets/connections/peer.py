"""A connection to one peer: whole messages both ways. Every error names the peer.

The socket is blocking, with its time limit in the kernel, so that a small message costs one system call each way.
send_some() and receive_some() do not block; the ring and send_receive() use them.
"""

from __future__ import annotations

import fcntl
import select
import socket
import struct
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ddpcheck.seeded_values import Array

from ..errors import CommunicationError, Mismatch, PeerLost
from ..shared_memory.waiting import Polling
from . import wire_format
from .deadlock_detector import DeadlockDetector
from .socket_options import MISMATCH_POLL_SECONDS, set_options

_NOTHING = np.empty(0, np.uint8)
_SPINS = 20  # polling a socket takes longer than polling memory


@dataclass(slots=True)
class Traffic:
    """Messages and bytes sent by this rank. A ring counts one message a step. Payload excludes headers."""

    messages: int = 0
    payload_bytes: int = 0
    header_bytes: int = 0


class Link(Protocol):
    """Whole messages to and from another rank, in order. Payloads are contiguous flat arrays."""

    def send(self, header: bytes, payload: Array) -> None: ...

    def receive(self, header: bytes, payload: Array) -> None: ...


class Peer:
    """A connection to `rank`. `other_peers` are this rank's other peers; all share a `detector`. `timeout` is in seconds."""

    def __init__(
        self,
        connection: socket.socket,
        own_rank: int,
        rank: int,
        timeout: float,
        traffic: Traffic,
        detector: DeadlockDetector,
        oversubscribed: bool,
    ) -> None:
        self.rank = rank
        self.timeout = timeout
        self.detector = detector
        self.traffic = traffic
        self._own_rank = own_rank
        self._socket = connection
        # the kernel wakes a waiting thread fast
        self.polling = (lambda: iter(())) if oversubscribed else Polling(_SPINS)
        self._whole = True  # False while a message is partly sent
        self.other_peers: Sequence[Peer] = ()
        self.receiving = b""  # header of the message that is awaited or being received
        self.sending = b""  # header of the latest message that is or was being sent
        self._header = bytearray(wire_format.HEADER_BYTES)
        set_options(connection, timeout)

    def fileno(self) -> int:
        return self._socket.fileno()

    # ------------------------------------------------------------------------------------------------ whole messages

    def send(self, header: bytes, payload: Array = _NOTHING) -> None:
        """Send one message. PeerLost if the peer is gone or takes nothing within the time limit."""
        traffic = self.traffic
        traffic.messages += 1
        traffic.payload_bytes += payload.nbytes
        traffic.header_bytes += len(header)
        self._whole = False
        self.sending = header
        try:
            sent = self._socket.sendmsg((header, payload.data))
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._closed_error() from error
        if sent < len(header) + payload.nbytes:
            self._send_rest(memoryview(header)[sent:])
            self._send_rest(as_bytes(payload)[max(0, sent - len(header)) :])
        self._whole = True

    def receive(self, header: bytes, payload: Array = _NOTHING) -> None:
        """Receive one message. Mismatch as soon as its header differs from `header`; PeerLost as send."""
        got, self.receiving = self._header, header
        try:
            received = self._receive_first_part((got, payload.data))
            if received < wire_format.HEADER_BYTES:
                self._receive_rest(memoryview(got), received)
                received = wire_format.HEADER_BYTES
            if got != header:
                raise self.header_error(bytes(got), header)
            if received < wire_format.HEADER_BYTES + payload.nbytes:
                self._receive_rest(as_bytes(payload), received - wire_format.HEADER_BYTES)
        except (OSError, EOFError) as error:
            raise self._closed_error() from error

    def _receive_first_part(self, buffers: tuple[bytearray, memoryview]) -> int:
        """Receive the first part of a message, as soon as there is any. Returns its bytes."""
        for _ in self.polling():
            try:
                return self._socket.recvmsg_into(buffers, 0, socket.MSG_DONTWAIT)[0]
            except BlockingIOError:
                pass
        received: int = self._receive_before_deadline(self._socket.recvmsg_into, buffers)[0]
        return received

    def _receive_rest(self, view: memoryview, received: int) -> None:
        while received < len(view):
            more = self._receive_before_deadline(self._socket.recv_into, view[received:], 0, socket.MSG_WAITALL)
            if not more:
                raise EOFError
            received += more

    def _receive_before_deadline(self, receive: Callable[..., Any], *args: object) -> Any:
        """Call `receive`, which blocks for MISMATCH_POLL_SECONDS, until it succeeds. Errors as of wait_longer()."""
        while True:
            start = time.monotonic()
            try:
                return receive(*args)
            except BlockingIOError:
                wait_longer(self, None, start + self.timeout)

    def _send_rest(self, view: memoryview) -> None:
        while view:
            start = time.monotonic()
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                wait_longer(None, self, start + self.timeout)
            except OSError as error:
                raise self._closed_error() from error

    # -------------------------------------------------------------------------------------------- streams, without blocking

    def start_stream(self, header: bytes) -> None:
        """Send the header of a message whose payload follows by send_some()."""
        self._whole = False
        self.sending = header
        self.traffic.header_bytes += len(header)
        self._send_rest(memoryview(header))

    def end_stream(self, messages: int) -> None:
        """End a stream whose payload is sent; count it as `messages` messages, the steps of the algorithm."""
        self.traffic.messages += messages
        self._whole = True

    def send_some(self, view: memoryview) -> int:
        """Send as many bytes as the kernel takes now, and return how many."""
        try:
            sent = self._socket.send(view, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._closed_error() from error
        self.traffic.payload_bytes += sent
        return sent

    def receive_some(self, view: memoryview) -> int:
        """Receive the bytes that have arrived, and return how many."""
        try:
            received = self._socket.recv_into(view, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._closed_error() from error
        if not received:
            raise self._closed_error()
        return received

    # ----------------------------------------------------------------------------------------------------------- ends

    def has_closed(self) -> bool:
        """Whether the peer has closed its end, and all its messages are read."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def unread(self) -> bool:
        """Whether bytes that were sent to the peer may still be in transit."""
        try:
            (queued,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        except OSError:
            return True
        return bool(queued)

    def find_error(self, header: bytes) -> CommunicationError | None:
        """Return the error if this operation cannot finish in memory: the peer has sent a message here, or has closed."""
        try:
            peeked = self._peek_header()
        except BlockingIOError:
            return None
        except OSError:
            peeked = b""
        if not peeked:
            return self._closed_error()
        return self.header_error(peeked, header) if len(peeked) == wire_format.HEADER_BYTES else None

    def find_mismatch(self, header: bytes) -> CommunicationError | None:
        """Return the error if one of `other_peers` is in another operation than that of `header`.

        Its message might never be read in turn: ranks with mismatched calls may wait for each other in a circle.
        """
        for peer in self.other_peers:
            with suppress(OSError):
                peeked = peer._peek_header()
                if len(peeked) == wire_format.HEADER_BYTES and wire_format.calls_diverge(peeked, header):
                    return peer.header_error(peeked, header)
        return None

    def raise_on_mismatch(self) -> None:
        """Raise Mismatch if another peer is in another operation than the message awaited here."""
        mismatch = self.find_mismatch(self.receiving)
        if mismatch is not None:
            raise mismatch

    def _peek_header(self) -> bytes:
        """Return the first unread bytes: between messages, a header. BlockingIOError if there are none."""
        return self._socket.recv(wire_format.HEADER_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)

    def abort(self, culprit: int) -> None:
        """End this rank's stream. Between two messages, send the `culprit` to the peer first."""
        try:
            if self._whole:
                self._socket.send(wire_format.pack_abort(culprit), socket.MSG_DONTWAIT)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the peer is gone, or its time limit ends its wait

    def close(self) -> None:
        """Close. Reads unread data first: otherwise the kernel would reset the connection and drop sent bytes."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16, socket.MSG_DONTWAIT):
                pass
        except OSError:
            pass  # nothing is unread, or the peer has closed before
        self._socket.close()

    def timed_out(self, verb: str) -> PeerLost:
        """Return the error of a peer that has "sent" or "taken" nothing within the time limit."""
        return PeerLost(
            self.rank,
            f"rank {self.rank} has {verb} nothing for {self.timeout:g} s: it is stuck, or has not called this operation; "
            "look at its stack, or raise NUMPY_SOCKETS_TIMEOUT",
        )

    def _closed_error(self) -> CommunicationError:
        """Return the error of a peer that closed its connection: a deadlock, if another rank has proved one."""
        return self.detector.reported_deadlock() or PeerLost(
            self.rank,
            f"rank {self.rank} closed its connection to rank {self._own_rank}: it died or gave up; see its output",
        )

    def header_error(self, got: bytes, wanted: bytes) -> CommunicationError:
        """Return the error of a message with another header: its sender gave up, or is in another operation."""
        culprit = wire_format.culprit_of(got)
        told = None if culprit is None else self.detector.reported_deadlock() or self.find_mismatch(wanted)
        if culprit == self._own_rank:
            here = wire_format.describe(wanted)
            return told or PeerLost(
                self.rank,
                f"rank {self.rank} gave up because this rank, {culprit}, is in another operation: {here}. The output of rank "
                f"{self.rank} shows both operations",
            )
        if culprit is not None:
            return told or PeerLost(
                culprit, f"rank {self.rank} gave up because of rank {culprit}; see the output of rank {culprit}"
            )
        here, there = wire_format.describe(wanted), wire_format.describe(got)
        return Mismatch(
            self.rank,
            f"rank {self._own_rank} is in {here}, but rank {self.rank} sent {there}: all ranks must call the same operations "
            "in the same order, with arrays of equal size and dtype",
        )


def as_bytes(array: Array) -> memoryview:
    """Return the memory of a contiguous array."""
    return array.view(np.uint8).data


def wait_for(reader: Peer | None, writer: Peer | None) -> None:
    """Return when `reader` has bytes or `writer` takes some. Errors as of wait_longer()."""
    ready, slowest = _poll(reader, writer), reader or writer
    assert slowest is not None
    for _ in slowest.polling():
        if ready.poll(0):
            return
    start = time.monotonic()
    if not ready.poll(1000 * min(slowest.timeout, MISMATCH_POLL_SECONDS)):
        wait_longer(reader, writer, start + slowest.timeout)


def wait_longer(reader: Peer | None, writer: Peer | None, latest: float) -> None:
    """Return when `reader` has bytes or `writer` takes some.

    PeerLost if neither does by `latest`. Mismatch if ranks have called different operations, or wait in a circle.
    """
    slowest = reader or writer
    assert slowest is not None
    ready, awake, detector = _poll(reader, writer), _poll(reader, writer), slowest.detector
    detector.register(awake)
    sources, sinks = ([peer.rank] if peer else [] for peer in (reader, writer))
    header = reader.receiving if reader else slowest.sending
    detector.start_wait(header, lambda: not ready.poll(0), sources, sinks)
    try:
        while not ready.poll(0):
            left = latest - time.monotonic()
            if left < 0:
                raise slowest.timed_out("sent" if reader else "taken")
            if reader is not None:
                reader.raise_on_mismatch()
            detector.poll()
            awake.poll(1000 * min(left, MISMATCH_POLL_SECONDS))
    finally:
        detector.end_wait()


def _poll(reader: Peer | None, writer: Peer | None) -> select.poll:
    poll = select.poll()
    if reader is not None and reader is writer:
        poll.register(reader, select.POLLIN | select.POLLOUT)
    else:
        if reader is not None:
            poll.register(reader, select.POLLIN)
        if writer is not None:
            poll.register(writer, select.POLLOUT)
    return poll
