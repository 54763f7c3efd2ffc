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
_LOOK_EVERY = 0.01
_ASLEEP = 6
"""A rank counts as waiting for the others once it was asleep in this many consecutive looks."""
_PATIENCE = 0.6
"""Seconds after which a rank counts as waiting even if it does not sleep, as with MPI."""
_UNTIL_CALLED = 2.0
"""Seconds after which foreign clients stop looking for a listening socket."""
_WAITING = "SZ"  # asleep, or ended; no answer counts too: the rank is elsewhere, or this is no Linux


class StartConditions:
    """One start. `port`: where the ranks must meet, or None. meet: starts the neighbours."""

    def __init__(
        self, start: Start, strangers: ForeignClients, port: int | None = None, meet: Callable[[], None] = lambda: None
    ) -> None:
        self._start = start
        self._strangers = strangers
        self._meet = meet
        self._port = port
        self._pids: dict[int, int] = {}

    def variables(self) -> dict[str, str]:
        """The environment variables of the ranks."""
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
        in_turn = bool(self._start.order) or self._start.strangers or self._start.neighbour
        self._pids = {link.rank: link.pid for link in links if link.host == here}
        for rank in order:
            with suppress(ChannelClosed):  # one that is gone shows when its answer is read
                links[rank].jobs.send(b"")
            if in_turn and rank != order[-1]:
                self._until_it_waits(rank)
            if self._start.neighbour and rank == order[0]:
                self._meet()

    def _until_it_waits(self, rank: int) -> None:
        """Wait until the rank only waits for others: its main thread sleeps."""
        began, looks = time.monotonic(), 0
        while (looks < _ASLEEP and time.monotonic() < began + _PATIENCE) or self._nobody_called(began):
            time.sleep(_LOOK_EVERY)  # nobody tells when another process begins to wait
            self.look_around()
            looks = looks + 1 if state(self._pids.get(rank, 0)) in _WAITING else 0

    def _nobody_called(self, began: float) -> bool:
        return self._start.strangers and not self._strangers.calls and time.monotonic() < began + _UNTIL_CALLED

    def call_again(self) -> None:
        """The world has formed: foreign clients call the ranks that still listen."""
        self._strangers.forget()
        self.look_around()

    def look_around(self) -> None:
        """Foreign clients call the ranks that listen now."""
        if self._start.strangers:
            self._strangers.look_around(self._pids, call=True)

    def told(self, trace: Trace) -> Trace:
        """Add the observations of the start to the Trace, and disconnect foreign clients."""
        found = self._strangers
        found.leave()
        listening = tuple(tuple(sorted(found.listening.get(rank, ()))) for rank in range(len(trace.ranks)))
        return replace(trace, start=StartReport(listening, found.calls, found.ran))


def neighbour_job(job: Job) -> Job:
    """The same operations on other values, for ranks that have started already."""
    operations = tuple(
        replace(operation, tensor=replace(operation.tensor, seed=operation.tensor.seed + 1))
        if isinstance(operation, AllGather | AllReduce | Broadcast | SendRecv)
        else operation
        for operation in job.operations
    )
    return replace(job, operations=operations, seed=job.seed + 1, start=None)
