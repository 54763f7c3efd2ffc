"""From a rank's place in the world to a communicator that reaches all other ranks."""

from __future__ import annotations

import time
from itertools import cycle
from typing import Literal

from ddpcheck.contract.rank_context import RankContext

from ..algorithms.choice import known
from ..communicator import Communicator
from ..connections.lookout import Lookout
from ..connections.peer import Peer, Traffic
from ..connections.unix_sockets import over_unix
from ..shared_memory.collectives import Host
from ..shared_memory.waiting import fits
from .host import Hosts, share_memory
from .lookouts import introduce
from .rendezvous import Meeting, meet

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
    hosts: str = "",
) -> Communicator:
    """Meet the other ranks at the master's address. RendezvousError names those that do not come within start_timeout.

    Ranks of one host share memory unless `transport` says otherwise: "tcp", "unix" (all on one host), or "shm", which is an
    error where memory cannot be shared. `algorithm` forces one of choice.py. `hosts` emulates some, of so many ranks each: "2"
    or "4,2", over and over.
    """
    known(algorithm)
    emulated = _emulated_host(context.rank, hosts)
    if transport not in TRANSPORTS:
        raise ValueError(f"there is no transport {transport!r}: choose one of {', '.join(TRANSPORTS)}")
    rank, world_size = context.rank, context.world_size
    deadline = time.monotonic() + start_timeout
    meeting = Meeting(rank, world_size, context.master_addr, context.master_port, run, start_timeout)
    connections = meet(meeting)
    lookout = Lookout(rank)
    here = [connection.getsockname()[0] for connection in connections.values()]
    addresses = {other: connection.getpeername()[0] for other, connection in connections.items()}
    if transport == "unix" and connections:
        connections = over_unix(rank, connections, deadline)
    traffic = Traffic()
    crowded = not fits(context.local_world_size)
    peers = {
        other: Peer(connection, rank, other, timeout, traffic, lookout, crowded=crowded)
        for other, connection in sorted(connections.items())
    }
    for peer in peers.values():
        peer.beside = [other for other in peers.values() if other is not peer]
    try:
        if peers:
            introduce(lookout, here[0], peers, addresses)
        host: Host | None = None
        shared: Hosts = ()
        if peers and transport in ("auto", "shm"):
            host, shared = share_memory(rank, peers, traffic, must=transport == "shm", emulated=emulated)
        return Communicator(rank, world_size, peers, traffic, lookout, host=host, hosts=shared, algorithm=algorithm)
    except BaseException:
        for peer in peers.values():
            peer.close()
        lookout.close()
        raise


def _emulated_host(rank: int, sizes: str) -> int:
    """The number of the host that a rank is to be on. ValueError if these are no sizes."""
    try:
        each = [int(size) for size in sizes.split(",")] if sizes else []
        if any(size < 1 for size in each):
            raise ValueError
    except ValueError:
        raise ValueError(f"hosts of {sizes!r} ranks: say how many each has, as 2 or 4,2") from None
    last = -1
    for number, size in enumerate(cycle(each)):
        last += size
        if rank <= last:
            return number
    return 0
