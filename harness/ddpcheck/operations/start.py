"""Special starts of the ranks, for rendezvous checks; and operations for short reads and small buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain

GATED, SHORT_READS, HOSTS = "DDPCHECK_GATED", "DDPCHECK_SHORT_READS", "DDPCHECK_HOSTS"
OWN_FOLDER, TAKEN_PORTS = "DDPCHECK_OWN_FOLDER", "DDPCHECK_TAKEN_PORTS"
"""Environment variables that tell a rank to wait before connect() until the driver lets it in, to cut its reads short,
to simulate hosts, to use the world's own temporary folder, and to take ports that are released.
"""


@plain
@dataclass(frozen=True, slots=True)
class Start:
    """The ranks are started anew for this Job.

    order: the ranks enter connect() one after the other; () lets them in at once, or by number if their sockets are
    disturbed. strangers: foreign clients call every
    listening rank (foreign_clients.py). short_reads: as the operation ShortReads, from before connect() on. in_place:
    the previous world is killed, and the new one uses the same rendezvous address. neighbour: when the first rank waits
    for the others, another world of the adapter starts on this host, and works at the same time. hosts: the launcher's
    variables (LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK) describe hosts with these numbers of ranks, though all share
    one host. own_folder: the world has a temporary folder (TMPDIR) of its own, empty before connect(). taken_ports: if
    the system chose a port for a Python socket, another socket takes the port as soon as the first is closed, until the
    end of the Job.
    """

    kind: ClassVar[str] = "start"
    order: tuple[int, ...] = ()
    strangers: bool = False
    short_reads: bool = False
    in_place: bool = False
    neighbour: bool = False
    hosts: tuple[int, ...] = ()
    own_folder: bool = False
    taken_ports: bool = False

    def misfit(self, world_size: int) -> str:
        """The reason why ranks of this world size cannot start this way; empty if they can."""
        if self.order and sorted(self.order) != list(range(world_size)):
            return f"the order {self.order} is not an order of {world_size} ranks"
        if self.hosts and (sum(self.hosts) != world_size or min(self.hosts) < 1):
            return f"hosts with {self.hosts} ranks do not add up to {world_size} ranks"
        return ""


@plain
@dataclass(frozen=True, slots=True)
class ShortReads:
    """Reads and sends on stream sockets are cut short, as a network may do, until the end of the Job or
    ShortReads(on=False).

    A read gives one byte, or half of the requested bytes; send() takes no more either. Yields reads: the number cut
    short so far.
    """

    kind: ClassVar[str] = "short_reads"
    on: bool = True


@plain
@dataclass(frozen=True, slots=True)
class SmallBuffers:
    """The process's open stream sockets and pipes hold few unread bytes, until the end of the Job or
    SmallBuffers(on=False).

    Yields streams: the number of changed sockets and pipes.
    """

    kind: ClassVar[str] = "small_buffers"
    on: bool = True
