"""Rendezvous that fail with late ranks, short reads, foreign clients or a second world on the host."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import tempfile
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddpcheck.contract.rank_context import RankContext
from ddpcheck.seeded_values import Array

from ..star_communicator import HELLO, LENGTH, MAGIC, PATIENCE, Star, exactly, star

ORDER = "check_ranks_may_connect_in_any_order"
PIECES = "check_fragmented_messages_are_read_completely"
STRANGERS = "check_foreign_connections_are_ignored"
AGAIN = "check_world_can_restart_at_a_killed_worlds_address"
BESIDE = "check_worlds_on_one_host_are_independent"
LATE = "check_late_ranks_do_not_change_results"


@star("rank-by-accept-order", ORDER, cause="rank-by-arrival", world_size=3)
class RankByAcceptOrder(Star):
    """Rank 0 numbers the other ranks by arrival and ignores the ranks that they declare."""

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        found = super().admit(listener)  # in the order of arrival
        return dict(enumerate(found.values(), start=1))


@star("rank0-must-be-first", ORDER, cause="early-or-late-rank-not-awaited")
class NoSecondTry(Star):
    """A rank that connects before rank 0 listens fails at once."""

    def dial(self) -> socket.socket:
        return socket.create_connection(self.place)


@star("time-limit-of-dialling-stays", LATE, cause="gave-up-waiting", world_size=3)
class DialsWithinASecond(Star):
    """The connect timeout of one second also applies to every later message."""

    def dial(self) -> socket.socket:
        link = super().dial()
        link.settimeout(1.0)
        return link


@star("send-taken-for-sendall", PIECES, cause="short-read-taken-for-all")
class SendsOnce(Star):
    """send() may send a part of a message, and the rest is never sent."""

    def send(self, link: socket.socket, text: bytes) -> None:
        link.send(LENGTH.pack(len(text)) + text)


@star("partial-header", PIECES, seen_in=("Abhigyan-Shekhar/Waggle-mcp#285",), cause="short-read-taken-for-all")
class PartialHeader(Star):
    """The header of a message is read by a single recv(), which may return a part."""

    def header(self, link: socket.socket) -> bytes:
        return link.recv(8)


@star(
    "partial-hello",
    PIECES,
    seen_in=("yahoo/CaffeOnSpark#98",),
    cause="short-read-taken-for-all",
    closed_to_strangers=False,
)
class PartialHello(Star):
    """Rank 0 takes the first bytes that it reads for a rank's whole greeting."""

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        links = [listener.accept()[0] for _ in range(1, self.world)]
        return {HELLO.unpack(link.recv(HELLO.size))[1]: link for link in links}


@star(
    "unpickles-peer-data",
    STRANGERS,
    seen_in=("learning-at-home/hivemind#155", "ROCm/aiter#3076"),
    cause="unpickles-strangers",
)
class Unpickles(Star):
    """Rank 0 unpickles what any client sends, so a stranger can execute code."""

    def hello(self) -> bytes:
        return pickle.dumps(self.rank)

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        found: dict[int, socket.socket] = {}
        while len(found) < self.world - 1:
            link = listener.accept()[0]
            link.settimeout(0.05)
            with contextlib.suppress(Exception):
                rank = pickle.loads(link.recv(4096))
                if rank in range(1, self.world):
                    link.settimeout(None)
                    found[rank] = link
        return found


@star("listens-on-all-interfaces", STRANGERS, cause="listens-everywhere")
class ListensEverywhere(Star):
    """Rank 0 listens on all network interfaces."""

    def listen(self) -> socket.socket:
        return socket.create_server(("", self.place[1]), backlog=64)


@star(
    "stranger-takes-a-place",
    STRANGERS,
    cause="stranger-taken-for-rank",
)
class AcceptsAnybody(Star):
    """Rank 0 takes the first W - 1 connections for ranks."""

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        links = [listener.accept()[0] for _ in range(1, self.world)]
        return {HELLO.unpack(exactly(link, HELLO.size))[1]: link for link in links}


@star("stranger-takes-a-place-later", STRANGERS, cause="stranger-taken-for-rank")
class ComesBack(Star):
    """Rank 0 keeps listening, and a later client replaces the last rank."""

    def host(self) -> dict[int, socket.socket]:
        self.door = self.listen()
        return self.admit(self.door)

    def all_gather(self, array: Array, *, group: Sequence[int] | None = None) -> Array:
        if self.rank == 0 and self.world > 1 and select.select([self.door], [], [], 0)[0]:
            self.links[self.world - 1], _ = self.door.accept()
        return super().all_gather(array, group=group)


class ToldByAFile(Star):
    """Rank 0 listens at a free port and writes the port to a file, which stays if the world is killed."""

    file: Path

    def listen(self) -> socket.socket:
        listener = socket.create_server((self.place[0], 0), backlog=64)
        written = self.file.with_suffix(".new")
        written.write_text(str(listener.getsockname()[1]))
        written.rename(self.file)
        return listener

    def dial(self) -> socket.socket:
        limit = time.monotonic() + PATIENCE
        while not self.file.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        return socket.create_connection((self.place[0], int(self.file.read_text())))

    def close(self) -> None:
        super().close()
        if self.rank == 0:
            self.file.unlink(missing_ok=True)


@star("stale-store-file", AGAIN, seen_in=("deepspeedai/DeepSpeed#7941",), cause="old-world-left")
class StaleFile(ToldByAFile):
    """Ranks meet through a file named by MASTER_PORT, which a killed world leaves behind."""

    def __init__(self, context: RankContext) -> None:
        self.file = Path(tempfile.gettempdir(), f"star-{os.getuid()}-{context.master_port}")
        super().__init__(context)


@star("one-file-for-all-worlds", BESIDE, cause="name-shared-by-worlds", shares_host=True, restarts_in_place=False)
class OneFile(ToldByAFile):
    """Ranks meet through a file named by their working folder, which two worlds share."""

    def __init__(self, context: RankContext) -> None:
        self.file = Path(tempfile.gettempdir(), f"star-{os.getuid()}-{_of_this_folder()}")
        super().__init__(context)


@star("port-from-the-folder", BESIDE, cause="name-shared-by-worlds", shares_host=True)
class PortFromTheFolder(Star):
    """Ranks meet at a port derived from their working folder, which two worlds share."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(replace(context, master_port=15000 + _of_this_folder() % 10000))


def _of_this_folder() -> int:
    """A number of the working folder and the pytest worker: workers share a folder."""
    return zlib.crc32(f"{Path.cwd()} {os.environ.get('PYTEST_XDIST_WORKER')}".encode())


# ------------------------------------------------------------------------------------------------- correct, but unusual


@star("star-of-sockets", world_size=3)
class PlainStar(Star):
    """Correct: every rank is connected to rank 0 only."""


@star("accepts-in-any-order-once-declared", closed_to_strangers=False, restarts_in_place=False)
class TrustsEverybody(Star):
    """Correct where no protection from strangers is promised: rank 0 reads one client after the other."""

    def admit(self, listener: socket.socket) -> dict[int, socket.socket]:
        links = [listener.accept()[0] for _ in range(1, self.world)]
        found = {HELLO.unpack(exactly(link, HELLO.size)): link for link in links}
        return {rank: link for (magic, rank), link in found.items() if magic == MAGIC}
