"""From a rank's place in the world to a communicator that reaches all other ranks."""

from __future__ import annotations

from ddpcheck.environment import RankContext

from .communicator import DIRECT_BYTES, Communicator
from .peer import Peer, Traffic
from .rendezvous import Meeting, meet


def start(
    context: RankContext,
    *,
    run: str = "",
    start_timeout: float = 120.0,
    timeout: float = 30.0,
    direct_bytes: int = DIRECT_BYTES,
) -> Communicator:
    """Meet the other ranks at the master's address. RendezvousError names those that do not come within start_timeout."""
    rank, world_size = context.rank, context.world_size
    meeting = Meeting(rank, world_size, context.master_addr, context.master_port, run, start_timeout)
    traffic = Traffic()
    peers = {
        other: Peer(connection, rank, other, timeout, traffic) for other, connection in sorted(meet(meeting).items())
    }
    return Communicator(rank, world_size, peers, traffic, direct_bytes=direct_bytes)
