"""From a rank's place in the world to a communicator that reaches all other ranks."""

from __future__ import annotations

import time
from typing import Literal

from ddpcheck.environment import RankContext

from .choice import known
from .communicator import Communicator
from .host import share_memory
from .nearer import over_unix
from .peer import Peer, Traffic
from .rendezvous import Meeting, meet
from .waiting import fits

Transport = Literal["auto", "tcp", "unix", "shm"]
TRANSPORTS: tuple[Transport, ...] = ("auto", "tcp", "unix", "shm")


def start(
    context: RankContext,
    *,
    run: str = "",
    start_timeout: float = 120.0,
    timeout: float = 30.0,
    transport: str = "auto",
    algorithm: str = "",
) -> Communicator:
    """Meet the other ranks at the master's address. RendezvousError names those that do not come within start_timeout.

    Ranks of one host share memory unless `transport` says otherwise: "tcp", "unix" (all on one host), or "shm", which is an
    error where memory cannot be shared. `algorithm` forces one of choice.py.
    """
    known(algorithm)
    if transport not in TRANSPORTS:
        raise ValueError(f"there is no transport {transport!r}: choose one of {', '.join(TRANSPORTS)}")
    rank, world_size = context.rank, context.world_size
    deadline = time.monotonic() + start_timeout
    meeting = Meeting(rank, world_size, context.master_addr, context.master_port, run, start_timeout)
    connections = meet(meeting)
    if transport == "unix" and connections:
        connections = over_unix(rank, connections, deadline)
    traffic = Traffic()
    crowded = not fits(context.local_world_size)
    peers = {
        other: Peer(connection, rank, other, timeout, traffic, crowded=crowded)
        for other, connection in sorted(connections.items())
    }
    try:
        host = None
        if peers and transport in ("auto", "shm"):
            host = share_memory(rank, peers, traffic, must=transport == "shm")
        return Communicator(rank, world_size, peers, traffic, host=host, algorithm=algorithm)
    except BaseException:
        for peer in peers.values():
            peer.close()
        raise
