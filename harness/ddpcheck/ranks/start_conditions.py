"""A start under the conditions of a Job (operations.start.Start): order of arrival, foreign clients, neighbour worlds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from ..job import AllGather, AllReduce, Broadcast, Job, SendRecv
from ..launchers.process_handles import state
from ..operations.start import GATED, HOSTS, OWN_FOLDER, SHORT_READS, TAKEN_PORTS, Start
from ..trace import StartReport, Trace
from .channel import ChannelClosed
from .foreign_clients import ForeignClients
from .rank_link import RankLink

LEAST_SECONDS = 5.0
_CHECK_SECONDS = 0.01
_ASLEEP_CHECKS = 6
"""A rank counts as waiting for the others once it was asleep in this many consecutive checks."""
_PATIENCE = 0.6
"""Seconds after which a rank counts as waiting even if it does not sleep: MPI ranks busy-wait."""
_UNTIL_CALLED = 2.0
"""Seconds after which foreign clients stop looking for a listening socket."""
_WAITING = "SZ"  # process states: asleep, zombie; an empty state (another host, or no Linux) counts as waiting too


class StartConditions:
    """The conditions of one start. port: of the rendezvous, None for any. start_neighbours: starts another world."""

    def __init__(
        self,
        start: Start,
        clients: ForeignClients,
        port: int | None = None,
        start_neighbours: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._clients = clients
        self._start_neighbours = start_neighbours
        self._port = port
        self._pids: dict[int, int] = {}

    def variables(self) -> dict[str, str]:
        """Return the environment variables that tell the ranks of these conditions."""
        found = {GATED: "1"}
        if self._start.short_reads:
            found[SHORT_READS] = "1"
        if self._start.taken_ports:
            found[TAKEN_PORTS] = "1"
        if self._start.hosts:
            found[HOSTS] = ",".join(map(str, self._start.hosts))
        if self._start.own_folder:
            found[OWN_FOLDER] = "1"
        if self._port is not None:
            found["MASTER_PORT"] = str(self._port)
        return found

    def let_in(self, links: Sequence[RankLink], here: str) -> None:
        """Let the ranks enter connect(), as the Start says."""
        order = self._start.order or tuple(range(len(links)))
        # a rank that fails because another one is late must not look like a failure of a disturbance of sockets
        disturbed = self._start.strangers or self._start.neighbour or self._start.short_reads or self._start.taken_ports
        in_turn = bool(self._start.order) or disturbed
        self._pids = {link.rank: link.pid for link in links if link.host == here}
        for rank in order:
            with suppress(ChannelClosed):  # the end of a rank is noticed when its answer is read
                links[rank].jobs.send(b"")
            if in_turn and rank != order[-1]:
                self._until_it_waits(rank)
            if self._start.neighbour and rank == order[0]:
                self._start_neighbours()

    def _until_it_waits(self, rank: int) -> None:
        """Wait until the rank waits for other ranks: its main thread sleeps in several checks."""
        began, checks = time.monotonic(), 0
        while (checks < _ASLEEP_CHECKS and time.monotonic() < began + _PATIENCE) or self._nobody_called(began):
            time.sleep(_CHECK_SECONDS)  # no event tells when another process begins to wait
            self.call_listening_ranks()
            checks = checks + 1 if state(self._pids.get(rank, 0)) in _WAITING else 0

    def _nobody_called(self, began: float) -> bool:
        return self._start.strangers and not self._clients.calls and time.monotonic() < began + _UNTIL_CALLED

    def call_again(self) -> None:
        """Let foreign clients call the ranks that still listen, after all ranks have connected."""
        self._clients.forget()
        self.call_listening_ranks()

    def call_listening_ranks(self) -> None:
        """Let foreign clients call the ranks that listen now."""
        if self._start.strangers:
            self._clients.find_listening_ranks(self._pids, call=True)

    def add_report(self, trace: Trace) -> Trace:
        """Add the observations of the start to the Trace, and disconnect foreign clients."""
        found = self._clients
        found.leave()
        listening = tuple(tuple(sorted(found.listening.get(rank, ()))) for rank in range(len(trace.ranks)))
        return replace(trace, start=StartReport(listening, found.calls, found.ran))


def neighbour_job(job: Job) -> Job:
    """Return a Job of the same operations on other values, for a neighbour world that has started."""
    operations = tuple(
        replace(operation, tensor=replace(operation.tensor, seed=operation.tensor.seed + 1))
        if isinstance(operation, AllGather | AllReduce | Broadcast | SendRecv)
        else operation
        for operation in job.operations
    )
    return replace(job, operations=operations, seed=job.seed + 1, start=None)
