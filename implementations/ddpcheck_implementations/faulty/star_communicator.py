"""A short correct communicator, in which every rank connects to rank 0, with seams for faults of the rendezvous."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddpcheck.contract import TYPICAL
from ddpcheck.contract.adapter import Facets
from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from ..numpy_sockets.rendezvous.accepting import accept_ranks
from .registry import Registering

LENGTH = struct.Struct("!Q")
HELLO = struct.Struct("!4sI")  # magic, rank
MAGIC = b"STAR"
PATIENCE = 20.0
PROMISED = TYPICAL.of_facets("collectives").but(
    operations=frozenset({"all_gather", "all_reduce"}),
    reductions=frozenset({"sum"}),
    restarts_in_place=True,
    closed_to_strangers=True,
)


class Star:
    """Every rank sends its array to rank 0, which sends all arrays to every rank."""

    def __init__(self, context: RankContext) -> None:
        self.rank, self.world = context.rank, context.world_size
        self.place = context.master_addr, context.master_port
        self.links: dict[int, socket.socket] = {}
        if self.world > 1:
            self.links = self.host() if self.rank == 0 else {0: self.join()}

    def host(self) -> dict[int, socket.socket]:
        """Connections to all other ranks, by rank."""
        with self.listen() as listener:
            return self.admit(listener)

    def listen(self) -> socket.socket:
        return socket.create_server(self.place, backlog=64)

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        """Accept all ranks. Drop a client that does not send a valid rank."""

        def judge(hello: bytes) -> int | None:
            magic, rank = HELLO.unpack(hello)
            return int(rank) if magic == MAGIC and 0 < rank < self.world else None

        expected = set(range(1, self.world))
        return accept_ranks(listener, HELLO.size, judge, str.encode, expected, time.monotonic() + PATIENCE, "rank 0")

    def join(self) -> socket.socket:
        link = self.dial()
        link.sendall(self.hello())
        return link

    def hello(self) -> bytes:
        return HELLO.pack(MAGIC, self.rank)

    def dial(self) -> socket.socket:
        """Connect to rank 0, and try again until it listens."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_connection(self.place)
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.01)

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        own = array.tobytes()
        if self.rank == 0:
            parts = [own, *(self.receive(self.links[rank]) for rank in range(1, self.world))]
            for link in self.links.values():
                self.send(link, b"".join(parts))
            whole = b"".join(parts)
        else:
            self.send(self.links[0], own)
            whole = self.receive(self.links[0])
        return np.frombuffer(whole, array.dtype).reshape(self.world, *array.shape).copy()

    def all_reduce(self, array: Array, op: str = "sum", *, group: Sequence[int] | None = None) -> Array:
        total, *others = self.all_gather(array)
        for other in others:
            total = total + other
        return np.asarray(total)

    def send(self, link: socket.socket, text: bytes) -> None:
        link.sendall(LENGTH.pack(len(text)) + text)

    def receive(self, link: socket.socket) -> bytes:
        return exactly(link, *LENGTH.unpack(self.header(link)))

    def header(self, link: socket.socket) -> bytes:
        return exactly(link, LENGTH.size)

    def close(self) -> None:
        for link in self.links.values():
            link.close()


def exactly(link: socket.socket, size: int) -> bytes:
    """Receive size bytes, in any number of pieces. Raises EOFError if the peer has closed the connection."""
    got = bytearray()
    while len(got) < size:
        piece = link.recv(size - len(got))
        if not piece:
            raise EOFError("the peer is gone")
        got += piece
    return bytes(got)


@dataclass(frozen=True)
class _Connect:
    made: type[Star]

    def __call__(self, context: RankContext) -> Facets:
        made = self.made(context)
        return Facets(rank=context.rank, world_size=context.world_size, collectives=made, close=made.close)


star: Registering[type[Star]] = Registering(_Connect, PROMISED)
