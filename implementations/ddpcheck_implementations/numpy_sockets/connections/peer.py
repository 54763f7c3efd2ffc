"""One connection to one peer: whole messages both ways, and an error that names the peer for all that can go wrong.

The socket is blocking, with the time limit in the kernel, so that a small message costs one system call each way. The
ring asks for no waiting call by call.
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
from .lookout import Lookout
from .socket_options import LOOK_SECONDS, set_options

_NOTHING = np.empty(0, np.uint8)
_SPINS = 20  # looks at a socket take longer than those at memory


@dataclass(slots=True)
class Traffic:
    """Bytes and messages sent by this rank. A ring counts one message a step; headers are counted apart."""

    messages: int = 0
    payload_bytes: int = 0
    header_bytes: int = 0


class Link(Protocol):
    """Whole messages to and from another rank, in order, from and into contiguous flat arrays."""

    def send(self, header: bytes, payload: Array) -> None: ...

    def receive(self, header: bytes, payload: Array) -> None: ...


class Peer:
    """The other end of a connection is rank `rank`. `beside` are this rank's other ones, which share its `lookout`."""

    def __init__(
        self,
        connection: socket.socket,
        own_rank: int,
        rank: int,
        timeout: float,
        traffic: Traffic,
        lookout: Lookout,
        crowded: bool,
    ) -> None:
        self.rank = rank
        self.timeout = timeout
        self.lookout = lookout
        self.traffic = traffic
        self._own_rank = own_rank
        self._socket = connection
        self.looks = (lambda: iter(())) if crowded else Polling(_SPINS)  # the kernel wakes a waiting thread fast
        self._whole = True  # no message is half sent
        self.beside: Sequence[Peer] = ()
        self.wanted = b""  # the header of the message that is awaited, or comes in
        self.given = b""  # that of the message that goes out, or was the last to
        self._header = bytearray(wire_format.HEADER_BYTES)
        set_options(connection, timeout)

    def fileno(self) -> int:
        return self._socket.fileno()

    # ------------------------------------------------------------------------------------------------ whole messages

    def send(self, header: bytes, payload: Array = _NOTHING) -> None:
        """One message, from a contiguous array."""
        traffic = self.traffic
        traffic.messages += 1
        traffic.payload_bytes += payload.nbytes
        traffic.header_bytes += len(header)
        self._whole = False
        self.given = header
        try:
            sent = self._socket.sendmsg((header, payload.data))
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise self._lost(error, "taken") from error
        if sent < len(header) + payload.nbytes:
            self._send_rest(memoryview(header)[sent:])
            self._send_rest(as_bytes(payload)[max(0, sent - len(header)) :])
        self._whole = True

    def receive(self, header: bytes, payload: Array = _NOTHING) -> None:
        """One message into a contiguous array. Mismatch if its header is not `header`, as soon as the header is there."""
        got, self.wanted = self._header, header
        try:
            received = self._first_of((got, payload.data))
            if received < wire_format.HEADER_BYTES:
                self._receive_rest(memoryview(got), received)
                received = wire_format.HEADER_BYTES
            if got != header:
                raise self.unexpected(bytes(got), header)
            if received < wire_format.HEADER_BYTES + payload.nbytes:
                self._receive_rest(as_bytes(payload), received - wire_format.HEADER_BYTES)
        except (OSError, EOFError) as error:
            raise self._lost(error, "sent") from error

    def _first_of(self, buffers: tuple[bytearray, memoryview]) -> int:
        """The part of a message that has arrived, as soon as there is any."""
        for _ in self.looks():
            try:
                return self._socket.recvmsg_into(buffers, 0, socket.MSG_DONTWAIT)[0]
            except BlockingIOError:
                pass
        received: int = self._patiently(self._socket.recvmsg_into, buffers)[0]
        return received

    def _receive_rest(self, view: memoryview, received: int) -> None:
        while received < len(view):
            more = self._patiently(self._socket.recv_into, view[received:], 0, socket.MSG_WAITALL)
            if not more:
                raise EOFError
            received += more

    def _patiently(self, receive: Callable[..., Any], *args: object) -> Any:
        """The result of `receive`, which waits for LOOK_SECONDS. PeerLost or Mismatch as wait_longer() has it."""
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
                raise self._lost(error, "taken") from error

    # -------------------------------------------------------------------------------------------- piece by piece (ring)

    def start_stream(self, header: bytes) -> None:
        """Send the header of a message whose payload follows by send_some()."""
        self._whole = False
        self.given = header
        self.traffic.header_bytes += len(header)
        self._send_rest(memoryview(header))

    def end_stream(self, messages: int) -> None:
        """All of the stream, which was `messages` steps of an algorithm, is sent."""
        self.traffic.messages += messages
        self._whole = True

    def send_some(self, view: memoryview) -> int:
        """Send what fits now; 0 if nothing does."""
        try:
            sent = self._socket.send(view, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error, "taken") from error
        self.traffic.payload_bytes += sent
        return sent

    def receive_some(self, view: memoryview) -> int:
        """Receive the bytes that have arrived; 0 if none have."""
        try:
            received = self._socket.recv_into(view, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error, "sent") from error
        if not received:
            raise self._lost(EOFError(), "sent")
        return received

    # ----------------------------------------------------------------------------------------------------------- ends

    def gone(self) -> bool:
        """The peer has closed its end, and said nothing before that we have not read."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def unread(self) -> bool:
        """Whether bytes that were sent to the peer may still be on their way."""
        try:
            (queued,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        except OSError:
            return True
        return bool(queued)

    def trouble(self, header: bytes) -> CommunicationError | None:
        """Why nothing will come by another way in the operation of this header: the peer's last words, or that it is gone.

        Anything else from it is a mismatch, too.
        """
        try:
            said = self._said()
        except BlockingIOError:
            return None
        except OSError as error:
            return self._lost(error, "sent")
        if not said:
            return self._lost(EOFError(), "sent")
        return self.unexpected(said, header) if len(said) == wire_format.HEADER_BYTES else None

    def stray(self, header: bytes) -> CommunicationError | None:
        """What to raise if one of `beside` has called something else where this rank is in the operation of this header.

        It may never be its turn to be heard: ranks that do not call the same may wait in a circle.
        """
        for peer in self.beside:
            with suppress(OSError):
                said = peer._said()
                if len(said) == wire_format.HEADER_BYTES and wire_format.part(said, header):
                    return peer.unexpected(said, header)
        return None

    def look_round(self) -> None:
        """Mismatch if there is a stray while a message is awaited from here, or comes in."""
        stray = self.stray(self.wanted)
        if stray is not None:
            raise stray

    def _said(self) -> bytes:
        """The first unread bytes: between messages, a header. BlockingIOError if there are none."""
        return self._socket.recv(wire_format.HEADER_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)

    def silent(self, verb: str) -> CommunicationError:
        """What to raise when it has "sent", or "taken", nothing within the time limit."""
        return self._lost(BlockingIOError(), verb)

    def abandon(self, culprit: int) -> None:
        """Tell the peer that no more will come, and why if the stream is between two messages."""
        try:
            if self._whole:
                self._socket.send(wire_format.pack_abort(culprit), socket.MSG_DONTWAIT)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it is gone, or will find out by its time limit

    def close(self) -> None:
        """Close. Sent bytes still arrive: the kernel delivers them after close, unless unread data makes it reset."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(1 << 16, socket.MSG_DONTWAIT):
                pass
        except OSError:
            pass  # nothing is unread, or the peer was faster
        self._socket.close()

    def _lost(self, error: Exception, verb: str) -> CommunicationError:
        if isinstance(error, BlockingIOError):
            return PeerLost(
                self.rank,
                f"rank {self.rank} has {verb} nothing for {self.timeout:g} s: it is stuck, or has not called this operation; "
                "look at its stack, or raise NUMPY_SOCKETS_TIMEOUT",
            )
        return self.lookout.proof() or PeerLost(
            self.rank,
            f"rank {self.rank} closed its connection to rank {self._own_rank}: it died or gave up; see its output",
        )

    def unexpected(self, got: bytes, wanted: bytes) -> CommunicationError:
        """What to raise when the header of a message is another one: its sender gave up, or calls something else."""
        culprit = wire_format.culprit_of(got)
        told = None if culprit is None else self.lookout.proof() or self.stray(wanted)
        if culprit == self._own_rank:
            here = wire_format.describe(wanted)
            return told or PeerLost(
                self.rank,
                f"rank {self.rank} gave up because of what rank {culprit}, this one, has called; it is in {here}. The output of "
                f"rank {self.rank} shows both sides",
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
    """A contiguous array's memory."""
    return array.view(np.uint8).data


def wait_for(reader: Peer | None, writer: Peer | None) -> None:
    """Return when one of them is ready. PeerLost or Mismatch as wait_longer() has it."""
    ready, slowest = _poll(reader, writer), reader or writer
    assert slowest is not None
    for _ in slowest.looks():
        if ready.poll(0):
            return
    start = time.monotonic()
    if not ready.poll(1000 * min(slowest.timeout, LOOK_SECONDS)):
        wait_longer(reader, writer, start + slowest.timeout)


def wait_longer(reader: Peer | None, writer: Peer | None, latest: float) -> None:
    """Return when one of them is ready.

    PeerLost if neither is by `latest`. Mismatch if ranks have called different operations, or wait in a circle.
    """
    slowest = reader or writer
    assert slowest is not None
    ready, awake, lookout = _poll(reader, writer), _poll(reader, writer), slowest.lookout
    lookout.wake(awake)
    sources, sinks = ([peer.rank] if peer else [] for peer in (reader, writer))
    header = reader.wanted if reader else slowest.given
    lookout.begin(header, lambda: not ready.poll(0), sources, sinks)
    try:
        while not ready.poll(0):
            left = latest - time.monotonic()
            if left < 0:
                raise slowest.silent("sent" if reader else "taken")
            if reader is not None:
                reader.look_round()
            lookout.look()
            awake.poll(1000 * min(left, LOOK_SECONDS))
    finally:
        lookout.end()


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
