"""The ranks' answers to one Job, with hang detection: each rank's results, or how it failed."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence

from ..job import Close, Job, Kill
from ..launchers.base import Launched
from ..storage import codec
from ..trace import IMPORTING, RankTrace, rank_from_plain
from . import low_priority_poll
from .channel import ChannelClosed
from .rank_link import RankLink, asked

_LOOKS = 10
"""The number of progress checks within a deadline."""

_TO_IMPORT = 60.0
"""Seconds for imports at first use: a large framework on a busy machine."""

_STARVED = 0.8
"""The part of the time looked at for which a rank was ready and got no processor, from which on it is the machine that
is slow. Four ranks that wait busily for each other on two processors, and for ever, get one for half of the time.
"""


def gather_reports(
    job: Job, links: Sequence[RankLink], launched: Launched, deadline: float, grace: float
) -> dict[int, RankTrace]:
    """One RankTrace for each rank, within `deadline` seconds of the last one's entering an operation (who is slow is not
    stuck; who imports a module is slow, and so is who gets no processor), and `grace` seconds once one has failed.

    Ranks that have not answered by then are asked where they stand. Where the Job kills a rank and the others close, they
    have the whole deadline: close() may take its time.
    """
    answers: dict[int, RankTrace] = {}
    poller = select.poll()
    for link in links:
        frame = link.jobs.pop()
        if frame is not None:
            answers[link.rank] = _answer(link, frame)
        else:
            poller.register(link.jobs.fileno(), select.POLLIN)
    by_file = {link.jobs.fileno(): link for link in links}
    limit = time.monotonic() + deadline
    imports_until = limit + _TO_IMPORT
    killed = {each.rank for each in job.operations if isinstance(each, Kill)}
    expected = killed if any(isinstance(each, Close) for each in job.operations) else set()
    failed = any(answer.outcome != "done" and rank not in expected for rank, answer in answers.items())
    if failed:
        limit = min(limit, time.monotonic() + grace)
    stood = [link.progress() for link in links if link.rank not in answers]
    snapshot: _Snapshot | None = None  # taken once nobody is ready: most Jobs are done by then
    while len(answers) < len(links):
        left = max(0.0, limit - time.monotonic())
        ready = low_priority_poll.poll(poller, min(left, deadline / _LOOKS) * 1000)
        if not ready:
            stand = [link.progress() for link in links if link.rank not in answers]
            if not failed and stand != stood:
                stood, limit, snapshot = stand, time.monotonic() + deadline, None
            elif not left:
                before, snapshot = snapshot, _queued(links)
                if not failed and time.monotonic() < imports_until and _starved(before, snapshot):
                    limit = time.monotonic() + deadline
                    continue
                stuck = asked([link for link in links if link.rank not in answers], job)
                if (
                    failed
                    or time.monotonic() > imports_until
                    or not any(IMPORTING in rank.stack for rank in stuck.values())
                ):
                    return answers | stuck
                limit = time.monotonic() + deadline
            snapshot = snapshot or _queued(links)
            continue
        for file, _ in ready:
            link = by_file[file]
            answer = _read(link, job, launched)
            if answer is None:
                continue
            answers[link.rank] = answer
            poller.unregister(file)
            if answer.outcome != "done" and link.rank not in expected and not failed:
                failed = True
                limit = min(limit, time.monotonic() + grace)
    return answers


_Snapshot = tuple[float, Sequence[Mapping[int, float]]]
"""When it was taken, and for how long each thread of each rank had waited for a processor until then."""


def _queued(links: Sequence[RankLink]) -> _Snapshot:
    return time.monotonic(), [link.queued() for link in links]


def _starved(before: _Snapshot | None, now: _Snapshot) -> bool:
    """Whether some rank was ready to run all the time, but got no processor."""
    if before is None:
        return False
    more = (late[task] - early.get(task, 0.0) for early, late in zip(before[1], now[1], strict=True) for task in late)
    return max(more, default=0.0) > _STARVED * (now[0] - before[0])


def _read(link: RankLink, job: Job, launched: Launched) -> RankTrace | None:
    """A rank's answer if it has arrived completely; a RankTrace of its death if the rank has ended."""
    try:
        link.jobs.fill()
        frame = link.jobs.pop()
    except ChannelClosed:
        return link.obituary(job, launched)
    return None if frame is None else _answer(link, frame)


def _answer(link: RankLink, frame: bytes | bytearray) -> RankTrace:
    """A rank whose connection carries something else is lost: its implementation may have written to a number that it took for a
    file of its own.
    """
    try:
        return rank_from_plain(codec.decode(frame))
    except (ValueError, TypeError, KeyError, RecursionError):
        text = f"rank {link.rank} sent {len(frame)} bytes that are no answer: another program wrote to this connection"
        return RankTrace(link.rank, "died", (), text, failed_at=time.monotonic())
