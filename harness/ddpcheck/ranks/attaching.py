"""Ranks on their way into a Session: first each must reach the harness, then come out of the adapter's connect().

Errors are reported for all ranks together, with the ranks' output.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..causes import Cause, machine
from ..causes.lifecycle import WORLD_OF_ITS_OWN
from ..launchers.base import Launched
from ..storage import codec
from ..trace import IMPORTING, Outcome, RankTrace
from .channel import Channel, ChannelClosed, Listener
from .rank_link import RankLink, asked

_Hello = dict[str, Any]
_HELLO = {"purpose": str, "rank": int, "world_size": int, "engine": str, "pid": int, "host": str, "files": list}


class StartFailed(Exception):
    """The ranks did not start: `problems` has one line each, `words` the ranks' own, each rank's apart.

    ranks: what became of those that failed in connect(), by rank. causes: why, as far as it can be told. unreached: a
    process ended before it reached the harness.
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
        self.words = tuple(text for text in words if text)
        self.ranks = ranks or {}
        self.causes = tuple(dict.fromkeys(causes))
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

_PATIENCE = 30.0
"""Seconds between two looks at ranks in connect(): who stands where he stood is stuck, unless one is importing a module."""


_STOPPED = 2.0
"""Seconds between two looks whether one is stopped by a signal: nobody waits for such a one."""


def attach_ranks(launched: Launched, world_size: int, listener: Listener, within: float) -> list[RankLink]:
    """Accept both connections of every rank within so many seconds; none stays open if not all come."""
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
    limit = time.monotonic() + within
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
        reached = {rank for rank, _ in found}
        ended = _ended_early(launched, world_size, reached)
        if ended is not None:
            raise StartFailed([f"{ended} before it reached the harness"], launched.output(), unreached=True)
        if time.monotonic() > limit:
            absent = ", ".join(str(rank) for rank in range(world_size) if rank not in reached)
            raise StartFailed([f"rank {absent} did not reach the harness within {within:g} s"], launched.output())
    return [
        RankLink(rank, found[rank, "jobs"][0], found[rank, "sentinel"][0], found[rank, "jobs"][1])
        for rank in range(world_size)
    ]


def _ended_early(launched: Launched, world_size: int, reached: set[int]) -> str | None:
    """How a process ended that never connected; a connected rank reports its own error."""
    ended = launched.poll()
    if ended is None:
        return None
    told = {rank: launched.status_of(rank) for rank in range(world_size)}
    lost = [status for rank, status in told.items() if status and rank not in reached]
    return lost[0] if lost else None if any(told.values()) else ended


def _hello_of(channel: Channel) -> _Hello | None:
    """The greeting of a rank; None if the message is not a valid greeting."""
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


def accept_ranks(links: Sequence[RankLink], launched: Launched, limit: float, grace: float) -> dict[str, str]:
    """Wait until connect() has returned on every rank, at most until `limit`, and `grace` seconds once one has failed.

    Returns the promises that some rank lacks, with why.

    StartFailed with all problems of all ranks. Who waits for another rank is told much before somebody with a slow disk is.
    """
    since = time.monotonic()
    look, stood = since + _PATIENCE, None
    problems: list[str] = []
    details: list[str] = []
    causes: list[Cause] = []
    fates: dict[int, RankTrace] = {}
    lacks: dict[str, str] = {}
    pending = {link.jobs.fileno(): link for link in links}
    poller = select.poll()
    for file in pending:
        poller.register(file, select.POLLIN)
    while pending:
        ready = poller.poll(max(0.0, min(look, limit, time.monotonic() + _STOPPED) - time.monotonic()) * 1000)
        if not ready:
            if time.monotonic() >= limit or any(link.is_stopped() for link in pending.values()):
                break
            if time.monotonic() < look:
                continue
            stand = [fate.stack for fate in asked(pending.values(), None).values()]
            if stand == stood and not any(IMPORTING in stack for stack in stand):
                break
            stood = stand
            look = time.monotonic() + _PATIENCE
        for file, _ in ready:
            link = pending[file]
            try:
                link.jobs.fill()
                frame = link.jobs.pop()
                if frame is None:
                    continue
                link.remember()
                answer = codec.decode(frame)
                problems += [f"rank {link.rank}: {text}" for text in answer["problems"]]
                causes += map(Cause.from_plain, answer["causes"])
                lacks |= answer["lacks"]
                if answer["problems"]:
                    text = answer["error"] or "; ".join(answer["problems"])
                    outcome: Outcome = "raised" if answer["error"] else "invalid"
                    fates[link.rank] = RankTrace(link.rank, outcome, (), text, failed_at=time.monotonic())
                details += [f"rank {link.rank}:\n{answer['error']}"] if answer["error"] else []
            except ChannelClosed:
                fates[link.rank] = link.obituary(None, launched)
                problems.append(f"{link.ending(launched)} in connect()")
            poller.unregister(file)
            del pending[file]
        if problems:
            limit = min(limit, time.monotonic() + grace)
    if pending:
        stuck = asked(pending.values(), None)
        fates |= stuck
        who = ", ".join(map(str, stuck))
        seconds = time.monotonic() - since
        problems += [] if problems else [f"rank {who} did not return from connect() within {seconds:.0f} s"]
        details += [f"rank {rank} stands at:\n{fate.stack}" for rank, fate in stuck.items()]
    if problems:
        raise StartFailed(
            raise_together(problems), *raise_together(details), launched.output(), ranks=fates, causes=causes
        )
    return lacks


_OF_A_RANK = re.compile(r"rank (\d+)(.*)", re.DOTALL)


def raise_together(texts: Sequence[str]) -> list[str]:
    """Texts of the form "rank 3: ...", once for all ranks of which the same is told."""
    who: dict[str, list[int]] = {}
    for text in texts:
        found = _OF_A_RANK.fullmatch(text)
        who.setdefault(found[2] if found else text, []).extend([int(found[1])] if found else [])
    return [f"rank {', '.join(map(str, sorted(ranks)))}{text}" if ranks else text for text, ranks in who.items()]
