"""Start of a rank: rendezvous, choice of the transport, and the communicator."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from itertools import cycle
from typing import Literal

from ddpcheck.contract.rank_context import RankContext

from .algorithms.choice import validate_algorithm
from .communicator import Communicator
from .connections.deadlock_detector import DeadlockDetector
from .connections.peer import Peer, Traffic
from .rendezvous.deadlock_ports import connect_detectors
from .rendezvous.host_memory import Hosts, share_memory
from .rendezvous.protocol import RendezvousConfig, connect_all_ranks
from .rendezvous.unix_sockets import reconnect_over_unix
from .shared_memory.collectives import HostMemory
from .shared_memory.waiting import enough_processors

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
    """Connect to the other ranks at the master's address, and return a communicator.

    Ranks of one host share memory if they can ("auto"). `transport` forces "tcp", "unix" or "shm" (shared memory); the last
    two need all ranks on one host. `algorithm` forces one of choice.py. `hosts` emulates several hosts by their numbers of
    ranks, repeated as often as needed: "2" or "4,2". Times are in seconds.

    RendezvousError names the ranks that are missing after `start_timeout`. ValueError on an unknown name.
    """
    validate_algorithm(algorithm)
    emulated = _emulated_host(context.rank, hosts)
    if transport not in TRANSPORTS:
        raise ValueError(f"there is no transport {transport!r}: choose one of {', '.join(TRANSPORTS)}")
    rank, world_size = context.rank, context.world_size
    deadline = time.monotonic() + start_timeout
    config = RendezvousConfig(rank, world_size, context.master_addr, context.master_port, run, start_timeout)
    connections = connect_all_ranks(config)
    here = [connection.getsockname()[0] for connection in connections.values()]
    addresses = {other: connection.getpeername()[0] for other, connection in connections.items()}
    if transport == "unix" and connections:
        connections = reconnect_over_unix(rank, connections, deadline)
    traffic, detector = Traffic(), DeadlockDetector(rank)
    peers = _peers(context, connections, timeout, traffic, detector)
    try:
        if peers:
            connect_detectors(detector, here[0], peers, addresses)
        memory: HostMemory | None = None
        shared: Hosts = ()
        if peers and transport in ("auto", "shm"):
            memory, shared = share_memory(rank, peers, traffic, must=transport == "shm", emulated=emulated)
        return Communicator(
            rank, world_size, peers, traffic, detector, memory=memory, hosts=shared, algorithm=algorithm
        )
    except BaseException:
        for peer in peers.values():
            peer.close()
        detector.close()
        raise


def _peers(
    context: RankContext,
    connections: Mapping[int, socket.socket],
    timeout: float,
    traffic: Traffic,
    detector: DeadlockDetector,
) -> dict[int, Peer]:
    oversubscribed = not enough_processors(context.local_world_size)
    peers = {
        other: Peer(connection, context.rank, other, timeout, traffic, detector, oversubscribed=oversubscribed)
        for other, connection in sorted(connections.items())
    }
    for peer in peers.values():
        peer.other_peers = [other for other in peers.values() if other is not peer]
    return peers


def _emulated_host(rank: int, sizes: str) -> int:
    """Return the number of the emulated host of a rank. ValueError if `sizes` are no positive numbers."""
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
