"""Special starts of the ranks, for checks of rendezvous; and short reads and sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..storage.dataclass_json import plain

GATED, SHORT_READS, HOSTS = "DDPCHECK_GATED", "DDPCHECK_SHORT_READS", "DDPCHECK_HOSTS"
OWN_FOLDER, TAKEN_PORTS = "DDPCHECK_OWN_FOLDER", "DDPCHECK_TAKEN_PORTS"
"""Environment variables that tell a rank to wait before connect() until the driver lets it in, to read as ShortReads, which
hosts to believe in, to have a temporary folder of the world's own, and to take ports that are released.
"""


@plain
@dataclass(frozen=True, slots=True)
class Start:
    """The ranks are started afresh for this Job.

    order: the ranks enter connect() one after the other; () lets them in at once. strangers: whoever listens is called by
    programs that do not belong to the world (foreign_clients.py). short_reads: as the operation ShortReads, from before
    connect() on. in_place: the world before is killed, and the new one meets where that did. neighbour: when the first rank
    waits for the others, another world of the adapter starts on this host, and is at work while this one is.
    hosts: ranks are told that so many of them are on each host (LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK), though they share one.
    own_folder: the temporary folder (TMPDIR) is the world's own, and empty before connect(). taken_ports: a port that the system
    chose for a socket of Python's is taken by another one as soon as that socket is closed, until the end of the Job.
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
            return f"the order {self.order} is none of {world_size} ranks"
        if self.hosts and (sum(self.hosts) != world_size or min(self.hosts) < 1):
            return f"hosts of {self.hosts} ranks do not hold {world_size}"
        return ""


@plain
@dataclass(frozen=True, slots=True)
class ShortReads:
    """Until the end of the Job, or one that says on=False: reading from Python's stream sockets gives one byte, or half of
    what was asked for, and send() takes no more, as a network may. Yields reads: the number cut short so far.
    """

    kind: ClassVar[str] = "short_reads"
    on: bool = True


@plain
@dataclass(frozen=True, slots=True)
class SmallBuffers:
    """Until the end of the Job, or one that says on=False: the stream sockets and pipes that the process has open now hold
    little that nobody has read. Yields streams: how many were changed.
    """

    kind: ClassVar[str] = "small_buffers"
    on: bool = True
