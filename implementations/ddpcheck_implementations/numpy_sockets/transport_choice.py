"""What moves the bytes of a group of ranks: memory, sockets, or both."""

from __future__ import annotations

from collections.abc import Mapping

from .algorithms.choice import ALGORITHMS
from .algorithms.hierarchical import Hierarchical
from .algorithms.over_connections import OverStreams
from .connections.peer import Peer
from .group import Algorithms
from .meeting.host import Hosts
from .shared_memory.collectives import Host, InMemory


def algorithms_of(
    ranks: tuple[int, ...], own: int, peers: Mapping[int, Peer], host: Host | None, hosts: Hosts, forced: str
) -> Algorithms | None:
    """Of ascending `ranks`, this one among them; None if it is the only one. All ranks have the same `hosts`."""
    if len(ranks) == 1:
        return None
    here = [len({*ranks} & {*some}) for some in hosts]
    if host is not None and len(ranks) in here:
        return InMemory(ranks, own, host, forced)
    if max(here, default=1) > 1 and forced not in ALGORITHMS["sockets"]:
        return Hierarchical(ranks, own, peers, host, hosts, forced)
    return OverStreams(ranks, own, peers, forced)
