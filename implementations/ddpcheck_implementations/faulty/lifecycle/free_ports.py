"""Ranks that look up a free port, release it and use it later."""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np

from ddpcheck.contract.rank_context import RankContext

from ..collectives.blocking_sends import ThreadedRing
from ..star_communicator import Star, star

PORTS = "check_free_ports_are_held_until_they_are_used"


def free_port(host: str) -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class SecondPort(Star):
    """Rank 0 sends the port of the rendezvous over a first connection."""

    def __init__(self, context: RankContext) -> None:
        super().__init__(context)
        if self.world > 1:
            first, port = self.links, np.zeros(1, np.int64)
            if self.rank == 0:
                port[0] = free_port(context.master_addr)
            (port, *_) = Star.all_gather(self, port)
            self.place = context.master_addr, int(port[0])
            self.links = self.host() if self.rank == 0 else {0: self.join()}
            for link in first.values():
                link.close()


@star(
    "port-looked-up-by-rank-0", PORTS, cause="port-looked-up-free", closed_to_strangers=False, restarts_in_place=False
)
class LookedUpByRankZero(SecondPort):
    """Rank 0 looks up a free port, releases it, announces it, and listens on it only later."""


@star(
    "port-looked-up-by-every-rank",
    PORTS,
    cause="port-looked-up-free",
    closed_to_strangers=False,
    restarts_in_place=False,
)
class LookedUpByAll(ThreadedRing):
    """Each rank looks up a free port, releases it, and listens on it only when all ports are known."""

    def own_port(self, host: str) -> tuple[int, Callable[[], socket.socket]]:
        port = free_port(host)
        return port, lambda: socket.create_server((host, port))


# ------------------------------------------------------------------------------------------------- correct, but unusual


@star("looked-up-port-tried-again", closed_to_strangers=False, restarts_in_place=False)
class TriesAgain(ThreadedRing):
    """Correct: a rank whose port was taken meanwhile looks up another before it announces one."""

    def own_port(self, host: str) -> tuple[int, Callable[[], socket.socket]]:
        try:
            listener = socket.create_server((host, free_port(host)))
        except OSError:
            # another looked-up port may be taken too, so let the system choose, and keep it
            listener = socket.create_server((host, 0))
        return int(listener.getsockname()[1]), lambda: listener
