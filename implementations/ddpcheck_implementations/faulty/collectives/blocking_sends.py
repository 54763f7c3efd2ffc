"""Collectives in which every rank sends before any rank receives, which works only if messages fit the kernel's buffers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from ..star_communicator import Star, star

SMALL_BUFFERS = "check_collectives_need_no_room_in_socket_buffers"
SENDS_AT_ONCE = "all-send-none-receives"


@star("exchange-sends-first", SMALL_BUFFERS, cause=SENDS_AT_ONCE)
class ExchangeSendsFirst(Star):
    """Rank 0 and each other rank send to each other before they receive."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        for link in self.links.values():
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        own = array.tobytes()
        if self.rank:
            return self.rest_of(own, array)
        parts = [own]
        for link in self.links.values():
            self.send(link, own)
        parts += [self.receive(self.links[rank]) for rank in range(1, self.world)]
        for rank in range(1, self.world):
            others = [part for number, part in enumerate(parts) if number not in (0, rank)]
            self.send(self.links[rank], b"".join(others))
        return self.gathered(parts, array)

    def rest_of(self, own: bytes, array: Array) -> Array:
        """The exchange on every rank but 0."""
        self.send(self.links[0], own)
        first = self.receive(self.links[0])
        rest, size = self.receive(self.links[0]), len(own)
        others = [rest[at * size : (at + 1) * size] for at in range(self.world - 2)]
        return self.gathered([first, *others[: self.rank - 1], own, *others[self.rank - 1 :]], array)

    def gathered(self, parts: Sequence[bytes], array: Array) -> Array:
        return np.frombuffer(b"".join(parts), array.dtype).reshape(self.world, *array.shape).copy()


class Ring(Star):
    """Ranks exchange ports through rank 0, and then send whole arrays around a ring."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        self.next = self.previous = socket.socket()
        if self.world == 1:
            return
        port, listen = self.own_port(context.master_addr)
        ports = Star.all_gather(self, np.array([port], np.int64)).ravel()
        with listen() as listener:
            self.next.close()
            self.wait_for_all()
            self.next = socket.create_connection((context.master_addr, int(ports[(self.rank + 1) % self.world])))
            self.previous = listener.accept()[0]

    def own_port(self, host: str) -> tuple[int, Callable[[], socket.socket]]:
        """The port for the previous rank, and a function that listens on it."""
        listener = socket.create_server((host, 0))
        return int(listener.getsockname()[1]), lambda: listener

    def wait_for_all(self) -> None:
        """Wait until all ranks listen."""
        Star.all_gather(self, np.zeros(1, np.int64))

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        parts = {self.rank: array.tobytes()}
        for step in range(self.world - 1):
            parts[(self.rank - step - 1) % self.world] = self.swap(parts[(self.rank - step) % self.world])
        whole = b"".join(parts[rank] for rank in range(self.world))
        return np.frombuffer(whole, array.dtype).reshape(self.world, *array.shape).copy()

    def swap(self, text: bytes) -> bytes:
        """Send to the next rank, and receive from the previous one."""
        raise NotImplementedError

    def close(self) -> None:
        super().close()
        self.next.close()
        self.previous.close()


class ThreadedRing(Ring):
    """Correct: a thread sends while the rank receives."""

    def __init__(self, context: RankContext) -> None:
        self.sender = ThreadPoolExecutor(1)
        super().__init__(context)

    def swap(self, text: bytes) -> bytes:
        sent = self.sender.submit(self.send, self.next, text)
        got = self.receive(self.previous)
        sent.result()
        return got

    def close(self) -> None:
        self.sender.shutdown()
        super().close()


@star("ring-sends-first", SMALL_BUFFERS, cause=SENDS_AT_ONCE, world_size=3, closed_to_strangers=False)
class RingSendsFirst(Ring):
    """Each rank sends its whole array to the next rank before it receives from the previous one."""

    def swap(self, text: bytes) -> bytes:
        self.send(self.next, text)
        return self.receive(self.previous)


# ------------------------------------------------------------------------------------------------- correct, but unusual


@star("ring-whose-even-ranks-send-first", world_size=3, closed_to_strangers=False)
class RingInTurn(Ring):
    """Correct: even ranks send first and odd ranks receive first, so no cycle of senders can form."""

    def swap(self, text: bytes) -> bytes:
        if self.rank % 2 == 0:
            self.send(self.next, text)
            return self.receive(self.previous)
        got = self.receive(self.previous)
        self.send(self.next, text)
        return got


RingWithThread = star("ring-with-a-sending-thread", world_size=3, closed_to_strangers=False)(ThreadedRing)
