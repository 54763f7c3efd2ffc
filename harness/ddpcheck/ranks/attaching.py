"""The start of a Session: each rank connects to the driver, then returns from the adapter's connect().

Errors of all ranks are reported together, with the ranks' output.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..causes import Cause, machine
from ..causes.lifecycle import WORLD_OF_ITS_OWN
from ..counted_nouns import ranks_named
from ..launchers.cpu_starvation import Patience, Snapshot, snapshot, starved
from ..launchers.launcher import Ending, Launched
from ..launchers.process_handles import processes_under, queued
from ..refused_resources import cause_in_output, cause_of_death
from ..storage import codec
from ..trace import IMPORTING, Outcome, RankTrace
from .channel import Channel, ChannelClosed, Listener
from .rank_link import RankLink, asked

_Hello = dict[str, Any]
_HELLO = {"purpose": str, "rank": int, "world_size": int, "engine": str, "pid": int, "host": str, "files": list}


class StartFailed(Exception):
    """The ranks did not start. problems: one line each. words: the ranks' errors and output.

    ranks: the traces of ranks that failed in connect(). causes: the likeliest first, if any is known. unreached: a process
    ended before it connected to the driver.
    """

    def __init__(
        self,
        problems: list[str],
        *words: str,
        unreached: bool = False,
        ranks: Mapping[int, RankTrace] | None = None,
        causes: Iterable[Cause] = (),
    ) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.words: tuple[str, ...] = tuple(text for text in words if text)
        self.ranks: Mapping[int, RankTrace] = ranks or {}
        self.causes: tuple[Cause, ...] = tuple(dict.fromkeys(causes))
        self.unreached = unreached

    @property
    def details(self) -> str:
        return "\n".join(self.words)

    @property
    def says_nothing(self) -> bool:
        """Whether the machine refused a resource that all ranks need: not a failure of the adapter."""
        return any(cause.id in _OF_THE_MACHINE for cause in self.causes)

    @property
    def stuck(self) -> bool:
        """Whether ranks hang, and none has failed."""
        return bool(self.ranks) and all(fate.outcome == "hung" for fate in self.ranks.values())


_OF_THE_MACHINE = {machine.SYSTEM_REFUSES_RESOURCE.id, machine.NO_LOOPBACK.id, machine.NO_FREE_PORT.id}

_STUCK_SECONDS = 30.0
"""Ranks in connect() that have the same stacks after so long are stuck, unless one is importing a module."""
_STOPPED_SECONDS = 2.0
"""Seconds between checks for ranks that are stopped by a signal, which the driver does not wait for."""


def attach_ranks(launched: Launched, world_size: int, listener: Listener, within: float) -> list[RankLink]:
    """Accept both connections of every rank within `within` seconds, or more if this driver's processes get no processor.

    StartFailed if some are missing; all are closed then.
    """
    channels: list[Channel] = []
    try:
        return _accept_all(launched, world_size, listener, within, channels)
    except BaseException:
        for channel in channels:
            channel.close()
        raise


def _accept_all(
    launched: Launched, world_size: int, listener: Listener, within: float, channels: list[Channel]
) -> list[RankLink]:
    patience = Patience(within)
    found: dict[tuple[int, str], tuple[Channel, _Hello]] = {}
    while len(found) < 2 * world_size:
        channel = None
        with suppress(TimeoutError):
            channel = listener.accept(0.2)
        if channel is not None:
            hello = _hello_of(channel)
            if hello is None:
                channel.close()
                continue
            channels.append(channel)
            _check_hello(hello, found, world_size)
            found[hello["rank"], hello["purpose"]] = channel, hello
            continue
        reached = {rank for rank, purpose in found if purpose == "sentinel"}  # the second connection of a rank
        ended = _ended_early(launched, world_size, reached)
        if ended is not None:
            said = launched.output()
            problem = f"{ended} before it reached the harness"
            raise StartFailed([problem], said, unreached=True, causes=cause_in_output(said) or cause_of_death())
        if patience.is_over(lambda: map(queued, processes_under(os.getpid()))):
            absent = ranks_named([rank for rank in range(world_size) if rank not in reached])
            raise StartFailed([f"{absent} did not reach the harness within {within:g} s"], launched.output())
    return [
        RankLink(rank, found[rank, "jobs"][0], found[rank, "sentinel"][0], found[rank, "jobs"][1])
        for rank in range(world_size)
    ]


def _ended_early(launched: Launched, world_size: int, reached: set[int]) -> Ending | None:
    """Return how a process ended that never connected; None if there is none. A connected rank reports its own error."""
    ended = launched.poll()
    if ended is None:
        return None
    endings = {rank: found for rank in range(world_size) if (found := launched.ending_of(rank)) is not None}
    lost = [found for rank, found in endings.items() if rank not in reached]
    return lost[0] if lost else None if endings else ended


def _hello_of(channel: Channel) -> _Hello | None:
    """Return the greeting of a rank; None if the message is not a valid greeting."""
    try:
        hello = codec.decode(channel.greeting)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(hello, dict) or {name: type(value) for name, value in hello.items()} != _HELLO:
        return None
    return hello


def _check_hello(hello: _Hello, found: Mapping[tuple[int, str], object], world_size: int) -> None:
    if hello["world_size"] != world_size:
        seen = f"a process sees a world of {hello['world_size']} through {hello['engine']}"
        alone = (WORLD_OF_ITS_OWN(),) if hello["world_size"] == 1 else ()
        raise StartFailed([f"launched as {world_size} ranks, but {seen}"], causes=alone)
    if (hello["rank"], hello["purpose"]) in found:
        raise StartFailed([f"two processes say that they are rank {hello['rank']}"])


def wait_for_connect(links: Sequence[RankLink], launched: Launched, limit: float, grace: float) -> dict[str, str]:
    """Wait until connect() has returned on every rank: until `limit`, and `grace` seconds once a rank has failed.

    Returns the promises that some rank does not keep, each with the reason. StartFailed with all problems of all ranks. A
    stuck rank is detected long before `limit`, which is made for slow disks. Ranks that get no processor have more time.
    """
    return _ConnectWait(links, launched, limit, grace).run()


class _ConnectWait:
    def __init__(self, links: Sequence[RankLink], launched: Launched, limit: float, grace: float) -> None:
        self._launched, self._links, self._grace = launched, links, grace
        self._began = time.monotonic()
        self._patience = Patience(max(0.0, limit - self._began))
        self._limit: float | None = None  # the end of the grace, once a rank has failed
        self._queues = self._queued()
        self._next_check = self._began + _STUCK_SECONDS
        self._stacks: list[str] | None = None  # stacks of the previous check
        self._problems: list[str] = []
        self._details: list[str] = []
        self._causes: list[Cause] = []
        self._failed: dict[int, RankTrace] = {}
        self._lacks: dict[str, str] = {}
        self._pending = {link.jobs.fileno(): link for link in links}
        self._poller = select.poll()
        for file in self._pending:
            self._poller.register(file, select.POLLIN)

    def run(self) -> dict[str, str]:
        while self._pending:
            now = time.monotonic()
            limit = now + self._patience.left if self._limit is None else self._limit
            until = min(self._next_check, limit, now + _STOPPED_SECONDS)
            ready = self._poller.poll(max(0.0, until - now) * 1000)
            if not ready and self._is_over():
                break
            for file, _ in ready:
                self._read(file)
            if self._problems and self._limit is None:
                self._limit = min(limit, time.monotonic() + self._grace)
        if self._pending:
            self._report_stuck_ranks()
        if self._problems:
            words = (*merge_ranks(self._details), self._launched.output())
            raise StartFailed(merge_ranks(self._problems), *words, ranks=self._failed, causes=self._causes)
        return self._lacks

    def _is_over(self) -> bool:
        """Whether the limit is over, a rank is stopped, or no pending rank has moved since the previous check."""
        if self._is_past_limit() or any(link.is_stopped() for link in self._pending.values()):
            return True
        if time.monotonic() < self._next_check:
            return False
        stacks = [rank.stack for rank in asked(self._pending.values(), None).values()]
        before, self._queues = self._queues, self._queued()
        importing = any(IMPORTING in stack for stack in stacks)
        if stacks == self._stacks and not importing and not starved(before, self._queues):
            return True
        self._stacks = stacks
        self._next_check = time.monotonic() + _STUCK_SECONDS
        return False

    def _is_past_limit(self) -> bool:
        if self._limit is not None:
            return time.monotonic() >= self._limit
        return self._patience.is_over(lambda: [link.queued() for link in self._links])

    def _queued(self) -> Snapshot:
        return snapshot(link.queued() for link in self._links)

    def _read(self, file: int) -> None:
        """Read the bytes that have arrived from a rank: its answer, or the end of its connection."""
        link = self._pending[file]
        try:
            link.jobs.fill()
            frame = link.jobs.pop()
            if frame is None:
                return
            link.remember()
            self._record(link.rank, codec.decode(frame))
        except ChannelClosed:
            self._failed[link.rank] = link.obituary(None, self._launched)
            self._problems.append(f"{link.ending(self._launched)} in connect()")
            if not self._causes:
                self._causes += cause_of_death()
        self._poller.unregister(file)
        del self._pending[file]

    def _record(self, rank: int, answer: dict[str, Any]) -> None:
        self._problems += [f"rank {rank}: {text}" for text in answer["problems"]]
        self._causes += map(Cause.from_plain, answer["causes"])
        self._lacks |= answer["lacks"]
        if answer["problems"]:
            text = answer["error"] or "; ".join(answer["problems"])
            outcome: Outcome = "raised" if answer["error"] else "invalid"
            self._failed[rank] = RankTrace(rank, outcome, (), text, failed_at=time.monotonic())
        self._details += [f"rank {rank}:\n{answer['error']}"] if answer["error"] else []

    def _report_stuck_ranks(self) -> None:
        stuck = asked(self._pending.values(), None)
        self._failed |= stuck
        if not self._problems:
            seconds = time.monotonic() - self._began
            self._problems.append(f"{ranks_named(tuple(stuck))} did not return from connect() within {seconds:.0f} s")
        self._details += [f"rank {rank} stands at:\n{trace.stack}" for rank, trace in stuck.items()]


_OF_A_RANK = re.compile(r"rank (\d+)(.*)", re.DOTALL)


def merge_ranks(texts: Sequence[str]) -> list[str]:
    """Merge texts of the form "rank 3: ..." that differ only in the rank: "ranks 1, 3: ..."."""
    ranks_by_text: dict[str, list[int]] = {}
    for text in texts:
        found = _OF_A_RANK.fullmatch(text)
        ranks_by_text.setdefault(found[2] if found else text, []).extend([int(found[1])] if found else [])
    return [f"{ranks_named(sorted(ranks))}{text}" if ranks else text for text, ranks in ranks_by_text.items()]
